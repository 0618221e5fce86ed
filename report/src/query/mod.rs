//! Queries: reports made from the index and from the counts of a pass, one folder per kind of report.

pub(crate) mod annotate;
pub(crate) mod by_prog;
pub(crate) mod counters;
pub(crate) mod diff;
pub(crate) mod maps;
mod overview;
pub(crate) mod page;
