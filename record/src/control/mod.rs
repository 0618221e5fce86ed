//! The control thread: the life of a recording, or of a count without one.
//!
//! It owns the clock, the signals, the command and the sources, and does whatever may take time. Draining goes on meanwhile
//! in a thread of its own.

mod command;
mod liveness;
mod recording;
mod rotation;
mod run;
mod sources;
mod stat;

pub(crate) use recording::record;
pub use stat::{Counts, Moment, ProgramName, Readings, stat};
