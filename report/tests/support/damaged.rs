//! Recordings that are damaged the same way in every run.

use std::path::Path;

use bprec_format::Container;

use super::common;

/// A generator of numbers that are the same in every run (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Typical wrong values for lengths and counts.
const LIES: [u64; 12] =
    [0, 1, 7, 8, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 60, u64::MAX, u64::MAX - 7, i64::MIN as u64];

/// Damages bytes: cuts, flips and splices them, and writes wrong lengths.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..=numbers.below(4) {
        // Half of the mutations are near the start, which holds header, attrs and the first records.
        let reach = if numbers.below(2) == 0 { bytes.len().min(1024) } else { bytes.len() };
        let at = numbers.below(reach);
        match numbers.below(5) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] ^= 1 << numbers.below(8),
            2 => {
                let from = numbers.below(other.len());
                let len = numbers.below(256).min(other.len() - from).min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&other[from..from + len]);
            }
            kind => {
                let width = if kind == 3 { 8 } else { 2 << numbers.below(2) };
                let at = at / width * width;
                let lie = LIES[numbers.below(LIES.len())].to_le_bytes();
                if let Some(field) = bytes.get_mut(at..at + width) {
                    field.copy_from_slice(&lie[..width]);
                }
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

/// Limit on the size of recordings. Reading larger recordings would leave time for fewer damages.
const INPUT_MAX_BYTES: usize = 100_000;

/// Recordings with their names: those of the corpus, of guests and of the project, and inputs of former bugs.
pub(crate) fn inputs() -> Vec<(String, Vec<u8>)> {
    let corpus = common::corpus_files().into_iter().map(|file| (file.name, file.bytes));
    let mut inputs: Vec<(String, Vec<u8>)> = corpus.chain(common::recordings()).chain(common::fixtures()).collect();
    let regressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/regressions");
    for entry in std::fs::read_dir(regressions).into_iter().flatten().flatten() {
        inputs.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()));
    }
    inputs.retain(|(_, bytes)| bytes.len() < INPUT_MAX_BYTES && Container::detect(bytes).is_ok());
    inputs.sort();
    inputs
}
