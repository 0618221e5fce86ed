//! The number of runs of a program is the same in all views. The tested recording has run statistics only in windows of time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "support/states.rs"]
mod states;

use bprec_format::bprec::state::{ProgramRuns, RunStats, State};
use bprec_format::{File, RECORD_HEADER_BYTES, RecordType, Records, SampleLayout};
use bprec_generate::{Shape, generate_bytes};
use bprec_report::model::{CounterSource, DiffMetric, History, Known, Note, Reason, StatSnapshot};
use bprec_report::{
    DiffOptions, Document, ExportFormat, Input, Options, Session, Sort, StatAccumulator, TimeRange, diff,
};
use serde_json::Value;
use states::{append, file, is_state, open};
use std::path::Path;

const MS: u64 = 1_000_000;

/// Returns a committed recording with other run statistics: they are on for 10 ms in every 100 ms, and programs run more and more often. Also returns
/// the recording's states: first those of its session, then the new run statistics.
fn recording() -> (Input, Vec<State>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-7.2/ratio.data");
    let mut counted = 0;
    in_windows(&std::fs::read(path).unwrap(), |round, last| {
        let before = counted;
        counted += round * 3;
        let runs = |of_one: u64| {
            move |it: &ProgramRuns| (1_000 + of_one * u64::from(it.id), 5_000 + of_one * u64::from(it.id) * 130)
        };
        [before, counted].map(|of_one| last.programs.iter().map(runs(of_one)).collect())
    })
}

/// Replaces the run statistics of a recording: the new statistics are on for only 10 ms in every 100 ms. `counts` gets the number of such a window
/// and the last reading of the recording. It returns (runs, time) of each program at the start and at the end of the window.
fn in_windows(bytes: &[u8], mut counts: impl FnMut(u64, &RunStats) -> [Vec<(u64, u64)>; 2]) -> (Input, Vec<State>) {
    let parsed = File::parse(bytes).unwrap();
    let (section, endian) = (parsed.data(), parsed.endian());
    let event = parsed.attrs().iter().find(|event| is_state(event)).unwrap();
    let layout = SampleLayout::new(&event.attr, endian);
    let whole = &bytes[section.offset as usize..][..section.size as usize];
    let (mut data, mut read, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for record in Records::new(whole, section.offset, endian).map(Result::unwrap) {
        let at = (record.offset - section.offset) as usize;
        let end = at + RECORD_HEADER_BYTES + record.body().len();
        let state = (record.kind == RecordType::SAMPLE)
            .then(|| layout.sample(record.body(), record.offset + RECORD_HEADER_BYTES as u64).ok()?.raw().ok()?)
            .flatten()
            .and_then(|raw| State::decode(raw, record.offset, endian).ok());
        match state {
            Some(State::RunStats(stats)) => read.push(stats),
            state => {
                others.extend(state);
                data.extend_from_slice(&whole[at..end]);
            }
        }
    }
    let (first, last) = (&read[0], &read[read.len() - 1]);
    let mut stats = Vec::new();
    let (mut on_ns, mut at_ns) = (0, first.time_ns);
    let reading = |time_ns, on_ns, counts: &[(u64, u64)]| {
        let programs = last.programs.iter().zip(counts).map(|(it, (run_cnt, run_time_ns))| ProgramRuns {
            run_cnt: *run_cnt,
            run_time_ns: *run_time_ns,
            recursion_misses: Some(time_ns / (50 * MS)),
            ..*it
        });
        State::RunStats(RunStats { time_ns, programs: programs.collect(), on_ns: Some(on_ns), others_ns: None })
    };
    let mut counted = Vec::new();
    for round in 0.. {
        let (from_ns, to_ns) = (at_ns + (30 + round * 7 % 40) * MS, at_ns + (40 + round * 7 % 40) * MS);
        if to_ns > last.time_ns {
            break;
        }
        let [before, behind] = counts(round, last);
        stats.push(reading(from_ns, on_ns, &before));
        (on_ns, counted, at_ns) = (on_ns + 10 * MS, behind, at_ns + 100 * MS);
        stats.push(reading(to_ns, on_ns, &counted));
    }
    stats.push(reading(last.time_ns, on_ns, &counted));
    append(&stats, first.time_ns, event, endian, &mut data);
    let features: Vec<(u8, Vec<u8>)> =
        parsed.features().iter().map(|(bit, _)| (*bit, parsed.feature(*bit).unwrap().0.to_vec())).collect();
    let session = others.into_iter().filter(|state| matches!(state, State::Session(_) | State::BootClock(_)));
    (open(&file(parsed.attrs(), &data, &features, endian)), session.chain(stats).collect())
}

fn printed(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// Returns a cell of a program's row in CSV.
fn csv_cell(csv: &str, row: impl Fn(&[&str], &[&str]) -> bool, column: &str) -> String {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let head = lines.next().unwrap();
    let found = lines.find(|cells| row(&head, cells)).unwrap();
    found[head.iter().position(|name| *name == column).unwrap()].to_owned()
}

#[test]
fn runs_of_a_program_are_one_number() {
    let (input, states) = recording();
    let session = Session::open(&input).unwrap();
    let all = Options { all: true, ..Options::default() };
    let report = session.by_prog(&all).unwrap();
    let json: Value = serde_json::from_str(&printed(|out| report.write_json(out).unwrap())).unwrap();
    let csv = printed(|out| report.write_csv(out).unwrap());
    let counters = session.counters(&all).unwrap();
    let over_time = session.over_time(&all, Some(70 * MS)).unwrap();
    let mut packed = Vec::new();
    session.export(&all, ExportFormat::Firefox, &mut packed).unwrap();
    let firefox: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap();
    let compared = diff(&[recording().0], &[recording().0], &DiffOptions::default()).unwrap();
    let mut meter = StatAccumulator::new(true);
    states.into_iter().for_each(|state| meter.add(state));
    let total: StatSnapshot = meter.total(u64::MAX);
    let (mut programs, mut rates_compared) = (0, 0);
    for program in report.programs.iter().filter(|program| program.loaded.is_none() && !program.counts_others) {
        let (Some(id), Some(load_time_ns), Known::Value(runs)) = (program.id, program.load_time_ns, &program.runs)
        else {
            continue;
        };
        let estimate = runs.estimate.unwrap();
        assert!(runs.count > 0 && estimate.count_margin.unwrap() > 0, "{runs:?}");
        let (from_ns, to_ns) = runs.span.unwrap();
        assert!(runs.count as f64 > 5.0 * (to_ns - from_ns) as f64 / estimate.counted_for_ns as f64, "{runs:?}");
        let of = |value: &Value| value["id"] == id && value["load_time_ns"] == load_time_ns;
        let in_json = json["programs"].as_array().unwrap().iter().find(|it| of(it)).unwrap();
        assert_eq!(in_json["runs"]["count"], runs.count);

        let is_row = |head: &[&str], cells: &[&str]| {
            cells[head.iter().position(|name| *name == "id").unwrap()] == id.to_string()
        };
        assert_eq!(csv_cell(&csv, is_row, "runs"), runs.count.to_string());

        let of_counters = |row: &&bprec_report::model::CounterRow| {
            row.source == CounterSource::Stats
                && (row.target.id, row.target.load_time_ns) == (id.into(), Some(load_time_ns))
        };
        let in_total = counters.totals.iter().find(of_counters).unwrap().counts.value().unwrap();
        assert_eq!(in_total.values.runs, runs.count);
        assert_eq!(in_total.values.misses, runs.misses);
        let rows = counters.rows.iter().filter(of_counters);
        assert_eq!(rows.clone().map(|row| row.counts.value().unwrap().values.runs).sum::<u64>(), runs.count);
        assert!(rows.count() > 10);
        let ns_per_run = in_total.values.time.value().unwrap().value;
        assert!((ns_per_run - 130.0).abs() < 1e-6 && (runs.ns_per_run.unwrap() - 130.0).abs() < 1.0);

        let metered = total.rows.iter().find(|row| row.target.id == u64::from(id)).unwrap();
        assert_eq!(metered.stats.as_ref().unwrap().counts.value().unwrap().values.runs, runs.count);

        for row in over_time.events.iter().flat_map(|event| &event.rows).filter(|row| row.id == Some(id)) {
            let counted = row.counted.value().unwrap();
            assert_eq!(counted.runs, runs.count);
            assert_eq!(counted.intervals.iter().map(|it| it.runs).sum::<u64>(), runs.count);
            assert!(counted.intervals.iter().all(|it| it.from_ns < 10_000 * MS) && counted.intervals.len() > 10);
        }

        let label = program.label_with_id();
        let threads = firefox["threads"].as_array().unwrap().iter().filter(|thread| thread["name"] == label.as_str());
        for markers in threads.map(|thread| &thread["markers"]) {
            let data = markers["data"].as_array().unwrap().iter().enumerate();
            let sum: f64 = data
                .filter_map(|(at, data)| {
                    let time = |column: &str| markers[column][at].as_f64().unwrap();
                    Some(data["runsPerSecond"].as_f64()? * (time("endTime") - time("startTime")) / 1e3)
                })
                .sum();
            assert!((sum - runs.count as f64).abs() < 1.0, "{sum} {}", runs.count);
        }

        // In a comparison, programs with one name are one line.
        let is_alone = report.programs.iter().filter(|it| it.name == program.name).count() == 1;
        let sides = compared.programs.iter().filter(|it| it.name == program.name && is_alone);
        let rates = sides.flat_map(|it| &it.metrics).filter(|it| it.metric == DiffMetric::RunsPerSecond);
        for rate in rates.filter_map(|it| it.base.estimate.value()).take(1) {
            let seconds = (to_ns - from_ns) as f64 / 1e9;
            assert!((rate.value * seconds - runs.count as f64).abs() < 1.0, "{} {}", rate.value, runs.count);
            rates_compared += 1;
        }
        programs += 1;
    }
    assert!(programs >= 4 && rates_compared >= 1, "{programs} {rates_compared}");
}

/// A report of a part of the time has the same runs as the view over time of the same part. All intervals of that view are inside the part.
#[test]
fn a_part_of_the_time_has_the_runs_of_that_time() {
    let (input, _) = recording();
    let session = Session::open(&input).unwrap();
    for part in ["0%-50%", "50%-100%", "40%-60%"] {
        let options = Options { time: part.parse::<TimeRange>().unwrap(), ..Options::default() };
        let report = session.by_prog(&options).unwrap();
        let over_time = session.over_time(&options, Some(50 * MS)).unwrap();
        let start_ns = report.recording.start_ns;
        for row in over_time.events.iter().flat_map(|event| &event.rows) {
            let Some(runs) = row.program.and_then(|at| report.programs[at].runs.value()) else { continue };
            let counted = row.counted.value().unwrap();
            assert_eq!(counted.runs, runs.count, "{part}");
            assert_eq!(counted.intervals.iter().map(|it| it.runs).sum::<u64>(), runs.count, "{part}");
            let (from_ns, to_ns) = runs.span.unwrap();
            for interval in &counted.intervals {
                let begun_ns = start_ns + interval.from_ns;
                assert!(from_ns < begun_ns + 50 * MS && begun_ns < to_ns, "{part}: {interval:?} {:?}", runs.span);
            }
        }
    }
}

/// Returns the rows of a generated recording as text, and its notes. Each program runs without pause in the windows that `is_busy` selects, and does
/// not run in other windows.
fn notes(bpf_percent: u32, is_busy: fn(u64) -> bool) -> (String, Vec<Note>) {
    let shape = Shape { record_bytes: 8 << 20, programs: 4, bpf_percent, ..Shape::default() };
    let (bytes, _) = generate_bytes(&shape).unwrap();
    let mut windows = 0;
    let (input, _) = in_windows(&bytes, |round, last| {
        let before = windows;
        windows += u64::from(is_busy(round));
        [before, windows].map(|windows| vec![(1_000 * windows, 10 * MS * windows); last.programs.len()])
    });
    let report = Session::open(&input).unwrap().by_prog(&Options { all: true, ..Options::default() }).unwrap();
    let runs = report.programs.iter().filter_map(|program| Some(program.runs.value()?.time_ns)).max();
    (format!("{runs:?} {:#?}", report.events[0].rows), report.events[0].notes.to_vec())
}

/// Programs that run without pause in each window but have no samples get a note. Programs that run in only one window get no note, because the
/// margin of their time is too large.
#[test]
fn programs_are_short_of_samples_beyond_the_margins_of_runs_only() {
    let unsampled = |note: &Note| matches!(note, Note::Blind { reason: Reason::Unsampled { .. }, .. });
    let (rows, said) = notes(0, |_| true);
    assert!(said.iter().any(unsampled), "{said:#?} {rows}");
    let (rows, said) = notes(0, |round| round == 20);
    assert!(!said.iter().any(unsampled), "{said:#?} {rows}");
}

/// An interval of `top` has the runs of its own time, and can have the samples of a longer time. If it has only the samples of its own time, `≤`
/// marks numbers from few samples.
#[test]
fn an_interval_may_have_the_samples_of_a_longer_time() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-6.18/busy.data");
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let options = Options { sort: Sort::Cpu, ..Options::default() };
    let read = session.read_times_ns();
    let [from_ns, to_ns] = [read[read.len() - 2], read[read.len() - 1]];
    let alone = session.interval(&options, from_ns, to_ns).unwrap();
    let longer = session.interval_with_samples(&options, (from_ns, to_ns), read[0]).unwrap();
    assert_eq!(longer.report.programs, alone.report.programs);
    let time = TimeRange::Absolute(Some(read[0]), Some(to_ns));
    let expected = session.by_prog(&Options { time, ..options.clone() }).unwrap();
    assert_eq!(longer.report.events[0].samples, expected.events[0].samples);
    assert!(longer.report.events[0].samples > alone.report.events[0].samples);
    let times: Vec<u64> = longer.report.events[0]
        .rows
        .iter()
        .filter_map(|row| Some(longer.report.programs[row.program].runs.value()?.time_ns))
        .collect();
    assert!(times.len() == 4 && times.is_sorted_by(|a, b| a >= b), "{times:?}");

    for width in [30, 40, 50, 60, 80, 100, 200] {
        let listing = alone.listing(0, &History::default(), width);
        let wide = alone.listing(0, &History::default(), usize::MAX);
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (row, whole) in listing.rows.iter().zip(&wide.rows) {
            let whole = cells(&whole.text);
            let is_number = |cell: &&String| cell.chars().all(|c| c.is_ascii_digit() || ",.≈≤".contains(c));
            for cell in cells(&row.text).iter().filter(is_number) {
                assert!(whole.contains(cell), "{width}: {cell} of {row:?}, {whole:?}");
            }
        }
        for line in &listing.above {
            assert!(line.chars().count() <= width.max(60), "{width}: {line}");
        }
    }
    let few = alone.report.events[0]
        .rows
        .iter()
        .any(|row| row.line.as_ref().is_some_and(|line| (1..10).contains(&line.count.samples)));
    let text = printed(|out| alone.write_table(out, usize::MAX).unwrap());
    assert_eq!(few, text.contains('≤'), "{text}");
    assert!(!text.contains("≈n/a"), "{text}");
}
