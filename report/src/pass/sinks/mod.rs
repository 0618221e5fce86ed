//! Sinks: consumers of a pass over the samples.

pub(crate) mod bill;
pub(crate) mod by_event;
pub(crate) mod instructions;
pub(crate) mod ledger;
mod measured;
pub(crate) mod pivot;
pub(crate) mod sharing;
pub(crate) mod slowed;
pub(crate) mod stacks;
pub(crate) mod timed;
pub(crate) mod tree;
pub(crate) mod user_time;
