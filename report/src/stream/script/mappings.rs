//! Mappings of processes, shared between processes.
//!
//! A child starts with its parent's mappings. Mappings are persistent trees that share unchanged nodes: a fork costs nothing, and a new mapping
//! copies only the nodes on a path from the root.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use bprec_format::records::Mmap2File;

/// A mapping of a file or of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskMapping {
    /// Original start, before later mappings covered a part.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pgoff: u64,
    pub(super) name: Arc<[u8]>,
    /// Identity of the file, if recorded.
    pub(super) file: Option<Mmap2File>,
}

/// Mappings of a process, without overlap.
#[derive(Debug, Clone, Default)]
pub(super) struct Mappings(MapTree);

type MapTree = Option<Arc<MapNode>>;

/// Treap node: ordered by address from left to right, by priority from top to bottom.
#[derive(Debug, Clone)]
struct MapNode {
    /// Current start.
    addr: u64,
    mapping: TaskMapping,
    priority: u32,
    /// Number of nodes in the subtree.
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

    /// Returns the last mapping that starts at or before an address.
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

    /// Adds a mapping, which replaces overlapping parts of older mappings.
    pub(super) fn insert(&mut self, mapping: TaskMapping) {
        let (addr, end) = (mapping.start, mapping.end.max(mapping.start.saturating_add(1)));
        let (mut below, rest) = split(self.0.take(), addr);
        let (covered, above) = split(rest, end);
        // Mappings do not overlap, so of those that start below the range, only the last can reach into it.
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

/// Priority by a keyed hash: the expected depth is about twice the minimum, and no input can force deep trees.
fn priority(addr: u64) -> u32 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = SEED.get_or_init(|| RandomState::new().hash_one(0));
    let mut z = addr ^ seed;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) as u32
}

/// Splits a tree into the nodes before an address and the other nodes.
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

/// Joins two trees; all addresses of the first tree are below the addresses of the second tree.
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

    /// Compares with an array that stores the latest mapping of each byte.
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
            // Shared snapshots do not change when more mappings are added.
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

    /// A thousand children with a thousand mappings, all but one shared, do not need a million nodes.
    #[test]
    fn children_share_what_they_did_not_map() {
        const MANY: u64 = 1000;
        let mut parent = Mappings::default();
        (0..MANY).for_each(|at| parent.insert(mapping(at << 12, (at + 1) << 12, 0)));
        let mut children = vec![parent; MANY as usize];
        (0u64..).zip(&mut children).for_each(|(at, child)| child.insert(mapping(at << 12, (at << 12) + 1, at)));
        let mut found = BTreeSet::new();
        children.iter().for_each(|child| nodes(&child.0, &mut found));
        // A tree of a thousand nodes is about 22 deep; an insertion traverses it a few times.
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
