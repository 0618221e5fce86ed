//! What a pass over the samples feeds.

pub(crate) mod ledger;
