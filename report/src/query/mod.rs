//! From what the index knows and what a pass counted to the answer to each question: one folder a question.

pub(crate) mod annotate;
pub(crate) mod by_prog;
pub(crate) mod counters;
pub(crate) mod diff;
pub(crate) mod maps;
mod overview;
pub(crate) mod page;
