//! Builds for Arm on x86-64, with Rust's library for Arm, Debian's cross compiler, and Debian's static libraries for Arm.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{Cmd, Shell, cmd};

use super::images::made;
use super::{Machine, Unavailable};
use crate::target_directory;

pub(crate) const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// Prefix of the cross compiler's programs.
pub(crate) const TOOLS: &str = "aarch64-linux-gnu-";
/// Debian release of the static libraries. The libelf.a of later releases calls a part of elfutils that is missing there.
const LIBRARIES: &str = "bookworm";

/// Returns a command of cargo with `arguments` for Arm. The build must have the feature `static`.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if a part of the toolchain is missing and cannot be fetched.
pub(crate) fn cargo<'a>(sh: &'a Shell, arguments: &[&str]) -> Result<Cmd<'a>> {
    ensure!(Machine::NATIVE == Machine::Amd64, Unavailable("programs for Arm can be built only on x86-64".to_owned()));
    let compiler = format!("{TOOLS}gcc");
    let missing = |why| Unavailable(format!("{why}; `setup/install test` installs it"));
    cmd!(sh, "{compiler} --version").quiet().ignore_stdout().run().map_err(missing)?;
    let library = cmd!(sh, "rustc --print=target-libdir --target {TRIPLE}").quiet().read()?;
    if !Path::new(&library).exists() {
        let missing = |why| Unavailable(format!("{why}; it would install Rust's library for Arm"));
        cmd!(sh, "rustup target add {TRIPLE}").quiet().run().map_err(missing)?;
    }
    let libraries = made(sh, "libraries", LIBRARIES, Machine::Arm64.debian())?.join("files/usr");
    let include = libraries.join("include");
    let target = directory();
    Ok(cmd!(sh, "cargo {arguments...} --target {TRIPLE} --target-dir {target}")
        // clippy judges types that differ between machines, such as `c_char`, by those of this machine.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", compiler)
        .env("LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu", libraries.join("lib/aarch64-linux-gnu"))
        .env("LIBBPF_SYS_EXTRA_CFLAGS", format!("-I{0} -I{0}/aarch64-linux-gnu", include.display())))
}

/// Target directory of the builds, so that they and builds for this machine do not wait for each other.
pub(crate) fn directory() -> PathBuf {
    target_directory().join("arm64")
}
