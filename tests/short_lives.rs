//! Programs that are loaded and unloaded during a recording. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{Scratch, record, report, root};
use serde_json::Value;

/// Command of the loader, which is built with the workspace's tests.
fn loader() -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_bprec")).with_file_name("bprec-load");
    assert!(path.exists(), "{} is not built: run the workspace's tests, not one package's", path.display());
    Command::new(path)
}

/// Loaded programs from the loader's output: id, name, runs.
fn counted(output: &[u8]) -> Vec<(u64, String, u64)> {
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| line.strip_prefix("count "))
        .map(|line| {
            let fields: BTreeMap<&str, &str> = line.split(' ').filter_map(|field| field.split_once('=')).collect();
            (fields["id"].parse().unwrap(), fields["name"].to_owned(), fields["ran"].parse().unwrap())
        })
        .collect()
}

/// Records while the loader runs with these arguments; returns the report and the loader's programs.
fn record_while(scratch: &Scratch, arguments: &[&str]) -> (Value, Vec<(u64, String, u64)>) {
    let path = scratch.path("perf.data");
    let said = scratch.path("loader.txt");
    let mut command = vec![
        "-q",
        "-a",
        "-e",
        "cpu-clock",
        "-F",
        "2000",
        "--budget",
        "100",
        "--",
        "sh",
        "-c",
        "out=$1; shift; exec \"$@\" >\"$out\"",
        "sh",
    ];
    let said_text = said.to_str().unwrap().to_owned();
    let loader = loader().get_program().to_str().unwrap().to_owned();
    command.push(&said_text);
    command.push(&loader);
    command.extend(arguments);
    record(&path, &command);
    let report = report(&path, &["--all"]);
    assert_intervals_add_up(&path, &report);
    (report, counted(&std::fs::read(said).unwrap()))
}

/// Asserts that the costs of short-lived programs by interval add up to their costs in `ledger`, the report of the whole recording, for each program
/// and in total.
fn assert_intervals_add_up(path: &Path, ledger: &Value) {
    let over_time = report(path, &["--over-time=100ms"]);
    let count = |value: &Value| {
        ["samples", "weight"].map(|unit| value[unit].as_u64().unwrap_or_else(|| panic!("no {unit}: {value:#}")))
    };
    let sum = |values: &Value| {
        let counts = values.as_array().unwrap().iter().map(count);
        counts.fold([0, 0], |sum, count| [sum[0] + count[0], sum[1] + count[1]])
    };
    let (event, of_ledger) = (&over_time["events"][0], &ledger["events"][0]);
    assert_eq!(count(&event["total"]), count(&of_ledger["total"]));
    assert_eq!(sum(&event["intervals"]), count(&of_ledger["total"]));
    let charged = of_ledger["rows"].as_array().unwrap().iter().filter(|row| row["samples"].as_u64().unwrap_or(0) > 0);
    for row in charged {
        let found = event["rows"].as_array().unwrap().iter().find(|found| found["id"] == row["id"]);
        let found = found.unwrap_or_else(|| panic!("no line over time for {row:#}"));
        assert_eq!((count(found), sum(&found["intervals"])), (count(row), count(row)), "{row:#}");
    }
}

/// Number of the loader's programs that the report names by id and name; asserts that the report lists all other programs of the loader as missed.
fn named_or_missed(report: &Value, loaded: &[(u64, String, u64)]) -> usize {
    let programs: BTreeMap<u64, &Value> =
        report["programs"].as_array().unwrap().iter().filter_map(|p| Some((p["id"].as_u64()?, p))).collect();
    let missed: Vec<u64> = report["missed"].as_array().unwrap().iter().filter_map(|p| p["id"].as_u64()).collect();
    let mut named = 0;
    for (id, name, _) in loaded {
        match programs.get(id) {
            Some(program) if program["captured"] == true => {
                assert_eq!(program["name"].as_str(), Some(name.as_str()), "program {id}");
                let functions = program["functions"].as_array().unwrap();
                assert!(functions.len() >= 2, "program {id} has too few functions: {functions:?}");
                named += 1;
            }
            _ => assert!(missed.contains(id), "program {id} {name} is neither captured nor listed as missed"),
        }
    }
    named
}

#[test]
fn a_program_alive_for_five_ms_is_named() {
    if !root("a_program_alive_for_five_ms_is_named") {
        return;
    }
    let scratch = Scratch::new();
    let (report, loaded) = record_while(&scratch, &["shortlived", "--ms", "5", "--trials", "100"]);
    assert_eq!(loaded.len(), 100);
    let named = named_or_missed(&report, &loaded);
    assert!(named >= 95, "{named} of 100 named");
}

#[test]
fn a_storm_of_loads_leaves_nothing_unresolved() {
    if !root("a_storm_of_loads_leaves_nothing_unresolved") {
        return;
    }
    let scratch = Scratch::new();
    let (report, loaded) = record_while(&scratch, &["churn", "--per-second", "100", "--seconds", "20"]);
    assert!(loaded.len() > 1_000, "the loader managed only {} loads", loaded.len());
    // Before each load, libbpf probes the kernel with a program that exists for 0.1 ms; the recorder misses some of these programs.
    let named = named_or_missed(&report, &loaded);
    assert!(named * 100 >= loaded.len() * 95, "{named} of {} named", loaded.len());
    let event = &report["events"][0];
    assert_eq!(event["unknown_kernel_code"]["samples"], 0);
    // Each program has its own name and number of runs, so a sample charged to a wrong program would be noticed.
    let rows = event["rows"].as_array().unwrap();
    let samples: u64 = rows.iter().filter_map(|row| row["samples"].as_u64()).sum();
    assert!(samples > 50, "{samples} samples in {} programs", loaded.len());
    let runs: BTreeMap<u64, u64> = report["programs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|p| Some((p["id"].as_u64()?, p["runs"]["count"].as_u64()?)))
        .collect();
    for (id, name, ran) in &loaded {
        if let Some(count) = runs.get(id) {
            assert!(count >= ran, "program {id} {name} ran {ran} times, the report says {count}");
        }
    }
}
