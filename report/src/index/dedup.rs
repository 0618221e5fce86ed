//! Side-band records, each kept once: a recorder may repeat its records for days, and the repetitions must not take memory.

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::hash::Hash;

/// Log of distinct entries, in order. It holds at most twice the number of distinct entries, plus a constant.
#[derive(Debug)]
pub(crate) struct DedupLog<T> {
    entries: Vec<T>,
    /// Number of entries at which repetitions are removed.
    compact_at: usize,
    /// Returns the subject (such as a program) of an entry without a time; `None` for an entry with a time. An entry without a time is dropped if it
    /// equals the previous entry of its subject. An entry with a time is dropped if it equals any earlier entry.
    undated_about: fn(&T) -> Option<u64>,
}

/// Count of entries below which no repetitions are removed.
const MIN_ENTRIES: usize = 1 << 14;

impl<T> Default for DedupLog<T> {
    fn default() -> Self {
        DedupLog::new(|_| None)
    }
}

impl<T> DedupLog<T> {
    pub(crate) fn new(undated_about: fn(&T) -> Option<u64>) -> DedupLog<T> {
        DedupLog { entries: Vec::new(), compact_at: MIN_ENTRIES, undated_about }
    }
}

impl<T: Eq + Hash> DedupLog<T> {
    pub(crate) fn push(&mut self, entry: T) {
        if self.entries.len() >= self.compact_at {
            self.compact();
            self.compact_at = (2 * self.entries.len()).max(MIN_ENTRIES);
        }
        self.entries.push(entry);
    }

    /// Removes repetitions.
    pub(crate) fn compact(&mut self) {
        // Most entries are distinct, so the set is made large enough for all of them: to grow it would hash them several times.
        let mut all = FxHashSet::with_capacity_and_hasher(self.entries.len(), FxBuildHasher);
        let mut last = FxHashMap::default();
        let is_new = |entry| match (self.undated_about)(entry) {
            None => all.insert(entry),
            Some(subject) => last.insert(subject, entry) != Some(entry),
        };
        let new: Vec<bool> = self.entries.iter().map(is_new).collect();
        let mut new = new.into_iter();
        self.entries.retain(|_| new.next() == Some(true));
    }

    /// Number of entries, with the repetitions that are not removed yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries in their order.
    pub(crate) fn into_vec(self) -> Vec<T> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct Occurrence {
        time_ns: u64,
        about: u64,
        what: u32,
    }

    fn log() -> DedupLog<Occurrence> {
        DedupLog::new(|event| (event.time_ns == 0).then_some(event.about))
    }

    fn told(events: impl Iterator<Item = (u64, u64, u32)>) -> Vec<Occurrence> {
        let mut told = log();
        events.for_each(|(time_ns, about, what)| told.push(Occurrence { time_ns, about, what }));
        told.compact();
        told.into_vec()
    }

    #[test]
    fn what_is_said_again_is_kept_once_and_in_order() {
        let one = [(30, 1, 1), (10, 2, 1), (30, 1, 2), (20, 1, 1)];
        let told = told(one.into_iter().cycle().take(40));
        assert_eq!(told, one.map(|(time_ns, about, what)| Occurrence { time_ns, about, what }));
    }

    #[test]
    fn without_a_time_it_is_the_last_word_that_counts() {
        // Each entry is (time, subject, value). Only a value equal to the previous value of its subject is dropped, so subject 1 keeps 1, 0, 1.
        let told = told([(0, 1, 1), (0, 2, 1), (0, 1, 1), (0, 1, 0), (0, 1, 1), (0, 2, 1)].into_iter());
        let said: Vec<(u64, u32)> = told.iter().map(|event| (event.about, event.what)).collect();
        assert_eq!(said, [(1, 1), (2, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn repetitions_do_not_take_memory() {
        let mut told = log();
        for round in 0..100 {
            for at in 0..10_000 {
                told.push(Occurrence { time_ns: 1 + at, about: 0, what: 0 });
                assert!(told.len() <= MIN_ENTRIES + 10_000, "{} in round {round}", told.len());
            }
        }
        told.compact();
        assert_eq!(told.len(), 10_000);
    }
}
