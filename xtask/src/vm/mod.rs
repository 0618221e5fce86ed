//! Runs the project's binaries and tests under QEMU, on stock Debian kernels and on processors that this machine does not have.
//!
//! All images come from Debian's packages and are kept outside the tree (`$XDG_CACHE_HOME/bprec-vm`). A guest is a kernel, a root file
//! system in memory and a payload directory; the files that the payload leaves in `/out` are copied back. See `docs/vm.md`.

mod bench;
mod checks;
mod guest;
mod payload;
mod recordings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde::Deserialize;
use xshell::Shell;

pub(crate) use bench::{bill as bench_bill, exact as bench_exact};
pub(crate) use checks::run as test;

use crate::skips::HOST;
use crate::tally::Tally;
pub(crate) use payload::Builds;

/// A stock kernel, the Debian release of its user space, and the tests that run in it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guest {
    /// Name on the command line.
    pub(crate) name: String,
    pub(crate) machine: Machine,
    /// The clock counts the instructions of the guest's single CPU: each takes 1 ns and one cycle, so the same work always takes the same time.
    /// Otherwise it is the host's clock.
    #[serde(default)]
    pub(crate) icount: bool,
    pub(crate) cpus: u64,
    pub(crate) memory_mib: u64,
    /// Parameters on the kernel's command line in addition to those of every guest.
    #[serde(default)]
    pub(crate) parameters: String,
    /// Suite of the kernel.
    pub(crate) kernel_suite: String,
    /// Suite of perf, bpftool and the C library. It is not older than this machine's release, because the test programs are linked here.
    pub(crate) user_suite: String,
    /// Test programs, as `CRATE-NAME`; `CRATE-` selects all of a crate, an empty name all. In the root crate, `bprec-NAME` is a file of the test
    /// program `live`.
    pub(crate) tests: Vec<String>,
    /// Test programs that are left out.
    #[serde(default)]
    pub(crate) but: Vec<String>,
    /// Loads of `bprec-load` that are recorded, all together or one with its own trampoline; the recordings are compared with perf.
    #[serde(default)]
    pub(crate) recordings: Vec<String>,
}

/// Emulated machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Machine {
    /// x86-64 without performance counters.
    Amd64,
    /// Arm with a PMUv3: cycles count, sample and overflow.
    Arm64,
}

impl Machine {
    /// Machine on which `xtask` runs.
    pub(crate) const NATIVE: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };
}

impl Guest {
    /// Returns true if the guest runs this test program, named `CRATE-NAME`.
    pub(crate) fn tests(&self, program: &str) -> bool {
        let is_meant = |wanted: &String| {
            let rest = program.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || wanted.is_empty() || wanted.ends_with('-'))
        };
        self.tests.iter().any(is_meant) && !self.but.iter().any(|it| it == program)
    }
}

static GUESTS: LazyLock<Vec<Guest>> = LazyLock::new(|| {
    let guests = toml::from_str::<BTreeMap<String, Vec<Guest>>>(include_str!("guests.toml"));
    guests.unwrap_or_else(|why| panic!("guests.toml: {why}")).remove("guest").unwrap_or_default()
});

/// Error for something that is missing outside the project, such as a package that cannot be fetched: a reason to skip, not to fail.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unavailable(pub(crate) String);

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Fetch and unpack the packages of the guests, and build for Arm
    Setup { guests: Vec<String> },
    /// Boot the guest, run PAYLOAD/run.sh in it as root, copy its /out to OUT/out
    Run { guest: String, payload: PathBuf, out: PathBuf },
    /// Run the tests of each guest
    Test { guests: Vec<String> },
}

/// Runs `cargo xtask vm`.
pub(crate) fn run(sh: &Shell, task: &Task) -> Result<()> {
    match task {
        Task::Setup { guests } => {
            let guests = chosen(guests)?;
            for guest in &guests {
                let images = guest::prepare(sh, guest)?;
                println!("{}: kernel {}, programs of {}", guest.name, images.release, guest.user_suite);
            }
            if guests.iter().any(|guest| guest.machine == Machine::Arm64 && Machine::NATIVE == Machine::Amd64) {
                payload::cross_built(sh)?;
            }
            Ok(())
        }
        Task::Run { guest, payload, out } => {
            let run = guest::run(sh, named(guest)?, payload, out, guest::LIMIT)?;
            println!("{guest}: {}", run.ended);
            run.succeeded()
        }
        Task::Test { guests } => {
            let mut tally = Tally::of(HOST, "");
            test(&chosen(guests)?, &Builds::make(sh)?, &mut tally);
            tally.close()
        }
    }
}

/// Returns the guest with this name.
pub(crate) fn named(name: &str) -> Result<&'static Guest> {
    let known = || GUESTS.iter().map(|guest| &*guest.name).collect::<Vec<_>>().join(", ");
    let found = GUESTS.iter().find(|guest| guest.name == name);
    found.with_context(|| format!("no guest {name}; there are {}", known()))
}

/// Returns the guests with these names, or all guests if there are no names.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Guest>> {
    if names.is_empty() { Ok(GUESTS.iter().collect()) } else { names.iter().map(|name| named(name)).collect() }
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
