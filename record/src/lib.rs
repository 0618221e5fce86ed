//! Recording: from perf events and BPF programs of the running kernel to a perf.data file.
//!
//! [`record`] opens the events that [`Options`] ask for, maps one ring buffer per CPU and moves what the kernel writes
//! there into the output without looking at it. Beside that it keeps hold of every BPF program alive at any moment of
//! the recording, reads its statistics, and writes what perf has no record for as `bprec:state` samples.
//!
//! [`stat`] counts without recording: the same sources of counts, whose states it hands to its caller as they come.
//!
//! This crate must not know of command lines, terminals or reports: it takes options that are already understood, hands
//! messages to a function of the caller's, and returns a [`Summary`]. What the kernel says about BPF programs comes from
//! `bprec-bpf`, every layout from `bprec-format`. `unsafe` stands in the modules `ring` and `sys` alone.
#![deny(unsafe_code)]
mod aggregate;
mod bpf_sampler;
mod captor;
mod dump;
mod error;
mod event;
mod exact;
mod features;
mod finish;
mod glob;
mod grown;
mod host;
mod hotplug;
mod inventory;
mod machine;
mod open;
mod options;
mod output;
mod recover;
mod ring;
mod sampler;
mod session;
mod shared;
mod stat;
mod state_stream;
mod summary;
mod synth;
mod sys;
mod tally;
mod user_programs;
mod workload;

pub use bpf_sampler::SamplerFields;
pub use bprec_bpf::Bounds;
pub use error::{Error, Result};
pub use options::{
    Aggregate, Budget, Counters, Exact, Level, ObjectFile, Options, Output, Rate, RingSize, Target, WantedMap,
};
pub use recover::{Recovered, recover};
pub use shared::{Shared, SharedOptions, Whose};
pub use stat::{Counted, Counts, Moment, ProgramName, Readings, StatOptions, stat};
pub use summary::Summary;

/// Records as `options` say, until the command ends, the duration is over, the targets are gone, or a signal
/// (SIGINT, SIGTERM) arrives.
///
/// # Errors
/// When no event can be opened, the command cannot be run, or the output cannot be written. What was written until then
/// stays and can be opened.
pub fn record(options: &Options) -> Result<Summary> {
    session::run(options)
}
