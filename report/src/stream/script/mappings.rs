//! Mappings of a process, where many have most of them in common.
//!
//! A child has what its parent has, until either maps something else. What has not changed is shared by all that have it: the mappings
//! are a tree whose nodes are never changed while more than one tree has them, so that a fork costs nothing and a mapping behind it as
//! many nodes as the tree is deep.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use bprec_format::records::Mmap2File;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskMapping {
    /// Start before other mappings took parts of it.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pgoff: u64,
    pub(super) name: Arc<[u8]>,
    /// File of the mapping, if its record has it.
    pub(super) file: Option<Mmap2File>,
}

/// The mappings of a process: no two of them overlap.
#[derive(Debug, Clone, Default)]
pub(super) struct Mappings(MapTree);

type MapTree = Option<Arc<MapNode>>;

/// Ordered by address from left to right, and by priority from the top down.
#[derive(Debug, Clone)]
struct MapNode {
    /// Start now.
    addr: u64,
    mapping: TaskMapping,
    priority: u32,
    /// Nodes of it and below.
    len: u32,
    left: MapTree,
    right: MapTree,
}

impl Mappings {
    pub(super) fn len(&self) -> usize {
        len(&self.0) as usize
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// The last mapping that starts at or before an address.
    pub(super) fn before(&self, addr: u64) -> Option<&TaskMapping> {
        let (mut tree, mut found) = (&self.0, None);
        while let Some(node) = tree {
            tree = if node.addr <= addr {
                found = Some(&node.mapping);
                &node.right
            } else {
                &node.left
            };
        }
        found
    }

    /// Adds a mapping. What was mapped there before is gone, but for what sticks out on either side.
    pub(super) fn insert(&mut self, mapping: TaskMapping) {
        let (addr, end) = (mapping.start, mapping.end.max(mapping.start.saturating_add(1)));
        let (mut below, rest) = split(self.0.take(), addr);
        let (covered, above) = split(rest, end);
        // Since no two overlap only the last of them may.
        let last_below =
            last(&below).filter(|node| node.mapping.end > addr).map(|node| (node.addr, node.mapping.clone()));
        let sticks_out = last(&covered).map(|node| &node.mapping).or(last_below.as_ref().map(|(_, mapping)| mapping));
        let rest_of = sticks_out.filter(|mapping| mapping.end > end).cloned();
        if let Some((start, mapping)) = last_below {
            below = merge(split(below, start).0, leaf(start, TaskMapping { end: addr, ..mapping }));
        }
        let above = match rest_of {
            Some(rest) => merge(leaf(end, rest), split(above, end.saturating_add(1)).1),
            None => above,
        };
        self.0 = merge(merge(below, leaf(addr, mapping)), above);
    }
}

fn len(tree: &MapTree) -> u32 {
    tree.as_ref().map_or(0, |node| node.len)
}

fn last(tree: &MapTree) -> Option<&MapNode> {
    let mut node = tree.as_deref()?;
    while let Some(right) = node.right.as_deref() {
        node = right;
    }
    Some(node)
}

fn leaf(addr: u64, mapping: TaskMapping) -> MapTree {
    Some(Arc::new(MapNode { addr, mapping, priority: priority(addr), len: 1, left: None, right: None }))
}

/// Priority by a keyed hash, so that the tree is about twice as deep as it must be, and nobody can make addresses whose
/// tree is deep.
fn priority(addr: u64) -> u32 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = SEED.get_or_init(|| RandomState::new().hash_one(0));
    let mut z = addr ^ seed;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) as u32
}

/// The nodes before an address, and the others.
fn split(tree: MapTree, addr: u64) -> (MapTree, MapTree) {
    let Some(mut top) = tree else { return (None, None) };
    let node = Arc::make_mut(&mut top);
    if node.addr < addr {
        let (before, behind) = split(node.right.take(), addr);
        node.right = before;
        node.count();
        (Some(top), behind)
    } else {
        let (before, behind) = split(node.left.take(), addr);
        node.left = behind;
        node.count();
        (before, Some(top))
    }
}

/// One tree of two, all of the first before all of the second.
fn merge(first: MapTree, second: MapTree) -> MapTree {
    let (mut first, mut second) = match (first, second) {
        (Some(first), Some(second)) => (first, second),
        (first, None) => return first,
        (None, second) => return second,
    };
    if first.priority >= second.priority {
        let node = Arc::make_mut(&mut first);
        node.right = merge(node.right.take(), Some(second));
        node.count();
        Some(first)
    } else {
        let node = Arc::make_mut(&mut second);
        node.left = merge(Some(first), node.left.take());
        node.count();
        Some(second)
    }
}

impl MapNode {
    fn count(&mut self) {
        self.len = 1 + len(&self.left) + len(&self.right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn mapping(start: u64, end: u64, pgoff: u64) -> TaskMapping {
        TaskMapping { start, end, pgoff, name: Arc::from(&b"file"[..]), file: None }
    }

    /// One byte at a time, it is the last that was mapped there.
    #[test]
    fn an_address_is_what_was_mapped_there_last() {
        const END: usize = 300;
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let (mut mappings, mut bytes) = (Mappings::default(), [None; END]);
            // Snapshots that were shared meanwhile do not change.
            let mut shared = Vec::new();
            for number in 0..60 {
                let start = below(END as u64 - 40);
                let end = start + 1 + below(40);
                mappings.insert(mapping(start, end, number));
                bytes[start as usize..end as usize].fill(Some((start, number)));
                shared.push((mappings.clone(), bytes));
            }
            for (mappings, bytes) in shared.iter().step_by(7).chain(shared.last()) {
                for (addr, expected) in bytes.iter().enumerate() {
                    let found = mappings.before(addr as u64).filter(|found| (addr as u64) < found.end);
                    assert_eq!(found.map(|found| (found.start, found.pgoff)), *expected, "at {addr}");
                }
                let runs = bytes.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count();
                assert_eq!(mappings.len(), runs);
            }
        }
    }

    fn nodes(tree: &MapTree, found: &mut BTreeSet<*const MapNode>) {
        if let Some(node) = tree
            && found.insert(Arc::as_ptr(node))
        {
            nodes(&node.left, found);
            nodes(&node.right, found);
        }
    }

    /// A thousand children with a thousand mappings each, of which one is their own, are not a million.
    #[test]
    fn children_share_what_they_did_not_map() {
        const MANY: u64 = 1000;
        let mut parent = Mappings::default();
        (0..MANY).for_each(|at| parent.insert(mapping(at << 12, (at + 1) << 12, 0)));
        let mut children = vec![parent; MANY as usize];
        (0u64..).zip(&mut children).for_each(|(at, child)| child.insert(mapping(at << 12, (at << 12) + 1, at)));
        let mut found = BTreeSet::new();
        children.iter().for_each(|child| nodes(&child.0, &mut found));
        // A tree of a thousand nodes is some 22 deep, and splitting it twice and merging it again passes over it a few times.
        assert!(found.len() < 100 * MANY as usize, "{}", found.len());
        assert!(children.iter().all(|child| child.len() == MANY as usize + 1));
    }

    #[test]
    fn the_ends_of_the_address_space_are_addresses() {
        let mut mappings = Mappings::default();
        mappings.insert(mapping(0, u64::MAX, 1));
        mappings.insert(mapping(u64::MAX, u64::MAX, 2));
        mappings.insert(mapping(5, 5, 3));
        assert_eq!(mappings.before(u64::MAX).map(|found| found.pgoff), Some(2));
        assert_eq!(mappings.before(4).map(|found| (found.pgoff, found.end)), Some((1, 5)));
        assert_eq!(mappings.before(6).map(|found| (found.pgoff, found.start)), Some((1, 0)));
    }
}
