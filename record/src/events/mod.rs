//! Events to open: syntax, PMUs, tracepoints, and descriptors for each target and CPU.

mod abilities;
mod counters;
pub(crate) mod machine;
mod open;
pub(crate) mod sampling;
pub(crate) mod syntax;
mod targets;

pub(crate) use abilities::Abilities;
pub(crate) use counters::{OpenCounters, Wanted, cpus_of, described, open_on};
pub(crate) use open::{EventFd, OpenEvent, OpenEvents, ReopenedCpu, SampleRole, everywhere};
pub(crate) use sampling::{Sampler, refused};
pub(crate) use targets::{Binding, CpuThreadTargets};
