//! `bprec stat`: known loads have exact counts in every format; compared with perf and with the programs' own counts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Running, Scratch, SetAtEnd, bprec, measured, perf_installed, root, skip, succeed, wait_for};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

/// A running `bprec stat`, with its output in a file.
struct Counting {
    running: Running,
    out: PathBuf,
}

/// Starts to count, and waits until the first counts are read.
fn counting(scratch: &Scratch, name: &str, arguments: &[&str]) -> Counting {
    let out = scratch.path(name);
    let mut all = ["stat", "-q", "-o"].map(OsStr::new).to_vec();
    all.push(out.as_os_str());
    all.extend(arguments.iter().map(OsStr::new));
    let running = Running::start(&out, &all);
    Counting { running, out }
}

impl Counting {
    fn end(self) -> String {
        self.running.end();
        fs::read_to_string(&self.out).unwrap()
    }
}

/// Lines of JSON of one kind.
fn rows(text: &str, kind: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    lines.filter(|line| line["row"] == kind).collect()
}

/// The only row of a program that is for its entry function and for all CPUs.
fn of(rows: &[Value], id: u32) -> &Value {
    let mut found = rows.iter().filter(|row| row["id"] == id && row["function"] == 0 && row["cpu"].is_null());
    let row = found.next().unwrap_or_else(|| panic!("no row of {id} in {rows:#?}"));
    assert!(found.next().is_none(), "two rows of {id}");
    row
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn load() -> Loaded {
    Fixture::COUNTED.open().unwrap().load().unwrap()
}

#[test]
fn runs_are_exact_and_every_form_has_the_same_numbers() {
    if !root("runs_are_exact_and_every_form_has_the_same_numbers") {
        return;
    }
    let scratch = Scratch::new();
    let loaded = load();
    let id = |name| loaded.id_of(name).unwrap();
    let both = format!("{},{}", id("loop_of_100"), id("loop_of_1000"));
    // With this budget, all formats count all runs, even if other programs make run statistics expensive.
    let json = counting(&scratch, "json", &["-b", &both, "-j", "-I", "200", "--budget", "100"]);
    let csv = counting(&scratch, "csv", &["-b", &both, "-x", ";", "--budget", "100"]);
    let text = counting(&scratch, "text", &["-b", &both, "--budget", "100"]);
    for times in [300, 200, 100] {
        loaded.run("loop_of_100", times).unwrap();
        loaded.run("loop_of_1000", 2 * times).unwrap();
        thread::sleep(Duration::from_millis(250));
    }
    let (json, csv, text) = (json.end(), csv.end(), text.end());
    let (totals, intervals) = (rows(&json, "total"), rows(&json, "interval"));
    assert_eq!(totals.len(), 2, "{json}");
    for name in ["loop_of_100", "loop_of_1000"] {
        let total = of(&totals, id(name));
        let runs = loaded.entered(name).unwrap();
        assert_eq!(total["name"], name);
        assert_eq!(number(&total["stats"]["runs"]), runs);
        let best = &total[total["source"].as_str().unwrap()];
        assert_eq!(number(&best["runs"]), runs);
        for member in ["runs", "measured_ns"] {
            let parts = intervals.iter().filter(|row| row["id"] == id(name)).map(|row| number(&row["stats"][member]));
            assert_eq!(parts.sum::<u64>(), number(&total["stats"][member]), "{name} {member}");
        }

        // Fields of a line: value, unit, event, running_ns, percent, metric, metric_unit, source, kind, id, function, name
        let fields: Vec<Vec<&str>> = csv.lines().map(|line| line.split(';').collect()).collect();
        let value = |event: &str| {
            let line = fields.iter().find(|line| line[2] == event && line[9] == id(name).to_string());
            line.unwrap_or_else(|| panic!("no {event} of {name} in {csv}")).clone()
        };
        assert_eq!((value("runs")[0], value("runs")[11]), (runs.to_string().as_str(), name));
        let line = text.lines().find(|line| line.split_whitespace().any(|word| word == name)).unwrap();
        let cells: Vec<String> = line.split_whitespace().map(|cell| cell.replace(',', "")).collect();
        assert_eq!(cells[0], id(name).to_string(), "{text}");
        assert_eq!(cells[3], runs.to_string(), "{text}");
        if total["source"] == "stats" {
            // The kernel's number is the same for all readers.
            let time_ns = number(&total["stats"]["measured_ns"]);
            let kernel = loaded.run_stats(name).unwrap();
            assert_eq!((kernel.run_cnt, kernel.run_time_ns), (runs, time_ns));
            assert_eq!(value("time")[0], time_ns.to_string());
            assert_eq!(value("time")[5].parse::<f64>().unwrap(), time_ns as f64 / runs as f64);
            let shown: f64 = cells[4].parse().unwrap();
            assert!((shown - time_ns as f64 / runs as f64).abs() <= 0.5, "{line}: {time_ns} ns");
            if let Some(misses) = kernel.recursion_misses {
                assert_eq!(value("recursion-misses")[0], misses.to_string());
            }
        }
    }
}

#[test]
fn programs_that_come_and_go_are_counted() {
    if !root("programs_that_come_and_go_are_counted") {
        return;
    }
    let scratch = Scratch::new();
    let counting = counting(&scratch, "json", &["-b", "churn_0071*", "-j", "-I", "100", "--budget", "100"]);
    let mut ran = Vec::new();
    for number in [7101, 7102] {
        let churn = Fixture::churn(number).unwrap().start().unwrap();
        system_calls(200);
        let name = format!("churn_{number:06}");
        let mut churn = churn;
        churn.detach();
        // Another CPU may still run the program.
        thread::sleep(Duration::from_millis(50));
        ran.push((churn.id_of(&name).unwrap(), name.clone(), churn.run_stats(&name).unwrap().run_cnt));
    }
    // The kernel frees a link and its program after a grace period; other recorders release the program some time later.
    wait_for("the unloads", || {
        let lines = fs::read_to_string(&counting.out).unwrap();
        let whole = lines.rfind('\n').map_or("", |end| &lines[..end]);
        let unloaded = rows(whole, "interval").into_iter().filter(|row| row["unloaded_ns"].is_i64());
        (unloaded.map(|row| row["id"].as_u64()).collect::<BTreeSet<_>>().len() == 2).then_some(())
    });
    let text = counting.end();
    let (totals, intervals) = (rows(&text, "total"), rows(&text, "interval"));
    assert_eq!(totals.len(), 2, "{text}");
    for (id, name, runs) in ran {
        let total = of(&totals, id);
        assert_eq!(total["name"], name.as_str());
        assert!(runs >= 200);
        assert_eq!(number(&total["stats"]["runs"]), runs, "{name}");
        assert!(total["unloaded_ns"].is_i64(), "{total:#}");
        // Exact counters may list a program in an interval without a reading of the kernel's count.
        let parts = intervals.iter().filter(|row| row["id"] == id && row["stats"].is_object());
        assert_eq!(parts.map(|row| number(&row["stats"]["runs"])).sum::<u64>(), runs);
    }
}

/// Exit code of a command. Its output is dropped.
fn code(command: &mut Command) -> Option<i32> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
}

#[test]
fn exit_codes_are_the_commands_or_say_what_went_wrong() {
    for other in [["-p", "1"], ["-C", "0"], ["-G", "/"]] {
        let output = bprec().args(["stat", "-b", "1"]).args(other).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("-b with {}", other[0])));
    }
    let plain: [&[&str]; 6] =
        [&["-a"], &["-C", "0"], &["-p", "1"], &["-t", "1"], &["-G", "/"], &["-e", "cycles", "true"]];
    for plain in plain {
        let output = bprec().arg("stat").args(plain).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--bpf-counters") && said.contains("perf stat"), "{said}");
    }
    if root("exit_codes_are_the_commands_or_say_what_went_wrong") {
        let shared = |event, command: &[&str]| {
            code(bprec().args(["stat", "-q", "--bpf-counters", "-e", event, "--"]).args(command))
        };
        let run = |command: &str| shared("task-clock", &["sh", "-c", command]);
        assert_eq!((run("exit 0"), run("exit 7")), (Some(0), Some(7)));
        // Shells return this exit status; perf returns 0.
        assert_eq!(run("kill -9 $$"), Some(128 + 9));
        assert_eq!(shared("task-clock", &["/no/such/command"]), Some(2));
        assert_eq!(shared("no-such-event", &["true"]), Some(2));
        assert_eq!(code(bprec().args(["stat", "-b", "2147483646", "--timeout", "50"])), Some(2));
        assert_eq!(code(bprec().args(["stat", "-b", "no_such_program_at_all", "--timeout", "50"])), Some(1));
    }
}

/// Count of an event during a command, by perf.
fn by_perf(event: &str, command: &[&str]) -> f64 {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x,", "-e", event, "--"]).args(command).env("LC_ALL", "C");
    let output = perf.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("{text}"));
    line.split(',').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
}

/// Count of an event during a command, by `bprec stat`.
fn by_us(event: &str, more: &[&str], command: &[&str]) -> f64 {
    let output =
        succeed(bprec().args(["stat", "--bpf-counters", "-x,", "-e", event]).args(more).arg("--").args(command));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("{text}"));
    line.split(',').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn events_of_a_command_are_those_of_perf() {
    let test = "events_of_a_command_are_those_of_perf";
    if !root(test) || !perf_installed(test) {
        return;
    }
    // 64 MiB in pages of 4 KiB, written by a grandchild; a hundred sleeps, each causing a switch.
    let pages = ["sh", "-c", "sh -c 'dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null'; :"];
    let switches = ["sh", "-c", "i=0; while [ $i -lt 100 ]; do sleep 0.001; i=$((i+1)); done"];
    let agree = |event: &str, command: &[&str], least: f64, share: f64, ends: f64| {
        measured(|| {
            let perf: Vec<f64> = (0..3).map(|_| by_perf(event, command)).collect();
            let ours: Vec<f64> = (0..3).map(|_| by_us(event, &[], command)).collect();
            let (low, high) = perf.iter().fold((f64::MAX, 0.0f64), |(low, high), it| (low.min(*it), high.max(*it)));
            let ok = ours
                .iter()
                .all(|it| *it >= low * (1.0 - share) && *it <= (high + ends) * (1.0 + share) && *it >= least);
            if ok { Ok(()) } else { Err(format!("{event}: perf {perf:?}, ours {ours:?}")) }
        });
    };
    let page_bytes = 4096.0;
    agree("page-faults", &pages, 64.0 * 1048576.0 / page_bytes / 512.0, 0.02, 0.0);
    // The last switch of each process occurs after its own event is closed, but while the event of its CPU is still open.
    agree("context-switches", &switches, 100.0, 0.2, 101.0);
}

/// Cgroups of this test, which become empty when it ends.
struct Cgroups {
    mount: PathBuf,
    names: Vec<String>,
}

impl Cgroups {
    fn make(count: usize) -> Option<Cgroups> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = PathBuf::from(mounts.find(|words| words[2] == "cgroup2")?[1]);
        let mut cgroups = Cgroups { mount, names: Vec::new() };
        for index in 0..count {
            let name = format!("bprec-test-{}-{index}", std::process::id());
            fs::create_dir(cgroups.mount.join(&name)).ok()?;
            cgroups.names.push(name);
        }
        Some(cgroups)
    }

    fn procs(&self, index: usize) -> String {
        self.mount.join(&self.names[index]).join("cgroup.procs").to_str().unwrap().to_owned()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| drop(fs::remove_dir(self.mount.join(name))));
    }
}

/// The counts of events in cgroups, from lines with one field for the event and one for the cgroup.
fn in_cgroups(text: &str, cgroups: &[String], events: &[&str]) -> Vec<f64> {
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let count = |cgroup: &String, event: &str| {
        let is_it = |row: &&Vec<&str>| {
            row.contains(&event) && row.iter().any(|field| field.trim_start_matches('/') == cgroup.as_str())
        };
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("{event} in {cgroup}: {text}"));
        row[0].parse().unwrap_or_else(|_| panic!("{text}"))
    };
    cgroups.iter().flat_map(|cgroup| events.iter().map(move |event| count(cgroup, event))).collect()
}

#[test]
fn events_of_cgroups_are_those_of_perf() {
    let test = "events_of_cgroups_are_those_of_perf";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let Some(cgroups) = Cgroups::make(2) else {
        skip(test, "no cgroups (v2) to be made");
        return;
    };
    // 64 MiB touched outside of the cgroups, once in the first one, three times in the second.
    let touch = "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null";
    let (first, second) = (cgroups.procs(0), cgroups.procs(1));
    let load = format!(
        "{touch}; sh -c 'echo $$ >{first}; {touch}; :'; sh -c 'echo $$ >{second}; {touch}; {touch}; {touch}; :'"
    );
    let events = ["page-faults", "minor-faults"];
    let counts = |mut command: Command, target: &[&str], cgroups: &[String], events: &[&str]| {
        command.args(["stat", "-x,", "-e", &events.join(",")]).args(target).args(["--", "sh", "-c", &load]);
        let output = succeed(command.env("LC_ALL", "C"));
        in_cgroups(&String::from_utf8_lossy(&output.stderr), cgroups, events)
    };
    let probe = ["stat", "-x,", "-a", "-e", "page-faults", "-G", &cgroups.names[0], "--", "true"];
    let probe = succeed(Command::new("perf").args(probe).env("LC_ALL", "C")).stderr;
    if String::from_utf8_lossy(&probe).contains("<not supported>") {
        return skip(test, "this kernel has no perf events of cgroups (v2)");
    }
    let both = cgroups.names.join(",");
    measured(|| {
        for (target, cgroups) in [("-G", &cgroups.names[..1]), ("--for-each-cgroup", &cgroups.names[..])] {
            let names = if cgroups.len() == 1 { &cgroups[0] } else { &both };
            let perf = counts(Command::new("perf"), &["-a", target, names], cgroups, &events);
            let ours = counts(bprec(), &["--bpf-counters", target, names], cgroups, &events);
            let agree = ours.iter().zip(&perf).all(|(ours, perf)| (ours - perf).abs() <= 0.02 * perf && *perf >= 32.0);
            if !agree || ours.len() != cgroups.len() * events.len() {
                return Err(format!("{target}: perf {perf:?}, ours {ours:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn the_machine_has_as_much_time_as_its_cpus() {
    if !root("the_machine_has_as_much_time_as_its_cpus") {
        return;
    }
    let output = succeed(bprec().args([
        "stat",
        "--bpf-counters",
        "-a",
        "-A",
        "-j",
        "-I",
        "100",
        "-e",
        "cpu-clock,context-switches",
        "--timeout",
        "700",
    ]));
    let text = String::from_utf8(output.stdout).unwrap();
    let (totals, intervals) = (rows(&text, "total"), rows(&text, "interval"));
    let value = |row: &Value, event: usize| number(&row["shared"]["readings"][event]["value"]);
    let machine = totals.iter().find(|row| row["kind"] == "machine").unwrap();
    for event in 0..2 {
        let cpus = totals.iter().filter(|row| row["kind"] == "cpu").map(|row| value(row, event));
        assert_eq!(cpus.sum::<u64>(), value(machine, event), "the values of the CPUs add up to the machine's value");
        let parts = intervals.iter().filter(|row| row["kind"] == "machine").map(|row| value(row, event));
        assert_eq!(parts.sum::<u64>(), value(machine, event), "the values of the intervals add up to the total");
    }
    let cpus = totals.iter().filter(|row| row["kind"] == "cpu").count() as u64;
    let elapsed_ns = number(&rows(&text, "end")[0]["elapsed_ns"]);
    let clock_ns = value(machine, 0);
    assert!(clock_ns <= elapsed_ns * cpus, "{clock_ns} ns of {elapsed_ns} ns on {cpus} CPUs");
    assert!(clock_ns * 10 >= elapsed_ns * cpus * 9, "{clock_ns} ns of {elapsed_ns} ns on {cpus} CPUs");
    for row in totals.iter().chain(&intervals) {
        let flaws = row["shared"]["anomalies"].as_array();
        assert!(flaws.is_none_or(Vec::is_empty) && row["shared_unknown"].is_null(), "{row:#}");
    }
}

#[test]
fn processes_and_threads_have_their_own_counts() {
    if !root("processes_and_threads_have_their_own_counts") {
        return;
    }
    let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut children = [spin(), spin()];
    // A new process exists for a moment before it has its name.
    for child in &children {
        let comm = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&comm).unwrap() != "sh\n" {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let list = children.each_ref().map(|child| child.id().to_string()).join(",");
    let output =
        succeed(bprec().args(["stat", "--bpf-counters", "-j", "-e", "task-clock", "--timeout", "1000", "-p", &list]));
    children.iter_mut().for_each(|child| child.kill().unwrap());
    children.iter_mut().for_each(|child| assert!(!child.wait().unwrap().success()));
    let text = String::from_utf8(output.stdout).unwrap();
    let totals = rows(&text, "total");
    assert_eq!(totals.len(), 2, "{text}");
    for (row, child) in totals.iter().zip(&children) {
        assert!(children.iter().any(|child| row["id"] == child.id()));
        assert_eq!((&row["kind"], &row["name"]), (&Value::from("tgid"), &Value::from("sh")));
        // Each process has at least 10 ms: both are always busy, but other processes may take most of the CPU time.
        assert!(number(&row["shared"]["readings"][0]["value"]) > 10_000_000, "{row:#} {}", child.id());
    }
}

/// Sends a signal to this process alone.
fn send(child: &Child, signal: i32) {
    // SAFETY: kill(2) takes two numbers; the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

#[test]
fn an_interrupt_prints_what_there_is() {
    if !root("an_interrupt_prints_what_there_is") {
        return;
    }
    let scratch = Scratch::new();
    let loaded = load();
    let out = scratch.path("out");
    let mut child = bprec()
        .args(["stat", "-j", "-I", "50", "-b", &loaded.id_of("loop_of_100").unwrap().to_string(), "-o"])
        .arg(&out)
        .spawn()
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while fs::metadata(&out).map_or(0, |about| about.len()) == 0 {
        assert!(Instant::now() < patience, "nothing was printed in 30 s");
        thread::sleep(Duration::from_millis(10));
    }
    loaded.run("loop_of_100", 25).unwrap();
    send(&child, libc::SIGINT);
    assert!(child.wait().unwrap().success());
    let text = fs::read_to_string(&out).unwrap();
    assert_eq!(number(&of(&rows(&text, "total"), loaded.id_of("loop_of_100").unwrap())["stats"]["runs"]), 25);
    assert_eq!(rows(&text, "end").len(), 1);

    // bprec passes the signal on to the command, and returns the command's exit code. The signal is SIGTERM, not SIGINT, because a shell that was
    // started with SIGINT ignored cannot trap it.
    let started = scratch.path("started");
    let mut child = bprec()
        .args(["stat", "--bpf-counters", "-x,", "-e", "task-clock", "-o"])
        .arg(&out)
        .args(["--", "sh", "-c", "trap 'exit 5' TERM; touch \"$0\"; while :; do sleep 0.05; done"])
        .arg(&started)
        .spawn()
        .unwrap();
    wait_for("what is counted", || started.exists().then_some(()));
    send(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(fs::read_to_string(&out).unwrap().contains("task-clock"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    if !root("a_closed_pipe_is_no_error") {
        return;
    }
    let arguments = ["stat", "--bpf-counters", "-a", "-e", "cpu-clock", "-x,", "-I", "20"];
    let mut child = bprec().args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("cpu-clock"), "{first}");
    assert!(child.wait().unwrap().success());
}

/// Many short runs under load give possible counts, whatever other load the machine has. Needs exact counters.
#[test]
fn short_counts_under_load_are_possible() {
    let test = "short_counts_under_load_are_possible";
    if !root(test) {
        return;
    }
    let loaded = load();
    let names = ["loop_of_100", "loop_of_1000", "call_a_subprogram"];
    let ids = names.map(|name| loaded.id_of(name).unwrap());
    let list = ids.map(|id| id.to_string()).join(",");
    let probe = succeed(bprec().args(["stat", "-q", "-j", "-b", &list, "--timeout", "20"]));
    let probe = String::from_utf8(probe.stdout).unwrap();
    if rows(&probe, "begin")[0]["exact"].is_null() {
        skip(test, rows(&probe, "begin")[0]["counters_note"].as_str().unwrap());
        return;
    }
    let quit = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !quit.load(std::sync::atomic::Ordering::Relaxed) {
                names.iter().for_each(|name| loaded.run(name, 20).unwrap());
            }
        });
        let _set = SetAtEnd(&quit);
        for round in 0..10u64 {
            let timeout = (300 + round * 77).to_string();
            let budget = if round % 2 == 0 { "100" } else { "0.5" };
            let arguments = ["-q", "-j", "-A", "-I", "60", "--budget", budget, "--timeout", &timeout, "-b", &list];
            let output = succeed(bprec().arg("stat").args(arguments));
            let text = String::from_utf8(output.stdout).unwrap();
            check_possible(&text, &ids, budget == "0.5");
        }
    });
}

/// Checks that no count exceeds the possible maximum for its time and CPUs, and that intervals and CPUs add up to the total. With a budget, exact
/// counts of a program may be missing, because counting so many runs exceeds the budget.
fn check_possible(text: &str, ids: &[u32], has_budget: bool) {
    let begin = &rows(text, "begin")[0];
    let cpus = number(&begin["cpus"]);
    let (totals, intervals) = (rows(text, "total"), rows(text, "interval"));
    for id in ids {
        let total = of(&totals, *id);
        let exact = &total["exact"];
        if has_budget && total["exact_unknown"].as_str().is_some_and(|why| why.contains("--budget")) {
            continue;
        }
        assert!(exact.is_object(), "{total:#}");
        assert!(exact["anomalies"].as_array().unwrap().is_empty(), "{total:#}");
        let elapsed_ns = number(&rows(text, "end")[0]["elapsed_ns"]);
        assert!(number(&exact["measured_ns"]) <= elapsed_ns * cpus, "{total:#}");
        assert!(number(&exact["runs"]) > 0, "the program has no runs: {total:#}");
        let mine = |row: &&Value| row["id"] == *id && row["function"] == 0;
        for member in ["runs", "measured", "measured_ns"] {
            let sum = |rows: &[Value], of_cpus: bool| -> u64 {
                let rows = rows.iter().filter(mine).filter(|row| row["cpu"].is_null() != of_cpus);
                rows.filter(|row| row["exact"].is_object()).map(|row| number(&row["exact"][member])).sum()
            };
            let all = number(&exact[member]);
            assert_eq!(sum(&intervals, false), all, "intervals, {member}: {text}");
            assert_eq!(sum(&totals, true), all, "CPUs, {member}: {text}");
        }
        for row in intervals.iter().filter(mine) {
            assert!(row["exact"].is_null() || row["exact"]["anomalies"].as_array().unwrap().is_empty(), "{row:#}");
        }
    }
}

#[test]
fn tables_have_colours_when_asked() {
    if !root("tables_have_colours_when_asked") {
        return;
    }
    let printed = |color: &str| {
        let output =
            bprec().args(["stat", "--bpf-counters", "-e", "task-clock", color, "--", "true"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(!printed("--color=auto").contains('\u{1b}'));
    let colored = printed("--color=always");
    assert!(colored.lines().any(|line| line.starts_with("\u{1b}[1m") && line.contains("VALUE")), "{colored}");
}
