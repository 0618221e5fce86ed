//! Queries: answers made from the index and from the counts of a pass, one folder for each question.

pub(crate) mod annotate;
pub(crate) mod by_prog;
pub(crate) mod counters;
pub(crate) mod diff;
pub(crate) mod maps;
mod overview;
pub(crate) mod page;
