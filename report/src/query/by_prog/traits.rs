//! Facts of programs that do not depend on an event.

use super::groups::{GroupMembers, Grouping};
use crate::Options;
use crate::index::Index;
use crate::index::kernel::interrupts_off;
use crate::index::programs::TAIL_CALL;
use crate::model::{Known, Note, Program, Reason};
use crate::pass::Asked;
use rustc_hash::FxHashMap;

/// Returns true if a program was active, by facts other than samples.
pub(super) fn happened(program: &Program) -> bool {
    let has_missed = program.probe_misses.is_some_and(|misses| misses > 0);
    if has_missed || program.exact.value().is_some_and(|exact| exact.runs > 0) {
        return true;
    }
    match &program.runs {
        Known::Value(runs) => runs.count > 0 || runs.misses.is_some_and(|misses| misses > 0),
        // The program was loaded for a moment between the windows of run statistics, or the kernel never entered it. Such programs count as not
        // active; there may be hundreds.
        Known::Unknown(Reason::StatisticsWereOff | Reason::NotEntered) => false,
        // Without run counts, a program counts as active if it was loaded or unloaded during the recording.
        Known::Unknown(_) | Known::Impossible(_) => {
            let went = program.unloaded.is_some_and(|unloaded| unloaded.before_ns >= 0);
            program.captured && (program.loaded.is_some() || went)
        }
    }
}

/// Treatment of a program by the report of an event in which it has no samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutSamples {
    /// The program has a row, or is in the row of its group.
    Listed,
    /// The program has no row and is counted as quiet: it was not active, or was not requested.
    Quiet,
    /// The program is left out, because it counts other programs. It ran, so it does not count as quiet.
    Left,
}

/// Facts of a program that do not depend on an event.
#[derive(Debug)]
pub(super) struct Traits {
    /// True if the program runs under the kernel's guard against nesting.
    pub(super) guarded: bool,
    /// True if the program is in a program array.
    pub(super) is_tail_called: bool,
    /// Name of a hook of the program that fires with interrupts off, if there is one.
    pub(super) irqs_off: Option<String>,
    pub(super) without_samples: WithoutSamples,
}

/// Returns the traits of all programs.
pub(super) fn traits(
    index: &Index,
    programs: &[Program],
    asked: &Asked,
    grouping: Option<&Grouping>,
    options: &Options,
) -> Vec<Traits> {
    let traits = programs.iter().enumerate().map(|(position, program)| {
        let is_asked = asked.has(position as u32);
        let is_in_group = grouping.is_some_and(|grouping| grouping.of[position].is_some());
        let without_samples = if is_in_group {
            WithoutSamples::Listed
        } else if program.counts_others && asked.is_all() && !options.all && happened(program) {
            WithoutSamples::Left
        } else if is_asked && (options.all || !asked.is_all() || happened(program)) {
            WithoutSamples::Listed
        } else {
            WithoutSamples::Quiet
        };
        let irqs_off = program.attachments.iter().find_map(|attachment| {
            interrupts_off(&String::from_utf8_lossy(attachment.target.text())).map(str::to_owned)
        });
        let is_tail_called = program.attachments.iter().any(|attachment| attachment.kind == TAIL_CALL);
        Traits { guarded: index.guarded[position], is_tail_called, irqs_off, without_samples }
    });
    traits.collect()
}

/// Limit on the rows of programs without samples in all events together, in addition to as many rows as there are programs. Without a limit, each of
/// thousands of events might have rows for the same thousands of programs.
pub(super) const ROWS_WITHOUT_SAMPLES: usize = 1 << 14;

/// Facts that all events of a report share.
pub(super) struct Common {
    pub(super) traits: Vec<Traits>,
    /// Number of programs that are listed even without samples.
    pub(super) listed: usize,
    /// Number of programs that count as quiet ([`WithoutSamples::Quiet`]) in an event that has no samples of them.
    pub(super) quiet: usize,
    /// True if some programs are in program arrays.
    pub(super) has_tail_called: bool,
    /// Groups by number.
    pub(super) members: Vec<GroupMembers>,
    /// Event that measures the blind spot of a sampling program.
    pub(super) main_event: Option<usize>,
    /// Positions of the programs on each of the recording's own events, by the event's name.
    pub(super) carried: FxHashMap<String, Vec<usize>>,
    /// Note on why the runs of all programs are unknown.
    pub(super) no_runs: Option<Note>,
}
