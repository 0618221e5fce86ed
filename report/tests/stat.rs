//! Counters without a recording, from hand-made states: the expected numbers are computed by hand, and every output format must have them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_format::bprec::state::{
    Calibration, CounterEvent, CounterEvents, CounterTier, CounterUnit, Histogram, ProgramCounters, ProgramRuns,
    Reading, Released, RunCounts, RunStats, Session, SharedCounters, SharedScope, SharedTarget, State, StatsOff,
    TargetCounters,
};
use bprec_report::model::StatSnapshot;
use bprec_report::{StatAccumulator, StatFormat, StatWriter};
use serde_json::Value;

const S: u64 = 1_000_000_000;
/// Time at which counting begins.
const START: u64 = 100 * S;

fn session(note: &str) -> State {
    State::Session(Session {
        start_ns: START,
        cpus_online: 2,
        target: "BPF programs".into(),
        counters_note: note.into(),
        ..Session::default()
    })
}

/// Builds run statistics at a second: id, runs and time of each program.
fn stats(second: u64, programs: &[(u32, u64, u64)]) -> State {
    let programs = programs.iter().map(|(id, run_cnt, run_time_ns)| ProgramRuns {
        id: *id,
        load_time_ns: S,
        run_time_ns: *run_time_ns,
        run_cnt: *run_cnt,
        recursion_misses: Some(3),
    });
    State::RunStats(RunStats { time_ns: START + second * S, programs: programs.collect(), ..RunStats::default() })
}

fn event(name: &str, config: u64, group: u32) -> CounterEvent {
    CounterEvent { name: name.into(), config, group, ..CounterEvent::default() }
}

/// Cycles and instructions in one group, and multiplexed cache misses. Counting adds 10 ns and 30 cycles to each run.
fn events() -> State {
    State::CounterEvents(CounterEvents {
        tier: CounterTier::EXACT,
        time_ns: START,
        events: vec![event("cycles", 0, 0), event("instructions", 1, 0), event("cache-misses", 3, 1)],
        absent: Vec::new(),
        calibration: Some(Calibration {
            runs: 100,
            inside_ns: 1000,
            inside: vec![3000, 0, 0],
            ..Calibration::default()
        }),
        budget_ppm: None,
        note: String::new(),
    })
}

/// Builds counts of runs with 110 ns, 330 cycles, 600 instructions and, while cache misses were counted, 2 cache misses each.
fn counts(runs: u64) -> RunCounts {
    let time_ns = runs * 110;
    let whole = |value: u64| Reading { value: runs * value, enabled_ns: time_ns, running_ns: time_ns };
    RunCounts {
        runs,
        measured: runs,
        every: 1,
        time_ns,
        readings: vec![
            whole(330),
            whole(600),
            Reading { value: runs * 2, enabled_ns: time_ns, running_ns: time_ns / 2 },
        ],
        histogram: Histogram { sub_bits: 2, buckets: vec![(Histogram::bucket(110, 2), runs)] },
        ..RunCounts::default()
    }
}

fn target(counts: RunCounts, cpu: Option<u32>) -> TargetCounters {
    TargetCounters { id: 7, load_time_ns: S, since_ns: START, counts: Some(counts), cpu, ..TargetCounters::default() }
}

fn exact(second: u64, targets: Vec<TargetCounters>) -> State {
    State::ProgramCounters(ProgramCounters { time_ns: START + second * S, targets })
}

fn written(metered: &StatSnapshot, format: StatFormat, per_cpu: bool) -> String {
    let mut out = Vec::new();
    StatWriter::new(format, false, per_cpu).total(metered, None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn text(metered: &StatSnapshot) -> String {
    written(metered, StatFormat::Text(usize::MAX.into()), false)
}

fn csv(metered: &StatSnapshot, per_cpu: bool) -> Vec<Vec<String>> {
    let text = written(metered, StatFormat::Csv(";".into()), per_cpu);
    text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

fn json(metered: &StatSnapshot, row: &str) -> Vec<Value> {
    let text = written(metered, StatFormat::Json, false);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["row"] == row).collect()
}

#[test]
fn statistics_alone_are_shown_with_the_reason() {
    let mut meter = StatAccumulator::new(false);
    meter.name(7, S, "busy".into(), "xdp".into());
    meter.name(8, S, "idle\u{1b}[2J".into(), "xdp".into());
    meter.add(session("nothing else is allowed"));
    meter.add(stats(0, &[(7, 1000, 50_000), (8, 5, 500)]));
    meter.add(stats(2, &[(7, 3000, 250_000), (8, 5, 500)]));
    let total = meter.total(START + 2 * S);
    assert_eq!((total.rows.len(), total.quiet, total.to_ns), (1, 1, 2 * S as i64));
    // 2000 runs took 200 µs of 2 s.
    let text = text(&total);
    let line = text.lines().find(|line| line.contains("busy")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells, ["7", "xdp", "busy", "2,000", "100.0", "0.010", "0", "stats"], "{text}");
    assert!(text.contains("# nothing else is allowed\n") && text.contains("2.000000 s elapsed"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("idle"));
    let row = &json(&total, "total")[0];
    assert_eq!(
        (&row["exact"], &row["stats"]["runs"], &row["stats"]["measured_ns"]),
        (&Value::Null, &Value::from(2000), &Value::from(200_000))
    );
    let lines = csv(&total, false);
    assert_eq!(lines[0], ["2000", "", "runs", "2000000000", "100.00", "", "", "stats", "program", "7", "0", "busy"]);
    assert_eq!(lines[1][..7], ["200000", "ns", "time", "2000000000", "100.00", "100", "ns/run"]);
    let named = written(&total, StatFormat::NamedCsv, false);
    let (names, values) = named.split_once('\n').unwrap();
    assert_eq!(names.split(',').count(), lines[0].len());
    assert_eq!(values, written(&total, StatFormat::Csv(",".into()), false));
    let markdown = written(&total, StatFormat::Markdown, false);
    assert!(markdown.contains("| 7 | xdp | busy | 2,000 | 100.0 | 0.010 | 0 | stats |"), "{markdown}");
    assert!(markdown.contains("- nothing else is allowed"), "{markdown}");

    let mut all = StatAccumulator::new(true);
    all.name(8, S, "idle\u{1b}[2J".into(), "xdp".into());
    all.add(session(""));
    all.add(stats(0, &[(8, 5, 500)]));
    all.add(stats(1, &[(8, 5, 500)]));
    let text = self::text(&all.total(START + S));
    assert!(text.contains("idle\\u{1b}[2J") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn intervals_add_up_and_a_program_that_goes_is_told() {
    let mut meter = StatAccumulator::new(false);
    meter.add(session(""));
    meter.add(stats(0, &[(7, 0, 0), (8, 10, 100)]));
    meter.add(stats(1, &[(7, 10, 1000), (8, 30, 300)]));
    let first = meter.interval(START + S);
    // The second interval has two readings.
    meter.add(stats(2, &[(7, 15, 1500), (8, 31, 310)]));
    meter.add(State::Released(Released { id: 8, load_time_ns: S, after_ns: 0, before_ns: START + 2 * S }));
    meter.add(stats(3, &[(7, 40, 4000)]));
    let second = meter.interval(START + 3 * S);
    meter.add(stats(4, &[(7, 40, 4000)]));
    let third = meter.interval(START + 4 * S);
    let runs = |metered: &StatSnapshot, id: u64| {
        let row = metered.rows.iter().find(|row| row.target.id == id)?;
        Some(row.stats.as_ref()?.counts.value()?.values.runs)
    };
    assert_eq!([&first, &second, &third].map(|it| runs(it, 7)), [Some(10), Some(30), None]);
    assert_eq!([&first, &second, &third].map(|it| runs(it, 8)), [Some(20), Some(1), None]);
    let total = meter.total(START + 4 * S);
    assert_eq!((runs(&total, 7), runs(&total, 8)), (Some(40), Some(21)));
    assert_eq!((second.from_ns, second.to_ns), (S as i64, 3 * S as i64));
    assert!(text(&total).contains("[no name] (8): unloaded after 2.000 s"));
}

#[test]
fn exact_counts_are_per_run_and_altogether_less_what_counting_adds() {
    let mut meter = StatAccumulator::new(false);
    meter.name(7, S, "busy".into(), "xdp".into());
    meter.add(session(""));
    meter.add(events());
    meter.add(stats(0, &[(7, 0, 0)]));
    meter.add(stats(1, &[(7, 300, 30_000)]));
    meter.add(exact(1, vec![target(counts(300), None), target(counts(100), Some(0)), target(counts(200), Some(1))]));
    let total = meter.total(START + S);
    let rows: Vec<(Option<u32>, u64)> = total
        .rows
        .iter()
        .map(|row| (row.target.cpu, row.best().unwrap().counts.value().unwrap().values.runs))
        .collect();
    assert_eq!(rows, [(None, 300), (Some(0), 100), (Some(1), 200)]);
    // Per run: 330 − 30 cycles, 600 instructions, and 4 cache misses: 2 were counted in half of the time.
    let lines = csv(&total, true);
    let value = |cpu: &str, event: &str| {
        let line = lines.iter().find(|line| line[0] == cpu && line[3] == event).unwrap();
        (line[1].clone(), line[6].clone(), line[5].clone())
    };
    let owned = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(value("all", "time"), owned("30000", "100", "100.00"));
    assert_eq!(value("all", "cycles"), owned("90000", "300", "100.00"));
    assert_eq!(value("CPU1", "instructions"), owned("120000", "600", "100.00"));
    assert_eq!(value("CPU0", "cache-misses"), owned("400", "4", "50.00"));
    assert_eq!(value("all", "ipc").0, "2");
    let text = text(&total);
    let header: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    let cells: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    let cell = |name: &str| cells[header.iter().position(|it| *it == name).unwrap()];
    assert_eq!((cell("RUNS"), cell("NS/RUN"), cell("CYCLES"), cell("CYCLES/RUN")), ("300", "100.0", "90,000", "300.0"));
    assert_eq!((cell("IPC"), cell("SOURCE"), cell("MISSES")), ("2.00", "exact", "0"));
    assert_eq!((cell("CACHE-MISSES"), cell("CACHE-MISSES/RUN")), ("1,200", "4.0[50%]"));
    let row = &json(&total, "total")[0];
    assert_eq!(row["exact"]["readings"][0]["value"], 99_000, "the reading is not changed");
    assert_eq!(row["exact"]["events"][0]["per_run"]["value"], 300.0);
    assert_eq!((&row["source"], &row["stats"]["runs"]), (&Value::from("exact"), &Value::from(300)));
}

#[test]
fn what_is_refused_or_impossible_is_said_and_not_shown() {
    let mut meter = StatAccumulator::new(false);
    meter.name(7, S, "busy".into(), "xdp".into());
    meter.name(8, S, "left_alone".into(), "ext".into());
    meter.add(session(""));
    meter.add(events());
    meter.add(stats(0, &[(7, 0, 0), (8, 0, 0)]));
    meter.add(stats(1, &[(7, 100, 11_000), (8, 50, 5000)]));
    let mut impossible = counts(100);
    // The runs took five seconds, but only one second passed on each of two CPUs.
    impossible.time_ns = 5 * S;
    let refused = TargetCounters {
        id: 8,
        load_time_ns: S,
        since_ns: START,
        reason: "it is an extension".into(),
        ..TargetCounters::default()
    };
    meter.add(exact(1, vec![target(impossible, None), refused]));
    let total = meter.total(START + S);
    let text = text(&total);
    assert!(
        text.contains("n/a!")
            && text.contains("! busy (7): the program took 5000000000 ns, but its CPUs had only 2000000000 ns"),
        "{text}"
    );
    assert!(text.contains("not counted exactly: left_alone (8) (it is an extension)"), "{text}");
    let rows = json(&total, "total");
    let left = rows.iter().find(|row| row["id"] == 8).unwrap();
    assert_eq!((&left["source"], &left["exact_unknown"]), (&Value::from("stats"), &Value::from("it is an extension")));
    let busy = rows.iter().find(|row| row["id"] == 7).unwrap();
    assert_eq!(busy["exact"]["ns_per_run"], Value::Null);
    let time = csv(&total, false).into_iter().find(|line| line[2] == "time" && line[9] == "7").unwrap();
    assert_eq!((time[0].as_str(), time[5].as_str()), ("", ""), "unknown values are empty");
}

#[test]
fn events_of_targets_have_rates_and_none_is_none() {
    let mut meter = StatAccumulator::new(false);
    meter.add(session(""));
    let mut events = vec![
        CounterEvent { unit: CounterUnit::NANOSECONDS, software: true, ..event("task-clock", 1, 0) },
        event("cycles", 0, 1),
        event("instructions", 1, 1),
    ];
    events[0].attr_type = 1;
    meter.add(State::CounterEvents(CounterEvents {
        tier: CounterTier::SHARED,
        time_ns: START,
        events,
        absent: Vec::new(),
        calibration: None,
        budget_ppm: None,
        note: String::new(),
    }));
    let target = |id: u64, name: &str, readings: Vec<Reading>| SharedTarget {
        scope: SharedScope::TGID,
        id,
        name: name.into(),
        since_ns: START,
        readings,
        ..SharedTarget::default()
    };
    let reading = |value, enabled_ns, running_ns| Reading { value, enabled_ns, running_ns };
    let busy = vec![reading(S / 2, S / 2, S / 2), reading(1000, S / 2, S / 4), reading(1500, S / 2, S / 4)];
    // The task slept during the whole measurement.
    let asleep = vec![Reading::default(); 3];
    let targets = vec![target(5, "busy", busy), target(6, "asleep", asleep)];
    meter.add(State::SharedCounters(SharedCounters { time_ns: START + S, targets }));
    let total = meter.total(START + S);
    let lines = csv(&total, false);
    let value =
        |id: &str, event: &str| lines.iter().find(|line| line[9] == id && line[2] == event).unwrap()[..7].to_vec();
    assert_eq!(value("5", "task-clock"), ["500000000", "ns", "task-clock", "500000000", "100.00", "0.5", "CPUs"]);
    // The event was counted for half of the time.
    assert_eq!(value("5", "cycles"), ["2000", "", "cycles", "250000000", "50.00", "2000", "/s"]);
    assert_eq!(value("5", "ipc")[0], "1.5");
    assert_eq!(value("6", "cycles")[0], "0");
    let text = text(&total);
    let line = |event: &str| text.lines().find(|line| line.contains("busy/5") && line.contains(event)).unwrap();
    let cells = |event: &str| line(event).split_whitespace().skip(1).collect::<Vec<_>>();
    assert_eq!(cells("task-clock"), ["500.00", "ms", "task-clock", "0.500", "CPUs"]);
    assert_eq!(cells("instructions"), ["3,000", "instructions", "1.50", "per", "cycle", "50%"]);
}

#[test]
fn statistics_that_are_switched_off_say_until_when() {
    let mut meter = StatAccumulator::new(false);
    meter.name(7, S, "filter".into(), "xdp".into());
    meter.name(8, S, "no_btf".into(), "xdp".into());
    meter.add(session(""));
    meter.add(events());
    meter.add(stats(0, &[(7, 0, 0), (8, 0, 0)]));
    meter.add(exact(1, vec![target(counts(10), None)]));
    meter.add(stats(1, &[(7, 10, 2000), (8, 5, 500)]));
    meter.add(State::StatsOff(StatsOff { time_ns: START + S, reason: "too many runs".into() }));
    meter.skip();
    // The counts do not change.
    meter.add(stats(2, &[(7, 10, 2000), (8, 5, 500)]));
    meter.add(exact(2, vec![target(counts(30), None)]));
    let interval = meter.interval(START + 2 * S);
    assert!(interval.rows.iter().all(|row| row.stats.is_none()), "{interval:?}");
    let total = text(&meter.total(START + 2 * S));
    let row = |name: &str| -> Vec<&str> {
        total.lines().find(|line| line.contains(name)).unwrap().split_whitespace().collect()
    };
    let (counted, not) = (row("filter"), row("no_btf"));
    assert!(counted.contains(&"30") && counted.ends_with(&["exact"]), "{total}");
    assert!(not.contains(&"5") && not.ends_with(&["stats,", "until", "1.000", "s"]), "{total}");
    assert!(total.contains("# run statistics cover only the first 1.000 s: too many runs"), "{total}");
    let lines = csv(&meter.total(START + 2 * S), false);
    let line = |id: &str| lines.iter().find(|line| line[9] == id).unwrap();
    assert_eq!((&line("7")[4], &line("8")[4]), (&"100.00".to_owned(), &"50.00".to_owned()));
    let names = total.lines().find(|line| line.contains("RUNS")).unwrap();
    assert!(names.split_whitespace().all(|name| name != "MISSES") && !total.contains('≠'), "{total}");
}

#[test]
fn what_came_to_be_counted_late_does_not_stand_for_all_of_it() {
    let mut meter = StatAccumulator::new(false);
    meter.name(7, S, "joined".into(), "xdp".into());
    meter.add(session(""));
    meter.add(events());
    let late = TargetCounters { since_ns: START + 3 * S / 2, ..target(counts(50), None) };
    meter.add(stats(0, &[(7, 0, 0)]));
    meter.add(stats(2, &[(7, 200, 22_000)]));
    meter.add(exact(2, vec![late]));
    let row = &json(&meter.total(START + 2 * S), "total")[0];
    assert_eq!((&row["source"], &row["stats"]["runs"]), (&Value::from("stats"), &Value::from(200)));
    assert_eq!(row["exact"]["runs"], 50);
}

/// Each second for nearly an hour, a program is loaded and unloaded. The table lists a limited number of ended programs and counts the rest.
#[test]
fn programs_that_ended_long_ago_are_forgotten() {
    let mut meter = StatAccumulator::new(true);
    meter.add(session(""));
    let programs = 3_000u32;
    for id in 1..=programs {
        let second = u64::from(id);
        meter.name(id, S, format!("program_{id}"), "xdp".into());
        meter.add(stats(second, &[(id, 0, 0), (100_000, second * 10, second * 1000)]));
        meter.add(stats(second + 1, &[(id, 5, 500)]));
        meter.add(State::Released(Released {
            id,
            load_time_ns: S,
            after_ns: START + second * S,
            before_ns: START + (second + 1) * S,
        }));
        let interval = meter.interval(START + (second + 1) * S);
        let row = interval.rows.iter().find(|row| row.target.id == u64::from(id)).unwrap();
        assert_eq!(row.best().unwrap().counts.value().unwrap().values.runs, 5);
        assert!(interval.rows.len() <= 1_002, "{}", interval.rows.len());
    }
    let total = meter.total(START + u64::from(programs + 1) * S);
    assert_eq!(total.rows.len(), 1_001);
    let text = text(&total);
    assert!(text.contains("not listed: 2,000 more programs that ended earlier"), "{text}");
    let lasting = total.rows.iter().find(|row| row.target.id == 100_000).unwrap();
    assert_eq!(lasting.best().unwrap().counts.value().unwrap().values.runs, u64::from(programs - 1) * 10);
}
