//! Event specifications (`-e`): names, modifiers, sysfs PMUs and tracepoints, to attrs.

use bprec_format::EventAttr;

use crate::{Rate, Result};

/// An event as the user asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventSpec {
    /// Its name, as the recording shows it.
    pub(crate) name: String,
    /// `kind`, `config*`, and the `EXCLUDE_*` and `precise_ip` flags; the recorder fills in the rest.
    pub(crate) attr: EventAttr,
    /// A `period=` or `freq=` term of its own.
    pub(crate) rate: Option<Rate>,
    /// The CPUs that its PMU counts on, when these are not all.
    pub(crate) cpus: Option<Vec<u32>>,
    /// `:P`: the highest `precise_ip` that the machine takes; the one in `attr` is the first to try.
    pub(crate) precise_as_possible: bool,
}

/// Reads one `-e` argument, a list with commas.
///
/// # Errors
/// When it cannot be understood, or names what this machine does not have.
pub(crate) fn parse(list: &str) -> Result<Vec<EventSpec>> {
    Err(crate::Error::Event { event: list.to_owned(), problem: "not known".to_owned() })
}

/// The TRACING_DATA section for the tracepoints among `events`, `None` when there are none.
///
/// # Errors
/// When the formats cannot be read.
pub(crate) fn tracing_data(events: &[EventSpec]) -> Result<Option<Vec<u8>>> {
    let _ = events;
    Ok(None)
}
