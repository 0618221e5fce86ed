//! Facts of programs that all events of a report share.

use super::groups::{Grouping, Members};
use crate::Options;
use crate::index::Index;
use crate::index::kernel::has_interrupts_off;
use crate::index::programs::TAIL_CALL;
use crate::model::{Known, Note, Program, Reason};
use crate::pass::Asked;
use rustc_hash::FxHashMap;

/// Returns true if a program did something by what is known without samples.
pub(super) fn happened(program: &Program) -> bool {
    if program.exact.value().is_some_and(|exact| exact.runs > 0) {
        return true;
    }
    match &program.runs {
        Known::Value(runs) => runs.count > 0 || runs.misses.is_some_and(|misses| misses > 0),
        // It was there for a moment, or nothing led to it; there may be hundreds like it.
        Known::Unknown(Reason::StatisticsWereOff | Reason::NotEntered) => false,
        // Programs gone before the recording started are no part of it.
        Known::Unknown(_) | Known::Impossible(_) => {
            let went = program.unloaded.is_some_and(|unloaded| unloaded.before_ns >= 0);
            program.captured && (program.loaded.is_some() || went)
        }
    }
}

/// Place of a program in an event without samples of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutSamples {
    /// In a row, or in that of its group.
    Listed,
    /// Among the quiet programs.
    Quiet,
    /// Not at all: it counts others.
    Left,
}

/// Facts of a program that all events share.
#[derive(Debug)]
pub(super) struct Traits {
    /// It runs under the kernel's guard.
    pub(super) guarded: bool,
    /// It is in a program array.
    pub(super) is_tail_called: bool,
    /// Its hook that runs with interrupts off.
    pub(super) irqs_off: Option<String>,
    pub(super) without_samples: WithoutSamples,
}

/// The traits of all programs.
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
        } else if program.counts_others && asked.is_all() && !options.all {
            WithoutSamples::Left
        } else if is_asked && (options.all || !asked.is_all() || happened(program)) {
            WithoutSamples::Listed
        } else {
            WithoutSamples::Quiet
        };
        let irqs_off = program.attachments.iter().find_map(|attachment| {
            let name = attachment.rsplit(':').next()?;
            has_interrupts_off(name).then(|| name.to_owned())
        });
        let is_tail_called =
            program.attachments.iter().any(|attachment| attachment.split(':').next() == Some(TAIL_CALL));
        Traits { guarded: index.guarded[position], is_tail_called, irqs_off, without_samples }
    });
    traits.collect()
}

/// Most rows of programs without samples in all events together, beyond one for each program. Events may be thousands, with the same thousand
/// programs in each.
pub(super) const ROWS_WITHOUT_SAMPLES: usize = 1 << 14;

/// Facts that the events of a report share.
pub(super) struct Common {
    pub(super) traits: Vec<Traits>,
    /// Number of programs with a row without samples.
    pub(super) listed: usize,
    /// Number of programs that are quiet without samples.
    pub(super) quiet: usize,
    /// Some are in program arrays.
    pub(super) has_tail_called: bool,
    /// Groups, by number.
    pub(super) members: Vec<Members>,
    /// The event that tells what a sampling program cannot see.
    pub(super) main_event: Option<usize>,
    /// By event's name: positions of programs that are on it.
    pub(super) carried: FxHashMap<String, Vec<usize>>,
    /// Why runs are known of no program.
    pub(super) no_runs: Option<Note>,
}
