//! Whose the cost of a hook is: the kernel function that leads to it tells the place, and if one program only is attached
//! there, it is that program's.

use crate::index::programs::Program;
use crate::index::symbols::KernelSymbols;
use bprec_format::bpf::names::ProgType;
use bprec_format::state::Attachment;
use rustc_hash::FxHashMap;

/// Kernel functions that exist once per tracepoint, before its name, and how programs that they lead to are attached.
const PER_TRACEPOINT: [(&str, &str); 3] =
    [("__bpf_trace_", "raw_tracepoint"), ("__traceiter_", "raw_tracepoint"), ("perf_trace_", "tracepoint")];

/// Kernel functions that run programs of one type.
const PER_TYPE: [(&str, ProgType); 6] = [
    ("bpf_prog_run_generic_xdp", ProgType::XDP),
    ("bpf_prog_run_xdp", ProgType::XDP),
    ("cls_bpf_classify", ProgType::SCHED_CLS),
    ("tcx_run", ProgType::SCHED_CLS),
    ("bpf_overflow_handler", ProgType::PERF_EVENT),
    ("bpf_flow_dissect", ProgType::FLOW_DISSECTOR),
];

/// Programs by the kernel functions that lead to them.
#[derive(Debug, Default)]
pub(crate) struct HookOwners {
    /// By number of the function. `None`: it leads to no known program, or to several.
    owners: FxHashMap<u32, Option<u32>>,
}

impl HookOwners {
    pub(crate) fn new(symbols: &KernelSymbols, known: &[Program], attachments: &[Attachment]) -> HookOwners {
        let tracepoints = owners_of_tracepoints(known, attachments);
        let of_types = PER_TYPE.map(|(_, prog_type)| {
            let is_of_type =
                |known: &Program| known.info.is_none_or(|info| info.prog_type.is_none_or(|known| known == prog_type));
            only_one((0..known.len()).filter(|program| is_of_type(&known[*program])))
        });
        let mut owners = FxHashMap::default();
        for (number, name) in symbols.names() {
            let per_tracepoint =
                PER_TRACEPOINT.iter().find_map(|(prefix, kind)| Some((name.strip_prefix(prefix)?, kind)));
            let per_type = PER_TYPE.iter().position(|(function, _)| *function == name);
            if let Some((tracepoint, kind)) = per_tracepoint {
                owners.insert(number, tracepoints.get(&(*kind, tracepoint.as_bytes())).copied().flatten());
            } else if let Some(at) = per_type {
                owners.insert(number, of_types[at]);
            }
        }
        HookOwners { owners }
    }

    /// The program that a kernel function leads to; `None` when the function says nothing, `Some(None)` when it leads to
    /// no program that could be told.
    pub(crate) fn of(&self, symbol: u32) -> Option<Option<u32>> {
        self.owners.get(&symbol).copied()
    }
}

/// By how a program is attached and the tracepoint's name: the program, or `None` of several.
fn owners_of_tracepoints<'a>(
    known: &[Program],
    attachments: &'a [Attachment],
) -> FxHashMap<(&'a str, &'a [u8]), Option<u32>> {
    let mut with_id: FxHashMap<u32, Option<u32>> = FxHashMap::default();
    for (program, known) in (0..).zip(known) {
        if let Some(id) = known.id {
            with_id.entry(id).and_modify(|one| *one = None).or_insert(Some(program));
        }
    }
    let mut owners: FxHashMap<(&str, &[u8]), Option<u32>> = FxHashMap::default();
    for attachment in attachments {
        let Some(owner) = with_id.get(&attachment.prog_id).copied() else { continue };
        let tracepoint = attachment.target.rsplit(|byte| *byte == b':').next().unwrap_or_default();
        let one = owners.entry((&attachment.kind, tracepoint)).or_insert(owner);
        if *one != owner {
            *one = None;
        }
    }
    owners
}

fn only_one(mut programs: impl Iterator<Item = usize>) -> Option<u32> {
    let first = programs.next()?;
    programs.all(|program| program == first).then_some(first as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::programs::ProgInfoSummary;
    use bprec_format::state::KernelSymbol;

    #[test]
    fn a_hook_is_the_only_programs_that_is_there() {
        let symbol = |n: u64, name: &str| KernelSymbol { addr: n << 12, len_bytes: 16, name: name.into() };
        let symbols = KernelSymbols::new(vec![
            symbol(0, "perf_trace_sys_enter"),
            symbol(1, "__bpf_trace_sys_enter"),
            symbol(2, "perf_trace_sched_switch"),
            symbol(3, "bpf_prog_run_generic_xdp"),
            symbol(4, "trace_call_bpf"),
            symbol(5, "__traceiter_sched_switch"),
        ]);
        let program = |id, prog_type| Program {
            id: Some(id),
            info: Some(ProgInfoSummary { at: 0, prog_type: Some(prog_type), load_time_ns: 0, uid: None }),
            ..Program::default()
        };
        let known = [
            program(10, ProgType::TRACEPOINT),
            program(11, ProgType::RAW_TRACEPOINT),
            program(12, ProgType::RAW_TRACEPOINT),
            program(13, ProgType::XDP),
        ];
        let attached = |prog_id, kind: &str, target: &str| Attachment {
            prog_id,
            link_id: None,
            kind: kind.into(),
            target: target.into(),
        };
        let hooks = HookOwners::new(
            &symbols,
            &known,
            &[
                attached(10, "tracepoint", "raw_syscalls:sys_enter"),
                attached(11, "raw_tracepoint", "sys_enter"),
                attached(12, "raw_tracepoint", "sys_enter"),
                attached(12, "raw_tracepoint", "sched_switch"),
                attached(12, "raw_tracepoint", "sched_switch"),
            ],
        );
        assert_eq!(hooks.of(0), Some(Some(0)));
        assert_eq!(hooks.of(1), Some(None), "two programs");
        assert_eq!(hooks.of(2), Some(None), "none of this kind");
        assert_eq!(hooks.of(3), Some(Some(3)));
        assert_eq!(hooks.of(4), None, "says nothing about the place");
        assert_eq!(hooks.of(5), Some(Some(2)), "twice the same");
    }
}
