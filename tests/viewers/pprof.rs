//! pprof's format, decoded by a package that does not know bprec.

use std::process::Command;

use serde_json::{Value, json};

use super::support::report;
use super::{RECORDINGS, Scratch, exported, repository, succeed, viewers};

/// Totals equal those of the report. In the program `mix_syscall_number`, the hottest line is its loop.
#[test]
fn pprof_lists_the_hottest_line_first() {
    let Some(modules) = viewers("pprof_lists_the_hottest_line_first") else { return };
    // The third recording has no BPF programs.
    for recording in &RECORDINGS[..2] {
        let scratch = Scratch::new();
        let path = scratch.path("profile.pb.gz");
        exported("pprof", recording, &path);
        let mut decode = Command::new("node");
        decode.arg(repository().join("tests/viewers/pprof.js")).arg(&path).env("NODE_PATH", &modules);
        let seen: Value = serde_json::from_slice(&succeed(&mut decode).stdout).unwrap();
        let event = &report(&repository().join(recording), &[])["events"][0];
        assert_eq!(seen["kinds"][0], json!(["samples", "count"]), "{recording}");
        assert_eq!(seen["kinds"][1][0], event["name"], "{recording}");
        assert_eq!(seen["totals"], json!([event["samples"]["samples"], event["samples"]["weight"]]), "{recording}");
        if *recording != RECORDINGS[0] {
            continue;
        }

        // As `pprof -list mix_syscall_number` counts: samples at each line of the function.
        let lines = seen["lines"].as_array().unwrap().iter();
        let of_function = lines.filter(|line| line["function"].as_str().unwrap().ends_with(":mix_syscall_number"));
        let mut listed: Vec<&Value> = of_function.collect();
        listed.sort_by_key(|line| std::cmp::Reverse(line["flat"].as_u64()));
        let hottest = listed[0];
        let source = std::fs::read_to_string(repository().join(hottest["file"].as_str().unwrap())).unwrap();
        let text = source.lines().nth(hottest["line"].as_u64().unwrap() as usize - 1).unwrap();
        assert_eq!(text.trim(), "MIX_ROUNDS(x, loops);", "{hottest}");
        assert!(hottest["flat"].as_u64() > Some(50), "{listed:#?}");
    }
}
