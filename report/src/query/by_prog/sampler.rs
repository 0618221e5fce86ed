//! Events sampled by bprec's sampling program, and its blind spot.
//!
//! The program cannot see code under the kernel's guard ([`IndexedProgram::is_guarded`](crate::index::programs::IndexedProgram::is_guarded)). An
//! event without an attached program samples this code, too: one such event, the main event, measures the blind spot.

use super::facts::Facts;
use super::shares::percent;
use crate::index::Index;
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::model::{BlindSpot, BpfSampler, Program, Reason};
use rustc_hash::FxHashSet;

impl Facts<'_> {
    /// Returns true if bprec's sampling program made the samples of an event.
    pub(super) fn is_sampled_by_program(&self, event: usize) -> bool {
        self.recording.kinds[event] == EventKind::BpfSampler
    }

    /// Returns the facts of an event sampled by bprec's sampling program.
    pub(super) fn bpf_sampler(&self, event: usize) -> Option<BpfSampler> {
        if !self.is_sampled_by_program(event) {
            return None;
        }
        let told = self.index.states.sampler.as_ref();
        let rate = |is_frequency| told.filter(|told| told.is_frequency == is_frequency).map(|told| told.rate);
        let counts = told.and_then(|told| told.counts);
        Some(BpfSampler {
            carrier: told.map(|told| told.event.clone()),
            carriers: told.map(|told| told.events),
            frequency: rate(true),
            period: rate(false),
            runs: counts.map(|counts| counts.runs),
            written: counts.map(|counts| counts.written),
            full: counts.map(|counts| counts.full),
            failed: counts.map(|counts| counts.failed),
            last_errno: counts.map(|counts| counts.last_errno),
            blind_spot: self.common.main_event.map(|main| {
                let (inside, of) = (self.ledgers[main].guarded, self.ledgers[main].samples);
                let event = self.recording.names[main].clone();
                BlindSpot { event, inside, of, percent: percent(inside.samples, Some(of.samples)) }
            }),
        })
    }
}

/// Returns the main event, which measures the blind spot: the first selected event of the same kind as the event to which the sampling
/// program is attached, or else the first selected event. Other events with attached programs are not used: they have the same blind spot.
pub(super) fn main_event(recording: &OpenRecording<'_>, index: &Index, asked: &[bool]) -> Option<usize> {
    let told = index.states.sampler.as_ref();
    let on_events =
        index.states.attachments.iter().filter(|it| it.kind == "perf_event" && it.target.text().ends_with(b")"));
    let carriers: FxHashSet<&[u8]> = on_events.map(|it| it.target.text()).collect();
    let carries_program =
        |event: usize| index.aggregations.contains_key(&event) || carriers.contains(recording.names[event].as_bytes());
    let is_main =
        |event: &usize| asked[*event] && recording.kinds[*event] == EventKind::Pmu && !carries_program(*event);
    let mut mains = (0..asked.len()).filter(is_main);
    let is_kind = |event: &usize| {
        let attr = &recording.event(*event).attr;
        told.is_some_and(|told| (told.event_type, told.event_config) == (attr.kind, attr.config))
    };
    mains.clone().find(is_kind).or_else(|| mains.next())
}

/// Returns why samples made by bprec's sampling program cannot see a program.
pub(super) fn unseen(program: &Program, guarded: bool) -> Option<Reason> {
    let prog_type = program.prog_type?.to_string();
    guarded.then_some(Reason::Guarded { prog_type })
}
