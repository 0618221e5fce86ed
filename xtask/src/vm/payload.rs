//! Payload of the guests: the project's binaries, and the test programs that use the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::packages::fresh;
use super::{GUESTS, Guest, Machine, cross};
use crate::{command, skips};

/// Directories of the crates with test programs that use the kernel ("" is the root). Tests of other crates do not depend on the kernel.
const TESTED: [&str; 4] = ["bpf", "fixtures", "record", ""];
/// Test programs of the root crate that do not depend on the kernel.
const SAME_EVERYWHERE: [&str; 3] = ["it", "limits", "viewers"];
/// Test program of the root crate; a guest runs the tests of some of its files, each file in a separate process.
const LIVE: &str = "live";
/// Binaries that tests and checks call by name.
const BINARIES: [&str; 2] = ["bprec", "bprec-load"];
/// Source directory of the objects that test programs read.
const OBJECTS: &str = "fixtures/bpf";

/// Builds that guests run, made once for all of them.
pub(crate) struct Builds {
    native: Vec<Built>,
    /// Names of the files with tests of the program [`LIVE`].
    files: BTreeSet<String>,
    /// Builds for Arm, made when the first guest needs them.
    foreign: Mutex<Option<Vec<Built>>>,
    bprec: PathBuf,
}

impl Builds {
    /// Makes the builds for this machine. Builds for the other machine are made later.
    pub(crate) fn make() -> Result<Self> {
        // The packages are the same as in `cargo xtask test`, so that neither command rebuilds crates of the other.
        let native = built(&["test", "--workspace", "--no-run"])?;
        let bprec = native.iter().find(|built| built.name == "bprec" && !built.test).context("no bprec was built")?;
        let bprec = bprec.path.clone();
        let live = native
            .iter()
            .find(|built| built.name == LIVE && built.test)
            .with_context(|| format!("the test program {LIVE} was not built"))?;
        let files = files_of(&live.path)?;
        Ok(Self { native, files, foreign: Mutex::default(), bprec })
    }

    /// Path of `bprec` for this machine.
    pub(crate) fn bprec(&self) -> &Path {
        &self.bprec
    }

    /// Writes the payload of a guest into `directory`: `run.sh`, `bin/`, `tests/`, `runs` (name, test program and filter of
    /// tests), `recordings` (names of loads), `withheld` (tests that are not started, with their reasons), `sources/`, and in `built_at`
    /// and `sources_at` the paths under which the test programs expect `bin/` and `sources/`.
    pub(crate) fn assemble(&self, directory: &Path, guest: &Guest) -> Result<()> {
        if guest.machine == Machine::NATIVE {
            return self.lay_out(directory, guest, &self.native);
        }
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let built = match &mut *foreign {
            Some(built) => built,
            none => none.insert(cross_built()?),
        };
        self.lay_out(directory, guest, built)
    }

    /// Returns the runs of a test program in a guest: name and filter of tests of each run.
    fn runs(&self, guest: &Guest, test: &Built) -> Vec<(String, String)> {
        let all = match test.name.as_str() {
            _ if !asks_the_kernel(test) => Vec::new(),
            LIVE => self.files.iter().map(|file| (format!("bprec-{file}"), format!("{file}::"))).collect(),
            _ => vec![(test.shown(), String::new())],
        };
        all.into_iter().filter(|(name, _)| guest.tests(name)).collect()
    }

    /// Writes the payload with the executables `built`.
    fn lay_out(&self, directory: &Path, guest: &Guest, built: &[Built]) -> Result<()> {
        fresh(directory)?;
        for name in ["bin", "tests"] {
            fs::create_dir(directory.join(name))?;
        }
        fs::write(directory.join("run.sh"), include_bytes!("run.sh"))?;
        let skips = fs::read_to_string(skips::LIST).with_context(|| format!("read {}", skips::LIST))?;
        fs::write(directory.join("withheld"), skips::withheld(&skips, guest.name)?)?;
        fs::write(directory.join("recordings"), guest.recordings.join("\n"))?;
        for name in BINARIES {
            let binary = built.iter().find(|built| built.name == name && !built.test);
            let binary = binary.with_context(|| format!("no binary {name} was built"))?;
            stripped(guest.machine, binary, &directory.join("bin").join(name))?;
            let built_at = binary.path.parent().context("the binary has no directory")?;
            fs::write(directory.join("built_at"), format!("{}\n", built_at.display()))?;
        }
        let mut runs = Vec::new();
        for test in built {
            let of_it = self.runs(guest, test);
            if !of_it.is_empty() {
                stripped(guest.machine, test, &directory.join("tests").join(test.shown()))?;
            }
            runs.extend(of_it.into_iter().map(|(name, tests)| format!("{name} {} {tests}\n", test.shown())));
        }
        for wanted in guest.tests {
            let found = runs.iter().any(|run| wanted.is_empty() || run.starts_with(wanted));
            ensure!(found, "{} lists the test program {wanted}, which does not exist", guest.name);
        }
        runs.sort_unstable();
        fs::write(directory.join("runs"), runs.concat())?;
        let objects = directory.join("sources").join(OBJECTS);
        fs::create_dir_all(&objects)?;
        for file in crate::tree::files_under(Path::new(OBJECTS))? {
            fs::copy(&file, objects.join(file.file_name().context("the file has no name")?))?;
        }
        fs::write(directory.join("sources_at"), format!("{}\n", std::env::current_dir()?.display()))?;
        Ok(())
    }
}

/// Returns the names of the files that contain the tests of a test program.
fn files_of(program: &Path) -> Result<BTreeSet<String>> {
    let list = command::output(Command::new(program).args(["--list", "--format=terse"]))?;
    Ok(list.lines().filter_map(|test| Some(test.split_once("::")?.0.to_owned())).collect())
}

fn asks_the_kernel(built: &Built) -> bool {
    built.test && TESTED.contains(&built.package.as_str()) && !SAME_EVERYWHERE.contains(&built.name.as_str())
}

/// Builds for Arm the test programs that guests list, and the binaries of their crates.
pub(crate) fn cross_built() -> Result<Vec<Built>> {
    let mut wanted = BTreeSet::new();
    let listed = GUESTS.iter().filter(|guest| guest.machine != Machine::NATIVE).flat_map(|guest| guest.tests);
    for (package, program) in listed.filter_map(|test| test.split_once('-')) {
        // A listed program of the root crate is a file of its test program [`LIVE`].
        let (package, program) =
            if package == "bprec" { ("bprec".into(), LIVE) } else { (format!("bprec-{package}"), program) };
        wanted.extend([format!("--package={package}"), format!("--test={program}")]);
    }
    // Guests run no interactive screen.
    let options = ["test", "--no-run", MESSAGES, "--config=profile.dev.debug=false"];
    let features = ["--no-default-features", "--features=record,static,zstd"];
    let arguments: Vec<&str> = options.into_iter().chain(features).chain(wanted.iter().map(String::as_str)).collect();
    executables(&cross::cargo(&arguments)?)
}

/// Builds a bench of a package, `bprec` and `bprec-load` for this machine, and puts them into `directory`.
pub(crate) fn with_bench(directory: &Path, package: &str, bench: &str) -> Result<()> {
    let packages = ["--package", package, "--package", "bprec", "--package", "bprec-fixtures"];
    let built =
        built(&[&["build", "--bench", bench, "--bin", "bprec", "--bin", "bprec-load"], &packages[..]].concat())?;
    for name in [bench, "bprec", "bprec-load"] {
        let binary = built.iter().find(|built| built.name == name);
        stripped(Machine::NATIVE, binary.with_context(|| format!("no {name} was built"))?, &directory.join(name))?;
    }
    Ok(())
}

/// Executable that cargo built.
pub(crate) struct Built {
    /// Directory of the crate below the root.
    package: String,
    name: String,
    test: bool,
    path: PathBuf,
}

impl Built {
    /// Name of the executable in guests.
    fn shown(&self) -> String {
        format!("{}-{}", if self.package.is_empty() { "bprec" } else { &self.package }, self.name)
    }
}

/// Option with which cargo prints the executables that it built.
const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// Builds for this machine; returns the executables.
fn built(arguments: &[&str]) -> Result<Vec<Built>> {
    executables(&command::output(command::cargo(arguments).args(["--locked", MESSAGES]).stderr(Stdio::inherit()))?)
}

/// Parses the executables from cargo's messages.
fn executables(messages: &str) -> Result<Vec<Built>> {
    let sources = std::env::current_dir()?;
    let mut built = Vec::new();
    for line in messages.lines().filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_str(line).context("read the output of cargo")?;
        let Some(path) = message["executable"].as_str() else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("a target has no manifest")?);
        let package = manifest.parent().and_then(|directory| directory.strip_prefix(&sources).ok()).unwrap_or(manifest);
        built.push(Built {
            package: package.to_string_lossy().into_owned(),
            name: message["target"]["name"].as_str().context("a target has no name")?.to_owned(),
            test: message["profile"]["test"].as_bool().unwrap_or(false),
            path: path.into(),
        });
    }
    Ok(built)
}

/// Copies an executable of a machine without debug information, which is most of its size and would be unpacked at every boot.
fn stripped(machine: Machine, built: &Built, to: &Path) -> Result<()> {
    let tools = if machine == Machine::NATIVE { "" } else { cross::TOOLS };
    command::run(Command::new(format!("{tools}strip")).arg("--strip-debug").arg("-o").arg(to).arg(&built.path))
}
