//! Names of programs, their functions and maps as users write them: ids, tags and patterns. One grammar for recorder and reporter.
#![forbid(unsafe_code)]

mod filters;
mod glob;

pub use filters::{FunctionFilter, MapFilter, ProgFilter};
pub use glob::Glob;
