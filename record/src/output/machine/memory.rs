//! Memory: how much, on which nodes.

use std::fs;

use bprec_format::feature::{Bitmap, MemoryNode, MemoryTopology, NumaNode, NumaTopology, TotalMemory};

use super::{encoded, line, number_list, numbered};

const NODES: &str = "/sys/devices/system/node";

/// The number in the line `… key: N kB` of a meminfo file.
fn kib(info: &str, key: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.split_once(key)?.1.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// TOTAL_MEM.
pub(super) fn total() -> Option<Vec<u8>> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    Some(encoded(&TotalMemory { kib: kib(&info, "MemTotal")? }))
}

/// NUMA_TOPOLOGY.
pub(super) fn nodes() -> Option<Vec<u8>> {
    let describe = |node: u32| {
        let info = fs::read_to_string(format!("{NODES}/node{node}/meminfo")).ok()?;
        // A node may have no CPUs.
        let cpus = fs::read_to_string(format!("{NODES}/node{node}/cpulist")).ok()?.trim().to_owned();
        Some((node, kib(&info, "MemTotal")?, kib(&info, "MemFree")?, cpus))
    };
    let nodes = number_list(&line(format!("{NODES}/online"))?)?;
    let nodes: Vec<(u32, u64, u64, String)> = nodes.into_iter().map(describe).collect::<Option<_>>()?;
    let nodes = nodes.iter().map(|(node, total, free, cpus)| NumaNode {
        node: *node,
        mem_total_kib: *total,
        mem_free_kib: *free,
        cpus: cpus.as_bytes(),
    });
    Some(encoded(&NumaTopology(nodes.collect())))
}

/// MEM_TOPOLOGY, on kernels with memory hotplug.
pub(super) fn blocks() -> Option<Vec<u8>> {
    let block_size = line("/sys/devices/system/memory/block_size_bytes")?;
    let block_size_bytes = u64::from_str_radix(&block_size, 16).ok()?;
    let node = |node: u32| {
        let blocks = numbered(format!("{NODES}/node{node}"), "memory");
        let bits = blocks.last().map_or(0, |last| u64::from(*last) + 1);
        let mut words = vec![0u64; usize::try_from(bits.div_ceil(64)).ok()?];
        for block in blocks {
            *words.get_mut(block as usize / 64)? |= 1 << (block % 64);
        }
        Some(MemoryNode { node: u64::from(node), size: bits, blocks: Bitmap { bits, words } })
    };
    let nodes: Vec<MemoryNode> = numbered(NODES, "node").into_iter().map(node).collect::<Option<_>>()?;
    (!nodes.is_empty()).then(|| encoded(&MemoryTopology { version: 1, block_size_bytes, nodes }))
}
