//! Shared counters against plain perf counters that were open around the same time.
//!
//! A plain counter read before and after counting began, and before and after it ended, gives bounds that hold whatever else the machine does:
//! what was counted is at least the inner difference and at most the outer one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bprec_bpf::{AttrMap, Leader};
use bprec_fixtures::{Counter, SoftwareEvent, thread_id};
use bprec_record::{Level, Shared, SharedOptions, Whose};

fn allowed(test: &str) -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        println!("SKIP {test}: needs root");
    }
    root
}

/// A bpf file system for this test alone.
struct PrivateBpf(tempfile::TempDir);

impl PrivateBpf {
    fn mount() -> PrivateBpf {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(directory.path()).status().unwrap();
        assert!(status.success());
        PrivateBpf(directory)
    }

    fn map(&self) -> PathBuf {
        self.0.path().join("perf_attr_map")
    }
}

impl Drop for PrivateBpf {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).status());
    }
}

/// What was said; tests share one place for it.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn say(level: Level, text: &str) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{level:?}: {text}"));
}

fn options(bpf: &PrivateBpf, events: &str, targets: &[Whose]) -> SharedOptions {
    SharedOptions { events: vec![events.to_owned()], targets: targets.to_vec(), attr_map: Some(bpf.map()) }
}

/// Value of each event of the target at this place.
fn values(counters: &bprec_format::state::SharedCounters, target: usize) -> Vec<u64> {
    let target = &counters.targets[target];
    assert_eq!(target.reason, "");
    assert!(target.readings.iter().all(|reading| reading.enabled_ns == reading.running_ns));
    target.readings.iter().map(|reading| reading.value).collect()
}

/// Checks a value against a plain counter as it stood before and after the begin, and before and after the end.
#[track_caller]
fn check_within(what: &str, value: u64, plain: [u64; 4]) {
    let (inner, outer) = (plain[2] - plain[1], plain[3] - plain[0]);
    assert!((inner..=outer).contains(&value), "{what}: {value} is not within {inner} to {outer}");
}

/// A shell that waits for `go` before it runs the script, and has been waiting for a moment.
fn held(script: &str) -> (Child, ChildStdin) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    thread::sleep(Duration::from_millis(100));
    (child, stdin)
}

/// What keeps a shell busy for a while. Slices end later than what perf counts to a task, which it lets go of early in its exit: some
/// microseconds for each task, of which there should not be too many.
const SPIN: &str = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done";

fn go(stdin: &mut ChildStdin) {
    stdin.write_all(b"go\n").unwrap();
}

/// Waits until what a counter counts has come to rest.
fn settled(counter: &Counter) {
    let mut last = u64::MAX;
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(300));
        let now = counter.value().unwrap();
        if now == last {
            return;
        }
        last = now;
    }
    panic!("the load does not end");
}

#[test]
fn machine_and_cpus_come_to_what_plain_counters_come_to() {
    let test = "machine_and_cpus_come_to_what_plain_counters_come_to";
    if !allowed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    let events = [SoftwareEvent::CpuClock, SoftwareEvent::TaskClock, SoftwareEvent::PageFaults, SoftwareEvent::ContextSwitches];
    let mut plain: Vec<Counter> = events.iter().map(|event| Counter::of_machine(*event).unwrap()).collect();
    plain.extend(events.iter().map(|event| Counter::of_cpu(*event, 0).unwrap()));
    let read = || plain.iter().map(|it| it.value().unwrap()).collect::<Vec<u64>>();
    let mut at = vec![read()];
    let targets = [Whose::Machine, Whose::Cpu(0)];
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
            assert!(value >= values(&middle, target)[event], "totals only grow");
        }
    }
    assert!(!bpf.map().exists(), "the map goes with its last user");
}

#[test]
fn a_process_is_counted_with_the_children_it_forks() {
    if !allowed("a_process_is_counted_with_the_children_it_forks") {
        return;
    }
    let bpf = PrivateBpf::mount();
    // Children and grandchildren, in parallel and one after the other, of which some are gone before others come.
    let script = format!(
        "for i in 1 2 3 4; do (sh -c '{SPIN}'; ls / >/dev/null) & true $(ls /proc | wc -l); {SPIN}; done; wait; read end"
    );
    let (mut child, mut stdin) = held(&script);
    let pid = child.id();
    let plain = [SoftwareEvent::TaskClock, SoftwareEvent::PageFaults, SoftwareEvent::ContextSwitches]
        .map(|event| Counter::of_task(event, pid.cast_signed()).unwrap());
    let alone = Whose::Process { id: pid, children: false };
    let list = "task-clock,page-faults,context-switches";
    let mut only = Shared::start(&options(&bpf, list, &[alone, Whose::Thread(std::process::id())]), say).unwrap();
    let mut shared = Shared::start(&options(&bpf, list, &[Whose::Process { id: pid, children: true }]), say).unwrap();
    go(&mut stdin);
    settled(&plain[0]);
    let (last, only) = (shared.snapshot(), only.snapshot());
    let plain = plain.map(|counter| counter.value().unwrap());
    let (all, only) = (values(&last, 0), values(&only, 0));
    drop(shared);
    go(&mut stdin);
    child.wait().unwrap();
    // Faults happen in the task: both count the very same ones.
    assert_eq!(all[1], plain[1], "page faults");
    assert!(plain[1] > 1000, "{} page faults are no load", plain[1]);
    let off = all[0].abs_diff(plain[0]) as f64 / plain[0] as f64;
    assert!(off < 0.01, "task-clock {} against {}", all[0], plain[0]);
    // The kernel counts a switch to the task that it leaves, behind our reading: each task has one more or less.
    assert!(all[2].abs_diff(plain[2]) <= 60, "context switches {} against {}", all[2], plain[2]);
    assert!(only[1] > 0 && only[1] < all[1] / 2, "without children: {} of {}", only[1], all[1]);
}

#[test]
fn threads_are_counted_one_by_one_and_with_their_process() {
    if !allowed("threads_are_counted_one_by_one_and_with_their_process") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let quit = AtomicBool::new(false);
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let quit = &quit;
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
        let targets = [Whose::Thread(first.cast_unsigned())];
        let shared = Shared::start(&options(&bpf, "task-clock", &targets), say).unwrap();
        let process = Whose::Process { id: std::process::id(), children: false };
        let whole = Shared::start(&options(&bpf, "task-clock", &[process]), say).unwrap();
        at.push(plain.value().unwrap());
        // Comes during the counting.
        scope.spawn(busy.clone());
        let second = told.recv().unwrap();
        let plain_second = Counter::of_task(SoftwareEvent::TaskClock, second).unwrap();
        thread::sleep(Duration::from_millis(300));
        at.push(plain.value().unwrap());
        let last = shared.finish();
        at.push(plain.value().unwrap());
        let whole = values(&whole.finish(), 0)[0];
        let (first, second) = (at[2] - at[1], plain_second.value().unwrap());
        quit.store(true, Ordering::Relaxed);
        check_within("one thread", values(&last, 0)[0], [at[0], at[1], at[2], at[3]]);
        assert!(whole > first + second / 2, "{whole} of the process, {first} and {second} of its threads");
    });
}

#[test]
fn a_slice_that_is_in_progress_at_both_ends_is_counted_to_the_moment() {
    if !allowed("a_slice_that_is_in_progress_at_both_ends_is_counted_to_the_moment") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let mut unmoved = false;
    for _ in 0..4 {
        // Before ordinary tasks, so that nothing switches it out.
        let script = "chrt -f -p 1 $$ 2>/dev/null; while :; do :; done";
        let (mut child, mut stdin) = held(script);
        let pid = child.id();
        let task = |event| Counter::of_task(event, pid.cast_signed()).unwrap();
        let (clock, switches) = (task(SoftwareEvent::TaskClock), task(SoftwareEvent::ContextSwitches));
        go(&mut stdin);
        thread::sleep(Duration::from_millis(100));
        let mut at = vec![clock.value().unwrap()];
        let shared =
            Shared::start(&options(&bpf, "task-clock", &[Whose::Process { id: pid, children: true }]), say).unwrap();
        at.push(clock.value().unwrap());
        let before = switches.value().unwrap();
        thread::sleep(Duration::from_millis(300));
        at.push(clock.value().unwrap());
        let last = shared.finish();
        at.push(clock.value().unwrap());
        let after = switches.value().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
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

/// Where the unified hierarchy is mounted.
fn cgroup_root() -> Option<PathBuf> {
    bprec_bpf::mounts_of_type(b"cgroup2").unwrap().into_iter().next()
}

/// Cgroups three deep, removed with this.
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
            // A cgroup is empty some time after its last task.
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
    let mut load: Vec<(Child, ChildStdin)> = (1..=3)
        .map(|times| held(&format!("for i in $(seq {times}); do ls / >/dev/null; sh -c '{SPIN}'; done; read end")))
        .collect();
    for ((child, _), cgroup) in load.iter().zip(&cgroups.0) {
        fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    let plain: Vec<[Counter; 2]> = load
        .iter()
        .map(|(child, _)| {
            [SoftwareEvent::PageFaults, SoftwareEvent::TaskClock]
                .map(|event| Counter::of_task(event, child.id().cast_signed()).unwrap())
        })
        .collect();
    // By path below the root, and by directory.
    let below = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_owned();
    let targets = [
        Whose::Cgroup(below(&cgroups.0[0])),
        Whose::Cgroup(cgroups.0[1].clone()),
        Whose::Cgroup(below(&cgroups.0[2])),
        Whose::Machine,
    ];
    let mut shared = Shared::start(&options(&bpf, "page-faults,task-clock", &targets), say).unwrap();
    load.iter_mut().for_each(|(_, stdin)| go(stdin));
    plain.iter().for_each(|counters| settled(&counters[1]));
    let last = shared.snapshot();
    let plain: Vec<[u64; 2]> = plain.iter().map(|it| [it[0].value().unwrap(), it[1].value().unwrap()]).collect();
    for (child, stdin) in &mut load {
        go(stdin);
        child.wait().unwrap();
    }
    drop(shared);
    for depth in 0..3 {
        let expected = [0, 1].map(|event| plain[depth..].iter().map(|it| it[event]).sum::<u64>());
        let found = values(&last, depth);
        assert_eq!(found[0], expected[0], "page faults at depth {depth}: {plain:?}");
        let off = found[1].abs_diff(expected[1]) as f64 / expected[1] as f64;
        assert!(off < 0.01, "task-clock at depth {depth}: {} against {}", found[1], expected[1]);
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
    let target = Whose::Cgroup("no/such/cgroup".into());
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
    let targets = [Whose::Process { id, children: true }, Whose::Cpu(4000)];
    let last = Shared::start(&options(&bpf, "cpu-clock", &targets), say).unwrap().finish();
    for (target, reason) in last.targets.iter().zip(["there is no such task", "CPU 4000 is not online"]) {
        assert_eq!((target.reason.as_str(), target.readings.len()), (reason, 0));
    }
}

#[test]
#[ignore = "run by another test"]
fn exec_in_a_thread() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    // The process's first thread ends, and this one gets its number.
    let script = "for i in 1 2 3 4 5 6 7 8 9; do ls / >/dev/null; done; read end";
    thread::spawn(move || Command::new("sh").args(["-c", script]).exec()).join().unwrap();
}

#[test]
fn a_thread_that_takes_its_processes_number_by_exec_stays_counted() {
    if !allowed("a_thread_that_takes_its_processes_number_by_exec_stays_counted") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "exec_in_a_thread", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::sleep(Duration::from_millis(300));
    let target = Whose::Process { id: child.id(), children: true };
    let mut shared = Shared::start(&options(&bpf, "page-faults,task-clock", &[target]), say).unwrap();
    // Each thread there is now, with what it creates.
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let ids: Vec<i32> = threads.map(|it| it.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let plain: Vec<Counter> = ids.iter().map(|id| Counter::of_task(SoftwareEvent::PageFaults, *id).unwrap()).collect();
    go(&mut stdin);
    plain.iter().for_each(settled);
    let found = values(&shared.snapshot(), 0);
    let expected: u64 = plain.iter().map(|it| it.value().unwrap()).sum();
    go(&mut stdin);
    child.wait().unwrap();
    assert_eq!(found[0], expected);
    assert!(expected > 500, "{expected}");
}

/// Ids of the leaders' programs that a note names.
fn programs_of(shared: &Shared) -> Vec<String> {
    let note = &shared.events().note;
    note.match_indices("by program ")
        .map(|(at, word)| note[at + word.len()..].split([',', ';']).next().unwrap().to_owned())
        .collect()
}

#[test]
fn sessions_share_a_leader_that_goes_with_the_last_of_them() {
    if !allowed("sessions_share_a_leader_that_goes_with_the_last_of_them") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let plain = Counter::of_machine(SoftwareEvent::PageFaults).unwrap();
    let first = Shared::start(&options(&bpf, "cpu-clock,page-faults", &[Whose::Machine]), say).unwrap();
    let leaders = programs_of(&first);
    assert_eq!(leaders.len(), 2, "{}", first.events().note);
    let mut at = vec![plain.value().unwrap()];
    let second = Shared::start(&options(&bpf, "page-faults,cpu-clock", &[Whose::Machine]), say).unwrap();
    at.push(plain.value().unwrap());
    assert!(second.events().note.contains("shared with the session that loaded it"), "{}", second.events().note);
    assert_eq!(programs_of(&second), [leaders[1].clone(), leaders[0].clone()]);
    assert!(Command::new("true").status().unwrap().success());
    // The leaders outlive whoever loaded them.
    drop(first);
    assert!(bpf.map().exists());
    for _ in 0..20 {
        assert!(Command::new("true").status().unwrap().success());
    }
    at.push(plain.value().unwrap());
    let last = second.finish();
    at.push(plain.value().unwrap());
    check_within("page faults", values(&last, 0)[0], [at[0], at[1], at[2], at[3]]);
    assert!(!bpf.map().exists());
    for id in leaders {
        let id: u32 = id.parse().unwrap();
        let gone = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            bprec_bpf::Program::take(id).is_err()
        });
        assert!(gone, "program {id} is still there");
    }
}

#[test]
fn whoever_waits_for_the_lock_of_a_map_that_is_removed_makes_another() {
    if !allowed("whoever_waits_for_the_lock_of_a_map_that_is_removed_makes_another") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let locked = AttrMap::lock(&bpf.map(), 136).unwrap();
    let waiting = options(&bpf, "cpu-clock", &[Whose::Machine]);
    let waiting = thread::spawn(move || Shared::start(&waiting, say).unwrap());
    thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished());
    fs::remove_file(bpf.map()).unwrap();
    locked.unlock();
    let shared = waiting.join().unwrap();
    assert!(shared.events().note.contains("other sessions can share"), "{}", shared.events().note);
    let another = Shared::start(&options(&bpf, "cpu-clock", &[Whose::Machine]), say).unwrap();
    assert_eq!(programs_of(&another), programs_of(&shared));
}

/// Makes a map of somebody else's at the place.
fn pin_a_map(bpf: &PrivateBpf, key: &str, value: &str, entries: &str) -> bool {
    let mut command = Command::new("bpftool");
    command.args(["map", "create"]).arg(bpf.map()).args(["type", "hash", "key", key, "value", value]);
    command.args(["entries", entries, "name", "somebodys"]).status().is_ok_and(|status| status.success())
}

#[test]
fn maps_of_others_are_followed_where_they_fit_and_left_alone_where_not() {
    let test = "maps_of_others_are_followed_where_they_fit_and_left_alone_where_not";
    if !allowed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    if !pin_a_map(&bpf, "128", "8", "2") {
        println!("SKIP {test}: bpftool cannot create maps");
        return;
    }
    // Of an older perf, with room for one event and the two names that it has.
    let first = Shared::start(&options(&bpf, "cpu-clock", &[Whose::Machine]), say).unwrap();
    let second = Shared::start(&options(&bpf, "cpu-clock,page-faults", &[Whose::Machine]), say).unwrap();
    assert_eq!(programs_of(&first), programs_of(&second)[..1]);
    let note = &second.events().note;
    assert!(note.contains("page-faults is not shared") && note.contains("it is full"), "{note}");
    assert!(values(&second.finish(), 0)[0] > 0);
    drop(first);
    assert!(bpf.map().exists(), "it is not ours to remove");
    // What was ours in it is gone: there is room again.
    let third = Shared::start(&options(&bpf, "page-faults", &[Whose::Machine]), say).unwrap();
    assert!(third.events().note.contains("other sessions can share"), "{}", third.events().note);
    drop(third);

    for (key, value) in [("4", "8"), ("136", "12")] {
        fs::remove_file(bpf.map()).unwrap();
        assert!(pin_a_map(&bpf, key, value, "16"));
        let shared = Shared::start(&options(&bpf, "cpu-clock", &[Whose::Machine]), say).unwrap();
        let note = shared.events().note.clone();
        let expected = format!("no map of event attributes (type 1, keys of {key} bytes, values of {value};");
        assert!(note.contains(&expected), "{note}");
        assert!(values(&shared.finish(), 0)[0] > 0, "counted all the same");
        assert!(bpf.map().exists());
    }
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(said.iter().any(|it| it.starts_with("Notice: counters are not shared with other sessions: ")), "{said:?}");
}

#[test]
fn a_leader_that_does_not_read_is_not_followed() {
    let test = "a_leader_that_does_not_read_is_not_followed";
    if !allowed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    let first = Shared::start(&options(&bpf, "cpu-clock", &[Whose::Machine]), say).unwrap();
    // The key under which it is known, out of the kernel's mouth.
    let dump = Command::new("bpftool").args(["-j", "map", "dump", "pinned"]).arg(bpf.map()).output();
    let Some(dump) = dump.ok().filter(|output| output.status.success()) else {
        println!("SKIP {test}: bpftool cannot print maps");
        return;
    };
    let text = String::from_utf8(dump.stdout).unwrap();
    let keys: Vec<Vec<u8>> = text
        .split("\"key\":[")
        .skip(1)
        .map(|rest| rest.split(']').next().unwrap())
        .map(|list| {
            list.split(',')
                .map(|byte| u8::from_str_radix(byte.trim_matches(['"']).trim_start_matches("0x"), 16).unwrap())
                .collect()
        })
        .collect();
    assert_eq!(keys.len(), 2, "{text}");
    drop(first);
    // Over no event at all, as others make one when the event cannot be opened.
    let silent = Leader::load(64, &[]).unwrap();
    let locked = AttrMap::lock(&bpf.map(), keys[0].len()).unwrap();
    for key in &keys {
        locked.publish(key, &silent).unwrap();
    }
    locked.unlock();
    let second = Shared::start(&options(&bpf, "cpu-clock", &[Whose::Machine]), say).unwrap();
    let note = second.events().note.clone();
    assert!(note.contains("cpu-clock is not shared") && note.contains("does not read it on CPU 0"), "{note}");
    assert!(note.contains(&silent.program_id().to_string()), "{note}");
    assert!(values(&second.finish(), 0)[0] > 0);
}

#[test]
fn cycles_are_counted_for_all_sessions_on_one_counter() {
    let test = "cycles_are_counted_for_all_sessions_on_one_counter";
    if !allowed(test) {
        return;
    }
    let Ok(plain) = Counter::of_machine(SoftwareEvent::Cycles) else {
        println!("SKIP {test}: this machine has no hardware PMU");
        return;
    };
    let bpf = PrivateBpf::mount();
    // More than there are counters: on one each they would have to take turns.
    let mut at = vec![plain.value().unwrap()];
    let all: Vec<Shared> =
        (0..20).map(|_| Shared::start(&options(&bpf, "cycles", &[Whose::Machine]), say).unwrap()).collect();
    let leaders: Vec<String> = all.iter().flat_map(programs_of).collect();
    assert!(leaders.len() == 20 && leaders.iter().all(|it| *it == leaders[0]), "{leaders:?}");
    at.push(plain.value().unwrap());
    for _ in 0..10 {
        assert!(Command::new("true").status().unwrap().success());
    }
    at.push(plain.value().unwrap());
    let last: Vec<_> = all.into_iter().map(Shared::finish).collect();
    at.push(plain.value().unwrap());
    for counters in last {
        // `values` checks that it was on the hardware all the time.
        check_within("cycles", values(&counters, 0)[0], [at[0], at[1], at[2], at[3]]);
    }
}

#[test]
fn events_that_are_not_to_be_had_are_said_and_the_others_counted() {
    if !allowed("events_that_are_not_to_be_had_are_said_and_the_others_counted") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let shared = Shared::start(&options(&bpf, "cpu-clock,cycles,instructions", &[Whose::Machine]), say).unwrap();
    let events = shared.events().clone();
    assert_eq!(events.events.len() + events.absent.len(), 3);
    assert!(events.absent.iter().all(|it| !it.reason.is_empty() && it.name != "cpu-clock"));
    let last = shared.finish();
    assert_eq!(last.targets[0].readings.len(), events.events.len());
    let too_many = options(&bpf, "cpu-clock,".repeat(9).trim_end_matches(','), &[Whose::Machine]);
    assert!(Shared::start(&too_many, say).unwrap_err().to_string().contains("room for 8"));
}
