//! What the guests run: the project's binaries and those test programs that touch the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::packages::fresh;
use super::{Machine, cross};

/// Crates (by directory, the root is "") whose test programs ask the kernel; what the others test is the same on every kernel.
const TESTED: [&str; 4] = ["bpf", "fixtures", "record", ""];
/// Test programs among them that ask for the sources.
const NEEDS_SOURCES: [&str; 3] = ["architecture", "recover", "replay"];
/// The binaries that tests and checks call by name.
const BINARIES: [&str; 2] = ["bprec", "bprec-load"];

/// Builds everything for `machine` below the directory `target` and lays it out in `directory`: `run.sh`, `bin/`, `tests/`, and
/// `built_at`, the path under which the test programs expect `bin/`.
pub(crate) fn assemble(directory: &Path, machine: Machine, target: &Path) -> Result<()> {
    fresh(directory)?;
    for name in ["bin", "tests"] {
        fs::create_dir(directory.join(name))?;
    }
    fs::write(directory.join("run.sh"), include_bytes!("run.sh"))?;
    // The same selection as `cargo xtask test`, so that neither builds anything again for the other.
    let arguments = ["test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"];
    let built = if machine == Machine::NATIVE {
        executables(&cargo(&arguments)?, &std::env::current_dir()?, None)?
    } else {
        let target = target.join("vm").join("cross");
        executables(&cross::cargo(&arguments, &target)?, Path::new(cross::SOURCES), Some(&target))?
    };
    for name in BINARIES {
        let binary = built.iter().find(|built| built.name == name && !built.test);
        let binary = binary.with_context(|| format!("no binary {name} was built"))?;
        stripped(binary, &directory.join("bin").join(name))?;
        let built_at = binary.built_at.parent().context("a binary without a directory")?;
        fs::write(directory.join("built_at"), format!("{}\n", built_at.display()))?;
    }
    let asks_the_kernel = |built: &&Built| {
        built.test && TESTED.contains(&built.package.as_str()) && !NEEDS_SOURCES.contains(&built.name.as_str())
    };
    for test in built.iter().filter(asks_the_kernel) {
        let package = if test.package.is_empty() { "bprec" } else { &test.package };
        stripped(test, &directory.join("tests").join(format!("{package}-{}", test.name)))?;
    }
    Ok(())
}

/// An executable that cargo built.
struct Built {
    /// Its crate's directory below the root.
    package: String,
    name: String,
    test: bool,
    /// Where the build saw it.
    built_at: PathBuf,
    /// Where it is.
    path: PathBuf,
    /// It is for this machine, whose tools know it.
    native: bool,
}

/// Runs this machine's cargo; gives what it printed.
fn cargo(arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(arguments)
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
