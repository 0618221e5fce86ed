//! Runs of a program in the selected time, or why they are not known.

use super::Index;
use super::programs::Program;
use super::runs::Stretch;
use crate::input::window::Window;
use crate::model::{Known, Reason};
use bprec_format::bpf::names::ProgType;

/// The kind of attachment of programs in program arrays: the kernel counts no run of those.
pub(crate) const TAIL_CALL: &str = "tail_call";

impl Index {
    /// Runs of a program in the selected time, on all CPUs.
    pub(crate) fn runs_of(&self, known: &Program, window: &Window) -> Known<Stretch> {
        let is_read = self.runs.is_in(window);
        if let Some(off) = self.states.stats_off.as_ref().filter(|off| !is_read || window.contains(off.time_ns)) {
            // What was counted until then is not of all of the time.
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
            // That is no count of its runs.
            Known::Value(runs) if runs.count() == 0 && (self.is_tail_called(known) || known.is_extension()) => {
                Known::Unknown(Reason::NotEntered)
            }
            runs => runs,
        }
    }

    /// Returns true if nothing but tail calls runs a program.
    pub(crate) fn is_tail_called(&self, known: &Program) -> bool {
        let attachments = self.states.attachments_of(known.id);
        !attachments.is_empty() && attachments.iter().all(|it| it.kind == TAIL_CALL)
    }
}

impl Program {
    /// Returns true if it runs in place of a function of another program.
    pub(crate) fn is_extension(&self) -> bool {
        self.info.and_then(|info| info.prog_type) == Some(ProgType::EXT)
    }
}
