//! bprec's additions to perf.data: states, samples of its own program, and the journal beside an unfinished file. Nothing generic knows them.

pub mod journal;
pub mod sampler;
pub mod state;
