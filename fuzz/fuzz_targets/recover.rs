//! Rewrites any bytes, with and without repair. A repaired file has only readable records; a second rewrite changes nothing.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use std::io::Cursor;

use bprec_format::File;
use bprec_report::{RewriteOptions, Source, rewrite};
use limits::within_limits;

fn rewritten(bytes: &[u8], repair: bool) -> Option<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair, ..RewriteOptions::default() };
    rewrite(&mut Source::from_bytes("fuzz", bytes.to_vec()), &options, &mut out).ok()?;
    Some(out.into_inner())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for repair in [false, true] {
        let Some(once) = within_limits("fuzz", bytes.len(), || rewritten(bytes, repair)) else { continue };
        let file = File::parse(&once).expect("the recovered recording is a file");
        assert!(!repair || file.records().all(|record| record.is_ok()));
        assert_eq!(rewritten(&once, repair).expect("the recovered recording can be rewritten"), once);
    }
});
