//! Exact counters, measured by programs that bprec attaches around other programs. Needs trampolines (fentry, fexit), which not every machine allows.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Scratch, SetAtEnd, alone, bprec, end, program, record, recording, report, root, skip, succeed};
use bprec_fixtures::{Fixture, Loaded};
use serde_json::{Value, json};

/// Ensures that one test at a time checks which programs exist. Returns false, with a message, if exact counters are not available.
fn allowed(test: &str) -> bool {
    if !root(test) {
        return false;
    }
    if Command::new("bpftool").arg("version").output().is_err() {
        skip(test, "bpftool is not installed");
        return false;
    }
    alone();
    static TIER: OnceLock<(String, String)> = OnceLock::new();
    let (tier, note) = TIER.get_or_init(|| {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        record(&path, &["-q", "-a", "--counters", "exact=no_such_program", "--duration", "0.1"]);
        let report = report(&path, &[]);
        let text = |name: &str| report["recording"][name].as_str().unwrap_or_default().to_owned();
        (text("counters"), text("counters_note"))
    });
    if tier != "exact" {
        // If exact counters are not available, the recorder uses the next best source, run statistics.
        assert_eq!(tier, "stats");
        skip(test, note);
    }
    tier == "exact"
}

fn load() -> Loaded {
    Fixture::COUNTED.open().unwrap().load().unwrap()
}

fn exact<'a>(report: &'a Value, loaded: &Loaded, name: &str) -> &'a Value {
    let program = program(report, loaded.id_of(name).unwrap());
    assert!(!program["exact"].is_null(), "{name}: {}", program["exact_unknown"]);
    &program["exact"]
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value:#}"))
}

/// Asserts that at least 99 % of the counted runs are measured: on preemptible kernels, the kernel's recursion guard prevents a few measurements.
fn nearly_all_are_measured(exact: &Value) {
    let (runs, measured) = (number(exact, "runs"), number(exact, "measured"));
    assert!(measured <= runs && runs - measured <= runs / 100, "{exact:#}");
}

/// Checks that the numbers of the programs in this file are possible: all runs fit into the elapsed time.
fn check_possible(report: &Value, elapsed: Duration) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut seen = 0;
    for program in report["programs"].as_array().unwrap() {
        let functions = program["exact_functions"].as_array().into_iter().flatten();
        for exact in functions.chain([&program["exact"]]).filter(|exact| exact.is_object()) {
            let of = |name| number(exact, name);
            assert!(of("measured") + of("nesting_overflow") + of("discarded") <= of("runs"), "{program:#}");
            if let Some(with_pair) = exact["ns_per_run"]["gross"].as_f64() {
                assert!(with_pair >= 0.0, "{program:#}");
                let total = with_pair * of("measured") as f64;
                // Programs do not run inside themselves.
                let room = elapsed.as_nanos() as f64 * cpus as f64;
                assert!(total <= room * 1.0001, "{total} ns of {room}: {program:#}");
            }
            seen += 1;
        }
    }
    assert!(seen > 0, "nothing was counted");
}

/// Programs that the recorder has loaded for itself.
fn own_programs() -> Vec<Value> {
    let output = succeed(Command::new("bpftool").args(["-j", "prog", "list"]));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Array(Vec::new()));
    let names = ["bprec_session", "bprec_enter", "bprec_leave", "bprec_gauge"];
    let is_own = |item: &&Value| item["name"].as_str().is_some_and(|name| names.contains(&name));
    list.as_array().unwrap().iter().filter(is_own).cloned().collect()
}

fn wait_until_none_is_left() {
    let patience = Instant::now() + Duration::from_secs(20);
    // The kernel frees the programs some time after their last descriptor is closed.
    while !own_programs().is_empty() {
        assert!(Instant::now() < patience, "{:#?}", own_programs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn exact_runs_are_the_programs_own_counts() {
    if !allowed("exact_runs_are_the_programs_own_counts") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = load();
    let pattern = "exact=loop_of_*,call_a_subprogram:*,rarely_*";
    let started = Instant::now();
    let child = recording(&path, "3", &["-F", "100", "--counters", pattern, "--budget", "100"]);
    for (name, times) in [("loop_of_100", 1200), ("loop_of_1000", 700), ("loop_of_10000", 500)] {
        loaded.run(name, times).unwrap();
    }
    loaded.run("call_a_subprogram", 400).unwrap();
    loaded.run("rarely_a_hundred_times_longer", 1000).unwrap();
    end(child);
    let elapsed = started.elapsed();
    let report = report(&path, &[]);
    for name in ["loop_of_100", "loop_of_1000", "loop_of_10000", "call_a_subprogram", "rarely_a_hundred_times_longer"] {
        let exact = exact(&report, &loaded, name);
        let runs = loaded.entered(name).unwrap();
        assert_eq!(number(exact, "runs"), runs, "{name}: {exact:#}");
        nearly_all_are_measured(exact);
        assert_eq!((number(exact, "nesting_overflow"), number(exact, "discarded")), (0, 0), "{name}");
        assert_eq!(number(exact, "every"), 1);
    }
    let functions = &program(&report, loaded.id_of("call_a_subprogram").unwrap())["exact_functions"];
    let subprogram = functions.as_array().unwrap().iter().find(|it| it["name"] == "subprogram_of_1000").unwrap();
    assert_eq!(number(subprogram, "runs"), 3 * 400);
    // One run in a hundred takes a hundred times longer: the 99.9th percentile is one of these runs, the median is one of the others.
    let rarely = exact(&report, &loaded, "rarely_a_hundred_times_longer");
    let upto = |percent: f64| {
        let found = rarely["percentiles"].as_array().unwrap().iter().find(|it| it["percent"] == percent).unwrap();
        found["to_ns"].as_u64().unwrap()
    };
    assert!(upto(99.9) > 4 * upto(50.0), "{rarely:#}");
    // Programs that were not requested are not counted.
    assert!(program(&report, loaded.id_of("run_inside_itself").unwrap())["exact"].is_null());
    check_possible(&report, elapsed);
    wait_until_none_is_left();
}

#[test]
fn numbers_are_possible_whatever_runs_while_counting_begins_and_ends() {
    if !allowed("numbers_are_possible_whatever_runs_while_counting_begins_and_ends") {
        return;
    }
    let scratch = Scratch::new();
    let loaded = load();
    let quit = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !quit.load(Ordering::Relaxed) {
                for name in ["loop_of_100", "loop_of_1000", "call_a_subprogram"] {
                    loaded.run(name, 50).unwrap();
                }
            }
        });
        let _set = SetAtEnd(&quit);
        for round in 0..4 {
            let path = scratch.path(&format!("{round}.data"));
            let budget = if round % 2 == 0 { "100" } else { "0.5" };
            let pattern = "exact=loop_of_100,loop_of_1000,call_a_subprogram:*";
            let options =
                ["-q", "-a", "-F", "100", "--counters", pattern, "--budget", budget, "--duration", "0.3", "-I", "50"];
            let start = Instant::now();
            record(&path, &options);
            check_possible(&report(&path, &[]), start.elapsed());
        }
    });
    wait_until_none_is_left();
}

/// Waits until the recorder counts this number of programs.
fn wait_until_counted(programs: usize) {
    let patience = Instant::now() + Duration::from_secs(20);
    let begins = |item: &&Value| item["name"] == "bprec_enter" || item["name"] == "bprec_session";
    while own_programs().iter().filter(begins).count() < programs {
        assert!(Instant::now() < patience, "fewer than {programs} programs are counted: {:#?}", own_programs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_refused_among_fifty_are_said_and_the_others_are_counted() {
    if !allowed("the_refused_among_fifty_are_said_and_the_others_are_counted") {
        return;
    }
    const NAMES: [&str; 5] =
        ["loop_of_100", "loop_of_1000", "loop_of_10000", "call_a_subprogram", "rarely_a_hundred_times_longer"];
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let all: Vec<Loaded> = (0..10).map(|_| load()).collect();
    let no_btf = Fixture::NO_BTF.open().unwrap().load().unwrap();
    let dispatcher = Fixture::DISPATCHER.open().unwrap().load().unwrap();
    let place = Fixture::EXTENSION.open().unwrap();
    let extension = place.on_function_of(&dispatcher, "pass_to_another", "place_for_another").unwrap().start().unwrap();
    let crowded = load();
    let mut crowd = Vec::new();
    while let Ok(one) = Fixture::FENTRY.open().unwrap().on_program(&crowded, "loop_of_100").unwrap().start() {
        crowd.push(one);
        assert!(crowd.len() < 100, "there is no limit to the programs around a function");
    }
    let id = |loaded: &Loaded, name: &str| loaded.id_of(name).unwrap();
    let refused = [
        (no_btf.programs().unwrap()[0].id, "it has no BTF"),
        (id(&dispatcher, "pass_to_another"), "an extension program has replaced one of its functions"),
        (id(&dispatcher, "xdp_dispatcher"), "it is a dispatcher"),
        (id(&crowded, "loop_of_100"), "the largest number of tracing programs"),
    ];
    let mut ids: Vec<u32> = all.iter().flat_map(|loaded| NAMES.map(|name| id(loaded, name))).collect();
    assert_eq!(ids.len(), 50);
    ids.extend(refused.iter().map(|(id, _)| *id));
    ids.push(id(&extension, "run_in_its_place"));
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let child =
        recording(&path, "6", &["-F", "100", "--counters", &format!("exact={}", ids.join(",")), "--budget", "100"]);
    wait_until_counted(51);
    all.iter().for_each(|loaded| NAMES.iter().for_each(|name| loaded.run(name, 3).unwrap()));
    dispatcher.run("pass_to_another", 4).unwrap();
    crowded.run("loop_of_100", 5).unwrap();
    end(child);
    let report = report(&path, &[]);
    for loaded in &all {
        for name in NAMES {
            assert_eq!(number(exact(&report, loaded, name), "measured"), 3);
        }
    }
    assert_eq!(number(exact(&report, &extension, "run_in_its_place"), "measured"), 4);
    for (id, reason) in refused {
        let program = program(&report, id);
        assert!(program["exact"].is_null());
        assert!(program["exact_unknown"].as_str().unwrap().contains(reason), "{}", program["exact_unknown"]);
    }
}

#[test]
fn an_extension_attaches_to_a_dispatcher_that_is_recorded() {
    if !allowed("an_extension_attaches_to_a_dispatcher_that_is_recorded") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let dispatcher = Fixture::DISPATCHER.open().unwrap().load().unwrap();
    let names = ["xdp_dispatcher", "pass_to_another"];
    let loaded = load();
    let pattern = "exact=xdp_dispatcher:*,pass_to_another:*,run_in_its_place,loop_of_100";
    let child = recording(&path, "6", &["-F", "100", "--counters", pattern, "--budget", "100"]);
    wait_until_counted(1);
    let extensions = names.map(|name| {
        let opened = Fixture::EXTENSION.open().unwrap();
        opened.on_function_of(&dispatcher, name, "place_for_another").unwrap().start().unwrap()
    });
    // The new programs are counted, too.
    wait_until_counted(3);
    for (times, name) in [(10, names[0]), (20, names[1])] {
        dispatcher.run(name, times).unwrap();
    }
    loaded.run("loop_of_100", 5).unwrap();
    end(child);
    let report = report(&path, &[]);
    for (extension, times) in extensions.iter().zip([10, 20]) {
        assert_eq!(extension.entered("run_in_its_place").unwrap(), times);
        assert_eq!(number(exact(&report, extension, "run_in_its_place"), "measured"), times);
    }
    assert_eq!(number(exact(&report, &loaded, "loop_of_100"), "measured"), 5);
    for name in names {
        let reason = &program(&report, dispatcher.id_of(name).unwrap())["exact_unknown"];
        assert!(reason.as_str().unwrap().contains("no extension program could"), "{reason}");
    }
}

#[test]
fn the_last_counts_of_an_unloaded_program_are_kept() {
    if !allowed("the_last_counts_of_an_unloaded_program_are_kept") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let child = recording(&path, "4", &["-F", "100", "--counters", "exact=loop_of_1000", "--budget", "100"]);
    let loaded = load();
    wait_until_counted(1);
    loaded.run("loop_of_1000", 123).unwrap();
    let id = loaded.id_of("loop_of_1000").unwrap();
    drop(loaded);
    // The counters release the program after all other holders have released it.
    let patience = Instant::now() + Duration::from_secs(20);
    while own_programs().iter().any(|item| item["name"] != "bprec_gauge") {
        assert!(Instant::now() < patience, "the program is still counted");
        std::thread::sleep(Duration::from_millis(20));
    }
    end(child);
    let report = report(&path, &[]);
    let exact = &program(&report, id)["exact"];
    assert_eq!((number(exact, "runs"), number(exact, "measured")), (123, 123), "{exact:#}");
}

#[test]
fn one_that_is_refused_is_said_and_the_others_are_counted() {
    if !allowed("one_that_is_refused_is_said_and_the_others_are_counted") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let all: Vec<Loaded> = (0..3).map(|_| load()).collect();
    let refused = Fixture::NO_BTF.open().unwrap().load().unwrap();
    let refused_id = refused.programs().unwrap()[0].id;
    let ids: Vec<String> = all.iter().flat_map(|it| it.programs().unwrap()).map(|it| it.id.to_string()).collect();
    let pattern = format!("exact={refused_id},{}", ids.join(","));
    let child = recording(&path, "2", &["-F", "100", "--counters", &pattern, "--budget", "100"]);
    for loaded in &all {
        loaded.run("loop_of_100", 10).unwrap();
    }
    end(child);
    let report = report(&path, &[]);
    for loaded in &all {
        assert_eq!(number(exact(&report, loaded, "loop_of_100"), "measured"), 10);
        for program in loaded.programs().unwrap() {
            assert!(exact(&report, loaded, &program.name).is_object());
        }
    }
    let refused = program(&report, refused_id);
    assert!(refused["exact"].is_null());
    assert!(refused["exact_unknown"].as_str().unwrap().contains("no BTF"), "{}", refused["exact_unknown"]);
}

#[test]
fn a_program_that_comes_later_joins() {
    if !allowed("a_program_that_comes_later_joins") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let child = recording(&path, "4", &["-F", "100", "--counters", "exact=loop_of_1000", "--budget", "100"]);
    let loaded = load();
    let patience = Instant::now() + Duration::from_millis(3500);
    while Instant::now() < patience {
        loaded.run("loop_of_1000", 10).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    end(child);
    let report = report(&path, &[]);
    let exact = exact(&report, &loaded, "loop_of_1000");
    let (runs, entered) = (number(exact, "runs"), loaded.entered("loop_of_1000").unwrap());
    assert!(runs > 0 && runs <= entered, "{runs} of {entered}");
    nearly_all_are_measured(exact);
}

/// Runs a program repeatedly in another thread until `happens` returns.
fn beside<T>(loaded: &Loaded, name: &str, happens: impl FnOnce() -> T) -> T {
    let quit = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !quit.load(Ordering::Relaxed) {
                loaded.run(name, 100).unwrap();
            }
        });
        let _set = SetAtEnd(&quit);
        happens()
    })
}

/// Budget that thousands of runs per second exceed.
const SMALL_BUDGET: [&str; 6] = ["-F", "100", "--counters", "exact=loop_of_100,loop_of_1000", "--budget", "0.01"];

/// Runs of a program between start and end of a recording: the kernel's count and the program's own count.
fn counted_and_entered(loaded: &Loaded, name: &str, recorder: std::process::Child) -> (u64, u64) {
    let look = || (loaded.run_stats(name).unwrap().run_cnt, loaded.entered(name).unwrap());
    let (counted, entered) = look();
    end(recorder);
    let after = look();
    (after.0 - counted, after.1 - entered)
}

#[test]
fn statistics_that_would_take_too_much_are_on_in_windows() {
    if !allowed("statistics_that_would_take_too_much_are_on_in_windows") {
        return;
    }
    let (scratch, loaded) = (Scratch::new(), load());
    let path = scratch.path("perf.data");
    let (counted, entered) = beside(&loaded, "loop_of_100", || {
        let child = recording(&path, "3", &SMALL_BUDGET);
        loaded.run("loop_of_1000", 3).unwrap();
        counted_and_entered(&loaded, "loop_of_100", child)
    });
    assert!(counted < entered / 2, "the kernel counted {counted} of {entered} runs: expected less than half");
    let report = report(&path, &[]);
    let often = program(&report, loaded.id_of("loop_of_100").unwrap());
    assert!(number(&often["runs"], "count") > 0 && often["runs"]["estimate"].is_object(), "{often:#}");
    assert!(often["exact_unknown"].as_str().unwrap().contains("runs too often"), "{often:#}");
    assert_eq!(number(exact(&report, &loaded, "loop_of_1000"), "runs"), 3);
}

#[test]
fn statistics_are_on_all_the_time_with_the_whole_budget() {
    if !allowed("statistics_are_on_all_the_time_with_the_whole_budget") {
        return;
    }
    let (scratch, loaded) = (Scratch::new(), load());
    let path = scratch.path("perf.data");
    let options = ["-F", "100", "--counters", "exact=loop_of_100", "--budget", "100"];
    let (counted, entered) =
        beside(&loaded, "loop_of_100", || counted_and_entered(&loaded, "loop_of_100", recording(&path, "2", &options)));
    let report = report(&path, &[]);
    let often = program(&report, loaded.id_of("loop_of_100").unwrap());
    assert!(often["runs"]["estimate"].is_null(), "{often:#}");
    // The kernel starts to count shortly before the command starts, and stops after the command ends, because the recorder must detach its programs
    // first.
    let runs = number(&often["runs"], "count");
    assert!(
        counted <= entered && runs > counted / 4,
        "{runs} runs reported, {counted} counted by the kernel, {entered} made: {often:#}"
    );
}

#[test]
fn what_comes_to_take_too_much_is_counted_no_longer_and_says_when() {
    if !allowed("what_comes_to_take_too_much_is_counted_no_longer_and_says_when") {
        return;
    }
    let (scratch, loaded) = (Scratch::new(), load());
    let path = scratch.path("perf.data");
    let child = recording(&path, "5", &SMALL_BUDGET);
    beside(&loaded, "loop_of_100", || end(child));
    let report = report(&path, &[]);
    let often = program(&report, loaded.id_of("loop_of_100").unwrap());
    assert!(number(&often["runs"], "count") > 0 && often["runs"]["estimate"].is_object(), "{often:#}");
    let ended = often["exact"]["ended"].as_str().unwrap_or_else(|| panic!("{often:#}"));
    assert!(ended.contains("runs too often"), "{ended}");
    assert!(number(&often["exact"], "runs") < loaded.entered("loop_of_100").unwrap());
}

#[test]
fn tail_calls_are_said_to_be_in_the_counts_of_the_caller() {
    let test = "tail_calls_are_said_to_be_in_the_counts_of_the_caller";
    if !allowed(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let tail = Fixture::TAIL_CALL.open().unwrap().for_this_thread().unwrap().loops(5).unwrap().start().unwrap();
    let child = recording(&path, "2", &["-F", "100", "--counters", "exact=tail_call_*", "--budget", "100"]);
    bprec_fixtures::load::system_calls(200);
    end(child);
    let report = report(&path, &[]);
    let entry = program(&report, tail.id_of("tail_call_entry").unwrap());
    if entry["exact"].is_null() {
        // On some kernels, these calls would never end: the program is not counted, and the reason is reported.
        assert!(entry["exact_unknown"].as_str().unwrap().contains("tail calls"), "{}", entry["exact_unknown"]);
        skip(test, "this kernel would never end such tail calls");
        return;
    }
    let runs = number(&entry["exact"], "runs");
    assert!((200..=tail.entered("tail_call_entry").unwrap()).contains(&runs), "{runs}");
    assert_eq!(tail.ran("tail_call_third").unwrap(), 200);
    // A tail call is a jump; the counters do not see it as a run.
    let third = program(&report, tail.id_of("tail_call_third").unwrap());
    assert_eq!((&third["exact"], &third["exact_reason"]["code"]), (&Value::Null, &json!("not_entered")));
    assert_eq!((&third["runs"], &third["runs_reason"]["code"]), (&Value::Null, &json!("not_entered")));
    let note = report["counting"]["note"].as_str().unwrap();
    assert!(note.contains("tail-call") && note.contains("tail_call_entry"), "{note}");
}

#[test]
fn one_program_counts_another_where_the_kernel_has_sessions() {
    let test = "one_program_counts_another_where_the_kernel_has_sessions";
    if !allowed(test) {
        return;
    }
    let name = b"\0BPF_TRACE_FSESSION\0";
    let has_sessions = std::fs::read("/sys/kernel/btf/vmlinux").unwrap().windows(name.len()).any(|it| it == name);
    if has_sessions && !cfg!(target_arch = "x86_64") {
        return skip(test, "this kernel has sessions, but not on this processor");
    }
    let expected = if has_sessions { [3, 0, 0] } else { [0, 3, 3] };
    let scratch = Scratch::new();
    let _loaded = load();
    let mut child = start_and_wait(&scratch.path("perf.data"));
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let own = own_programs();
        let of = |name: &str| own.iter().filter(|item| item["name"] == name).count();
        let found = ["bprec_session", "bprec_enter", "bprec_leave"].map(of);
        if found == expected {
            break;
        }
        // The program of the calibration is freed some time after its last descriptor closes.
        assert!(Instant::now() < patience, "{found:?}, not {expected:?}: {own:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_none_is_left();
}

#[test]
fn a_recorder_that_is_killed_leaves_no_program() {
    if !allowed("a_recorder_that_is_killed_leaves_no_program") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = load();
    let mut child = start_and_wait(&path);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_none_is_left();
    loaded.run("loop_of_100", 10).unwrap();
}

/// Starts to record without end, and waits until programs are counted.
fn start_and_wait(path: &Path) -> std::process::Child {
    let child = bprec()
        .args(["record", "-q", "-a", "--counters", "exact=loop_of_*", "-o"])
        .arg(path)
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until_counted(3);
    child
}
