//! Programs that other tools loaded: info, maps and their contents, links and other attachments,
//! holders, pins. This module only reads.

mod attachments;
mod btf;
mod contents;
mod holders;
mod hooks;
mod kallsyms;
mod links;
mod maps;
mod names;
mod net;
mod netlink;
mod other_networks;
mod pins;
mod programs;
mod stats;
mod struct_ops;
mod tracing;
pub(crate) mod visibility;

pub use attachments::{Attachments, prog_arrays};
pub use btf::BtfCache;
pub use contents::Bounds;
pub use holders::{Holders, owner};
pub use kallsyms::Kallsyms;
pub(crate) use kallsyms::called_from;
pub(crate) use links::extended;
pub use links::{Links, links, probe_misses};
pub use maps::{Map, map_ids};
pub use names::Names;
pub use pins::{Pins, pins};
pub use programs::{ProgSnapshot, Program, prog_ids};
pub use stats::{RunStats, StatsGuard, stats_sysctl};
