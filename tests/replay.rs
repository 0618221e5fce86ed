//! Replays the committed recordings offline: no root, no kernel, the same bytes on any machine.
//!
//! Expected values have three sources: `*.load.txt`, counted by the programs themselves while they were recorded;
//! `*.perf.txt`, perf's output for the same file; and `*.by-prog.txt`, the whole table, which shows every change of the
//! output. `BPREC_UPDATE=1` writes the tables anew.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings")
}

/// Every committed recording, as `directory/name`.
fn recordings() -> Vec<String> {
    let mut names = Vec::new();
    for place in fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "data") {
                let name = file.strip_prefix(directory()).unwrap().with_extension("");
                names.push(name.to_str().unwrap().replace('\\', "/"));
            }
        }
    }
    names.sort();
    assert!(!names.is_empty());
    names
}

fn beside(recording: &str, extension: &str) -> PathBuf {
    directory().join(format!("{recording}.{extension}"))
}

fn report(recording: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bprec"))
        .args(["report", "-i"])
        .arg(beside(recording, "data"))
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn report_of(recording: &str, arguments: &[&str]) -> Vec<u8> {
    let output = report(recording, arguments);
    assert!(output.status.success(), "{recording}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn json(recording: &str, arguments: &[&str]) -> Value {
    let output = report(recording, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("{recording}: {why}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A program as the loader reported it.
struct Loaded {
    id: u64,
    name: String,
    /// Runs counted by the program itself, from its load to the end of the load program.
    entered: u64,
}

/// Parses the `count` lines of the loader's output, in order of loading.
fn loaded(recording: &str) -> Vec<Loaded> {
    let text = fs::read_to_string(beside(recording, "load.txt")).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("count "))
        .map(|line| {
            let fields: BTreeMap<&str, &str> = line.split(' ').filter_map(|field| field.split_once('=')).collect();
            Loaded {
                id: fields["id"].parse().unwrap(),
                name: fields["name"].to_owned(),
                entered: fields["entered"].parse().unwrap(),
            }
        })
        .collect()
}

/// Samples in each function of each program, by (program id, function name).
fn samples_by_function(recording: &str) -> BTreeMap<(u64, String), u64> {
    let report = json(recording, &["--by", "func", "--all"]);
    let mut samples = BTreeMap::new();
    for row in report["events"][0]["rows"].as_array().unwrap() {
        for part in row["parts"].as_array().unwrap() {
            let key = (row["id"].as_u64().unwrap_or(0), part["name"].as_str().unwrap().to_owned());
            *samples.entry(key).or_insert(0) += part["self"]["samples"].as_u64().unwrap();
        }
    }
    samples
}

/// Asserts that `k` successes of `n` trials with probability `p` are within three standard deviations.
fn assert_share(what: &str, k: u64, n: u64, p: f64) {
    assert!(n >= 30, "{what}: {n} samples are too few for a comparison");
    let (k, n) = (k as f64, n as f64);
    let sigma = (n * p * (1.0 - p)).sqrt();
    assert!((k - n * p).abs() <= 3.0 * sigma, "{what}: {k} of {n}, expected {:.1} ± {:.1}", n * p, 3.0 * sigma);
}

#[test]
fn tables_are_as_expected() {
    for recording in recordings() {
        let output = report(&recording, &["--by-prog", "--wide", "--notes"]);
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{recording}: {}", String::from_utf8_lossy(&output.stderr));
        let expected = beside(&recording, "by-prog.txt");
        if std::env::var_os("BPREC_UPDATE").is_some() {
            fs::write(&expected, &table).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap();
        assert_eq!(table, expected, "{recording}: the output differs; BPREC_UPDATE=1 updates the expected output");
    }
}

/// Recording with all kinds of programs.
const EVERYTHING: &str = "linux-7.2/everything";
/// Recording with exact counters.
const EXACT: &str = "linux-6.12-arm64/exact";

/// The outputs other than the table, each for one recording: arguments of `bprec report`, and suffix of the file with the expected output.
const OUTPUTS: [(&str, &[&str], &str); 7] = [
    (EVERYTHING, &["--json"], "json"),
    (EVERYTHING, &["--csv"], "csv"),
    (EVERYTHING, &["--maps"], "maps.txt"),
    (EVERYTHING, &["--by", "hook", "--wide", "--notes"], "by-hook.txt"),
    (EVERYTHING, &["--header-only"], "header.txt"),
    (EXACT, &["--counters", "--wide"], "counters.txt"),
    (EXACT, &["--counters", "--csv"], "counters.csv"),
];

#[test]
fn every_output_is_as_expected() {
    for (recording, arguments, extension) in OUTPUTS {
        let output = String::from_utf8(report_of(recording, arguments)).unwrap();
        let expected = beside(recording, extension);
        if std::env::var_os("BPREC_UPDATE").is_some() {
            fs::write(&expected, &output).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap();
        assert!(
            output == expected,
            "{recording} {arguments:?}: the output differs; BPREC_UPDATE=1 updates the expected output"
        );
    }
}

#[test]
fn recordings_are_those_the_tables_belong_to() {
    let output = Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(directory()).output();
    let Ok(output) = output else {
        println!("SKIP recordings_are_those_the_tables_belong_to: no sha256sum");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let sums = fs::read_to_string(directory().join("SHA256SUMS")).unwrap();
    let listed: BTreeSet<String> =
        sums.lines().filter_map(|line| Some(line.split_once("  ")?.1.strip_suffix(".data")?.to_owned())).collect();
    assert_eq!(listed, recordings().into_iter().collect());
}

#[test]
fn the_reading_machine_does_not_show() {
    for recording in recordings() {
        let elsewhere = Command::new(env!("CARGO_BIN_EXE_bprec"))
            .args(["report", "--by-prog", "-i"])
            .arg(beside(&recording, "data"))
            .env_clear()
            .envs([("TZ", "Pacific/Auckland"), ("LC_ALL", "de_DE.UTF-8"), ("HOME", "/")])
            .current_dir("/")
            .output()
            .unwrap();
        assert_eq!(elsewhere.stdout, report(&recording, &["--by-prog"]).stdout, "{recording}");
        for threads in ["1", "3"] {
            let output = report(&recording, &["--json", "--threads", threads]);
            assert_eq!(output.stdout, report(&recording, &["--json"]).stdout, "{recording} with {threads} threads");
        }
    }
}

#[test]
fn every_sample_is_charged_once() {
    for recording in recordings() {
        for by in [&[][..], &["--by", "func"], &["--by", "cpu"], &["--by", "comm"]] {
            let report = json(&recording, by);
            for event in report["events"].as_array().unwrap() {
                for unit in ["samples", "weight"] {
                    let number = |value: &Value| value.as_u64().unwrap_or(0);
                    let rows = event["rows"].as_array().unwrap();
                    let sum: u64 = rows.iter().map(|row| number(&row[unit])).sum::<u64>()
                        + number(&event["others"][unit])
                        + number(&event["counting_programs"][unit])
                        + number(&event["entry_unattributed"][unit])
                        + number(&event["interpreted"][unit]);
                    assert_eq!(sum, number(&event["total"][unit]), "{recording} {by:?} {unit}");
                    for row in rows {
                        let columns = ["self", "helper", "entry"].iter().map(|column| number(&row[*column][unit]));
                        assert_eq!(columns.sum::<u64>(), number(&row[unit]), "{recording} {by:?} {}", row["name"]);
                        if let Some(parts) = row["parts"].as_array() {
                            let parts: u64 = parts.iter().map(|part| number(&part[unit])).sum();
                            assert_eq!(parts, number(&row[unit]), "{recording} {by:?} {}", row["name"]);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn perf_counts_the_same_samples_per_function() {
    let mut judged = 0;
    for recording in recordings() {
        let Ok(text) = fs::read_to_string(beside(&recording, "perf.txt")) else { continue };
        let weight: u64 =
            text.lines().find_map(|line| line.strip_prefix("# Event count (approx.): ")).unwrap().parse().unwrap();
        let ours = json(&recording, &[]);
        assert_eq!(ours["events"][0]["samples"]["weight"].as_u64().unwrap(), weight, "{recording}");
        // perf's rows are functions by name and tag, ours are functions by program; the test compares by name only.
        let mut perfs = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, samples, _, symbol] = fields[..] else { panic!("{recording}: {line}") };
            // Some of the kernel's own functions also start with `bpf_prog`: bpf_prog_run_generic_xdp.
            let Some(("bpf_prog", tag_and_name)) = symbol.split_at_checked(8) else { continue };
            let Some((tag, name)) = tag_and_name[1..].split_once('_') else { continue };
            if tag.len() != 16 || !tag.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                continue;
            }
            *perfs.entry(name.to_owned()).or_insert(0) += samples.parse::<u64>().unwrap();
        }
        let mut ours = BTreeMap::new();
        for ((_, name), samples) in samples_by_function(&recording) {
            if samples > 0 {
                *ours.entry(name).or_insert(0) += samples;
            }
        }
        assert_eq!(ours, perfs, "{recording}");
        judged += 1;
    }
    assert!(judged > 0);
}

#[test]
fn known_ratios_come_out() {
    let mut judged = 0;
    for recording in recordings() {
        let samples = samples_by_function(&recording);
        let loaded = loaded(&recording);
        let of =
            |index: usize, function: &str| samples.get(&(loaded[index].id, function.to_owned())).copied().unwrap_or(0);
        match recording.split_once('/').unwrap().1 {
            "ratio" => {
                let copies = [0, 2].map(|first| of(first, "mix_syscall_number") + of(first + 1, "mix_syscall_number"));
                assert_share(&recording, copies[0], copies.iter().sum(), 1.0 / 4.0);
            }
            "twins" | "piped" => {
                let twins = [0, 1].map(|index| of(index, "same_name_in_two_objects"));
                assert_share(&recording, twins[0], twins.iter().sum(), 1.0 / 5.0);
            }
            "tailcalls" => {
                let links: Vec<u64> = (0..3).map(|index| of(index, &loaded[index].name)).collect();
                for (index, samples) in links.iter().enumerate() {
                    assert_share(&recording, *samples, links.iter().sum(), (index + 1) as f64 / 6.0);
                }
            }
            _ => continue,
        }
        judged += 1;
    }
    assert!(judged > 0);
}

/// The report's program with that id.
fn program(report: &Value, id: u64) -> Option<&Value> {
    report["programs"].as_array().unwrap().iter().find(|program| program["id"] == id && program["captured"] == true)
}

/// True if every program of the load was loaded and unloaded while recording.
fn loads_happen_during(recording: &str) -> bool {
    ["loaded-during", "shortlived", "churn"].iter().any(|name| recording.ends_with(name))
}

#[test]
fn runs_are_what_the_programs_counted() {
    let (mut whole, mut part) = (0, 0);
    for recording in recordings().iter().filter(|recording| !recording.starts_with("perf-")) {
        let report = json(recording, &["--all"]);
        let loaded = loaded(recording);
        let during = loads_happen_during(recording);
        for Loaded { id, name, entered } in &loaded {
            let Some(program) = program(&report, *id) else { continue };
            // Without BTF, only the kernel's 15 characters are known.
            let shown = if name == "counted_without_type_information" { &name[..15] } else { name };
            assert_eq!(program["name"], shown, "{recording} {id}");
            // The kernel counts a tail call as part of the run that made it.
            if name.starts_with("tail_call_") && name != "tail_call_entry" {
                assert_eq!(program["runs_reason"]["code"], "not_entered", "{recording} {id} {name}");
                continue;
            }
            let Some(runs) = program["runs"]["count"].as_u64() else {
                // The recording was cut off before its second snapshot: runs are unknown, with the reason, instead of 0.
                assert!(recording.ends_with("/cut-off") && program["runs_unknown"].is_string(), "{recording} {id}");
                continue;
            };
            if name.starts_with("churn_") && !during {
                // These programs ran between other programs, and perhaps before the recording began to count.
                assert!(runs <= *entered, "{recording} {id} {name}: {runs} runs of {entered}");
            } else if during {
                assert_eq!(runs, *entered, "{recording} {id} {name}");
                whole += 1;
            } else {
                assert!(0 < runs && runs <= *entered, "{recording} {id} {name}: {runs} runs of {entered}");
                part += 1;
            }
        }
    }
    assert!(whole > 10 && part > 10, "{whole} {part}");
}

/// No timer samples these programs, so their cost comes from the kernel's run statistics, and the time of the machine from the recorder's clock.
#[test]
fn programs_that_samples_cannot_see_cost_what_run_statistics_say() {
    for (recording, name) in
        [("linux-7.2/switches", "count_sched_switches"), ("linux-7.2/perf-event", "count_perf_samples")]
    {
        let report = json(recording, &["--all"]);
        let machine_ns =
            report["recording"]["elapsed_ns"].as_f64().unwrap() * report["recording"]["cpus"].as_f64().unwrap();
        let event = &report["events"][0];
        let rows = event["rows"].as_array().unwrap();
        let row = &rows[0];
        assert_eq!(row["name"], name, "{recording}: the most expensive program is first");
        let program = &report["programs"][row["program"].as_u64().unwrap() as usize];
        let time_ns = program["runs"]["time_ns"].as_f64().unwrap();
        assert_eq!(
            row["unsampled"]["time_ns"].as_f64(),
            Some(time_ns),
            "{recording}: all time of the program is without samples"
        );
        let percent = row["unsampled"]["machine_percent"].as_f64().unwrap();
        assert!((percent - time_ns * 100.0 / machine_ns).abs() < 1e-9, "{recording}: {percent}");
        assert_eq!(event["unsampled"], row["unsampled"], "{recording}: it is the only program without samples");
        let table = String::from_utf8(report_of(recording, &["--all"])).unwrap();
        let cells: Vec<&str> = table.lines().filter(|line| line.contains(&format!("≈{percent:.2}"))).collect();
        assert_eq!(cells.len(), 2, "{recording}: the share is in the row and below the total: {table}");
    }
}

/// Emulated machines get timer interrupts late, so shares of the machine are computed from the ticks that occurred.
#[test]
fn shares_of_the_machine_are_of_the_ticks_that_came() {
    let report = json("linux-7.2/ratio", &[]);
    let machine_ns =
        report["recording"]["elapsed_ns"].as_f64().unwrap() * report["recording"]["cpus"].as_f64().unwrap();
    let event = &report["events"][0];
    let weight = event["samples"]["weight"].as_f64().unwrap();
    let late = &event["late_ticks"];
    assert!((late["arrived_percent"].as_f64().unwrap() - weight * 100.0 / machine_ns).abs() < 1e-9, "{late}");
    assert_eq!((late["capacity_ns"].as_f64(), &late["missing"]), (Some(machine_ns), &Value::from("all")));
    // By the kernel's statistics, four programs took 96 % of one of two CPUs.
    let stats_ns: f64 =
        report["programs"].as_array().unwrap().iter().filter_map(|it| it["runs"]["time_ns"].as_f64()).sum();
    let total = event["total"]["machine_percent"].as_f64().unwrap();
    let by_statistics = stats_ns * 100.0 / machine_ns;
    // The margin covers chance in 227 of 536 samples, and incomplete runs at start and end.
    assert!((total - by_statistics).abs() < 10.0, "{total} {by_statistics}");
}

/// On the emulated machine of this recording, an instruction takes one cycle and one nanosecond.
#[test]
fn exact_counters_are_those_of_a_machine_with_one_instruction_a_nanosecond() {
    let recording = "linux-6.12-arm64/exact";
    let report = json(recording, &["--all"]);
    let mut judged = 0;
    for Loaded { id, name, entered } in loaded(recording) {
        let Some(program) = program(&report, id) else { continue };
        let exact = &program["exact"];
        if exact.is_null() {
            let is_tail_called = program["exact_reason"]["code"] == "not_entered" && name.starts_with("tail_call_");
            let is_known = is_tail_called || name == "counted_without_type_information";
            assert!(is_known, "{name}: {}", program["exact_unknown"]);
            continue;
        }
        let runs = exact["runs"].as_u64().unwrap();
        assert!(runs <= entered && exact["measured"] == runs, "{name}: {runs} runs of {entered}");
        let value = |of: &Value| of["value"].as_f64().unwrap_or(0.0);
        let [cycles, instructions] = [0, 1].map(|at| value(&exact["events"][at]["per_run"]));
        let ns = value(&exact["ns_per_run"]);
        if instructions < 1500.0 {
            continue;
        }
        for (what, other) in [("cycles", cycles), ("ns", ns)] {
            assert!((other / instructions - 1.0).abs() < 0.02, "{name}: {other} {what}, {instructions} instructions");
        }
        let ipc = exact["ipc"].as_f64().unwrap();
        assert!((ipc - instructions / cycles).abs() < 1e-9, "{name}: {ipc}");
        judged += 1;
    }
    assert!(judged >= 5, "{judged}");

    // The other outputs have the same numbers.
    let csv = String::from_utf8(report_of(recording, &["--all", "--csv"])).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let rows: Vec<_> = lines.filter(|line| line[column("kind")] == "program").collect();
    for known in report["programs"].as_array().unwrap().iter().filter(|program| program["exact"].is_object()) {
        let row = rows.iter().find(|row| row[column("id")] == known["id"].to_string().as_str()).unwrap();
        assert_eq!(row[column("exact_runs")], known["exact"]["runs"].to_string());
        let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        let per_run = known["exact"]["events"][1]["per_run"]["value"].as_f64().unwrap_or(0.0);
        // The column is counted from the end, because earlier fields contain commas.
        let in_csv = number(row[row.len() + column("instructions_per_run") - header.len()]);
        assert!((in_csv - per_run).abs() <= 1e-9 * per_run, "{known:#}");
    }
    let counters: Value = serde_json::from_slice(&report_of(recording, &["--counters", "--json"])).unwrap();
    for total in counters["totals"].as_array().unwrap() {
        let mine =
            |it: &&Value| ["source", "kind", "id", "load_time_ns", "function"].iter().all(|key| it[key] == total[key]);
        let runs = |it: &Value| it["counts"]["runs"].as_u64().unwrap_or(0);
        let sum: u64 = counters["intervals"].as_array().unwrap().iter().filter(mine).map(runs).sum();
        assert_eq!(sum, runs(total), "{total:#}");
    }
    assert!(counters["totals"].as_array().unwrap().len() > 20);
}

#[test]
fn every_program_is_named_or_known_to_be_missed() {
    let recordings = recordings();
    for recording in recordings.iter().filter(|name| !name.starts_with("perf-") && loads_happen_during(name)) {
        let report = json(recording, &["--all"]);
        let missed: BTreeSet<u64> =
            report["missed"].as_array().unwrap().iter().filter_map(|missed| missed["id"].as_u64()).collect();
        let loaded = loaded(recording);
        let named = loaded.iter().filter(|loaded| program(&report, loaded.id).is_some()).count();
        assert!(named * 100 >= loaded.len() * 95, "{recording}: {named} of {}", loaded.len());
        for loaded in loaded.iter().filter(|loaded| program(&report, loaded.id).is_none()) {
            assert!(missed.contains(&loaded.id), "{recording}: nothing about {} {}", loaded.id, loaded.name);
        }
    }
}

#[test]
fn short_lives_keep_their_samples_apart() {
    let mut judged = 0;
    for recording in recordings() {
        for ((id, function), samples) in samples_by_function(&recording) {
            let Some(number) = function.strip_prefix("churn_mix_").or_else(|| function.strip_prefix("churn_")) else {
                continue;
            };
            let expected = loaded(&recording).into_iter().find(|loaded| loaded.id == id).unwrap().name;
            assert_eq!(expected, format!("churn_{number}"), "{recording} {id}: {samples} samples");
            judged += samples;
        }
    }
    assert!(judged > 0);
}

#[test]
fn a_cut_off_recording_says_so_and_knows_its_programs() {
    let cut_off: Vec<String> = recordings().into_iter().filter(|recording| recording.ends_with("/cut-off")).collect();
    assert!(!cut_off.is_empty());
    for recording in recordings() {
        assert_eq!(json(&recording, &[])["recording"]["unfinished"], cut_off.contains(&recording), "{recording}");
    }
}

#[test]
fn tail_calls_are_not_taken_for_code_without_interrupts() {
    let report = json("linux-7.2/tailcalls", &[]);
    for row in report["events"][0]["rows"].as_array().unwrap() {
        assert!(row["blind"].is_null(), "{row}");
    }
    let report = json("linux-7.2/switches", &[]);
    let row = &report["events"][0]["rows"][0];
    assert!(row["name"] == "count_sched_switches" && row["blind"]["text"].is_string(), "{row}");
}

#[cfg(all(feature = "record", target_os = "linux"))]
#[test]
fn a_cut_off_recording_can_be_made_whole() {
    for recording in recordings().iter().filter(|recording| recording.ends_with("/cut-off")) {
        let directory = tempfile::tempdir().unwrap();
        let whole = directory.path().join("whole.data");
        fs::copy(beside(recording, "data"), &whole).unwrap();
        fs::copy(beside(recording, "data.journal"), directory.path().join("whole.data.journal")).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_bprec")).args(["recover", "--in-place"]).arg(&whole).output().unwrap();
        assert!(output.status.success(), "{recording}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!directory.path().join("whole.data.journal").exists(), "{recording}");

        let cut_off = json(recording, &["--all"]);
        // Joining this absolute path to the directory of the recordings gives the path itself.
        let whole = json(whole.with_extension("").to_str().unwrap(), &["--all"]);
        assert_eq!(whole["programs"], cut_off["programs"], "{recording}");
        // Shares of the machine may differ slightly, because a cut-off recording does not know its length.
        let charges = |report: &Value| -> Vec<Value> {
            let rows = report["events"][0]["rows"].as_array().unwrap();
            rows.iter().flat_map(|row| ["id", "self", "helper", "entry"].map(|member| row[member].clone())).collect()
        };
        assert_eq!(charges(&whole), charges(&cut_off), "{recording}");
        assert_eq!(whole["events"][0]["samples"], cut_off["events"][0]["samples"], "{recording}");
    }
}

#[test]
fn metadata_maps_and_places_are_in_the_file() {
    let report = json("linux-7.2/ratio", &[]);
    let enter = program(&report, loaded("linux-7.2/ratio")[0].id).unwrap();
    let metadata: BTreeMap<&str, &str> = enter["metadata"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["key"].as_str().unwrap(), entry["value"].as_str().unwrap().trim_matches('"')))
        .collect();
    assert_eq!(metadata, BTreeMap::from([("build_number", "4711"), ("purpose", "known load"), ("version", "1.4.2")]));
    let functions: Vec<&str> =
        enter["functions"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(functions, ["account_syscall_enter", "mix_syscall_number", "account_in_hash_map"]);
    assert_eq!(enter["attached"][0], "tracepoint:raw_syscalls:sys_enter");
    assert_eq!(enter["owners"][0]["comm"], "bprec-load");
}

#[test]
fn a_selection_that_nothing_passes_is_said() {
    for (narrowed, nothing) in [(["--cpu", "77"], "no sample"), (["--comm", "nosuch"], "no task")] {
        let output = report("linux-7.2/ratio", &narrowed);
        assert_eq!(output.status.code(), Some(1), "{narrowed:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(nothing), "{narrowed:?}");
    }
    let output = report("linux-7.2/ratio", &["--counters", "--maps"]);
    assert_eq!(output.status.code(), Some(2), "one of two exclusive options is silently ignored");
}

/// Six programs without BTF are one note, and `--notes` is an option of this table, too.
#[test]
fn notes_below_counters_are_grouped_by_reason() {
    for arguments in [&["--counters"][..], &["--counters", "--notes"], &["--counters", "--markdown", "--notes"]] {
        let output = report("linux-6.12-arm64/exact", arguments);
        assert!(output.status.success(), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap().replace("\n#   ", " ");
        let notes: Vec<&str> = text.lines().filter(|line| line.contains("no BTF")).collect();
        assert_eq!(notes.len(), 1, "{text}");
        assert!(["(23)", "(42)", "(44)", "(45)", "(47)", "(81)"].iter().all(|id| notes[0].contains(id)), "{notes:?}");
    }
}

/// Files and pipes get lines of at most 160 columns.
#[test]
fn lines_about_maps_fit_the_width() {
    let text = String::from_utf8(report_of("linux-6.12-arm64/exact", &["--maps"])).unwrap();
    let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(longest.chars().count() <= 160, "{longest}");
}

#[test]
fn seconds_count_from_the_start() {
    let whole = json("linux-7.2/ratio", &[]);
    let start = whole["recording"]["start_ns"].as_u64().unwrap();
    let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let relative = json("linux-7.2/ratio", &["--time", "0.2,0.6"]);
    let range = format!("{},{}", seconds(start + 200_000_000), seconds(start + 600_000_000));
    let samples = |report: &Value| report["events"][0]["samples"]["samples"].as_u64().unwrap();
    assert_eq!(samples(&relative), samples(&json("linux-7.2/ratio", &["--time", &range])));
    assert!(samples(&relative) > 0 && samples(&relative) < samples(&whole));
    let output = report("linux-7.2/ratio", &["--time", "1000,2000"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("outside the recording"));
}
