//! What tasks had mapped at an address, at a time.

use rustc_hash::FxHashMap;

/// A mapping of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Map {
    pub(super) time_ns: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pgoff: u64,
    pub(super) file: u32,
}

/// The mappings of one task, for lookup: a tree over its addresses, so that neither many mappings nor such that lie over each other
/// have to be looked through.
#[derive(Debug, Default)]
pub(super) struct TaskMaps {
    /// By time.
    maps: Vec<Map>,
    /// Addresses at which mappings begin or end, ascending: leaf n is from the n-th to the next.
    bounds: Vec<u64>,
    /// By node, the root 1 and the children of n 2n and 2n + 1: numbers of the mappings that hold all of its addresses, and not all of those of
    /// the node above; by time.
    nodes: FxHashMap<usize, Vec<u32>>,
}

impl TaskMaps {
    pub(super) fn push(&mut self, map: Map) {
        self.maps.push(map);
    }

    /// Makes what was pushed ready for lookup.
    pub(super) fn build(&mut self) {
        self.maps.retain(|map| map.start < map.end);
        self.maps.sort_by_key(|map| map.time_ns);
        self.bounds = self.maps.iter().flat_map(|map| [map.start, map.end]).collect();
        self.bounds.sort_unstable();
        self.bounds.dedup();
        let leaves = self.leaves();
        for (number, map) in (0..).zip(&self.maps) {
            let leaf = |addr| leaves + self.bounds.partition_point(|bound| *bound < addr);
            let (mut from, mut to) = (leaf(map.start), leaf(map.end));
            while from < to {
                if from % 2 == 1 {
                    self.nodes.entry(from).or_default().push(number);
                    from += 1;
                }
                if to % 2 == 1 {
                    to -= 1;
                    self.nodes.entry(to).or_default().push(number);
                }
                (from, to) = (from / 2, to / 2);
            }
        }
    }

    fn leaves(&self) -> usize {
        self.bounds.len().next_power_of_two()
    }

    /// The newest mapping that held an address at a time.
    pub(super) fn find(&self, addr: u64, time_ns: u64) -> Option<&Map> {
        let below = self.bounds.partition_point(|bound| *bound <= addr).checked_sub(1)?;
        let path = std::iter::successors(Some(self.leaves() + below), |node| (*node > 1).then_some(node / 2));
        let newest = path.filter_map(|node| {
            let numbers = self.nodes.get(&node)?;
            let come = numbers.partition_point(|number| self.maps[*number as usize].time_ns <= time_ns);
            numbers.get(come.checked_sub(1)?).copied()
        });
        self.maps.get(newest.max()? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mapping_at_the_time_is_found() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for count in [0, 1, 2, 3, 40] {
            let maps: Vec<Map> = (0..count)
                .map(|file| {
                    let (start, time_ns) = (below(50), below(20));
                    Map { time_ns, start, end: start + below(30), pgoff: 0, file }
                })
                .collect();
            let mut tree = TaskMaps::default();
            maps.iter().for_each(|map| tree.push(*map));
            tree.build();
            for (addr, time_ns) in (0..90).flat_map(|addr| (0..22).map(move |time| (addr, time))) {
                let holding = maps.iter().filter(|map| map.time_ns <= time_ns && (map.start..map.end).contains(&addr));
                let newest = holding.max_by_key(|map| map.time_ns).map(|map| map.file);
                assert_eq!(tree.find(addr, time_ns).map(|map| map.file), newest, "{addr} at {time_ns}");
            }
        }
    }
}
