//! What a pass over the samples feeds.

pub(crate) mod hot;
pub(crate) mod ledger;
mod task_maps;
