//! Record by record, in the order of the input: as text, as a copy, without secrets.

pub(crate) mod redact;
pub(crate) mod rewrite;
pub(crate) mod script;
