//! Where a recording goes: file or pipe, the journal beside a file, checkpoints, and the feature sections at the end.

mod closed_files;
pub(crate) mod complete;
mod compression;
mod compressor;
mod journal;
pub(crate) mod machine;
mod older;
pub(crate) mod pipe;
mod recover;
pub(crate) mod sections;
mod sink;
mod state_writer;
mod summary;
mod syncer;
mod tally;
mod user_hits;

pub(crate) use closed_files::ClosedFiles;
pub(crate) use compressor::Compressor;
pub(crate) use journal::Leftover;
pub use recover::{Recovered, recover};
pub(crate) use sink::{Origin, Sink};
pub(crate) use state_writer::{StateWriter, stamp};
pub use summary::Summary;
pub(crate) use syncer::Syncer;
pub(crate) use tally::{Follower, Tally};
pub(crate) use user_hits::{FileHits, LeftOut, Mapper};
