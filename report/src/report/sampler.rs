//! Events whose samples our sampling program made, and what such a program cannot see.
//!
//! It cannot see what runs under the kernel's [guard](crate::guard). The main events carry no program, so that their samples say
//! how much that is.

use super::{Count, Program};
use crate::charge::EventLedger;
use crate::index::Index;
use crate::recording::{Recording, Role};
use bprec_format::state::{self, SamplerCounts};

/// How the samples of an event came about that our sampling program made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfSampler {
    /// Name of the event that carries the program; `None` when the recording does not say.
    pub carrier: Option<String>,
    /// `rate` is samples per second, not events per sample.
    pub is_frequency: bool,
    /// How often the carrier samples.
    pub rate: Option<u64>,
    /// Events opened, one per CPU or per task and CPU.
    pub carriers: Option<u32>,
    /// What became of its runs; `None` when the recording was cut off.
    pub counts: Option<SamplerCounts>,
    /// What it cannot see; `None` when no main event was looked at.
    pub blind_spot: Option<BlindSpot>,
}

/// How much of a main event falls into programs that a program on an event cannot see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlindSpot {
    /// Name of the main event.
    pub event: String,
    /// Its samples inside kprobe, tracepoint and perf_event programs.
    pub inside: Count,
    /// All of its samples.
    pub of: Count,
}

/// What is to be said about the event at `event`, if our sampling program made its samples.
pub(super) fn bpf_sampler(
    recording: &Recording<'_>,
    index: &Index,
    ledgers: &[EventLedger],
    asked: &[bool],
    event: usize,
) -> Option<BpfSampler> {
    if recording.roles[event] != Role::Sampler {
        return None;
    }
    let told = index.states.sampler.as_ref();
    Some(BpfSampler {
        carrier: told.map(|told| told.event.clone()),
        is_frequency: told.is_some_and(|told| told.is_frequency),
        rate: told.map(|told| told.rate),
        carriers: told.map(|told| told.events),
        counts: told.and_then(|told| told.counts),
        blind_spot: main_event(recording, index, asked).map(|main| BlindSpot {
            event: recording.names[main].clone(),
            inside: ledgers[main].guarded,
            of: ledgers[main].samples,
        }),
    })
}

/// The main event to hold against: of the kind that carries the program, or else the first. One that carries a program itself is
/// as blind.
fn main_event(recording: &Recording<'_>, index: &Index, asked: &[bool]) -> Option<usize> {
    let told = index.states.sampler.as_ref();
    let carries_program = |event: usize| {
        let name = recording.names[event].as_bytes();
        let on_it = |it: &state::Attachment| it.kind == "perf_event" && it.target == name && name.ends_with(b")");
        index.aggregations.contains_key(&event) || index.states.attachments.iter().any(on_it)
    };
    let is_main =
        |event: &usize| asked[*event] && recording.roles[*event] == Role::Sampling && !carries_program(*event);
    let mut mains = (0..asked.len()).filter(is_main);
    let is_kind = |event: &usize| {
        let attr = &recording.event(*event).attr;
        told.is_some_and(|told| (told.event_type, told.event_config) == (attr.kind, attr.config))
    };
    mains.clone().find(is_kind).or_else(|| mains.next())
}

/// Why the samples that our sampling program made say nothing about a program.
pub(super) fn unseen(program: &Program, guarded: bool) -> Option<super::Unknown> {
    let prog_type = program.prog_type?;
    guarded.then(|| {
        super::Unknown(format!(
            "the kernel drops, uncounted, the samples of events with a program while a {prog_type} program runs"
        ))
    })
}
