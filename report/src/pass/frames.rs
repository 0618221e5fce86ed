//! Kernel frames of a sample: which addresses of a call chain are exact and which are return addresses. The walks in `attribution` and in
//! `sinks::stacks` follow the same rules.
//!
//! The first frame is SAMPLE.ip. For most events the chain repeats it after its marker. For precise events (PEBS, IBS) it does not: the processor
//! recorded ip, but the kernel unwinds from the registers of the interrupt, which came some instructions later (`intel_pmu_pebs_event_update` and
//! `perf_ibs_handle_irq`, Linux 6.18: "We must however always use iregs for the unwinder to stay sane"). The chain then begins with a second exact
//! address.

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
    // All further addresses are return addresses.
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

/// Returns the number of first addresses in the chain that stand for the leaf's own frame.
///
/// Usually the first address is the leaf. Otherwise the interrupt of a precise event came in the leaf's function (1), in a function that it has
/// called since (2) or, if no frame of the leaf's function is left, in the function that it returned to (0).
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
    // Two addresses without a name count as one function.
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
