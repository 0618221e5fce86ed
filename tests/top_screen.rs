//! The screen of `bprec top`: its numbers equal the kernel's, keys work, and nothing remains at the end. Real kernel, root.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{alone, bprec, measured, root, succeed, wait_for};
use crate::tmux::{Terminal, cell, tmux_installed};
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

const PROGRAM: &str = "loop_of_1000";

fn load() -> (Loaded, String) {
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let id = loaded.id_of(PROGRAM).unwrap().to_string();
    (loaded, id)
}

/// Starts `top` for only one program, with all runs counted and all columns.
fn watch(id: &str) -> Terminal {
    let terminal = Terminal::start((160, 20), &["top", "-d", "0.5", "--budget", "100", "--all", "--prog", id]);
    terminal.wait_for(&["q quit"]);
    terminal.keys(&["c"]);
    terminal.wait_for(&[id, PROGRAM]);
    terminal
}

/// Runs of the program in the displayed interval.
fn runs(screen: &[String], id: &str) -> Option<f64> {
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
    let length = number(screen.iter().find(|line| line.contains("all BPF:"))?.split(' ').next()?)?;
    let header = screen.iter().find(|line| line.contains("RUNS/S"))?;
    let row = screen.iter().find(|line| line.split_whitespace().next() == Some(id))?;
    Some(number(cell(header, row, "RUNS/S"))? * length)
}

/// Runs from bpftool.
fn bpftool(id: &str) -> f64 {
    let output = succeed(Command::new("bpftool").args(["-j", "prog", "show", "id", id]));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown["run_cnt"].as_f64().unwrap_or(0.0)
}

/// Runs during a pause are in one interval, and equal those that bpftool shows.
#[test]
fn the_runs_of_an_interval_are_those_of_bpftool() {
    let test = "the_runs_of_an_interval_are_those_of_bpftool";
    if !root(test) || !tmux_installed(test) {
        return;
    }
    alone();
    let (loaded, id) = load();
    // Repeats a failed attempt: an interval may end between the key and the load.
    measured(|| {
        let terminal = watch(&id);
        terminal.keys(&["Space"]);
        terminal.wait_for(&["paused"]);
        let before = bpftool(&id);
        loaded.run(PROGRAM, 3_000).unwrap();
        let expected = bpftool(&id) - before;
        terminal.keys(&["Space"]);
        let screen = terminal.wait("runs", |screen| runs(screen, &id).is_some_and(|runs| runs > 0.0));
        let shown = runs(&screen, &id).unwrap();
        terminal.keys(&["q"]);
        assert_eq!(terminal.end(), 0);
        // The length of the interval has three decimals, runs per second above 1000 have none.
        let is_it = expected == 3_000.0 && (shown - expected).abs() <= 0.005 * expected;
        if is_it { Ok(()) } else { Err(format!("{shown} runs on the screen, {expected} by bpftool")) }
    });
}

/// Under load, the running function is hot; the interval can be written to a file, which is a normal recording.
#[test]
fn a_program_opens_while_it_runs_and_what_was_seen_is_written() {
    let test = "a_program_opens_while_it_runs_and_what_was_seen_is_written";
    if !root(test) || !tmux_installed(test) {
        return;
    }
    alone();
    let (loaded, id) = load();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                loaded.run(PROGRAM, 1_000).unwrap();
            }
        });
        let terminal = watch(&id);
        let has_load = |screen: &[String]| runs(screen, &id).is_some_and(|runs| runs > 0.0);
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            terminal.wait("runs, and what watching them takes", |screen| {
                has_load(screen) && screen.iter().any(|line| line.contains("bprec itself:"))
            });
            terminal.keys(&["Escape"]);
            terminal.wait("its row on the first page", |screen| {
                let header = screen.iter().find(|line| line.contains("STATS%") && line.contains("PROGRAM"));
                let row = screen.iter().find(|line| line.split_whitespace().nth(1) == Some(PROGRAM));
                let share = header.zip(row).map(|(header, row)| cell(header, row, "STATS%").parse::<f64>());
                share.is_some_and(|share| share.is_ok_and(|share| share > 0.0))
            });
            terminal.keys(&["Enter"]);
            terminal.wait("a hot function", |screen| {
                let header = screen.iter().find(|line| line.contains("%COST") && line.contains("FUNCTION"));
                let row = screen.iter().find(|line| line.ends_with(PROGRAM) && !line.contains('·'));
                header.zip(row).is_some_and(|(header, row)| cell(header, row, "%SELF").parse::<f64>().is_ok())
            });
            // A key directly after Escape would be read as Alt and the key.
            terminal.keys(&["Escape"]);
            terminal.wait_for(&["every 0.5 s"]);
            terminal.keys(&["+"]);
            terminal.wait_for(&["every 1 s"]);
            terminal.keys(&["-", "-"]);
            terminal.wait_for(&["every 0.2 s"]);
            // The shorter interval starts a new recording, which may not have begun yet.
            wait_for("a file with samples of the program", || {
                terminal.keys(&["w", "Enter"]);
                let said = |screen: &[String]| screen.last().is_some_and(|line| line.contains("bprec"));
                terminal.wait("an answer", said).last()?.contains("samples -> bprec-top.data").then_some(())?;
                let report = reported(&terminal, &id)?;
                report["events"][0]["rows"][0]["samples"].as_u64().filter(|samples| *samples > 0)
            });
        }));
        is_over.store(true, Ordering::Relaxed);
        shown.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        terminal.keys(&["q"]);
        assert_eq!(terminal.end(), 0);
        let row = &reported(&terminal, &id).unwrap()["events"][0]["rows"][0];
        assert_eq!((row["id"].to_string(), row["name"].as_str()), (id.clone(), Some(PROGRAM)), "{row}");
    });
}

/// Pages and the written file contain neither the holder of a program nor the running task.
#[test]
fn redacted_screens_hold_no_secret() {
    let test = "redacted_screens_hold_no_secret";
    if !root(test) || !tmux_installed(test) {
        return;
    }
    alone();
    let (loaded, id) = load();
    // The process of the test owns the program; the kernel cuts its name to 15 bytes.
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let comm = comm.trim();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                loaded.run(PROGRAM, 1_000).unwrap();
            }
        });
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for is_redacted in [false, true] {
                let redact: &[&str] = if is_redacted { &["--redact"] } else { &[] };
                let options = ["top", "-d", "0.5", "--budget", "100", "--all", "--prog", &id];
                let terminal = Terminal::start((200, 20), &[&options, redact].concat());
                terminal.wait_for(&["q quit"]);
                terminal.keys(&["c"]);
                let mut seen = terminal.wait("runs", |screen| runs(screen, &id).is_some_and(|runs| runs > 0.0));
                terminal.keys(&["p"]);
                seen.extend(terminal.wait("payers", |screen| {
                    screen[0].contains("payers") && screen.iter().any(|line| line.contains("%PAYER"))
                }));
                terminal.keys(&["b"]);
                let of_bill = terminal.wait("the bill", |screen| {
                    screen[0].contains("bill") && screen.iter().any(|line| line.starts_with("TOTAL"))
                });
                assert_eq!(of_bill.iter().any(|line| line.starts_with(comm)), !is_redacted, "{of_bill:#?}");
                seen.extend(of_bill);
                let said = wait_for("a file", || {
                    terminal.keys(&["w", "Enter"]);
                    let said = |screen: &[String]| screen.last().is_some_and(|line| line.contains("bprec"));
                    let said = terminal.wait("an answer", said).last()?.clone();
                    said.contains("samples -> bprec-top.data").then_some(said)
                });
                terminal.keys(&["q"]);
                assert_eq!(terminal.end(), 0);
                assert_eq!(seen.iter().any(|line| line.contains(comm)), !is_redacted, "{comm}: {seen:#?}");
                let file = std::fs::read(terminal.path("bprec-top.data")).unwrap();
                let has_comm = file.windows(comm.len()).any(|window| window == comm.as_bytes());
                assert_eq!(has_comm, !is_redacted, "{comm}: {said}");
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        shown.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Report of the file that was written.
fn reported(terminal: &Terminal, id: &str) -> Option<Value> {
    let path = terminal.path("bprec-top.data");
    let output = bprec().args(["report", "--json", "--prog", id, "-i"]).arg(path).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

/// Directories of `bprec top`.
fn directories() -> BTreeSet<String> {
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("bprec-top-")).collect()
}

#[test]
fn whatever_ends_it_the_terminal_is_whole_and_nothing_stays() {
    let test = "whatever_ends_it_the_terminal_is_whole_and_nothing_stays";
    if !root(test) || !tmux_installed(test) {
        return;
    }
    alone();
    for signal in ["-TERM", "-INT", "-HUP"] {
        let before = directories();
        let terminal = Terminal::start((60, 15), &["top", "-d", "0.2"]);
        // SIGHUP is sent right at the start, the other signals after the first screen.
        if signal != "-HUP" {
            terminal.wait_for(&["% of this machine"]);
        }
        terminal.wait_for(&["q quit"]);
        terminal.signal(signal);
        assert_eq!(terminal.end(), 0, "{signal}");
        assert!(directories().is_subset(&before), "{signal}");
    }
}
