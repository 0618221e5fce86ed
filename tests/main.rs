//! Tests of commands that read: they need no root, record nothing and change nothing on the machine, so all can run at the same time.
//!
//! One program for all tests, because each test program must be linked: `cargo test --test it FILE::` runs one file. `live.rs` is the same for
//! tests that record. Separate programs are `limits.rs`, because a process is charged for the memory of its parent, and `viewers/`, which
//! opens exports in other programs.

mod architecture;
mod colors;
mod documents;
mod export;
mod generated;
mod help;
mod install_script;
mod option_pairs;
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
