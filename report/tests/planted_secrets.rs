//! Every text in every kind of state, section and record that the format knows is a unique word. A redacted recording contains only the words that
//! docs/redact.md allows. If the format gets a new kind, this test fails until the kind is added here.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/outputs.rs"]
mod outputs;
#[path = "planted/records.rs"]
mod records;
#[path = "planted/sections.rs"]
mod sections;
#[path = "planted/states.rs"]
mod states;

use std::collections::{BTreeMap, BTreeSet};

use bprec_format::bprec::state::State;
use bprec_format::feature::Feature;
use bprec_format::records::UserPayload;
use bprec_format::records::user::{EventUpdate, FeatureRecord, HeaderAttr, Update};
use bprec_format::{
    AttrFlags, Endian, EventAttr, FileAttr, FileLayout, RecordType, SampleType,
    bprec::{sampler, state},
    event_type, pipe_header, software,
};
use bprec_report::Redact;
use outputs::{outputs, redacted};
use records::Records;
use sections::section;
use states::states;

const LITTLE: Endian = Endian::Little;
const CODE: u64 = 0xffff_ffff_c010_0004;
const KERNEL_FUNCTION: u64 = 0xffff_ffff_8100_1000;
const PROG_ID: u32 = 100;
const LOAD_TIME_NS: u64 = 5;
const PID: u32 = 7;
const TIME_NS: u64 = 1_000_000;

/// Effect of redaction on a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The word is replaced, or removed with its record.
    Goes,
    /// The word is replaced or removed only if programs are redacted, too.
    GoesWithPrograms,
    /// The word stays.
    Stays,
}

/// Planted words, each with the effect of redaction on the word and a description of its place.
#[derive(Debug, Default)]
struct Planted(BTreeMap<String, (Fate, &'static str)>);

impl Planted {
    fn word(&mut self, fate: Fate, place: &'static str) -> String {
        let word = format!("zq{:04}qz", self.0.len());
        self.0.insert(word.clone(), (fate, place));
        word
    }

    fn secret(&mut self, place: &'static str) -> String {
        self.word(Fate::Goes, place)
    }

    fn of_program(&mut self, place: &'static str) -> String {
        self.word(Fate::GoesWithPrograms, place)
    }

    /// Adds a word that stays in redacted recordings. `docs` is the phrase of docs/redact.md that allows the word to stay.
    fn kept(&mut self, docs: &'static str) -> String {
        let text = include_str!("../../docs/redact.md").replace('\n', " ");
        assert!(text.contains(docs), "docs/redact.md does not mention {docs}");
        self.word(Fate::Stays, docs)
    }

    /// Returns the planted words that an output contains.
    fn in_output(&self, output: &[u8]) -> BTreeSet<&str> {
        let words = output.windows(8).filter(|bytes| bytes.starts_with(b"zq") && bytes.ends_with(b"qz"));
        let words = words.filter_map(|bytes| self.0.get_key_value(std::str::from_utf8(bytes).ok()?));
        words.map(|(word, _)| word.as_str()).collect()
    }
}

/// An event and its name.
struct Event {
    attr: FileAttr,
    name: String,
}

/// Index of the first event; the indexes of the other events follow.
const MAIN: usize = 0;
const STATE: usize = 1;
const SAMPLER: usize = 2;
const OUTPUT: usize = 3;
const TRACED: usize = 4;

fn events(p: &mut Planted) -> Vec<Event> {
    let common = [SampleType::IDENTIFIER, SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU];
    let common = common.into_iter().fold(SampleType::PERIOD, SampleType::with);
    let output = (event_type::SOFTWARE, software::BPF_OUTPUT, common.with(SampleType::RAW));
    let sampling = common.with(SampleType::CALLCHAIN);
    let traced = common.with(SampleType::RAW).with(SampleType::STACK_USER);
    let tracepoint = format!("{}:{}", p.kept("tracepoints"), p.kept("tracepoints"));
    [
        (event_type::SOFTWARE, software::CPU_CLOCK, sampling, "cpu-clock".to_owned()),
        (output.0, output.1, output.2, state::EVENT_NAME.to_owned()),
        (output.0, output.1, output.2, sampler::EVENT_NAME.to_owned()),
        (output.0, output.1, output.2, p.of_program("map that programs write through")),
        (event_type::TRACEPOINT, 77, traced, tracepoint),
        (event_type::SOFTWARE, software::CPU_CLOCK, sampling, format!("cpu-clock ({})", p.of_program("event"))),
        (8, 0, sampling, format!("uprobe/path=/{},offset=0x10/", p.secret("event"))),
        (8, 0, sampling, format!("cpu/event=0x3c,name={}/", p.kept("names of events"))),
        (8, 0, sampling, format!("{} b", p.secret("event"))),
    ]
    .into_iter()
    .zip(1..)
    .map(|((kind, config, sample_type, name), id)| {
        let flags = [AttrFlags::MMAP, AttrFlags::COMM, AttrFlags::TASK, AttrFlags::KSYMBOL, AttrFlags::BPF_EVENT];
        let flags = flags.into_iter().fold(AttrFlags::SAMPLE_ID_ALL, AttrFlags::with);
        let sample_stack_user = if sample_type.contains(SampleType::STACK_USER) { 64 } else { 0 };
        let attr =
            EventAttr { kind, config, sample_period: 1, sample_type, flags, sample_stack_user, ..EventAttr::default() };
        Event { attr: FileAttr { attr, ids: vec![id] }, name }
    })
    .collect()
}

/// Builds a recording with a word at every place, as a file and as a stream.
fn recordings(p: &mut Planted) -> [(&'static str, Vec<u8>); 2] {
    let events = events(p);
    let sections: Vec<(u8, Vec<u8>)> = (0..=u8::MAX)
        .filter(|bit| Feature(*bit).name().is_some())
        .filter_map(|bit| Some((bit, section(Feature(bit), &events, p)?)))
        .collect();
    let mut records = Records { events: &events, bytes: Vec::new() };
    let planted = RecordType::NAMES.iter().filter(|(kind, _)| records.plant(*kind, p)).count();
    assert!(planted > 12, "only {planted} types of records");
    let records = records.bytes;
    let attrs: Vec<FileAttr> = events.iter().map(|event| event.attr.clone()).collect();
    let mut file = Vec::new();
    let layout = FileLayout::begin(&attrs, LITTLE, &mut file);
    file.extend(&records);
    let data_bytes = records.len() as u64;
    layout.features(data_bytes, &sections, &mut file);
    let bits: Vec<u8> = sections.iter().map(|(bit, _)| *bit).collect();
    let header = layout.header(data_bytes, &bits);
    file[..header.len()].copy_from_slice(&header);

    let mut stream = pipe_header(LITTLE).to_vec();
    for FileAttr { attr, ids } in &attrs {
        let attr = HeaderAttr { attr: attr.clone(), ids: ids.clone() };
        UserPayload::Attr(attr).encode(LITTLE, &mut stream).unwrap();
    }
    for event in &events {
        let update = EventUpdate { id: event.attr.ids[0], update: Update::Name(event.name.as_bytes()) };
        UserPayload::EventUpdate(update).encode(LITTLE, &mut stream).unwrap();
    }
    for (bit, bytes) in &sections {
        if *bit == Feature::TRACING_DATA.0 {
            let whole = UserPayload::TracingData { size_bytes: bytes.len() as u32, inside: &[] };
            whole.encode(LITTLE, &mut stream).unwrap();
            stream.extend(bytes);
            stream.resize(stream.len() + bytes.len().next_multiple_of(8) - bytes.len(), 0);
        } else {
            let feature = FeatureRecord { feature: u64::from(*bit), bytes };
            UserPayload::Feature(feature).encode(LITTLE, &mut stream).unwrap();
        }
    }
    stream.extend(&records);
    [("file", file), ("stream", stream)]
}

#[test]
fn words_that_are_planted_everywhere_come_out_nowhere() {
    let mut planted = Planted::default();
    let recordings = recordings(&mut planted);
    for (container, recording) in &recordings {
        let there = planted.in_output(recording);
        let lost: Vec<_> = planted.0.iter().filter(|(word, _)| !there.contains(word.as_str())).collect();
        assert!(lost.is_empty(), "{container}: not planted: {lost:?}");
        for (level, goes) in
            [(Redact::Machine, &[Fate::Goes][..]), (Redact::MachineAndPrograms, &[Fate::Goes, Fate::GoesWithPrograms])]
        {
            let copy = redacted(recording, level).unwrap();
            let mut made = outputs(&copy);
            assert!(made.len() > 30, "only {} outputs", made.len());
            made.push(("recording", copy));
            for (output, bytes) in &made {
                let found = planted.in_output(bytes).into_iter().map(|word| (word, planted.0[word]));
                let leaks: Vec<_> = found.filter(|(_, (fate, _))| goes.contains(fate)).collect();
                assert!(leaks.is_empty(), "{container}, {level:?}, {output}: {leaks:?}");
            }
            let copied = &made.last().unwrap().1;
            let left = planted.in_output(copied);
            let stay = planted.0.iter().filter(|(_, (fate, _))| *fate == Fate::Stays);
            let gone: Vec<_> = stay.filter(|(word, _)| !left.contains(word.as_str())).collect();
            assert!(
                gone.is_empty(),
                "{container}, {level:?}: docs/redact.md says that these words stay, but they are gone: {gone:?}"
            );
        }
    }
}

#[test]
fn every_kind_of_state_is_planted() {
    let planted: BTreeSet<u16> = states(&mut Planted::default()).iter().map(State::kind).collect();
    let numbers = [
        State::Released(state::Released { id: 1, load_time_ns: 1, after_ns: 1, before_ns: 1 }),
        State::Loss(state::Loss { events: Vec::new(), not_counted: false }),
        State::Cost(state::Cost::default()),
        State::Aggregation(state::Aggregation::default()),
        State::CpuNotSampled(state::CpuNotSampled { time_ns: 1, cpu: 1, came_online: false, until_ns: 2 }),
        State::BootClock(state::BootClock { time_ns: 1, to_boottime_ns: 1 }),
        State::Recording(state::RecordingId([7; 16])),
    ];
    let known: BTreeSet<u16> = planted.into_iter().chain(numbers.iter().map(State::kind)).collect();
    let missing: Vec<&u16> = State::KINDS.iter().filter(|kind| !known.contains(kind)).collect();
    assert!(missing.is_empty(), "the test plants no word in states of the kinds {missing:?}; add one");
}
