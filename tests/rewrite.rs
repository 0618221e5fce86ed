//! `bprec rewrite`: input, output, and files that remain.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{Scratch, bprec, report, succeed};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings").join(name)
}

fn rewrite(input: &Path, output: &Path, arguments: &[&str]) -> Output {
    bprec().args(["rewrite", "-i"]).arg(input).arg("-o").arg(output).args(arguments).output().unwrap()
}

fn files(scratch: &Scratch) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(scratch.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_comes_out_as_it_is_and_what_was_there_is_kept() {
    let scratch = Scratch::new();
    let (input, output) = (fixture("linux-7.2/twins.data"), scratch.path("out.data"));
    fs::write(&output, "an older recording").unwrap();
    fs::copy(fixture("linux-7.2/cut-off.data.journal"), scratch.path("out.data.journal")).unwrap();
    assert!(rewrite(&input, &output, &[]).status.success());
    assert!(fs::read(&output).unwrap() == fs::read(&input).unwrap());
    assert_eq!(files(&scratch), ["out.data", "out.data.old", "out.data.old.journal"]);
    assert_eq!(fs::read(scratch.path("out.data.old")).unwrap(), b"an older recording");

    // A selection of a file replaces the file: the old file is kept as `.old`.
    assert!(rewrite(&output, &output, &["--time", "0%-50%"]).status.success());
    assert!(fs::read(scratch.path("out.data.old")).unwrap() == fs::read(&input).unwrap());
    assert!(fs::metadata(&output).unwrap().len() < fs::metadata(&input).unwrap().len());
    assert_eq!(files(&scratch), ["out.data", "out.data.old"], "the journal was of another recording");
}

#[test]
fn streams_and_files_are_read_from_standard_input() {
    let scratch = Scratch::new();
    let output = scratch.path("out.data");
    for (name, arguments) in [
        ("linux-7.2/piped.data", &[][..]),
        ("linux-7.2/piped.data", &["--prog", "same_name_*"]),
        ("linux-7.2/twins.data", &[]),
        ("linux-7.2/twins.data", &["--prog", "same_name_*"]),
    ] {
        let mut command = bprec();
        command.args(["rewrite", "-i", "-", "-o"]).arg(&output).args(arguments);
        let done = command.stdin(File::open(fixture(name)).unwrap()).output().unwrap();
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        let charged = |path: &Path| -> Vec<(u64, u64)> {
            let report = report(path, &["--prog", "same_name_*"]);
            let rows = report["events"][0]["rows"].as_array().unwrap().iter();
            rows.map(|row| (row["id"].as_u64().unwrap(), row["samples"].as_u64().unwrap())).collect()
        };
        let (before, after) = (charged(&fixture(name)), charged(&output));
        assert_eq!(before.len(), 2, "{name}");
        assert_eq!(before, after, "{name} {arguments:?}");
    }
}

#[test]
fn nothing_is_written_when_nothing_can_be() {
    let scratch = Scratch::new();
    let output = scratch.path("out.data");
    let twins = fixture("linux-7.2/twins.data");
    let none = rewrite(&twins, &output, &["--prog", "no_such_program"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let dash = rewrite(&twins, Path::new("-"), &[]);
    assert_eq!(dash.status.code(), Some(2), "{dash:?}");
    let directory = rewrite(&twins, &scratch.path("."), &[]);
    assert_eq!(directory.status.code(), Some(2), "{directory:?}");
    fs::write(scratch.path("text"), "not a recording").unwrap();
    let text = rewrite(&scratch.path("text"), &output, &[]);
    assert_eq!(text.status.code(), Some(2), "{text:?}");
    assert_eq!(files(&scratch), ["text"]);
}

/// The report of a rewritten selection equals the report of the whole recording with the same selection.
#[test]
fn a_part_is_reported_as_the_part_of_the_whole() {
    let scratch = Scratch::new();
    let (input, output) = (fixture("linux-7.2/everything.data"), scratch.path("out.data"));
    let all = report(&input, &[]);
    let start_s = all["recording"]["start_ns"].as_u64().unwrap() as f64 / 1e9;
    let time = format!("{:.6},{:.6}", start_s + 0.2, start_s + 1.2);
    succeed(bprec().args(["rewrite", "-i"]).arg(&input).arg("-o").arg(&output).args(["--time", &time, "-C", "0"]));
    let selection = ["--time", &time, "--cpu", "0"];
    let (expected, found) = (report(&input, &selection), report(&output, &selection));
    assert!(found["events"][0]["samples"]["samples"].as_u64().unwrap() > 0);
    assert_eq!(found, expected);
}

/// Options that select no sample end with 1 in each command, and `rewrite` and `export` write no file. Both times, from the start and by the clock
/// (`@`), are outside of the recording.
#[test]
fn a_selection_without_samples_ends_with_one() {
    let scratch = Scratch::new();
    let (input, output) = (fixture("linux-7.2/ratio.data"), scratch.path("out.data"));
    for selection in [["--time", "1000,2000"], ["--time", "@1,2"], ["--cpu", "99"], ["--comms", "nosuch"]] {
        for command in [&["report"][..], &["script"], &["export", "--to", "folded", "-o"], &["rewrite", "-o"]] {
            let mut run = bprec();
            run.args(command).args(command.ends_with(&["-o"]).then_some(&output)).args(selection).arg("-i").arg(&input);
            let done = run.output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(1), "{command:?} {selection:?}: {said}");
            assert!(said.starts_with("bprec: ") && said.contains(": no ") || said.contains("bprec: no "), "{said}");
        }
    }
    assert_eq!(files(&scratch), [""; 0]);
}

/// A rewritten selection of tasks by name has the samples that `script` prints for the same selection. It also has the states of the recorder (task
/// `bprec`), which always stay.
#[test]
fn samples_of_named_tasks_stay() {
    let scratch = Scratch::new();
    let (input, output) = (fixture("linux-7.2/everything.data"), scratch.path("out.data"));
    let script = |path: &Path, selection: &[&str]| {
        let lines = succeed(bprec().args(["script", "-F", "comm,tid,time,ip,sym"]).args(selection).arg("-i").arg(path));
        String::from_utf8(lines.stdout).unwrap()
    };
    let selection = ["--comms", "bprec-load*"];
    succeed(bprec().args(["rewrite", "-i"]).arg(&input).arg("-o").arg(&output).args(selection));
    let expected = script(&input, &selection);
    assert!(!expected.is_empty() && expected.len() < script(&input, &[]).len());
    assert_eq!(script(&output, &selection), expected);
    let others =
        script(&output, &[]).lines().filter(|line| !expected.contains(line)).map(str::to_owned).collect::<Vec<_>>();
    assert!(others.iter().all(|line| line.trim_start().starts_with("bprec ")), "{others:?}");
}

/// Formats that are written in order go to standard output by name, too.
#[test]
fn export_writes_to_standard_output_by_name() {
    let export = |output: &[&str]| {
        let mut run = bprec();
        run.args(["export", "--to", "folded"]).args(output).arg("-i").arg(fixture("linux-7.2/ratio.data"));
        succeed(&mut run).stdout
    };
    let folded = export(&[]);
    assert!(!folded.is_empty());
    assert_eq!(export(&["-o", "-"]), folded);
}
