//! Facts that follow from a program's type and attachments: its runs in the selected time, and the guard it runs under.

use super::IndexedProgram;
use crate::index::Index;
use crate::index::runs::Stretch;
use crate::index::states::States;
use crate::input::window::Window;
use crate::model::{Known, Reason};
use bprec_filter::ProgFilter;
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use bprec_format::bprec::state::Attachment;

/// Kind of attachment of programs in program arrays. The kernel does not count their runs by tail call.
pub(crate) const TAIL_CALL: &str = "tail_call";

impl Index {
    /// Runs of a program in the selected time, on all CPUs.
    pub(crate) fn runs_of(&self, known: &IndexedProgram, window: &Window) -> Known<Stretch> {
        let is_read = self.runs.is_in(window);
        if let Some(off) = self.states.stats_off.as_ref().filter(|off| !is_read || window.contains(off.time_ns)) {
            // Counts end at `off.time_ns`, so they do not cover all of the selected time.
            return Known::Unknown(Reason::recorder(&off.reason));
        }
        if !is_read {
            return Known::Unknown(match &self.states.session {
                None => Reason::NoRunStatistics,
                Some(session) if session.counters_note.is_empty() => {
                    Reason::CountersAre { counters: session.counters.clone() }
                }
                Some(session) => Reason::recorder(&session.counters_note),
            });
        }
        let Some(key) = known.key() else { return Known::Unknown(Reason::NoSnapshots) };
        match self.runs.within(key, window) {
            // The kernel counts neither runs by tail call nor runs of extensions.
            Known::Value(runs) if runs.count() == 0 && (self.is_tail_called(known) || known.is_extension()) => {
                Known::Unknown(Reason::NotEntered)
            }
            runs => runs,
        }
    }

    /// Returns true if only tail calls run the program.
    pub(crate) fn is_tail_called(&self, known: &IndexedProgram) -> bool {
        let attachments = self.states.attachments_of(known.id);
        !attachments.is_empty() && attachments.iter().all(|it| it.kind == TAIL_CALL)
    }
}

impl IndexedProgram {
    /// Returns true if the filter selects the program.
    pub(crate) fn matches(&self, filter: &ProgFilter) -> bool {
        filter.matches(self.id, self.tag.map(Tag), self.name())
    }

    /// Name of the entry function.
    pub(crate) fn name(&self) -> &str {
        self.functions.first().map_or("", |function| &function.name)
    }

    /// Start of the program's load on the recording's clock, ns; `None` if the program was not loaded during the recording, or when unknown. The
    /// kernel takes the load time before it verifies the program (`bpf_prog_load`, Linux 6.18); `loaded_ns` is the end of the load.
    pub(crate) fn load_began_ns(&self, states: &States) -> Option<u64> {
        let (_, load_time_ns) = self.key().filter(|_| self.loader.is_some())?;
        let began_ns = states.boot_times.to_recording(load_time_ns)?;
        Some(began_ns).filter(|began_ns| self.loaded_ns.is_some_and(|loaded_ns| *began_ns <= loaded_ns))
    }

    /// Id and load time, if both are known.
    pub(crate) fn key(&self) -> Option<(u32, u64)> {
        self.id.zip(self.info.map(|info| info.load_time_ns).or(self.state_load_time_ns))
    }

    /// Returns true if the program replaces a function of another program.
    pub(crate) fn is_extension(&self) -> bool {
        self.info.and_then(|info| info.prog_type) == Some(ProgType::EXT)
    }

    /// Returns true if the program runs under the kernel's guard against nesting (`bpf_prog_active`). While a kprobe, tracepoint or perf_event
    /// program runs, the kernel runs no perf_event program on that CPU: it drops the sample without counting it.
    pub(crate) fn is_guarded(&self, states: &States) -> bool {
        guards(self.info.and_then(|info| info.prog_type), states.attachments_of(self.id).iter())
    }
}

fn guards<'a>(prog_type: Option<ProgType>, attachments: impl Iterator<Item = &'a Attachment>) -> bool {
    match prog_type {
        Some(ProgType::TRACEPOINT | ProgType::PERF_EVENT) => true,
        // Programs on user probes have the same type but run without the guard.
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
