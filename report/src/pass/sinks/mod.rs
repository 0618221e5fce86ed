//! What a pass over the samples feeds.

pub(crate) mod by_event;
pub(crate) mod hot;
pub(crate) mod instructions;
pub(crate) mod ledger;
pub(crate) mod mappings;
pub(crate) mod pivot;
pub(crate) mod sharing;
pub(crate) mod slowed;
pub(crate) mod stacks;
mod task_maps;
pub(crate) mod tree;
