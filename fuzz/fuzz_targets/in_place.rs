//! Repairs any bytes in place as a recording. All records of the repaired file can be read, the bytes of its data section are unchanged,
//! and a second recovery changes nothing.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use std::fs;

use bprec_format::File;
use bprec_record::Recovered;
use limits::within_limits;

fn check(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("create a directory");
    let path = directory.path().join("perf.data");
    fs::write(&path, bytes).expect("write the recording");
    let Ok(Recovered::Mended { data_bytes, .. }) = bprec_record::recover(&path) else {
        assert_eq!(
            fs::read(&path).expect("read the recording"),
            bytes,
            "a recording that is not repaired is unchanged"
        );
        return;
    };
    let mended = fs::read(&path).expect("read the repaired recording");
    let file = File::parse(&mended).expect("the repaired recording is a file");
    assert!(file.records().all(|record| record.is_ok()));
    let data = file.data();
    assert_eq!(data.size, data_bytes);
    let range = data.offset as usize..(data.offset + data.size) as usize;
    assert_eq!(bytes.get(range.clone()), mended.get(range));
    let _ = bprec_record::recover(&path);
    assert_eq!(fs::read(&path).expect("read the repaired recording"), mended);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
