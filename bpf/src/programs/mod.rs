//! Loads, attaches and reads BPF programs: programs of our own, each beside its source (`*.bpf.c`) and committed object, and programs
//! of the user.

mod aggregate;
mod bperf;
mod kernel_names;
#[cfg(test)]
mod layout;
mod names;
mod perf_event;
mod profiler;
mod quiet;
mod refs;
mod sampler;
mod user_object;

pub use aggregate::{Aggregator, PerCpuStats, Stack, UserDetail};
pub use bperf::{AttrMap, EventReading, FOLLOWED_MAX, Follower, Inherit, Leader, LeaderSlot, Locked, Targets};
pub use bprec_format::bprec::counts_others;
pub use kernel_names::KernelNames;
pub use names::lists_references;
pub use perf_event::{AttachMethod, Attached};
pub use profiler::{
    EVENTS_MAX, HISTOGRAM_SUB_BITS, Probe, ProbeCost, ProbeCounts, Profiler, Refusals, Source, StatsCost, StatsProbe,
    makes_tail_calls, tail_calls_are_counted,
};
pub use refs::{ProgRefs, Refs};
pub use sampler::{Recipe, SamplerProgram};
pub use user_object::{OutputMap, UserObject, UserProgram};

use crate::error::Result;
use crate::inspect::Program;

impl Program {
    /// Returns true if the program has the name of a program of bprec or perf that counts other programs, calibrates this counting, or counts at
    /// context switches.
    ///
    /// # Errors
    /// Fails if the kernel does not return the program's name.
    pub fn counts(&self) -> Result<bool> {
        let name = self.short_name()?;
        Ok(counts_others(&name) || names::counts_switches(&name))
    }
}
