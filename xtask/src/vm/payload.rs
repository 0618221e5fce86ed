//! What the guests run: the project's binaries and those test programs that touch the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::packages::fresh;

/// Crates (by directory, the root is "") whose test programs ask the kernel; what the others test is the same on every kernel.
const TESTED: [&str; 4] = ["bpf", "fixtures", "record", ""];
/// Test programs among them that ask for the sources.
const NEEDS_SOURCES: [&str; 2] = ["architecture", "replay"];
/// The binaries that tests and checks call by name.
const BINARIES: [&str; 2] = ["bprec", "bprec-load"];

/// Builds everything for this machine and lays it out in `directory`: `run.sh`, `bin/`, `tests/`, and `built_at`, the path under which
/// the test programs expect `bin/`.
pub(crate) fn assemble(directory: &Path) -> Result<()> {
    fresh(directory)?;
    for name in ["bin", "tests"] {
        fs::create_dir(directory.join(name))?;
    }
    fs::write(directory.join("run.sh"), include_bytes!("run.sh"))?;
    // The same selection as `cargo xtask test`, so that neither builds anything again for the other.
    let built = executables(&["test", "--workspace", "--no-run"])?;
    for name in BINARIES {
        let binary = built.iter().find(|built| built.name == name && !built.test);
        let binary = &binary.with_context(|| format!("no binary {name} was built"))?.path;
        stripped(binary, &directory.join("bin").join(name))?;
        let built_at = binary.parent().context("a binary without a directory")?;
        fs::write(directory.join("built_at"), format!("{}\n", built_at.display()))?;
    }
    let asks_the_kernel = |built: &&Built| {
        built.test && TESTED.contains(&built.package.as_str()) && !NEEDS_SOURCES.contains(&built.name.as_str())
    };
    for test in built.iter().filter(asks_the_kernel) {
        let package = if test.package.is_empty() { "bprec" } else { &test.package };
        stripped(&test.path, &directory.join("tests").join(format!("{package}-{}", test.name)))?;
    }
    Ok(())
}

/// An executable that cargo built.
struct Built {
    /// Its crate's directory below the root.
    package: String,
    name: String,
    test: bool,
    path: PathBuf,
}

fn executables(arguments: &[&str]) -> Result<Vec<Built>> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(arguments)
        .args(["--locked", "--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    ensure!(output.status.success(), "cargo {} failed", arguments.join(" "));
    let root = std::env::current_dir()?;
    let mut built = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("read what cargo says")?;
        let Some(path) = message["executable"].as_str() else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("a target without a manifest")?);
        let package = manifest.parent().and_then(|directory| directory.strip_prefix(&root).ok()).unwrap_or(manifest);
        built.push(Built {
            package: package.to_string_lossy().into_owned(),
            name: message["target"]["name"].as_str().context("a target without a name")?.to_owned(),
            test: message["profile"]["test"].as_bool().unwrap_or(false),
            path: path.into(),
        });
    }
    Ok(built)
}

/// Debug information is most of a binary, and a guest has to unpack all of it at every boot.
fn stripped(from: &Path, to: &Path) -> Result<()> {
    let status =
        Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(from).status().context("run strip")?;
    ensure!(status.success(), "cannot strip {}", from.display());
    Ok(())
}
