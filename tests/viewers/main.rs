//! Tests exports in their viewers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod answers;
mod flame;
mod otlp;
#[path = "../support/pod.rs"]
mod pod;
mod pprof;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bprec_report::model::Known;
use bprec_report::{Input, Options, Session};
use serde_json::{Value, json};
use support::{Scratch, bprec, skip, succeed, wait_for};

const RECORDINGS: [&str; 3] = [
    "fixtures/recordings/linux-7.2/ratio.data",
    "fixtures/recordings/linux-6.12-arm64/exact.data",
    "fixtures/corpus/perf_g_fp.data",
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Directory of `setup/viewers`; prints a skip message if it was not run.
fn viewers(test: &str) -> Option<PathBuf> {
    let modules = repository().join("target/viewers/node_modules");
    if !modules.is_dir() {
        skip(test, "the viewers are not installed (setup/viewers)");
        return None;
    }
    Some(modules)
}

fn exported(format: &str, recording: &str, to: &Path) {
    succeed(bprec().args(["export", "--to", format, "-i"]).arg(repository().join(recording)).arg("-o").arg(to));
}

/// A session of the Firefox Profiler's command line: a process that has loaded the profile and answers requests.
struct FirefoxProfiler {
    program: PathBuf,
    home: Scratch,
    process: Option<Child>,
}

impl FirefoxProfiler {
    fn load(modules: &Path, profile: &Path) -> FirefoxProfiler {
        let program = modules.join("@firefox-devtools/profiler-cli/dist/profiler-cli.js");
        let mut profiler = FirefoxProfiler { program, home: Scratch::new(), process: None };
        let process = profiler.command(&["--daemon"]).arg(profile).args(["--session", "test"]).spawn().unwrap();
        profiler.process = Some(process);
        // The test waits for a line in the session's log. A client that connects before the session listens would consider the session dead and
        // remove it.
        let log = profiler.home.path("test.log");
        wait_for("the profile is loaded", || {
            let log = std::fs::read_to_string(&log).ok()?;
            log.contains("Profile loaded successfully").then_some(())
        });
        profiler
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("node");
        command.arg(&self.program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        for variable in ["HOME", "XDG_RUNTIME_DIR", "TMPDIR", "PROFILER_CLI_SESSION_DIR"] {
            command.env(variable, self.home.path(""));
        }
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let mut command = self.command(arguments);
        command.args(["--session", "test", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        serde_json::from_slice(&succeed(&mut command).stdout).unwrap()
    }
}

impl Drop for FirefoxProfiler {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Samples by function name: in the function itself, and in all stacks with the function.
type Functions = BTreeMap<String, (u64, u64)>;

/// Computes, from bprec's stacks, the numbers that the profiler must show.
fn functions(recording: &str) -> Functions {
    let input = Input::open(repository().join(recording)).unwrap();
    let stacks = Session::open(&input).unwrap().stacks(&Options::default()).unwrap();
    let mut functions = Functions::new();
    for stack in &stacks.stacks {
        // The outermost frame is the task.
        let names = stack.frames[1..].iter().map(|frame| stacks.frames[*frame as usize].label());
        let names: Vec<String> = names.collect();
        let inside: BTreeSet<&String> = names.iter().collect();
        inside.into_iter().for_each(|name| functions.entry(name.clone()).or_default().1 += stack.count.samples);
        functions.entry(names.last().unwrap().clone()).or_default().0 += stack.count.samples;
    }
    functions
}

#[test]
fn the_firefox_profiler_counts_the_same() {
    let Some(modules) = viewers("the_firefox_profiler_counts_the_same") else { return };
    for recording in RECORDINGS {
        let scratch = Scratch::new();
        let path = scratch.path("profile.json.gz");
        exported("firefox", recording, &path);
        let profiler = FirefoxProfiler::load(&modules, &path);
        let mut seen = Functions::new();
        let threads = profiler.json(&["thread", "list", "--limit", "0"]);
        // Leaves out the tracks of programs, which repeat the samples of the tasks.
        let is_task = |thread: &&Value| !thread["name"].as_str().unwrap().ends_with(')');
        for thread in threads["threads"].as_array().unwrap().iter().filter(is_task) {
            let handle = thread["threadHandle"].as_str().unwrap();
            let listed = profiler.json(&["thread", "functions", "--thread", handle, "--limit", "0", "--include-idle"]);
            for function in listed["functions"].as_array().unwrap() {
                let (own, total) = seen.entry(function["name"].as_str().unwrap().to_owned()).or_default();
                *own += function["selfSamples"].as_u64().unwrap();
                *total += function["totalSamples"].as_u64().unwrap();
            }
        }
        assert_eq!(seen, functions(recording), "{recording}");
    }
}

/// Programs have a separate category, and the marker for each program's lifetime has the facts of the program.
#[test]
fn the_firefox_profiler_shows_the_programs() {
    let Some(modules) = viewers("the_firefox_profiler_shows_the_programs") else { return };
    let recording = RECORDINGS[0];
    let scratch = Scratch::new();
    let path = scratch.path("profile.json.gz");
    exported("firefox", recording, &path);
    let input = Input::open(repository().join(recording)).unwrap();
    let report = Session::open(&input).unwrap().by_prog(&Options::default()).unwrap();
    let profiler = FirefoxProfiler::load(&modules, &path);
    let listed = profiler.json(&["profile", "markers", "--limit", "0"]);
    let markers = listed["markers"].as_array().unwrap();
    let mut compared = 0;
    for program in report.programs.iter() {
        let Known::Value(runs) = &program.runs else { continue };
        let label = program.label_with_id();
        let of = |kind: &'static str, name: &str| {
            let name = format!("{label}{name}");
            markers.iter().filter(move |marker| marker["markerType"] == kind && marker["name"] == name.as_str())
        };
        let life: Vec<&Value> = of("BPF program", "").collect();
        assert_eq!(life.len(), 1, "{label}");
        let tag = program.tag.unwrap().to_string();
        assert!(life[0]["category"] == "BPF" && life[0]["label"].as_str().unwrap().contains(&tag), "{:?}", life[0]);
        // The mean time of a run, computed from the shown intervals.
        let rates = of("BPF runs per second", " runs/s").map(|marker| {
            marker["data"]["runsPerSecond"].as_f64().unwrap() * marker["duration"].as_f64().unwrap() / 1e3
        });
        let times = of("BPF time per run", " time/run").map(|marker| marker["data"]["timePerRun"].as_f64().unwrap());
        let (count, time_ms) =
            rates.zip(times).fold((0.0, 0.0), |(count, time), (runs, ms)| (count + runs, time + runs * ms));
        if runs.count > 0 {
            let expected = runs.ns_per_run.unwrap();
            assert!(
                (time_ms * 1e6 / count / expected - 1.0).abs() < 1e-3,
                "{label}: {time_ms} ms in {count}, {expected}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared}");
    // The unit must be right: 16,628 ns is shown in µs.
    let shown = markers.iter().find(|marker| marker["markerType"] == "BPF time per run").unwrap();
    assert!(shown["label"].as_str().unwrap().ends_with("μs"), "{shown}");
}

/// The profiler's annotation of a program's functions has the samples of each source line that `bprec annotate` has.
#[test]
fn the_firefox_profiler_annotates_source_lines() {
    let Some(modules) = viewers("the_firefox_profiler_annotates_source_lines") else { return };
    let recording = RECORDINGS[0];
    let scratch = Scratch::new();
    let path = scratch.path("profile.json.gz");
    exported("firefox", recording, &path);
    let profiler = FirefoxProfiler::load(&modules, &path);
    let threads = profiler.json(&["thread", "list", "--limit", "0"]);
    let json = succeed(bprec().args(["annotate", "*", "--json", "-i"]).arg(repository().join(recording)));
    let annotated: Value = serde_json::from_slice(&json.stdout).unwrap();
    let mut compared = 0;
    for program in annotated["programs"].as_array().unwrap() {
        let label = format!("{} ({})", program["name"].as_str().unwrap(), program["id"]);
        let mut expected = BTreeMap::<(String, u64), u64>::new();
        let functions = program["functions"].as_array().unwrap().iter();
        for line in functions.flat_map(|function| function["lines"].as_array().unwrap()) {
            let (source, samples) = (&line["source"], line["self"]["samples"].as_u64().unwrap());
            if let (Some(file), 1..) = (source["file"].as_str(), samples) {
                *expected.entry((file.to_owned(), source["line"].as_u64().unwrap())).or_default() += samples;
            }
        }
        let Some(thread) = threads["threads"].as_array().unwrap().iter().find(|it| it["name"] == label.as_str()) else {
            assert!(expected.is_empty(), "{label}");
            continue;
        };
        let handle = thread["threadHandle"].as_str().unwrap();
        profiler.json(&["thread", "select", handle]);
        let listed = profiler.json(&["thread", "functions", "--thread", handle, "--limit", "0"]);
        // The profiler shows the lines of the function's file, with the samples of all functions in that file.
        let entry = format!("bpf:{label}");
        let mut functions = listed["functions"].as_array().unwrap().iter();
        let entry = functions.find(|function| function["name"] == entry.as_str()).unwrap();
        let shown = profiler.json(&["function", "annotate", entry["functionHandle"].as_str().unwrap()]);
        let (file, lines) = (&shown["srcAnnotation"]["filename"], &shown["srcAnnotation"]["lines"]);
        let lines = lines.as_array().unwrap().iter().map(|line| {
            let at = (file.as_str().unwrap().to_owned(), line["lineNumber"].as_u64().unwrap());
            (at, line["selfSamples"].as_u64().unwrap())
        });
        let seen: BTreeMap<(String, u64), u64> = lines.filter(|(_, samples)| *samples > 0).collect();
        assert_eq!(seen, expected, "{label}");
        compared += seen.len();
    }
    assert!(compared >= 6, "{compared} lines");
}

/// Contents of speedscope after it has imported a profile: weights by name, in a frame itself and in its callees; also the weights of programs with
/// all of their functions.
fn imported(modules: &Path, profile: &Path) -> (BTreeMap<String, (u64, u64)>, BTreeMap<String, u64>) {
    let mut open = Command::new("node");
    open.arg(repository().join("tests/viewers/speedscope.js")).arg("/usr/bin/chromium");
    open.arg(modules.join("speedscope/dist/release/index.html")).arg(profile).env("NODE_PATH", modules);
    let seen: Value = serde_json::from_slice(&succeed(&mut open).stdout).unwrap();
    assert_eq!(seen["complaints"], Value::Array(Vec::new()));
    let frames = seen["saved"]["shared"]["frames"].as_array().unwrap();
    let (mut functions, mut programs) = (BTreeMap::<String, (u64, u64)>::new(), BTreeMap::new());
    let (mut open_frames, mut at) = (Vec::<&str>::new(), 0);
    // An imported stack is saved as events that open and close frames along an axis of weight.
    for event in seen["saved"]["profiles"][0]["events"].as_array().unwrap() {
        let weight = event["at"].as_u64().unwrap() - at;
        at += weight;
        if let Some(innermost) = open_frames.last() {
            functions.entry((*innermost).to_owned()).or_default().0 += weight;
        }
        let names: BTreeSet<&str> = open_frames.iter().copied().collect();
        names.iter().for_each(|name| functions.entry((*name).to_owned()).or_default().1 += weight);
        let inside: BTreeSet<&str> = names.iter().filter_map(|name| program_of(name)).collect();
        inside.iter().for_each(|program| *programs.entry((*program).to_owned()).or_default() += weight);
        let name = frames[event["frame"].as_u64().unwrap() as usize]["name"].as_str().unwrap();
        match event["type"].as_str() {
            Some("O") => open_frames.push(name),
            _ => assert_eq!(open_frames.pop(), Some(name)),
        }
    }
    functions.retain(|_, weights| *weights != (0, 0));
    (functions, programs)
}

/// Returns `name (id)` of the program of a frame; the name of the function follows it.
fn program_of(frame: &str) -> Option<&str> {
    let rest = frame.strip_prefix("bpf:")?;
    Some(&rest[..=rest.find(')').unwrap()])
}

#[test]
fn speedscope_weighs_the_same() {
    let Some(modules) = viewers("speedscope_weighs_the_same") else { return };
    for recording in &RECORDINGS[..2] {
        let scratch = Scratch::new();
        let path = scratch.path("profile.speedscope.json");
        exported("speedscope", recording, &path);
        let (functions, mut programs) = imported(&modules, &path);

        let input = Input::open(repository().join(recording)).unwrap();
        let stacks = Session::open(&input).unwrap().stacks(&Options::default()).unwrap();
        let mut expected = BTreeMap::<String, (u64, u64)>::new();
        for stack in &stacks.stacks {
            let names: Vec<String> = stack.frames.iter().map(|frame| stacks.frames[*frame as usize].label()).collect();
            expected.entry(names.last().unwrap().clone()).or_default().0 += stack.count.weight;
            let inside: BTreeSet<String> = names.into_iter().collect();
            inside.into_iter().for_each(|name| expected.entry(name).or_default().1 += stack.count.weight);
        }
        assert_eq!(functions, expected, "{recording}");

        // Totals of the report by program, which bprec computes without stacks.
        let json = succeed(bprec().args(["report", "--json", "-i"]).arg(repository().join(recording)));
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        let rows = report["events"][0]["rows"].as_array().unwrap().iter();
        let weights = rows.map(|row| {
            let program = format!("{} ({})", row["name"].as_str().unwrap(), row["id"]);
            // Entry code is in no frame of the program.
            let weight = |part: &str| row[part]["weight"].as_u64().unwrap();
            (program, weight("inclusive") - weight("entry"))
        });
        let ledger: BTreeMap<String, u64> = weights.filter(|(_, weight)| *weight > 0).collect();
        assert!(ledger.len() > 3, "{recording}: {ledger:?}");
        // The report has one row for all of the recorder's own programs.
        programs.retain(|program, _| !program.starts_with("bprec_"));
        assert_eq!(programs, ledger, "{recording}");
    }
}

/// Texts that a browser shows for a page.
fn seen(modules: &Path, page: &Path, program: &str) -> Value {
    let script = repository().join("tests/viewers/page.js");
    let mut browse = Command::new("node");
    browse.arg(script).arg("/usr/bin/chromium").arg(page).arg(program).env("NODE_PATH", modules);
    serde_json::from_slice(&succeed(&mut browse).stdout).unwrap()
}

fn texts(cells: &Value) -> Vec<&str> {
    cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect()
}

/// Asserts that each number of the first screen equals a number in JSON, from the report by program or from the payers.
fn first_screen(seen: &Value, event: &Value, payers: &Value, recording: &str) {
    // A share of the machine, or of all samples if the machine's maximum is unknown.
    let all = event["samples"]["weight"].as_u64().unwrap() as f64;
    let share = |line: &Value| match line["machine_percent"].as_f64() {
        None if event["machine"].is_null() => line["weight"].as_u64().map(|weight| weight as f64 * 100.0 / all),
        known => known,
    };
    let bare = |text: &str| text.replace('≈', "");
    let percent = seen["percent"].as_str().unwrap();
    let total = share(&event["total"]).unwrap();
    assert_eq!(bare(percent), format!("{total:.2} %"), "{recording}");
    let rows = event["rows"].as_array().unwrap();
    let mut shown = 0.0;
    let costs = seen["costs"].as_array().unwrap();
    for cells in costs.iter().map(texts) {
        shown += bare(cells[2]).parse::<f64>().unwrap();
        // If several programs have the same name, the id follows the name.
        let is_it = |row: &&Value| {
            let (name, id) = (row["name"].as_str().unwrap(), &row["id"]);
            let is_named = cells[0].starts_with(&format!("{name} ({id})")) || cells[0].starts_with(name);
            is_named && share(row).is_some_and(|percent| format!("{percent:.2}") == bare(cells[2]))
        };
        let row = rows.iter().find(is_it);
        let is_folded = cells[0].contains(" more") || !cells[0].contains(" · ");
        assert!(row.is_some() || is_folded, "{recording}: {cells:?}");
        assert_ne!(bare(cells[2]), "0.00", "{recording}: {cells:?}");
    }
    assert!((shown - total).abs() < 0.005 * (costs.len() + 1) as f64, "{recording}: {shown} of {total}");
    let costliest = rows.iter().filter_map(share).fold(0.0, f64::max);
    assert_eq!(bare(texts(&costs[0])[2]), format!("{costliest:.2}"), "{recording}");
    assert!(
        seen["claims"][1].as_str().unwrap().contains(&format!("{costliest:.2} %")),
        "{recording}: {}",
        seen["claims"]
    );

    let all = payers["payers"].as_array().unwrap();
    let pays = seen["pays"].as_array().unwrap();
    for (cells, payer) in pays.iter().map(texts).zip(all).filter(|(cells, _)| !cells[0].contains(" more")) {
        assert!(cells[0].starts_with(payer["payer"][0]["name"].as_str().unwrap()), "{recording}: {cells:?} {payer}");
        let tax = format!("{:.1} %", payer["payer_percent"].as_f64().unwrap());
        let paid = format!("{:.2}", share(payer).unwrap());
        assert_eq!((bare(cells[2]), cells[3]), (paid, tax.as_str()), "{recording}");
    }
    assert!(seen["first_bottom"].as_f64().unwrap() <= 900.0, "{recording}: {}", seen["first_bottom"]);

    // A program has one colour in all panels, and no other program has it; rows of several programs are grey.
    let colours = seen["colours"].as_array().unwrap().iter().map(|it| texts(it));
    let colours: Vec<&str> =
        colours.map(|of| if let [one] = of[..] { one } else { panic!("{recording}: {of:?}") }).collect();
    let hues: BTreeSet<&str> = colours.iter().copied().filter(|colour| *colour != "var(--grey)").collect();
    assert_eq!(
        hues.len(),
        colours.iter().filter(|colour| **colour != "var(--grey)").count(),
        "{recording}: {colours:?}"
    );

    // The URL contains the selection, and opens the page with this selection again.
    let chosen = &seen["chosen"];
    assert_eq!(chosen, &seen["reopened"], "{recording}");
    let hash = chosen["hash"].as_str().unwrap();
    assert!(hash.contains("time="), "{recording}: {hash}");
    let last = costs.len() - 1;
    assert_eq!(chosen["chosen"], last, "{recording}: {chosen}");
    let none = &seen["nothing_chosen"];
    let part = format!("{} s to {} s", chosen["time"][0], chosen["time"][1]);
    assert_eq!((&chosen["times"], &none["times"]), (&json!([part, part]), &json!(["", ""])), "{recording}");
    assert_eq!((&none["hash"], &none["chosen"]), (&Value::from(""), &Value::from(0)), "{recording}");
    let shown = |cells: &Value| texts(cells)[2].to_owned();
    assert_eq!(texts(&none["costs"]), costs.iter().map(shown).collect::<Vec<_>>(), "{recording}");
    let plain = seen["without_script"].as_str().unwrap();
    assert!(plain.contains(percent) && plain.contains(rows[0]["name"].as_str().unwrap()), "{recording}: {plain}");
}

/// The page works without any other file, by mouse, keyboard and screen reader, and has the numbers of JSON.
#[test]
fn a_browser_shows_the_page() {
    let Some(modules) = viewers("a_browser_shows_the_page") else { return };
    for recording in [RECORDINGS[0], RECORDINGS[1], "fixtures/recordings/linux-6.1/everything.data"] {
        let scratch = Scratch::new();
        let path = scratch.path("page.html");
        exported("html", recording, &path);
        let json = succeed(bprec().args(["report", "--json", "-i"]).arg(repository().join(recording)));
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        let event = &report["events"][0];
        let rows = event["rows"].as_array().unwrap();
        let label = |row: &Value| format!("{} ({})", row["name"].as_str().unwrap(), row["id"]);
        let program = label(&rows[0]);
        let seen = seen(&modules, &path, &program);

        assert_eq!(seen["complaints"], Value::Array(Vec::new()), "{recording}");
        assert_eq!(seen["requests"].as_array().unwrap().len(), 1, "{recording}: {}", seen["requests"]);
        assert_eq!(seen["violations"], Value::Array(Vec::new()), "{recording}");
        assert_eq!((&seen["overflow_1200"], &seen["overflow_400"]), (&Value::from(0), &Value::from(0)), "{recording}");

        let columns = texts(&seen["columns"]);
        let cell = |row: &Value, name: &str| {
            let at = columns.iter().position(|column| *column == name).unwrap();
            row[at].as_str().unwrap().replace(',', "")
        };
        for row in rows {
            let mut shown = seen["rows"].as_array().unwrap().iter();
            let id = row["id"].to_string();
            let shown = shown.find(|shown| cell(shown, "ID") == id).unwrap();
            let samples = row["samples"].as_u64().map_or("n/a".to_owned(), |samples| samples.to_string());
            assert_eq!(cell(shown, "SAMPLES"), samples, "{recording}: {}", label(row));
            assert!(cell(shown, "PROGRAM").trim_end_matches('~') == row["name"].as_str().unwrap());
        }
        assert_eq!(cell(&seen["total"], "SAMPLES"), event["total"]["samples"].to_string(), "{recording}");

        let json = succeed(bprec().args(["report", "--payers", "--json", "-i"]).arg(repository().join(recording)));
        let payers: Value = serde_json::from_slice(&json.stdout).unwrap();
        let expected = |kind: &str| {
            let rows = payers["events"][0][kind].as_array().unwrap().iter();
            rows.map(|row| row["samples"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let shown = |table: &str, column: usize| {
            let rows = seen[table].as_array().unwrap().iter();
            rows.map(|row| row[column].as_str().unwrap().replace(',', "").parse().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(shown("payers", 1), expected("payers"), "{recording}");
        assert_eq!(shown("pairs", 3), expected("rows"), "{recording}");
        let own = event["total"]["self"]["samples"].as_u64().unwrap();
        assert_eq!(shown("lines", 1), [own], "{recording}");

        // Unknown values are last in descending order, and first in ascending order.
        let number = |text: &&str| text.replace(',', "").parse::<u64>().ok();
        let descending: Vec<Option<u64>> = texts(&seen["descending"]).iter().map(number).collect();
        let ascending: Vec<Option<u64>> = texts(&seen["ascending"]).iter().map(number).collect();
        assert!(descending.is_sorted_by(|a, b| a >= b) && ascending.is_sorted(), "{descending:?} {ascending:?}");
        assert_eq!(descending.len(), seen["rows"].as_array().unwrap().len());
        let named = |row: &&Value| texts(row).join("\n").contains(rows[0]["name"].as_str().unwrap());
        let expected = seen["rows"].as_array().unwrap().iter().filter(named).count();
        assert_eq!(seen["filtered"].as_array().unwrap().len(), expected, "{recording}");

        // Expected samples in stacks of the program: its inclusive samples in the report, without its share of the entry code that all programs of a
        // hook share.
        let inclusive = |row: &Value| {
            let samples = |column: &str| row[column]["samples"].as_u64().unwrap_or(0);
            samples("inclusive") - samples("entry_shared")
        };
        let samples = |told: &str| {
            let (_, rest) = told.rsplit_once(": ").unwrap();
            rest.split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap()
        };
        assert_eq!(samples(seen["found"].as_str().unwrap()), inclusive(&rows[0]), "{recording}: {}", seen["found"]);
        let focused = texts(&seen["focused"]);
        assert_eq!(samples(focused[0]), inclusive(&rows[0]), "{recording}: {focused:?}");
        let all = event["samples"]["samples"].as_u64().unwrap();
        assert_eq!(samples(texts(&seen["frames"])[0]), all, "{recording}");
        assert_eq!(samples(texts(&seen["inverted"])[0]), all, "{recording}");

        // The code of the program, line by line, with the samples of `annotate`.
        let id = rows[0]["id"].to_string();
        let json = succeed(bprec().args(["annotate", "--json", &id, "-i"]).arg(repository().join(recording)));
        let annotation: Value = serde_json::from_slice(&json.stdout).unwrap();
        let functions = annotation["programs"][0]["functions"].as_array().unwrap();
        let lines: Vec<&Value> = functions.iter().flat_map(|it| it["lines"].as_array().unwrap()).collect();
        let samples_of = |rows: &Value| -> u64 {
            let rows = rows.as_array().unwrap().iter();
            rows.filter_map(|row| row[0].as_str().unwrap().replace(',', "").parse::<u64>().ok()).sum()
        };
        let of_lines = |member: &dyn Fn(&Value) -> u64| lines.iter().map(|line| member(line)).sum::<u64>();
        assert_eq!(seen["code_program"].as_str(), Some(program.as_str()), "{recording}");
        assert_eq!(seen["code"].as_array().unwrap().len(), lines.len(), "{recording}");
        assert_eq!(samples_of(&seen["code"]), of_lines(&|line| line["samples"].as_u64().unwrap()), "{recording}");
        let len = |value: &Value| value.as_array().map_or(0, |all| all.len() as u64);
        let instructions = of_lines(&|line| {
            let of_bpf = line["bpf"].as_array().unwrap().iter().map(|insn| 1 + len(&insn["machine"])).sum::<u64>();
            1 + of_bpf + len(&line["machine"])
        });
        assert_eq!(len(&seen["instructions"]), instructions, "{recording}");
        assert!(instructions > lines.len() as u64, "{recording}: no instructions");

        first_screen(&seen, event, &payers["events"][0], recording);
        answers::of_first_screen(&seen, recording);
        answers::of_other_browsers(&seen, recording);
        for it in seen["inward"].as_array().unwrap() {
            let number = |member: &str| it[member].as_f64().unwrap_or(f64::NEG_INFINITY);
            // Titles are rounded to hundredths of a per cent. The program at the root of its own graph has 100 %.
            let rounded = 0.5 + 0.0001 * number("whole");
            let is_root = (number("width") - number("whole")).abs() < 0.5;
            assert!(is_root || (number("width") - number("expected")).abs() < rounded, "{recording}: {it}");
            assert!(number("over") < 0.1, "{recording}: {it}");
        }
        let folded = scratch.path("folded");
        exported("folded", recording, &folded);
        flame::graph(&seen, &std::fs::read_to_string(folded).unwrap(), recording);
        flame::of_time(&seen["brushed"], recording);
        assert!(seen["printed_code"].as_u64().unwrap() >= lines.len() as u64, "{recording}: {}", seen["printed_code"]);
        assert_eq!(seen["head_stays"], true, "{recording}");

        let zoomed = texts(&seen["zoomed"]);
        assert_eq!(seen["zoomed_into"].as_str(), Some(zoomed[1]), "{recording}");
        assert_eq!((&seen["zoomed_share"], &seen["focused_zoomed"]), (&Value::from(1), &seen["zoomed_into"]));
        assert_eq!(seen["after_escape"].as_u64(), Some(texts(&seen["frames"]).len() as u64), "{recording}");
    }
}
