//! Parses any bytes as an ELF file and names the functions at offsets taken from the first eight bytes.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_host::elf::{Elf, functions_at};
use limits::within_limits;

fn check(bytes: &[u8]) {
    let Some((offsets, bytes)) = bytes.split_first_chunk::<8>() else { return };
    let Some(elf) = Elf::parse(bytes) else { return };
    let _ = elf.build_id();
    let offsets: Vec<u64> = offsets.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1])).collect();
    let functions = functions_at(&elf, &offsets, None, &|| false);
    assert!(functions.len() <= offsets.len());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
