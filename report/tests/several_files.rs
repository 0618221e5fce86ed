//! Several files are one recording: committed recordings, cut into files like those of `--switch-output`, give the same numbers as the whole.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "support/states.rs"]
mod states;

use bprec_format::bprec::state::{self, Cost, Loss, ProgramRuns, RunStats, State};
use bprec_format::feature::{ClockData, Feature, SampleTime, SectionContent as _, Text};
use bprec_format::records::{BpfEventKind, Payload, write_record};
use bprec_format::{Endian, Events, File, RECORD_HEADER_BYTES, Record, RecordType, SampleId, Writer};
use bprec_report::{
    AnnotateOptions, Document, ExportFormat, Input, MapsForm, MapsOptions, Options, Payer, Session, TimeRange,
    WallRange, counters, maps, recordings_of,
};
use serde_json::Value;
use states::{append, file, is_state, open};
use std::path::Path;

const RECORDINGS: [&str; 9] = [
    "linux-6.1/ratio.data",
    "linux-6.1/loaded-during.data",
    "linux-6.12-arm64/exact.data",
    "linux-6.18/busy.data",
    "linux-7.2/churn.data",
    "linux-7.2/everything.data",
    "linux-7.2/switches.data",
    "linux-7.2/tailcalls.data",
    "perf-6.12-linux-7.2/twins.data",
];

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(name)).unwrap()
}

/// A record with its time (0 if it has none) and its state.
struct Timed<'a> {
    record: Record<'a>,
    event: usize,
    id: SampleId,
    time_ns: u64,
    state: Option<State>,
}

fn timed<'a>(record: Record<'a>, events: &Events, states: usize) -> Timed<'a> {
    let event = events.index_of(&record).unwrap_or(0);
    let layout = &events.all()[event].layout;
    let (mut id, mut state) = (SampleId::default(), None);
    let time_ns = if record.kind == RecordType::SAMPLE {
        let sample = layout.sample(record.body(), record.offset + RECORD_HEADER_BYTES as u64).unwrap();
        let raw = sample.raw().unwrap();
        state = (event == states).then(|| State::decode(raw.unwrap(), record.offset, events.endian()).unwrap());
        sample.time_ns().unwrap_or(0)
    } else if record.kind.is_kernel() {
        id = Payload::decode(&record, layout).unwrap().1;
        id.time_ns.unwrap_or(0)
    } else {
        0
    };
    let time_ns = match &state {
        Some(State::RunStats(it)) => it.time_ns,
        Some(State::ProgramCounters(it)) => it.time_ns,
        Some(State::SharedCounters(it)) => it.time_ns,
        _ => time_ns,
    };
    Timed { record, event, id, time_ns, state }
}

/// Appends the records of the programs and the code that exist at `before_ns`: registered earlier, and not unregistered by then.
fn listed(all: &[Timed<'_>], events: &Events, before_ns: u64, data: &mut Vec<u8>) {
    let mut there: Vec<(u64, bool, Vec<u8>)> = Vec::new();
    let mut code: Vec<&Timed<'_>> = all.iter().filter(|it| it.time_ns < before_ns).collect();
    code.sort_by_key(|it| it.time_ns);
    for it in code {
        let layout = &events.all()[it.event].layout;
        let mut bytes = Vec::new();
        let id = SampleId { time_ns: Some(0), ..it.id };
        let mut list =
            |kind, write: &dyn Fn(&mut Writer<'_>)| write_record(&mut bytes, kind, 0, layout, &id, write).unwrap();
        match it.record.kind {
            RecordType::KSYMBOL => {
                let (Payload::Ksymbol(symbol), _) = Payload::decode(&it.record, layout).unwrap() else {
                    unreachable!()
                };
                there.retain(|(key, is_code, _)| !is_code || *key != symbol.addr);
                if !symbol.is_unregister() {
                    list(RecordType::KSYMBOL, &|w| symbol.encode(w));
                    there.push((symbol.addr, true, bytes));
                }
            }
            RecordType::BPF_EVENT => {
                let (Payload::BpfEvent(event), _) = Payload::decode(&it.record, layout).unwrap() else {
                    unreachable!()
                };
                there.retain(|(key, is_code, _)| *is_code || *key != u64::from(event.id));
                if event.kind != BpfEventKind::PROG_UNLOAD {
                    list(RecordType::BPF_EVENT, &|w| event.encode(w));
                    there.push((event.id.into(), false, bytes));
                }
            }
            _ => {}
        }
    }
    there.iter().for_each(|(.., bytes)| data.extend_from_slice(bytes));
}

/// Counts at a moment between two readings, interpolated linearly.
fn reading_at(all: &[Timed<'_>], time_ns: u64) -> Option<State> {
    let readings = || {
        all.iter().filter_map(|it| match &it.state {
            Some(State::RunStats(stats)) => Some(stats),
            _ => None,
        })
    };
    let before = readings().filter(|it| it.time_ns <= time_ns).max_by_key(|it| it.time_ns)?;
    let behind = readings().filter(|it| it.time_ns > time_ns).min_by_key(|it| it.time_ns)?;
    let part = (time_ns - before.time_ns) as f64 / (behind.time_ns - before.time_ns) as f64;
    let between = |from: u64, to: u64| from + ((to - from) as f64 * part) as u64;
    let programs = before.programs.iter().filter_map(|from| {
        let to = behind.programs.iter().find(|to| (to.id, to.load_time_ns) == (from.id, from.load_time_ns))?;
        let (run_cnt, run_time_ns) = (between(from.run_cnt, to.run_cnt), between(from.run_time_ns, to.run_time_ns));
        Some(ProgramRuns { run_cnt, run_time_ns, ..*from })
    });
    let optional = |from: Option<u64>, to: Option<u64>| from.zip(to).map(|(from, to)| between(from, to));
    Some(State::RunStats(RunStats {
        time_ns,
        programs: programs.collect(),
        on_ns: optional(before.on_ns, behind.on_ns),
        others_ns: optional(before.others_ns, behind.others_ns),
    }))
}

/// Cuts a recording into files at these percentages of its time, like the recorder with `--switch-output`. Leaves out `gap` per cent of the time
/// before each cut. Run counts are read at both ends of the gap.
fn cut(bytes: &[u8], cuts: &[u64], gap: u64) -> Vec<Vec<u8>> {
    let parsed = File::parse(bytes).unwrap();
    let endian = parsed.endian();
    let events = Events::new(parsed.attrs(), endian).unwrap();
    let states = parsed.attrs().iter().position(is_state).unwrap_or(usize::MAX);
    let all: Vec<Timed<'_>> = parsed.records().map(|record| timed(record.unwrap(), &events, states)).collect();
    let is_sample = |it: &&Timed<'_>| it.record.kind == RecordType::SAMPLE && it.event != states && it.time_ns > 0;
    let samples = || all.iter().filter(is_sample);
    let (first, last) = (samples().map(|it| it.time_ns).min().unwrap(), samples().map(|it| it.time_ns).max().unwrap());
    let session = all.iter().find_map(|it| match &it.state {
        Some(State::Session(session)) => Some(session.clone()),
        _ => None,
    });
    let ended_ns = all.iter().find_map(|it| match &it.state {
        Some(State::Cost(cost)) => Some(cost.end_ns),
        _ => None,
    });
    let at = |percent: u64| first + (last - first) * percent / 100;
    let starts: Vec<u64> = std::iter::once(0).chain(cuts.iter().map(|cut| at(*cut))).collect();
    let ends = cuts.iter().map(|cut| at(cut - gap)).chain([u64::MAX]);
    let part = |(part, (start_ns, end_ns)): (usize, (&u64, u64))| {
        let is_last = end_ns == u64::MAX;
        let mut data = Vec::new();
        if *start_ns > 0 {
            listed(&all, &events, *start_ns, &mut data);
        }
        if let Some(session) = session.clone().filter(|_| *start_ns > 0) {
            let realtime_ns = session.realtime_ns + (start_ns - session.start_ns);
            let part = session.part + part as u32;
            let session = state::Session { start_ns: *start_ns, realtime_ns, part, ..session };
            append(&[State::Session(session)], *start_ns, &parsed.attrs()[states], endian, &mut data);
            let reading = reading_at(&all, *start_ns).filter(|_| gap > 0);
            append(reading.as_slice(), *start_ns, &parsed.attrs()[states], endian, &mut data);
        }
        let mut span: Option<(u64, u64)> = None;
        for it in &all {
            let is_inside = (*start_ns..end_ns).contains(&it.time_ns);
            let is_kept = match &it.state {
                Some(State::Session(_)) => *start_ns == 0,
                Some(State::Cost(_) | State::Loss(_)) => is_last,
                // The recorder writes the names that it looked up at the end of each file, so each part gets them.
                Some(state @ (State::KernelSymbols(_) | State::FileFunctions(_))) => {
                    append(std::slice::from_ref(state), last.min(end_ns), &parsed.attrs()[states], endian, &mut data);
                    false
                }
                Some(
                    state @ (State::Program(_)
                    | State::Map(_)
                    | State::Attachment(_)
                    | State::CounterEvents(_)
                    | State::ProgArray(_)),
                ) if it.time_ns < *start_ns => {
                    append(std::slice::from_ref(state), *start_ns, &parsed.attrs()[states], endian, &mut data);
                    false
                }
                _ => is_inside,
            };
            if !is_kept {
                continue;
            }
            data.extend_from_slice(it.record.bytes);
            data.extend_from_slice(it.record.outside);
            if it.record.kind == RecordType::SAMPLE && it.event != states && is_inside {
                let span = span.get_or_insert((it.time_ns, it.time_ns));
                *span = (span.0.min(it.time_ns), span.1.max(it.time_ns));
            }
        }
        if ended_ns.is_some() && !is_last {
            let cost =
                Cost { end_ns, longest_gap_ns: Some(0), statistics_ns: Some(0), unheld: Some(0), ..Cost::default() };
            let ending = [State::Cost(cost), State::Loss(Loss::default())];
            append(&ending, end_ns, &parsed.attrs()[states], endian, &mut data);
            let reading = reading_at(&all, end_ns).filter(|_| gap > 0);
            append(reading.as_slice(), end_ns, &parsed.attrs()[states], endian, &mut data);
        }
        let (first_ns, last_ns) = span.unwrap_or_default();
        with_sample_time(&parsed, &data, SampleTime { first_ns, last_ns }, endian)
    };
    starts.iter().zip(ends).enumerate().map(part).collect()
}

fn states_at(parsed: &File<'_>) -> usize {
    parsed.attrs().iter().position(is_state).unwrap_or(0)
}

fn with_sample_time(parsed: &File<'_>, data: &[u8], time: SampleTime, endian: Endian) -> Vec<u8> {
    let mut sample_time = Vec::new();
    time.encode(&mut Writer::new(&mut sample_time, endian));
    let features = parsed.features().iter().map(|(bit, _)| match Feature(*bit) {
        Feature::SAMPLE_TIME => (*bit, sample_time.clone()),
        _ => (*bit, parsed.feature(*bit).unwrap().0.to_vec()),
    });
    file(parsed.attrs(), data, &features.collect::<Vec<_>>(), endian)
}

/// Returns the recording with new bytes in one of its feature sections.
fn with_feature(bytes: &[u8], feature: Feature, section: &[u8]) -> Vec<u8> {
    let parsed = File::parse(bytes).unwrap();
    let features = parsed.features().iter().map(|(bit, _)| match Feature(*bit) {
        it if it == feature => (*bit, section.to_vec()),
        _ => (*bit, parsed.feature(*bit).unwrap().0.to_vec()),
    });
    file(parsed.attrs(), parsed.records().rest(), &features.collect::<Vec<_>>(), parsed.endian())
}

fn inputs(parts: Vec<Vec<u8>>) -> Vec<Input> {
    (0..).zip(parts).map(|(at, part)| Input::from_bytes(format!("part-{at}.data"), part)).collect()
}

/// Outputs that are made of a recording, by name.
fn outputs(input: &Input) -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    let mut put = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        outputs.push((name.to_owned(), String::from_utf8_lossy(&out).into_owned()));
    };
    macro_rules! put {
        ($name:expr, $report:expr) => {
            let report = $report.unwrap();
            put(&format!("{} table", $name), &|out| report.write_table(out, 200).unwrap());
            put(&format!("{} CSV", $name), &|out| report.write_csv(out).unwrap());
            put(&format!("{} JSON", $name), &|out| {
                let mut json = Vec::new();
                report.write_json(&mut json).unwrap();
                let mut value: Value = serde_json::from_slice(&json).unwrap();
                // In the JSON, only the member `files` depends on the number of files.
                value.get_mut("recording").and_then(Value::as_object_mut).map(|recording| recording.remove("files"));
                serde_json::to_writer_pretty(out, &value).unwrap();
            });
        };
    }
    let session = Session::open(input).unwrap();
    let options = Options { all: true, ..Options::default() };
    put!("programs", session.by_prog(&options));
    for by in ["func", "comm", "pid", "cpu", "cgroup", "container", "helper", "owner", "name", "type", "hook"] {
        put!(by, session.by_prog(&Options { by: Some(by.parse().unwrap()), ..options.clone() }));
    }
    put!("counters", counters(input, &options));
    put!("over time", session.over_time(&options, None));
    put!("lines", session.lines(&options));
    put!("payers", session.payers(&options, &[Payer::Comm, Payer::Cpu]));
    put!("trees", session.trees(&options, 0.0));
    put!("advice", session.advice(&options));
    let query = Options { programs: vec!["*".parse().unwrap()], ..Options::default() };
    put!("annotate", session.annotate(&AnnotateOptions { query, ..AnnotateOptions::default() }));
    for form in MapsForm::ALL {
        put("maps", &|out| {
            maps(input, &MapsOptions { form, ..MapsOptions::default() }, out).unwrap();
        });
    }
    for format in ExportFormat::ALL {
        put(&format!("{format:?}"), &|out| {
            session.export(&Options::default(), format, out).unwrap();
        });
    }
    outputs
}

#[test]
fn several_files_have_the_numbers_of_the_whole() {
    for name in RECORDINGS {
        let whole = bytes(name);
        let expected = outputs(&Input::from_bytes("part-0.data", whole.clone()));
        let mut parts = inputs(cut(&whole, &[30, 55, 80], 0));
        // The order of the files does not matter.
        parts.rotate_left(2);
        let found = outputs(&Input::join(parts).unwrap());
        assert_eq!(found.len(), expected.len());
        for ((view, found), (_, expected)) in found.iter().zip(&expected) {
            let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
            assert!(found == expected, "{view} of {name}: {differs:?}");
        }
    }
}

/// The time between two files does not count as recorded time. The report lists the gap.
#[test]
fn a_gap_between_files_counts_for_nothing() {
    let whole = bytes("linux-6.1/ratio.data");
    let all = Options { all: true, ..Options::default() };
    let of = |input: Input| Session::open(&input).unwrap().by_prog(&all).unwrap();
    let (before, gapped) = (of(open(&whole)), inputs(cut(&whole, &[60], 20)));
    let report = of(Input::join(gapped).unwrap());
    let recorded = |report: &bprec_report::Report| report.recording.elapsed_ns.unwrap() as f64;
    assert!((recorded(&report) / recorded(&before) - 0.8).abs() < 0.02, "{} {}", recorded(&report), recorded(&before));
    let mut compared = 0;
    for program in report.programs.iter() {
        let same = before.programs.iter().find(|it| (it.id, it.load_time_ns) == (program.id, program.load_time_ns));
        let (Some(runs), Some(all)) = (program.runs.value(), same.unwrap().runs.value()) else { continue };
        if all.count > 1000 {
            let part = runs.count as f64 / all.count as f64;
            assert!((0.7..0.9).contains(&part), "{}: {} of {}", program.name, runs.count, all.count);
            compared += 1;
        }
    }
    assert!(compared > 0);
    let mut table = Vec::new();
    report.write_table(&mut table, 200).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("between the files"), "{table}");
    assert_eq!(report.recording.gaps.len(), 1);
}

#[test]
fn files_that_are_not_of_one_recording_are_refused() {
    let whole = bytes("linux-7.2/everything.data");
    let parts = || cut(&whole, &[50], 0);
    let refused = |parts: Vec<Vec<u8>>| {
        let joined = Input::join(inputs(parts));
        joined.and_then(|input| Session::open(&input).map(drop)).unwrap_err().to_string()
    };
    let [first, second]: [Vec<u8>; 2] = parts().try_into().unwrap();
    let twice = refused(vec![first.clone(), second.clone(), first.clone()]);
    assert!(twice.contains("part-0.data and part-2.data: the same recording twice"), "{twice}");
    let inside = refused(vec![whole.clone(), second.clone()]);
    assert!(inside.contains("part-0.data and part-1.data: both have samples of the same "), "{inside}");
    // Clocks start at the boot, so files of several boots can have the same times.
    let parsed = File::parse(&second).unwrap();
    let section = parsed.feature(Feature::CLOCK_DATA.0).unwrap();
    let mut clock = ClockData::parse(section.0, section.1, parsed.endian()).unwrap().value;
    clock.wall_clock_ns += 3_600_000_000_000;
    let mut rebooted = Vec::new();
    clock.encode(&mut Writer::new(&mut rebooted, Endian::Little));
    let boot = refused(vec![whole.clone(), with_feature(&second, Feature::CLOCK_DATA, &rebooted)]);
    assert!(boot.contains("part-0.data and part-1.data: recorded after different boots"), "{boot}");
    let mut host = Vec::new();
    Text(b"other").encode(&mut Writer::new(&mut host, Endian::Little));
    let host = refused(vec![first.clone(), with_feature(&second, Feature::HOSTNAME, &host)]);
    assert!(host.contains("part-0.data and part-1.data: recorded on different machines or boots: host"), "{host}");

    let with_session = |bytes: &[u8], change: &dyn Fn(&mut state::Session)| {
        let parsed = File::parse(bytes).unwrap();
        let events = Events::new(parsed.attrs(), parsed.endian()).unwrap();
        let states = states_at(&parsed);
        let mut data = Vec::new();
        for record in parsed.records().map(Result::unwrap) {
            match timed(record, &events, states).state {
                Some(State::Session(mut session)) => {
                    let start_ns = session.start_ns;
                    change(&mut session);
                    let attr = &parsed.attrs()[states];
                    append(&[State::Session(session)], start_ns, attr, parsed.endian(), &mut data);
                }
                _ => data.extend_from_slice(record.bytes),
            }
        }
        let features = parsed.features().iter().map(|(bit, _)| (*bit, parsed.feature(*bit).unwrap().0.to_vec()));
        file(parsed.attrs(), &data, &features.collect::<Vec<_>>(), parsed.endian())
    };
    const ONE_HOUR_NS: u64 = 3_600_000_000_000;
    let later = with_session(&second, &|session| session.realtime_ns += ONE_HOUR_NS);
    let boot = refused(vec![first.clone(), later]);
    assert!(boot.contains("part-0.data and part-1.data: recorded after different boots"), "{boot}");

    // The wall clock, which anyone may set, does not count if both files have the ids of their boots.
    let first = with_session(&first, &|session| session.boot_id = "a".repeat(32));
    let other = with_session(&second, &|session| session.boot_id = "b".repeat(32));
    let boot = refused(vec![first.clone(), other]);
    assert!(boot.contains("part-0.data and part-1.data: recorded after different boots"), "{boot}");
    let set = with_session(&second, &|session| {
        session.boot_id = "a".repeat(32);
        session.realtime_ns += ONE_HOUR_NS;
    });
    // Redacted files have equal ids, whatever their boots were.
    let redacted = [&first, &set].map(|file| with_session(file, &|session| session.boot_id = "boot-1".to_owned()));
    let boot = refused(redacted.to_vec());
    assert!(boot.contains("part-0.data and part-1.data: recorded after different boots"), "{boot}");
    let joined = Input::join(inputs(vec![first, set])).unwrap();
    let report = Session::open(&joined).unwrap().by_prog(&Options::default()).unwrap();
    assert_eq!(report.recording.boot_id, Some("a".repeat(32)));
}

#[test]
fn a_part_of_the_wall_clock_is_that_part_of_the_recording() {
    let whole = bytes("linux-6.1/ratio.data");
    let parsed = File::parse(&whole).unwrap();
    let section = parsed.feature(Feature::CLOCK_DATA.0).unwrap();
    let clock = ClockData::parse(section.0, section.1, parsed.endian()).unwrap().value;
    let section = parsed.feature(Feature::SAMPLE_TIME.0).unwrap();
    let span = SampleTime::parse(section.0, section.1, parsed.endian()).unwrap().value;
    let at = |percent: u64| span.first_ns + (span.last_ns - span.first_ns) * percent / 100;
    let wall = |time_ns: u64| bprec_report::WallTime::Unix(clock.wall_clock_ns - clock.clockid_ns + time_ns);
    let parts = || inputs(cut(&whole, &[25, 50, 75], 0));
    let within = |since: Option<u64>, until: Option<u64>| {
        let range = WallRange { since: since.map(wall), until: until.map(wall) };
        Input::within(parts(), &range)
    };
    let json = |input: &Input, time: TimeRange| {
        let options = Options { time, ..Options::default() };
        let report = Session::open(input).unwrap().by_prog(&options).unwrap();
        report.events.iter().map(|event| (event.samples, event.total.count)).collect::<Vec<_>>()
    };
    let whole_input = Input::from_bytes("whole", whole.clone());
    for (from, to, files) in [(30, 60, 2), (55, 70, 1), (10, 90, 4)] {
        let (kept, time) = within(Some(at(from)), Some(at(to))).unwrap();
        assert_eq!(kept.len(), files, "{from} to {to}");
        let found = json(&Input::join(kept).unwrap(), time);
        assert_eq!(found, json(&whole_input, TimeRange::Absolute(Some(at(from)), Some(at(to)))), "{from} to {to}");
    }
    let (kept, time) = within(None, None).unwrap();
    assert_eq!((kept.len(), time), (4, TimeRange::All));
    let error = within(Some(span.last_ns + 1_000_000_000), None).unwrap_err().to_string();
    assert!(
        error.contains("no file has samples in this range; the samples are from") && error.contains("UTC"),
        "{error}"
    );
}

#[test]
fn a_directory_of_files_is_one_recording() {
    let dir = tempfile::tempdir().unwrap();
    for (at, part) in cut(&bytes("linux-6.1/ratio.data"), &[50], 0).iter().enumerate() {
        std::fs::write(dir.path().join(format!("perf.data.{at}")), part).unwrap();
    }
    std::fs::write(dir.path().join("notes.txt"), "no recording").unwrap();
    let found = recordings_of(dir.path()).unwrap();
    assert_eq!(found, [dir.path().join("perf.data.0"), dir.path().join("perf.data.1")]);
    let empty = tempfile::tempdir().unwrap();
    assert!(recordings_of(empty.path()).unwrap_err().to_string().contains("without recordings"));
}
