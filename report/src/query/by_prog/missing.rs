//! Losses: samples, side-band records and programs that a recording lacks.

use super::facts::Facts;
use crate::index::Index;
use crate::input::cut_off::Cause;
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::input::window::since;
use crate::model::{MissedProgram, TimeBound};
use bprec_format::bpf::Tag;
use rustc_hash::FxHashSet;

/// Returns the number of lost samples of each event; `None` if unknown. The recorder's counts are used if it has them. Otherwise, LOST_SAMPLES
/// records give the losses, in three cases:
/// - A LOST_SAMPLES record does not identify its event: all losses are unknown.
/// - The recording has LOST records, which count the losses of all events together: losses of events without LOST_SAMPLES records are unknown.
/// - Otherwise, events without LOST_SAMPLES records lost nothing.
pub(super) fn lost(recording: &OpenRecording<'_>, index: &Index) -> Vec<Option<u64>> {
    let events = recording.events.all().len();
    if let Some(loss) = &index.states.loss
        && !loss.not_counted
    {
        let mut lost = vec![Some(0u64); events];
        for of_one in &loss.events {
            let event = recording.events.index_of_id(of_one.event_id).and_then(|event| lost.get_mut(event));
            event.into_iter().flatten().for_each(|lost| *lost = lost.saturating_add(of_one.lost));
        }
        return lost;
    }
    if index.lost.samples_of_any > 0 {
        return vec![None; events];
    }
    let none = (index.lost.records == 0).then_some(0);
    (0..events).map(|event| index.lost.samples.get(&event).copied().or(none)).collect()
}

impl Facts<'_> {
    /// Returns the side-band events with lost records, each with its count of lost records.
    pub(super) fn side_band_lost(&self) -> Vec<(String, u64)> {
        let kinds = self.recording.kinds.iter().zip(&self.recording.names);
        let side_band =
            kinds.zip(&self.lost).filter(|((kind, _), _)| matches!(kind, EventKind::State | EventKind::Other));
        let lost = side_band.filter_map(|((_, name), lost)| Some((name.clone(), (*lost).filter(|lost| *lost > 0)?)));
        lost.collect()
    }

    /// Returns programs that were loaded but are missing in the recording.
    pub(super) fn missed(&self) -> Vec<MissedProgram> {
        let start_ns = self.recorded.start_ns;
        let since_start = |time: u64| since(time, start_ns);
        let told = self.index.states.missed.iter().map(|missed| MissedProgram {
            id: missed.id,
            tag: missed.tag.map(Tag),
            time_ns: Some(since_start(missed.time_ns)),
            reason: missed.reason.clone().into(),
        });
        let mut missed: Vec<MissedProgram> = told.collect();
        let mut ids: FxHashSet<u32> = missed.iter().map(|missed| missed.id).collect();
        let listed =
            self.programs.iter().filter(|program| !program.captured && !program.counts_others).filter_map(|it| {
                let time_ns = it.loaded.filter(TimeBound::is_exact).map(|loaded| loaded.after_ns);
                Some((it.id?, it.tag, time_ns))
            });
        let recorder = self.index.states.recorder_pid();
        let announced = self.index.programs.announced.iter();
        let announced = announced.filter(|it| it.loader_pid.is_none() || it.loader_pid != recorder).map(|it| {
            let loaded_ns = it.loaded_ns.filter(|time| *time >= start_ns);
            (it.id, it.tag.map(Tag), loaded_ns.map(since_start))
        });
        let reason = match self.recording.cut_off().map(|cut_off| &cut_off.cause) {
            Some(Cause::Recorder(_)) => "the recording was cut off before its program infos were written",
            Some(Cause::File | Cause::Stream(_)) => {
                "the recording was cut off, and the part with its program infos is missing"
            }
            None => "the recording has no bpf_prog_info of the program",
        };
        let more = listed.chain(announced).filter(|(id, ..)| ids.insert(*id));
        missed.extend(more.map(|(id, tag, time_ns)| MissedProgram { id, tag, time_ns, reason: reason.into() }));
        missed.shrink_to_fit();
        missed.sort_unstable_by_key(|missed| (missed.id, missed.time_ns));
        missed
    }
}
