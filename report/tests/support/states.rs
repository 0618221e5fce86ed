//! Makes recordings from states.

use bprec_format::bprec::state::State;
use bprec_format::records::write_record;
use bprec_format::{
    Endian, FileAttr, FileLayout, RecordType, SampleId, SampleLayout, SampleType, event_type, software,
};
use bprec_report::Input;
use std::io::Write;

pub(crate) fn is_state(event: &FileAttr) -> bool {
    event.attr.kind == event_type::SOFTWARE && event.attr.config == software::BPF_OUTPUT
}

/// Appends samples with these states to records.
pub(crate) fn append(states: &[State], time_ns: u64, event: &FileAttr, endian: Endian, data: &mut Vec<u8>) {
    let layout = SampleLayout::new(&event.attr, endian);
    for state in states {
        let mut payload = Vec::new();
        state.encode(&mut payload, endian);
        let raw_bytes = (payload.len() + 4).next_multiple_of(8) - 4;
        write_record(data, RecordType::SAMPLE, 0, &layout, &SampleId::default(), |w| {
            w.u64(event.ids[0]).u64(0).u32(1).u32(1).u64(time_ns).u32(0).u32(0);
            if event.attr.sample_type.contains(SampleType::PERIOD) {
                w.u64(1);
            }
            w.u32(raw_bytes as u32).bytes(&payload).zeros(raw_bytes - payload.len());
        })
        .unwrap();
    }
}

pub(crate) fn file(events: &[FileAttr], data: &[u8], features: &[(u8, Vec<u8>)], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    let layout = FileLayout::begin(events, endian, &mut out);
    out.extend_from_slice(data);
    let mut tail = Vec::new();
    layout.features(data.len() as u64, features, &mut tail);
    out.extend_from_slice(&tail);
    let bits: Vec<u8> = features.iter().map(|(bit, _)| *bit).collect();
    out[..104].copy_from_slice(&layout.header(data.len() as u64, &bits));
    out
}

pub(crate) fn open(bytes: &[u8]) -> Input {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Input::open(file.path()).unwrap()
}
