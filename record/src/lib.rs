//! Recording: from perf events and BPF programs of the running kernel to a perf.data file.
//!
//! [`record`] opens the events that [`Options`] request, maps one ring buffer per CPU, and copies the kernel's records from there to the output
//! without decoding them. It also holds a descriptor of every BPF program that exists at any moment of the recording, reads the run statistics of the
//! programs, and writes data without a perf record type as `bprec:state` samples.
//!
//! [`stat`] counts without recording. It reads the same counters, and passes their values to the caller as they arrive.
//!
//! This crate must not know command lines, terminals or reports: it takes parsed options, passes messages to a callback of the caller, and returns a
//! [`Summary`]. `bprec-bpf` reads the kernel's information about BPF programs. `bprec-format` defines all layouts. Only `drain::ring` and `sys`
//! contain `unsafe`.
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
pub use bprec_format::bpf::{FunctionFilter, MapFilter};
pub use control::{Counts, Moment, ProgramName, Readings, stat};
pub use doctor::{Finding, Status, doctor};
pub use error::{Error, Result};
pub use limits::Limit;
pub use options::{
    Aggregate, Budget, Counters, Exact, Level, ObjectFile, Options, Output, Rate, RingSize, StatOptions, StatTarget,
    SwitchOutput, Taken, Target, UserChains,
};
pub use output::{Moved, Recovered, Summary, make_way, recover};
pub use sources::bpf_sampler::SamplerFields;
pub use sources::shared::{CounterTarget, Shared, SharedOptions};
pub use sys::survive_file_size_limit;

/// Records as `options` request, until the command ends, the duration is over, all targets have ended, a signal (SIGINT, SIGTERM, SIGHUP)
/// arrives, or [`Options::stop`] is ready.
///
/// # Errors
/// Fails if no event can be opened, the command cannot be run, or the output cannot be written. Data written before the error is kept and can be
/// opened.
pub fn record(options: &Options) -> Result<Summary> {
    control::record(options)
}
