//! Names of programs, their functions and maps as users write them: ids, tags and patterns; lists of CPUs. One grammar for recorder and reporter.
#![forbid(unsafe_code)]

mod cpus;
mod filters;
mod glob;

pub use cpus::{CpuList, parse_cpu_list};
pub use filters::{FunctionFilter, MapFilter, ProgFilter};
pub use glob::Glob;
