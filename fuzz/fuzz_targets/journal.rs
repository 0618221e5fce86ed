//! Recovers a cut-off recording with any bytes as its journal. All records of the recovered file can be read.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::OnceLock;

use bprec_format::bprec::journal::Journal;
use bprec_format::{Endian, File};
use bprec_report::{RewriteOptions, Source, rewrite};
use limits::within_limits;

/// Path of the recording, in a directory of this process, because the journal is found by its path.
fn recording() -> &'static PathBuf {
    static DIRECTORY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("create a directory");
        let path = directory.path().join("perf.data");
        fs::write(&path, include_bytes!("../../fixtures/recordings/linux-6.1/cut-off.data"))
            .expect("write the recording");
        (directory, path)
    });
    path
}

fn check(bytes: &[u8]) {
    if Journal::parse(bytes, Endian::Little).is_err() {
        return;
    }
    let path = recording();
    fs::write(path.with_extension("data.journal"), bytes).expect("write the journal");
    let Ok(mut source) = Source::open(path) else { return };
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    if rewrite(&mut source, &options, &mut out).is_ok() {
        let out = out.into_inner();
        let file = File::parse(&out).expect("the recovered recording is a file");
        assert!(file.records().all(|record| record.is_ok()));
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
