//! Side-band records, with the programs and address ranges that must result from them.

use super::*;

/// Program 10 was listed at the start. The record of its unload is lost, and program 20 gets its address.
#[test]
fn code_of_another_program_at_the_same_place_is_not_the_first_ones() {
    let side = |time_ns, kind| SideEvent { file: 0, time_ns, is_listed: time_ns == 0, place: (0, 7), kind };
    let symbol = |name: &[u8]| SidebandKind::Symbol {
        addr: 0x1000,
        len_bytes: 0x80,
        kind: KsymbolKind::BPF,
        gone: false,
        name: name.to_vec(),
    };
    let loaded = |id| SidebandKind::Program { kind: BpfEventKind::PROG_LOAD, id, tag: [0; 8], pid: None };
    let first = [side(0, symbol(b"bpf_prog_0000000000000001_a")), side(0, loaded(10))];
    let again = |id| [side(50, symbol(b"bpf_prog_0000000000000002_b")), side(50, loaded(id))];
    let owners = |id| {
        let side = first.iter().cloned().chain(again(id)).collect();
        let programs = Programs::join(side, &[], &BTreeMap::new(), &States::default());
        let times = programs.ranges.iter().map(|range| (range.from_ns, range.to_ns, range.code));
        (times.collect::<Vec<_>>(), programs.list.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>())
    };
    let owner = |program| Code::Function { program, function: 0 };
    let (ranges, names) = owners(20);
    assert_eq!(ranges, [(0, 50, owner(0)), (50, u64::MAX, owner(1))]);
    assert_eq!(names, ["a", "b"]);
    // The program is listed at the start and announced by the kernel. It stays one program with one range.
    assert_eq!(owners(10).0, [(0, u64::MAX, owner(0))]);
}
