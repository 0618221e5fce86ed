//! Events to open: event syntax, PMUs, tracepoints, targets × CPUs → descriptors.

mod abilities;
pub(crate) mod machine;
mod open;
pub(crate) mod sampling;
pub(crate) mod syntax;
mod targets;

pub(crate) use abilities::Abilities;
pub(crate) use open::{EventFd, OpenEvent, OpenEvents, SampleRole, everywhere};
pub(crate) use sampling::{Sampler, refused};
pub(crate) use targets::{Binding, CpuThreadTargets};

/// Returns true if `text` as a whole matches `pattern`, a shell pattern for names: `*`, `?`, `[a-z]`, `[!a-z]`. What is no pattern, such as `a[`, is a name.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    ::glob::Pattern::new(pattern).map_or(pattern == text, |pattern| pattern.matches(text))
}
