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
//! `bprec-bpf`, every layout from `bprec-format`. `unsafe` stands in `drain::ring` and in `sys` alone.
#![deny(unsafe_code)]
mod control;
mod doctor;
mod drain;
mod error;
mod events;
mod limits;
mod options;
mod output;
mod sources;
mod synth;
mod sys;

pub use bprec_bpf::Bounds;
pub use control::{Counts, Moment, ProgramName, Readings, stat};
pub use doctor::{Finding, Status, doctor};
pub use error::{Error, Result};
pub use limits::Limit;
pub use options::{
    Aggregate, Budget, Counters, Exact, Level, ObjectFile, Options, Output, Rate, RingSize, StatOptions, StatTarget,
    SwitchOutput, Taken, Target, UserChains, WantedMap,
};
pub use output::{Recovered, Summary, recover};
pub use sources::bpf_sampler::SamplerFields;
pub use sources::shared::{CounterTarget, Shared, SharedOptions};
pub use sys::survive_file_size_limit;

/// Records as `options` say, until the command ends, the duration is over, the targets are gone, or a signal
/// (SIGINT, SIGTERM) arrives.
///
/// # Errors
/// When no event can be opened, the command cannot be run, or the output cannot be written. What was written until then
/// stays and can be opened.
pub fn record(options: &Options) -> Result<Summary> {
    control::record(options)
}
