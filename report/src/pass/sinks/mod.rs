//! What a pass over the samples feeds.

pub(crate) mod by_event;
pub(crate) mod instructions;
pub(crate) mod intervals;
pub(crate) mod ledger;
mod mappings;
pub(crate) mod payers;
pub(crate) mod sharing;
pub(crate) mod slowed;
pub(crate) mod stacks;
mod task_maps;
pub(crate) mod timeline;
pub(crate) mod tree;
