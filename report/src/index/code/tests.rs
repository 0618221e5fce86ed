//! Lookups in kernel address spaces, with results that are known in advance.

use super::*;
use bprec_format::bprec::state::KernelSymbol;

const TEXT: (u64, u64) = (0xffff_0000_0000, 0xffff_0100_0000);
const RUN: u64 = 0xffff_0000_1000;
const READ: u64 = 0xffff_0000_1100;
const PROGRAM: u64 = 0xffff_c000_0000;
const SLOT: u64 = 0xffff_c000_1000;

fn map() -> CodeMap {
    let symbol = |addr, name: &str| KernelSymbol { addr, len_bytes: 0x100, name: name.into() };
    let kernel = KernelSymbols::new(vec![symbol(RUN, "trace_call_bpf"), symbol(READ, "vfs_read")]);
    let maps = KernelMaps::new(vec![(TEXT.0, TEXT.1, "[kernel.kallsyms]_text".into())]);
    let function = Code::Function { program: 3, function: 0 };
    let program = Range { from_ns: 100, to_ns: 10_000_000_000, ..Range::always(PROGRAM, PROGRAM + 0x80, function) };
    CodeMap::new(vec![program, Range::always(SLOT, SLOT + 0x1000, Code::PLAIN)], kernel, maps)
}

#[test]
fn every_address_of_the_kernel_is_something() {
    let map = map();
    assert_eq!(map.at(PROGRAM + 8, 5_000_000), Code::Function { program: 3, function: 0 });
    assert_eq!(map.at(RUN + 8, 5), Code::Kernel { function: Some(0), role: Role::Hook });
    assert_eq!(map.at(READ + 8, 5), Code::Kernel { function: Some(1), role: Role::Plain });
    assert_eq!(map.at(READ + 0x100, 5), Code::PLAIN, "kernel code without a name");
    assert_eq!(map.at(PROGRAM + 0x100, 5), Code::Unknown, "in the range of BPF programs");
    assert_eq!(map.at(PROGRAM + 8, u64::MAX), Code::Unknown, "long gone");
    assert_eq!(map.at(SLOT + 8, 5), Code::PLAIN, "an instruction that a kprobe copied");
    for addr in [RUN, PROGRAM, PROGRAM + 0x80, PROGRAM + 0x100, SLOT] {
        assert!(!map.plain_test().is_plain(addr), "{addr:#x}");
    }
    assert!(map.plain_test().is_plain(TEXT.0 + 0x80_0000));
}

#[test]
fn a_return_address_is_behind_the_call() {
    let map = map();
    let of = |addr, is_exact| map.of_frame(KernelFrame { addr, is_exact }, 5_000_000).0;
    let function = Code::Function { program: 3, function: 0 };
    assert_eq!((of(PROGRAM + 0x80, false), of(PROGRAM + 0x80, true)), (function, Code::Unknown));
    assert_eq!((of(READ, false).kernel_function(), of(READ, true).kernel_function()), (Some(0), Some(1)));
    // An interrupt arrived at the program's first instruction. The frame has this address but counts as a return address, which would be after the
    // call.
    assert_eq!(of(PROGRAM, false), function);
}

#[test]
fn remembered_answers_are_asked_for_again_when_they_no_longer_hold() {
    let map = map();
    let mut cache = CodeCache::new(&map);
    for time_ns in [0, 5_000_000, 9_000_000_000, 30_000_000_000, 0, u64::MAX] {
        for frame in [PROGRAM, PROGRAM + 8, 0, RUN].map(|addr| KernelFrame { addr, is_exact: true }) {
            assert_eq!(cache.of_frame(frame, time_ns), map.of_frame(frame, time_ns).0, "{frame:x?} at {time_ns}");
        }
    }
}
