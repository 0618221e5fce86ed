//! `bprec record --switch-output`: a recording over several files, each complete by itself. Real kernel, root; compared with perf.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{
    self, Scratch, SetAtEnd, bprec, perf, perf_installed, recording, report, root, signal, skip, succeed, wait_for,
};
use bprec_fixtures::Fixture;
use bprec_format::records::Payload;
use bprec_format::{File, RecordType, SampleLayout};

/// Pages that the load touches for the first time, one fault each.
const PAGES: usize = 40_000;

/// The files of a recording, the oldest first. The current file has no time after its name.
fn files(path: &Path) -> Vec<PathBuf> {
    let name = format!("{}.2", path.file_name().unwrap().to_str().unwrap());
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_closed = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(&name) && !file.ends_with(".journal")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_closed).collect();
    files.sort();
    files
}

/// Samples in a file, as perf counts them.
fn samples(path: &Path, event: &str) -> usize {
    let out = perf(&["script", "-F", "event", "-i", path.to_str().unwrap()]);
    out.lines().filter(|line| line.trim().trim_end_matches(':') == event).count()
}

/// The load, in a separate process: touches every page once, one fault each, in several portions.
#[test]
#[ignore = "run by another test"]
fn touch_pages() {
    // SAFETY: a plain system call, which disables huge pages, so that each page causes one fault.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let pages = std::env::var("PAGES").unwrap().parse::<usize>().unwrap();
    let mut memory: Vec<u8> = Vec::with_capacity(pages * 4096);
    for page in 0..pages {
        memory.spare_capacity_mut()[page * 4096].write(1);
        if page % 200 == 0 {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Records the load with this number of pages and these options. Returns the number of samples in all files of the recording.
fn page_faults(path: &Path, pages: usize, more: &[&str]) -> usize {
    let load = std::env::current_exe().unwrap();
    succeed(
        bprec()
            .args(["record", "-q", "-e", "page-faults", "-c", "1", "--counters", "off", "-o"])
            .arg(path)
            .args(more)
            .args(["--", load.to_str().unwrap(), "--ignored", "--exact", "switch_output::touch_pages"])
            .env("PAGES", pages.to_string())
            .stdout(Stdio::null()),
    );
    let files = if more.is_empty() { vec![path.to_owned()] } else { files(path) };
    files.iter().map(|file| samples(file, "page-faults")).sum()
}

/// Each page is one fault and one sample, also at the change between files.
#[test]
fn no_sample_is_lost_or_doubled_between_two_files() {
    let test = "no_sample_is_lost_or_doubled_between_two_files";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let without = page_faults(&scratch.path("none"), 0, &[]);
    let path = scratch.path("perf.data");
    let with = page_faults(&path, PAGES, &["--switch-output=300K"]);
    let count = files(&path).len();
    assert!(count >= 5, "{count} files");
    assert!(!path.exists() && !scratch.path("perf.data.journal").exists(), "the last file is closed, too");
    // Other faults of the process (its executable, its stack) differ by a few pages from run to run.
    let own = with.checked_sub(PAGES).expect("a sample for each page");
    assert!(own.abs_diff(without) <= 64, "{own} other page faults, {without} without the load");
}

/// Every file names the task, the kernel function and the BPF program of a load that existed before the first file.
#[test]
fn each_file_is_complete() {
    let test = "each_file_is_complete";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut loaded = Fixture::RAW_TP.open().unwrap().load().unwrap();
    loaded.attach().unwrap();
    let id: u32 = loaded.id_of("count_sched_switches").unwrap();
    let mut load =
        Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=1"]).stderr(Stdio::null()).spawn().unwrap();
    let recorder = recording(&path, "4", &["-F", "999", "--budget", "100", "--switch-output=1s"]);
    support::end(recorder);
    load.kill().unwrap();
    load.wait().unwrap();

    let files = files(&path);
    assert!(files.len() >= 3, "{files:?}");
    let mut costs_ns: Vec<f64> = Vec::new();
    for (part, file) in files[..3].iter().enumerate() {
        let script = perf(&["script", "-F", "comm,event", "-i", file.to_str().unwrap()]);
        assert!(script.lines().any(|line| line.trim().starts_with("dd ")), "{part}: {script}");
        let report = report(file, &["--all"]);
        let program = support::program(&report, id);
        assert!(program["runs"]["count"].as_u64().unwrap() > 0, "{part}: {program}");
        assert!(!program["attached"].as_array().unwrap().is_empty(), "{part}: {program}");
        let info = perf(&["report", "--header-only", "-I", "-i", file.to_str().unwrap()]);
        assert!(info.contains(&format!("bpf_prog_info {id}:")), "{part}: {info}");
        let all = report["programs"].as_array().unwrap().iter().filter_map(|it| it["runs"]["count"].as_f64());
        let cost = &report["recording"]["cost"]["run_statistics"];
        // If another tool has run statistics on, the recorder adds no cost.
        if report["recording"]["statistics_of_others"] == false {
            costs_ns.push(cost["time_ns"].as_f64().unwrap() / all.sum::<f64>());
        }
    }
    // The cost of counting is per file, not cumulative. The margin is wide because cost and counts are read at different moments.
    if let [first, _, third] = costs_ns[..] {
        assert!((0.5..2.0).contains(&(third / first)), "{costs_ns:?} for a run");
    }
}

/// A trampoline that was registered during a file is named in the following files, which begin with the existing code; a trampoline that was
/// unregistered is not named.
#[test]
fn images_that_came_during_a_file_are_named_in_the_next() {
    let test = "images_that_came_during_a_file_are_named_in_the_next";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut recorder = recording(&path, "600", &["-e", "cpu-clock", "--switch-output=signal"]);
    let switch = |count: usize| {
        signal(&recorder, "-USR2");
        wait_for("a closed file", || (files(&path).len() == count && path.exists()).then_some(()));
    };
    let traced = Fixture::COUNTED.open().unwrap().load().unwrap();
    let tracing = Fixture::FENTRY.open().unwrap().on_program(&traced, "loop_of_100").and_then(|opened| opened.start());
    let Ok(tracing) = tracing.inspect_err(|error| println!("{error:#}")) else {
        support::kill(&path, recorder);
        return skip(test, "the kernel has no trampolines");
    };
    switch(1);
    switch(2);
    drop(tracing);
    switch(3);
    switch(4);
    signal(&recorder, "-INT");
    assert!(recorder.wait().unwrap().success());
    let files = files(&path);
    // The trampoline of the fixture is the new one in the first file.
    let came = images(&files[0]).into_iter().filter(|(time_ns, is_gone, _)| *time_ns > 0 && !is_gone);
    let came: Vec<u64> = came.map(|(.., addr)| addr).collect();
    assert!(!came.is_empty(), "the kernel reports no trampoline");
    let is_at_the_start = |file: &Path| {
        let there = images(file);
        came.iter().all(|addr| there.contains(&(0, false, *addr)))
    };
    assert_eq!(files.iter().map(|file| is_at_the_start(file)).collect::<Vec<_>>(), [false, true, true, false, false]);
}

/// KSYMBOL records of trampolines: time (0 if it existed before the file), true if it is unregistered, address.
fn images(path: &Path) -> Vec<(u64, bool, u64)> {
    let bytes = fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    let layout = SampleLayout::new(&file.attrs()[0].attr, file.endian());
    let decoded = file.records().filter_map(|record| {
        let record = record.unwrap();
        if record.kind != RecordType::KSYMBOL {
            return None;
        }
        let (payload, id) = Payload::decode(&record, &layout).unwrap();
        match payload {
            Payload::Ksymbol(symbol) if symbol.name.starts_with(b"bpf_trampoline_") => {
                Some((id.time_ns.unwrap_or(0), symbol.is_unregister(), symbol.addr))
            }
            _ => None,
        }
    });
    decoded.collect()
}

/// Processes that a command has started are named in all later files, even after their parent has ended.
#[test]
fn what_a_command_started_is_named_in_every_file() {
    let test = "what_a_command_started_is_named_in_every_file";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let (path, done) = (scratch.path("perf.data"), scratch.path("done"));
    let mut recorder = bprec()
        .args(["record", "-q", "-e", "page-faults", "-c", "1", "--counters", "off", "--switch-output=signal", "-o"])
        .arg(&path)
        .args([
            "--",
            "sh",
            "-c",
            "(\"$0\" switch_output::touch_pages --exact --ignored >/dev/null &); until test -e \"$1\"; do sleep 0.05; done",
        ])
        .arg(std::env::current_exe().unwrap())
        .arg(&done)
        .env("PAGES", "100000")
        .spawn()
        .unwrap();
    let has_samples = || path.metadata().ok().filter(|about| about.len() > 300_000);
    for count in 1..=2 {
        wait_for("samples", has_samples);
        signal(&recorder, "-USR2");
        wait_for("another file", || (files(&path).len() == count).then_some(()));
    }
    wait_for("samples", has_samples);
    fs::write(&done, "").unwrap();
    assert!(recorder.wait().unwrap().success());
    let files = files(&path);
    assert_eq!(files.len(), 3);
    for file in files {
        let names = perf(&["script", "-F", "comm,event", "-i", file.to_str().unwrap()]);
        let of_load = names.lines().filter(|line| line.contains("switch_output::"));
        assert!(of_load.count() > 1000, "{}: {}", file.display(), names.lines().last().unwrap_or_default());
    }
}

/// SIGUSR2 ends a file, and the oldest are deleted.
#[test]
fn a_signal_ends_a_file_and_the_newest_are_kept() {
    let test = "a_signal_ends_a_file_and_the_newest_are_kept";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut recorder = recording(&path, "600", &["--switch-output", "--max-files", "2"]);
    let mut seen: Vec<PathBuf> = Vec::new();
    for round in 1..=4 {
        signal(&recorder, "-USR2");
        let newest = wait_for("a closed file", || {
            let newest = files(&path).pop().filter(|newest| !seen.contains(newest))?;
            let journal = PathBuf::from(format!("{}.journal", newest.display()));
            (!journal.exists() && path.exists()).then_some(newest)
        });
        seen.push(newest);
        let kept = wait_for("the removal of the oldest file", || Some(files(&path)).filter(|files| files.len() <= 2));
        assert_eq!(kept, seen[seen.len().saturating_sub(2)..], "round {round}");
    }
    signal(&recorder, "-INT");
    assert!(recorder.wait().unwrap().success());
    let kept = files(&path);
    assert_eq!((kept.len(), kept[0].clone()), (2, seen.last().unwrap().clone()));
    assert!(!path.exists());
}

/// The recorder is killed at any moment, also between two files: every file can be read, and every file except the one being written is complete.
#[test]
fn killed_while_files_change() {
    let test = "killed_while_files_change";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    for round in 0..12u64 {
        let path = scratch.path(&format!("{round}.data"));
        let recorder = recording(&path, "600", &["-F", "4000", "--switch-output=100K"]);
        wait_for("a closed file", || (!files(&path).is_empty()).then_some(()));
        // The moments are spread over the time of a file.
        thread::sleep(Duration::from_millis(17 * round));
        support::kill(&path, recorder);
        let mut all = files(&path);
        all.extend(Some(path.clone()).filter(|path| path.exists()));
        for file in &all {
            let before = fs::metadata(file).unwrap().len();
            let output = bprec().args(["report", "--json", "-i"]).arg(file).output().unwrap();
            // A file that was killed early may have no program yet, which causes exit code 1.
            assert!(
                matches!(output.status.code(), Some(0 | 1)),
                "{}, {before} bytes: {}",
                file.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let journals = fs::read_dir(path.parent().unwrap()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            let name = name.to_str().unwrap();
            name.starts_with(&format!("{round}.data")) && name.ends_with(".journal")
        });
        // Only two files may have journals: the current file, and the previous file while it is being completed.
        assert!(journals.count() <= 2, "round {round}");
    }
}

/// Files of earlier recordings count, too, and no other files are deleted. The newest files and the current file remain.
#[test]
fn the_newest_are_kept_over_restarts() {
    let test = "the_newest_are_kept_over_restarts";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let foreign =
        ["perf.data.2001010101010101", "perf.data.2001", "perf.data.old-notes"].map(|name| scratch.path(name));
    foreign.iter().for_each(|file| fs::write(file, "is no recording").unwrap());
    let recordings = || files(&path).into_iter().filter(|file| !foreign.contains(file)).collect::<Vec<_>>();
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let _ends = SetAtEnd(&is_over);
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(recordings().len() + usize::from(path.exists()));
            }
            most
        });
        for run in 0..3 {
            let mut recorder = recording(&path, "600", &["--switch-output", "--max-files", "2"]);
            for _ in 0..2 {
                let before = recordings();
                signal(&recorder, "-USR2");
                wait_for("another file", || (recordings().last() != before.last() && path.exists()).then_some(()));
            }
            signal(&recorder, "-INT");
            assert!(recorder.wait().unwrap().success());
            assert_eq!(recordings().len(), 2, "run {run}: {:?}", recordings());
        }
        is_over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    assert_eq!(most, 3);
    assert!(foreign.iter().all(|file| fs::read(file).unwrap() == b"is no recording"));
}
