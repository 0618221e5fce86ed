//! Tests of commands that record, count, or inspect the machine: most need root. `cargo test --test live FILE::` runs one file.
//!
//! BPF programs, run statistics and CPUs are shared, so these tests take turns (`support::turns`): tests of one file run in parallel, tests of two
//! files never, and a test that measures runs alone.

mod advice;
mod aggregate;
mod annotate;
mod bill;
mod bperf;
mod bpf_sampler;
mod compression;
mod defaults;
mod descriptors;
mod diff;
mod disk_faults;
mod doctor;
mod documented_live;
mod endings;
mod exact;
mod exact_truth;
mod file_steps;
mod hotplug;
mod identity;
mod known_loads;
mod lasting;
mod ledger_truth;
mod many_cpus;
mod maps;
mod mistakes;
mod nothing_stays;
mod overwrite;
mod payers;
mod perf_event_programs;
mod perf_reads_it;
mod progress;
mod reader_calls;
mod recorder;
mod redact;
mod run_counts;
mod scheduler;
mod short_lives;
mod spool;
mod stat;
mod statistics_switched;
mod statistics_windows;
mod support;
mod switch_output;
mod top;
mod top_screen;
mod user_symbols;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "support/disk.rs"]
mod disk;
#[path = "support/examples.rs"]
mod examples;
#[path = "support/pod.rs"]
mod pod;
#[path = "support/tmux.rs"]
mod tmux;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "support/tracee.rs"]
mod tracee;
