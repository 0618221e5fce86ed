//! NUMA nodes, memory blocks and caches.

use crate::layout::{Codec, List, LongList, PaddedText, Plain, Public, layout};
use crate::{Reader, Result, Writer};

layout! {
    /// NUMA_TOPOLOGY (since 3.2): `nr u32`, then the nodes.
    pub struct NumaTopology<'a>(pub Vec<NumaNode<'a>> as List);

    /// A NUMA node. Its fields are not aligned.
    #[derive(Copy)]
    pub struct NumaNode<'a> {
        /// Number of the node.
        pub node: u32,
        /// Memory of the node.
        pub mem_total_kib: u64,
        /// Free memory of the node when the recording was made.
        pub mem_free_kib: u64,
        /// CPUs of the node as a list like `0-3,8`.
        pub cpus: &'a [u8] as PaddedText<Public>,
    }

    /// MEM_TOPOLOGY (since 4.17).
    pub struct MemoryTopology {
        /// Version of the layout: 1.
        pub version: u64,
        /// Bytes of a block of memory.
        pub block_size_bytes: u64,
        /// Blocks of each node: `nr u64`, then the nodes.
        pub nodes: Vec<MemoryNode> as LongList,
    }

    /// Blocks of memory of a node.
    pub struct MemoryNode {
        /// Number of the node.
        pub node: u64,
        /// Size of the node in blocks.
        pub size: u64,
        /// Memory blocks of the node.
        pub blocks: Bitmap,
    }

    /// CACHE (since 4.6).
    pub struct Caches<'a> {
        /// Version of the layout: 1.
        pub version: u32,
        /// Each cache once, with the CPUs that share it: `nr u32`, then the caches.
        pub caches: Vec<Cache<'a>> as List,
    }

    /// A CPU cache.
    #[derive(Copy)]
    pub struct Cache<'a> {
        /// Level of the cache; 1 is nearest to the CPU.
        pub level: u32,
        /// Bytes of a line.
        pub line_size_bytes: u32,
        /// Count of sets.
        pub sets: u32,
        /// Lines of a set.
        pub ways: u32,
        /// `Data`, `Instruction` or `Unified`.
        pub kind: &'a [u8] as PaddedText<Public>,
        /// Size as text, like `32K`.
        pub size: &'a [u8] as PaddedText<Public>,
        /// CPUs that share the cache, as a list like `0-3,8`.
        pub cpus: &'a [u8] as PaddedText<Public>,
    }
}

/// `nbits u64`, then the u64 words that hold the bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Count of bits.
    pub bits: u64,
    /// Bit n is bit n % 64 of word n / 64.
    pub words: Vec<u64>,
}

impl Bitmap {
    /// Numbers of the set bits.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.bits)
            .zip(self.words.iter().flat_map(|word| (0..64).map(move |n| word >> n & 1 != 0)))
            .filter_map(|(n, is_set)| is_set.then_some(n))
    }
}

impl<'a> Codec<'a, Bitmap> for Plain {
    const MIN_BYTES: usize = 8;

    fn put(value: &Bitmap, w: &mut Writer<'_>) {
        w.u64(value.bits);
        for n in 0..value.bits.div_ceil(64) {
            w.u64(value.words.get(n as usize).copied().unwrap_or(0));
        }
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Bitmap> {
        let bits = r.u64(what)?;
        let count = r.count(bits.div_ceil(64), 8, what)?;
        let words = (0..count).map(|_| r.u64(what)).collect::<Result<_>>()?;
        Ok(Bitmap { bits, words })
    }
}
