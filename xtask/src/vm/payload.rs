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
/// Test programs among them that do not.
const SAME_EVERYWHERE: &[&str] = &[
    "architecture",
    "colors",
    "documents",
    "export",
    "help",
    "limits",
    "mistakes",
    "pager",
    "perf_options",
    "progress",
    "recover",
    "redact",
    "replay",
    "report_views",
    "rewrite",
    "sandbox",
    "spool",
    "table",
    "tui",
    "viewers",
];
/// The binaries that tests and checks call by name.
const BINARIES: [&str; 2] = ["bprec", "bprec-load"];
/// Objects that test programs read of the sources.
const OBJECTS: &str = "fixtures/bpf";

/// Builds that guests run, made once for all of them.
pub(crate) struct Builds {
    native: Vec<Built>,
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
        Ok(Self { native, foreign: Mutex::default(), bprec, target: target.to_owned() })
    }

    /// This machine's `bprec`.
    pub(crate) fn bprec(&self) -> &Path {
        &self.bprec
    }

    /// Lays out what a guest runs in `directory`: `run.sh`, `bin/`, `tests/`, `recordings` (names of loads), `withheld` (tests
    /// that are not begun, with their reasons), `sources/`, and in `built_at`
    /// and `sources_at` the paths under which the test programs expect `bin/` and `sources/`.
    pub(crate) fn assemble(&self, directory: &Path, guest: &Guest) -> Result<()> {
        if guest.machine == Machine::NATIVE {
            return lay_out(directory, guest, &self.native, &std::env::current_dir()?);
        }
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let built = match &mut *foreign {
            Some(built) => built,
            none => {
                let runs_it = |test: &&Built| {
                    GUESTS.iter().any(|other| other.machine == guest.machine && other.tests(&test.shown()))
                };
                let wanted = self.native.iter().filter(|test| asks_the_kernel(test)).filter(runs_it);
                none.insert(cross_built(&wanted.collect::<Vec<_>>(), &self.target)?)
            }
        };
        lay_out(directory, guest, built, Path::new(cross::SOURCES))
    }
}

/// Lays out the test programs in `built`, from the sources that were at `sources_at`.
fn lay_out(directory: &Path, guest: &Guest, built: &[Built], sources_at: &Path) -> Result<()> {
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
    let tests: Vec<&Built> = built.iter().filter(|it| asks_the_kernel(it) && guest.tests(&it.shown())).collect();
    for wanted in guest.tests {
        let found = tests.iter().any(|test| wanted.is_empty() || test.shown().starts_with(wanted));
        ensure!(found, "{} is to run the test program {wanted}, which there is not", guest.name);
    }
    for test in tests {
        stripped(test, &directory.join("tests").join(test.shown()))?;
    }
    let objects = directory.join("sources").join(OBJECTS);
    fs::create_dir_all(&objects)?;
    for file in crate::tree::files_under(Path::new(OBJECTS))? {
        fs::copy(&file, objects.join(file.file_name().context("a file without a name")?))?;
    }
    fs::write(directory.join("sources_at"), format!("{}\n", sources_at.display()))?;
    Ok(())
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
