//! Shared counters, compared with plain perf counters that are open at about the same time.
//!
//! A plain counter is read before and after counting begins, and before and after it ends. This gives bounds that hold
//! for any other load of the machine: the shared count is at least the inner difference and at most the outer
//! difference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bprec_fixtures::{Counter, SoftwareEvent, thread_id};
use bprec_record::{CounterTarget, Shared};
use common::{PrivateBpf, SPIN, Shell, allowed, check_near, check_share, check_within, options, say, settled, values};

#[test]
fn machine_and_cpus_come_to_what_plain_counters_come_to() {
    let test = "machine_and_cpus_come_to_what_plain_counters_come_to";
    if !allowed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    let events =
        [SoftwareEvent::CpuClock, SoftwareEvent::TaskClock, SoftwareEvent::PageFaults, SoftwareEvent::ContextSwitches];
    let mut plain: Vec<Counter> = events.iter().map(|event| Counter::of_machine(*event).unwrap()).collect();
    plain.extend(events.iter().map(|event| Counter::of_cpu(*event, 0).unwrap()));
    let read = || plain.iter().map(|it| it.value().unwrap()).collect::<Vec<u64>>();
    let mut at = vec![read()];
    let targets = [CounterTarget::Machine, CounterTarget::Cpu(0)];
    let list = "cpu-clock,task-clock,page-faults,context-switches";
    let mut shared = Shared::start(&options(&bpf, list, &targets), say).unwrap();
    at.push(read());
    for _ in 0..20 {
        assert!(Command::new("true").status().unwrap().success());
        thread::sleep(Duration::from_millis(10));
    }
    let middle = shared.snapshot();
    at.push(read());
    let last = shared.finish();
    at.push(read());
    for target in 0..targets.len() {
        for (event, value) in values(&last, target).into_iter().enumerate() {
            let of = |time: usize| at[time][target * events.len() + event];
            check_within(&format!("target {target}, event {event}"), value, [of(0), of(1), of(2), of(3)]);
            assert!(value >= values(&middle, target)[event], "totals do not decrease");
        }
    }
    assert!(!bpf.map().exists(), "the last user removes the map");
}

#[test]
fn a_process_is_counted_with_the_children_it_forks() {
    if !allowed("a_process_is_counted_with_the_children_it_forks") {
        return;
    }
    let bpf = PrivateBpf::mount();
    // Children and grandchildren, in parallel and in sequence; some end before others start.
    let script =
        format!("for i in 1 2; do (sh -c true) & ls / >/dev/null; wait; sh -c '{SPIN}'; {SPIN}; done; read end");
    let mut shell = Shell::held(&script);
    let pid = shell.id();
    let plain = [SoftwareEvent::TaskClock, SoftwareEvent::PageFaults, SoftwareEvent::ContextSwitches]
        .map(|event| Counter::of_task(event, pid.cast_signed()).unwrap());
    let alone = CounterTarget::Process { id: pid, children: false };
    let list = "task-clock,page-faults,context-switches";
    let mut only =
        Shared::start(&options(&bpf, list, &[alone, CounterTarget::Thread(std::process::id())]), say).unwrap();
    let mut shared =
        Shared::start(&options(&bpf, list, &[CounterTarget::Process { id: pid, children: true }]), say).unwrap();
    shell.go();
    settled(&plain[0]);
    let (last, only) = (shared.snapshot(), only.snapshot());
    let plain = plain.map(|counter| counter.value().unwrap());
    let (all, only) = (values(&last, 0), values(&only, 0));
    drop(shared);
    drop(shell);
    check_share("page faults", all[1], plain[1]);
    assert!(plain[1] > 300, "the load caused only {} page faults", plain[1]);
    check_near("task-clock", all[0], plain[0], plain[2]);
    // The kernel counts a switch after our reading and for the previous task: each task may have one switch more or less.
    assert!(all[2].abs_diff(plain[2]) <= 60, "{} context switches, but {} by a plain counter", all[2], plain[2]);
    assert!(only[1] > 0 && only[1] < all[1] / 2, "{} page faults without children, {} with children", only[1], all[1]);
}

/// Guard that sets the flag when the guard is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn threads_are_counted_one_by_one_and_with_their_process() {
    if !allowed("threads_are_counted_one_by_one_and_with_their_process") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let quit = AtomicBool::new(false);
    let (at, last, whole, second) = thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let quit = &quit;
        // Also stops the threads if a check below panics, because the scope waits for them.
        let stop = SetAtEnd(quit);
        let busy = move || {
            tell.send(thread_id()).unwrap();
            while !quit.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        scope.spawn(busy.clone());
        let first = told.recv().unwrap();
        let plain = Counter::of_task(SoftwareEvent::TaskClock, first).unwrap();
        let mut at = vec![plain.value().unwrap()];
        let targets = [CounterTarget::Thread(first.cast_unsigned())];
        let shared = Shared::start(&options(&bpf, "task-clock", &targets), say).unwrap();
        let process = CounterTarget::Process { id: std::process::id(), children: false };
        let whole = Shared::start(&options(&bpf, "task-clock", &[process]), say).unwrap();
        at.push(plain.value().unwrap());
        // A second thread, which starts during the count.
        scope.spawn(busy.clone());
        let second = told.recv().unwrap();
        let plain_second = Counter::of_task(SoftwareEvent::TaskClock, second).unwrap();
        thread::sleep(Duration::from_millis(300));
        at.push(plain.value().unwrap());
        let last = shared.finish();
        at.push(plain.value().unwrap());
        let second = plain_second.value().unwrap();
        drop(stop);
        (at, last, whole.finish(), second)
    });
    check_within("one thread", values(&last, 0)[0], [at[0], at[1], at[2], at[3]]);
    let (whole, first) = (values(&whole, 0)[0], at[2] - at[1]);
    assert!(whole > first + second / 2, "the process has {whole}, two of its threads have {first} and {second}");
}

#[test]
fn a_slice_that_is_in_progress_at_both_ends_is_counted_to_the_moment() {
    if !allowed("a_slice_that_is_in_progress_at_both_ends_is_counted_to_the_moment") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let mut unmoved = false;
    for _ in 0..4 {
        // Runs at real-time priority, so that ordinary tasks do not preempt the shell.
        let script = "chrt -f -p 1 $$ 2>/dev/null; n=0; while [ $n -lt 9000000 ]; do n=$((n+1)); done";
        let mut shell = Shell::held(script);
        let pid = shell.id();
        let task = |event| Counter::of_task(event, pid.cast_signed()).unwrap();
        let (clock, switches) = (task(SoftwareEvent::TaskClock), task(SoftwareEvent::ContextSwitches));
        shell.go();
        thread::sleep(Duration::from_millis(100));
        let mut at = vec![clock.value().unwrap()];
        let shared =
            Shared::start(&options(&bpf, "task-clock", &[CounterTarget::Process { id: pid, children: true }]), say)
                .unwrap();
        at.push(clock.value().unwrap());
        let before = switches.value().unwrap();
        thread::sleep(Duration::from_millis(300));
        at.push(clock.value().unwrap());
        let last = shared.finish();
        at.push(clock.value().unwrap());
        let after = switches.value().unwrap();
        drop(shell);
        check_within("a busy task", values(&last, 0)[0], [at[0], at[1], at[2], at[3]]);
        if after == before {
            unmoved = true;
            break;
        }
    }
    if !unmoved {
        println!("SKIP a_slice_that_is_in_progress_at_both_ends_is_counted_to_the_moment: no slice lasted for 300 ms");
    }
}

/// Mount point of the unified hierarchy.
fn cgroup_root() -> Option<PathBuf> {
    bprec_host::mounts_of_type(b"cgroup2").unwrap().into_iter().next()
}

/// Cgroups nested three levels deep, removed on drop.
struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    fn make(root: &Path, name: &str) -> Cgroups {
        let a = root.join(format!("bprec-{name}-{}", std::process::id()));
        let made = Cgroups(vec![a.clone(), a.join("b"), a.join("b/c")]);
        made.0.iter().for_each(|path| fs::create_dir(path).unwrap());
        made
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // A cgroup may stay busy for some time after its last task has ended.
            for _ in 0..100 {
                if fs::remove_dir(path).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn cgroups_three_deep_add_up() {
    let test = "cgroups_three_deep_add_up";
    if !allowed(test) {
        return;
    }
    let Some(root) = cgroup_root() else {
        println!("SKIP {test}: no cgroup2 is mounted");
        return;
    };
    let bpf = PrivateBpf::mount();
    let cgroups = Cgroups::make(&root, "deep");
    let mut load: Vec<Shell> = (1..=3)
        .map(|times| Shell::held(&format!("ls / >/dev/null; for i in $(seq {times}); do {SPIN}; done; read end")))
        .collect();
    for (shell, cgroup) in load.iter().zip(&cgroups.0) {
        fs::write(cgroup.join("cgroup.procs"), shell.id().to_string()).unwrap();
    }
    let plain: Vec<[Counter; 3]> = load
        .iter()
        .map(|shell| {
            [SoftwareEvent::PageFaults, SoftwareEvent::TaskClock, SoftwareEvent::ContextSwitches]
                .map(|event| Counter::of_task(event, shell.id().cast_signed()).unwrap())
        })
        .collect();
    // Targets by path below the root, and by directory.
    let below = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_owned();
    let targets = [
        CounterTarget::Cgroup(below(&cgroups.0[0])),
        CounterTarget::Cgroup(cgroups.0[1].clone()),
        CounterTarget::Cgroup(below(&cgroups.0[2])),
        CounterTarget::Machine,
    ];
    let started = Shared::start(&options(&bpf, "page-faults,task-clock", &targets), say);
    if bprec_host::kernel_version() < (5, 14) {
        let refused = started.unwrap_err().to_string();
        assert!(refused.contains("counting by cgroup needs Linux 5.14 or later; count processes (-p)"), "{refused}");
        println!("SKIP {test}: {refused}");
        return;
    }
    let mut shared = started.unwrap();
    load.iter_mut().for_each(Shell::go);
    plain.iter().for_each(|counters| settled(&counters[1]));
    let last = shared.snapshot();
    let plain: Vec<[u64; 3]> = plain.iter().map(|it| [0, 1, 2].map(|event| it[event].value().unwrap())).collect();
    drop((shared, load));
    for depth in 0..3 {
        let expected = [0, 1, 2].map(|event| plain[depth..].iter().map(|it| it[event]).sum::<u64>());
        let found = values(&last, depth);
        check_share("page faults", found[0], expected[0]);
        check_near("task-clock", found[1], expected[1], expected[2]);
    }
    assert!(values(&last, 3)[0] >= values(&last, 0)[0]);
    let name = String::from_utf8_lossy(&last.targets[1].name).into_owned();
    assert_eq!(name, format!("/{}", below(&cgroups.0[1]).display()));
}

#[test]
fn a_cgroup_that_is_not_there_is_said() {
    if !allowed("a_cgroup_that_is_not_there_is_said") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let target = CounterTarget::Cgroup("no/such/cgroup".into());
    let refused = Shared::start(&options(&bpf, "cpu-clock", &[target]), say).unwrap_err().to_string();
    assert!(refused.starts_with("cgroup no/such/cgroup: "), "{refused}");
    assert!(!bpf.map().exists());
}

#[test]
fn a_process_that_is_gone_is_no_zero() {
    if !allowed("a_process_that_is_gone_is_no_zero") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let mut child = Command::new("true").spawn().unwrap();
    let id = child.id();
    child.wait().unwrap();
    let targets = [CounterTarget::Process { id, children: true }, CounterTarget::Cpu(4000)];
    let last = Shared::start(&options(&bpf, "cpu-clock", &targets), say).unwrap().finish();
    for (target, reason) in last.targets.iter().zip(["the task has ended or never existed", "CPU 4000 is not online"]) {
        assert_eq!((target.reason.as_str(), target.readings.len()), (reason, 0));
    }
}

#[test]
#[ignore = "run by another test"]
fn exec_in_a_thread() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    // The first thread of the process ends, and this thread takes over its id.
    let script = "for i in 1 2 3 4 5 6 7 8 9; do ls / >/dev/null; done; read end";
    thread::spawn(move || Command::new("sh").args(["-c", script]).exec()).join().unwrap();
}

#[test]
fn a_thread_that_takes_its_process_number_by_exec_stays_counted() {
    if !allowed("a_thread_that_takes_its_process_number_by_exec_stays_counted") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let mut shell = Shell::of(
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "exec_in_a_thread", "--nocapture"])
            .stdout(Stdio::null()),
    );
    let target = CounterTarget::Process { id: shell.id(), children: true };
    let mut shared = Shared::start(&options(&bpf, "page-faults,task-clock", &[target]), say).unwrap();
    // Plain counters for each thread of the process, which the children of the thread inherit.
    let threads = fs::read_dir(format!("/proc/{}/task", shell.id())).unwrap();
    let ids: Vec<i32> = threads.map(|it| it.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let plain: Vec<Counter> = ids.iter().map(|id| Counter::of_task(SoftwareEvent::PageFaults, *id).unwrap()).collect();
    shell.go();
    plain.iter().for_each(settled);
    let found = values(&shared.snapshot(), 0);
    let expected: u64 = plain.iter().map(|it| it.value().unwrap()).sum();
    drop(shell);
    check_share("page faults", found[0], expected);
    assert!(expected > 500, "{expected}");
}
#[test]
fn events_that_are_not_to_be_had_are_said_and_the_others_counted() {
    if !allowed("events_that_are_not_to_be_had_are_said_and_the_others_counted") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let shared =
        Shared::start(&options(&bpf, "cpu-clock,cycles,instructions", &[CounterTarget::Machine]), say).unwrap();
    let events = shared.events().clone();
    assert_eq!(events.events.len() + events.absent.len(), 3);
    assert!(events.absent.iter().all(|it| !it.reason.is_empty() && it.name != "cpu-clock"));
    let last = shared.finish();
    assert_eq!(last.targets[0].readings.len(), events.events.len());
    let too_many = options(&bpf, "cpu-clock,".repeat(9).trim_end_matches(','), &[CounterTarget::Machine]);
    assert!(Shared::start(&too_many, say).unwrap_err().to_string().contains("count at most 8 events"));
}
