//! Programs without an info, by id or by address, while infos are matched.

/// Programs by a key, in order, to find the first program of a key that has no info yet. One sorted list takes less time than a queue per key.
pub(super) struct FreePrograms<K> {
    programs: Vec<(K, u32)>,
    /// For the first entry of each key: the number of the key's entries that were passed because their programs have an info. No entry is passed
    /// twice, however often a key repeats.
    passed: Vec<u32>,
}

impl<K: Ord + Copy> FreePrograms<K> {
    pub(super) fn new(programs: impl Iterator<Item = (K, u32)>) -> FreePrograms<K> {
        let mut programs: Vec<(K, u32)> = programs.collect();
        programs.sort_unstable();
        programs.dedup();
        FreePrograms { passed: vec![0; programs.len()], programs }
    }

    /// Returns the first program of a key for which `is_free` is true. A program that was not free must not become free again.
    pub(super) fn first(&mut self, key: K, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let first = self.programs.partition_point(|(of, _)| *of < key);
        let passed = self.passed.get_mut(first)?;
        loop {
            let (_, program) = self.programs.get(first + *passed as usize).filter(|(of, _)| *of == key)?;
            if is_free(*program) {
                return Some(*program);
            }
            *passed += 1;
        }
    }
}
