//! `cargo xtask vm test`: what has to hold in every guest, counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::guest::{self, Outcome};
use super::{Guest, Unavailable, images, payload, recordings};
use crate::test::Tally;

/// A guest on an idle machine takes a fifth of this.
const LIMIT: Duration = Duration::from_secs(900);
/// A guest that emulation brings down is booted up to so often.
const BOOTS: usize = 3;

/// Tests in each of `guests`, results added to `tally`. Says at the end how long each took.
pub(crate) fn run(guests: &[&Guest], tally: &mut Tally) {
    let mut unavailable = Vec::new();
    let mut times = Vec::new();
    for guest in guests {
        let mut phases = Phases::of(guest);
        if let Err(why) = in_guest(guest, &mut phases, tally) {
            match why.downcast_ref::<Unavailable>() {
                Some(missing) => unavailable.push((guest.name, missing.to_string())),
                None => tally.fail(&format!("vm {}", guest.name), &format!("{why:#}")),
            }
        }
        times.push(phases);
    }
    let same = |(_, why): &(&str, String)| unavailable.first().is_some_and(|(_, first)| first == why);
    if unavailable.len() == guests.len() && unavailable.iter().all(same) {
        unavailable.drain(1..);
        unavailable.iter_mut().for_each(|(name, _)| *name = "guests");
    }
    unavailable.iter().for_each(|(name, why)| tally.skip(&format!("vm {name}"), why));
    times.iter().for_each(|phases| println!("vm {phases}"));
}

/// What is being done for a guest, and how long it took.
struct Phases {
    guest: &'static str,
    seconds: Vec<(&'static str, f64)>,
}

impl Phases {
    fn of(guest: &Guest) -> Self {
        Self { guest: guest.name, seconds: Vec::new() }
    }

    /// Does something under a name, which is said before.
    fn phase<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("vm {}: {name}", self.guest);
        let started = Instant::now();
        let result = work();
        self.seconds.push((name, started.elapsed().as_secs_f64()));
        result
    }
}

impl std::fmt::Display for Phases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: f64 = self.seconds.iter().map(|(_, seconds)| seconds).sum();
        write!(f, "{}: {all:.0} s", self.guest)?;
        let parts = self.seconds.iter().map(|(name, seconds)| format!("{name} {seconds:.0} s"));
        write!(f, " ({})", parts.collect::<Vec<_>>().join(", "))
    }
}

/// One guest, its checks added to `tally`.
fn in_guest(guest: &Guest, phases: &mut Phases, tally: &mut Tally) -> Result<()> {
    let images = phases.phase("set up", || images::prepare(guest))?;
    let target = target_directory();
    let out = target.join("vm").join(guest.name);
    let payload = target.join("vm").join(format!("{}.payload", guest.name));
    // What guests of another machine record is read here by this machine's build.
    let bprec = phases.phase("build", || payload::assemble(&payload, guest, &target))?;
    let mut run = phases.phase("test", || guest::run(guest, &images, &payload, &out, LIMIT))?;
    let console = out.join("console.log");
    for boot in 1..BOOTS {
        let why = match &run.outcome {
            Outcome::Died(_) if met_a_breakpoint(&console)? => "the kernel met a breakpoint of its own".to_owned(),
            Outcome::NotBooted => run.outcome.to_string(),
            _ => break,
        };
        let kept = target.join("vm").join(format!("{}.console-{boot}.log", guest.name));
        fs::rename(&console, &kept)?;
        let why = format!("{why}, see {}; tested in another boot", kept.display());
        tally.skip(&format!("vm {} boot_{boot}", guest.name), &why);
        run = phases.phase("test", || guest::run(guest, &images, &payload, &out, LIMIT))?;
    }
    fs::remove_dir_all(&payload)?;
    ensure!(run.outcome == Outcome::Ended(0), "{}; see {}", run.outcome, out.join("console.log").display());
    let kept = out.join("out");
    let named = |check: &str| format!("vm {} {check}", guest.name);
    match run.complaints.as_slice() {
        [] => tally.pass(),
        [first, ..] => tally.fail(&named("kernel_log"), &format!("{} lines, first: {first}", run.complaints.len())),
    }
    results(&fs::read_to_string(kept.join("results.txt")).context("the guest left no results")?, &named, tally);
    for recording in guest.recordings {
        for (check, result) in recordings::checks(&kept.join("recordings"), recording, &bprec) {
            match result {
                Ok(()) => tally.pass(),
                Err(why) => tally.fail(&named(&check), &format!("{why:#}")),
            }
        }
    }
    test_programs(&kept.join("tests"), guest, tally)
}

/// Whether a kernel died of a breakpoint that it sets for a moment while it changes code. Emulated processors were seen to run into one that was gone:
/// docs/vm.md says how often.
fn met_a_breakpoint(console: &Path) -> Result<bool> {
    Ok(String::from_utf8_lossy(&fs::read(console)?).contains("Oops: int3"))
}

/// Adds the lines that the guest's checks wrote.
fn results(text: &str, named: &dyn Fn(&str) -> String, tally: &mut Tally) {
    for line in text.lines() {
        let (check, why) = line.split_once(": ").unwrap_or((line, "no reason given"));
        match check.split_once(' ') {
            Some(("PASS", _)) => tally.pass(),
            Some(("SKIP", check)) => tally.skip(&named(check), why),
            Some(("FAIL", check)) => tally.fail(&named(check), why),
            _ => tally.fail(&named("results"), &format!("not a result: {line}")),
        }
    }
}

/// Adds what the test programs printed, and says which of their tests failed.
fn test_programs(directory: &Path, guest: &Guest, tally: &mut Tally) -> Result<()> {
    for path in crate::tree::files_under(directory)? {
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let mut own = Tally::default();
        text.lines().for_each(|line| own.line(line));
        own.end(text.contains("test result: "));
        tally.add(own, &format!("vm {}", guest.name));
        // The list at the end: what a child process prints may come between a test's name and its result.
        let (_, end) = text.rsplit_once("\nfailures:\n").unwrap_or_default();
        let failed = end.lines().map_while(|line| line.strip_prefix("    "));
        for test in failed {
            println!("FAILED vm {} {test}: see {}", guest.name, path.display());
        }
        if !text.contains("test result: ") {
            println!("FAILED vm {}: {} gave no result", guest.name, path.display());
        }
    }
    Ok(())
}

pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
