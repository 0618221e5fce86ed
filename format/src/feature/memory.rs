//! NUMA nodes, memory blocks and caches.

use super::{Payload, read_items, read_text, write_text};
use crate::{Error, Reader, Result, Writer};

/// NUMA_TOPOLOGY (since 3.2): `nr u32`, then the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaTopology<'a>(pub Vec<NumaNode<'a>>);

/// A NUMA node: `node u32, mem_total u64, mem_free u64`, its CPUs as a text. Nothing is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumaNode<'a> {
    /// Its number.
    pub node: u32,
    /// Its memory.
    pub mem_total_kib: u64,
    /// Its free memory when the recording was made.
    pub mem_free_kib: u64,
    /// Its CPUs as a list like `0-3,8`.
    pub cpus: &'a [u8],
}

impl<'a> Payload<'a> for NumaTopology<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<NumaTopology<'a>> {
        let count = r.u32("NUMA_TOPOLOGY count")?;
        Ok(NumaTopology(read_items(r, u64::from(count), problem, |r| {
            Ok(NumaNode {
                node: r.u32("NUMA_TOPOLOGY node")?,
                mem_total_kib: r.u64("NUMA_TOPOLOGY mem_total")?,
                mem_free_kib: r.u64("NUMA_TOPOLOGY mem_free")?,
                cpus: read_text(r, "NUMA_TOPOLOGY cpus")?,
            })
        })))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.0.len() as u32);
        for node in &self.0 {
            w.u32(node.node).u64(node.mem_total_kib).u64(node.mem_free_kib);
            write_text(w, node.cpus);
        }
    }
}

/// MEM_TOPOLOGY (since 4.17): `version u64, block_size u64, n u64`, then the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryTopology {
    /// 1.
    pub version: u64,
    /// Bytes of a block of memory.
    pub block_size_bytes: u64,
    /// Blocks of each node.
    pub nodes: Vec<MemoryNode>,
}

/// Blocks of memory of a node: `node u64, size u64`, a bitmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryNode {
    /// Its number.
    pub node: u64,
    /// Its size in blocks.
    pub size: u64,
    /// Its blocks.
    pub blocks: Bitmap,
}

/// `nbits u64`, then as many u64 words as they need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Number of bits.
    pub bits: u64,
    /// Bit n is bit n % 64 of word n / 64.
    pub words: Vec<u64>,
}

impl Bitmap {
    /// The numbers of the bits that are set.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.bits)
            .zip(self.words.iter().flat_map(|word| (0..64).map(move |n| word >> n & 1 != 0)))
            .filter_map(|(n, is_set)| is_set.then_some(n))
    }

    fn read(r: &mut Reader<'_>) -> Result<Bitmap> {
        let bits = r.u64("bitmap size")?;
        let count = r.count(bits.div_ceil(64), 8, "bitmap")?;
        let words = (0..count).map(|_| r.u64("bitmap")).collect::<Result<_>>()?;
        Ok(Bitmap { bits, words })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.bits);
        for n in 0..self.bits.div_ceil(64) {
            w.u64(self.words.get(n as usize).copied().unwrap_or(0));
        }
    }
}

impl<'a> Payload<'a> for MemoryTopology {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<MemoryTopology> {
        let (version, block_size_bytes) = (r.u64("MEM_TOPOLOGY version")?, r.u64("MEM_TOPOLOGY block size")?);
        let count = r.u64("MEM_TOPOLOGY count")?;
        let nodes = read_items(r, count, problem, |r| {
            Ok(MemoryNode {
                node: r.u64("MEM_TOPOLOGY node")?,
                size: r.u64("MEM_TOPOLOGY node size")?,
                blocks: Bitmap::read(r)?,
            })
        });
        Ok(MemoryTopology { version, block_size_bytes, nodes })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.version).u64(self.block_size_bytes).u64(self.nodes.len() as u64);
        for node in &self.nodes {
            w.u64(node.node).u64(node.size);
            node.blocks.encode(w);
        }
    }
}

/// CACHE (since 4.6): `version u32, n u32`, then the caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caches<'a> {
    /// 1.
    pub version: u32,
    /// Each cache once, with the CPUs that share it.
    pub caches: Vec<Cache<'a>>,
}

/// A cache: `level, line_size, sets, ways: u32`, then kind, size and CPUs as texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache<'a> {
    /// 1 is nearest to the CPU.
    pub level: u32,
    /// Bytes of a line.
    pub line_size_bytes: u32,
    /// Number of sets.
    pub sets: u32,
    /// Lines of a set.
    pub ways: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: &'a [u8],
    /// Size as text, like `32K`.
    pub size: &'a [u8],
    /// CPUs that share it, as a list like `0-3,8`.
    pub cpus: &'a [u8],
}

impl<'a> Payload<'a> for Caches<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<Caches<'a>> {
        let (version, count) = (r.u32("CACHE version")?, r.u32("CACHE count")?);
        let caches = read_items(r, u64::from(count), problem, |r| {
            Ok(Cache {
                level: r.u32("CACHE level")?,
                line_size_bytes: r.u32("CACHE line size")?,
                sets: r.u32("CACHE sets")?,
                ways: r.u32("CACHE ways")?,
                kind: read_text(r, "CACHE type")?,
                size: read_text(r, "CACHE size")?,
                cpus: read_text(r, "CACHE map")?,
            })
        });
        Ok(Caches { version, caches })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.version).u32(self.caches.len() as u32);
        for cache in &self.caches {
            w.u32(cache.level).u32(cache.line_size_bytes).u32(cache.sets).u32(cache.ways);
            for text in [cache.kind, cache.size, cache.cpus] {
                write_text(w, text);
            }
        }
    }
}
