//! Runs of programs while another process switches the kernel's run statistics. Real kernel, root; tests of other files wait, because the
//! switch is global.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{self, Running, Scratch, SetAtEnd, measured, report, root, skip};
use bprec_fixtures::Fixture;
use bprec_fixtures::load::Pattern;

/// Program that runs once for each system call.
const PROGRAM: &str = "account_syscall_enter";

/// `kernel.bpf_stats_enabled`, restored on drop.
struct Sysctl(String);

impl Sysctl {
    const PATH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn take() -> Option<Sysctl> {
        let before = std::fs::read_to_string(Sysctl::PATH).ok()?;
        std::fs::write(Sysctl::PATH, &before).ok().map(|()| Sysctl(before))
    }

    fn set(&self, is_on: bool) {
        std::fs::write(Sysctl::PATH, if is_on { "1" } else { "0" }).unwrap();
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        drop(std::fs::write(Sysctl::PATH, &self.0));
    }
}

/// Pseudo-random numbers, the same in every run (splitmix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// While a recording runs, the test switches the sysctl at random times. The reported runs equal the actual runs within the stated margin, or are
/// unknown.
#[test]
fn runs_are_right_while_the_sysctl_is_switched() {
    let test = "runs_are_right_while_the_sysctl_is_switched";
    if !root(test) {
        return;
    }
    let Some(sysctl) = Sysctl::take() else {
        skip(test, "kernel.bpf_stats_enabled cannot be written");
        return;
    };
    // With the first budget, the kernel may count without interruption; with the other budgets, it counts only in windows.
    for (seed, budget) in [(1, "100"), (2, "0.02"), (3, "0.1")] {
        measured(|| runs_beside(&sysctl, &mut Draw(seed), budget));
    }
}

fn runs_beside(sysctl: &Sysctl, draw: &mut Draw, budget: &str) -> Result<(), String> {
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut loaded = Fixture::TP.open().unwrap().load().unwrap();
    let id = loaded.id_of(PROGRAM).unwrap();
    // The program is attached after the start and detached before the end of the recording, so all runs are within it.
    let recording = Running::record(&path, &["-q", "-F", "99", "--budget", budget]);
    loaded.attach().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for is_on in [true, false].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                sysctl.set(is_on);
                thread::sleep(Duration::from_millis(5 + draw.below(400)));
            }
        });
        let _over = SetAtEnd(&is_over);
        Pattern::Steady.run(Duration::from_secs(4), 200_000);
    });
    loaded.detach();
    recording.end();
    let ran = loaded.entered(PROGRAM).unwrap();
    let report = report(&path, &[]);
    let runs = &support::program(&report, id)["runs"];
    let Some(count) = runs["count"].as_u64() else { return Ok(()) };
    let margin = match &runs["estimate"] {
        serde_json::Value::Null => 0,
        estimate => estimate["count_margin"].as_u64().unwrap_or(count),
    };
    if count.abs_diff(ran) > margin {
        return Err(format!("{count} ± {margin} runs with a budget of {budget} %, {ran} made: {runs}"));
    }
    Ok(())
}
