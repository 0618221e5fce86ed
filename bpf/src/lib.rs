//! Facts of the running kernel about its BPF programs.
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
//!
//! `sys` makes system calls, `inspect` asks about what others loaded, `programs` has ours. Each knows those before it.
#![deny(unsafe_code)]

mod access;
mod error;
mod inspect;
mod privilege;
mod programs;
mod sys;

pub use access::{Access, access};
pub use bprec_host::{mounts_of_type, private_mount};
pub use error::{Error, Object, Result};
pub use inspect::{
    Attachments, Bounds, BtfCache, Holders, Kallsyms, Links, Map, Names, Pins, ProgSnapshot, Program, RunStats,
    StatsGuard, links, map_ids, pins, prog_arrays, prog_ids, stats_sysctl,
};
pub use privilege::may_trace;
pub use programs::{
    Aggregator, AttachMethod, Attached, AttrMap, EVENTS_MAX, EventReading, FOLLOWED_MAX, Follower, HISTOGRAM_SUB_BITS,
    Inherit, Leader, LeaderSlot, Locked, OutputMap, PerCpuStats, Probe, ProbeCost, ProbeCounts, Profiler, ProgRefs,
    Recipe, Refs, Refusals, SamplerProgram, Source, Stack, StatsCost, StatsProbe, Targets, UserDetail, UserObject,
    UserProgram, counts_others, lists_references, makes_tail_calls, tail_calls_are_counted,
};
