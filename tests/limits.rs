//! Limits on time and memory of every command that reads, as measured by the kernel, for recordings that once exceeded these limits.
//! `bprec_generate::HOSTILE_SHAPES` makes the recordings; the fuzzer `shapes` makes more recordings of the same kinds.
//!
//! `BPREC_LIMITS` names the shapes to read, separated by commas; by default all.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use bprec_generate::HOSTILE_SHAPES;
use support::Scratch;

/// Fixed part of the limit on memory, which is in addition to the memory for a small recording.
const FIXED_BYTES: u64 = 4 << 20;
/// Part of the limit on memory for each byte of input.
const BYTES_PER_BYTE: u64 = 10;
/// Fixed part of the limit on the CPU time of all threads.
const FIXED_TIME: Duration = Duration::from_secs(1);
/// Part of the limit on CPU time for each byte of input.
const TIME_PER_BYTE: Duration = Duration::from_micros(1);

/// All commands that read. `{}` is the recording, `{out}` a file that does not exist.
const COMMANDS: &[&str] = &[
    "report {}",
    "report --json {}",
    "report --csv {}",
    "report --all {}",
    "report --all --counters {}",
    "report --by func {}",
    "report --by comm,cpu {}",
    "report --by hook {}",
    "report --tree {}",
    "report --payers {}",
    "report --bill {}",
    "report --without * --payers comm,cpu {}",
    "report --over-time {}",
    "report --lines {}",
    "report --advise {}",
    "report --maps {}",
    "report --maps --json {}",
    "report --header-only {}",
    "report --redact {}",
    "annotate * -i {}",
    "annotate * --json -i {}",
    "diff --all {} {}",
    "script {}",
    "script -D {}",
    "script -F +pid,+addr,+cgroup,+state --show-task-events --show-mmap-events --show-bpf-events {}",
    "export --to folded {}",
    "export --to pprof -o {out} {}",
    "export --to speedscope {}",
    "export --to firefox -o {out} {}",
    "export --to otlp -o {out} {}",
    "export --to html -o {out} {}",
    "rewrite -o {out} {}",
    "rewrite --redact=+progs -o {out} {}",
    "recover -o {out} {}",
];

/// Time and memory of a process.
struct Taken {
    status: i32,
    cpu: Duration,
    peak_bytes: u64,
}

/// Runs a command until it ends, or until it has used far more than the limits.
fn run(command: &str, recording: &Path, out: &Path, (cpu, memory_bytes): (Duration, u64)) -> Taken {
    let words = command.split(' ').map(|word| match word {
        "{}" => recording.as_os_str(),
        "{out}" => out.as_os_str(),
        word => word.as_ref(),
    });
    let mut process = Command::new(env!("CARGO_BIN_EXE_bprec"));
    process.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let limit = |resource, value: u64| {
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: sets an existing limit.
        unsafe { libc::setrlimit(resource, &limit) }
    };
    // The child is forked, not spawned, so its peak memory does not start with the peak of this process.
    // SAFETY: the closure makes system calls alone.
    let process = unsafe {
        process.pre_exec(move || {
            limit(libc::RLIMIT_CPU, 2 * cpu.as_secs() + 2);
            limit(libc::RLIMIT_AS, (1 << 30) + 2 * memory_bytes);
            limit(libc::RLIMIT_CORE, 0);
            Ok(())
        })
    };
    let id = process.spawn().unwrap().id();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: no other code waits for this child, and both pointers are valid; zeros are a valid value of all fields.
    let usage = unsafe {
        assert_eq!(libc::wait4(id as i32, &raw mut status, 0, usage.as_mut_ptr()), id as i32);
        usage.assume_init()
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, 1000 * time.tv_usec as u32);
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Taken { status, cpu, peak_bytes: usage.ru_maxrss as u64 * 1024 }
}

/// Returns the reason if a command exceeded the limits.
fn excess(taken: &Taken, (cpu, memory_bytes): (Duration, u64)) -> Option<String> {
    let has_ended = libc::WIFEXITED(taken.status) && matches!(libc::WEXITSTATUS(taken.status), 0..=2);
    let is_within = taken.cpu <= cpu && taken.peak_bytes <= memory_bytes;
    (!has_ended || !is_within).then(|| {
        format!(
            "status {:#x}, {:.2} s of {:.2} s, {} MB of {} MB",
            taken.status,
            taken.cpu.as_secs_f64(),
            cpu.as_secs_f64(),
            taken.peak_bytes >> 20,
            memory_bytes >> 20
        )
    })
}

#[test]
fn reading_takes_memory_and_time_in_proportion_to_the_input() {
    // Makes freed blocks of 1 MiB or more go back to the kernel at once: recordings are made in such blocks.
    // SAFETY: sets a number.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20) };
    let scratch = Scratch::new();
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-6.1/ratio.data");
    let enough = (Duration::from_secs(100), 1 << 30);
    let bases: Vec<u64> = COMMANDS
        .iter()
        .map(|command| {
            let base = run(command, &small, &scratch.path("out"), enough).peak_bytes;
            let _ = fs::remove_file(scratch.path("out"));
            base
        })
        .collect();
    let chosen = std::env::var("BPREC_LIMITS").unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').filter(|name| !name.is_empty()).collect();
    let mut found = Vec::new();
    for shape in HOSTILE_SHAPES.iter().filter(|shape| chosen.is_empty() || chosen.contains(&shape.name)) {
        let files = (shape.make)(shape.sizes.0, shape.sizes.1);
        let input_bytes = files.unpacked_bytes as u64;
        let recording = scratch.path(shape.name);
        fs::write(&recording, &files.recording).unwrap();
        let journal = recording.with_extension("journal");
        files.journal.iter().for_each(|bytes| fs::write(&journal, bytes).unwrap());
        drop(files);
        // Returns free memory to the kernel, which charges a child with the memory of this process at the fork.
        // SAFETY: gives free memory back.
        unsafe { libc::malloc_trim(0) };
        let left = Mutex::new(COMMANDS.iter().enumerate());
        let worker = || {
            let mut excesses = Vec::new();
            while let Some((number, command)) = { left.lock().unwrap().next() } {
                let inputs = command.matches("{}").count() as u32;
                let bytes = input_bytes * u64::from(inputs);
                let memory_bytes = bases[number] + FIXED_BYTES + BYTES_PER_BYTE * bytes;
                let allowed = (FIXED_TIME + TIME_PER_BYTE * bytes as u32, memory_bytes);
                let out = scratch.path(&format!("out.{number}"));
                let taken = run(command, &recording, &out, allowed);
                let _ = fs::remove_file(&out);
                excesses.extend(excess(&taken, allowed).map(|excess| (*command, excess)));
            }
            excesses
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let excesses: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        let said = |(command, excess)| format!("{} ({input_bytes} bytes): {command}: {excess}", shape.name);
        found.extend(excesses.into_iter().map(said));
        fs::remove_file(&recording).unwrap();
        let _ = fs::remove_file(&journal);
    }
    assert!(found.is_empty(), "{} commands exceed their limits:\n{}", found.len(), found.join("\n"));
}
