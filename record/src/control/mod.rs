//! The control thread: runs a recording, or a count that records nothing.
//!
//! The control thread owns the clock, the signals, the command and the sources, and does all work that may take time.
//! The drain thread empties the rings meanwhile.

mod command;
mod liveness;
mod recording;
mod rotation;
mod run;
mod sources;
mod stat;

pub(crate) use recording::record;
pub use stat::{Counts, Moment, ProgramName, Readings, stat};
