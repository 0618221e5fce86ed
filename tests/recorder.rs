//! The recorder among other processes: state that it must not change, its ending, and its messages. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    self, Running, Scratch, bpf_ids, bprec, perf, perf_installed, record, report, root, skip, succeed, wait_for,
};
use bprec_fixtures::Fixture;

/// Command that ignores SIGCHLD for its child; a shell cannot pass this setting on, so `env` is needed.
const IGNORING_CHILDREN: &str = "env --ignore-signal=CHLD";
/// Time limit for every command here; only a command that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs bprec from a shell, by a command that first changes a setting. bprec must end by itself.
fn from_shell(by: &str, arguments: &str) -> Output {
    let script = format!("exec {by} \"$0\" {arguments}");
    let child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_bprec")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    ended(child)
}

/// Every view that shows owners marks the recorder's own programs with bprec as their owner. Another tool's program whose name also begins with
/// `bprec_` keeps its real owner.
#[test]
fn programs_of_the_recorder_are_its_own_and_no_others() {
    let test = "programs_of_the_recorder_are_its_own_and_no_others";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let (object, path) = (scratch.path("renamed.o"), scratch.path("perf.data"));
    let pin = PathBuf::from(format!("/sys/fs/bpf/bprec-test-{}", std::process::id()));
    let mut bytes = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/bpf/churn.bpf.o")).unwrap();
    let (old, new) = (b"churn_000000", b"bprec_filter");
    while let Some(at) = bytes.windows(old.len()).position(|bytes| bytes == old) {
        bytes[at..at + old.len()].copy_from_slice(new);
    }
    fs::write(&object, bytes).unwrap();
    succeed(Command::new("bpftool").args(["prog", "load"]).arg(&object).arg(&pin));
    let mut recorder =
        bprec().args(["record", "-q", "-a", "-o"]).arg(&path).args(["--", "sleep", "1"]).spawn().unwrap();
    let recorded = recorder.wait().unwrap();
    fs::remove_file(&pin).unwrap();
    assert!(recorded.success(), "{recorded:?}");
    let table = |arguments: &[&str]| {
        let output = succeed(bprec().arg("report").args(arguments).arg("-i").arg(&path));
        String::from_utf8(output.stdout).unwrap()
    };
    let programs = table(&["--all", "--wide", "--columns", "program,owner"]);
    let owner = |name: &str| {
        let mut words = programs.lines().map(|line| line.split_whitespace().skip_while(|word| *word != name).skip(1));
        words.find_map(|words| Some(words.collect::<Vec<_>>().join(" ")).filter(|owner| !owner.is_empty()))
    };
    assert_eq!(owner("bprec_filter"), Some(pin.display().to_string()), "{programs}");
    let report = report(&path, &["--all"]);
    let refs = report["programs"].as_array().unwrap().iter().filter(|it| it["name"] == "bprec_refs");
    let mut holders = refs.clone().flat_map(|it| it["owners"].as_array().unwrap()).map(|owner| owner["pid"].as_u64());
    if refs.count() == 0 {
        return skip(test, "this kernel has no iterator over programs");
    }
    // Other recorders on the machine may have programs of this name, too; their owners are those recorders.
    assert!(holders.any(|pid| pid == Some(u64::from(recorder.id()))), "{report:#}");
    let is_marked = |line: &str| line.contains("bprec_refs") && line.trim_end().ends_with("(bprec)");
    assert!(programs.lines().any(is_marked), "{programs}");
    let owners = table(&["--all", "--by", "owner"]);
    assert!(owners.contains("  (bprec)  "), "{owners}");
    let bill = table(&["--bill"]);
    assert!(bill.lines().any(|line| line.trim_start().starts_with("bprec/")), "{bill}");
}

/// Output of a process, which must end within [`PATIENCE`].
fn ended(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the recorder does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn under_nohup_a_hangup_ends_nothing() {
    if !root("under_nohup_a_hangup_ends_nothing") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" record -q -a -F 99 -o \"$1\"", env!("CARGO_BIN_EXE_bprec")])
        .arg(&path)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("records", || support::has_checkpoint(&path));
    signal(&child, "-HUP");
    let before = fs::metadata(&path).unwrap().len();
    wait_until("more records", || fs::metadata(&path).unwrap().len() > before + 10_000);
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, "-INT");
    assert!(ended(child).status.success());
}

#[test]
fn the_exit_code_is_the_commands() {
    if !root("the_exit_code_is_the_commands") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let record = format!("record -q -F 99 -o {} --", path.display());
    // If a process ignores SIGCHLD, the kernel reaps its children and keeps no exit code.
    for by in ["env", IGNORING_CHILDREN] {
        for (command, code) in [("true", 0), ("'exit 3'", 3), ("'kill -KILL $$'", 137)] {
            let output = from_shell(by, &format!("{record} sh -c {command}"));
            assert_eq!(output.status.code(), Some(code), "{by} {command}: {output:?}");
        }
    }
    // The command has the same environment as without bprec: ignored signals and the limit on open files are not reset.
    let said = scratch.path("said");
    let of_command = |command: &str| {
        let arguments = format!("{record} {command} > {}", said.display());
        assert!(
            from_shell(&format!("sh -c 'ulimit -Sn 321; exec \"$@\"' sh {IGNORING_CHILDREN}"), &arguments)
                .status
                .success()
        );
        fs::read_to_string(&said).unwrap()
    };
    assert_eq!(of_command("sh -c 'ulimit -Sn'"), "321\n");
    let text = of_command("grep SigIgn /proc/self/status");
    let ignored = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored >> 16 & 1, 1, "{text}");
}

#[test]
fn a_count_of_programs_ends_with_its_command_wherever_it_is_started() {
    if !root("a_count_of_programs_ends_with_its_command_wherever_it_is_started") {
        return;
    }
    let output = from_shell(IGNORING_CHILDREN, "stat -x, -- sh -c 'exit 4'");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}

#[test]
fn a_process_that_nobody_waits_for_has_ended() {
    if !root("a_process_that_nobody_waits_for_has_ended") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut zombie = Command::new("sleep").arg("1").spawn().unwrap();
    let child = bprec()
        .args(["record", "-q", "-F", "99", "-p", &zombie.id().to_string(), "-o"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(ended(child).status.success());
    zombie.wait().unwrap();
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let fail = |arguments: &[&str]| {
        let output = bprec().args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = fail(&["record", "-m", "100G", "-o", "/dev/null", "--", "true"]);
    assert!(said.contains("100G") && said.contains("1 GiB"), "{said}");
    let said = fail(&["record", "--no-such-option", "--", "true"]);
    assert!(said.contains("--no-such-option") && !said.contains("-- --no-such-option"), "{said}");
    if root("what_cannot_be_meant_is_refused") {
        let said = fail(&["stat", "--bpf-counters", "-x,", "-p", "4194303"]);
        assert!(!said.is_empty());
    }
}

#[test]
fn a_pipe_gets_the_recording() {
    if !root("a_pipe_gets_the_recording") {
        return;
    }
    let scratch = Scratch::new();
    let mut command = bprec();
    command.args(["record", "-a", "-F", "99", "--", "sleep", "0.2"]).current_dir(scratch.path("."));
    let output = succeed(&mut command);
    assert!(output.stdout.starts_with(b"PERFILE2"));
    assert!(!scratch.path("perf.data").exists());
    // If standard output is not a pipe, the file has its usual name.
    command.stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    assert!(scratch.path("perf.data").exists());
}

#[test]
fn a_reader_that_pauses_delays_no_drain() {
    const PAUSE: Duration = Duration::from_secs(3);
    /// More bytes than the pipe and the kernel's rings can hold together.
    const AT_LEAST_BYTES: u64 = 2 << 20;
    if !root("a_reader_that_pauses_delays_no_drain") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("stream.data");
    let busy = "timeout 4 sh -c 'while :; do :; done' & timeout 4 sh -c 'while :; do /bin/true; done'; exit 0";
    let mut child = bprec()
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "9999", "-g", "-o", "-", "--", "sh", "-c", busy])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = child.stdout.take().unwrap();
    thread::sleep(PAUSE);
    std::io::copy(&mut stream, &mut fs::File::create(&path).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes > AT_LEAST_BYTES, "{bytes} bytes do not fill a pipe");
    let header = succeed(bprec().args(["report", "--header-only", "-i"]).arg(&path));
    let header = String::from_utf8(header.stdout).unwrap();
    let gap = header.lines().find_map(|line| line.split_once("longest time between two reads of the ring buffers : "));
    let gap_ms: f64 = gap
        .expect("the header has the longest time between two reads of the ring buffers")
        .1
        .trim_end_matches(" ms")
        .parse()
        .unwrap();
    assert!(gap_ms < PAUSE.as_millis() as f64 / 4.0, "{gap_ms} ms between two reads of the ring buffers");
}

#[test]
fn nothing_is_attached_unless_it_is_asked_for() {
    if !root("nothing_is_attached_unless_it_is_asked_for") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = Fixture::churn(77).unwrap().start().unwrap();
    record(&path, &["-q", "-a", "-F", "99", "--", "sleep", "0.2"]);
    drop(loaded);
    assert_eq!(report(&path, &["--all"])["recording"]["counters"], "stats");
    let header = succeed(bprec().args(["report", "--header-only", "-i"]).arg(&path));
    let header = String::from_utf8(header.stdout).unwrap();
    assert!(header.contains("# longest time between two reads of the ring buffers : "), "{header}");
}

#[test]
fn programs_that_everyone_else_let_go_of_are_not_held() {
    if !root("programs_that_everyone_else_let_go_of_are_not_held") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let child = bprec().args(["record", "-q", "-a", "-F", "99", "-o"]).arg(&path).spawn().unwrap();
    wait_until("records", || support::has_checkpoint(&path));
    let known: Vec<(u32, String)> = (200..220)
        .flat_map(|number| {
            let loaded = Fixture::churn(number).unwrap().start().unwrap();
            loaded.programs().unwrap().into_iter().map(|program| (program.id, program.name)).collect::<Vec<_>>()
        })
        .collect();
    wait_until("programs to be unloaded", || {
        let there = bpf_ids("prog");
        known.iter().all(|(id, _)| !there.contains(&u64::from(*id)))
    });
    assert!(Path::new(&format!("/proc/{}", child.id())).exists());
    signal(&child, "-INT");
    assert!(ended(child).status.success());
    let report = report(&path, &["--all"]);
    let programs = report["programs"].as_array().unwrap();
    let missed = report["missed"].as_array().unwrap();
    for (id, name) in &known {
        if missed.iter().any(|program| program["id"] == *id) {
            continue;
        }
        let program = programs.iter().find(|program| program["id"] == *id).unwrap_or_else(|| panic!("{id} {name}"));
        assert_eq!((&program["captured"], program["functions"].is_array()), (&true.into(), true), "{program:#}");
    }
    assert!(missed.len() < known.len());
}

#[test]
fn a_tracepoint_whose_samples_programs_keep_is_said() {
    if !root("a_tracepoint_whose_samples_programs_keep_is_said") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = Fixture::TP.open().unwrap().for_this_thread().unwrap().start().unwrap();
    let output = record(&path, &["-q", "-a", "-e", "raw_syscalls:sys_enter", "--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("raw_syscalls:sys_enter: other tools attached BPF programs to this event (id "), "{said}");
    drop(loaded);
}

/// Tasks outside of the recorder's pid namespace have no pid in it. The kernel reports 0, as for idle CPUs; the tasks must not be named swapper.
#[test]
fn tasks_outside_of_a_pid_namespace_are_unknown() {
    let test = "tasks_outside_of_a_pid_namespace_are_unknown";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    // Outside of the namespace: a busy task, and tasks that set their own names.
    let mut busy = Command::new("dd");
    busy.args(["if=/dev/zero", "of=/dev/null", "bs=1"]).stderr(Stdio::null());
    let mut starting = Command::new("sh");
    starting.args(["-c", "while true; do /bin/true; done"]);
    let loads = [busy.spawn().unwrap(), starting.spawn().unwrap()];
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_bprec")])
        .args(["record", "-a", "-e", "cpu-clock", "-F", "999", "-o"])
        .arg(&path)
        .args(["--", "sleep", "1"])
        .output()
        .unwrap();
    for mut load in loads {
        load.kill().unwrap();
        load.wait().unwrap();
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("pid namespace"), "{said}");
    let script = succeed(bprec().args(["script", "-F", "comm,pid", "-i"]).arg(&path)).stdout;
    let script = String::from_utf8_lossy(&script);
    let foreign = script.lines().filter(|line| line.trim_start().starts_with("[unknown]")).count();
    // The task has nearly a second of CPU time.
    assert!(foreign > 300 && !script.contains("swapper"), "{foreign} samples of foreign tasks");
    // The load alone has at least half of one CPU's time.
    let cpus = thread::available_parallelism().unwrap().get();
    let idle = report(&path, &[])["events"][0]["idle"]["percent"].as_f64().unwrap();
    assert!(idle < 100.0 - 50.0 / cpus as f64, "{idle} % idle of {cpus} CPUs");
    // BPF programs of bprec see ids of the initial namespace, which belong to other tasks in this namespace.
    for option in ["--bpf-sampler", "--aggregate"] {
        let output = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_bprec")])
            .args(["record", "-a", "-e", "cpu-clock", option, "-o"])
            .arg(&path)
            .args(["--", "true"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("initial pid namespace"), "{option}: {said}");
    }
}

/// Number of pages that the load touches, one fault each.
const PAGES: usize = 3000;
/// Number of sleeping threads of the load.
const THREADS: usize = 1100;

/// The load, in a separate process: after a line in the FIFO `go`, one of many threads touches pages; then it writes to `done`.
#[test]
#[ignore = "run by another test"]
fn many_threads_of_which_one_touches_pages() {
    let fifo = |name: &str| Path::new(&std::env::var("FIFOS").unwrap()).join(name);
    let sleep = || {
        loop {
            thread::park();
        }
    };
    for _ in 0..THREADS {
        thread::Builder::new().stack_size(16 << 10).spawn(sleep).unwrap();
    }
    fs::write(fifo("ready"), "").unwrap();
    fs::read(fifo("go")).unwrap();
    let touch = move || {
        // SAFETY: a plain system call, which disables huge pages, so that each page causes one fault.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        let mut memory: Vec<u8> = Vec::with_capacity(PAGES * 4096);
        for page in 0..PAGES {
            memory.spare_capacity_mut()[page * 4096].write(1);
        }
        fs::write(fifo("done"), "").unwrap();
    };
    thread::Builder::new().name("toucher".to_owned()).spawn(touch).unwrap().join().unwrap();
    sleep();
}

/// A cgroup, removed on drop.
struct OwnCgroup(PathBuf);

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // The cgroup is empty some time after its last task.
        wait_for("an empty cgroup", || fs::remove_dir(&self.0).is_ok().then_some(()));
    }
}

/// Events of all threads on all CPUs would need thousands of descriptors. The process has its own cgroup, so the recorder uses events of the cgroup.
#[test]
fn a_process_of_many_threads_is_recorded_by_way_of_its_cgroup() {
    let test = "a_process_of_many_threads_is_recorded_by_way_of_its_cgroup";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let unified = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words[2] == "cgroup2");
    let Some(unified) = unified else {
        return skip(test, "no cgroup2 is mounted");
    };
    let scratch = Scratch::new();
    let cgroup = OwnCgroup(Path::new(unified[1]).join(format!("bprec-threads-{}", std::process::id())));
    fs::create_dir(&cgroup.0).unwrap();
    let fifos = ["ready", "go", "done"].map(|name| scratch.path(name));
    succeed(Command::new("mkfifo").args(&fifos));
    let mut load = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "recorder::many_threads_of_which_one_touches_pages"])
        .env("FIFOS", scratch.path(""))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    fs::read(&fifos[0]).unwrap();
    fs::write(cgroup.0.join("cgroup.procs"), load.id().to_string()).unwrap();
    let (path, pid) = (scratch.path("perf.data"), load.id().to_string());
    let script = "echo > go; cat done; ls -l /proc/$PPID/fd | grep -c perf_event > descriptors; true";
    let output = bprec()
        .current_dir(scratch.path(""))
        .args(["record", "-v", "-p", &pid, "-e", "page-faults", "-c", "1", "-o"])
        .arg(&path)
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("threads through their cgroup"), "{said}");
    let descriptors = fs::read_to_string(scratch.path("descriptors")).unwrap();
    assert!(descriptors.trim().parse::<usize>().unwrap() < THREADS, "{descriptors} events for {THREADS} threads");
    let script = perf(&["script", "-F", "comm,pid,event", "-i", path.to_str().unwrap()]);
    let words = || script.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let samples = || words().filter(|words| words[2] == "page-faults:");
    assert!(samples().all(|words| words[1] == pid), "{script}");
    let touched = samples().filter(|words| words[0] == "toucher").count();
    // Stack and output of the thread cause a few more faults.
    assert!((PAGES..PAGES + 100).contains(&touched), "{touched} samples of {PAGES} faults");
}

/// The first of several threads ends; its events own the rings. The other threads must still wake the recorder: a ring is full long before the
/// longest interval between two drains.
#[test]
fn a_thread_that_ends_takes_no_wakeups_of_others_along() {
    let test = "a_thread_that_ends_takes_no_wakeups_of_others_along";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let (tids, ended, begins) = (mpsc::channel(), Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        // SAFETY: a system call that takes nothing and cannot fail.
        let tid = || unsafe { libc::gettid() };
        let (first_tid, second_tid) = (tids.0.clone(), tids.0.clone());
        let first = scope.spawn({
            let ended = &ended;
            move || {
                first_tid.send(tid()).unwrap();
                ended.wait();
            }
        });
        let first_id = tids.1.recv().unwrap();
        let second = scope.spawn({
            let begins = &begins;
            move || {
                second_tid.send(tid()).unwrap();
                begins.wait();
                for _ in 0..100 {
                    let mut pages: Vec<u8> = Vec::with_capacity(40 * 4096);
                    for page in 0..40 {
                        pages.spare_capacity_mut()[page * 4096].write(1);
                    }
                    // Keeps the memory, so that the next round touches new pages.
                    std::mem::forget(pages);
                    thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let threads = format!("{first_id},{}", tids.1.recv().unwrap());
        let arguments = ["-e", "page-faults", "-c", "1", "-m", "4", "--counters", "off", "-t", &threads];
        let mut all = [OsStr::new("record"), OsStr::new("-o"), path.as_os_str()].to_vec();
        all.extend(arguments.map(OsStr::new));
        let recording = Running::start(&path, &all);
        ended.wait();
        first.join().unwrap();
        let task = format!("/proc/self/task/{first_id}");
        wait_for("the thread to end", || (!Path::new(&task).exists()).then_some(()));
        begins.wait();
        second.join().unwrap();
        recording.end();
    });
    // A busy machine may lose some samples, and perf prints a warning; without wakeups, half of the samples are lost.
    let printed = succeed(Command::new("perf").args(["script", "-F", "event", "-i"]).arg(&path));
    let samples = String::from_utf8_lossy(&printed.stdout).lines().count();
    assert!(samples >= 3_600, "{samples} of 4000 pages");
}
