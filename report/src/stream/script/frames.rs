//! Text behind the addresses of frames, kept while nothing changes at them: call chains meet the same frames again and again.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::text::{PADDING_BYTES, Text};
use crate::input::cache::prefetch;

/// Number of frames that are kept, by the hash of their address.
const KEPT_BITS: u32 = 16;
/// Texts of so many bytes are kept; beyond that all of them are made anew.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Texts of frames.
pub(super) struct FrameTexts {
    kept: Box<[CachedText]>,
    /// Each text once: many addresses have the same. Padding at the end.
    texts: Vec<u8>,
    /// Numbers by the hash of the text.
    numbers: FxHashMap<u64, u32>,
    /// By number: where in the texts it starts, and its length.
    places: Vec<(u32, u32)>,
    scratch: Text,
}

/// The text of the frame at an address, as long as its address space is the same.
#[derive(Clone, Copy)]
struct CachedText {
    ip: u64,
    space: u32,
    /// Number of the text.
    text: u32,
}

/// No address space has this number.
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
    /// Forgets all texts.
    pub(super) fn clear(&mut self) {
        self.kept.fill(NEVER);
        self.texts.clear();
        self.texts.resize(PADDING_BYTES, 0);
        self.numbers.clear();
        self.places.clear();
    }

    /// The text of the frame at an address of an address space will be asked for soon.
    #[inline]
    pub(super) fn prefetch(&self, place: (u32, u64)) {
        prefetch(&self.kept[slot(place)]);
    }

    /// Appends the text of the frame at an address of an address space, which `write` makes when it is not kept.
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

    /// Keeps the text that was made, and gives it a number.
    fn add(&mut self, hash: u64) -> u32 {
        let text = self.scratch.as_bytes();
        if self.texts.len() + text.len() > TEXT_BYTES_MAX {
            self.kept.fill(NEVER);
            self.texts.truncate(PADDING_BYTES);
            self.numbers.clear();
            self.places.clear();
        }
        self.texts.truncate(self.texts.len() - PADDING_BYTES);
        // The limit fits into 32 bits, and so does a text: it is made of names that records hold.
        let place = (self.texts.len() as u32, text.len() as u32);
        self.texts.extend_from_slice(text);
        self.texts.extend_from_slice(&[0; PADDING_BYTES]);
        let number = self.places.len() as u32;
        self.places.push(place);
        self.numbers.insert(hash, number);
        number
    }
}

/// Slot for the frame at an address of an address space.
#[inline]
fn slot((space, ip): (u32, u64)) -> usize {
    let hash = (ip ^ u64::from(space).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - KEPT_BITS)) as usize
}
