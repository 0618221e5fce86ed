//! The progress line: on a terminal, it is shown while reading takes long and there is no output yet. Here, reading takes long because the command
//! is stopped again and again: a recording that is large enough would take gigabytes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{self, Scratch};
use crate::tmux::{Terminal, tmux_installed};
use bprec_generate::{Container, Shape, generate};
use bprec_report::{Input, Progress};
use rustix::process::{Pid, Signal, kill_process};

const BPREC: &str = env!("CARGO_BIN_EXE_bprec");

fn recording(scratch: &Scratch, container: Container, record_bytes: u64) -> String {
    let path = scratch.path("large.data");
    let shape = Shape { record_bytes, container, ..Shape::default() };
    generate(&shape, File::create(&path).unwrap()).unwrap();
    path.display().to_string()
}

/// Lets a command run for moments only, until `is_enough` is true of a screen. Returns the screens between the moments.
fn by_moments(terminal: &Terminal, is_enough: impl Fn(&[String]) -> bool) -> Vec<Vec<String>> {
    let pid = Pid::from_raw(terminal.pid().try_into().unwrap()).unwrap();
    let mut screens = Vec::new();
    loop {
        // The command may have ended since the last moment; its last screen is then judged as it is.
        if kill_process(pid, Signal::STOP).is_err() {
            screens.push(terminal.screen());
            return screens;
        }
        // The line is drawn again after 200 ms.
        sleep(Duration::from_millis(250));
        screens.push(terminal.screen());
        kill_process(pid, Signal::CONT).unwrap();
        if is_enough(screens.last().unwrap()) {
            return screens;
        }
        sleep(Duration::from_micros(500));
    }
}

/// Number of the pass, and percentage, in the progress line.
fn progress(screen: &[String]) -> Option<(u32, u32)> {
    let line = screen.iter().find(|line| line.starts_with("bprec: reading "))?;
    let (_, said) = line.split_once("large.data, pass ").unwrap_or_else(|| panic!("{line}"));
    let (pass, share) = said.strip_suffix(" %")?.split_once(": ")?;
    Some((pass.parse().unwrap(), share.parse().unwrap()))
}

#[test]
fn a_terminal_shows_how_far_reading_has_come() {
    if !tmux_installed("a_terminal_shows_how_far_reading_has_come") {
        return;
    }
    // Reading takes many moments even if one of them is long, on a busy machine.
    for (container, record_bytes) in [(Container::File, 96 << 20), (Container::ZstdFile(1), 64 << 20)] {
        let scratch = Scratch::new();
        let path = recording(&scratch, container, record_bytes);
        let terminal = Terminal::start((160, 40), &["report", "--threads", "1", "--limit", "3", "-i", &path]);
        let shows_part = |screen: &[String]| progress(screen).is_some_and(|(_, share)| (1..100).contains(&share));
        let screens = by_moments(&terminal, shows_part);
        let seen: Vec<(u32, u32)> = screens.iter().filter_map(|screen| progress(screen)).collect();
        assert!(seen.is_sorted() && seen.iter().all(|(_, share)| *share <= 100), "{container:?}: {seen:?}");
        assert_eq!(terminal.end(), 0);
        let last = terminal.screen().join("\n");
        assert!(last.contains("TOTAL") && !last.contains("reading"), "{last}");
        assert!(last.starts_with('#'), "the line is overwritten: {last}");
    }
}

#[test]
fn a_log_has_no_progress() {
    if !tmux_installed("a_log_has_no_progress") {
        return;
    }
    let scratch = Scratch::new();
    let path = recording(&scratch, Container::File, 32 << 20);
    let log = scratch.path("log");
    let command = format!("exec \"$0\" report --threads 1 --limit 3 -i \"{path}\" 2>\"{}\"", log.display());
    let terminal = Terminal::run((160, 40), "sh", &["-c", &command, BPREC], &[]);
    let began = Instant::now();
    let screens = by_moments(&terminal, |_| began.elapsed() > Duration::from_secs(2));
    assert!(screens.concat().iter().all(|line| !line.starts_with("ended: ")), "{screens:?}");
    assert_eq!(terminal.end(), 0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
}

/// Asserts the progress of a command that has read half of a pipe and waits for the rest; then the command finishes.
fn assert_half(scratch: &Scratch, container: Container, arguments: &str, shown: &str) {
    let path = recording(scratch, container, 4 << 20);
    let fifo = scratch.path("fifo");
    support::succeed(Command::new("mkfifo").arg(&fifo));
    let script = format!("\"$0\" {arguments} <'{}'", fifo.display());
    let terminal = Terminal::run((160, 40), "sh", &["-c", &script.replace('\'', "\""), BPREC], &[]);
    let bytes = fs::read(&path).unwrap();
    let (half, rest) = bytes.split_at(bytes.len() / 2);
    let mut pipe = File::options().write(true).open(&fifo).unwrap();
    pipe.write_all(half).unwrap();
    let line = format!("bprec: {shown}: {:.1} MB", half.len() as f64 / 1e6);
    terminal.wait_for(&[&line]);
    pipe.write_all(rest).unwrap();
    drop(pipe);
    assert_eq!(terminal.end(), 0, "{arguments}");
    let last = terminal.screen().join("\n");
    assert!(!last.contains(shown), "{arguments}: {last}");
    fs::remove_file(&fifo).unwrap();
}

#[test]
fn what_arrives_shows_how_much_it_is() {
    if !tmux_installed("what_arrives_shows_how_much_it_is") {
        return;
    }
    let scratch = Scratch::new();
    let output = scratch.path("written").display().to_string();
    assert_half(&scratch, Container::File, "report --limit 3 -i -", "copying -");
    for arguments in ["script -i - >", "rewrite -i - -o ", "recover - -o "] {
        assert_half(&scratch, Container::Pipe, &format!("{arguments}'{output}'"), "reading -, pass 1");
        assert!(fs::metadata(&output).unwrap().len() > 0, "{arguments}");
    }
}

/// `script` has read half of its input: the progress stays the same until the rest is read.
#[test]
fn script_shows_how_much_of_a_file_is_printed() {
    if !tmux_installed("script_shows_how_much_of_a_file_is_printed") {
        return;
    }
    let scratch = Scratch::new();
    let path = recording(&scratch, Container::File, 4 << 20);
    let fifo = scratch.path("fifo");
    support::succeed(Command::new("mkfifo").arg(&fifo));
    let script = format!("\"$0\" script -i \"{path}\" >\"{}\"", fifo.display());
    let terminal = Terminal::run((160, 40), "sh", &["-c", &script, BPREC], &[]);
    let mut pipe = File::open(&fifo).unwrap();
    let whole = support::succeed(support::bprec().args(["script", "-i", &path])).stdout;
    let mut printed = vec![0; whole.len() / 2];
    pipe.read_exact(&mut printed).unwrap();
    terminal.wait("a share", |screen| progress(screen).is_some_and(|(_, share)| (1..100).contains(&share)));
    pipe.read_to_end(&mut printed).unwrap();
    assert_eq!(terminal.end(), 0);
    assert!(printed == whole);
}

#[test]
fn unpacking_counts_what_is_packed() {
    let scratch = Scratch::new();
    let path = recording(&scratch, Container::File, 1 << 20);
    support::succeed(Command::new("gzip").args(["-1", &path]));
    let path = format!("{path}.gz");
    let progress = Arc::<Progress>::default();
    Input::open_with(&path, &progress).unwrap();
    assert!(progress.is_copying() && progress.share() == Some(1.0));
    assert_eq!(progress.read_bytes(), fs::metadata(&path).unwrap().len());
}
