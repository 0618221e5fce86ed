//! Counters that several counting processes ("sessions", of bprec or perf) share, end to end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::held::held_by_any;
use crate::support::{self, Scratch, bpf_ids, bprec, root, succeed, wait_for};
use serde_json::Value;

/// A bpf file system that only this test uses.
struct PrivateBpf(Scratch);

impl PrivateBpf {
    fn mount() -> PrivateBpf {
        let bpf = PrivateBpf(Scratch::new());
        fs::create_dir(bpf.directory()).unwrap();
        succeed(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(bpf.directory()));
        bpf
    }

    fn directory(&self) -> PathBuf {
        self.0.path("bpf")
    }

    fn map(&self) -> PathBuf {
        self.directory().join("perf_attr_map")
    }

    fn data(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }
}

impl Drop for PrivateBpf {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.directory()).status());
    }
}

/// Command for a recording with shared counters, few samples, and the further arguments `more`.
fn command(bpf: &PrivateBpf, data: &Path, more: &[&str]) -> Command {
    let mut command = bprec();
    command.args(["record", "-q", "-F", "50", "-m", "8", "--bpf-counters", "--bpf-attr-map"]).arg(bpf.map());
    command.arg("-o").arg(data).args(more).stdin(Stdio::null());
    command
}

/// Output of `bprec report --counters` for the whole recording.
fn counters(data: &Path) -> Value {
    let output = succeed(bprec().args(["report", "--counters", "--json", "-i"]).arg(data));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Values of the only target of this kind (such as `machine`) for the whole recording.
fn totals(report: &Value, kind: &str) -> Vec<f64> {
    let rows = report["totals"].as_array().unwrap();
    let row = rows.iter().find(|row| row["source"] == "shared" && row["kind"] == kind);
    let row = row.unwrap_or_else(|| panic!("no {kind} in {report:#}"));
    values(row)
}

/// Values of a row; asserts that no value was scaled.
fn values(row: &Value) -> Vec<f64> {
    let events = row["counts"]["events"].as_array().unwrap_or_else(|| panic!("{row:#}"));
    events.iter().map(|event| event["value"]["value"].as_f64().unwrap()).collect()
}

/// Ids of the links on sched_switch that a process has open (`link_id`), or of their programs (`prog_id`), from the fdinfo of its descriptors.
fn held(child: &Child, field: &str) -> BTreeSet<u64> {
    let directory = format!("/proc/{}/fdinfo", child.id());
    let Ok(entries) = fs::read_dir(directory) else { return BTreeSet::new() };
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let on_switches = texts.filter(|text| text.contains("raw_tracepoint") && text.contains("sched_switch"));
    let numbers = on_switches.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    });
    numbers.collect()
}

/// Waits until each process holds this number of links on sched_switch.
fn wait_for_links(children: &[Child], count: usize) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !children.iter().all(|child| held(child, "link_id").len() == count) {
        assert!(Instant::now() < patience, "after 60 s, a session has not the expected number of links");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the kernel has freed all of these links, and all of these programs except those that another process holds.
fn wait_until_gone(programs: &BTreeSet<u64>, links: &BTreeSet<u64>) {
    let gone = || {
        let [elsewhere, ..] = held_by_any();
        let is_left = |id: &u64| programs.contains(id) && !elsewhere.contains(id);
        let programs = bpf_ids("prog").iter().any(is_left);
        let links = bpf_ids("link").iter().any(|id| links.contains(id));
        (!programs && !links).then_some(())
    };
    wait_for(&format!("the end of programs {programs:?} and links {links:?}"), gone);
}

fn bpftool_installed(test: &str) -> bool {
    let found = Command::new("bpftool").arg("version").output().is_ok();
    if !found {
        support::skip(test, "bpftool is not installed");
    }
    found
}

/// Without CAP_SYS_ADMIN, bprec cannot find counters of other sessions. It still counts events, and leaves no attribute map behind.
#[test]
fn without_rights_to_look_nothing_is_shared_and_nothing_stays() {
    const NAME: &str = "without_rights_to_look_nothing_is_shared_and_nothing_stays";
    if !root(NAME) {
        return;
    }
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    // Debian's kernels have an additional level, 3.
    if paranoid.trim().parse::<i32>().unwrap() > 2 {
        return support::skip(NAME, "kernel.perf_event_paranoid is 3, so only CAP_SYS_ADMIN may open events");
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return support::skip(NAME, "no setpriv");
    }
    let bpf = PrivateBpf::mount();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]).arg(env!("CARGO_BIN_EXE_bprec"));
    command.args(["stat", "--bpf-counters", "-e", "task-clock", "-a", "--bpf-attr-map"]).arg(bpf.map());
    let output = succeed(command.args(["--", "true"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("task-clock")
            && said.contains("bprec needs CAP_SYS_ADMIN to find the counters of other sessions"),
        "{said}"
    );
    assert!(!bpf.map().exists());
}

#[test]
fn a_recording_has_what_its_machine_and_its_cpus_came_to() {
    if !root("a_recording_has_what_its_machine_and_its_cpus_came_to") {
        return;
    }
    let bpf = PrivateBpf::mount();
    let data = bpf.data("machine.data");
    let list = "cpu-clock,context-switches";
    let begin = Instant::now();
    succeed(&mut command(&bpf, &data, &["-a", "-I", "100", "--counter-event", list, "--", "sleep", "1"]));
    let elapsed_ns = begin.elapsed().as_nanos() as f64;
    let cpus = thread::available_parallelism().unwrap().get() as f64;
    let report = counters(&data);
    let machine = totals(&report, "machine");
    assert!(machine[0] >= 1e9 * cpus && machine[0] <= elapsed_ns * cpus, "{machine:?}");
    assert!(machine[1] > 0.0);
    let rows = report["intervals"].as_array().unwrap();
    let rows: Vec<&Value> = rows.iter().filter(|row| row["source"] == "shared").collect();
    // On a busy machine, an interval may take longer than 100 ms.
    assert!(rows.len() >= 2, "{report:#}");
    let sum: f64 = rows.iter().map(|row| values(row)[0]).sum();
    assert_eq!(sum, machine[0], "intervals add up to the total");

    succeed(&mut command(&bpf, &data, &["-C", "0", "--counter-event", list, "--", "sleep", "0.5"]));
    let cpu = totals(&counters(&data), "cpu");
    assert!(cpu[0] >= 5e8 && cpu[0] <= 5e9, "{cpu:?}");
    assert!(!bpf.map().exists());
}

#[test]
fn a_command_is_counted_from_its_first_moment_with_all_it_starts() {
    if !root("a_command_is_counted_from_its_first_moment_with_all_it_starts") {
        return;
    }
    let bpf = PrivateBpf::mount();
    support::measured(|| {
        let (data, times) = (bpf.data("command.data"), bpf.data("times"));
        let part = "for i in 1 2 3 4; do ls / >/dev/null; done; n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done";
        // CPU time of the shell and its children, as accounted by the kernel.
        let script = format!("({part}) & {part}; wait; times >{}", times.display());
        let shared = ["--counter-event", "task-clock,page-faults", "--", "sh", "-c", &script];
        succeed(&mut command(&bpf, &data, &shared));
        let told = fs::read_to_string(&times).unwrap();
        let seconds = |word: &str| {
            let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
        };
        let expected_ns: f64 = told.split_whitespace().map(|word| seconds(word) * 1e9).sum();
        let report = counters(&data);
        let found = totals(&report, "tgid");
        let row = &report["totals"].as_array().unwrap().iter().find(|row| row["kind"] == "tgid").unwrap()["name"];
        assert_eq!(row, "sh");
        assert!(found[1] > 500.0, "{found:?}");
        // `times` prints four numbers in ticks of 10 ms.
        match (found[0] - expected_ns).abs() < expected_ns * 0.1 + 4e7 {
            true => Ok(()),
            false => Err(format!("{found:?}, the shell says {told}")),
        }
    });
}

#[test]
fn twenty_sessions_share_one_leader_and_leave_nothing_when_all_are_killed() {
    let test = "twenty_sessions_share_one_leader_and_leave_nothing_when_all_are_killed";
    if !root(test) || !bpftool_installed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    let list = ["-a", "--counter-event", "cpu-clock"];
    let mut children: Vec<Child> =
        (0..20).map(|number| command(&bpf, &bpf.data(&format!("{number}.data")), &list).spawn().unwrap()).collect();
    wait_for_links(&children, 1);
    let links: BTreeSet<u64> = children.iter().flat_map(|child| held(child, "link_id")).collect();
    let programs: BTreeSet<u64> = children.iter().flat_map(|child| held(child, "prog_id")).collect();
    assert_eq!((links.len(), programs.len()), (1, 1), "links {links:?}, programs {programs:?}");
    // The only link and its program are those of a leader, which counts for all sessions.
    let program = programs.first().unwrap().to_string();
    let output = succeed(Command::new("bpftool").args(["-j", "prog", "show", "id", &program]));
    let leader: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(leader["name"], "on_switch");

    // Kills ten sessions, usually also the one that loaded the program. The other sessions keep the link.
    for child in &mut children[..10] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    thread::sleep(Duration::from_millis(200));
    assert!(children[10..].iter().all(|child| held(child, "link_id") == links));
    for child in &mut children[10..] {
        child.kill().unwrap();
    }
    for child in &mut children[10..] {
        child.wait().unwrap();
    }
    wait_until_gone(&programs, &links);

    // The map and its entry remain after the sessions are killed. A new session uses this entry.
    assert!(bpf.map().exists());
    let data = bpf.data("after.data");
    succeed(&mut command(&bpf, &data, &["-a", "--counter-event", "cpu-clock", "--", "sleep", "0.2"]));
    let report = counters(&data);
    let note = report["shared"]["note"].as_str().unwrap();
    assert!(note.contains("other sessions can share"), "{note}");
    assert!(totals(&report, "machine")[0] > 0.0);
    assert!(!bpf.map().exists(), "the next session removes the map, too");
}

#[test]
fn followers_go_with_a_session_that_is_killed() {
    let test = "followers_go_with_a_session_that_is_killed";
    if !root(test) || !bpftool_installed(test) {
        return;
    }
    let bpf = PrivateBpf::mount();
    let data = bpf.data("killed.data");
    let mut child = command(&bpf, &data, &["-p", "1", "--counter-event", "cpu-clock,page-faults"]).spawn().unwrap();
    // The session has three links on sched_switch: of two leaders and a follower.
    wait_for_links(std::slice::from_ref(&child), 3);
    let (programs, links) = (held(&child, "prog_id"), held(&child, "link_id"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&programs, &links);
}

#[test]
fn without_a_place_to_meet_sessions_count_alone_and_say_so() {
    if !root("without_a_place_to_meet_sessions_count_alone_and_say_so") {
        return;
    }
    let scratch = Scratch::new();
    let data = scratch.path("alone.data");
    let mut command = bprec();
    command.args(["record", "-a", "-F", "50", "--bpf-counters", "--counter-event", "cpu-clock", "--bpf-attr-map"]);
    command.arg(scratch.path("no-bpf-here")).arg("-o").arg(&data).args(["--", "sleep", "0.2"]);
    let output = succeed(&mut command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("counters are not shared with other sessions: ") && said.contains("mount -t bpf"), "{said}");
    let report = counters(&data);
    assert!(totals(&report, "machine")[0] > 0.0);
    assert!(report["shared"]["note"].as_str().unwrap().contains("not shared with other sessions"));
}
