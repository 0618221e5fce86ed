//! Images that a guest boots, and the emulator: `setup/guest-image` makes each of them once.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use xshell::{Cmd, Shell, cmd};

use super::{Guest, Machine, Unavailable};

/// Suite of the emulator, independent of this machine's release. Older emulators sometimes lose the processor's flags (seen with
/// 7.2), and then a guest dies without a fault of bprec.
const EMULATOR_SUITE: &str = "trixie";

/// Boot files of a guest, and the emulator.
pub(crate) struct Images {
    /// Command that starts the emulator with its own dynamic linker and libraries, independent of this machine's packages.
    pub(crate) emulator: Vec<String>,
    /// Directory of all images.
    pub(crate) cache: PathBuf,
    /// Release as `uname -r` prints it.
    pub(crate) release: String,
    pub(crate) kernel: PathBuf,
    pub(crate) modules: PathBuf,
    pub(crate) user: PathBuf,
}

/// Makes the missing images of a guest.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if a package cannot be fetched.
pub(crate) fn prepare(sh: &Shell, guest: &Guest) -> Result<Images> {
    let architecture = guest.machine.debian();
    let made = |what: &str, suite: &str, architecture: &str| {
        fetched(cmd!(sh, "setup/guest-image {what} {suite} {architecture}")).map(PathBuf::from)
    };
    let kernel = made("kernel", &guest.kernel_suite, architecture)?;
    let user = made("user", &guest.user_suite, architecture)?;
    let (machine, program) = match guest.machine {
        Machine::Amd64 => ("x86", "qemu-system-x86_64"),
        Machine::Arm64 => ("arm", "qemu-system-aarch64"),
    };
    let (loader, triplet) = match Machine::NATIVE {
        Machine::Amd64 => ("lib64/ld-linux-x86-64.so.2", "x86_64-linux-gnu"),
        Machine::Arm64 => ("lib/ld-linux-aarch64.so.1", "aarch64-linux-gnu"),
    };
    let usr = made("emulator", EMULATOR_SUITE, machine)?.join("files/usr").display().to_string();
    let words = format!(
        "{usr}/{loader} --library-path {usr}/lib/{triplet} {usr}/bin/{program} -L {usr}/share/qemu -L {usr}/share/seabios"
    );
    Ok(Images {
        emulator: words.split(' ').map(str::to_owned).collect(),
        cache: kernel.with_file_name(""),
        release: sh.read_file(kernel.join("release"))?,
        kernel: kernel.join("vmlinuz"),
        modules: kernel.join("modules.cpio"),
        user: user.join("user.cpio"),
    })
}

/// Runs a script that fetches what is missing; returns its output.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if the script fails.
pub(super) fn fetched(script: Cmd<'_>) -> Result<String> {
    let name = script.to_string();
    let output = script.quiet().ignore_status().output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().find(|line| line.starts_with("E: ")).or(said.lines().last()).unwrap_or_default();
    ensure!(output.status.success(), Unavailable(format!("{name}: {why}")));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
