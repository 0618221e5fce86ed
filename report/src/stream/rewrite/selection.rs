//! Selection of samples for a rewritten recording.

use bprec_format::{Events, Metadata, RECORD_HEADER_BYTES, Record, Sample, SampleType, misc};
use rustc_hash::FxHashMap;

use crate::index::programs::IndexedProgram;
use crate::index::{Index, Wanted};
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::input::window::Window;
use crate::pass::attribution::Attributor;
use crate::pass::readings::{Counter, Readings};
use crate::pass::selected_comms;
use crate::{CpuList, Error, Input, Result, RewriteOptions, Source, TimeRange};

/// Selection resolved for one recording.
pub(in crate::stream) struct RecordSelection {
    window: Window,
    cpus: Option<CpuList>,
    chosen: Option<IndexedSelection>,
}

/// Selected programs and tasks, with the index by which samples are attributed to them.
struct IndexedSelection {
    index: Index,
    /// True for selected programs, by program number; empty if all are selected.
    programs: Vec<bool>,
    /// True for selected names of tasks, by number; empty if all are selected.
    comms: Vec<bool>,
}

impl RecordSelection {
    /// Resolves `options`; `None` if everything is selected. For percentages, plain seconds, programs and tasks, reads the whole recording first.
    pub(in crate::stream) fn new(source: &mut Source, options: &RewriteOptions) -> Result<Option<RecordSelection>> {
        let needs_index = !options.programs.is_empty() || !options.comms.is_empty();
        if options.cpus.is_none() && options.time == TimeRange::All && !needs_index {
            return Ok(None);
        }
        let window = crate::stream::window(source, &options.time)?;
        let chosen = if needs_index { Some(look(source.whole()?, options)?) } else { None };
        Ok(Some(RecordSelection { window, cpus: options.cpus.clone(), chosen }))
    }
}

fn look(input: &Input, options: &RewriteOptions) -> Result<IndexedSelection> {
    let wanted = Wanted { tasks: !options.comms.is_empty(), ..Wanted::default() };
    let index = OpenRecording::open_with_events(input).map(|recording| Index::build(&recording, wanted));
    let index = input.checked(index)?;
    let comms = selected_comms(&index, &options.comms, true)?;
    if options.programs.is_empty() {
        return Ok(IndexedSelection { index, programs: Vec::new(), comms });
    }
    let known = index.programs.list.iter();
    let programs: Vec<bool> = known.map(|known| options.programs.iter().any(|filter| known.matches(filter))).collect();
    if !programs.contains(&true) {
        return Err(Error::no_program(&options.programs, index.programs.list.iter().map(IndexedProgram::name)));
    }
    Ok(IndexedSelection { index, programs, comms })
}

impl IndexedSelection {
    /// Returns true if the name of the sample's task is selected.
    fn has_task_of(&self, sample: &Sample<'_>) -> bool {
        let comm = |tid: u32| self.index.tasks.at(tid, sample.time_ns().unwrap_or(u64::MAX));
        let is_selected = |comm: u32| self.comms[comm as usize];
        self.comms.is_empty() || sample.pid_tid().and_then(|(_, tid)| comm(tid)).is_some_and(is_selected)
    }
}

/// Filter that decides for each sample if the sample stays.
pub(in crate::stream) struct Sieve<'s> {
    selection: &'s RecordSelection,
    attributor: Option<Attributor<'s>>,
    /// Kinds by event.
    kinds: Vec<EventKind>,
}

impl<'s> Sieve<'s> {
    /// Makes the filter for a recording with these events.
    pub(in crate::stream) fn new(
        selection: &'s RecordSelection,
        events: &Events,
        metadata: &Metadata<'_>,
    ) -> Sieve<'s> {
        let kinds = EventKind::of_all(events, &metadata.event_names());
        let chosen = selection.chosen.as_ref().filter(|chosen| !chosen.programs.is_empty());
        let attributor = chosen.map(|chosen| Attributor::new(&chosen.index));
        Sieve { selection, attributor, kinds }
    }

    /// Returns true if a sample stays in the output, and the time of the sample if it is selected. States of the recorder always stay, because other
    /// samples depend on them, but they do not count as selected.
    pub(in crate::stream) fn keeps(&mut self, record: &Record<'_>, events: &Events) -> (bool, Option<u64>) {
        let Some(index) = events.index_of(record) else { return (false, None) };
        if self.kinds.get(index) == Some(&EventKind::State) {
            return (true, None);
        }
        let event = events.all().get(index);
        match event.and_then(|event| event.layout.sample(record.body(), record.offset).ok()) {
            Some(sample) if self.selects(record, &sample, index) => (true, sample.time_ns()),
            _ => (false, None),
        }
    }

    /// Returns true if a sample is in a selected program. States of the recorder are in no program.
    pub(in crate::stream) fn is_of_programs(&mut self, record: &Record<'_>, events: &Events) -> bool {
        let index = events.index_of(record).filter(|index| self.kinds.get(*index) != Some(&EventKind::State));
        let sample = |index: usize| events.all().get(index)?.layout.sample(record.body(), record.offset).ok();
        index.is_some_and(|index| sample(index).is_some_and(|sample| self.is_in_program(record, &sample, index)))
    }

    fn selects(&mut self, record: &Record<'_>, sample: &Sample<'_>, event: usize) -> bool {
        let RecordSelection { window, cpus, .. } = self.selection;
        (window.whole || sample.time_ns().is_some_and(|time| window.contains(time)))
            && cpus.as_ref().is_none_or(|cpus| sample.cpu().is_some_and(|cpu| cpus.contains(cpu)))
            && self.selection.chosen.as_ref().is_none_or(|chosen| chosen.has_task_of(sample))
            && self.is_in_program(record, sample, event)
    }

    /// Returns true if a selected program, or the code that runs it, is in the sample's kernel call chain, or if all programs are selected.
    fn is_in_program(&mut self, record: &Record<'_>, sample: &Sample<'_>, event: usize) -> bool {
        let (Some(attributor), Some(chosen)) = (&mut self.attributor, &self.selection.chosen) else { return true };
        let in_kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        let leaf = sample.ip().filter(|_| in_kernel);
        let kind = self.kinds.get(event).copied().unwrap_or(EventKind::Other);
        let chain = kind.callchain(sample, record.offset).ok().flatten();
        let attribution = attributor.attribution(leaf, chain, sample.time_ns().unwrap_or(u64::MAX));
        // All programs on the same hook are compared with the selection: to split the cost of the hook, a report needs the samples of all of them.
        let mut programs = attribution.programs().iter().chain(attribution.sharers());
        programs.any(|program| chosen.programs[*program as usize])
    }
}

/// Adjusts the counter values in samples after other samples were removed. The growth from sample to sample stays as in the input: each kept value is
/// the previous kept value plus the growth since the sample before it in the input, kept or not. Growth at removed samples is thus left out.
#[derive(Default)]
pub(in crate::stream) struct KeptReadings {
    readings: Readings,
    kept: FxHashMap<Counter, u64>,
}

impl KeptReadings {
    /// Returns the sample with adjusted values; `None` if it has no counters, or if they cannot be read. Removed samples must be passed as well, with
    /// `keeps` false.
    pub(in crate::stream) fn replace(&mut self, record: &Record<'_>, events: &Events, keeps: bool) -> Option<Vec<u8>> {
        let index = events.index_of(record)?;
        let event = &events.all()[index];
        if !event.attr.sample_type.contains(SampleType::READ) {
            return None;
        }
        let sample = event.layout.sample(record.body(), record.offset).ok()?;
        let (fields, offsets) = (sample.decode().ok()?, sample.read_value_offsets().ok()?);
        let mut grown = Vec::new();
        // Errors are ignored here: an inconsistent value stays in the sample, and readers report it.
        let _ =
            self.readings.each(events, index, &fields, record.offset, |it| grown.push((it.nr, it.counter, it.grown)));
        if !keeps {
            return None;
        }
        let offsets: Vec<usize> = offsets.collect();
        let mut bytes = record.bytes.to_vec();
        for (nr, counter, grown) in grown {
            let kept = self.kept.entry(counter).or_default();
            *kept = kept.saturating_add(grown);
            let at = RECORD_HEADER_BYTES + offsets.get(nr)?;
            bytes.get_mut(at..at + 8)?.copy_from_slice(&events.endian().bytes_u64(*kept));
        }
        Some(bytes)
    }
}
