//! Hand-made call chains, with the charges that must result from them.

use super::*;
use crate::index::code::{CodeMap, Range};
use crate::index::hooks::Hooks;
use crate::index::images::{Image, TrampolinePrograms};
use crate::index::programs::{IndexedProgram, ProgInfoSummary, Programs};
use crate::index::states::States;
use crate::index::symbols::{KernelMaps, KernelSymbols};
use crate::input::window::Window;
use crate::model::Count;
use crate::pass::sinks::ledger::EventLedger;
use crate::pass::sinks::sharing::HookWeights;
use bprec_format::Endian;
use bprec_format::bpf::names::ProgType;
use bprec_format::bprec::state::{AttachTarget, Attachment, KernelSymbol};

const KERNEL_TEXT: (u64, u64) = (0xffff_0000_0000, 0xffff_0100_0000);
// Start addresses of four kernel functions, each 0x100 bytes long.
const LOOKUP: u64 = 0xffff_0000_1000;
const ENTER: u64 = 0xffff_0000_2000;
const TRACE_CALL: u64 = 0xffff_0000_3000;
const VFS_READ: u64 = 0xffff_0000_4000;
// Start addresses of the functions of three programs: program 0 has two functions, programs 1 and 2 have one each.
const PROG_A: u64 = 0xffff_c000_0000;
const PROG_A_SUB: u64 = 0xffff_c000_0100;
const PROG_B: u64 = 0xffff_c000_0200;
const PROG_C: u64 = 0xffff_c000_0300;
// Start addresses of trampolines: of a kernel function with program 2, and of program 0 with two programs attached to it.
const TRAMP_KERNEL: u64 = 0xffff_c000_1000;
const TRAMP_PROG: u64 = 0xffff_c000_1800;
const MODULE: (u64, u64) = (0xffff_c010_0000, 0xffff_c011_0000);

fn index(with_symbols: bool) -> Index {
    index_with(with_symbols, true)
}

fn index_with(with_symbols: bool, with_maps: bool) -> Index {
    let range = |start: u64, len: u64, code| Range::always(start, start + len, code);
    let function = |program, function| Code::Function { program, function };
    let ranges = vec![
        range(PROG_A, 0x80, function(0, 0)),
        range(PROG_A_SUB, 0x40, function(0, 1)),
        range(PROG_B, 0x80, function(1, 0)),
        range(PROG_C, 0x80, function(2, 0)),
        range(TRAMP_KERNEL, 0x1000, Code::Image(0)),
        range(TRAMP_PROG, 0x1000, Code::Image(1)),
    ];
    let symbol = |addr, name: &str| KernelSymbol { addr, len_bytes: 0x100, name: name.into() };
    let symbols = KernelSymbols::new(if with_symbols {
        vec![
            symbol(LOOKUP, "htab_map_lookup_elem"),
            symbol(ENTER, "__bpf_prog_enter_recur"),
            symbol(TRACE_CALL, "trace_call_bpf"),
            symbol(VFS_READ, "vfs_read"),
        ]
    } else {
        Vec::new()
    });
    let maps = if with_maps {
        vec![(KERNEL_TEXT.0, KERNEL_TEXT.1, "[kernel.kallsyms]_text".into()), (MODULE.0, MODULE.1, "[ext4]".into())]
    } else {
        Vec::new()
    };
    let maps = KernelMaps::new(maps);
    let image = |kind| Image { name: String::new(), kind };
    let kernel_key = TrampolineKey::Kernel { btf_obj_id: 1, btf_id: 7 };
    let prog_key = TrampolineKey::Program { id: 10, btf_id: 3 };
    let images = vec![image(ImageKind::Trampoline(kernel_key)), image(ImageKind::Trampoline(prog_key))];
    let attached = TrampolinePrograms::of(&[((1, 7), &[2]), ((5, 3), &[3, 4])], &[(10, 5)]);
    let info = |at| Some(ProgInfoSummary { at, ..ProgInfoSummary::default() });
    let list: Vec<IndexedProgram> =
        (0..5).map(|at| IndexedProgram { info: info(at), ..IndexedProgram::default() }).collect();
    Index {
        hooks: Hooks::new(&symbols, &list, &States::default(), &images, &attached),
        programs: Programs { list, images, ..Programs::default() },
        code: CodeMap::new(ranges, symbols, maps),
        ..Index::default()
    }
}

/// Returns the attribution of a chain of kernel frames, leaf first, followed by user frames.
fn attribution(index: &Index, frames: &[u64]) -> (Charge, Vec<u32>) {
    precise(index, frames[0], frames)
}

/// Returns the attribution of a sample of a precise event: its chain need not begin with the leaf.
fn precise(index: &Index, leaf: u64, frames: &[u64]) -> (Charge, Vec<u32>) {
    let mut words = vec![context::KERNEL];
    words.extend(frames);
    words.extend([context::USER, 0x40_0000, PROG_A]);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut attributor = Attributor::new(index);
    let attribution = attributor.attribution(Some(leaf), Some(Callchain::new(&bytes, Endian::Little)), 5);
    (attribution.charge, attribution.programs().to_vec())
}

fn own(program: u32, function: u32) -> Charge {
    Charge::Program { program, function: Some(function), column: ChargeColumn::Own, called: None }
}

fn helper(program: u32, function: u32, called: u64) -> Charge {
    Charge::Program { program, function: Some(function), column: ChargeColumn::Helper, called: Some(called) }
}

#[test]
fn the_innermost_program_is_charged_and_outer_ones_have_it_in_total() {
    let index = index(true);
    assert_eq!(attribution(&index, &[VFS_READ]), (Charge::Elsewhere, vec![]));
    assert_eq!(attribution(&index, &[PROG_A]), (own(0, 0), vec![0]));
    assert_eq!(attribution(&index, &[PROG_A_SUB + 1, PROG_A + 0x20, TRACE_CALL + 8]), (own(0, 1), vec![0]));
    assert_eq!(attribution(&index, &[LOOKUP + 4, PROG_A + 0x20]), (helper(0, 0, LOOKUP + 4), vec![0]));
    // Program 1 ran in a helper that a subprogram of program 0 had called.
    let nested = [PROG_B + 8, TRACE_CALL + 8, LOOKUP + 0x10, PROG_A_SUB + 0x10, PROG_A + 0x20, TRACE_CALL + 8];
    assert_eq!(attribution(&index, &nested), (own(1, 0), vec![1, 0]));
    // The frame next to the program names the helper; the leaf does not. The frame has a return address, so the call is 1 byte before it.
    assert_eq!(attribution(&index, &[VFS_READ + 1, LOOKUP + 0x10, PROG_A + 0x20]).0, helper(0, 0, LOOKUP + 0xf));
}

#[test]
fn a_return_address_is_behind_the_call() {
    let index = index(true);
    // A call is the last instruction of the subprogram, so its return address belongs to no program. The byte before the return address belongs to
    // the program.
    assert_eq!(attribution(&index, &[LOOKUP, PROG_A_SUB + 0x40]).0, helper(0, 1, LOOKUP));
    // As the exact address of a leaf, the same address does not belong to the program.
    assert_ne!(attribution(&index, &[PROG_A_SUB + 0x40]).0, own(0, 1));
    // An interrupt came at the first instruction of a program.
    assert_eq!(attribution(&index, &[VFS_READ, PROG_B]).0, helper(1, 0, VFS_READ));
}

/// PEBS and IBS: the interrupt occurred some instructions after the leaf, and the chain begins at the interrupt.
#[test]
fn a_chain_may_begin_behind_the_leaf() {
    let index = index(true);
    // The sampled helper had returned to the program before the interrupt. The chain's first address is exact: it is the first byte of the program,
    // to which no call returns.
    assert_eq!(precise(&index, LOOKUP + 4, &[PROG_A, TRACE_CALL + 8]), (helper(0, 0, LOOKUP + 4), vec![0]));
    assert_eq!(precise(&index, PROG_A_SUB + 4, &[PROG_A + 8, TRACE_CALL + 8]), (own(0, 1), vec![0]));
    // The sampled program had called a helper before the interrupt.
    assert_eq!(precise(&index, PROG_B + 4, &[LOOKUP, PROG_B + 8, TRACE_CALL + 8]), (own(1, 0), vec![1]));
    // The sample is in code that runs a program: first a hook, then a trampoline. Each had called its program before the interrupt.
    assert_eq!(precise(&index, TRACE_CALL + 4, &[PROG_A, TRACE_CALL + 8]), (Charge::Entry, vec![]));
    let entry = Charge::Program { program: 2, function: None, column: ChargeColumn::Entry, called: None };
    assert_eq!(precise(&index, TRAMP_KERNEL + 8, &[PROG_C, TRAMP_KERNEL + 0x10]), (entry, vec![2]));
    let entry = Charge::Program { program: 2, function: None, column: ChargeColumn::Entry, called: Some(ENTER + 4) };
    assert_eq!(precise(&index, ENTER + 4, &[TRAMP_KERNEL + 8, VFS_READ]), (entry, vec![2]));
    // Neither the sampled function nor the interrupted function was called by a program, so nothing is charged to a program.
    assert_eq!(precise(&index, VFS_READ + 4, &[VFS_READ + 8]), (Charge::Elsewhere, vec![]));
}

/// The frame of an attribution is an address in the charged program, even if another program is further out in the chain.
#[test]
fn the_frame_is_that_of_the_function_that_is_charged() {
    let index = index(true);
    let frame = |frames: &[u64]| {
        let words = [&[context::KERNEL], frames].concat();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let chain = Callchain::new(&bytes, Endian::Little);
        Attributor::new(&index).attribution(frames.first().copied(), Some(chain), 5).frame()
    };
    assert_eq!(frame(&[PROG_A_SUB + 1, PROG_A + 0x20, TRACE_CALL + 8]), Some(PROG_A_SUB + 1));
    assert_eq!(frame(&[VFS_READ, LOOKUP + 4, PROG_A + 0x20, LOOKUP + 8, PROG_B + 8]), Some(PROG_A + 0x20));
    assert_eq!(frame(&[VFS_READ]), None);
    assert_eq!(
        frame(&[ENTER + 4, TRAMP_KERNEL + 0x20, VFS_READ, PROG_A + 8]),
        None,
        "the caller of the program is charged"
    );
}

#[test]
fn what_runs_programs_is_entry_and_the_function_that_is_traced_is_not() {
    let index = index(true);
    let entry = |called| Charge::Program { program: 2, function: None, column: ChargeColumn::Entry, called };
    assert_eq!(attribution(&index, &[TRAMP_KERNEL + 0x20, VFS_READ + 4]), (entry(None), vec![2]));
    assert_eq!(attribution(&index, &[ENTER + 4, TRAMP_KERNEL + 0x20, VFS_READ]), (entry(Some(ENTER + 4)), vec![2]));
    // The trampoline called the function that it instruments. This function's cost is not charged to the program.
    assert_eq!(attribution(&index, &[VFS_READ + 0x30, TRAMP_KERNEL + 0x40]), (Charge::Elsewhere, vec![]));
    // Programs 3 and 4 are attached to program 0 by a trampoline. Program 0 is further out in the chain, but programs 3 and 4 are charged.
    let shared = Charge::SharedEntry { group: 1, strangers: 0, interval: None };
    assert_eq!(attribution(&index, &[ENTER, TRAMP_PROG + 0x10, PROG_A + 1]), (shared, vec![0]));
    assert_eq!(index.hooks.groups()[1].programs, Box::from([3, 4]));
    // The trampoline had called the function that it instruments, a function of program 0. The sample is charged to program 0.
    assert_eq!(attribution(&index, &[PROG_A + 8, TRAMP_PROG + 0x40, TRACE_CALL + 8]).0, own(0, 0));
    // A hook without a program in the chain; the same hook inside another program's helper.
    assert_eq!(attribution(&index, &[LOOKUP, TRACE_CALL + 8]), (Charge::Entry, vec![]));
    assert_eq!(attribution(&index, &[TRACE_CALL + 8, LOOKUP + 8, PROG_B + 8]).0, helper(1, 0, LOOKUP + 7));
}

#[test]
fn code_that_nothing_accounts_for_is_told_where_bpf_code_can_be() {
    let index = index(true);
    assert_eq!(attribution(&index, &[PROG_C + 0x90]), (Charge::UnknownCode, vec![]));
    assert_eq!(attribution(&index, &[LOOKUP, PROG_C + 0x90]).0, Charge::UnknownCode);
    assert_eq!(attribution(&index, &[PROG_C + 0x90, PROG_A + 8]).0, helper(0, 0, PROG_C + 0x90));
    assert_eq!(attribution(&index, &[MODULE.0 + 8]).0, Charge::Elsewhere, "a module's");
    assert_eq!(attribution(&index, &[0xffff_8000_0000]).0, Charge::Elsewhere, "an address that cannot be BPF code");
    let without_maps = index_with(true, false);
    assert_eq!(attribution(&without_maps, &[PROG_C + 0x90]).0, Charge::Elsewhere);
}

#[test]
fn without_kernel_symbols_less_is_known_and_nothing_is_guessed() {
    let index = index(false);
    assert_eq!(attribution(&index, &[LOOKUP, TRACE_CALL + 8]).0, Charge::Elsewhere);
    assert_eq!(attribution(&index, &[ENTER + 4, TRAMP_KERNEL + 0x20]).0, Charge::Elsewhere);
    // A function that a trampoline on a program calls is charged to the programs attached there. A function that the program itself calls is charged
    // to the program.
    assert_eq!(
        attribution(&index, &[ENTER + 4, TRAMP_PROG + 0x20]).0,
        Charge::SharedEntry { group: 1, strangers: 0, interval: None }
    );
    assert_eq!(attribution(&index, &[LOOKUP + 4, PROG_A + 0x20]).0, helper(0, 0, LOOKUP + 4));
}

#[test]
fn samples_in_user_mode_and_without_chains() {
    let index = index(true);
    let mut attributor = Attributor::new(&index);
    assert_eq!(attributor.attribution(None, None, 5).charge, Charge::Elsewhere);
    assert_eq!(attributor.attribution(Some(PROG_B + 1), None, 5).charge, own(1, 0));
    let last = attributor.attribution(Some(VFS_READ), None, 5);
    assert_eq!(last.charge, Charge::Elsewhere);
    assert_eq!(last.programs(), [0u32; 0], "nothing is left from the sample before");
}

#[test]
fn sums_agree_with_what_was_put_in() {
    let index = index(true);
    let mut ledger = EventLedger::default();
    let chains: [(&[u64], u64); 6] = [
        (&[PROG_A + 1], 10),
        (&[PROG_A_SUB + 1, PROG_A + 0x20], 20),
        (&[LOOKUP, PROG_A + 0x20], 40),
        (&[PROG_B + 8, TRACE_CALL + 8, LOOKUP + 0x10, PROG_A + 0x20], 80),
        (&[ENTER, TRAMP_PROG + 0x10, PROG_A + 1], 160),
        (&[VFS_READ], 320),
    ];
    for (frames, weight) in chains {
        let mut words = vec![context::KERNEL];
        words.extend(frames);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut attributor = Attributor::new(&index);
        let attribution = attributor.attribution(Some(frames[0]), Some(Callchain::new(&bytes, Endian::Little)), 5);
        ledger.sample(Count { samples: 1, weight }, Some(weight), Some(0));
        ledger.charge(&attribution, Count { samples: 1, weight });
    }
    let count = |samples, weight| Count { samples, weight };
    // Programs 3 and 4 share the hook's weight of 160 in the ratio of their runs, 1 : 3.
    let window = Window::everything();
    let rates = vec![None, None, None, Some(1), Some(3)];
    let weights = HookWeights::of_rates(&index, &window, rates);
    let mut twice = ledger.clone();
    twice.merge(ledger.clone());
    [&mut ledger, &mut twice].into_iter().for_each(|ledger| ledger.share_entry(&weights, &[]));
    let a = ledger.programs.get(0);
    assert_eq!((a.own, a.helper, a.entry), (count(2, 30), count(1, 40), count(0, 0)));
    assert_eq!(a.total, count(5, 10 + 20 + 40 + 80 + 160), "each sample counts once, in whatever functions it is");
    assert_eq!(ledger.programs.get(1).own, count(1, 80));
    assert_eq!(ledger.entry, count(0, 0));
    assert_eq!((ledger.programs.get(3).entry, ledger.programs.get(4).entry), (count(0, 40), count(1, 120)));
    assert_eq!(ledger.programs.get(4).shared_entry, count(1, 120));
    assert_eq!(ledger.programs.get(4).total, count(1, 120));
    assert_eq!(ledger.samples, count(6, 630));
    assert_eq!(ledger.span, Some((10, 320)));

    assert_eq!(twice.programs.get(0).own, count(4, 60));
    assert_eq!((twice.samples, twice.span), (count(12, 1260), Some((10, 320))));
}

/// The kernel fills the fields of an event before its programs run, and also if the event has no programs.
#[test]
fn what_fills_an_event_is_its_programs_if_it_has_some() {
    const FILL: u64 = ENTER;
    const SUBMIT: u64 = TRACE_CALL;
    const TRACE_ITERATOR: u64 = VFS_READ;
    let symbol = |addr, name: &str| KernelSymbol { addr, len_bytes: 0x100, name: name.into() };
    let charge = |fill: &str, target: &str, frames: &[u64]| {
        let symbols = KernelSymbols::new(vec![
            symbol(FILL, fill),
            symbol(SUBMIT, "perf_trace_run_bpf_submit"),
            symbol(TRACE_ITERATOR, "__traceiter_sched_waking"),
        ]);
        let info = ProgInfoSummary { prog_type: Some(ProgType::TRACEPOINT), ..ProgInfoSummary::default() };
        let program =
            IndexedProgram { id: Some(10), info: Some(info), loaded_ns: Some(2), ..IndexedProgram::default() };
        let (kind, target) = ("tracepoint".into(), AttachTarget::default().words(target));
        let attachments = vec![Attachment { prog_id: 10, link_id: None, kind, target }];
        let states = States { attachments, ..States::default() };
        let ranges = vec![Range::always(PROG_A, PROG_A + 0x80, Code::Function { program: 0, function: 0 })];
        let list = vec![program];
        let index = Index {
            hooks: Hooks::new(&symbols, &list, &states, &[], &TrampolinePrograms::default()),
            programs: Programs { list, ..Programs::default() },
            code: CodeMap::new(ranges, symbols, KernelMaps::default()),
            ..Index::default()
        };
        attribution(&index, frames).0
    };
    let entry = Charge::Program { program: 0, function: None, column: ChargeColumn::Entry, called: None };
    let fill = [LOOKUP + 4, FILL + 8];
    assert_eq!(charge("perf_trace_sys_enter", "raw_syscalls:sys_enter", &fill), entry);
    assert_eq!(charge("perf_trace_sys_enter", "raw_syscalls:sys_enter", &fill[1..]), entry);
    assert_eq!(charge("perf_syscall_enter", "syscalls:sys_enter_read", &fill), entry);
    // Without a BPF program on the event, the kernel fills the fields for another user of the event, so nothing is charged.
    assert_eq!(charge("perf_trace_sys_enter", "raw_syscalls:sys_exit", &fill), Charge::Elsewhere);
    assert_eq!(charge("perf_syscall_enter", "syscalls:sys_exit_read", &fill), Charge::Elsewhere);
    // All events of a class share one function; `__traceiter_NAME` in the chain identifies the event.
    let class = "perf_trace_sched_wakeup_template";
    let through_iterator = [LOOKUP + 4, FILL + 8, TRACE_ITERATOR + 8];
    assert_eq!(charge(class, "sched:sched_waking", &through_iterator), entry);
    assert_eq!(charge(class, "sched:sched_wakeup", &through_iterator), Charge::Elsewhere);
    assert_eq!(charge(class, "sched:sched_wakeup", &fill), Charge::Elsewhere);
    assert_eq!(charge(class, "sched:sched_wakeup", &[SUBMIT + 4, FILL + 8]), entry, "the event ran a program");
    // This function belongs to no event, although its name starts like those of events.
    assert_eq!(charge("perf_trace_add", "sched:sched_waking", &fill), Charge::Elsewhere);
    // A sample inside a program's helper belongs to the program.
    let in_helper = [FILL + 8, PROG_A + 8];
    assert_eq!(charge("perf_trace_sys_enter", "raw_syscalls:sys_exit", &in_helper), helper(0, 0, FILL + 8));
}

/// The task was at 0x40_0000 in user space: at a uprobe with the offset 0 in its page, or else at a uprobe without a program.
#[test]
fn what_runs_a_uprobe_is_its_programs_where_the_task_was_at_it() {
    let symbol = |addr, name: &str| KernelSymbol { addr, len_bytes: 0x100, name: name.into() };
    let charge = |targets: &[(u32, &str)]| {
        let symbols =
            KernelSymbols::new(vec![symbol(ENTER, "__uprobe_perf_func"), symbol(TRACE_CALL, "uprobe_dispatcher")]);
        let attachments = targets.iter().map(|(prog_id, target)| Attachment {
            prog_id: *prog_id,
            link_id: None,
            kind: "uprobe".into(),
            target: AttachTarget::default().words(target),
        });
        let states = States { attachments: attachments.collect(), ..States::default() };
        let list: Vec<IndexedProgram> =
            [10, 11].map(|id| IndexedProgram { id: Some(id), ..IndexedProgram::default() }).into();
        let index = Index {
            hooks: Hooks::new(&symbols, &list, &states, &[], &TrampolinePrograms::default()),
            programs: Programs { list, ..Programs::default() },
            code: CodeMap::new(Vec::new(), symbols, KernelMaps::default()),
            ..Index::default()
        };
        attribution(&index, &[VFS_READ + 4, ENTER + 8, TRACE_CALL + 8]).0
    };
    let entry = |program| Charge::Program { program, function: None, column: ChargeColumn::Entry, called: None };
    assert_eq!(charge(&[(10, "/bin/x+0x5008"), (11, "/bin/x+0x6000")]), entry(1));
    assert_eq!(charge(&[(10, "/bin/x+0x5000"), (11, "/bin/x+0x6008")]), entry(0));
    assert_eq!(charge(&[(10, "/bin/x+0x5008"), (11, "/bin/x+0x6008")]), Charge::Elsewhere);
}
