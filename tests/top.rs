//! `bprec top`: its runs equal those of bpftool, and nothing remains at the end; `known_loads.rs` tests its shares. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{alone, bprec, root, signal, succeed, wait_for};
use bprec_fixtures::{Fixture, Loaded, Request};
use serde_json::Value;

/// A running `bprec top`, ended on drop.
struct Top {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Top {
    fn start(arguments: &[&str]) -> Top {
        let mut child = bprec().arg("top").arg("--json").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Top { child, lines: Some(lines) }
    }

    /// Returns the next interval.
    fn next(&mut self) -> Value {
        let line = self.lines.as_mut().and_then(Iterator::next).expect("another interval").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // `bprec top` may have ended already.
        if let Ok(None) = self.child.try_wait() {
            signal(&self.child, "-TERM");
            let _ = self.child.wait();
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Entry of a program in an interval.
fn program(interval: &Value, id: u32) -> &Value {
    let programs = interval["report"]["programs"].as_array().unwrap();
    programs.iter().find(|program| program["id"] == id).unwrap_or_else(|| panic!("no program {id}"))
}

fn load() -> Loaded {
    Fixture::COUNTED.open().unwrap().load().unwrap()
}

/// Runs and time from `bpftool prog show`.
fn bpftool(id: u32) -> (u64, u64) {
    let output = succeed(Command::new("bpftool").args(["-j", "prog", "show", "id", &id.to_string()]));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    (shown["run_cnt"].as_u64().unwrap_or(0), shown["run_time_ns"].as_u64().unwrap_or(0))
}

#[test]
fn runs_and_times_are_those_of_bpftool() {
    if !root("runs_and_times_are_those_of_bpftool") {
        return;
    }
    alone();
    let loaded = load();
    let id = loaded.id_of("loop_of_1000").unwrap();
    let mut top = Top::start(&["-d", "0.5", "--budget", "100", "--all", "--prog", &id.to_string()]);
    let mut before = top.next();
    loaded.run("loop_of_1000", 5_000).unwrap();
    let (mut runs, mut time_ns) = (0, 0);
    loop {
        let interval = top.next();
        // Intervals neither overlap nor leave gaps.
        assert_eq!(interval["from_ns"], before["to_ns"]);
        let counted = &program(&interval, id)["runs"];
        let count = number(&counted["count"]);
        runs += count;
        time_ns += number(&counted["time_ns"]);
        let length_ns = number(&interval["to_ns"]) - number(&interval["from_ns"]);
        let per_second = count as f64 * 1e9 / length_ns as f64;
        assert!((counted["per_second"].as_f64().unwrap() - per_second).abs() <= per_second * 0.01, "{counted}");
        before = interval;
        if runs >= 5_000 && count == 0 {
            break;
        }
    }
    // The kernel counts as long as `top` runs, and all readers see the same count.
    assert_eq!((runs, time_ns), bpftool(id));
    assert_eq!(runs, 5_000);
    drop(top);
}

/// Value of a series in the text format of Prometheus.
fn series(text: &str, name: &str, labels: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(labels)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// Time since 1970, s.
fn unix_s() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A `bprec top` that writes counters for Prometheus, five times a second.
struct MetricsFile {
    // `top` is dropped before the directory, because it writes to the directory.
    top: RefCell<Top>,
    directory: tempfile::TempDir,
}

impl MetricsFile {
    fn start(arguments: &[&str]) -> MetricsFile {
        let directory = tempfile::tempdir().unwrap();
        let mut command = bprec();
        command.args(["top", "-d", "0.2", "--budget", "100"]).args(arguments);
        let child = command.arg("--openmetrics").arg(directory.path().join("bprec.prom")).spawn().unwrap();
        MetricsFile { top: RefCell::new(Top { child, lines: None }), directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("bprec.prom")
    }

    /// Returns the contents of the file, which promtool accepts; empty before the first interval.
    fn text(&self) -> String {
        let Ok(text) = std::fs::read_to_string(self.path()) else { return String::new() };
        let path = self.directory.path().join("read");
        std::fs::write(&path, &text).unwrap();
        succeed(Command::new("promtool").args(["check", "metrics"]).stdin(std::fs::File::open(&path).unwrap()));
        std::fs::remove_file(path).unwrap();
        text
    }

    /// Returns the counters of an interval that ended at least its usual length after `unix_s`.
    fn text_after(&self, unix_s: f64) -> String {
        self.wait_for(|text| {
            let end_s = series(text, "bprec_last_interval_end_timestamp_seconds", "")?;
            (end_s > unix_s + 0.2).then(|| text.to_owned())
        })
    }

    /// Reads the file until `look` finds something in it.
    fn wait_for<T>(&self, look: impl Fn(&str) -> Option<T>) -> T {
        wait_for("the series", || {
            assert!(self.top.borrow_mut().child.try_wait().unwrap().is_none(), "bprec top has ended");
            look(&self.text())
        })
    }
}

/// bpftool counts the same runs and the same time, over several files of the recording; promtool accepts the output file at every moment.
#[test]
fn counters_for_prometheus_are_those_of_bpftool() {
    if !root("counters_for_prometheus_are_those_of_bpftool") {
        return;
    }
    alone();
    let loaded = load();
    let id = loaded.id_of("loop_of_1000").unwrap();
    let metrics = MetricsFile::start(&["--keep", "1"]);
    let label = format!("{{id=\"{id}\"}}");
    let counted = |text: &str| {
        let runs = series(text, "bprec_program_runs_total", &label);
        runs.zip(series(text, "bprec_program_run_seconds_total", &label))
    };
    metrics.wait_for(counted);
    // The load runs for longer than the time of several files.
    let began = std::time::Instant::now();
    let mut runs = 0_u32;
    while began.elapsed() < std::time::Duration::from_secs(4) {
        loaded.run("loop_of_1000", 10).unwrap();
        runs += 10;
    }
    let text = metrics.text_after(unix_s());
    let (counted_runs, counted_s) = counted(&text).unwrap();
    assert_eq!(series(&text, "bprec_program_runs_counted_ratio", &label), Some(1.0));
    let (bpftool_runs, bpftool_ns) = bpftool(id);
    assert_eq!(bpftool_runs, u64::from(runs));
    // No run between two files is lost; the counts of the last moments are interpolated.
    let is_near = |counted: f64, truth: f64| counted <= truth * 1.000_001 && counted > truth * 0.99;
    assert!(is_near(counted_runs, f64::from(runs)), "{counted_runs} of {runs}");
    assert!(is_near(counted_s, bpftool_ns as f64 / 1e9), "{counted_s} s, {bpftool_ns} ns");
    // The dashboard of docs/top.md uses only series that exist.
    let dashboard =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/grafana-dashboard.json"));
    let dashboard: Value = serde_json::from_str(&dashboard.unwrap()).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    for query in targets.map(|target| target["expr"].as_str().unwrap()) {
        let names = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|it| it.starts_with("bprec_"));
        names.for_each(|name| assert!(text.contains(&format!("# TYPE {name} ")), "{name} of {query}"));
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(metrics.path()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);
    let MetricsFile { top, directory } = metrics;
    drop(top);
    let names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["bprec.prom"]);
}

/// All series of a program end when it is unloaded; counters of other programs and of all BPF go on.
#[test]
fn counters_of_an_unloaded_program_end() {
    if !root("counters_of_an_unloaded_program_end") {
        return;
    }
    alone();
    let (stays, goes) = (load(), load());
    let [stays_id, goes_id] = [&stays, &goes].map(|loaded| loaded.id_of("loop_of_1000").unwrap());
    let metrics = MetricsFile::start(&[]);
    let runs = |text: &str, id: u32| series(text, "bprec_program_runs_total", &format!("{{id=\"{id}\"}}"));
    // Waits until both programs have run and have samples.
    let has_samples = |text: &str, id: u32| text.contains(&format!("bprec_program_sampled_seconds_total{{id=\"{id}\""));
    let (stayed_runs, bpf_s) = metrics.wait_for(|text| {
        goes.run("loop_of_1000", 2_000).unwrap();
        stays.run("loop_of_1000", 2_000).unwrap();
        let ran = runs(text, goes_id).is_some_and(|runs| runs > 0.0) && has_samples(text, goes_id);
        let bpf_s = series(text, "bprec_sampled_bpf_seconds_total", "{event=\"cpu-clock\"}");
        ran.then(|| runs(text, stays_id).zip(bpf_s)).flatten()
    });
    drop(goes);
    let text = metrics.wait_for(|text| (!text.is_empty() && runs(text, goes_id).is_none()).then(|| text.to_owned()));
    assert!(!text.contains(&format!("id=\"{goes_id}\"")), "{text}");
    assert!(runs(&text, stays_id).unwrap() >= stayed_runs, "{text}");
    assert!(series(&text, "bprec_sampled_bpf_seconds_total", "{event=\"cpu-clock\"}").unwrap() >= bpf_s, "{text}");
}

/// Samples of page faults are counted as events, not as time. Each run of the program reads a page that was never touched before, which is one page
/// fault.
#[test]
fn events_that_are_no_clock_are_counted_as_events() {
    const FAULTS: u32 = 400;
    /// Distance between two reads: the size of a huge page, so that each read is a page fault.
    const APART: usize = 2 << 20;
    if !root("events_that_are_no_clock_are_counted_as_events") {
        return;
    }
    alone();
    let loaded = Fixture::OVERLAP.open().unwrap().load().unwrap();
    let id = loaded.id_of("sleep_in_the_middle").unwrap();
    let memory = vec![0_u8; FAULTS as usize * APART];
    // Each page fault is a sample, unless other processes cause very many page faults at the same time.
    let metrics = MetricsFile::start(&["-e", "page-faults", "-F", "max"]);
    metrics.wait_for(|text| (!text.is_empty()).then_some(()));
    for fault in 0..FAULTS as usize {
        let address = memory.as_ptr() as u64 + (fault * APART) as u64;
        loaded.request("sleep_in_the_middle", &Request { address, ..Request::default() }).unwrap();
    }
    assert_eq!(loaded.ran("sleep_in_the_middle").unwrap(), u64::from(FAULTS));
    let part = |part: &str| format!("{{id=\"{id}\",event=\"page-faults\",part=\"{part}\"}}");
    let text = metrics.text_after(unix_s());
    let counted = |name, labels: &str| series(&text, name, labels).unwrap();
    let ratio = counted("bprec_program_sampled_events_total", &part("helper")) / f64::from(FAULTS);
    assert!((0.7..1.3).contains(&ratio), "{ratio}: {text}");
    assert_eq!(counted("bprec_program_sampled_events_total", &part("self")), 0.0, "{text}");
    let event = "{event=\"page-faults\"}";
    let bpf = counted("bprec_sampled_bpf_events_total", event);
    assert!(bpf >= ratio * f64::from(FAULTS) && counted("bprec_sampled_events_total", event) >= bpf, "{text}");
    // For an event that is not a clock, there are no series in seconds.
    assert!(!text.contains("sampled_seconds_total") && !text.contains("sampled_bpf_seconds_total"), "{text}");
    drop(memory);
}

/// `top` writes and reads its files one after the other, and intervals do not overlap.
#[test]
fn intervals_go_on_over_files() {
    if !root("intervals_go_on_over_files") {
        return;
    }
    alone();
    let mut top = Top::start(&["-d", "0.2", "--keep", "1", "-n", "12"]);
    let mut starts = BTreeSet::new();
    let mut last_ns = 0;
    for _ in 0..12 {
        let interval = top.next();
        let (from_ns, to_ns) = (number(&interval["from_ns"]), number(&interval["to_ns"]));
        assert!(from_ns >= last_ns && to_ns > from_ns, "{from_ns} to {to_ns} after {last_ns}");
        last_ns = to_ns;
        starts.insert(number(&interval["report"]["recording"]["start_ns"]));
    }
    assert!(top.lines.as_mut().is_some_and(|lines| lines.next().is_none()), "more intervals than -n allows");
    assert!(top.child.wait().unwrap().success());
    assert!(starts.len() > 1, "all intervals are from one file");
}

/// Directories of `bprec top`.
fn directories() -> BTreeSet<String> {
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("bprec-top-")).collect()
}

#[test]
fn whatever_signal_ends_it_nothing_stays() {
    if !root("whatever_signal_ends_it_nothing_stays") {
        return;
    }
    alone();
    for number in ["-INT", "-TERM", "-HUP"] {
        let before = directories();
        let mut top = Top::start(&["-d", "0.2"]);
        top.next();
        signal(&top.child, number);
        let status = top.child.wait().unwrap();
        assert!(status.success(), "{number}: {status}");
        // Other processes may have removed directories meanwhile.
        assert!(directories().is_subset(&before), "{number}");
    }
}

/// A killed process cannot remove its files, so the next process does.
#[test]
fn what_was_killed_is_cleaned_up_by_the_next_one() {
    if !root("what_was_killed_is_cleaned_up_by_the_next_one") {
        return;
    }
    alone();
    let before = directories();
    let mut killed = Top::start(&["-d", "0.2"]);
    killed.next();
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let left: BTreeSet<String> = directories().difference(&before).cloned().collect();
    let mut next = Top::start(&["-d", "0.2", "-n", "1"]);
    next.next();
    assert!(next.child.wait().unwrap().success());
    assert!(directories().is_disjoint(&left), "{left:?}");
}

#[test]
fn a_program_that_is_not_there_is_told_by_the_exit_code() {
    if !root("a_program_that_is_not_there_is_told_by_the_exit_code") {
        return;
    }
    alone();
    let output = bprec().args(["top", "--once", "-b", "-d", "0.2", "--prog", "no_such_program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("all BPF: ") && text.contains("SAMPLES"), "{text}");
}

#[test]
fn tables_have_colours_when_asked() {
    if !root("tables_have_colours_when_asked") {
        return;
    }
    alone();
    let printed = |color: &str| {
        let output = bprec().args(["top", "--once", "--all", "-d", "0.2", color]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!printed("--color=auto").contains('\u{1b}'));
    let colored = printed("--color=always");
    assert!(colored.lines().any(|line| line.starts_with("\u{1b}[1m") && line.contains("NS/RUN")), "{colored}");
}

#[test]
fn redacted_intervals_have_the_programs_and_no_names_of_tasks() {
    if !root("redacted_intervals_have_the_programs_and_no_names_of_tasks") {
        return;
    }
    alone();
    let loaded = load();
    // This process holds the programs.
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap().trim().to_owned();
    let printed = |redact: &[&str]| {
        let arguments = [&["top", "--once", "--all", "--json", "-d", "0.2"], redact].concat();
        let text = String::from_utf8(succeed(bprec().args(arguments)).stdout).unwrap();
        (serde_json::from_str::<Value>(&text).unwrap(), text)
    };
    let id = loaded.id_of("loop_of_1000").unwrap();
    let (plain, text) = printed(&[]);
    assert!(text.contains(&comm), "{comm}: {text}");
    assert_eq!(program(&plain, id)["name"], "loop_of_1000");
    let (redacted, text) = printed(&["--redact"]);
    assert!(!text.contains(&comm), "{comm}: {text}");
    assert_eq!(program(&redacted, id)["name"], "loop_of_1000");
    let (_, text) = printed(&["--redact=+progs"]);
    assert!(!text.contains(&comm) && !text.contains("loop_of_1000"), "{text}");
}

/// CSV has the programs of the same interval once, each with as many fields as there are names; Markdown has whole tables.
#[test]
fn forms_other_than_json_have_whole_rows() {
    if !root("forms_other_than_json_have_whole_rows") {
        return;
    }
    alone();
    let shown = |form: &str| {
        let output = succeed(bprec().args(["top", "-d", "0.5", "-n", "2", "--all", form]));
        String::from_utf8(output.stdout).unwrap()
    };
    let csv = shown("--csv");
    let names = csv.lines().next().unwrap();
    assert!(names.starts_with("from_ns,to_ns,"), "{names}");
    assert_eq!(csv.lines().filter(|line| *line == names).count(), 1, "{csv}");
    let fields = names.split(',').count();
    let intervals: BTreeSet<_> =
        csv.lines().skip(1).map(|line| line.splitn(3, ',').take(2).collect::<Vec<_>>()).collect();
    let are_whole = csv.lines().filter(|line| !line.contains('"')).all(|line| line.split(',').count() == fields);
    assert!(are_whole && intervals.len() == 2, "{csv}");
    let markdown = shown("--markdown");
    assert!(markdown.contains("| PROGRAM |") && markdown.matches("| ---").count() >= 2, "{markdown}");
}
