//! Fields of blocks that have no type: values of maps, records, messages.

/// The `u16` at `at` of a block of ours; zero beyond its end.
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
}

/// The `u32` at `at` of a block of ours; zero beyond its end.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// The `u64` at `at` of a block of ours; zero beyond its end.
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
}

/// The bytes before the first NUL.
pub(crate) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// The characters of a C string before its end.
pub(crate) fn c_chars(text: &[std::ffi::c_char]) -> Vec<u8> {
    text.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect()
}
