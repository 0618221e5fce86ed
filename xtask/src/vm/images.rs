//! Images that a guest boots: Debian's kernel with the modules for its disk, and a root file system with Debian's user-space programs. Both are made
//! once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages::{Suite, made, unpack};
use super::{Guest, Machine, Unavailable, cache, cpio};

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
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock = File::create(cache.join("setup.lock"))?;
    lock.lock().context("wait for another set-up")?;
    let architecture = guest.machine.debian();
    let kernel = cache.join(format!("kernel-{}-{architecture}", guest.kernel_suite));
    if !kernel.exists() {
        made(&kernel, |directory| kernel_image(&cache, guest, directory))?;
    }
    let user = cache.join(format!("user-{}-{architecture}", guest.user_suite));
    if !user.exists() {
        made(&user, |directory| user_image(&cache, guest, directory))?;
    }
    let emulator = cache.join(format!("emulator-{architecture}"));
    if !emulator.exists() {
        made(&emulator, |directory| emulator_root(&cache, guest, directory))?;
    }
    Ok(Images {
        emulator: Emulator { root: emulator, name: guest.machine.qemu() },
        release: fs::read_to_string(kernel.join("release")).context("read the kernel's release")?,
        kernel: kernel.join("vmlinuz"),
        modules: kernel.join("modules.cpio"),
        user: user.join("user.cpio"),
    })
}

fn kernel_image(cache: &Path, guest: &Guest, directory: &Path) -> Result<()> {
    let architecture = guest.machine.debian();
    let suite = Suite::open(cache, &[guest.kernel_suite], architecture)?;
    let unpacked = directory.join("unpacked");
    fs::create_dir(&unpacked)?;
    for deb in suite.download(&suite.kernel(architecture)?)? {
        unpack(&deb, &unpacked, &["./usr/share/*"])?;
    }
    suite.close()?;
    let files = crate::tree::files_under(&unpacked)?;
    let image =
        files.iter().find(|path| file_name(path).starts_with("vmlinu")).context("the package holds no kernel")?;
    let release = release(&files).context("the package holds no modules")?;
    fs::copy(image, directory.join("vmlinuz"))?;
    let root = directory.join("root");
    fs::create_dir_all(root.join("modules"))?;
    for (number, (name, contents)) in modules(&files, &MODULES)?.into_iter().enumerate() {
        fs::write(root.join(format!("modules/{number:02}-{name}.ko")), contents)?;
    }
    cpio::append(&root, &directory.join("modules.cpio"))?;
    fs::remove_dir_all(&root)?;
    fs::write(directory.join("release"), release)?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// Returns the release from a path `/lib/modules/RELEASE/kernel/…`.
fn release(files: &[PathBuf]) -> Option<&str> {
    files.iter().find_map(|path| {
        let mut parts = path.iter();
        parts.find(|part| *part == "modules")?;
        parts.next()?.to_str()
    })
}

/// Returns the modules `wanted` and their dependencies, uncompressed, in loading order. Built-in modules are not in `files` and are left out.
fn modules(files: &[PathBuf], wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
    let by_name: BTreeMap<String, &PathBuf> =
        files.iter().filter_map(|path| Some((file_name(path).split_once(".ko")?.0.replace('-', "_"), path))).collect();
    let mut ordered = Vec::new();
    for name in wanted {
        load_order(&by_name, name, &mut ordered)?;
    }
    Ok(ordered)
}

fn load_order(by_name: &BTreeMap<String, &PathBuf>, name: &str, ordered: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let Some(path) = by_name.get(name).filter(|_| !ordered.iter().any(|(present, _)| present == name)) else {
        return Ok(());
    };
    let contents = if path.extension().is_some_and(|extension| extension == "xz") {
        let output =
            Command::new("xz").arg("-dc").arg(path).output().map_err(|why| Unavailable(format!("xz: {why}")))?;
        ensure!(output.status.success(), "cannot uncompress {}", path.display());
        output.stdout
    } else {
        fs::read(path)?
    };
    ensure!(contents.starts_with(b"\x7fELF"), "{} is compressed in an unknown way", path.display());
    for needed in needs(&contents) {
        load_order(by_name, &needed, ordered)?;
    }
    ordered.push((name.to_owned(), contents));
    Ok(())
}

/// Returns the dependencies in a module's `.modinfo`, which has zero-terminated strings, one of them `depends=a,b`.
fn needs(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = module[at + key.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

fn emulator_root(cache: &Path, guest: &Guest, directory: &Path) -> Result<()> {
    let host = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let suite = Suite::open(cache, &[EMULATOR_SUITE], host)?;
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
pub(super) fn merged_usr(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    Ok(())
}

fn user_image(cache: &Path, guest: &Guest, directory: &Path) -> Result<()> {
    let suite = Suite::open(cache, &[guest.user_suite], guest.machine.debian())?;
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

#[cfg(test)]
mod tests {
    use super::needs;

    #[test]
    fn a_modules_needs_are_read() {
        assert_eq!(needs(b"\x7fELF\0license=GPL\0depends=virtio,virtio-ring\0name=x\0"), ["virtio", "virtio_ring"]);
        assert!(needs(b"\0depends=\0").is_empty());
        assert!(needs(b"").is_empty());
    }
}
