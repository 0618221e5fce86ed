//! Runs a guest once.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::images::Images;
use super::packages::fresh;
use super::{Guest, Machine, Pace, cache, cpio};
use crate::command;

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
/// Exit status of `timeout` after it has ended the command.
const TIMED_OUT: i32 = 124;

/// Manner in which a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The payload ran to its end, with this exit code.
    Ended(i32),
    /// The guest was killed at its time limit.
    TimedOut,
    /// The guest was ended because it did not start its payload in time.
    NotBooted,
    /// The guest stopped without an exit code of its payload.
    Died(String),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(code) => write!(f, "payload ended with {code}"),
            Self::TimedOut => f.write_str("it exceeded its time limit"),
            Self::NotBooted => write!(f, "its payload did not start within {} s", BOOT_LIMIT.as_secs()),
            Self::Died(how) => write!(f, "guest died: {how}"),
        }
    }
}

/// Outcome of a run.
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    pub(crate) seconds: f64,
    /// Lines of the kernel's log that report a fault.
    pub(crate) complaints: Vec<String>,
}

/// Boots `guest`, runs `payload/run.sh` in it as root, and ends the guest after `limit`. `out` is emptied; it then holds
/// `console.log` and, in `out/`, the files that the payload left in `/out`, with the kernel's log as `dmesg.txt`. Waits until fewer than
/// [`at_once`] guests run.
pub(crate) fn run(guest: &Guest, images: &Images, payload: &Path, out: &Path, limit: Duration) -> Result<Run> {
    ensure!(payload.join("run.sh").is_file(), "{} has no run.sh", payload.display());
    fresh(out)?;
    let turn = turn()?;
    let started = Instant::now();
    let initrd = out.join("initrd");
    initial_file_system(images, payload, &initrd)?;
    let results = out.join("results.tar");
    File::create(&results)?.set_len(RESULT_BYTES)?;
    let console = out.join("console.log");
    let mut emulator = Command::new("timeout");
    emulator
        // `timeout` ends the emulator even if this process has ended before.
        .args(["--foreground", "--kill-after=5", &limit.as_secs().to_string()])
        .args(images.emulator.command())
        .args(machine(guest.machine))
        .args(clock(guest.pace))
        // One thread emulates all processors. With several threads, QEMU sometimes executes old bytes of code that the kernel has changed.
        .args(["-accel", "tcg,thread=single", "-smp", &guest.cpus.to_string(), "-m", &format!("{}M", guest.memory_mib)])
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio", "-device", "virtio-blk-pci,drive=results"])
        .arg("-drive")
        .arg(format!("if=none,id=results,format=raw,cache=unsafe,file={}", results.display()))
        .arg("-kernel")
        .arg(&images.kernel)
        .arg("-initrd")
        .arg(&initrd)
        .args(["-append", &command_line(guest)])
        .stdin(Stdio::null());
    let (status, booted) = watched(&mut emulator, guest.name, &console)?;
    drop(turn);
    fs::remove_file(&initrd)?;
    let kept = out.join("out");
    fs::create_dir(&kept)?;
    let outcome = if !booted {
        Outcome::NotBooted
    } else if status.code() == Some(TIMED_OUT) {
        Outcome::TimedOut
    } else {
        unpack_results(&results, &kept)?;
        match fs::read_to_string(kept.join("status.txt")).ok().and_then(|text| text.trim().parse().ok()) {
            Some(code) => Outcome::Ended(code),
            None => Outcome::Died(format!("{}, {status}", guest.machine.qemu())),
        }
    };
    fs::remove_file(&results)?;
    let complaints = complaints(&kept, &console)?;
    Ok(Run { outcome, seconds: started.elapsed().as_secs_f64(), complaints })
}

/// Runs the emulator to its end, or ends it if the payload has not started within [`BOOT_LIMIT`]. The output of the emulator and of the guest goes to
/// `console`; progress lines of `init.sh` and of the payload are also printed. Returns true if the payload was started.
fn watched(emulator: &mut Command, name: &str, console: &Path) -> Result<(ExitStatus, bool)> {
    let mut kept = File::options().create(true).append(true).open(console)?;
    let errors = kept.try_clone()?;
    let mut running = emulator.stdout(Stdio::piped()).stderr(errors).spawn().context("run timeout")?;
    let output = running.stdout.take().context("the emulator has no output")?;
    let (booted, boots) = mpsc::channel::<()>();
    let emulator = running.id();
    let watch = thread::spawn(move || {
        // Only a timeout means that the payload was not started in time: the channel is closed if the emulator ends before.
        if boots.recv_timeout(BOOT_LIMIT) == Err(RecvTimeoutError::Timeout) {
            // `timeout` passes the signal to the emulator.
            drop(Command::new("kill").arg(emulator.to_string()).status());
        }
    });
    let mut has_booted = false;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("read the guest's console")?;
        kept.write_all(&line)?;
        kept.write_all(b"\n")?;
        if let Some(said) = String::from_utf8_lossy(&line).trim_end().strip_prefix("guest: ") {
            if !has_booted && said.contains(PAYLOAD_STARTS) {
                has_booted = true;
                // Fails only if the watching thread has ended.
                booted.send(()).ok();
            }
            println!("vm {name}: {said}");
        }
    }
    drop(booted);
    drop(watch.join());
    Ok((running.wait().context("wait for the emulator")?, has_booted))
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
fn turn() -> Result<File> {
    let cache = cache()?;
    loop {
        for number in 0..at_once() {
            let turn = File::create(cache.join(format!("guest-{number}.lock")))?;
            match turn.try_lock() {
                Ok(()) => return Ok(turn),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(why)) => return Err(why).context("wait for another guest"),
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Returns QEMU's clock options. If the clock counts instructions, idle time passes at once.
fn clock(pace: Pace) -> &'static [&'static str] {
    match pace {
        Pace::Time => &[],
        Pace::Instructions => &["-icount", "shift=0,sleep=off"],
    }
}

fn machine(machine: Machine) -> &'static [&'static str] {
    match machine {
        Machine::Amd64 => &["-M", "pc", "-cpu", "qemu64"],
        Machine::Arm64 => &["-M", "virt,gic-version=3", "-cpu", "cortex-a76"],
    }
}

fn command_line(guest: &Guest) -> String {
    let (terminal, own) = match guest.machine {
        // The kernel checks its timer against real time. This check fails on a busy host, so it is switched off.
        Machine::Amd64 => ("ttyS0", "no_timer_check"),
        // With separate page tables for user space, each system call and interrupt would empty QEMU's TLB: a third of its time.
        Machine::Arm64 => ("ttyAMA0", "kpti=off"),
    };
    // Longer limits for the kernel's watchdogs: a busy host may not run a virtual processor for half a minute, which is
    // no fault of the guest's kernel.
    let patience = "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300";
    format!("console={terminal} panic=-1 quiet {patience} {own} {}", guest.parameters)
}

/// Writes the initial file system. The kernel unpacks its archives in order: user space, modules, files of this run.
fn initial_file_system(images: &Images, payload: &Path, file: &Path) -> Result<()> {
    let mut out = File::create(file)?;
    for part in [&images.user, &images.modules] {
        io::copy(&mut File::open(part).with_context(|| format!("open {}", part.display()))?, &mut out)?;
    }
    let own = file.with_extension("own");
    fresh(&own)?;
    fs::write(own.join("init"), include_bytes!("init.sh"))?;
    fs::set_permissions(own.join("init"), fs::Permissions::from_mode(0o755))?;
    command::run(Command::new("cp").args(["-r", "--"]).arg(payload).arg(own.join("payload")))?;
    cpio::append(&own, file)?;
    Ok(fs::remove_dir_all(own)?)
}

/// Unpacks the archive at the start of the disk, if the guest has written one.
fn unpack_results(disk: &Path, directory: &Path) -> Result<()> {
    let mut start = [0; 262];
    let written = File::open(disk).and_then(|mut file| io::Read::read_exact(&mut file, &mut start)).is_ok();
    if !written || !start.ends_with(b"ustar") {
        return Ok(());
    }
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--no-same-owner", "--warning=no-timestamp", "--file"]);
    command::run(tar.arg(disk).arg("--directory").arg(directory))
}

/// Messages that a healthy kernel does not print.
const COMPLAINTS: [&str; 12] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "Call Trace:",
    "Call trace:",
    "Kernel panic",
    "general protection fault",
    "INFO: rcu",
    "INFO: task",
    "soft lockup",
    "refcount_t:",
    "Unable to handle kernel",
];

/// Returns the faults in the kernel's log and in the taint flags. The flags stay set after a message has left the log's buffer: 128 is an oops, 512 a
/// warning.
fn complaints(kept: &Path, console: &Path) -> Result<Vec<String>> {
    let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut text = read(console)?;
    text.push_str(&read(&kept.join("dmesg.txt")).unwrap_or_default());
    let mut found: Vec<String> = complaining(&text).into_iter().map(str::to_owned).collect();
    let taint: u64 = read(&kept.join("tainted.txt")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if taint & (128 | 512) != 0 {
        found.push(format!("the kernel is tainted: {taint}"));
    }
    Ok(found)
}

fn complaining(log: &str) -> Vec<&str> {
    log.lines().filter(|line| COMPLAINTS.iter().any(|word| line.contains(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::complaining;

    #[test]
    fn complaints_are_found_in_a_log() {
        let log = "[    1.0] Linux version 6.1\n[   12.1] WARNING: CPU: 0 PID: 1 at kernel/bpf/trampoline.c:1 x+0x1/0x2\n[   13.0] ok";
        assert_eq!(complaining(log).len(), 1);
        assert!(complaining("[    1.0] Linux version 6.1").is_empty());
    }
}
