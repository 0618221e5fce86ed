//! Cache of frame texts: call chains repeat the same frames.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::text::{PADDING_BYTES, Text};
use crate::input::cache::prefetch;

/// Base-2 logarithm of the number of cache slots. A hash of address and address space selects the slot.
const KEPT_BITS: u32 = 16;
/// Limit on cached text, bytes; beyond it, the cache is cleared.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Cache of the texts of frames.
pub(super) struct FrameTexts {
    kept: Box<[CachedText]>,
    /// Distinct texts, one after another: many addresses have the same text. Padded at the end, because a copy reads a whole block, beyond the text's
    /// end.
    texts: Vec<u8>,
    /// Text numbers by hash of the text.
    numbers: FxHashMap<u64, u32>,
    /// Start and length of each text in `texts`, by its number.
    places: Vec<(u32, u32)>,
    scratch: Text,
}

/// Cached text of the frame at an address, valid for one version of the address space.
#[derive(Clone, Copy)]
struct CachedText {
    ip: u64,
    space: u32,
    /// Number of the frame's text.
    text: u32,
}

/// Empty entry: no address space has this version.
const NEVER: CachedText = CachedText { ip: 0, space: u32::MAX, text: 0 };

impl Default for FrameTexts {
    fn default() -> FrameTexts {
        FrameTexts {
            kept: vec![NEVER; 1 << KEPT_BITS].into(),
            texts: vec![0; PADDING_BYTES],
            numbers: FxHashMap::default(),
            places: Vec::new(),
            scratch: Text::default(),
        }
    }
}

impl FrameTexts {
    /// Clears the cache.
    pub(super) fn clear(&mut self) {
        self.kept.fill(NEVER);
        self.texts.clear();
        self.texts.resize(PADDING_BYTES, 0);
        self.numbers.clear();
        self.places.clear();
    }

    /// Prefetches the cache entry of a frame.
    #[inline]
    pub(super) fn prefetch(&self, place: (u32, u64)) {
        prefetch(&self.kept[slot(place)]);
    }

    /// Appends the text of a frame; `write` produces a text that is not cached.
    #[inline]
    pub(super) fn push(&mut self, out: &mut Text, (space, ip): (u32, u64), write: impl FnOnce(&mut Text)) {
        let at = slot((space, ip));
        if (self.kept[at].ip, self.kept[at].space) != (ip, space) {
            self.make(at, (space, ip), write);
        }
        let (start, len) = self.places[self.kept[at].text as usize];
        out.push_padded(&self.texts[start as usize..], len as usize);
    }

    #[cold]
    fn make(&mut self, at: usize, (space, ip): (u32, u64), write: impl FnOnce(&mut Text)) {
        self.scratch.clear();
        write(&mut self.scratch);
        let hash = FxBuildHasher.hash_one(self.scratch.as_bytes());
        let is_same = |number: &u32| {
            let (start, len) = self.places[*number as usize];
            self.texts[start as usize..][..len as usize] == *self.scratch.as_bytes()
        };
        let text = match self.numbers.get(&hash).copied().filter(is_same) {
            Some(number) => number,
            None => self.add(hash),
        };
        self.kept[at] = CachedText { ip, space, text };
    }

    /// Caches a new text and returns its number.
    fn add(&mut self, hash: u64) -> u32 {
        let text = self.scratch.as_bytes();
        if self.texts.len() + text.len() > TEXT_BYTES_MAX {
            self.kept.fill(NEVER);
            self.texts.truncate(PADDING_BYTES);
            self.numbers.clear();
            self.places.clear();
        }
        self.texts.truncate(self.texts.len() - PADDING_BYTES);
        // Start and length fit into 32 bits: `TEXT_BYTES_MAX` limits the start, and a text consists of names from records of limited size.
        let place = (self.texts.len() as u32, text.len() as u32);
        self.texts.extend_from_slice(text);
        self.texts.extend_from_slice(&[0; PADDING_BYTES]);
        let number = self.places.len() as u32;
        self.places.push(place);
        self.numbers.insert(hash, number);
        number
    }
}

/// Cache slot of an address in an address space.
#[inline]
fn slot((space, ip): (u32, u64)) -> usize {
    let hash = (ip ^ u64::from(space).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - KEPT_BITS)) as usize
}
