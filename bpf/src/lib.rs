//! Facts of the running kernel about its BPF programs.
//!
//! The crate queries programs, maps, links and BTF by raw `bpf(2)` calls. Each object is queried separately: a failed query is reported for its
//! object, and the other queries go on. Holders of programs, attachments without a link, and pins are found in `/proc`, by netlink, and in mounted
//! bpf file systems.
//!
//! Queries change nothing. A few values change the kernel for as long as they exist: [`StatsGuard`] switches on the kernel's run statistics, [`Refs`]
//! loads a small iterator program, [`KernelNames`] a program that looks up kernel functions, [`UserObject`] holds programs of the user, and
//! [`Attached`] is a program on a perf event. [`SamplerProgram`] and [`Aggregator`] have bprec's programs on perf events, [`Profiler`] has the
//! programs at entry and exit of other programs, and [`Leader`] and [`Follower`] have the programs at context switches.
//!
//! The meaning of perf events, output files and reports are out of this crate's scope: a perf event is only a descriptor to which a program is
//! attached, and the crate returns types of `bprec-format`. Only the module `sys` contains `unsafe`.
//!
//! `sys` makes system calls, `inspect` queries objects of other tools, and `programs` has bprec's own programs. Each of these modules uses only the
//! modules named before it.
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
    Inherit, KernelNames, Leader, LeaderSlot, Locked, OutputMap, PerCpuStats, Probe, ProbeCost, ProbeCounts, Profiler,
    ProgRefs, Recipe, Refs, Refusals, SamplerProgram, Source, Stack, StatsCost, StatsProbe, Targets, UserDetail,
    UserObject, UserProgram, counts_others, lists_references, makes_tail_calls, tail_calls_are_counted,
};
