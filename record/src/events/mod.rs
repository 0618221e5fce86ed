//! Events to open: syntax, PMUs, tracepoints, and descriptors for each target and CPU.

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

/// Returns true if the whole of `text` matches the shell pattern `pattern`: `*`, `?`, `[a-z]`, `[!a-z]`. A malformed
/// pattern such as `a[` is compared as a name.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    ::glob::Pattern::new(pattern).map_or(pattern == text, |pattern| pattern.matches(text))
}
