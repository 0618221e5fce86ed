//! Mends any bytes in place as a recording. All records of the mended file can be read, the bytes of its data section are unchanged,
//! and a second recovery changes nothing.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use std::fs;

use bprec_format::File;
use bprec_record::Recovered;
use limits::within_limits;

fn check(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("a place for a recording");
    let path = directory.path().join("perf.data");
    fs::write(&path, bytes).expect("room for a recording");
    let Ok(Recovered::Mended { data_bytes, .. }) = bprec_record::recover(&path) else {
        assert_eq!(fs::read(&path).expect("it is there"), bytes, "what was not mended is as it was");
        return;
    };
    let mended = fs::read(&path).expect("it is there");
    let file = File::parse(&mended).expect("what was mended is a file");
    assert!(file.records().all(|record| record.is_ok()));
    let data = file.data();
    assert_eq!(data.size, data_bytes);
    let range = data.offset as usize..(data.offset + data.size) as usize;
    assert_eq!(bytes.get(range.clone()), mended.get(range));
    let _ = bprec_record::recover(&path);
    assert_eq!(fs::read(&path).expect("it is there"), mended);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
