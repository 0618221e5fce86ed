//! Tests of the program where it reads: they need no root, record nothing and change nothing on the machine, so each runs beside any other.
//!
//! One program for all of them, as a file of its own costs a link of its own: `cargo test --test it FILE::` runs one file. `live.rs` is the same for
//! tests that record. On their own stay `limits.rs`, whose processes are charged for what the test's process has, and `viewers/`, for other
//! programs' sake.

mod architecture;
mod colors;
mod documents;
mod export;
mod generated;
mod help;
mod pager;
mod perf_options;
mod progress;
mod recover;
mod replay;
mod report_views;
mod rewrite;
mod sandbox;
mod support;
mod table;
mod tui;
mod turns;

#[path = "support/examples.rs"]
mod examples;
#[path = "support/tmux.rs"]
mod tmux;
