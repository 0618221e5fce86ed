//! Side-band facts, each kept once: a stream may repeat them for days, and memory must not grow with that.

use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::Hash;

/// Entries in order. Less than twice as much is kept as there is to know, beyond a constant.
#[derive(Debug)]
pub(crate) struct DedupLog<T> {
    said: Vec<T>,
    /// Number of entries from which on repetitions are looked for.
    room: usize,
    /// Subject of an undated record. Such records are dropped only when they repeat the one before of the same subject; dated ones (`None`)
    /// whenever they were seen before.
    undated_about: fn(&T) -> Option<u64>,
}

/// Until there is so much, repetitions cost less than looking for them.
const MIN_ROOM: usize = 1 << 14;

impl<T> Default for DedupLog<T> {
    fn default() -> Self {
        DedupLog::new(|_| None)
    }
}

impl<T> DedupLog<T> {
    pub(crate) fn new(undated_about: fn(&T) -> Option<u64>) -> DedupLog<T> {
        DedupLog { said: Vec::new(), room: MIN_ROOM, undated_about }
    }
}

impl<T: Eq + Hash> DedupLog<T> {
    pub(crate) fn push(&mut self, said: T) {
        if self.said.len() >= self.room {
            self.compact();
            self.room = (2 * self.said.len()).max(MIN_ROOM);
        }
        self.said.push(said);
    }

    /// Drops repetitions.
    pub(crate) fn compact(&mut self) {
        let (mut all, mut last) = (FxHashSet::default(), FxHashMap::default());
        let is_new = |said| match (self.undated_about)(said) {
            None => all.insert(said),
            Some(subject) => last.insert(subject, said) != Some(said),
        };
        let new: Vec<bool> = self.said.iter().map(is_new).collect();
        let mut new = new.into_iter();
        self.said.retain(|_| new.next() == Some(true));
    }

    /// Number of entries that are kept.
    pub(crate) fn len(&self) -> usize {
        self.said.len()
    }

    /// All of it, in the order in which it was said.
    pub(crate) fn into_vec(self) -> Vec<T> {
        self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct Event {
        time_ns: u64,
        about: u64,
        what: u32,
    }

    fn log() -> DedupLog<Event> {
        DedupLog::new(|event| (event.time_ns == 0).then_some(event.about))
    }

    fn told(events: impl Iterator<Item = (u64, u64, u32)>) -> Vec<Event> {
        let mut told = log();
        events.for_each(|(time_ns, about, what)| told.push(Event { time_ns, about, what }));
        told.compact();
        told.into_vec()
    }

    #[test]
    fn what_is_said_again_is_kept_once_and_in_order() {
        let one = [(30, 1, 1), (10, 2, 1), (30, 1, 2), (20, 1, 1)];
        let told = told(one.into_iter().cycle().take(40));
        assert_eq!(told, one.map(|(time_ns, about, what)| Event { time_ns, about, what }));
    }

    #[test]
    fn without_a_time_it_is_the_last_word_that_counts() {
        // It comes, goes and comes again: only the second coming in a row says nothing new.
        let told = told([(0, 1, 1), (0, 2, 1), (0, 1, 1), (0, 1, 0), (0, 1, 1), (0, 2, 1)].into_iter());
        let said: Vec<(u64, u32)> = told.iter().map(|event| (event.about, event.what)).collect();
        assert_eq!(said, [(1, 1), (2, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn repetitions_do_not_take_memory() {
        let mut told = log();
        for round in 0..100 {
            for at in 0..10_000 {
                told.push(Event { time_ns: 1 + at, about: 0, what: 0 });
                assert!(told.len() <= MIN_ROOM + 10_000, "{} in round {round}", told.len());
            }
        }
        told.compact();
        assert_eq!(told.len(), 10_000);
    }
}
