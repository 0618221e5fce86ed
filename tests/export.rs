//! `bprec export` on recordings of perf, compared with perf.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::perf_installed;
use bprec_report::{Input, Options, Session};

/// Output of perf for a recording. For a recording of another machine, perf complains that the mapped files are missing.
fn perf_script(fields: &str, path: &Path) -> String {
    let output =
        Command::new("perf").args(["script", "-F", fields, "-i"]).arg(path).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Samples of an event by task name and number of frames, as perf prints them.
fn perf_depths(path: &Path, event: &str) -> BTreeMap<(String, usize), u64> {
    let text = perf_script("comm,tid,time,event,ip", path);
    let mut samples: Vec<(String, usize)> = Vec::new();
    let mut is_its = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with('\t') {
            samples.last_mut().filter(|_| is_its).into_iter().for_each(|(_, frames)| *frames += 1);
            continue;
        }
        // Format of the first line of a sample: `comm tid time: event:`, and the address if there is no chain. The name of the task may contain
        // blanks.
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().rposition(|word| word.strip_suffix(':') == Some(event));
        is_its = at.is_some();
        samples.extend(at.map(|at| (words[..at - 2].join(" "), 0)));
    }
    let mut depths = BTreeMap::new();
    for (comm, frames) in samples {
        *depths.entry((comm, frames.max(1))).or_default() += 1;
    }
    depths
}

#[test]
fn stacks_are_as_deep_as_in_perf() {
    if !perf_installed("stacks_are_as_deep_as_in_perf") {
        return;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for name in ["corpus/perf_g_fp.data", "recordings/linux-7.2/ratio.data", "recordings/linux-6.1/ratio.data"] {
        let path = fixtures.join(name);
        let input = Input::open(&path).unwrap();
        let stacks = Session::open(&input).unwrap().stacks(&Options::default()).unwrap();
        let mut depths: BTreeMap<(String, usize), u64> = BTreeMap::new();
        for stack in &stacks.stacks {
            let task = &stacks.frames[stack.frames[0] as usize].name;
            *depths.entry((task.clone(), stack.frames.len() - 1)).or_default() += stack.count.samples;
        }
        assert_eq!(depths, perf_depths(&path, &stacks.event), "{name}");
    }
}

#[test]
fn folded_stacks_add_up_to_what_perf_counts() {
    if !perf_installed("folded_stacks_add_up_to_what_perf_counts") {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus/perf_g_fp.data");
    let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(["export", "--to", "folded", "-i"]).arg(&path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let ours: u64 = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let periods = perf_script("period,ip", &path);
    let periods = periods.split("\n\n").filter_map(|sample| sample.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(ours, periods.sum::<u64>());
}

#[test]
fn what_is_not_there_is_said() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/ratio.data");
    let export = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_bprec")).arg("export").args(arguments).arg("-i").arg(&path).output();
        let output = output.unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let (code, written, said) = export(&["--to", "folded", "--prog", "nobody"]);
    assert_eq!((code, written.len()), (Some(1), 0));
    assert!(said.contains("no program in the recording matches --prog nobody"), "{said}");
    let (code, _, said) = export(&["--to", "folded", "-e", "nothing"]);
    assert!(
        code == Some(2) && said.contains("the recording has no samples of this event; it has samples of"),
        "{said}"
    );
    let (code, _, said) = export(&["--to", "svg"]);
    assert!(
        code == Some(2) && said.contains("expected one of html, folded, pprof, speedscope, firefox, otlp"),
        "{said}"
    );
}
