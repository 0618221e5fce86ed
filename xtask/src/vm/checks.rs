//! `cargo xtask vm test`: runs the tests and checks in guests and counts the results.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use xshell::Shell;

use super::payload::Builds;
use super::{Guest, Unavailable, guest, recordings};
use crate::tally::Tally;
use crate::{in_parallel, target_directory};

/// Time limit of a guest: at least twice the time on an idle machine.
const LIMIT: Duration = Duration::from_secs(2100);
/// Limit on the boots of a guest that does not start its payload.
const BOOTS: usize = 3;

/// Runs the tests in each of `guests`, several guests at once, and adds the results to `tally`. Prints the time of each guest at the end.
pub(crate) fn run(guests: &[&Guest], builds: &Builds, tally: &mut Tally) {
    let checked = in_parallel(guest::at_once(), guests, |guest| {
        let (started, mut tally) = (Instant::now(), Tally::default());
        let ended = in_guest(guest, builds, &mut tally);
        (started.elapsed().as_secs_f64(), tally, ended)
    });
    let mut unavailable: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (guest, (seconds, own, ended)) in guests.iter().zip(checked) {
        tally.add(own);
        println!("vm {}: {seconds:.0} s", guest.name);
        match ended {
            Ok(()) => {}
            Err(why) if why.is::<Unavailable>() => unavailable.entry(why.to_string()).or_default().push(&guest.name),
            Err(why) => tally.check(&format!("vm {}", guest.name), Err(why)),
        }
    }
    for (why, names) in unavailable {
        tally.skip(&format!("vm {}", names.join(" ")), &format!("guest: {why}"));
    }
}

/// Runs one guest and adds its checks to `tally`.
fn in_guest(guest: &Guest, builds: &Builds, tally: &mut Tally) -> Result<()> {
    let sh = &Shell::new()?;
    let directory = target_directory().join("vm");
    let (out, payload) = (directory.join(&guest.name), directory.join(format!("{}.payload", guest.name)));
    builds.assemble(sh, &payload, guest)?;
    let mut run = guest::run(sh, guest, &payload, &out, LIMIT)?;
    for boot in 1..BOOTS {
        if run.booted {
            break;
        }
        let kept = directory.join(format!("{}.console-{boot}.log", guest.name));
        sh.copy_file(&run.console, &kept)?;
        let why = format!("{}, see {}; tested in another boot", run.ended, kept.display());
        tally.repeat(&format!("{} boot", guest.name), &why);
        run = guest::run(sh, guest, &payload, &out, LIMIT)?;
    }
    sh.remove_path(&payload)?;
    run.succeeded()?;
    let kept = out.join("out");
    for recording in &guest.recordings {
        for (check, result) in recordings::checks(sh, &kept.join("recordings"), recording, builds.bprec()?) {
            tally.check(&format!("vm {} {check}", guest.name), result);
        }
    }
    results(&sh.read_file(kept.join("results.txt"))?, &guest.name, tally);
    test_programs(sh, &kept, &guest.name, tally)
}

/// Adds the results that the guest's checks wrote, one per line.
fn results(text: &str, guest: &str, tally: &mut Tally) {
    let mut own = Tally::of(guest, "results.txt");
    for line in text.lines() {
        let (check, why) = line.split_once(": ").unwrap_or((line, "no reason given"));
        match check.split_once(' ') {
            Some(("PASS", check)) => own.check(check, Ok(())),
            Some(("SKIP", check)) => own.skip(check, why),
            Some(("FAIL", check)) => own.check(&format!("vm {guest} {check}"), Err(anyhow!("{why}"))),
            _ => own.check(&format!("vm {guest} results"), Err(anyhow!("not a result: {line}"))),
        }
    }
    tally.add(own);
}

/// Adds the output of the test programs, and the second output of programs that ran again because a few of their tests had failed.
fn test_programs(sh: &Shell, kept: &Path, guest: &str, tally: &mut Tally) -> Result<()> {
    let tallied = |path: &Path| {
        let text = sh.read_binary_file(path)?;
        let text = String::from_utf8_lossy(&text);
        let mut tally = Tally::of(guest, &path.display().to_string());
        text.lines().for_each(|line| drop(tally.line(line)));
        tally.end(text.contains("test result: "));
        anyhow::Ok(tally)
    };
    for path in sh.read_dir(kept.join("tests"))? {
        let mut own = tallied(&path)?;
        let again = kept.join("again").join(path.file_name().unwrap_or_default());
        if again.exists() {
            own.ran_again(tallied(&again)?).iter().for_each(|failure| println!("{failure}"));
        }
        tally.add(own);
    }
    Ok(())
}
