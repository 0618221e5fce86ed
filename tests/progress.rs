//! The line that says how far reading has come: on a terminal, when it takes long, until there is something to show. What makes reading
//! take long here is that others run: a recording that is large enough would take gigabytes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod support;
#[path = "support/tmux.rs"]
mod tmux;

use std::fs::{self, File};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bprec_generate::{Container, Shape, generate};
use support::Scratch;
use tmux::{Terminal, tmux_installed};

const BPREC: &str = env!("CARGO_BIN_EXE_bprec");

fn recording(scratch: &Scratch, container: Container, record_bytes: u64) -> String {
    let path = scratch.path("large.data");
    let shape = Shape { record_bytes, container, ..Shape::default() };
    generate(&shape, File::create(&path).unwrap()).unwrap();
    path.display().to_string()
}

/// Runs `bprec` in a terminal, with this behind its arguments, where shells that do nothing but run have nearly all of the CPU.
fn slowly(scratch: &Scratch, arguments: &str) -> Terminal {
    let script = scratch.path("slowly.sh");
    let lines = format!(
        "taskset -cp 0 $$ >/dev/null\n\
         for _ in 1 2 3; do while [ -d /proc/$$ ]; do :; done & done\n\
         nice -n 19 '{BPREC}' {arguments}\n"
    );
    fs::write(&script, lines).unwrap();
    Terminal::run((160, 40), "sh", &[script.to_str().unwrap()], &[])
}

/// The screens until the end.
fn screens(terminal: &Terminal) -> Vec<Vec<String>> {
    let began = Instant::now();
    let mut screens = vec![terminal.screen()];
    while !screens.last().unwrap().iter().any(|line| line.starts_with("ended: ")) {
        assert!(began.elapsed() < Duration::from_secs(300), "{:#?}", screens.last());
        sleep(Duration::from_millis(20));
        screens.push(terminal.screen());
    }
    screens
}

/// What the line says: the pass and the share, %.
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
    for (container, record_bytes) in [(Container::File, 32 << 20), (Container::ZstdFile(1), 24 << 20)] {
        let scratch = Scratch::new();
        let path = recording(&scratch, container, record_bytes);
        let terminal = slowly(&scratch, &format!("report --threads 1 --limit 3 -i '{path}'"));
        let screens = screens(&terminal);
        let seen: Vec<(u32, u32)> = screens.iter().filter_map(|screen| progress(screen)).collect();
        assert!(seen.iter().any(|(_, share)| (1..100).contains(share)), "{container:?}: {seen:?}");
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
    let began = Instant::now();
    let terminal = slowly(&scratch, &format!("report --threads 1 --limit 3 -i '{path}' 2>'{}'", log.display()));
    screens(&terminal);
    // On a terminal there is a line after one.
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(terminal.end(), 0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
}
