//! Counters in recordings: the expected numbers are computed by hand, and every view must show them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "support/states.rs"]
mod states;

use crate::text;
use bprec_format::bprec::state::{
    AbsentEvent, Calibration, CounterEvent, CounterEvents, CounterTier, Histogram, LinkMisses, ProbeMisses,
    ProgramCounters, ProgramRuns, Reading, RunCounts, RunStats, Session, SharedCounters, SharedScope, SharedTarget,
    State, StatsOff, TargetCounters,
};
use bprec_format::{AttrFlags, Endian, EventAttr, File, FileAttr, SampleType, event_type, software};
use bprec_report::model::{CounterSource, CountersReport, Exact, Known, Program, Report};
use bprec_report::{Document, Input, Options, StudentQuantiles, by_prog, counters};
use serde_json::Value;
use states::{append, file, is_state, open};
use std::path::Path;

/// Start of `ratio.data`, ns of its clock.
const START_NS: u64 = 14_370_420_387;
const S: u64 = 1_000_000_000;

/// Returns `ratio.data` with these states appended.
fn fixture_with(states: &[State]) -> Input {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-7.2/ratio.data");
    let bytes = std::fs::read(path).unwrap();
    let parsed = File::parse(&bytes).unwrap();
    let section = parsed.data();
    let mut data = bytes[section.offset as usize..][..section.size as usize].to_vec();
    let state = parsed.attrs().iter().find(|event| is_state(event)).unwrap();
    append(states, START_NS, state, parsed.endian(), &mut data);
    let features: Vec<(u8, Vec<u8>)> =
        parsed.features().iter().map(|(bit, _)| (*bit, parsed.feature(*bit).unwrap().0.to_vec())).collect();
    open(&file(parsed.attrs(), &data, &features, parsed.endian()))
}

/// Builds a recording with only these states, in either byte order.
fn states_alone(states: &[State], endian: Endian) -> Input {
    let sample_type =
        [SampleType::IDENTIFIER, SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU, SampleType::RAW];
    let attr = EventAttr {
        kind: event_type::SOFTWARE,
        config: software::BPF_OUTPUT,
        sample_type: sample_type.iter().fold(SampleType(0), |all, bit| all.with(*bit)),
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    };
    let event = FileAttr { attr, ids: vec![7] };
    let mut data = Vec::new();
    append(states, START_NS, &event, endian, &mut data);
    // EVENT_DESC: count, size of an attr, then attr, ids and name of each event.
    let mut description = Vec::new();
    let mut w = bprec_format::Writer::new(&mut description, endian);
    w.u32(1).u32(112);
    let mut encoded = Vec::new();
    EventAttr { size: 112, ..event.attr.clone() }.encode(&mut encoded, endian);
    w.bytes(&encoded).u32(1).u32(64).bytes(b"bprec:state").zeros(53).u64(7);
    let mut host = Vec::new();
    bprec_format::Writer::new(&mut host, endian).u32(64).bytes(b"host").zeros(60);
    open(&file(&[event], &data, &[(3, host), (12, description)], endian))
}

fn events() -> CounterEvents {
    let event =
        |name: &str, config, group| CounterEvent { name: name.into(), config, group, ..CounterEvent::default() };
    CounterEvents {
        tier: CounterTier::EXACT,
        time_ns: START_NS,
        events: vec![event("cycles", 0, 0), event("instructions", 1, 0), event("cache-misses", 3, 1)],
        absent: vec![AbsentEvent { name: "branch-misses".into(), reason: "no counter is left for it".into() }],
        calibration: Some(Calibration {
            runs: 1000,
            inside_ns: 40_000,
            inside: vec![100_000, 50_000, 0],
            measured_ns: Some(90_000),
            skipped_ns: Some(12_000),
        }),
        budget_ppm: Some(5000),
        note: String::new(),
    }
}

/// Counts of `runs` runs, all measured. The other arguments are per run. Cache misses were counted a quarter of the time.
fn runs(runs: u64, time_ns: u64, cycles: u64, instructions: u64, misses: u64) -> RunCounts {
    let total_ns = runs * time_ns;
    let all = |value: u64| Reading { value: runs * value, enabled_ns: total_ns, running_ns: total_ns };
    RunCounts {
        runs,
        measured: runs,
        misses: Some(0),
        every: 1,
        time_ns: total_ns,
        readings: vec![
            all(cycles),
            all(instructions),
            Reading { value: runs * misses / 4, enabled_ns: total_ns, running_ns: total_ns / 4 },
        ],
        histogram: Histogram { sub_bits: 3, buckets: vec![(Histogram::bucket(time_ns, 3), runs)] },
        ..RunCounts::default()
    }
}

fn target(id: u32, load_time_ns: u64, counts: RunCounts) -> TargetCounters {
    TargetCounters { id, load_time_ns, since_ns: START_NS, counts: Some(counts), ..TargetCounters::default() }
}

/// Ids and load times of the programs of `ratio.data`.
fn programs() -> Vec<(u32, u64)> {
    let report = by_prog(&fixture_with(&[]), &Options::default()).unwrap();
    let keys = report.programs.iter().filter_map(|program| Some((program.id?, program.load_time_ns?)));
    keys.filter(|(id, _)| [11, 13, 16, 17, 22].contains(id)).collect()
}

/// Returns states with snapshots of counters. All runs of program 11 and few runs of 13 are measured, 16 is not counted, the counts of 17 decrease,
/// and a count of 22 is impossible.
fn scenario() -> Vec<State> {
    let [(_, load_11), (_, load_13), (_, load_16), (_, load_17), (_, load_22)] = programs()[..] else { panic!() };
    let slow = Histogram::bucket(100_000, 3);
    let mut second_11 = runs(9000, 1040, 3100, 6050, 8);
    second_11.histogram.buckets = vec![(Histogram::bucket(1040, 3), 8980), (slow, 20)];
    let function =
        TargetCounters { function: 2, name: b"inner".to_vec(), ..target(11, load_11, runs(500, 240, 0, 0, 0)) };
    let gated = |from: &RunCounts| {
        // Then 19,000 more runs, one in 100 of them measured, with 240 ns, 400 cycles and 350 instructions each.
        let more = runs(190, 240, 400, 350, 0);
        let mut counts = from.clone();
        counts.runs += 19_000;
        counts.measured += 190;
        counts.every = 100;
        counts.time_ns += more.time_ns;
        for (reading, more) in counts.readings.iter_mut().zip(&more.readings) {
            reading.value += more.value;
            reading.enabled_ns += more.enabled_ns;
            reading.running_ns += more.running_ns;
        }
        counts.histogram.buckets.extend(more.histogram.buckets);
        counts
    };
    let first_13 = runs(1000, 140, 300, 250, 0);
    let mut impossible = runs(10, 1000, 10, 10, 0);
    impossible.readings[0].running_ns = 10_000_000;
    let refused = TargetCounters {
        id: 16,
        load_time_ns: load_16,
        since_ns: START_NS,
        reason: "it has no BTF".into(),
        ..TargetCounters::default()
    };
    let snapshot = |time_ns, targets| State::ProgramCounters(ProgramCounters { time_ns, targets });
    vec![
        State::CounterEvents(events()),
        snapshot(
            START_NS + S,
            vec![
                target(11, load_11, runs(4000, 1040, 3100, 6050, 8)),
                target(13, load_13, first_13.clone()),
                refused.clone(),
                target(17, load_17, runs(100, 1000, 1, 1, 1)),
            ],
        ),
        snapshot(
            START_NS + 2 * S,
            vec![
                target(11, load_11, second_11),
                function,
                target(13, load_13, gated(&first_13)),
                refused,
                target(17, load_17, runs(99, 1000, 1, 1, 1)),
                target(22, load_22, impossible),
            ],
        ),
    ]
}

fn program(report: &Report, id: u32) -> &Program {
    report.programs.iter().find(|program| program.id == Some(id)).unwrap()
}

fn exact(report: &Report, id: u32) -> &Exact {
    program(report, id).exact.value().unwrap()
}

/// Splits CSV into lines and fields.
fn csv_fields(text: &str) -> Vec<Vec<String>> {
    let fields = |line: &str| {
        let (mut fields, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => fields.last_mut().unwrap().push(c),
            }
        }
        fields
    };
    text.lines().map(fields).collect()
}

fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{value}, expected {expected}");
}

#[test]
fn measured_runs_come_to_values_per_run() {
    let report = by_prog(&fixture_with(&scenario()), &Options::default()).unwrap();
    assert_eq!(report.problems, [""; 0]);
    let it = exact(&report, 11);
    assert_eq!((it.runs, it.measured, it.is_estimate), (9000, 9000, false));
    // Counting adds a measured overhead, which is subtracted: 40 of 1040 ns, 100 of 3100 cycles, 50 of 6050 instructions.
    close(it.time.value().unwrap().value, 1000.0);
    close(it.time.value().unwrap().gross, 1040.0);
    assert_eq!(it.time.value().unwrap().error, None);
    let per_run: Vec<f64> = it.events.iter().map(|event| event.counted.value().unwrap().per_run.value).collect();
    close(per_run[0], 3000.0);
    close(per_run[1], 6000.0);
    close(per_run[2], 8.0);
    close(it.ipc.unwrap(), 2.0);
    close(it.events[2].counted.value().unwrap().running, 0.25);
    // Percentiles 50, 99 and 99.9 are buckets minus the overhead of 40 ns: 1040 is in 1024..=1151, 100,000 in 98,304..=106,495. Only 20 of the 9000
    // runs (0.22 %) are long, so only the last percentile is long.
    let percentiles: Vec<_> = it.percentiles.iter().map(|it| it.from_ns.zip(it.to_ns)).collect();
    assert_eq!(percentiles, [Some((984, 1111)), Some((984, 1111)), Some((98_264, 106_455))]);
    let inner = &program(&report, 11).exact_functions[0];
    assert_eq!((inner.function, inner.name.as_str(), inner.runs), (2, "inner", 500));
    close(inner.time.value().unwrap().value, 200.0);
}

#[test]
fn runs_that_the_gate_let_pass_are_estimated() {
    let report = by_prog(&fixture_with(&scenario()), &Options::default()).unwrap();
    let it = exact(&report, 13);
    assert_eq!((it.runs, it.measured, it.every, it.is_estimate), (20_000, 1190, 100, true));
    // Times: 1,000 runs of 100 ns, then 19,000 of 200 ns. Cycles: 200, then 300. Instructions: 200, then 300.
    close(it.time.value().unwrap().value, (1000.0 * 100.0 + 19_000.0 * 200.0) / 20_000.0);
    let cycles = it.events[0].counted.value().unwrap();
    close(cycles.per_run.value, (1000.0 * 200.0 + 19_000.0 * 300.0) / 20_000.0);
    assert_eq!(cycles.per_run.error, None, "two intervals are too few for an error");
    close(it.ipc.unwrap(), 1.0);
    // 1000 run times are in the bucket 128..=143, 190 in 240..=255.
    let (low, high) = ((128.0 + 143.0) / 2.0, (240.0 + 255.0) / 2.0);
    let mean = (1000.0 * low + 19_000.0 * high) / 20_000.0;
    // Times are uniformly distributed over the 15 ns of a bucket.
    let within = 15.0 * 15.0 / 12.0;
    let between = (1000.0 * (low - mean) * (low - mean) + 19_000.0 * (high - mean) * (high - mean)) / 20_000.0;
    let variance = (between + within) * 1190.0 / 1189.0;
    // The first 1,000 runs are all measured. Only the later 19,000 runs cause a margin, because only 190 of them are measured.
    let quantile = StudentQuantiles::new(0.025).of(1189.0).unwrap();
    let expected = quantile * (variance * 19_000.0 * (19_000.0 - 190.0) / 190.0f64).sqrt() / 20_000.0;
    close(it.time.value().unwrap().error.unwrap(), expected);
}

#[test]
fn what_cannot_be_true_is_no_number() {
    let report = by_prog(&fixture_with(&scenario()), &Options::default()).unwrap();
    assert_eq!(program(&report, 16).exact.why().unwrap(), "it has no BTF");
    assert!(matches!(program(&report, 17).exact, Known::Impossible(_)));
    let fallen = program(&report, 17).exact.why().unwrap();
    assert!(fallen.contains("contradict each other: runs fell from 100 to 99"), "{fallen}");
    let it = exact(&report, 22);
    assert!(matches!(it.events[0].counted, Known::Impossible(_)) && it.events[1].counted.is_value());
    let anomalies: Vec<String> = it.anomalies.iter().map(ToString::to_string).collect();
    assert_eq!(anomalies, ["cycles: counted for 10000000 ns, but enabled for only 10000 ns"]);
    assert_eq!(it.ipc, None);
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    for expected in [
        "not counted exactly: account_syscall_enter (16) (it has no BTF)",
        "runs fell from 100 to 99",
        "! bprec_refs (22): cycles: counted for 10000000 ns, but enabled for only 10000 ns",
        "not counted: branch-misses (no counter is left for it)",
        "n/a!",
    ] {
        assert!(table.contains(expected), "{expected:?} in\n{table}");
    }
}

#[test]
fn sources_are_compared() {
    let report = by_prog(&fixture_with(&scenario()), &Options::default()).unwrap();
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    for expected in ["EXACT RUNS  STATS RUNS", "1 in 16.8"] {
        assert!(table.contains(expected), "{expected:?} in\n{table}");
    }
}

#[test]
fn exact_counts_of_a_part_of_the_time_stand_beside_statistics() {
    let [(_, load_11), (_, load_13), ..] = programs()[..] else { panic!() };
    let snapshot = |time_ns, targets| State::ProgramCounters(ProgramCounters { time_ns, targets });
    let missing = |misses| RunCounts { misses: Some(misses), ..runs(3000, 20_000, 1, 1, 0) };
    let with = |misses| {
        let ended = TargetCounters {
            reason: "it ran too often".into(),
            ..target(11, load_11, RunCounts { misses: Some(0), ..runs(700, 1040, 1, 1, 0) })
        };
        let states = [
            State::CounterEvents(events()),
            snapshot(START_NS + S / 4, vec![ended]),
            snapshot(START_NS + 2 * S, vec![target(13, load_13, missing(misses))]),
        ];
        by_prog(&fixture_with(&states), &Options::default()).unwrap()
    };
    let report = with(6000);
    // Run statistics give 9,007 runs in the whole time; exact counters counted 700 in a quarter of a second.
    let partly = program(&report, 11);
    assert_eq!((partly.exact.value().unwrap().runs, partly.exact_throughout()), (700, None));
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    let row = table.lines().find(|line| line.starts_with("11 ")).unwrap();
    assert!(row.contains("  9,007  ") && !row.contains("  700  "), "{table}");
    let note =
        table.lines().find(|line| line.contains("RUNS and NS/RUN are counted exactly, except for these")).unwrap();
    assert!(note.contains("account_syscall_enter (11)") && !note.contains("account_syscall_exit (13)"), "{note}");
    assert!(
        table.contains("programs no longer counted exactly: account_syscall_enter (11) (it ran too often)"),
        "{table}"
    );
}

#[test]
fn statistics_that_end_before_the_recording_are_no_numbers() {
    // First 1,000 runs of 1040 ns and 3100 cycles. Then the overhead of counting is smaller: 3,000 more runs have 1020 ns and 3060 cycles.
    let less = Calibration { inside_ns: 20_000, inside: vec![60_000, 50_000, 0], ..events().calibration.unwrap() };
    let snapshot = |time_ns, it| ProgramCounters { time_ns, targets: vec![target(11, programs()[0].1, it)] };
    let states = [
        State::CounterEvents(events()),
        State::ProgramCounters(snapshot(START_NS + S / 2, runs(1000, 1040, 3100, 6050, 8))),
        State::StatsOff(StatsOff { time_ns: START_NS + S / 2, reason: "too many runs".into() }),
        State::CounterEvents(CounterEvents { calibration: Some(less), ..events() }),
        State::ProgramCounters(snapshot(START_NS + 2 * S, runs(4000, 1025, 3070, 6050, 8))),
    ];
    let report = by_prog(&fixture_with(&states), &Options::default()).unwrap();
    assert!([11, 13].iter().all(|id| program(&report, *id).runs.why().unwrap() == "too many runs"));
    close(exact(&report, 11).time.value().unwrap().value, 1000.0);
    close(exact(&report, 11).events[0].counted.value().unwrap().per_run.value, 3000.0);
    let note = report.recording.counters_note.unwrap();
    assert_eq!(note, "run statistics cover only the first 0.500 s: too many runs");
}

#[test]
fn every_view_says_the_same_with_any_number_of_threads() {
    let input = fixture_with(&scenario());
    let with = |threads| Options { threads: Some(threads), ..Options::default() };
    let report = by_prog(&input, &with(1)).unwrap();
    let json = text(|out| report.write_json(out).unwrap());
    let csv = text(|out| report.write_csv(out).unwrap());
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    let again = by_prog(&input, &with(4)).unwrap();
    assert_eq!(text(|out| again.write_json(out).unwrap()), json);
    assert_eq!(text(|out| again.write_csv(out).unwrap()), csv);
    assert_eq!(text(|out| again.write_table(out, usize::MAX).unwrap()), table);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["counting"]["events"][1]["overhead"], 50.0);
    assert_eq!(document["counting"]["absent"][0]["name"], "branch-misses");
    let program = |id: u64| document["programs"].as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    let exact = &program(11)["exact"];
    assert_eq!((&exact["runs"], &exact["is_estimate"]), (&9000.into(), &false.into()));
    close(exact["ns_per_run"]["value"].as_f64().unwrap(), 1000.0);
    close(exact["events"][0]["per_run"]["value"].as_f64().unwrap(), 3000.0);
    close(exact["ipc"].as_f64().unwrap(), 2.0);
    assert_eq!(exact["percentiles"][2]["to_ns"], 106_455);
    assert_eq!(program(16)["exact"], Value::Null);
    assert_eq!(program(16)["exact_unknown"], "it has no BTF");
    assert_eq!(program(22)["exact"]["events"][0]["per_run"], Value::Null);
    let lines = csv_fields(&csv);
    let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
    let row = lines.iter().find(|line| line[column("id")] == "11" && line[column("kind")] == "program").unwrap();
    assert_eq!((row[column("runs")].as_str(), row[column("exact_runs")].as_str()), ("9007", "9000"));
    close(row[column("cycles_per_run")].parse().unwrap(), 3000.0);
    assert_eq!(row[column("cache-misses_running")], "0.25");
    let header = table.lines().find(|line| line.starts_with("ID")).unwrap();
    for column in ["cycles/RUN", "instructions/RUN", "cache-misses/RUN", "IPC", "P50", "P99", "P99.9"] {
        assert!(header.contains(column), "{header}");
    }
    let row = table.lines().find(|line| line.starts_with("11 ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    for cell in ["9,000", "1,000", "3,000", "6,000", "8.0[25%]", "2.00", "1,047", "102,359", "0"] {
        assert!(cells.contains(&cell), "{cell} in {row}");
    }
}

#[test]
fn without_exact_counters_nothing_is_added() {
    let report = by_prog(&fixture_with(&[]), &Options::default()).unwrap();
    assert_eq!(report.counting, None);
    let csv = text(|out| report.write_csv(out).unwrap());
    assert!(!csv.contains("exact"), "{csv}");
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    assert!(table.contains(" 9,007 ") && !table.contains("exact"), "{table}");
}

/// Asserts that the intervals of a target, from one source, add up to its total: runs, times and readings.
fn assert_intervals_add_up(report: &CountersReport) {
    assert!(!report.totals.is_empty());
    for total in &report.totals {
        let Some(counts) = total.counts.value() else { continue };
        let of_total = report.rows.iter().filter(|row| (row.source, &row.target) == (total.source, &total.target));
        let mut sum = vec![0u64; 3 + 3 * counts.readings.len()];
        for row in of_total {
            assert!(total.from_ns <= row.from_ns && row.to_ns <= total.to_ns);
            let it = row.counts.value().unwrap();
            let (runs, measured) = match row.source {
                CounterSource::Shared => (0, 0),
                _ => (it.values.runs, it.values.measured),
            };
            let numbers = [runs, measured, it.measured_ns].into_iter();
            let readings = it.readings.iter().flat_map(|it| [it.value, it.enabled_ns, it.running_ns]);
            sum.iter_mut().zip(numbers.chain(readings)).for_each(|(sum, number)| *sum += number);
        }
        let (runs, measured) = match total.source {
            CounterSource::Shared => (0, 0),
            _ => (counts.values.runs, counts.values.measured),
        };
        let readings = counts.readings.iter().flat_map(|it| [it.value, it.enabled_ns, it.running_ns]);
        let expected: Vec<u64> = [runs, measured, counts.measured_ns].into_iter().chain(readings).collect();
        assert_eq!(sum, expected, "{total:?}");
    }
}

#[test]
fn intervals_add_up_to_totals() {
    let report = counters(&fixture_with(&scenario()), &Options::default()).unwrap();
    assert_intervals_add_up(&report);
    let of = |source, id| {
        report.rows.iter().filter(move |row| row.source == source && row.target.id == id && row.target.function == 0)
    };
    let exact: Vec<(i64, i64, u64)> = of(CounterSource::Exact, 11)
        .map(|row| (row.from_ns, row.to_ns, row.counts.value().unwrap().values.runs))
        .collect();
    assert_eq!(exact, [(0, S as i64, 4000), (S as i64, 2 * S as i64, 5000)]);
    // The same holds for the recorder's run statistics: the total equals the table by program.
    assert_eq!(of(CounterSource::Stats, 11).map(|row| row.counts.value().unwrap().values.runs).sum::<u64>(), 9007);
    // 4,000 runs of 1,000 ns in 1 s are 0.4 % of one CPU.
    let first = of(CounterSource::Exact, 11).next().unwrap();
    close(first.counts.value().unwrap().cpu_percent.unwrap(), 0.4);
    let broken: Vec<bool> = of(CounterSource::Exact, 17).map(|row| !row.counts.is_value()).collect();
    assert_eq!(broken, [false, true]);
    let refused: Vec<_> = report.refused.iter().map(|it| (it.name.as_str(), it.id, it.reason.as_str())).collect();
    assert_eq!(refused, [("account_syscall_enter", 16, "it has no BTF")]);
    let json: Value = serde_json::from_str(&text(|out| report.write_json(out).unwrap())).unwrap();
    let sum = |list: &str, id: u64, source: &str| -> u64 {
        let rows = json[list].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["id"] == id && row["source"] == source && row["function"] == 0);
        rows.map(|row| row["counts"]["readings"][0]["value"].as_u64().unwrap_or(0)).sum()
    };
    assert_eq!(sum("intervals", 11, "exact"), 9000 * 3100);
    assert_eq!(sum("totals", 11, "exact"), 9000 * 3100);
    let csv = text(|out| report.write_csv(out).unwrap());
    let lines = csv_fields(&csv);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{csv}");
    let table = text(|out| report.write_table(out, usize::MAX).unwrap());
    for expected in [
        "0.000..1.000",
        "n/a!",
        "! account_syscall_exit 1.000..2.000 s: snapshots of its counts contradict each other: runs fell from 100 to 99",
    ] {
        assert!(table.contains(expected), "{expected:?} in\n{table}");
    }
}

/// Two ways to the same number: the table by program uses the first and the last snapshot, the view over time uses all snapshots.
#[test]
fn totals_over_time_are_the_runs_by_program() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut compared = 0;
    for name in ["linux-7.2/ratio", "linux-7.2/everything", "linux-7.2/shortlived", "linux-6.1/loaded-during"] {
        let input = Input::open(directory.join(name).with_extension("data")).unwrap();
        let over_time = counters(&input, &Options { all: true, ..Options::default() }).unwrap();
        assert_intervals_add_up(&over_time);
        for program in by_prog(&input, &Options::default()).unwrap().programs.iter() {
            let Some(runs) = program.runs.value() else { continue };
            let total = over_time.totals.iter().find(|total| {
                (Some(total.target.id), total.target.load_time_ns) == (program.id.map(u64::from), program.load_time_ns)
            });
            let counts = total.unwrap_or_else(|| panic!("{name}: {}", program.name)).counts.value().unwrap();
            assert_eq!(
                (counts.values.runs, counts.measured_ns),
                (runs.count, runs.time_ns),
                "{name}: {}",
                program.name
            );
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

/// Program 11 has two links, one of them attached during the recording; a link of program 13 was removed; the link of 16 missed no hit. With a
/// second file, the missed hits of both files are added.
#[test]
fn missed_hits_of_kprobes_are_summed_up_by_program() {
    let link = |link_id, prog_id, first, last| LinkMisses { link_id, prog_id, first, last };
    let links =
        vec![link(1, 11, 100, Some(1_130)), link(2, 11, 0, Some(4)), link(3, 13, 7, None), link(4, 16, 5, Some(5))];
    let first = State::ProbeMisses(ProbeMisses { time_ns: START_NS + 1, links });
    let second =
        State::ProbeMisses(ProbeMisses { time_ns: START_NS + 2, links: vec![link(1, 11, 1_130, Some(1_133))] });
    let input = fixture_with(&[first, second]);
    let misses = |report: &Report| [11, 13, 16, 17].map(|id| program(report, id).probe_misses);
    let report = by_prog(&input, &Options::default()).unwrap();
    assert_eq!(misses(&report), [Some(1_037), None, Some(0), None]);
    let table = text(|out| report.write_table(out, 300).unwrap());
    let name = program(&report, 11).label_with_id();
    assert!(table.contains("PROBE MISSES") && table.contains(&format!("1,037 hits of {name}")), "{table}");
    let csv = text(|out| report.write_csv(out).unwrap());
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let [id, missed] = ["id", "probe_misses"].map(|name| head.iter().position(|it| *it == name).unwrap());
    let cells: Vec<&str> = lines.filter(|cells| cells[id] == "11").map(|cells| cells[missed]).collect();
    assert!(cells.contains(&"1037"), "{csv}");
    // The counts are known only for the whole recording.
    let part = Options { time: "0%-50%".parse().unwrap(), ..Options::default() };
    assert_eq!(misses(&by_prog(&input, &part).unwrap()), [None; 4]);
}

#[test]
fn a_window_has_the_intervals_that_lie_in_it() {
    let from = START_NS + S / 2;
    let time = format!("{}.{:09},", from / S, from % S).parse().unwrap();
    let input = fixture_with(&scenario());
    let options = Options { time, ..Options::default() };
    let report = counters(&input, &options).unwrap();
    let runs: Vec<u64> = report
        .rows
        .iter()
        .filter(|row| row.source == CounterSource::Exact && row.target.id == 11 && row.target.function == 0)
        .map(|row| row.counts.value().unwrap().values.runs)
        .collect();
    assert_eq!(runs, [5000]);
    assert_intervals_add_up(&report);
    assert_eq!(exact(&by_prog(&input, &options).unwrap(), 11).runs, 5000);
}

#[test]
fn both_byte_orders_print_the_same() {
    let session = Session { start_ns: START_NS, cpus_online: 2, ..Session::default() };
    let shared = |time_ns, value| {
        let reading = |value| Reading { value, enabled_ns: time_ns - START_NS, running_ns: time_ns - START_NS };
        let machine = SharedTarget {
            since_ns: START_NS,
            readings: vec![reading(value), reading(value / 2)],
            ..SharedTarget::default()
        };
        let group = SharedTarget {
            scope: SharedScope::CGROUP,
            id: 77,
            name: b"/system.slice".to_vec(),
            readings: vec![reading(value / 4), reading(value / 8)],
            ..machine.clone()
        };
        State::SharedCounters(SharedCounters { time_ns, targets: vec![machine, group] })
    };
    let stats = |time_ns, run_cnt| {
        let runs = ProgramRuns { id: 5, load_time_ns: 1, run_time_ns: run_cnt * 100, run_cnt, recursion_misses: None };
        State::RunStats(RunStats { time_ns, programs: vec![runs], ..RunStats::default() })
    };
    let mut events = events();
    events.tier = CounterTier::SHARED;
    events.events.truncate(2);
    events.calibration = None;
    let mut states = vec![State::Session(session), State::CounterEvents(events), stats(START_NS, 10)];
    states.extend([shared(START_NS + S, 4_000_000), stats(START_NS + S, 30), shared(START_NS + 2 * S, 10_000_000)]);
    let print = |endian| {
        let report = counters(&states_alone(&states, endian), &Options::default()).unwrap();
        assert_intervals_add_up(&report);
        assert_eq!(report.problems, [""; 0]);
        text(|out| report.write_table(out, 200).unwrap())
            + &text(|out| report.write_json(out).unwrap())
            + &text(|out| report.write_csv(out).unwrap())
    };
    let printed = print(Endian::Little);
    assert_eq!(print(Endian::Big), printed);
    for expected in ["/system.slice", "6,000,000", "10,000,000", "0.50"] {
        assert!(printed.contains(expected), "{expected:?} in\n{printed}");
    }
}
