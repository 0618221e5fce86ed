//! Tests of the reporter through its public interface.
//!
//! One program for all tests, because each test program must be linked. Each file is named here by its path, so that its own modules stay
//! beside it. `cargo test -p bprec-report --test it FILE::` runs one file.
#![allow(clippy::duplicate_mod, reason = "each file names the modules that it needs")]

#[path = "annotation.rs"]
mod annotation;
#[path = "bill.rs"]
mod bill;
#[path = "counters.rs"]
mod counters;
#[path = "damage.rs"]
mod damage;
#[path = "deferred.rs"]
mod deferred;
#[path = "directory.rs"]
mod directory;
#[path = "errors.rs"]
mod errors;
#[path = "firefox.rs"]
mod firefox;
#[path = "generated.rs"]
mod generated;
#[path = "group_samples.rs"]
mod group_samples;
#[path = "headings.rs"]
mod headings;
#[path = "hostile_inputs.rs"]
mod hostile_inputs;
#[path = "hostile_text.rs"]
mod hostile_text;
#[path = "late_ticks.rs"]
mod late_ticks;
#[path = "losses.rs"]
mod losses;
#[path = "map_names.rs"]
mod map_names;
#[path = "model.rs"]
mod model;
#[path = "one_number.rs"]
mod one_number;
#[path = "opposite_endian.rs"]
mod opposite_endian;
#[path = "over_time.rs"]
mod over_time;
#[path = "payers.rs"]
mod payers;
#[path = "planted_secrets.rs"]
mod planted_secrets;
#[path = "pprof.rs"]
mod pprof;
#[path = "precise.rs"]
mod precise;
#[path = "recordings.rs"]
mod recordings;
#[path = "recover.rs"]
mod recover;
#[path = "redact.rs"]
mod redact;
#[path = "rewrite.rs"]
mod rewrite;
#[path = "script.rs"]
mod script;
#[path = "script_lines.rs"]
mod script_lines;
#[path = "several_files.rs"]
mod several_files;
#[path = "shared_hooks.rs"]
mod shared_hooks;
#[path = "stacks.rs"]
mod stacks;
#[path = "stat.rs"]
mod stat;
#[path = "trace_data.rs"]
mod trace_data;
#[path = "tree.rs"]
mod tree;
#[path = "unknown_code.rs"]
mod unknown_code;
#[path = "views.rs"]
mod views;
#[path = "without.rs"]
mod without;

/// Returns the text that `write` writes.
#[expect(clippy::unwrap_used, reason = "a test")]
fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}
