//! What to open: event syntax, PMUs, tracepoints, targets × CPUs → descriptors.

mod abilities;
mod glob;
pub(crate) mod machine;
mod open;
pub(crate) mod sampling;
pub(crate) mod syntax;
mod targets;

pub(crate) use abilities::Abilities;
pub(crate) use glob::glob;
pub(crate) use open::{OpenEvent, OpenEvents, SampleRole, everywhere};
pub(crate) use sampling::{Sampler, refused};
pub(crate) use targets::{Binding, CpuThreadTargets, task_number, threads};
