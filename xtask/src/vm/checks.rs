//! `cargo xtask vm test`: runs the tests and checks in guests and counts the results.

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::guest::{self, Outcome};
use super::payload::Builds;
use super::{Guest, Unavailable, images, recordings};
use crate::tally::Tally;
use crate::target_directory;

/// Time limit of a guest: at least twice the time on an idle machine.
const LIMIT: Duration = Duration::from_secs(2100);
/// Limit on the boots of a guest that does not start its payload.
const BOOTS: usize = 3;

/// Runs the tests in each of `guests`, several guests at once, and adds the results to `tally`. Prints the time of each guest at the end.
pub(crate) fn run(guests: &[&Guest], builds: &Builds, tally: &mut Tally) {
    let next = AtomicUsize::new(0);
    let take_one = || guests.get(next.fetch_add(1, Ordering::Relaxed));
    let worker = || std::iter::from_fn(take_one).map(|guest| check(guest, builds)).collect::<Vec<_>>();
    let checked: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..guest::at_once()).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut unavailable: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (guest, seconds, own, missing) in checked {
        tally.add(own);
        println!("vm {guest}: {seconds:.0} s");
        if let Some(why) = missing {
            unavailable.entry(why).or_default().push(guest);
        }
    }
    for (why, names) in unavailable {
        tally.skip(&format!("vm {}", names.join(" ")), &format!("guest: {why}"));
    }
}

/// Runs one guest. Returns its name, its time in seconds, its results, and the reason if a package is unavailable.
fn check(guest: &Guest, builds: &Builds) -> (&'static str, f64, Tally, Option<String>) {
    let mut tally = Tally::default();
    let started = Instant::now();
    let missing = in_guest(guest, builds, &mut tally).err().and_then(|why| match why.downcast_ref::<Unavailable>() {
        Some(missing) => Some(missing.to_string()),
        None => {
            tally.fail(&format!("vm {}", guest.name), &format!("{why:#}"));
            None
        }
    });
    (guest.name, started.elapsed().as_secs_f64(), tally, missing)
}

/// Runs one guest and adds its checks to `tally`.
fn in_guest(guest: &Guest, builds: &Builds, tally: &mut Tally) -> Result<()> {
    let images = images::prepare(guest)?;
    let target = target_directory();
    let out = target.join("vm").join(guest.name);
    let payload = target.join("vm").join(format!("{}.payload", guest.name));
    builds.assemble(&payload, guest)?;
    let mut run = guest::run(guest, &images, &payload, &out, LIMIT)?;
    for boot in 1..BOOTS {
        if run.outcome != Outcome::NotBooted {
            break;
        }
        let kept = target.join("vm").join(format!("{}.console-{boot}.log", guest.name));
        fs::rename(out.join("console.log"), &kept)?;
        let why = format!("{}, see {}; tested in another boot", run.outcome, kept.display());
        tally.repeat(&format!("{} boot", guest.name), &why);
        run = guest::run(guest, &images, &payload, &out, LIMIT)?;
    }
    fs::remove_dir_all(&payload)?;
    ensure!(run.outcome == Outcome::Ended(0), "{}; see {}", run.outcome, out.join("console.log").display());
    let kept = out.join("out");
    let named = |check: &str| format!("vm {} {check}", guest.name);
    match run.complaints.as_slice() {
        [] => tally.pass(),
        [first, ..] => tally.fail(&named("kernel_log"), &format!("{} lines, first: {first}", run.complaints.len())),
    }
    let mut own = Tally::default();
    results(&fs::read_to_string(kept.join("results.txt")).context("the guest left no results")?, &named, &mut own);
    own.place(guest.name, &kept.join("results.txt").display().to_string());
    tally.add(own);
    for recording in guest.recordings {
        for (check, result) in recordings::checks(&kept.join("recordings"), recording, builds.bprec()) {
            match result {
                Ok(()) => tally.pass(),
                Err(why) => tally.fail(&named(&check), &format!("{why:#}")),
            }
        }
    }
    test_programs(&kept, guest, tally)
}

/// Adds the results that the guest's checks wrote, one per line.
fn results(text: &str, named: &dyn Fn(&str) -> String, tally: &mut Tally) {
    for line in text.lines() {
        let (check, why) = line.split_once(": ").unwrap_or((line, "no reason given"));
        match check.split_once(' ') {
            Some(("PASS", _)) => tally.pass(),
            Some(("SKIP", check)) => tally.skip(check, why),
            Some(("FAIL", check)) => tally.fail(&named(check), why),
            _ => tally.fail(&named("results"), &format!("not a result: {line}")),
        }
    }
}

/// Adds the output of the test programs, and the second output of programs that ran again because a few of their tests had failed.
fn test_programs(kept: &Path, guest: &Guest, tally: &mut Tally) -> Result<()> {
    let tallied = |path: &Path| {
        let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let mut tally = Tally::default();
        text.lines().for_each(|line| drop(tally.line(line)));
        tally.end(text.contains("test result: "));
        anyhow::Ok(tally)
    };
    for path in crate::tree::files_under(&kept.join("tests"))? {
        let mut own = tallied(&path)?;
        let again = path.file_name().map(|name| kept.join("again").join(name)).filter(|again| again.exists());
        if let Some(again) = again {
            own.ran_again(tallied(&again)?).iter().for_each(|failure| println!("{failure}"));
        }
        own.place(guest.name, &path.display().to_string());
        tally.add(own);
    }
    Ok(())
}
