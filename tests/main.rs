//! Tests of the program where it reads: they need no root, record nothing and change nothing on the machine, so each runs beside any other.
//!
//! One program for all of them, as a file of its own costs a link of its own: `cargo test --test it FILE::` runs one file. `live.rs` is the same for
//! tests that record. Programs of their own are `limits.rs`, as a process is charged for the memory of the one that forks it, and `viewers/`, which
//! opens exports in other programs.

mod architecture;
mod colors;
mod documents;
mod export;
mod generated;
mod help;
mod pager;
mod perf_options;
mod recover;
mod replay;
mod report_views;
mod rewrite;
mod sandbox;
mod support;
mod table;
mod tui;
mod turns;
mod versions;

#[path = "support/examples.rs"]
mod examples;
#[path = "support/tmux.rs"]
mod tmux;
