//! Output of a recording: the output thread and its queue, file or pipe, the journal next to a file, checkpoints, and
//! the feature sections at the end.

mod closed_files;
pub(crate) mod complete;
mod compression;
mod journal;
pub(crate) mod machine;
mod older;
pub(crate) mod pipe;
mod queue;
mod recover;
pub(crate) mod sections;
mod sink;
mod state_writer;
mod summary;
mod syncer;
mod tally;
mod thread;
mod trailer;
mod user_hits;

pub(crate) use closed_files::ClosedFiles;
pub(crate) use journal::Leftover;
pub use older::{Moved, make_way};
pub(crate) use queue::{DrainAccount, Message, Queue};
pub use recover::{Recovered, recover};
pub(crate) use sink::{Origin, Sink};
pub(crate) use state_writer::{StateWriter, stamp};
pub use summary::Summary;
pub(crate) use summary::grouped;
pub(crate) use syncer::Syncer;
pub(crate) use tally::Tally;
pub(crate) use thread::{Closed, Next, OutputThread};
pub(crate) use trailer::fix_sample_id_trailer;
pub(crate) use user_hits::{FileHits, LeftOut, Mapper};
