//! Runs a guest once.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xshell::{Cmd, Shell, cmd};

use super::{Guest, Machine, Unavailable};
use crate::logged;

/// Suite of the emulator, independent of this machine's release. Older emulators sometimes lose the processor's flags (seen with
/// 7.2), and then a guest dies without a fault of bprec.
const EMULATOR_SUITE: &str = "trixie";
/// Default time limit of a guest.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// Limit on the time until the payload starts. This takes some seconds, on a busy machine longer.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// Memory of this machine per running guest: the guest's memory, the boot files and the results.
const GUEST_KIB: usize = 4 << 20;
/// Size of the disk for results; the file is sparse.
const RESULT_BYTES: u64 = 1 << 30;
/// Line of `init.sh` at the start of the payload.
const PAYLOAD_STARTS: &str = "payload starts";
/// Script that appends a directory to an archive that the kernel unpacks.
const ARCHIVE: &str =
    r#"cd "$1" && find . -mindepth 1 -print0 | cpio --create --format=newc --null --owner=0:0 --quiet >>"$2""#;
/// Exit status of `timeout` after it has ended the command.
const TIMED_OUT: i32 = 124;

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
    let made = |what: &str, suite: &str, machine: &str| {
        fetched(cmd!(sh, "setup/guest-image {what} {suite} {machine}")).map(PathBuf::from)
    };
    let (architecture, machine, program) = match guest.machine {
        Machine::Amd64 => ("amd64", "x86", "qemu-system-x86_64"),
        Machine::Arm64 => ("arm64", "arm", "qemu-system-aarch64"),
    };
    let kernel = made("kernel", &guest.kernel_suite, architecture)?;
    let user = made("user", &guest.user_suite, architecture)?;
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

/// Outcome of a run.
pub(crate) struct Run {
    pub(crate) booted: bool,
    /// Exit code of the payload; `None` if the guest ended without one.
    code: Option<i32>,
    /// Manner in which the guest ended, in words.
    pub(crate) ended: String,
    pub(crate) console: PathBuf,
}

impl Run {
    /// Fails unless the payload ran to its end with the exit code 0.
    pub(crate) fn succeeded(&self) -> Result<()> {
        ensure!(self.code == Some(0), "{}; see {}", self.ended, self.console.display());
        Ok(())
    }
}

/// Boots `guest`, runs `payload/run.sh` in it as root, and ends the guest after `limit`. `out` is emptied; it then holds
/// `console.log` and, in `out/`, the files that the payload left in `/out`, with the kernel's log as `dmesg.txt`. Waits until fewer than
/// [`at_once`] guests run. Makes the images that are missing.
pub(crate) fn run(sh: &Shell, guest: &Guest, payload: &Path, out: &Path, limit: Duration) -> Result<Run> {
    ensure!(payload.join("run.sh").is_file(), "{} has no run.sh", payload.display());
    let Images { cache, emulator, kernel, modules, user, .. } = prepare(sh, guest)?;
    sh.remove_path(out)?;
    let kept = sh.create_dir(out.join("out"))?;
    let turn = turn(&cache)?;
    let (initrd, results, console) = (out.join("initrd"), out.join("results.tar"), out.join("console.log"));
    // The kernel unpacks the archives in order: user space, modules, files of this run.
    sh.write_file(&initrd, [sh.read_binary_file(user)?, sh.read_binary_file(modules)?].concat())?;
    let own = out.join("own");
    sh.write_file(own.join("init"), include_bytes!("init.sh"))?;
    fs::set_permissions(own.join("init"), fs::Permissions::from_mode(0o755))?;
    cmd!(sh, "cp -r -- {payload} {own}/payload").quiet().run()?;
    let archive = absolute(&initrd)?;
    cmd!(sh, "bash -o pipefail -c {ARCHIVE} bash {own} {archive}").quiet().run()?;
    sh.remove_path(&own)?;
    File::create(&results)?.set_len(RESULT_BYTES)?;
    let (terminal, machine, parameter) = match guest.machine {
        // The kernel checks its timer against real time. This check fails on a busy host, so it is switched off.
        Machine::Amd64 => ("ttyS0", "-M pc -cpu qemu64", "no_timer_check"),
        // With separate page tables for user space, each system call and interrupt would empty QEMU's TLB: a third of its time.
        Machine::Arm64 => ("ttyAMA0", "-M virt,gic-version=3 -cpu cortex-a76", "kpti=off"),
    };
    // If the clock counts instructions, idle time passes at once.
    let clock = if guest.icount { "-icount shift=0,sleep=off" } else { "" };
    // Longer limits for the kernel's watchdogs: a busy host may not run a virtual processor for half a minute, which is
    // no fault of the guest's kernel.
    let patience = "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300";
    let line = format!("console={terminal} panic=-1 quiet {patience} {parameter} {}", guest.parameters);
    // `timeout` ends the emulator even if this process has ended before. One thread emulates all processors. With several threads, QEMU sometimes
    // executes old bytes of code that the kernel has changed.
    let [seconds, cpus, memory_mib] = [limit.as_secs(), guest.cpus, guest.memory_mib].map(|it| it.to_string());
    let options = machine.split(' ').chain(clock.split_whitespace());
    let emulator = cmd!(
        sh,
        "timeout --foreground --kill-after=5 {seconds} {emulator...} {options...}
         -accel tcg,thread=single -smp {cpus} -m {memory_mib}M -nodefaults -no-user-config -no-reboot
         -display none -serial stdio -device virtio-blk-pci,drive=results
         -drive if=none,id=results,format=raw,cache=unsafe,file={results}
         -kernel {kernel} -initrd {initrd} -append {line}"
    );
    let (status, booted) = watched(emulator.into(), &guest.name, &console, limit)?;
    drop(turn);
    sh.remove_path(&initrd)?;
    // A disk on which the guest has written nothing is an empty archive.
    if status.code() != Some(TIMED_OUT) {
        cmd!(sh, "tar -x --no-same-owner --warning=no-timestamp --file {results} --directory {kept}").quiet().run()?;
    }
    sh.remove_path(&results)?;
    let code = fs::read_to_string(kept.join("status.txt")).ok().and_then(|text| text.trim().parse().ok());
    let ended = match code {
        _ if !booted => format!("its payload did not start: {status}"),
        _ if status.code() == Some(TIMED_OUT) => "it exceeded its time limit".to_owned(),
        Some(code) => format!("payload ended with {code}"),
        None => format!("guest died: {status}"),
    };
    Ok(Run { booted, code, ended, console })
}

/// Runs the emulator to its end, which `timeout` brings about after `limit`, or ends it if the payload has not started within [`BOOT_LIMIT`]. The
/// output of the emulator and of the guest goes to `console`; progress lines of `init.sh` and of the payload are also printed. Returns true if the
/// payload was started.
fn watched(emulator: Command, name: &str, console: &Path, limit: Duration) -> Result<(ExitStatus, bool)> {
    let (mut running, lines) = logged::spawn(emulator, console)?;
    let (mut booted, mut deadline) = (false, Instant::now() + BOOT_LIMIT);
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if let Some(said) = line.context("read the guest's console")?.trim_end().strip_prefix("guest: ") {
            if !booted && said.contains(PAYLOAD_STARTS) {
                (booted, deadline) = (true, deadline + limit);
            }
            println!("vm {name}: {said}");
        }
    }
    if !booted {
        // `timeout` passes the signal to the emulator. The command fails only if the emulator has already ended.
        drop(Command::new("kill").arg(running.id().to_string()).stderr(Stdio::null()).status());
    }
    Ok((running.wait().context("wait for the emulator")?, booted))
}

/// Limit on guests that run at the same time on this machine, over all processes: each needs one processor and
/// [`GUEST_KIB`] of memory.
pub(crate) fn at_once() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo.strip_prefix("MemTotal:").and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    processors.min(kib.unwrap_or(0) / GUEST_KIB).max(1)
}

/// Waits until fewer than [`at_once`] guests run. Returns a locked file; dropping the file lets the next guest run.
fn turn(cache: &Path) -> Result<File> {
    loop {
        for number in 0..at_once() {
            let turn = File::create(cache.join(format!("guest-{number}.lock")))?;
            match turn.try_lock() {
                Err(TryLockError::WouldBlock) => {}
                tried => return tried.map(|()| turn).context("wait for another guest"),
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
}
