//! What the running kernel knows about its BPF programs.
//!
//! Programs, maps, links and BTF are asked for by raw `bpf(2)`, one object at a time and each failing alone with its
//! reason; who holds them, what they are attached to without a link, and where they are pinned comes from `/proc`,
//! netlink and mounted bpf file systems. Everything here only reads, but for what lasts exactly as long as its guard:
//! [`StatsGuard`] switches the kernel's run statistics on, [`Refs`] loads a small iterator program of our own,
//! [`UserObject`] holds programs of the user's, and [`Attached`] is a program on a perf event, for which
//! [`SamplerProgram`] and [`Aggregator`] have some of ours; [`Profiler`] puts programs of ours around functions of others, [`Leader`] and [`Follower`] on context switches.
//!
//! This crate must not know what a perf event measures (it is a descriptor that a program is put on), nor of files to be
//! written, or reports: it answers with the types of
//! `bprec-format` and leaves to its callers what becomes of them. `unsafe` stands in the module `sys` alone.
#![deny(unsafe_code)]

mod access;
mod aggregate;
mod attach;
mod bperf;
mod btf;
mod cgroups;
mod contents;
mod error;
mod fdinfo;
mod holders;
mod kallsyms;
mod links;
mod maps;
mod mounts;
mod names;
mod net;
mod old_maps;
mod pins;
mod profiler;
mod prog;
mod quiet;
mod refs;
mod sampler;
mod stats;
mod struct_ops;
mod surroundings;
mod sys;
mod tracing;
mod user_object;

pub use access::{Check, access, may_trace};
pub use aggregate::{Account, Aggregator, Stack, UserDetail};
pub use attach::{Attached, Way};
pub use bperf::{AttrMap, EventReading, FOLLOWED_MAX, Follower, Inherit, Leader, Locked, Place, Targets};
pub use btf::BtfCache;
pub use contents::Bounds;
pub use error::{Error, Object, Result};
pub use holders::Holders;
pub use kallsyms::Kallsyms;
pub use links::{Found, links};
pub use maps::{Map, map_ids};
pub use mounts::mounts_of_type;
pub use names::Names;
pub use pins::{Pins, pins};
pub use profiler::{
    Counted, EVENTS_MAX, Gauged, HISTOGRAM_SUB_BITS, Pair, Profiler, Refusals, Source, counts_others, makes_tail_calls,
};
pub use prog::{ProgSnapshot, Program, prog_ids};
pub use refs::{ProgRefs, Refs};
pub use sampler::{Recipe, SamplerProgram};
pub use stats::{RunStats, StatsGuard, stats_sysctl};
pub use surroundings::Surroundings;
pub use sys::private_mount;
pub use user_object::{OutputMap, UserObject, UserProgram};
