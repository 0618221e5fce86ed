//! pprof's format, read according to its documentation, compared with the source lines of the same recording.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::{ExportFormat, Input, Options, Session};
use flate2::read::GzDecoder;
use prost::Message;
use std::collections::BTreeMap;
use std::io::Read;
use support::fixtures;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
}

fn exported(session: &Session<'_>) -> Profile {
    let mut packed = Vec::new();
    session.export(&Options::default(), ExportFormat::Pprof, &mut packed).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    Profile::decode(&bytes[..]).unwrap()
}

/// Samples by source line: each sample counts for the line of its innermost BPF frame, if this has a line.
fn by_line(profile: &Profile) -> BTreeMap<(String, i64), i64> {
    let text = |at: i64| profile.string_table[usize::try_from(at).unwrap()].clone();
    let line_of = |id: &u64| {
        let line = profile.location.iter().find(|location| location.id == *id).unwrap().line[0];
        let function = profile.function.iter().find(|function| function.id == line.function_id).unwrap();
        assert!(line.line == 0 || function.start_line > 0, "{}", text(function.name));
        let file = text(function.filename);
        (line.line > 0 || file == "[bpf]").then_some((file, line.line))
    };
    let mut lines = BTreeMap::new();
    for sample in &profile.sample {
        if let Some(line) = sample.location_id.iter().find_map(line_of).filter(|(_, line)| *line > 0) {
            *lines.entry(line).or_default() += sample.value[0];
        }
    }
    lines
}

/// Lines have the samples that `report --lines` shows.
#[test]
fn samples_have_the_lines_of_the_source() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let report = session.lines(&Options::default()).unwrap();
        let Some(event) = report.events.first().filter(|event| event.samples.samples > 0) else { continue };
        let mut expected: BTreeMap<(String, i64), i64> = BTreeMap::new();
        for row in &event.rows {
            let samples = row.own.samples + row.helper.map_or(0, |helper| helper.samples);
            if let Some(source) = row.source.as_ref().filter(|source| source.line > 0) {
                let line = (source.file.to_string(), i64::from(source.line));
                *expected.entry(line).or_default() += i64::try_from(samples).unwrap();
            }
        }
        compared += expected.len();
        assert_eq!(by_line(&exported(&session)), expected, "{}", path.display());
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn it_says_when_and_how_long() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let recording = session.by_prog(&Options::default()).unwrap().recording;
    let profile = exported(&session);
    let total = |at: usize| profile.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
    assert_eq!(profile.time_nanos.unsigned_abs(), recording.start_unix_ns.unwrap());
    assert_eq!(profile.duration_nanos.unsigned_abs(), recording.elapsed_ns.unwrap());
    assert_eq!(profile.period, total(1) / total(0));
    let text = |at: i64| profile.string_table[usize::try_from(at).unwrap()].as_str();
    let period_type = profile.period_type.unwrap();
    assert_eq!((text(period_type.r#type), text(period_type.unit)), ("cpu-clock", "nanoseconds"));
}

/// Readers take the first mapping for the main binary, so it must be the kernel's, even if the first frame belongs to another file.
#[test]
fn the_kernel_is_the_first_mapping() {
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let profile = exported(&session);
        let files: Vec<_> =
            profile.mapping.iter().map(|mapping| profile.string_table[mapping.filename as usize].as_str()).collect();
        let has_kernel = files.contains(&"[kernel]");
        assert!(!has_kernel || files[0] == "[kernel]", "{}: {files:?}", path.display());
        assert!(profile.mapping.iter().zip(1..).all(|(mapping, id)| mapping.id == id), "{}", path.display());
        let used: std::collections::BTreeSet<u64> =
            profile.location.iter().map(|location| location.mapping_id).collect();
        assert!(used.iter().copied().eq(1..=files.len() as u64), "{}: {used:?}", path.display());
    }
}
