//! Builds for Arm on x86-64, with Rust's library for Arm, Debian's cross compiler, and Debian's static libraries for Arm.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Unavailable;
use super::packages::{Suite, made, unpack};
use crate::command;

pub(crate) const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// Prefix of the cross compiler's programs.
pub(crate) const TOOLS: &str = "aarch64-linux-gnu-";
/// Debian release of the static libraries, and their packages. The libelf.a of later releases calls a part of elfutils that is missing there.
const LIBRARIES: (&str, [&str; 2]) = ("bookworm", ["libelf-dev", "zlib1g-dev"]);

/// Runs cargo with `arguments` for Arm; returns the output. The build must have the feature `static`.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if a part of the toolchain is missing and cannot be fetched.
pub(crate) fn cargo(arguments: &[&str]) -> Result<String> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Unavailable("programs for Arm can be built only on x86-64".to_owned()).into());
    }
    let compiler = format!("{TOOLS}gcc");
    available(Command::new(&compiler).arg("--version"), "`setup/install test` installs it")?;
    add_rust_library()?;
    let libraries = libraries()?.join("usr");
    let include = libraries.join("include");
    let headers = format!("-I{0} -I{0}/aarch64-linux-gnu", include.display());
    let mut cargo = command::cargo(arguments);
    cargo
        .args(["--locked", "--target", TRIPLE])
        // A directory of its own, so that this build and builds for this machine do not wait for each other.
        .arg("--target-dir")
        .arg(crate::target_directory().join("arm64"))
        // clippy judges types that differ between machines, such as `c_char`, by those of this machine.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", compiler)
        .env("LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu", libraries.join("lib/aarch64-linux-gnu"))
        .env("LIBBPF_SYS_EXTRA_CFLAGS", headers)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = cargo.output().context("run cargo")?;
    ensure!(output.status.success(), "cargo {} for Arm failed", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// Adds Rust's library for Arm to the compiler, if it is missing.
fn add_rust_library() -> Result<()> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let library = command::output(Command::new(rustc).args(["--print=target-libdir", "--target", TRIPLE]))?;
    if Path::new(library.trim()).exists() {
        return Ok(());
    }
    available(Command::new("rustup").args(["target", "add", TRIPLE]), "it would install Rust's library for Arm")
}

/// Runs a command that must work, unless something is missing outside of the project.
fn available(command: &mut Command, hint: &str) -> Result<()> {
    let program = command.get_program().display().to_string();
    let output =
        command.stdin(Stdio::null()).output().map_err(|why| Unavailable(format!("{program}: {why}; {hint}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Unavailable(format!("{command:?}: {}: {}; {hint}", output.status, why.trim())).into());
    }
    Ok(())
}

/// Returns the directory with the static libraries and their headers, which is made once.
fn libraries() -> Result<PathBuf> {
    made("libraries-arm64", |directory| {
        let (release, packages) = LIBRARIES;
        let suite = Suite::open(release, "arm64")?;
        for deb in suite.download(&packages.map(str::to_owned))? {
            unpack(&deb, directory, &["./usr/share/*"])?;
        }
        suite.close()
    })
}
