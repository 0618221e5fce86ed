//! Decodes any bytes as a state of the recording: counters, maps, programs, functions. Encoding a decoded state twice gives the same bytes.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_format::Endian;
use bprec_format::bprec::state::State;
use limits::within_limits;

fn check(bytes: &[u8]) {
    for endian in [Endian::Little, Endian::Big] {
        let Ok(state) = State::decode(bytes, 0, endian) else { continue };
        let mut once = Vec::new();
        state.encode(&mut once, endian);
        let again = State::decode(&once, 0, endian).expect("the encoded state can be decoded");
        let mut twice = Vec::new();
        again.encode(&mut twice, endian);
        assert_eq!(once, twice);
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
