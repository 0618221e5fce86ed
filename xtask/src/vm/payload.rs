//! Payload of the guests: the project's binaries and those test programs that touch the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::packages::fresh;
use super::{GUESTS, Guest, Machine, cross};
use crate::skips;

/// Crates (by directory, the root is "") whose test programs ask the kernel; what the others test is the same on every kernel.
const TESTED: [&str; 4] = ["bpf", "fixtures", "record", ""];
/// Test programs of the root that do not.
const SAME_EVERYWHERE: [&str; 3] = ["it", "limits", "viewers"];
/// The root's test program of which a guest runs some files, each in a process of its own.
const LIVE: &str = "live";
/// The binaries that tests and checks call by name.
const BINARIES: [&str; 2] = ["bprec", "bprec-load"];
/// Objects that test programs read of the sources.
const OBJECTS: &str = "fixtures/bpf";

/// Builds that guests run, made once for all of them.
pub(crate) struct Builds {
    native: Vec<Built>,
    /// Files of the program [`LIVE`].
    files: BTreeSet<String>,
    /// For Arm, when the first guest asks for it.
    foreign: Mutex<Option<Vec<Built>>>,
    bprec: PathBuf,
    target: PathBuf,
}

impl Builds {
    /// Builds for this machine, and for others below the directory `target` when that is asked for.
    pub(crate) fn make(target: &Path) -> Result<Self> {
        // The same selection as `cargo xtask test`, so that neither builds anything again for the other.
        let native = executables(&cargo(&["test", "--workspace", "--no-run"])?, &std::env::current_dir()?, None)?;
        let bprec = native.iter().find(|built| built.name == "bprec" && !built.test).context("no bprec was built")?;
        let bprec = bprec.path.clone();
        let live =
            native.iter().find(|built| built.name == LIVE && built.test).context("no test program live was built")?;
        let files = files_of(&live.path)?;
        Ok(Self { native, files, foreign: Mutex::default(), bprec, target: target.to_owned() })
    }

    /// This machine's `bprec`.
    pub(crate) fn bprec(&self) -> &Path {
        &self.bprec
    }

    /// Lays out what a guest runs in `directory`: `run.sh`, `bin/`, `tests/`, `runs` (a name, the test program and which of its
    /// tests), `recordings` (names of loads), `withheld` (tests that are not begun, with their reasons), `sources/`, and in `built_at`
    /// and `sources_at` the paths under which the test programs expect `bin/` and `sources/`.
    pub(crate) fn assemble(&self, directory: &Path, guest: &Guest) -> Result<()> {
        if guest.machine == Machine::NATIVE {
            return self.lay_out(directory, guest, &self.native, &std::env::current_dir()?);
        }
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let built = match &mut *foreign {
            Some(built) => built,
            none => {
                let runs_it = |test: &&Built| {
                    GUESTS.iter().any(|other| other.machine == guest.machine && !self.runs(other, test).is_empty())
                };
                let wanted = self.native.iter().filter(runs_it);
                none.insert(cross_built(&wanted.collect::<Vec<_>>(), &self.target)?)
            }
        };
        self.lay_out(directory, guest, built, Path::new(cross::SOURCES))
    }

    /// Runs of a test program in a guest: the name of each, and the tests that it is of.
    fn runs(&self, guest: &Guest, test: &Built) -> Vec<(String, String)> {
        let all = match test.name.as_str() {
            _ if !asks_the_kernel(test) => Vec::new(),
            LIVE => self.files.iter().map(|file| (format!("bprec-{file}"), format!("{file}::"))).collect(),
            _ => vec![(test.shown(), String::new())],
        };
        all.into_iter().filter(|(name, _)| guest.tests(name)).collect()
    }

    /// Lays out the programs that were `built` from the sources at `sources_at`.
    fn lay_out(&self, directory: &Path, guest: &Guest, built: &[Built], sources_at: &Path) -> Result<()> {
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
            stripped(binary, &directory.join("bin").join(name))?;
            let built_at = binary.built_at.parent().context("a binary without a directory")?;
            fs::write(directory.join("built_at"), format!("{}\n", built_at.display()))?;
        }
        let mut runs = Vec::new();
        for test in built {
            let of_it = self.runs(guest, test);
            if !of_it.is_empty() {
                stripped(test, &directory.join("tests").join(test.shown()))?;
            }
            runs.extend(of_it.into_iter().map(|(name, tests)| format!("{name} {} {tests}\n", test.shown())));
        }
        for wanted in guest.tests {
            let found = runs.iter().any(|run| wanted.is_empty() || run.starts_with(wanted));
            ensure!(found, "{} is to run the test program {wanted}, which there is not", guest.name);
        }
        runs.sort_unstable();
        fs::write(directory.join("runs"), runs.concat())?;
        let objects = directory.join("sources").join(OBJECTS);
        fs::create_dir_all(&objects)?;
        for file in crate::tree::files_under(Path::new(OBJECTS))? {
            fs::copy(&file, objects.join(file.file_name().context("a file without a name")?))?;
        }
        fs::write(directory.join("sources_at"), format!("{}\n", sources_at.display()))?;
        Ok(())
    }
}

/// Names of the files that a test program's tests are in.
fn files_of(program: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new(program).args(["--list", "--format=terse"]).output().context("list tests")?;
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(list.lines().filter_map(|test| Some(test.split_once("::")?.0.to_owned())).collect())
}

fn asks_the_kernel(built: &Built) -> bool {
    built.test && TESTED.contains(&built.package.as_str()) && !SAME_EVERYWHERE.contains(&built.name.as_str())
}

/// The test programs `wanted`, and the binaries of their crates, which cargo builds for them, for the other machine.
fn cross_built(wanted: &[&Built], target: &Path) -> Result<Vec<Built>> {
    let target = target.join("vm").join("cross");
    let mut arguments = vec!["test".to_owned(), "--no-run".to_owned()];
    for package in wanted.iter().map(|test| test.package.as_str()).collect::<BTreeSet<_>>() {
        arguments.extend(["--package".to_owned(), package_name(package)]);
    }
    for test in wanted {
        // A test in a crate itself goes by the crate's name.
        match test.kind.as_str() {
            "test" => arguments.extend(["--test".to_owned(), test.name.clone()]),
            "lib" => arguments.push("--lib".to_owned()),
            _ => {}
        }
    }
    arguments.dedup();
    arguments.extend(BUILD.map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    executables(&cross::cargo(&arguments, &target)?, Path::new(cross::SOURCES), Some(&target))
}

fn package_name(directory: &str) -> String {
    if directory.is_empty() { "bprec".to_owned() } else { format!("bprec-{directory}") }
}

/// Builds the bench of that name of a package, and `bprec`, for this machine and lays them out in `directory`.
pub(crate) fn with_bench(directory: &Path, package: &str, bench: &str) -> Result<()> {
    let built = executables(
        &cargo(&["build", "--package", package, "--bench", bench, "--package", "bprec", "--bin", "bprec"])?,
        &std::env::current_dir()?,
        None,
    )?;
    for name in [bench, "bprec"] {
        let binary = built.iter().find(|built| built.name == name);
        stripped(binary.with_context(|| format!("no {name} was built"))?, &directory.join(name))?;
    }
    Ok(())
}

/// An executable that cargo built.
struct Built {
    /// Its crate's directory below the root.
    package: String,
    name: String,
    /// Kind as cargo calls it: `test`, `lib`, `bin`.
    kind: String,
    test: bool,
    /// Path as the build saw it.
    built_at: PathBuf,
    /// Path now.
    path: PathBuf,
    /// It is for this machine, whose tools know it.
    native: bool,
}

impl Built {
    /// Name in guests.
    fn shown(&self) -> String {
        format!("{}-{}", if self.package.is_empty() { "bprec" } else { &self.package }, self.name)
    }
}

/// Builds, runs nothing, and says what was built.
const BUILD: [&str; 2] = ["--locked", "--message-format=json-render-diagnostics"];

/// Has this machine's cargo build; gives what it printed.
fn cargo(arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(arguments)
        .args(BUILD)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    ensure!(output.status.success(), "cargo {} failed", arguments.join(" "));
    Ok(output.stdout)
}

/// The executables among the messages of cargo, which saw the sources at `sources`, and for another machine the target directory `cross`
/// at [`cross::TARGET`].
fn executables(messages: &[u8], sources: &Path, cross: Option<&Path>) -> Result<Vec<Built>> {
    let mut built = Vec::new();
    for line in messages.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("read what cargo says")?;
        let Some(path) = message["executable"].as_str() else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("a target without a manifest")?);
        let package = manifest.parent().and_then(|directory| directory.strip_prefix(sources).ok()).unwrap_or(manifest);
        built.push(Built {
            package: package.to_string_lossy().into_owned(),
            name: message["target"]["name"].as_str().context("a target without a name")?.to_owned(),
            kind: message["target"]["kind"][0].as_str().unwrap_or_default().to_owned(),
            test: message["profile"]["test"].as_bool().unwrap_or(false),
            built_at: path.into(),
            path: match cross {
                None => path.into(),
                Some(target) => target.join(Path::new(path).strip_prefix(cross::TARGET)?),
            },
            native: cross.is_none(),
        });
    }
    Ok(built)
}

/// Debug information is most of a binary, and a guest has to unpack all of it at every boot. What is built for another machine has none.
fn stripped(built: &Built, to: &Path) -> Result<()> {
    if built.native {
        let status = Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(&built.path).status();
        ensure!(status.context("run strip")?.success(), "cannot strip {}", built.path.display());
    } else {
        fs::copy(&built.path, to).with_context(|| format!("copy {}", built.path.display()))?;
    }
    Ok(())
}
