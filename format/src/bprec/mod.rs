//! What bprec adds to a perf.data: states, samples of its own program, and the journal beside an unfinished file. Nothing generic knows it.

pub mod journal;
pub mod sampler;
pub mod state;
