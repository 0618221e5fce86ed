//! Hardware traces: the table, JSON and the header of a recording show the type and the size of its trace data.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_report::model::TraceData;
use bprec_report::{Document, Input, Options, by_prog, header};
use std::path::Path;

/// Size of the trace in the file: `perf report -D` prints one AUXTRACE with 0x180 bytes.
const TRACE_BYTES: u64 = 0x180;
/// Offset of the AUXTRACE_INFO record in the file: `perf report -D` prints the record, of type 3, at 0x408.
const INFO_AT: usize = 0x408;

fn recording(kind: u32) -> Input {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/corpus/perf_etm.data");
    let mut bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[INFO_AT + 8..][..4], 3u32.to_le_bytes());
    bytes[INFO_AT + 8..][..4].copy_from_slice(&kind.to_le_bytes());
    Input::from_bytes("test", bytes)
}

#[test]
fn trace_data_is_said_to_be_there() {
    // The numbers of the types are those of perf's `enum auxtrace_type`.
    for (kind, name) in [(1, "Intel PT"), (3, "Arm CoreSight"), (4, "Arm SPE"), (99, "type 99")] {
        let input = recording(kind);
        let report = by_prog(&input, &Options::default()).unwrap();
        assert_eq!(report.recording.trace_data, Some(TraceData { kind: Some(name.into()), bytes: TRACE_BYTES }));
        let mut table = Vec::new();
        report.write_table(&mut table, usize::MAX).unwrap();
        let said = format!("384 bytes of hardware trace data ({name}) are in the recording but not decoded");
        assert!(String::from_utf8(table).unwrap().contains(&said));
        let mut json = Vec::new();
        report.write_json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["recording"]["trace_data"], serde_json::json!({ "kind": name, "bytes": TRACE_BYTES }));
        let said = format!("# hardware trace data : 384 bytes ({name}), not decoded here");
        assert!(header(&input).unwrap().to_string().contains(&said));
    }
}

#[test]
fn recordings_without_traces_say_nothing_of_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/corpus/sleep.data");
    let input = Input::open(path).unwrap();
    assert_eq!(by_prog(&input, &Options::default()).unwrap().recording.trace_data, None);
    assert!(!header(&input).unwrap().to_string().contains("trace data"));
}
