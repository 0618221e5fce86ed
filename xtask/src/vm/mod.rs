//! Stock Debian kernels under QEMU: the project's binaries and tests on kernels and processors that this machine does not have.
//!
//! Everything comes out of Debian's packages and is kept outside the tree (`$XDG_CACHE_HOME/bprec-vm`). A guest is a kernel, a root file
//! system in memory and a payload directory; what the payload leaves in `/out` comes back as files. `docs/vm.md` tells the rest.

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
use crate::target_directory;

/// A stock kernel, the Debian release whose programs run on it, and what it is there to test.
pub(crate) struct Guest {
    /// Name on the command line.
    pub(crate) name: &'static str,
    pub(crate) machine: Machine,
    pub(crate) pace: Pace,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    /// Parameters of its kernel's command line beside those of every guest.
    pub(crate) parameters: &'static str,
    /// The suite that the kernel is from.
    pub(crate) kernel_suite: &'static str,
    /// The suite that perf, bpftool and the C library are from: no older than this machine's, for which the test programs are linked.
    pub(crate) user_suite: &'static str,
    /// Test programs, as `CRATE-NAME`, or `CRATE-` for all of a crate's and nothing for all there are; the root's are the files of `tests/live.rs`.
    pub(crate) tests: &'static [&'static str],
    /// Test programs that are left out.
    pub(crate) but: &'static [&'static str],
    /// Loads that are recorded, and the recordings held against perf.
    pub(crate) recordings: &'static [&'static str],
}

/// Clock of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// The host's clock.
    Time,
    /// The instructions of its one CPU: a nanosecond and a cycle each. The same work counts the same every time.
    Instructions,
}

/// Machine that is emulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// x86-64 without performance counters.
    Amd64,
    /// Arm with a PMUv3: cycles count, sample and overflow.
    Arm64,
}

impl Machine {
    /// The one that this runs on.
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

/// The recordings of all loads that there are, and of one that has a trampoline for itself.
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

/// Code between the rings and the file, and the begin and end of a recording, are the same on every kernel: the tests
/// of this machine cover them. So is the ledger of a load; those tests compare times, which one guest takes by its
/// instructions.
const BEHIND_THE_RINGS: &[&str] = &[
    "bprec-advice",
    "bprec-annotate",
    "bprec-compression",
    "bprec-diff",
    "bprec-disk_faults",
    "bprec-documented_live",
    "bprec-endings",
    "bprec-file_steps",
    "bprec-lasting",
    "bprec-ledger_truth",
    "bprec-mistakes",
    "bprec-overwrite",
    "bprec-payers",
    "bprec-progress",
    "bprec-recorder",
    "bprec-redact",
    "bprec-spool",
    "bprec-statistics_switched",
    "bprec-statistics_windows",
    "bprec-switch_output",
    "bprec-top",
    "bprec-top_screen",
];

/// Guests in the order in which they are begun: those that take longest first. The first runs everything that asks the kernel about
/// programs, events and counters; the others what may differ there.
pub(crate) const GUESTS: [Guest; 8] = [
    Guest { name: "x86-6.12", tests: &[""], but: BEHIND_THE_RINGS, recordings: RECORDINGS, ..X86 },
    Guest {
        name: "x86-new",
        kernel_suite: "trixie-backports",
        tests: &["bpf-", "fixtures-", "bprec-exact", "bprec-known_loads", "bprec-nothing_stays"],
        recordings: RECORDINGS,
        ..X86
    },
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
    Guest { name: "x86-preempt", parameters: "preempt=full", tests: &["bpf-overlap"], ..X86 },
    Guest { name: "x86-32cpus", cpus: 32, memory_mib: 3072, tests: &["bprec-many_cpus"], ..X86 },
    Guest {
        name: "arm64-icount",
        machine: Machine::Arm64,
        pace: Pace::Instructions,
        cpus: 1,
        tests: &["bprec-exact_truth", "bprec-ledger_truth"],
        ..X86
    },
];

/// Kernels as old as the recorder supports, where programs are not traced: the rest works there, and what is missing is said.
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
    // These kernels do not tell that a trampoline is a program's own.
    recordings: &["all"],
    ..X86
};

impl Guest {
    /// True if it runs a test program of a crate.
    pub(crate) fn tests(&self, program: &str) -> bool {
        let is_meant = |wanted: &str| match wanted {
            "" => true,
            _ if wanted.ends_with('-') => program.starts_with(wanted),
            _ => program == wanted,
        };
        self.tests.iter().any(|wanted| is_meant(wanted)) && !self.but.contains(&program)
    }
}

pub(crate) use bench::exact as bench_exact;
pub(crate) use payload::Builds;

/// Something outside the project is missing, such as a package that cannot be fetched: a reason to skip, not to fail.
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
            checks::run(&chosen(names)?, &Builds::make(&target_directory())?, &mut tally);
            tally.close()
        }
        _ => bail!("usage: cargo xtask vm setup [GUEST…] | vm run GUEST PAYLOAD OUT | vm static | vm test [GUEST…]"),
    }
}

/// Tests in every guest, added to `tally`.
pub(crate) fn test_all(builds: &Builds, tally: &mut Tally) {
    checks::run(&GUESTS.each_ref(), builds, tally);
}

/// The guests called `names`, or all.
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

/// Directory of everything that is fetched. The number in it changes when the unpacked contents change.
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
