//! Facts of the running kernel about its BPF programs.
//!
//! The crate queries programs, maps, links and BTF by raw `bpf(2)` calls. Each object is queried separately; if a query fails, the reason is kept for
//! this object only. Holders of programs, attachments without a link, and pins are found in `/proc`, by netlink, and in mounted bpf file systems.
//!
//! Queries change nothing. A few guards change the kernel for as long as they exist: [`StatsGuard`] switches on the kernel's run statistics, [`Refs`]
//! loads a small iterator program, [`UserObject`] holds programs of the user, and [`Attached`] is a program on a perf event. bprec's own programs on
//! perf events are in [`SamplerProgram`] and [`Aggregator`], those around functions of other programs in [`Profiler`], those at context switches in
//! [`Leader`] and [`Follower`].
//!
//! This crate must not know what a perf event measures (an event is only a descriptor to which a program is attached), nor output files, nor reports:
//! it returns types of `bprec-format`. Only the module `sys` contains `unsafe`.
//!
//! `sys` makes system calls, `inspect` queries objects of other tools, and `programs` has bprec's own programs. Each of these modules uses only the
//! ones named before it.
#![deny(unsafe_code)]

mod access;
mod error;
mod inspect;
mod privilege;
mod programs;
mod sys;

pub use access::{Access, access};
pub use error::{Error, Object, Result};
pub use inspect::{
    Attachments, Bounds, BtfCache, Holders, Kallsyms, Links, Map, Names, Pins, ProgSnapshot, Program, RunStats,
    StatsGuard, links, map_ids, owner, pins, probe_misses, prog_arrays, prog_ids, stats_sysctl,
};
pub use privilege::may_trace;
pub use programs::{
    Aggregator, AttachMethod, Attached, AttrMap, EVENTS_MAX, EventReading, FOLLOWED_MAX, Follower, HISTOGRAM_SUB_BITS,
    Inherit, Leader, LeaderSlot, Locked, OutputMap, PerCpuStats, Probe, ProbeCost, ProbeCounts, Profiler, ProgRefs,
    Recipe, Refs, Refusals, SamplerProgram, Source, Stack, StatsCost, StatsProbe, Targets, UserDetail, UserObject,
    UserProgram, counts_others, lists_references, makes_tail_calls, tail_calls_are_counted,
};
