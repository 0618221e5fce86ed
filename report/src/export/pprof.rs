//! pprof's `profile.proto`, gzipped. Field numbers are those of the published format.

use super::{Table, as_i64, unit_name};
use crate::model::{FrameKind, Profile, StackLabel};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use rustc_hash::FxHashMap;
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
struct ProtoProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<ProtoMapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<ProtoFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    /// Start of the recording, ns since 1970.
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
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
    /// Locations, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    /// Values in the order of the sample types.
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
    #[prost(int64, tag = "3")]
    num: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ProtoMapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<ProtoLine>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ProtoLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ProtoFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
}

/// Distinct strings; the first is empty.
struct Texts(Table<String>);

impl Texts {
    fn number(&mut self, text: &str) -> i64 {
        self.0.text(text).into()
    }

    fn label(&mut self, label: StackLabel<'_>) -> Label {
        let (key, text) = match label {
            StackLabel::Comm(name) => ("comm", name.to_owned()),
            StackLabel::ProgramName(name) => ("prog_name", name.to_owned()),
            StackLabel::ProgramId(id) => return Label { key: self.number("prog_id"), str: 0, num: id.into() },
            StackLabel::ProgramType(prog_type) => ("prog_type", prog_type.to_string()),
            StackLabel::ProgramTag(tag) => ("prog_tag", tag.to_string()),
        };
        Label { key: self.number(key), str: self.number(&text), num: 0 }
    }
}

impl Profile {
    /// Writes the call chains as pprof's `profile.proto`, gzipped.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_pprof(&self, out: &mut dyn Write) -> io::Result<()> {
        let (stacks, recording) = (&self.samples.stacks, &self.report.recording);
        let mut texts = Texts(Table::new());
        let sample_type = vec![
            ValueType { r#type: texts.number("samples"), unit: texts.number("count") },
            ValueType { r#type: texts.number(&stacks.event), unit: texts.number(unit_name(stacks.unit)) },
        ];
        let default_sample_type = texts.number(&stacks.event);

        // The profile has a location per frame, a function per name and file, and a mapping per file.
        let mut profile = ProtoProfile {
            period_type: sample_type.last().copied(),
            period: as_i64(stacks.mean_weight()),
            time_nanos: as_i64(recording.start_unix_ns.unwrap_or(0)),
            duration_nanos: as_i64(recording.elapsed_ns.unwrap_or(0)),
            sample_type,
            default_sample_type,
            ..ProtoProfile::default()
        };
        let mut functions: FxHashMap<(i64, i64, i64), u64> = FxHashMap::default();
        let mut mappings: FxHashMap<i64, u64> = FxHashMap::default();
        // Readers take the first mapping for the main binary, so the kernel is first: a profile of a whole machine has no other main binary.
        let kernels = stacks.frames.iter().filter(|frame| frame.kind == FrameKind::Kernel).take(1);
        for file in kernels.chain(&stacks.frames).map(|frame| texts.number(frame.kind.file().unwrap_or_default())) {
            let id = mappings.len() as u64 + 1;
            mappings.entry(file).or_insert_with(|| {
                profile.mapping.push(ProtoMapping { id, filename: file, has_functions: true });
                id
            });
        }
        for (id, frame) in (1..).zip(&stacks.frames) {
            let file = texts.number(frame.kind.file().unwrap_or_default());
            let mapping_id = mappings[&file];
            let (name, system_name) = (texts.number(&frame.label()), texts.number(&frame.name));
            let source = frame.source.as_ref();
            let filename = source.map_or(file, |source| texts.number(&source.file));
            let start_line = source.map_or(0, |source| source.function_line.into());
            let next = functions.len() as u64 + 1;
            let function_id = *functions.entry((name, system_name, filename)).or_insert_with(|| {
                profile.function.push(ProtoFunction { id: next, name, system_name, filename, start_line });
                next
            });
            let line = ProtoLine { function_id, line: source.map_or(0, |source| source.line.into()) };
            profile.location.push(Location { id, mapping_id, line: vec![line] });
        }
        for stack in &stacks.stacks {
            let label = stacks.labels(stack).into_iter().map(|label| texts.label(label)).collect();
            let value = [stack.count.samples, stack.count.weight].map(as_i64);
            let location_id = stack.frames.iter().rev().map(|frame| u64::from(*frame) + 1).collect();
            profile.sample.push(Sample { location_id, value: value.into(), label });
        }
        profile.string_table = texts.0.rows;
        let mut packed = GzEncoder::new(out, Compression::default());
        packed.write_all(&profile.encode_to_vec())?;
        packed.finish()?;
        Ok(())
    }
}
