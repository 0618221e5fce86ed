//! Kernel frames of a sample: tells exact addresses of a call chain from return addresses. The walks in `attribution` and in `sinks::stacks` follow
//! the same rules.
//!
//! The first frame is the sample's ip. In most events, the chain repeats the ip after the marker of the kernel part. In precise events (PEBS, IBS),
//! the chain does not: the processor recorded the ip, but the kernel unwinds from the registers of the interrupt, which came some instructions later
//! (`intel_pmu_pebs_event_update` and `perf_ibs_handle_irq`, Linux 6.18: "We must however always use iregs for the unwinder to stay sane"). The chain
//! then begins with a second exact address, that of the interrupt.

use crate::index::Index;
use crate::index::code::KernelFrame;
use bprec_format::{CONTEXT_MAX, Callchain, Endian, context};

/// Returns the kernel frames of a sample: `leaf`, the ip of the sample, and the frames further out from its call chain.
pub(crate) fn kernel_frames<'c>(
    index: &Index,
    leaf: u64,
    chain: &Option<Callchain<'c>>,
    time_ns: u64,
) -> impl Iterator<Item = KernelFrame> + use<'c> {
    let skipped = words_of_leaf(index, leaf, chain, time_ns);
    // Without a skipped address, the first address is where the interrupt of a precise event came. All others are return addresses.
    let mut is_exact = skipped == 0;
    let outer = kernel_words(chain).skip(skipped);
    let outer = outer.map(move |addr| KernelFrame { addr, is_exact: std::mem::take(&mut is_exact) });
    std::iter::once(KernelFrame { addr: leaf, is_exact: true }).chain(outer)
}

/// Returns the addresses of the kernel part of a chain.
#[inline]
pub(crate) fn kernel_words<'c>(chain: &Option<Callchain<'c>>) -> impl Iterator<Item = u64> + use<'c> {
    let mut words = chain.unwrap_or(Callchain::new(&[], Endian::Little)).iter();
    // The kernel part comes first in nearly all chains.
    let has_kernel = words.any(|word| word == context::KERNEL);
    words.take_while(move |word| has_kernel && *word < CONTEXT_MAX)
}

/// Returns the number of addresses at the start of the chain that belong to the leaf's own frame or to functions that it called.
///
/// The number is 1 in most samples, as the chain repeats the leaf's address. In a precise event, the interrupt came later than the sample: in the
/// leaf's function (1), in a function that the leaf's function had called meanwhile (2), or elsewhere, for instance in the function to which the
/// leaf's function had returned (0).
#[inline]
pub(crate) fn words_of_leaf(index: &Index, leaf: u64, chain: &Option<Callchain<'_>>, time_ns: u64) -> usize {
    let mut words = kernel_words(chain);
    match words.next() {
        None => 0,
        Some(first) if first == leaf => 1,
        Some(first) => {
            let second = words.next().map(|addr| addr.wrapping_sub(1));
            words_of_precise_leaf(index, leaf, first, second, time_ns)
        }
    }
}

#[inline(never)]
fn words_of_precise_leaf(index: &Index, leaf: u64, first: u64, second: Option<u64>, time_ns: u64) -> usize {
    // Two addresses in code without a name count as the same function.
    let code = |addr| Some(index.code.at(addr, time_ns)).filter(|code| code.is_named());
    let of_leaf = code(leaf);
    if code(first) == of_leaf {
        1
    } else if of_leaf.is_some() && second.is_some_and(|addr| code(addr) == of_leaf) {
        2
    } else {
        0
    }
}
