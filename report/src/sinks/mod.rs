//! What a pass over the samples feeds.

pub(crate) mod hot;
pub(crate) mod ledger;
mod mappings;
pub(crate) mod stacks;
mod task_maps;
pub(crate) mod timeline;
