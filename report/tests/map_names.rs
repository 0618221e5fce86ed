//! The report shows the full names of maps from the source code; the kernel keeps only 15 characters.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_report::{Input, MapFilter, MapsForm, MapsOptions, maps};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// Map names declared in the sources of all fixtures.
fn declared() -> BTreeSet<String> {
    let sources = std::fs::read_dir(fixtures().join("bpf")).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let names = sources.flat_map(|path| {
        let source = std::fs::read_to_string(path).unwrap();
        let name = |line: &str| Some(line.strip_prefix("} ")?.split_once(" SEC(\".maps\")")?.0.to_owned());
        source.lines().filter_map(name).collect::<Vec<_>>()
    });
    names.collect()
}

fn names(recording: &str, filter: Option<&str>) -> Vec<String> {
    let input = Input::open(fixtures().join("recordings").join(recording)).unwrap();
    let filter: Vec<MapFilter> = filter.map(|filter| filter.parse().unwrap()).into_iter().collect();
    let mut out = Vec::new();
    maps(&input, &MapsOptions { maps: filter, form: MapsForm::Json, ..MapsOptions::default() }, &mut out).unwrap();
    let json: Value = serde_json::from_slice(&out).unwrap();
    json["maps"].as_array().unwrap().iter().filter_map(|map| map["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn names_are_those_of_the_source() {
    let declared = declared();
    for recording in ["linux-7.2/everything.data", "linux-6.1/everything.data", "linux-6.12-arm64/exact.data"] {
        let names = names(recording, None);
        let long: Vec<&String> = names.iter().filter(|name| name.len() >= 15 && !name.contains('.')).collect();
        assert!(long.iter().all(|name| declared.contains(*name)), "{recording}: {names:?}");
        // Two objects were loaded from one source.
        let expected = ["syscall_accounts", "syscall_accounts", "switches_by_tgid"];
        assert_eq!(long, expected, "{recording}");
    }
}

#[test]
fn a_map_is_found_by_the_whole_name_and_by_what_the_kernel_keeps() {
    for filter in ["switches_by_tgid", "switches_by_tgi", "switches*"] {
        assert_eq!(names("linux-7.2/everything.data", Some(filter)), ["switches_by_tgid"], "{filter}");
    }
}

/// The summary distinguishes a recording without maps from a recording in which no map matches the filter.
#[test]
fn a_recording_says_that_it_has_no_maps() {
    for (recording, filter, expected) in
        [("linux-7.2/none.data", "*", (0, false)), ("linux-7.2/everything.data", "nosuch", (0, true))]
    {
        let input = Input::open(fixtures().join("recordings").join(recording)).unwrap();
        let options = MapsOptions { maps: vec![filter.parse().unwrap()], ..MapsOptions::default() };
        let summary = maps(&input, &options, &mut Vec::new()).unwrap();
        assert_eq!((summary.written, summary.recorded > 0), expected, "{recording}");
    }
}
