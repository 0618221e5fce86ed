//! `cargo xtask vm test`: runs the tests and checks in guests and counts the results.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use xshell::Shell;

use super::payload::Builds;
use super::{Guest, Unavailable, guest, recordings};
use crate::tally::Tally;
use crate::target_directory;

/// Time limit of a guest: at least twice the time on an idle machine.
const LIMIT: Duration = Duration::from_secs(2100);
/// Limit on the boots of a guest that does not start its payload.
const BOOTS: usize = 3;

/// Runs the tests in each of `guests`, several guests at once, and adds the results to `tally`. Prints the time of each guest when it ends.
pub(crate) fn run(guests: &[&Guest], builds: &Builds, tally: &mut Tally) {
    let (next, (sender, ended)) = (&AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for sender in vec![sender; guest::at_once()] {
            scope.spawn(move || {
                while let Some(guest) = guests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (started, mut own) = (Instant::now(), Tally::of(&guest.name, "results.txt"));
                    match in_guest(guest, builds, &mut own) {
                        Ok(()) => {}
                        Err(why) if why.is::<Unavailable>() => own.skip("vm", &format!("guest: {why}")),
                        Err(why) => own.check(&format!("vm {}", guest.name), Err(why)),
                    }
                    println!("vm {}: {} s", guest.name, started.elapsed().as_secs());
                    // Fails only if the receiving thread has panicked.
                    sender.send(own).ok();
                }
            });
        }
        ended.into_iter().for_each(|own| tally.add(own));
    });
}

/// Runs one guest and adds its checks to `tally`.
fn in_guest(guest: &Guest, builds: &Builds, tally: &mut Tally) -> Result<()> {
    let (sh, name) = (&Shell::new()?, &guest.name);
    let directory = target_directory().join("vm");
    let (out, payload) = (directory.join(name), directory.join(format!("{name}.payload")));
    builds.assemble(sh, &payload, guest)?;
    let mut boots = 1..BOOTS;
    let run = loop {
        let run = guest::run(sh, guest, &payload, &out, LIMIT)?;
        let Some(boot) = boots.next().filter(|_| !run.booted) else { break run };
        let kept = directory.join(format!("{name}.console-{boot}.log"));
        sh.copy_file(&run.console, &kept)?;
        tally.repeat("boot", &format!("{}, see {}; tested in another boot", run.ended, kept.display()));
    };
    sh.remove_path(&payload)?;
    run.succeeded()?;
    let kept = out.join("out");
    for load in &guest.recordings {
        for (check, result) in recordings::checks(sh, &kept.join("recordings"), load, builds.bprec()?) {
            tally.check(&format!("vm {name} {check}"), result);
        }
    }
    sh.read_file(kept.join("results.txt"))?.lines().for_each(|line| tally.script(&format!("vm {name}"), line));
    // A program of which a few tests have failed has run once more.
    for path in sh.read_dir(kept.join("tests"))? {
        let mut own = test_program(sh, name, &path)?;
        let again = kept.join("again").join(path.file_name().unwrap_or_default());
        if again.exists() {
            own.ran_again(test_program(sh, name, &again)?).iter().for_each(|failure| println!("{failure}"));
        }
        tally.add(own);
    }
    Ok(())
}

/// Returns the tally of a test program's output.
fn test_program(sh: &Shell, guest: &str, output: &Path) -> Result<Tally> {
    let text = sh.read_binary_file(output)?;
    let text = String::from_utf8_lossy(&text);
    let mut tally = Tally::of(guest, &output.display().to_string());
    text.lines().for_each(|line| drop(tally.line(line)));
    tally.end(text.contains("test result: "));
    Ok(tally)
}
