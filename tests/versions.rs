//! Recordings of earlier versions (`fixtures/versions`) stay readable, and have the counts of their loads.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Scratch, bprec, report, succeed};

/// Recordings by the version that wrote them.
fn recordings() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/versions");
    let entries = |directory: &Path| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries(&root).filter(|path| path.is_dir()).flat_map(|version| {
        let name = version.file_name().unwrap().to_str().unwrap().to_owned();
        entries(&version).map(move |path| (name.clone(), path)).collect::<Vec<_>>()
    });
    let found: Vec<_> = files.filter(|(_, path)| path.extension().is_some_and(|it| it == "gz")).collect();
    assert!(found.len() >= 3, "{found:?}");
    found
}

/// A field of a line `NAME KEY=VALUE…` that the load printed.
fn field<'a>(line: &'a str, key: &str) -> &'a str {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).unwrap()
}

#[test]
fn runs_are_what_the_programs_counted() {
    for (version, path) in recordings() {
        let report = report(&path, &["--all"]);
        let load = fs::read_to_string(path.with_extension("").with_extension("load.txt")).unwrap();
        let counts: Vec<&str> = load.lines().filter(|line| line.starts_with("count ")).collect();
        assert!(!counts.is_empty(), "{}", path.display());
        for line in counts {
            let programs = report["programs"].as_array().unwrap();
            let id: u64 = field(line, "id").parse().unwrap();
            let program: &Value = programs.iter().find(|program| program["id"] == id).unwrap();
            assert_eq!(program["name"], field(line, "name"), "{}", path.display());
            // The load began and ended during the recording.
            let entered: u64 = field(line, "entered").parse().unwrap();
            assert_eq!(program["runs"]["count"], entered, "version {version}, {}: {line}", path.display());
        }
    }
}

#[test]
fn every_command_that_reads_takes_them() {
    let scratch = Scratch::new();
    for (_, path) in recordings() {
        for command in [
            &["report", "--by", "func"][..],
            &["report", "--maps"],
            &["report", "--header-only"],
            &["annotate", "*"],
            &["script"],
            &["export", "--to", "folded", "-o", "folded"],
            &["rewrite", "-o", "rewritten"],
        ] {
            succeed(bprec().args(command).arg("-i").arg(&path).current_dir(scratch.path("")));
        }
    }
}
