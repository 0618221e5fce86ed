//! Recordings with many pairs: of events and programs, programs and maps, records and events. Reading takes memory and time in proportion to
//! the size of the recording, not to the number of pairs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

#[path = "support/limits.rs"]
mod limits;

use std::io::sink;

use bprec_format::bpf::prog_info::OLDEST_INFO_LEN;
use bprec_format::feature::Feature;
use bprec_format::records::write_record;
use bprec_format::{
    AttrFlags, Endian, EventAttr, FILE_HEADER_BYTES, FileAttr, FileLayout, PIPE_HEADER_BYTES, RecordType, SampleId,
    SampleLayout, SampleType, Writer, event_type, misc, pipe_header,
};
use bprec_report::model::{DiffNote, Note};
use bprec_report::{
    By, DiffOptions, Document, ExportFormat, Group, Input, MapsForm, MapsOptions, Options, ScriptOptions, Session,
    Source, by_prog, diff, maps, script,
};
use limits::within_limits;

const PROGRAM: u64 = 0xffff_ffff_c000_1000;
const FIRST_ID: u64 = 100;

fn attr(config: u64) -> EventAttr {
    let sample_type = [SampleType::IP, SampleType::TID, SampleType::TIME];
    EventAttr {
        kind: event_type::RAW,
        config,
        sample_period: 1,
        sample_type: sample_type.into_iter().fold(SampleType::IDENTIFIER, SampleType::with),
        flags: AttrFlags::SAMPLE_ID_ALL.with(AttrFlags::EXCLUDE_GUEST),
        ..EventAttr::default()
    }
}

/// Builds a `bpf_prog_info` entry with an id, a load time and maps.
fn info(id: u32, maps: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes, Endian::Little);
    w.u32(OLDEST_INFO_LEN as u32).u32(4 * maps.len() as u32).u64(u64::from(!maps.is_empty()) << 2);
    w.u32(5).u32(id).u64(id.into()).u64(0).u64(0).u64(0).u64(1).u32(0).u32(maps.len() as u32).u64(0);
    w.bytes(&[0; OLDEST_INFO_LEN - 64]);
    maps.iter().for_each(|map| {
        w.u32(*map);
    });
    bytes
}

/// Builds a recording with `samples` samples in the first program, spread over `events` events. `infos` are the entries of the section
/// BPF_PROG_INFO; `loaded_ns` returns the load time of the program of an entry, `None` for no load record.
fn recording(events: u64, samples: u64, infos: &[Vec<u8>], loaded_ns: impl Fn(usize) -> Option<u64>) -> Vec<u8> {
    let attrs: Vec<FileAttr> =
        (FIRST_ID..).take(events as usize).map(|id| FileAttr { attr: attr(id), ids: vec![id] }).collect();
    let layout = SampleLayout::new(&attrs[0].attr, Endian::Little);
    let mut bytes = Vec::new();
    let file = FileLayout::begin(&attrs, Endian::Little, &mut bytes);
    let start = bytes.len();
    // A KSYMBOL record belongs to the program whose BPF_EVENT record follows in the same task.
    let at = |time_ns, task| SampleId {
        pid_tid: Some((task, task)),
        id: Some(FIRST_ID),
        time_ns: Some(time_ns),
        ..SampleId::default()
    };
    write_record(&mut bytes, RecordType::KSYMBOL, 0, &layout, &at(0, 1), |w| {
        w.u64(PROGRAM).u32(64).u16(1).u16(0).bytes(b"bpf_prog_0123456789abcdef_demo\0\0");
    })
    .unwrap();
    for (number, time_ns) in (0..infos.len()).filter_map(|at| Some((at, loaded_ns(at)?))) {
        write_record(&mut bytes, RecordType::BPF_EVENT, 0, &layout, &at(time_ns, 2), |w| {
            w.u16(1).u16(0).u32(number as u32 + 1).u64(number as u64);
        })
        .unwrap();
    }
    for number in 0..samples {
        write_record(&mut bytes, RecordType::SAMPLE, misc::KERNEL, &layout, &SampleId::default(), |w| {
            w.u64(FIRST_ID + number % events).u64(PROGRAM + 4).u32(1).u32(1).u64(1000 + number);
        })
        .unwrap();
    }
    let data_bytes = (bytes.len() - start) as u64;
    let mut section = Vec::new();
    Writer::new(&mut section, Endian::Little).u32(infos.len() as u32);
    infos.iter().for_each(|info| section.extend_from_slice(info));
    let features = [(Feature::BPF_PROG_INFO.0, section)];
    file.features(data_bytes, &features, &mut bytes);
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&file.header(data_bytes, &[Feature::BPF_PROG_INFO.0]));
    bytes
}

fn infos(programs: u32) -> Vec<Vec<u8>> {
    (1..=programs).map(|id| info(id, &[])).collect()
}

fn json(report: &impl Document) -> serde_json::Value {
    let mut text = Vec::new();
    report.write_json(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// All tests are in one function, so that none runs in parallel: memory and CPU time are measured for the whole process.
#[test]
fn pairs_take_no_memory_and_no_time() {
    events_and_programs();
    programs_that_ran_and_have_no_samples();
    entries_without_an_info();
    programs_and_maps();
    attrs_between_records();
}

/// Recording in which one program has samples, and nothing is known about the others.
fn events_and_programs() {
    let bytes = recording(2000, 4000, &infos(2000), |_| None);
    let size = bytes.len();
    let open = || Input::from_bytes("pairs", bytes.clone());
    for by in [None, Some(By::Group(Group::Type))] {
        let options = Options { by, ..Options::default() };
        // The limit is three times the size: the input is copied, and the report of an event takes about 3 kB for 250 bytes of input.
        let report = within_limits("report", 3 * size, || by_prog(&open(), &options).unwrap());
        assert_eq!(report.events.len(), 2000);
        let charged: u64 = report.events.iter().map(|event| event.total.count.samples).sum();
        assert_eq!(charged, 4000);
    }
    // Each of many threads has its own table of the programs in its samples.
    let options = Options { threads: Some(16), ..Options::default() };
    let over_time =
        within_limits("over time", 3 * size, || Session::open(&open()).unwrap().over_time(&options, None).unwrap());
    let payers = within_limits("payers", 3 * size, || Session::open(&open()).unwrap().payers(&options, &[]).unwrap());
    let charged = |total: u64| assert_eq!(total, 4000);
    charged(over_time.events.iter().map(|event| event.total.samples).sum());
    charged(payers.events.iter().map(|event| event.total.count.samples).sum());
    let compared = within_limits("diff", 5 * size, || diff(&[open()], &[open()], &DiffOptions::default()).unwrap());
    assert_eq!(compared.events.len(), 4, "as many events as 8,192 numbers for 2,001 programs allow");
    assert!(compared.notes.contains(&DiffNote::EventsLeftOut { events: 1996 }), "{:?}", compared.notes);
    let asked = DiffOptions { events: vec![compared.events[0].name.clone()], ..DiffOptions::default() };
    let asked = diff(&[open()], &[open()], &asked).unwrap();
    assert!(!asked.notes.iter().any(|note| matches!(note, DiffNote::EventsLeftOut { .. })));
}

/// Programs loaded during the recording are listed, up to the limit on rows.
fn programs_that_ran_and_have_no_samples() {
    let (events, programs) = (700, 1000);
    let bytes = recording(events, 2 * events, &infos(programs as u32), |at| Some(2000 + at as u64));
    let report = by_prog(&Input::from_bytes("pairs", bytes), &Options::default()).unwrap();
    let rows: Vec<usize> = report.events.iter().map(|event| event.rows.len()).collect();
    let with_all = rows.iter().take_while(|rows| **rows > programs).count();
    assert_eq!(with_all, 17, "events that list all programs, up to the limit of 16,384 rows");
    assert!(rows[with_all..].iter().all(|rows| *rows == 1), "only the program with samples has a row");
    for (nth, event) in report.events.iter().enumerate() {
        let left_out = Note::UnsampledLeftOut { programs };
        assert_eq!(event.notes.contains(&left_out), nth >= with_all, "{nth}: {:?}", event.notes);
        assert_eq!(event.quiet_programs, 0);
    }
    let document = json(&report);
    assert_eq!(document["events"][0]["rows"].as_array().unwrap().len(), programs + 1);
}

/// Entries of BPF_PROG_INFO that are shorter than the entries of any kernel do not count as programs.
fn entries_without_an_info() {
    let bytes = recording(1, 5, &vec![vec![0; 16]; 200_000], |_| None);
    let size = bytes.len();
    let input = Input::from_bytes("entries", bytes);
    let report = within_limits("report", size, || by_prog(&input, &Options::default()).unwrap());
    assert_eq!(report.programs.len(), 1, "only the program of the symbol is left");
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert!(problem.contains("200000 entries left out, with an info of less than 192 bytes"), "{problem}");
    let session = Session::open(&input).unwrap();
    within_limits("html", size, || session.export(&Options::default(), ExportFormat::Html, &mut sink()).unwrap());
}

/// Each of the programs uses each of the maps.
fn programs_and_maps() {
    let (programs, of) = (400, (1..=2000).collect::<Vec<u32>>());
    let infos: Vec<Vec<u8>> = (1..=programs).map(|id| info(id, &of)).collect();
    let bytes = recording(1, 5, &infos, |_| None);
    let size = bytes.len();
    let input = Input::from_bytes("maps", bytes);
    let mut text = Vec::with_capacity(8 << 20);
    within_limits("maps", size, || maps(&input, &MapsOptions::default(), &mut text).unwrap());
    let text = String::from_utf8(text).unwrap();
    let used = text.lines().find(|line| line.starts_with("  used by ")).unwrap();
    assert!(used.starts_with("  used by 1 , 2 , ") && used.ends_with(", 100 , +300 more"), "{used}");
    let options = MapsOptions { form: MapsForm::Json, ..MapsOptions::default() };
    within_limits("maps --json", size, || maps(&input, &options, &mut sink()).unwrap());
    let mut text = Vec::new();
    let options = MapsOptions { form: MapsForm::Json, maps: vec!["7".parse().unwrap()], ..MapsOptions::default() };
    maps(&input, &options, &mut text).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(document["maps"][0]["programs"].as_array().unwrap().len(), programs as usize, "JSON has all");
}

/// A stream with many events: the attr of each event has many ids, and one sample follows it.
fn attrs_between_records() {
    let (events, ids) = (200, 7000);
    let layout = SampleLayout::new(&attr(1), Endian::Little);
    let mut bytes = pipe_header(Endian::Little).to_vec();
    assert_eq!(bytes.len(), PIPE_HEADER_BYTES);
    for number in 0..events {
        let mut body = Vec::new();
        attr(number).encode(&mut body, Endian::Little);
        // Each id occurs once, in random order.
        let id = |at: u64| FIRST_ID + (number * ids + at) * 1_000_003 % (events * ids);
        (0..ids).for_each(|at| body.extend_from_slice(&id(at).to_le_bytes()));
        let mut header = Vec::new();
        Writer::new(&mut header, Endian::Little).u32(64).u16(0).u16(8 + body.len() as u16);
        bytes.extend([header, body].concat());
        write_record(&mut bytes, RecordType::SAMPLE, misc::KERNEL, &layout, &SampleId::default(), |w| {
            w.u64(id(0)).u64(PROGRAM + 4).u32(1).u32(1).u64(1000 + number);
        })
        .unwrap();
    }
    let size = bytes.len();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stream.data");
    std::fs::write(&path, bytes).unwrap();
    let mut source = Source::open(&path).unwrap();
    let shown = within_limits("script", size, || script(&mut source, &ScriptOptions::default(), &mut sink()).unwrap());
    assert_eq!((shown.samples, shown.unknown), (events, 0));
}
