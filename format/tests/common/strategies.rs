//! Strategies for test values.
#![allow(dead_code, reason = "each test binary uses its part")]

use bprec_format::Endian;
use proptest::prelude::*;

pub(crate) fn endian() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Little), Just(Endian::Big)]
}

/// Bytes without NUL, like strings in records.
pub(crate) fn name(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8..=255, 0..max)
}

pub(crate) fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}
