//! Which programs run under the kernel's guard against nesting.
//!
//! While a kprobe, tracepoint or perf_event program runs, the kernel runs no perf_event program on that CPU (the guard is
//! `bpf_prog_active`): a sample that such a program would have got is dropped, and not counted.

use bprec_format::bpf::names::ProgType;
use bprec_format::state::Attachment;

/// Whether a program of this type, attached so, runs under the guard.
pub(crate) fn guards<'a>(prog_type: Option<ProgType>, attachments: impl Iterator<Item = &'a Attachment>) -> bool {
    match prog_type {
        Some(ProgType::TRACEPOINT | ProgType::PERF_EVENT) => true,
        // Programs on user probes are of the same type, and run without the guard.
        Some(ProgType::KPROBE) => {
            let mut kinds = attachments.map(|attachment| attachment.kind.as_str()).peekable();
            kinds.peek().is_none() || kinds.any(|kind| !kind.starts_with('u'))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_probes_run_without_the_guard() {
        let on = |kind: &str| Attachment { kind: kind.into(), ..Attachment::default() };
        let guards = |prog_type, kinds: &[&str]| {
            let attachments: Vec<Attachment> = kinds.iter().map(|kind| on(kind)).collect();
            guards(Some(prog_type), attachments.iter())
        };
        assert!(guards(ProgType::KPROBE, &[]));
        assert!(guards(ProgType::KPROBE, &["kretprobe_multi"]));
        assert!(guards(ProgType::KPROBE, &["uprobe", "kprobe"]));
        assert!(!guards(ProgType::KPROBE, &["uprobe", "uretprobe_multi"]));
        assert!(guards(ProgType::TRACEPOINT, &["tracepoint"]));
        assert!(guards(ProgType::PERF_EVENT, &["perf_event"]));
        for free in [ProgType::RAW_TRACEPOINT, ProgType::TRACING, ProgType::XDP] {
            assert!(!guards(free, &["raw_tracepoint"]));
        }
    }
}
