//! Runs the project's binaries and tests under QEMU, on stock Debian kernels and on processors that this machine does not have.
//!
//! All images come from Debian's packages and are kept outside the tree (`$XDG_CACHE_HOME/bprec-vm`). A guest is a kernel, a root file
//! system in memory and a payload directory; the files that the payload leaves in `/out` are copied back. See `docs/vm.md`.

mod bench;
mod checks;
mod cpio;
mod cross;
mod guest;
mod images;
mod packages;
mod payload;
mod recordings;
mod static_program;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tally::Tally;

/// A stock kernel, the Debian release of its user space, and the tests that run in it.
pub(crate) struct Guest {
    /// Name on the command line.
    pub(crate) name: &'static str,
    pub(crate) machine: Machine,
    pub(crate) pace: Pace,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    /// Parameters on the kernel's command line in addition to those of every guest.
    pub(crate) parameters: &'static str,
    /// Suite of the kernel.
    pub(crate) kernel_suite: &'static str,
    /// Suite of perf, bpftool and the C library. It is not older than this machine's release, because the test programs are linked here.
    pub(crate) user_suite: &'static str,
    /// Test programs, as `CRATE-NAME`; `CRATE-` selects all of a crate, an empty name all. In the root crate, `bprec-NAME` is a file of the test
    /// program `live`.
    pub(crate) tests: &'static [&'static str],
    /// Test programs that are left out.
    pub(crate) but: &'static [&'static str],
    /// Loads of `bprec-load` that are recorded; the recordings are compared with perf.
    pub(crate) recordings: &'static [&'static str],
}

/// Clock of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// The host's clock.
    Time,
    /// Instructions of the guest's single CPU: each takes 1 ns and one cycle, so the same work always takes the same time.
    Instructions,
}

/// Emulated machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// x86-64 without performance counters.
    Amd64,
    /// Arm with a PMUv3: cycles count, sample and overflow.
    Arm64,
}

impl Machine {
    /// Machine on which `xtask` runs.
    pub(crate) const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };

    /// Debian's name of the architecture.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    pub(crate) fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }
}

/// Loads of `bprec-load` that are recorded: all loads together, and one load with its own trampoline.
const RECORDINGS: &[&str] = &["all", "trampoline"];

/// Settings of most guests.
const X86: Guest = Guest {
    name: "",
    machine: Machine::Amd64,
    pace: Pace::Time,
    cpus: 2,
    memory_mib: 1536,
    parameters: "",
    kernel_suite: "trixie",
    user_suite: "trixie",
    tests: &[],
    but: &[],
    recordings: &[],
};

/// Test programs that the first guest leaves out. Most of them run only on this machine, because they do not depend on the kernel: they test the code
/// between the rings and the file, and the start and end of a recording. Others run on this machine's newer kernel and in a guest with an older kernel
/// or on Arm. `ledger_truth` compares times, so it runs in the guest that counts instructions.
const LEFT_OUT: &[&str] = &[
    "bprec-advice",
    "bprec-aggregate",
    "bprec-annotate",
    "bprec-bperf",
    "bprec-bpf_sampler",
    "bprec-bprec",
    "bprec-compression",
    "bprec-diff",
    "bprec-disk_faults",
    "bprec-documented_live",
    "bprec-endings",
    "bprec-file_steps",
    "bprec-lasting",
    "bprec-ledger_truth",
    "bprec-mistakes",
    "bprec-nothing_stays",
    "bprec-overwrite",
    "bprec-payers",
    "bprec-perf_reads_it",
    "bprec-progress",
    "bprec-reader_calls",
    "bprec-recorder",
    "bprec-redact",
    "bprec-run_counts",
    "bprec-scheduler",
    "bprec-spool",
    "bprec-statistics_switched",
    "bprec-statistics_windows",
    "bprec-switch_output",
    "bprec-top",
    "bprec-top_screen",
    "record-shared",
];

/// Guests in the order in which they start: the longest first. The first guest runs the tests of the kernel's behaviour that need trampolines, and
/// those that no other guest runs. The other guests run the tests that may differ on their kernel or machine.
pub(crate) const GUESTS: [Guest; 8] = [
    Guest { name: "x86-6.12", tests: &[""], but: LEFT_OUT, recordings: RECORDINGS, ..X86 },
    Guest {
        name: "arm64-6.12",
        machine: Machine::Arm64,
        tests: &[
            "bpf-overlap",
            "bpf-profiler",
            "bpf-programs",
            "fixtures-known_loads",
            "bprec-exact",
            "bprec-bpf_sampler",
            "bprec-perf_reads_it",
            "record-shared",
        ],
        recordings: RECORDINGS,
        ..X86
    },
    Guest { name: "x86-5.10", kernel_suite: "bullseye", user_suite: "bookworm", ..OLDEST },
    Guest {
        name: "x86-6.1",
        kernel_suite: "bookworm-security",
        user_suite: "bookworm",
        tests: &[
            "bpf-bprec_bpf",
            "bpf-contents",
            "bpf-extensions",
            "bpf-overlap",
            "bpf-perf_events",
            "bpf-profiler",
            "bpf-programs",
            "bpf-attachments",
            "bpf-user_objects",
            "fixtures-",
            "bprec-exact",
            "bprec-nothing_stays",
            "bprec-reader_calls",
        ],
        recordings: RECORDINGS,
        ..X86
    },
    Guest {
        name: "x86-new",
        kernel_suite: "trixie-backports",
        tests: &["bpf-", "fixtures-", "bprec-exact", "bprec-known_loads", "bprec-nothing_stays", "bprec-scheduler"],
        recordings: RECORDINGS,
        ..X86
    },
    Guest {
        name: "arm64-icount",
        machine: Machine::Arm64,
        pace: Pace::Instructions,
        cpus: 1,
        tests: &["bprec-exact_truth", "bprec-ledger_truth"],
        ..X86
    },
    Guest { name: "x86-32cpus", cpus: 32, memory_mib: 3072, tests: &["bprec-many_cpus"], ..X86 },
    Guest { name: "x86-preempt", parameters: "preempt=full", tests: &["bpf-overlap"], ..X86 },
];

/// Settings for the oldest supported kernel: tracing of BPF programs is unavailable there, which bprec reports, and everything else works.
const OLDEST: Guest = Guest {
    tests: &[
        "bpf-bprec_bpf",
        "bpf-contents",
        "bpf-perf_events",
        "bpf-programs",
        "bpf-attachments",
        "bpf-user_objects",
        "fixtures-",
        "record-",
        "bprec-aggregate",
        "bprec-bperf",
        "bprec-defaults",
        "bprec-endings",
        "bprec-nothing_stays",
        "bprec-reader_calls",
        "bprec-run_counts",
        "bprec-stat",
    ],
    // The load `trampoline` is left out: a kernel this old does not show which program a trampoline belongs to.
    recordings: &["all"],
    ..X86
};

impl Guest {
    /// Returns true if the guest runs this test program, named `CRATE-NAME`.
    pub(crate) fn tests(&self, program: &str) -> bool {
        let is_meant = |wanted: &str| match wanted {
            "" => true,
            _ if wanted.ends_with('-') => program.starts_with(wanted),
            _ => program == wanted,
        };
        self.tests.iter().any(|wanted| is_meant(wanted)) && !self.but.contains(&program)
    }
}

pub(crate) use bench::{bill as bench_bill, exact as bench_exact};
pub(crate) use payload::Builds;

/// Error for something that is missing outside the project, such as a package that cannot be fetched: a reason to skip, not to fail.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) String);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Runs `cargo xtask vm` with `arguments`.
pub(crate) fn main(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["setup", names @ ..] => {
            for guest in chosen(names)? {
                let images = images::prepare(guest)?;
                println!("{}: kernel {}, programs of {}", guest.name, images.release, guest.user_suite);
            }
            let is_cross_built = |guest: &&Guest| guest.machine == Machine::Arm64 && Machine::NATIVE == Machine::Amd64;
            if chosen(names)?.iter().any(is_cross_built) {
                payload::cross_built()?;
            }
            Ok(())
        }
        ["run", name, payload, out] => {
            let guest = chosen(&[name])?[0];
            let images = images::prepare(guest)?;
            let run = guest::run(guest, &images, Path::new(payload), Path::new(out), guest::LIMIT)?;
            println!("{}: {} after {:.1} s", guest.name, run.outcome, run.seconds);
            match run.outcome {
                guest::Outcome::Ended(0) => Ok(()),
                outcome => bail!("{}: {outcome}; see {}", guest.name, Path::new(out).join("console.log").display()),
            }
        }
        ["static"] => static_program::make(),
        ["test", names @ ..] => {
            let mut tally = Tally::default();
            checks::run(&chosen(names)?, &Builds::make()?, &mut tally);
            tally.close()
        }
        _ => bail!("usage: cargo xtask vm setup [GUEST…] | vm run GUEST PAYLOAD OUT | vm static | vm test [GUEST…]"),
    }
}

/// Runs the tests in every guest and adds the results to `tally`.
pub(crate) fn test_all(builds: &Builds, tally: &mut Tally) {
    checks::run(&GUESTS.each_ref(), builds, tally);
}

/// Returns the guests with these names, or all guests if there are no names.
fn chosen(names: &[&str]) -> Result<Vec<&'static Guest>> {
    if names.is_empty() {
        return Ok(GUESTS.iter().collect());
    }
    let known = || GUESTS.iter().map(|guest| guest.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| {
            GUESTS
                .iter()
                .find(|guest| guest.name == *name)
                .with_context(|| format!("no guest {name}; there are {}", known()))
        })
        .collect()
}

/// Returns the directory of fetched and unpacked packages. The number in its path changes when the layout of the contents changes.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match base {
        Some(base) => base,
        None => std::env::home_dir().context("neither XDG_CACHE_HOME nor HOME is set")?.join(".cache"),
    };
    Ok(base.join("bprec-vm").join("2"))
}

#[cfg(test)]
mod tests {
    use super::GUESTS;

    #[test]
    fn guests_choose_their_test_programs() {
        let runs =
            |guest: &str, program: &str| GUESTS.iter().find(|it| it.name == guest).is_some_and(|it| it.tests(program));
        assert!(runs("x86-6.12", "bprec-anything"));
        assert!(runs("x86-new", "bpf-anything") && runs("x86-new", "bprec-exact"));
        assert!(!runs("x86-new", "bprec-bpf") && !runs("x86-new", "bprec-exact_truth"));
        assert!(runs("arm64-icount", "bprec-exact_truth") && !runs("arm64-icount", "bprec-exact"));
    }
}
