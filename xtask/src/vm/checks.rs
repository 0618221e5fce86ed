//! `cargo xtask vm test`: what has to hold in every guest, counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::guest::{self, Outcome};
use super::{Guest, Machine, Unavailable, images, payload, recordings};
use crate::test::Tally;

/// The recordings that `run.sh` makes.
const RECORDINGS: [&str; 2] = ["all", "trampoline"];

/// A guest on an idle machine takes a fraction of this.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the payload in each of `guests`; the last line is `N passed, N failed, N skipped`.
pub(crate) fn run(guests: &[&Guest]) -> Result<()> {
    let mut tally = Tally::default();
    let mut payloads = Vec::new();
    for guest in guests {
        let started = Instant::now();
        match in_guest(guest, &mut payloads, &mut tally) {
            Ok(seconds) => {
                println!(
                    "vm {}: {seconds:.1} s in the guest, {:.1} s in all",
                    guest.name,
                    started.elapsed().as_secs_f64()
                );
            }
            Err(why) => match why.downcast_ref::<Unavailable>() {
                Some(missing) => tally.skip(&format!("vm {}", guest.name), &missing.to_string()),
                None => tally.fail(&format!("vm {}", guest.name), &format!("{why:#}")),
            },
        }
    }
    tally.close()
}

/// One guest, its checks added to `tally`; gives the seconds from its start to its end.
fn in_guest(guest: &Guest, payloads: &mut Vec<Machine>, tally: &mut Tally) -> Result<f64> {
    let images = images::prepare(guest)?;
    let target = target_directory();
    let payload_for = |machine: Machine| target.join("vm").join(format!("payload-{}", machine.debian()));
    // What guests of another machine record is read here by this machine's build.
    for machine in [Machine::NATIVE, guest.machine] {
        if !payloads.contains(&machine) {
            payload::assemble(&payload_for(machine), machine, &target)?;
            payloads.push(machine);
        }
    }
    let payload = &payload_for(guest.machine);
    let bprec = payload_for(Machine::NATIVE).join("bin/bprec");
    let out = target.join("vm").join(guest.name);
    let run = guest::run(guest, &images, payload, &out, LIMIT)?;
    ensure!(run.outcome == Outcome::Ended(0), "{}; see {}", run.outcome, out.join("console.log").display());
    let kept = out.join("out");
    let named = |check: &str| format!("vm {} {check}", guest.name);
    match run.complaints.as_slice() {
        [] => tally.pass(),
        [first, ..] => tally.fail(&named("kernel_log"), &format!("{} lines, first: {first}", run.complaints.len())),
    }
    results(&fs::read_to_string(kept.join("results.txt")).context("the guest left no results")?, &named, tally);
    for recording in RECORDINGS {
        for (check, result) in recordings::checks(&kept.join("recordings"), recording, &bprec) {
            match result {
                Ok(()) => tally.pass(),
                Err(why) => tally.fail(&named(&check), &format!("{why:#}")),
            }
        }
    }
    test_programs(&kept.join("tests"), guest, tally)?;
    Ok(run.seconds)
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

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
