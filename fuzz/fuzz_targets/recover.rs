//! Whatever is recovered from any bytes is a file whose records all can be read, and recovering it again changes nothing.
#![no_main]

use std::io::Cursor;

use bprec_format::File;
use bprec_report::{RewriteOptions, Source, rewrite};

fn recovered(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    rewrite(&mut Source::from_bytes("fuzz", bytes.to_vec()), &options, &mut out).ok()?;
    Some(out.into_inner())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(once) = recovered(bytes) else { return };
    let file = File::parse(&once).expect("what was recovered is a file");
    assert!(file.records().all(|record| record.is_ok()));
    assert_eq!(recovered(&once).expect("and can be recovered"), once);
});
