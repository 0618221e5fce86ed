//! `bprec record --overwrite`: the newest samples, in files that are complete by themselves. Real kernel, root; compared with perf.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{self, Scratch, bprec, perf, perf_installed, report, root, signal, wait_for};
use bprec_fixtures::Fixture;

/// Touches this number of new pages, one fault each, under this task name.
fn touch_pages(name: &CStr, pages: usize) {
    // SAFETY: a plain system call with a string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // SAFETY: the memory is private to this function, and each write is inside of it.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), pages * 4096, access, kind, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        (0..pages).for_each(|page| memory.cast::<u8>().add(page * 4096).write_volatile(1));
        libc::munmap(memory, pages * 4096);
    }
}

/// Samples in a file with this task name, as perf prints them.
fn samples(path: &Path, comm: &str) -> usize {
    let out = perf(&["script", "-F", "comm,event", "-i", path.to_str().unwrap()]);
    out.lines().filter(|line| line.trim().starts_with(comm) && line.contains("page-faults")).count()
}

/// Complete files of the recording, oldest first.
fn closed(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_closed = |path: &PathBuf| {
        let name = path.to_str().unwrap();
        name.contains("perf.data.2") && !name.ends_with(".journal") && !Path::new(&format!("{name}.journal")).exists()
    };
    let mut closed: Vec<PathBuf> = entries.filter(is_closed).collect();
    closed.sort();
    closed
}

/// One fault is one sample. If there are more samples than a ring holds, the file has the newest ones, and the next file begins where this file ends.
#[test]
fn the_newest_samples_are_in_the_file() {
    let test = "the_newest_samples_are_in_the_file";
    if !root(test) || !perf_installed(test) {
        return;
    }
    // All samples of one CPU are in one ring. Without huge pages, each page causes one fault.
    // SAFETY: plain system calls; for this set of CPUs, all zeros is a valid value.
    let thread = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0);
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        libc::gettid()
    };
    let loaded = Fixture::RAW_TP.open().unwrap().load().unwrap();
    let program: u32 = loaded.id_of("count_sched_switches").unwrap();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let recorder = bprec()
        .args(["record", "-q", "--overwrite", "-m", "256K", "-e", "page-faults", "-c", "1", "-t", &thread.to_string()])
        .arg("-o")
        .arg(&path)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    support::wait_for_checkpoint(&path);
    touch_pages(c"oldest", 20_000);
    touch_pages(c"newest", 300);
    signal(&recorder, "-USR2");
    let dumped = wait_for("a file", || closed(&path).pop());
    let newest = samples(&dumped, "newest");
    assert!((300..320).contains(&newest), "{newest}");
    // A sample without a call chain has its header and eight fields, 72 bytes, which limits the number in the ring.
    let oldest = samples(&dumped, "oldest");
    assert!(oldest > 100 && oldest + newest <= (256 << 10) / 72, "{oldest}");
    let info = perf(&["report", "--header-only", "-I", "-i", dumped.to_str().unwrap()]);
    assert!(info.contains(&format!("bpf_prog_info {program}:")), "{info}");

    touch_pages(c"later", 200);
    signal(&recorder, "-INT");
    assert!(recorder.wait_with_output().unwrap().status.success());
    let files = closed(&path);
    assert_eq!((files.len(), &files[0]), (2, &dumped));
    let (later, again) = (samples(&files[1], "later"), samples(&files[1], "oldest"));
    assert!((200..220).contains(&later), "{later}");
    assert_eq!(again, 0);
    assert!(!path.exists());
    let ours = report(&files[1], &["--all"]);
    let theirs = perf(&["script", "-F", "event", "-i", files[1].to_str().unwrap()]);
    let theirs = theirs.lines().filter(|line| line.contains("page-faults")).count();
    assert_eq!(ours["events"][0]["samples"]["samples"], theirs);
}
