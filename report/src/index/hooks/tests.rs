//! Hand-made call chains and attachments, with the programs that must be found for them.

use super::*;
use crate::index::programs::ProgInfoSummary;
use bprec_format::bprec::state::{AttachTarget, KernelSymbol, Session};

const NAMES: [&str; 22] = [
    "trace_call_bpf",
    "perf_trace_run_bpf_submit",
    "perf_trace_sys_enter",
    "bpf_trace_run2",
    "__bpf_trace_sys_enter",
    "__traceiter_sys_enter",
    "__bpf_trace_sched_wakeup_template",
    "__traceiter_sched_waking",
    "bpf_prog_run_generic_xdp",
    "kprobe_perf_func",
    "do_exit",
    "vfs_read",
    "perf_trace_sched_wakeup_template",
    "__cgroup_bpf_run_filter_skb",
    "bpf_overflow_handler",
    "sched_clock",
    "perf_call_bpf_exit",
    "kretprobe_perf_func",
    "__bpf_trace_sched_process_template",
    "__uprobe_perf_func",
    "uprobe_dispatcher",
    "uretprobe_dispatcher",
];

fn program(id: u32, prog_type: ProgType) -> IndexedProgram {
    let info = ProgInfoSummary { prog_type: Some(prog_type), ..ProgInfoSummary::default() };
    IndexedProgram { id: Some(id), info: Some(info), ..IndexedProgram::default() }
}

fn attached(prog_id: u32, kind: &str, target: &str) -> Attachment {
    Attachment { prog_id, link_id: None, kind: kind.into(), target: AttachTarget::default().words(target) }
}

/// Programs have the ids 10, 11 … in their order. The recording begins at 100.
fn hooks(programs: &[IndexedProgram], attachments: &[Attachment]) -> Hooks {
    let symbol = |(at, name): (u64, &str)| KernelSymbol { addr: at << 12, len_bytes: 16, name: name.into() };
    let symbols = KernelSymbols::new((0..).zip(NAMES).map(symbol).collect());
    let states = States {
        session: Some(Session { start_ns: 100, ..Session::default() }),
        attachments: attachments.to_vec(),
        ..States::default()
    };
    Hooks::new(&symbols, programs, &states, &[], &TrampolinePrograms::default())
}

/// Returns the programs that a chain of these functions is charged to at a time, and the number of strangers (programs with unknown attach points).
fn runners(hooks: &Hooks, chain: &[&str], time_ns: u64) -> Option<(Vec<u32>, u32)> {
    let number = |name: &&str| NAMES.iter().position(|known| known == name).unwrap() as u32;
    match hooks.runner(hooks.of(chain.iter().map(number))?, time_ns) {
        Runner::One(program) => Some((vec![program], 0)),
        Runner::Several { group, strangers } => Some((hooks.groups()[group as usize].programs.to_vec(), strangers)),
        Runner::Unknown => None,
    }
}

fn one(program: u32) -> Option<(Vec<u32>, u32)> {
    Some((vec![program], 0))
}

#[test]
fn functions_of_a_chain_lead_to_the_programs_on_their_hook() {
    let programs = [
        program(10, ProgType::TRACEPOINT),
        program(11, ProgType::RAW_TRACEPOINT),
        program(12, ProgType::TRACING),
        program(13, ProgType::XDP),
        program(14, ProgType::KPROBE),
        program(15, ProgType::KPROBE),
        program(16, ProgType::RAW_TRACEPOINT),
        program(17, ProgType::CGROUP_SKB),
        program(18, ProgType::PERF_EVENT),
        program(19, ProgType::XDP),
        program(20, ProgType::TRACEPOINT),
        program(21, ProgType::TRACEPOINT),
        program(22, ProgType::KPROBE),
    ];
    let hooks = hooks(
        &programs,
        &[
            attached(10, "tracepoint", "raw_syscalls:sys_enter"),
            attached(11, "raw_tracepoint", "sys_enter"),
            attached(12, "raw_tracepoint", "sys_enter"),
            attached(13, "xdp", "lo"),
            attached(14, "kprobe", "do_exit"),
            attached(15, "kprobe", "vfs_read+0x4"),
            attached(16, "raw_tracepoint", "sched_waking"),
            attached(17, "cgroup_inet_ingress", "/a"),
            attached(18, "perf_event", "cpu-clock"),
            attached(19, "tail_call", "jumps[0]"),
            attached(20, "tracepoint", "sched:sched_waking"),
            attached(21, "tracepoint", "syscalls:sys_exit_read"),
            attached(22, "kretprobe", "do_exit"),
        ],
    );
    let of = |chain: &[&str]| runners(&hooks, chain, 500);
    assert_eq!(of(&["trace_call_bpf", "perf_trace_run_bpf_submit", "perf_trace_sys_enter"]), one(0));
    assert_eq!(
        of(&[
            "sched_clock",
            "trace_call_bpf",
            "perf_trace_run_bpf_submit",
            "perf_trace_sys_enter",
            "__traceiter_sys_enter"
        ]),
        one(0)
    );
    let raw = Some((vec![1, 2], 0));
    assert_eq!(of(&["sched_clock", "bpf_trace_run2", "__bpf_trace_sys_enter", "__traceiter_sys_enter"]), raw);
    assert_eq!(of(&["__traceiter_sys_enter"]), raw);
    // Tracepoints of a class share a function, and its caller identifies the tracepoint. If the kernel calls the shared function without that caller,
    // no frame identifies the tracepoint.
    assert_eq!(of(&["bpf_trace_run2", "__bpf_trace_sched_wakeup_template", "__traceiter_sched_waking"]), one(6));
    assert_eq!(of(&["trace_call_bpf", "perf_trace_sched_wakeup_template", "__traceiter_sched_waking"]), one(10));
    assert_eq!(of(&["bpf_trace_run2", "__bpf_trace_sched_wakeup_template"]), one(6), "sys_enter has its own function");
    assert_eq!(of(&["bpf_trace_run2"]), Some((vec![1, 2, 6], 0)), "no frame identifies the hook");
    assert_eq!(of(&["bpf_prog_run_generic_xdp"]), one(3), "a program that is reached by tail calls is on no hook");
    // A probed function identifies its hook wherever it is further out in the chain.
    assert_eq!(of(&["trace_call_bpf", "kprobe_perf_func", "do_exit"]), one(4));
    assert_eq!(of(&["trace_call_bpf", "kprobe_perf_func", "sched_clock", "vfs_read", "do_exit"]), one(5));
    assert_eq!(
        of(&["do_exit", "trace_call_bpf", "perf_trace_sys_enter"]),
        one(0),
        "do_exit called by a hook is not a probe"
    );
    assert_eq!(of(&["trace_call_bpf", "kprobe_perf_func", "sched_clock"]), Some((vec![4, 5], 0)));
    assert_eq!(of(&["trace_call_bpf", "kretprobe_perf_func"]), one(12));
    assert_eq!(of(&["__cgroup_bpf_run_filter_skb"]), one(7));
    assert_eq!(of(&["bpf_overflow_handler"]), one(8));
    assert_eq!(of(&["trace_call_bpf", "perf_call_bpf_exit"]), one(11));
    assert_eq!(of(&["sched_clock", "vfs_read"]), None);
}

#[test]
fn programs_are_on_hooks_while_they_are_loaded() {
    let stays = program(10, ProgType::RAW_TRACEPOINT);
    let goes = IndexedProgram { loaded_ns: Some(200), unloaded_ns: Some(300), ..program(11, ProgType::RAW_TRACEPOINT) };
    // The program was loaded and unloaded before the recorder queried its attach points.
    let stranger =
        IndexedProgram { loaded_ns: Some(400), unloaded_ns: Some(500), ..program(12, ProgType::RAW_TRACEPOINT) };
    let of_another_type = IndexedProgram { loaded_ns: Some(0), unloaded_ns: None, ..program(13, ProgType::XDP) };
    let unknown = IndexedProgram { loaded_ns: Some(600), unloaded_ns: Some(700), ..IndexedProgram::default() };
    let programs = [stays, goes, stranger, of_another_type, unknown];
    let enter = |prog_id| attached(prog_id, "raw_tracepoint", "sys_enter");
    let hooks = hooks(&programs, &[enter(10), enter(11)]);
    let of = |time_ns| runners(&hooks, &["bpf_trace_run2", "__bpf_trace_sys_enter"], time_ns);
    assert_eq!((of(0), of(199), of(300)), (one(0), one(0), one(0)));
    assert_eq!(of(250), Some((vec![0, 1], 0)));
    assert_eq!(of(450), Some((vec![0], 1)), "each program runs whenever the hook is reached");
    assert_eq!(of(650), Some((vec![0], 1)));
    assert_eq!(runners(&hooks, &["bpf_trace_run2"], 450), None, "the run count of a stranger is unknown");
    assert_eq!(runners(&hooks, &["bpf_prog_run_generic_xdp"], 650), one(4), "no other program is attached there");
}

/// If the recording has no attachments, the cost of a hook is charged to the only program of a type that the hook runs. If several programs have such
/// a type, the program is unknown.
#[test]
fn of_recordings_without_attachments_the_only_program_is_told() {
    let symbols = |name: &str| KernelSymbols::new(vec![KernelSymbol { addr: 0, len_bytes: 16, name: name.into() }]);
    let of = |name: &str, programs: &[IndexedProgram]| {
        let hooks = Hooks::new(&symbols(name), programs, &States::default(), &[], &TrampolinePrograms::default());
        hooks.runner(hooks.of([0]).unwrap(), 5)
    };
    let xdp = program(10, ProgType::XDP);
    assert_eq!(of("do_xdp_generic", &[program(9, ProgType::KPROBE), xdp.clone()]), Runner::One(1));
    assert_eq!(of("do_xdp_generic", &[xdp.clone(), xdp]), Runner::Unknown);
    assert_eq!(of("do_xdp_generic", &[]), Runner::Unknown);
}

/// Two uprobes at different offsets in a page, and a uretprobe: the task's address in user space identifies the uprobe.
#[test]
fn uprobes_are_told_apart_by_where_the_task_was() {
    let programs = [10, 11, 12, 13].map(|id| program(id, ProgType::KPROBE));
    let hooks = hooks(
        &programs,
        &[
            attached(10, "uprobe", "/bin/x+0x1139"),
            attached(11, "uprobe", "/bin/x+0x213d"),
            attached(12, "uretprobe", "/bin/x+0x1139"),
            attached(13, "kprobe", "do_exit"),
        ],
    );
    let of = |chain: &[&str], user_ip: Option<u64>| {
        let number = |name: &&str| NAMES.iter().position(|known| known == name).unwrap() as u32;
        let hook = hooks.at_user_ip(hooks.of(chain.iter().map(number))?, user_ip)?;
        match hooks.runner(hook, 500) {
            Runner::One(program) => Some(vec![program]),
            Runner::Several { group, strangers: 0 } => Some(hooks.groups()[group as usize].programs.to_vec()),
            other => panic!("{other:?}"),
        }
    };
    let uprobe = ["__uprobe_perf_func", "uprobe_dispatcher"];
    assert_eq!(of(&uprobe, Some(0x5555_5555_5139)), Some(vec![0]));
    assert_eq!(of(&uprobe, Some(0x7f12_3456_713d)), Some(vec![1]));
    assert_eq!(of(&uprobe, Some(0x5555_5555_5140)), None, "a probe that runs no program");
    assert_eq!(of(&uprobe, None), Some(vec![0, 1]), "no address identifies the probe");
    // The task's address does not identify a uretprobe, as the probed function has already returned.
    assert_eq!(of(&["sched_clock", "uretprobe_dispatcher"], Some(0x5555_5555_5140)), Some(vec![2]));
    // A kprobe on `do_exit`, further out in the chain, is not the hook.
    assert_eq!(of(&["uprobe_dispatcher", "do_exit"], None), Some(vec![0, 1]));
    assert_eq!(of(&["trace_call_bpf", "kprobe_perf_func", "do_exit"], Some(0x139)), Some(vec![3]));
}

/// Linux 7.3: a program with a `tracing_multi` link is attached to several functions. On each of them, it shares the trampoline with the program that
/// is attached to this function alone.
#[test]
fn programs_of_multi_links_are_on_the_trampolines_of_their_functions() {
    let programs: Vec<IndexedProgram> = [10, 11, 12].map(|id| program(id, ProgType::TRACING)).into();
    let image = |btf_id| {
        let kind = ImageKind::Trampoline(TrampolineKey::Kernel { btf_obj_id: 1, btf_id });
        Image { name: String::new(), kind }
    };
    // Three trampolines: of vfs_read with program 10, of do_exit with program 11, and of a function without another program.
    let images = [image(100), image(200), image(300)];
    let at = TrampolinePrograms::of(&[((1, 100), &[0]), ((1, 200), &[1])], &[]);
    let ordinary = [attached(10, "fentry", "vfs_read"), attached(11, "fexit", "do_exit")];
    let runners = |multi: &[Attachment]| {
        let states = States {
            session: Some(Session { start_ns: 100, ..Session::default() }),
            attachments: [&ordinary[..], multi].concat(),
            ..States::default()
        };
        let hooks = Hooks::new(&KernelSymbols::default(), &programs, &states, &images, &at);
        [0, 1, 2].map(|image| match hooks.runner(hooks.of_image(image).unwrap(), 500) {
            Runner::One(program) => (vec![program], 0),
            Runner::Several { group, strangers } => (hooks.groups()[group as usize].programs.to_vec(), strangers),
            Runner::Unknown => (Vec::new(), 0),
        })
    };
    let listed = [attached(12, "fentry_multi", "vfs_read"), attached(12, "fentry_multi", "vfs_write")];
    assert_eq!(runners(&listed), [(vec![0, 2], 0), (vec![1], 0), (vec![2], 0)]);
    let unlisted = [attached(12, "fexit_multi", "vfs_read"), attached(12, "fexit_multi", "70 more")];
    assert_eq!(runners(&unlisted), [(vec![0, 2], 1), (vec![1], 1), (vec![2], 0)]);
    // Older recorders do not know the type of a `tracing_multi` link: they write `15` and no target.
    assert_eq!(runners(&[attached(12, "15", "")]), [(vec![0], 1), (vec![1], 1), (vec![2], 0)]);
    assert_eq!(runners(&[]), [(vec![0], 0), (vec![1], 0), (vec![], 0)]);
}
