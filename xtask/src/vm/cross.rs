//! Builds for Arm on x86-64, with Debian's Rust, cross compiler and Arm libraries in a root directory of their own, entered by chroot.
//! The machine's own toolchain has only the standard library of the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::images::merged_usr;
use super::packages::{Suite, made, unpack};
use super::{Unavailable, cache};
use crate::command;

/// Debian release of the guests' user space, and its backports, which have a newer compiler.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];

/// Packages of the tools. The libraries libelf and zlib are for build scripts, which run on this machine.
const TOOLS: [&str; 17] = [
    "cargo/trixie-backports",
    "rustc/trixie-backports",
    "libstd-rust-dev/trixie-backports",
    "rust-src/trixie-backports",
    "gcc",
    "libc6-dev",
    "libelf-dev",
    "zlib1g-dev",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "make",
    "pkgconf",
    "dash",
    "mawk",
    "sed",
    "grep",
    "coreutils",
];

/// Libraries that the executables for Arm are linked with. Rust's own library is built from its sources: the compiler accepts only a library of the
/// same version, and Debian's archive gets new versions for Arm days later than for x86-64.
const LIBRARIES: [&str; 2] = ["libelf-dev", "zlib1g-dev"];

/// Files that no build reads.
const EXCLUDED: [&str; 3] = ["./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*"];

/// Links that scripts of the packages would have made.
const LINKS: [(&str, &str); 2] = [("cc", "gcc"), ("awk", "mawk")];

/// Path of the target directory inside the root; test programs expect the binaries below this path.
pub(crate) const TARGET: &str = "/target";
/// Path of the sources inside the root.
pub(crate) const SOURCES: &str = "/sources";

/// Script that runs in its own mount namespace, so its mounts vanish at the end. The sources are mounted read-only. `RUSTC_BOOTSTRAP` permits
/// the option `-Zbuild-std`, which is not stable.
const ENTER: &str = r#"set -e
mount --rbind "$SOURCES" "$ROOT/sources"
mount -o remount,bind,ro "$ROOT/sources"
mount --bind "$TARGET" "$ROOT/target"
mount --bind "$CARGO" "$ROOT/cargo"
mount --rbind /dev "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
exec chroot "$ROOT" env -i PATH=/usr/bin:/usr/sbin HOME=/tmp CARGO_HOME=/cargo CARGO_TARGET_DIR=/target CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0 \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=debuginfo \
  RUSTC_BOOTSTRAP=1 PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig \
  sh -c 'cd /sources && exec cargo "$@"' sh "$@" -Zbuild-std --target aarch64-unknown-linux-gnu"#;

/// Runs cargo with `arguments` for Arm, with the results in `target`; returns the output.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if the toolchain cannot be fetched or entered.
pub(crate) fn cargo(arguments: &[&str], target: &Path) -> Result<Vec<u8>> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Unavailable("programs for Arm can be built only on x86-64".to_owned()).into());
    }
    let own_mounts = Command::new("unshare").args(["--mount", "true"]).output();
    let own_mounts = own_mounts.map_err(|why| Unavailable(format!("unshare: {why}")))?;
    if !own_mounts.status.success() {
        let why = String::from_utf8_lossy(&own_mounts.stderr).trim().to_owned();
        return Err(Unavailable(format!("building for Arm uses a chroot, which needs root: {why}")).into());
    }
    let root = toolchain()?;
    fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
    // The root has no network, so all dependencies are fetched first, also those of Rust's own library.
    let library = root.join("usr/lib/rustlib/src/rust/library/Cargo.toml");
    command::run(&mut command::cargo(&["fetch", "--locked", "--quiet"]))?;
    let mut fetch = command::cargo(&["fetch", "--locked", "--quiet", "--manifest-path"]);
    command::run(fetch.arg(library).env("RUSTC_BOOTSTRAP", "1"))?;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"])
        .args(arguments)
        .env("ROOT", &root)
        .env("SOURCES", std::env::current_dir()?)
        .env("TARGET", fs::canonicalize(target)?)
        .env("CARGO", cargo_home()?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|why| Unavailable(format!("unshare: {why}")))?;
    anyhow::ensure!(output.status.success(), "cargo {} for Arm failed", arguments.join(" "));
    Ok(output.stdout)
}

/// Returns the root with the toolchain, which is made once.
fn toolchain() -> Result<PathBuf> {
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock = File::create(cache.join("setup.lock"))?;
    lock.lock().context("wait for another set-up")?;
    let root = cache.join("toolchain-arm64");
    if !root.exists() {
        made(&root, |directory| unpack_toolchain(&cache, directory))?;
    }
    Ok(root)
}

fn unpack_toolchain(cache: &Path, root: &Path) -> Result<()> {
    merged_usr(root)?;
    for name in ["dev", "proc", "tmp", "sources", "target", "cargo"] {
        fs::create_dir(root.join(name))?;
    }
    let tools = Suite::open(cache, &SUITES, "amd64")?;
    for deb in tools.download_with_dependencies(&TOOLS)? {
        unpack(&deb, root, &EXCLUDED)?;
    }
    tools.close()?;
    let libraries = Suite::open(cache, &SUITES, "arm64")?;
    let programs = ["./usr/bin/*", "./usr/sbin/*", "./bin/*", "./sbin/*"];
    let excluded: Vec<&str> = EXCLUDED.into_iter().chain(programs).collect();
    for deb in libraries.download_with_dependencies(&LIBRARIES)? {
        unpack(&deb, root, &excluded)?;
    }
    libraries.close()?;
    for (link, program) in LINKS {
        let link = root.join("usr/bin").join(link);
        if link.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(program, &link)?;
        }
    }
    Ok(())
}

fn cargo_home() -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME") {
        Some(home) => Ok(home.into()),
        None => Ok(std::env::home_dir().context("neither CARGO_HOME nor HOME is set")?.join(".cargo")),
    }
}
