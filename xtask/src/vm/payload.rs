//! Payload of the guests: the project's binaries, and the test programs that use the kernel.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use super::{GUESTS, Guest, Machine, guest};
use crate::builds::{Built, built, named, workspace};
use crate::{skips, target_directory};

/// Directories of the crates with test programs that use the kernel. Tests of other crates do not depend on the kernel.
const TESTED: [&str; 4] = ["bpf", "fixtures", "record", "bprec"];
/// Test programs of the root crate that do not depend on the kernel.
const SAME_EVERYWHERE: [&str; 3] = ["it", "limits", "viewers"];
/// Test program of the root crate; a guest runs the tests of some of its files, each file in a separate process.
const LIVE: &str = "live";
/// Binaries that tests and checks call by name.
const BINARIES: [&str; 2] = ["bprec", "bprec-load"];

/// Builds that guests run, made once for all of them.
pub(crate) struct Builds {
    native: Vec<Built>,
    /// Names of the files with tests of the program [`LIVE`].
    files: BTreeSet<String>,
    /// Builds for Arm, made when the first guest needs them.
    foreign: Mutex<Option<Vec<Built>>>,
}

impl Builds {
    /// Makes the builds for this machine. Builds for the other machine are made later.
    pub(crate) fn make(sh: &Shell) -> Result<Self> {
        let native = workspace(sh)?;
        let live = &named(&native, LIVE, true)?.path;
        let list = cmd!(sh, "{live} --list --format=terse").quiet().read()?;
        let files = list.lines().filter_map(|test| Some(test.split_once("::")?.0.to_owned())).collect();
        Ok(Self { native, files, foreign: Mutex::default() })
    }

    /// Path of `bprec` for this machine.
    pub(crate) fn bprec(&self) -> Result<&Path> {
        Ok(&named(&self.native, "bprec", false)?.path)
    }

    /// Writes the payload of a guest into `directory`: `run.sh`, `bin/`, `tests/`, `runs` (name, test program and filter of
    /// tests), `recordings` (names of loads), `withheld` (tests that are not started, with their reasons), `sources/`, and in `built_at`
    /// and `sources_at` the paths under which the test programs expect `bin/` and `sources/`.
    pub(crate) fn assemble(&self, sh: &Shell, directory: &Path, guest: &Guest) -> Result<()> {
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let built = match &mut *foreign {
            _ if guest.machine == Machine::NATIVE => &self.native,
            Some(built) => built,
            none => none.insert(cross_built(sh)?),
        };
        sh.remove_path(directory)?;
        for name in BINARIES {
            stripped(sh, guest.machine, named(built, name, false)?, &directory.join("bin").join(name))?;
        }
        let mut runs = Vec::new();
        for test in built {
            let program = format!("{}-{}", test.package, test.name);
            let of_it: Vec<_> = self.runs(test).into_iter().filter(|(name, _)| guest.tests(name)).collect();
            if !of_it.is_empty() {
                stripped(sh, guest.machine, test, &directory.join("tests").join(&program))?;
            }
            runs.extend(of_it.into_iter().map(|(name, tests)| format!("{name} {program} {tests}\n")));
        }
        for wanted in &guest.tests {
            let found = runs.iter().any(|run| run.starts_with(wanted));
            ensure!(found, "{} lists the test program {wanted}, which does not exist", guest.name);
        }
        runs.sort_unstable();
        let sources = sh.create_dir(directory.join("sources/fixtures"))?;
        // Objects that test programs read.
        cmd!(sh, "cp -r fixtures/bpf {sources}").quiet().run()?;
        let built_at = named(built, BINARIES[0], false)?.path.parent().context("the binary has no directory")?;
        for (file, text) in [
            ("run.sh", include_str!("run.sh").to_owned()),
            ("withheld", skips::withheld(&sh.read_file(skips::LIST)?, &guest.name)?),
            ("recordings", guest.recordings.join("\n")),
            ("runs", runs.concat()),
            ("built_at", format!("{}\n", built_at.display())),
            ("sources_at", format!("{}\n", std::env::current_dir()?.display())),
        ] {
            sh.write_file(directory.join(file), text)?;
        }
        Ok(())
    }

    /// Returns the runs of an executable in guests: name and filter of tests of each run.
    fn runs(&self, test: &Built) -> Vec<(String, String)> {
        let asks_the_kernel = test.is_test && TESTED.contains(&&*test.package);
        match test.name.as_str() {
            name if !asks_the_kernel || SAME_EVERYWHERE.contains(&name) => Vec::new(),
            LIVE => self.files.iter().map(|file| (format!("bprec-{file}"), format!("{file}::"))).collect(),
            _ => vec![(format!("{}-{}", test.package, test.name), String::new())],
        }
    }
}

/// Builds for Arm the test programs that guests list, and the binaries of their crates.
pub(crate) fn cross_built(sh: &Shell) -> Result<Vec<Built>> {
    let mut wanted = BTreeSet::new();
    let listed = GUESTS.iter().filter(|guest| guest.machine != Machine::NATIVE).flat_map(|guest| &guest.tests);
    for (package, program) in listed.filter_map(|test| test.split_once('-')) {
        wanted.extend(match package {
            // A listed program of the root crate is a file of its test program [`LIVE`].
            "bprec" => ["--package=bprec".to_owned(), format!("--test={LIVE}")],
            _ => [format!("--package=bprec-{package}"), format!("--test={program}")],
        });
    }
    // Guests run no interactive screen.
    let features = ["--no-default-features", "--features=record,static,zstd"];
    guest::fetched(cmd!(sh, "setup/cross"))?;
    built(cmd!(sh, "setup/cross test --no-run --config=profile.dev.debug=false {features...} {wanted...}"))
}

/// Builds a bench of a package, `bprec` and `bprec-load` for this machine. Returns the directory with them.
pub(crate) fn with_bench(sh: &Shell, package: &str, bench: &str) -> Result<PathBuf> {
    let directory = target_directory().join("vm/bench/payload");
    let packages = ["--package", package, "--package", "bprec", "--package", "bprec-fixtures"];
    let built = built(cmd!(sh, "cargo build --bench {bench} --bin bprec --bin bprec-load {packages...}"))?;
    sh.remove_path(&directory)?;
    // cargo counts a bench as a test program.
    for (name, is_test) in [(bench, true), ("bprec", false), ("bprec-load", false)] {
        stripped(sh, Machine::NATIVE, named(&built, name, is_test)?, &directory.join(name))?;
    }
    Ok(directory)
}

/// Copies an executable of a machine without debug information, which is most of its size and would be unpacked at every boot.
fn stripped(sh: &Shell, machine: Machine, built: &Built, to: &Path) -> Result<()> {
    let strip = if machine == Machine::NATIVE { "strip" } else { "aarch64-linux-gnu-strip" };
    let from = &built.path;
    sh.create_dir(to.parent().context("no directory")?)?;
    Ok(cmd!(sh, "{strip} --strip-debug -o {to} {from}").quiet().run()?)
}
