//! Losses in a recording: effects of LOST, LOST_SAMPLES and THROTTLE records, and of the recorder's own count, on the report in all forms and on
//! comparisons. The expected numbers are those in the added records, and the generator's count of samples.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_format::bprec::state::{EventLoss, Loss, State};
use bprec_format::records::write_record;
use bprec_format::{
    Endian, File, FileAttr, FileLayout, RecordType, SampleId, SampleLayout, event_type, misc, software,
};
use bprec_generate::{Made, Shape, generate_bytes};
use bprec_report::model::{DiffMetric, EventReport, Report};
use bprec_report::{DiffOptions, Document, Input, Options, by_prog, diff};
use serde_json::Value;

/// Ids of a second event, which has one sample.
const FAULTS: [u64; 2] = [9_000, 9_001];
/// Name of the event, with its modifiers: host and guest.
const FAULTS_NAME: &str = "page-faults:HG";
/// `PERF_COUNT_SW_PAGE_FAULTS`.
const PAGE_FAULTS: u64 = 2;

/// Record or state that the test appends to a recording.
#[derive(Clone, Copy)]
enum Told<'a> {
    /// LOST: number of lost records, which may be of any event.
    Records(u64),
    /// LOST_SAMPLES: event id and number of lost samples.
    Samples(u64, u64),
    /// LOST_SAMPLES for samples dropped by a BPF filter: event id and number of samples.
    Filtered(u64, u64),
    /// THROTTLE of the event with this id.
    Throttled(u64),
    /// Lost samples as counted by the recorder: event id, CPU and count.
    Counted(&'a [(u64, i32, u64)]),
    /// Statement of the recorder that the kernel does not count losses.
    NotCounted,
}

/// A generated recording with a second event, and with these records appended.
struct Recording {
    input: Input,
    made: Made,
}

/// Id of the sampling event on its first CPU.
fn clock(events: &[FileAttr]) -> u64 {
    events[0].ids[0]
}

/// An additional event, with one id for each of two CPUs.
struct Extra {
    config: u64,
    ids: [u64; 2],
    has_sample: bool,
}

fn recording(told: &dyn Fn(u64) -> Vec<Told<'static>>) -> Recording {
    recording_of(&[Extra { config: PAGE_FAULTS, ids: FAULTS, has_sample: true }], told)
}

fn recording_of(extras: &[Extra], told: &dyn Fn(u64) -> Vec<Told<'static>>) -> Recording {
    let (bytes, made) = generate_bytes(&Shape { record_bytes: 1 << 20, ..Shape::default() }).unwrap();
    let parsed = File::parse(&bytes).unwrap();
    let mut events = parsed.attrs().to_vec();
    for extra in extras {
        let mut event = events[0].clone();
        (event.attr.kind, event.attr.config, event.ids) = (event_type::SOFTWARE, extra.config, extra.ids.to_vec());
        events.push(event);
    }
    let section = parsed.data();
    let mut data = bytes[section.offset as usize..][..section.size as usize].to_vec();
    let first = parsed
        .records()
        .map(Result::unwrap)
        .find(|record| record.kind == RecordType::SAMPLE && record.misc & misc::CPUMODE_MASK == misc::USER);
    for extra in extras.iter().filter(|extra| extra.has_sample) {
        let mut sample = first.as_ref().unwrap().bytes.to_vec();
        sample[8..16].copy_from_slice(&extra.ids[0].to_le_bytes());
        data.extend(sample);
    }
    told(clock(&events)).into_iter().for_each(|told| append(told, &events, &mut data));

    let mut out = Vec::new();
    let layout = FileLayout::begin(&events, Endian::Little, &mut out);
    out.extend_from_slice(&data);
    let features: Vec<(u8, Vec<u8>)> =
        parsed.features().iter().map(|(bit, _)| (*bit, parsed.feature(*bit).unwrap().0.to_vec())).collect();
    layout.features(data.len() as u64, &features, &mut out);
    let bits: Vec<u8> = features.iter().map(|(bit, _)| *bit).collect();
    out[..104].copy_from_slice(&layout.header(data.len() as u64, &bits));
    Recording { input: Input::from_bytes("generated", out), made }
}

fn append(told: Told<'_>, events: &[FileAttr], data: &mut Vec<u8>) {
    let layout = SampleLayout::new(&events[0].attr, Endian::Little);
    let mut record = |kind, misc, id, words: &[u64]| {
        let id = SampleId { id: Some(id), ..SampleId::default() };
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        write_record(data, kind, misc, &layout, &id, |w| _ = w.bytes(&body)).unwrap();
    };
    let loss = match told {
        Told::Records(lost) => return record(RecordType::LOST, 0, clock(events), &[clock(events), lost]),
        Told::Samples(id, lost) => return record(RecordType::LOST_SAMPLES, 0, id, &[lost]),
        Told::Filtered(id, lost) => return record(RecordType::LOST_SAMPLES, misc::LOST_SAMPLES_BPF, id, &[lost]),
        Told::Throttled(id) => return record(RecordType::THROTTLE, 0, id, &[0, id, id]),
        Told::Counted(lost) => {
            let event =
                |(event_id, cpu, lost): &(u64, i32, u64)| EventLoss { event_id: *event_id, cpu: *cpu, lost: *lost };
            Loss { events: lost.iter().map(event).collect(), not_counted: false }
        }
        Told::NotCounted => Loss { events: Vec::new(), not_counted: true },
    };
    let is_state = |event: &&FileAttr| event.attr.config == software::BPF_OUTPUT;
    let state = events.iter().find(is_state).unwrap();
    let mut payload = Vec::new();
    State::Loss(loss).encode(&mut payload, Endian::Little);
    let raw_bytes = (payload.len() + 4).next_multiple_of(8) - 4;
    let layout = SampleLayout::new(&state.attr, Endian::Little);
    write_record(data, RecordType::SAMPLE, 0, &layout, &SampleId::default(), |w| {
        w.u64(state.ids[0]).u64(0).u32(1).u32(1).u64(0).u32(0).u32(0).u64(1);
        w.u32(raw_bytes as u32).bytes(&payload).zeros(raw_bytes - payload.len());
    })
    .unwrap();
}

/// The report in all of its forms.
struct Forms {
    report: Report,
    table: String,
    json: Value,
    csv: String,
}

fn forms(recording: &Recording) -> Forms {
    let report = by_prog(&recording.input, &Options::default()).unwrap();
    let [mut table, mut json, mut csv] = [const { Vec::new() }; 3];
    report.write_table(&mut table, 160).unwrap();
    report.write_json(&mut json).unwrap();
    report.write_csv(&mut csv).unwrap();
    let json = serde_json::from_slice(&json).unwrap();
    Forms { report, table: String::from_utf8(table).unwrap(), json, csv: String::from_utf8(csv).unwrap() }
}

impl Forms {
    fn event(&self, name: &str) -> &EventReport {
        self.report.events.iter().find(|event| event.name == name).unwrap_or_else(|| {
            panic!("{name} is not one of {:?}", self.report.events.iter().map(|event| &event.name).collect::<Vec<_>>())
        })
    }

    /// Asserts that every form shows this number of lost samples of an event; `None` means unknown.
    fn says_lost(&self, name: &str, lost: Option<u64>) {
        assert_eq!(self.event(name).lost.value().copied(), lost, "{name}");
        let of_json = self.json["events"].as_array().unwrap().iter().find(|event| event["name"] == name).unwrap();
        assert_eq!(of_json["lost"], serde_json::to_value(lost).unwrap(), "{name}");
        let column = self.csv.lines().next().unwrap().split(',').position(|name| name == "samples").unwrap();
        let line = self.csv.lines().find(|line| line.starts_with(&format!("{name},lost,")));
        let of_csv = line.map(|line| line.split(',').nth(column).unwrap().parse::<u64>().unwrap());
        assert_eq!(of_csv, lost, "{name}:\n{}", self.csv);
    }

    /// Asserts that a line of the table with ` lost` contains this text.
    fn opens_with(&self, text: &str) {
        let lines = self.table.lines().filter(|line| line.contains(" lost"));
        assert!(lines.clone().any(|line| line.contains(text)), "{text} is not in {:?}", lines.collect::<Vec<_>>());
    }
}

#[test]
fn without_such_records_nothing_is_lost() {
    let forms = forms(&recording(&|_| Vec::new()));
    forms.says_lost("cpu-clock", Some(0));
    forms.says_lost(FAULTS_NAME, Some(0));
    forms.opens_with("· 0 lost");
    assert_eq!(forms.json["recording"]["lost_records"], 0);
}

#[test]
fn lost_samples_add_up_for_their_event() {
    use Told::{Filtered, Samples, Throttled};
    let told = |clock| {
        let faults = FAULTS[1];
        vec![Samples(clock, 3), Samples(faults, 5), Samples(clock, 1_400), Filtered(clock, 6), Throttled(clock)]
    };
    let recording = recording(&told);
    let forms = forms(&recording);
    forms.says_lost("cpu-clock", Some(1_403));
    forms.says_lost(FAULTS_NAME, Some(5));
    forms.opens_with("· 1,403 lost · 6 dropped by a filter · throttled 1 time");
    let clock = forms.event("cpu-clock");
    assert_eq!((clock.filtered, clock.throttled), (6, 1));
    assert_eq!((forms.event(FAULTS_NAME).filtered, forms.event(FAULTS_NAME).throttled), (0, 0));
    // Losses do not reduce the number of existing samples.
    assert_eq!((clock.samples.samples, clock.samples.weight), (recording.made.samples, recording.made.weight));
}

/// Events without samples: config, ids, name and number of lost samples. They count page faults, context switches, migrations, minor faults and major
/// faults.
const ALL_LOST: [(u64, [u64; 2], &str, u64); 5] = [
    (PAGE_FAULTS, FAULTS, FAULTS_NAME, 5),
    (3, [9_010, 9_011], "context-switches:HG", 1_700),
    (4, [9_020, 9_021], "cpu-migrations:HG", 0),
    (5, [9_030, 9_031], "minor-faults:HG", 11),
    (6, [9_040, 9_041], "major-faults:HG", 12),
];

/// Each event has a table, which shows its losses.
#[test]
fn an_event_that_lost_all_of_its_samples_is_reported() {
    for events in [1, ALL_LOST.len()] {
        let all_lost = &ALL_LOST[..events];
        let extras = all_lost.iter().map(|(config, ids, ..)| Extra { config: *config, ids: *ids, has_sample: false });
        let told = |_| {
            let lost = ALL_LOST.iter().filter(|(.., lost)| *lost > 0);
            lost.take(events).map(|(_, ids, _, lost)| Told::Samples(ids[1], *lost)).collect()
        };
        let forms = forms(&recording_of(&extras.collect::<Vec<_>>(), &told));
        forms.says_lost("cpu-clock", Some(0));
        for (_, _, name, lost) in all_lost {
            forms.says_lost(name, Some(*lost));
            assert_eq!(forms.event(name).samples.samples, 0, "{name}");
            // The lines of a note are one text; the text about an event ends before the name of the next event.
            let words: Vec<&str> = forms.table.split_whitespace().filter(|word| *word != "#").collect();
            let text = words.join(" ");
            let said = text.split_once(name).unwrap_or_else(|| panic!("{name} is not in\n{}", forms.table)).1;
            let ends = ALL_LOST.iter().filter_map(|(_, _, other, _)| said.find(other));
            let said = &said[..ends.min().unwrap_or(said.len())];
            let expected = match lost {
                0 => "0 samples".to_owned(),
                1_000.. => "1,700 lost".to_owned(),
                lost => format!("{lost} lost"),
            };
            assert!(said.contains(&expected), "{name}, {expected}:\n{}", forms.table);
        }
    }
}

/// The side-band event has no samples, but its lost records are noted: names of tasks and programs may be missing.
#[test]
fn lost_records_of_the_side_band_are_noted() {
    let side_band = Extra { config: software::DUMMY, ids: [9_050, 9_051], has_sample: false };
    let forms = forms(&recording_of(&[side_band], &|_| vec![Told::Samples(9_050, 3), Told::Samples(9_051, 4)]));
    forms.says_lost("cpu-clock", Some(0));
    let notes = forms.json["notes"].as_array().unwrap();
    let note = notes.iter().find(|note| note["code"] == "side_band_lost").unwrap_or_else(|| panic!("{notes:?}"));
    assert_eq!((note["event"].as_str(), note["records"].as_u64()), (Some("dummy:HG"), Some(7)));
    assert!(forms.table.contains("! dummy:HG: 7 records lost"), "{}", forms.table);
}

/// LOST_SAMPLES without an event id, or with an unknown id, may concern any event, like LOST.
#[test]
fn lost_samples_of_no_known_event_are_of_any_event() {
    for id in [0, 4_711] {
        let forms = forms(&recording(&|_| match id {
            0 => vec![Told::Samples(0, 40)],
            _ => vec![Told::Samples(4_711, 40)],
        }));
        forms.says_lost("cpu-clock", None);
        forms.says_lost(FAULTS_NAME, None);
        forms.opens_with("· up to 40 lost");
    }
}

/// LOST does not name the event of the lost records, so they may be of any event.
#[test]
fn lost_records_are_of_any_event() {
    let forms = forms(&recording(&|_| vec![Told::Records(9), Told::Records(1_000)]));
    forms.says_lost("cpu-clock", None);
    forms.says_lost(FAULTS_NAME, None);
    forms.opens_with("· up to 1,009 lost");
    assert_eq!(forms.json["recording"]["lost_records"], 1_009);
}

#[test]
fn of_an_event_without_lost_samples_it_stays_unknown() {
    let forms = forms(&recording(&|clock| vec![Told::Records(9), Told::Samples(clock, 4)]));
    forms.says_lost("cpu-clock", Some(4));
    forms.says_lost(FAULTS_NAME, None);
}

/// The recorder reads the kernel's own count of each event, which includes the losses of LOST and LOST_SAMPLES.
#[test]
fn what_the_recorder_counted_stands() {
    const COUNTED: &[(u64, i32, u64)] = &[(FAULTS[0], 0, 7), (FAULTS[1], 1, 70)];
    let forms = forms(&recording(&|clock| vec![Told::Records(9), Told::Samples(clock, 4), Told::Counted(COUNTED)]));
    forms.says_lost("cpu-clock", Some(0));
    forms.says_lost(FAULTS_NAME, Some(77));
    forms.opens_with("· 0 lost");
}

#[test]
fn where_the_kernel_does_not_count_the_records_stand() {
    let forms = forms(&recording(&|clock| vec![Told::Records(9), Told::Samples(clock, 4), Told::NotCounted]));
    forms.says_lost("cpu-clock", Some(4));
    forms.says_lost(FAULTS_NAME, None);
    assert_eq!(forms.json["recording"]["loss_not_counted"], true);
}

/// Sums stop at the largest 64-bit number.
#[test]
fn counts_do_not_wrap() {
    let told = |clock| {
        vec![Told::Samples(clock, u64::MAX), Told::Samples(clock, 2), Told::Records(u64::MAX), Told::Records(2)]
    };
    let forms = forms(&recording(&told));
    forms.says_lost("cpu-clock", Some(u64::MAX));
    assert_eq!(forms.json["recording"]["lost_records"], u64::MAX);
}

/// A comparison warns of losses, and a condition on losses uses their share of all samples.
#[test]
fn a_comparison_knows_the_share_that_is_lost() {
    const LOST: u64 = 1_403;
    let whole = recording(&|_| Vec::new());
    let part = recording(&|clock| vec![Told::Samples(clock, LOST)]);
    let percent = LOST as f64 * 100.0 / (part.made.samples + LOST) as f64;
    for (bound, is_broken) in [(percent * 0.99, true), (percent * 1.01, false)] {
        let condition = format!("total lost > {bound:.3}%").parse().unwrap();
        let options = DiffOptions { conditions: vec![condition], ..DiffOptions::default() };
        let report = diff(std::slice::from_ref(&whole.input), std::slice::from_ref(&part.input), &options).unwrap();
        assert_eq!(report.failed(), usize::from(is_broken), "{bound} of {percent}: {:?}", report.gate);
        let mut table = Vec::new();
        report.write_table(&mut table, 160).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("1,403 samples lost on the new side"), "{table}");
        let lost = report
            .total
            .iter()
            .find(|it| it.metric == DiffMetric::Lost && it.event.as_deref() == Some("cpu-clock"))
            .unwrap();
        assert!(lost.base.estimate.value().is_some_and(|base| base.value.abs() < 1e-9), "{lost:?}");
        assert!(lost.new.estimate.value().is_some_and(|new| (new.value - percent).abs() < 1e-9), "{lost:?}");
    }
}
