//! Reads integers and strings from untyped bytes: map values, records, messages.

/// Reads the `u16` at offset `at` in native byte order; 0 beyond the end.
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
}

/// Reads the `u32` at offset `at` in native byte order; 0 beyond the end.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// Reads the `u64` at offset `at` in native byte order; 0 beyond the end.
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
}

/// Returns the bytes before the first NUL, or all bytes if there is no NUL.
pub(crate) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// Returns the bytes of a C string before its NUL.
pub(crate) fn c_chars(text: &[std::ffi::c_char]) -> Vec<u8> {
    text.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect()
}
