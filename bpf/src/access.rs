//! What this process may ask the kernel, and what would let it ask more.

use crate::inspect::{prog_ids, visibility};
use crate::programs::Refs;
use crate::sys;

/// One thing to be asked of the kernel, and what stands in its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What it is about ("list programs").
    pub what: &'static str,
    /// What is wrong, what is missing because of it, and the remedy; None when nothing is wrong.
    pub problem: Option<String>,
}

/// Tries everything once, and leaves nothing behind: statistics, where allowed, are on for the moment of the call, and a
/// program of our own is loaded and let go of.
pub fn access() -> Vec<Check> {
    let listing = prog_ids().next().and_then(Result::err);
    let stats = sys::enable_run_time_stats().err();
    vec![
        Check {
            what: "list programs",
            problem: listing.map(|error| format!("{error}: programs, maps and links of others stay unknown")),
        },
        Check {
            what: "run statistics",
            problem: stats.map(|error| format!("{error}: runs and time per run stay unknown")),
        },
        Check { what: "kernel addresses", problem: bprec_host::hidden_addresses().map(str::to_owned) },
        Check { what: "images in kallsyms", problem: visibility::hidden_symbols().map(str::to_owned) },
        Check {
            what: "load programs",
            problem: Refs::load().err().map(|error| format!("{error}: when programs are let go of stays unknown")),
        },
    ]
}
