//! Images that a guest boots: Debian's kernel with the modules for its disk, and a root file system with Debian's user-space programs. Both are made
//! once.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages::{Suite, made, unpack};
use super::{Guest, Machine, Unavailable, cpio};
use crate::command;

/// Suite of the emulator, independent of this machine's release. Older emulators sometimes lose the processor's flags (seen with
/// 7.2), and then a guest dies without a fault of bprec.
const EMULATOR_SUITE: &str = "trixie";

/// Packages in the guest besides bprec's binaries. `dash` is the shell, because busybox's shell has the process name `exe`. In newer releases,
/// `libelf1` is a second name of the package that has replaced it.
const PROGRAMS: [&str; 10] = [
    "busybox-static",
    "coreutils",
    "dash",
    "linux-perf",
    "bpftool",
    "iproute2",
    "util-linux",
    "libelf1",
    "zlib1g",
    "libzstd1",
];

/// Packages on which only maintenance scripts of other packages depend; no process in a guest uses them.
const UNUSED: [&str; 5] = ["dpkg_", "tar_", "perl_", "perl-modules-", "tzdata_"];

/// Files that no test reads: three quarters of the unpacked size.
const EXCLUDED: [&str; 8] = [
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/locale/*",
    "./usr/share/perl*",
    "./usr/lib/python3*",
    "./usr/lib/*/perl*",
    "./usr/lib/*/gconv/*",
    "./usr/share/bash-completion/*",
];

/// Modules for the disk of results, and modules that `tc` needs to attach BPF programs.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_blk", "sch_ingress", "cls_bpf", "act_bpf"];

/// Boot files of a guest, and the emulator.
pub(crate) struct Images {
    pub(crate) emulator: Emulator,
    /// Release as `uname -r` prints it.
    pub(crate) release: String,
    pub(crate) kernel: PathBuf,
    pub(crate) modules: PathBuf,
    pub(crate) user: PathBuf,
}

/// QEMU with all its libraries, in a separate directory.
pub(crate) struct Emulator {
    root: PathBuf,
    name: &'static str,
}

impl Emulator {
    /// Returns the command that starts the emulator with its own dynamic linker and libraries, independent of this machine's packages.
    pub(crate) fn command(&self) -> Vec<OsString> {
        let (loader, triplet) = match cfg!(target_arch = "aarch64") {
            true => ("usr/lib/ld-linux-aarch64.so.1", "aarch64-linux-gnu"),
            false => ("usr/lib64/ld-linux-x86-64.so.2", "x86_64-linux-gnu"),
        };
        let at = |path: &str| self.root.join(path).into_os_string();
        let mut words = vec![at(loader), "--library-path".into(), at(&format!("usr/lib/{triplet}"))];
        words.push(at(&format!("usr/bin/{}", self.name)));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            words.extend(["-L".into(), at(firmware)]);
        }
        words
    }
}

/// Makes the missing images of a guest.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if a package cannot be fetched.
pub(crate) fn prepare(guest: &Guest) -> Result<Images> {
    let architecture = guest.machine.debian();
    let kernel =
        made(&format!("kernel-{}-{architecture}", guest.kernel_suite), |directory| kernel_image(guest, directory))?;
    let user = made(&format!("user-{}-{architecture}", guest.user_suite), |directory| user_image(guest, directory))?;
    let emulator = made(&format!("emulator-{architecture}"), |directory| emulator_root(guest, directory))?;
    Ok(Images {
        emulator: Emulator { root: emulator, name: guest.machine.qemu() },
        release: fs::read_to_string(kernel.join("release")).context("read the kernel's release")?,
        kernel: kernel.join("vmlinuz"),
        modules: kernel.join("modules.cpio"),
        user: user.join("user.cpio"),
    })
}

fn kernel_image(guest: &Guest, directory: &Path) -> Result<()> {
    let architecture = guest.machine.debian();
    let suite = Suite::open(guest.kernel_suite, architecture)?;
    let unpacked = directory.join("unpacked");
    fs::create_dir(&unpacked)?;
    for deb in suite.download(&suite.kernel(architecture)?)? {
        unpack(&deb, &unpacked, &["./usr/share/*"])?;
    }
    suite.close()?;
    let files = crate::tree::files_under(&unpacked)?;
    let image =
        files.iter().find(|path| file_name(path).starts_with("vmlinu")).context("the package holds no kernel")?;
    fs::copy(image, directory.join("vmlinuz"))?;
    // Packages from before the merge of / and /usr have the modules in /lib.
    let base = [unpacked.join("usr"), unpacked.clone()].into_iter().find(|base| base.join("lib/modules").exists());
    let base = base.context("the package holds no modules")?;
    let mut releases = fs::read_dir(base.join("lib/modules"))?;
    let release = releases.next().context("the package holds no modules")??.file_name();
    let release = release.to_str().context("the kernel's release is not UTF-8")?;
    let root = directory.join("root");
    fs::create_dir_all(root.join("modules"))?;
    for (number, path) in modules(&base, release)?.into_iter().enumerate() {
        let name = file_name(&path);
        let module = root.join(format!("modules/{number:02}-{name}"));
        fs::copy(&path, &module)?;
        if name.ends_with(".xz") {
            command::run(Command::new("xz").arg("--decompress").arg(&module))?;
        }
    }
    cpio::append(&root, &directory.join("modules.cpio"))?;
    fs::remove_dir_all(&root)?;
    fs::write(directory.join("release"), release)?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// Returns the files of [`MODULES`] and of their dependencies in loading order. Modules that are built into the kernel have no file.
fn modules(base: &Path, release: &str) -> Result<Vec<PathBuf>> {
    let tool = |name: &str| -> Result<Command> {
        let mut tool = Command::new(name);
        tool.output().map_err(|why| Unavailable(format!("{name}: {why}; Debian has it in kmod")))?;
        Ok(tool)
    };
    command::output(tool("depmod")?.arg("--basedir").arg(base).arg(release))?;
    let mut modprobe = tool("modprobe")?;
    modprobe.args(["--show-depends", "--set-version", release, "--all"]).args(MODULES).arg("--dirname").arg(base);
    // modprobe fails for a module that is built into the kernel, if the package has no list of these modules.
    let printed = String::from_utf8(modprobe.output()?.stdout)?;
    let mut files = Vec::new();
    for line in printed.lines() {
        let path = line.strip_prefix("insmod ").map(|path| PathBuf::from(path.trim()));
        files.extend(path.filter(|path| !files.contains(path)));
    }
    ensure!(!files.is_empty(), "modprobe finds no module of {release}");
    Ok(files)
}

fn emulator_root(guest: &Guest, directory: &Path) -> Result<()> {
    let host = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let suite = Suite::open(EMULATOR_SUITE, host)?;
    merged_usr(directory)?;
    let package = match guest.machine {
        Machine::Amd64 => "qemu-system-x86",
        Machine::Arm64 => "qemu-system-arm",
    };
    for deb in suite.download_with_dependencies(&[package])? {
        unpack(&deb, directory, &["./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*", "./usr/sbin/*"])?;
    }
    suite.close()
}

/// Makes the links from / to /usr of a root file system with merged /usr.
fn merged_usr(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    Ok(())
}

fn user_image(guest: &Guest, directory: &Path) -> Result<()> {
    let suite = Suite::open(guest.user_suite, guest.machine.debian())?;
    let root = directory.join("root");
    merged_usr(&root)?;
    for name in ["dev", "proc", "sys", "tmp", "run", "out", "payload", "modules"] {
        fs::create_dir(root.join(name))?;
    }
    for deb in suite.download_with_dependencies(&PROGRAMS)? {
        if !UNUSED.iter().any(|name| file_name(&deb).starts_with(name)) {
            unpack(&deb, &root, &EXCLUDED)?;
        }
    }
    suite.close()?;
    cpio::append(&root, &directory.join("user.cpio"))?;
    fs::remove_dir_all(&root)?;
    Ok(())
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
