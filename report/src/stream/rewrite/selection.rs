//! Samples that a rewritten recording keeps.

use bprec_format::{Events, Metadata, RECORD_HEADER_BYTES, Record, Sample, SampleType, misc};
use rustc_hash::FxHashMap;

use crate::index::programs::IndexedProgram;
use crate::index::{Index, Wanted};
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::input::window::Window;
use crate::pass::attribution::Attributor;
use crate::pass::readings::{Counter, Readings};
use crate::{CpuList, Input, ProgFilter, Result, RewriteOptions, Source, TimeRange};

/// Selection, resolved for one recording.
pub(super) struct RecordSelection {
    window: Window,
    cpus: Option<CpuList>,
    programs: Option<ChosenPrograms>,
}

/// Programs of the recording, and what tells which samples are theirs.
struct ChosenPrograms {
    index: Index,
    /// By number of the program.
    asked: Vec<bool>,
}

impl RecordSelection {
    /// Works out `options`; `None` when they ask for everything. Percentages and programs need a look at all of the
    /// recording first.
    pub(super) fn new(source: &mut Source, options: &RewriteOptions) -> Result<Option<RecordSelection>> {
        if options.cpus.is_none() && options.time == TimeRange::All && options.programs.is_empty() {
            return Ok(None);
        }
        let window = crate::stream::window(source, &options.time)?;
        let programs = if options.programs.is_empty() { None } else { Some(look(source.whole()?, options)?) };
        Ok(Some(RecordSelection { window, cpus: options.cpus.clone(), programs }))
    }

    /// Number of programs of the recording that are asked for, if any in particular are.
    pub(super) fn matched_programs(&self) -> Option<usize> {
        let chosen = self.programs.as_ref()?;
        Some(chosen.asked.iter().filter(|asked| **asked).count())
    }
}

fn look(input: &Input, options: &RewriteOptions) -> Result<ChosenPrograms> {
    let index = OpenRecording::open_with_events(input).map(|recording| Index::build(&recording, Wanted::default()));
    let index = input.checked(index)?;
    let is_asked = |filter: &ProgFilter, known: &IndexedProgram| filter.matches(known.id, known.tag, known.name());
    let known = index.programs.list.iter();
    let asked = known.map(|known| options.programs.iter().any(|filter| is_asked(filter, known))).collect();
    Ok(ChosenPrograms { index, asked })
}

/// Tells which samples are selected.
pub(super) struct Sieve<'s> {
    selection: &'s RecordSelection,
    attributor: Option<Attributor<'s>>,
    /// By event.
    kinds: Vec<EventKind>,
}

impl<'s> Sieve<'s> {
    /// For a recording with these events.
    pub(super) fn new(selection: &'s RecordSelection, events: &Events, metadata: &Metadata<'_>) -> Sieve<'s> {
        let kinds = EventKind::of_all(events, &metadata.event_names());
        let attributor = selection.programs.as_ref().map(|chosen| Attributor::new(&chosen.index));
        Sieve { selection, attributor, kinds }
    }

    /// True if a sample stays, and its time if it was selected. What a recorder says about the machine in samples of an event
    /// of its own stays: without it the others could not be understood.
    pub(super) fn keeps(&mut self, record: &Record<'_>, events: &Events) -> (bool, Option<u64>) {
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

    fn selects(&mut self, record: &Record<'_>, sample: &Sample<'_>, event: usize) -> bool {
        let RecordSelection { window, cpus, .. } = self.selection;
        (window.whole || sample.time_ns().is_some_and(|time| window.contains(time)))
            && cpus.as_ref().is_none_or(|cpus| sample.cpu().is_some_and(|cpu| cpus.contains(cpu)))
            && self.is_in_program(record, sample, event)
    }

    /// True if one of the programs is in the sample's kernel call chain, or all samples are asked for.
    fn is_in_program(&mut self, record: &Record<'_>, sample: &Sample<'_>, event: usize) -> bool {
        let (Some(attributor), Some(chosen)) = (&mut self.attributor, &self.selection.programs) else { return true };
        let in_kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        let leaf = sample.ip().filter(|_| in_kernel);
        let kind = self.kinds.get(event).copied().unwrap_or(EventKind::Other);
        let chain = kind.callchain(sample, record.offset).ok().flatten();
        let attribution = attributor.attribution(leaf, chain, sample.time_ns().unwrap_or(u64::MAX));
        // A share of a program needs the samples of its sharers as well.
        let mut programs = attribution.programs().iter().chain(attribution.sharers());
        programs.any(|program| chosen.asked[*program as usize])
    }
}

/// Values of the counters that samples read, as if samples that are left out had never been taken: each value that is kept is the one kept before,
/// and its growth since the sample before it in the recording. Readers then find the growth that they find in the whole recording.
#[derive(Default)]
pub(super) struct KeptReadings {
    readings: Readings,
    kept: FxHashMap<Counter, u64>,
}

impl KeptReadings {
    /// The bytes of a sample with the values to keep; `None` for one that reads no counters, or whose counters cannot be read. Samples that are
    /// left out have to be handed over, too.
    pub(super) fn replace(&mut self, record: &Record<'_>, events: &Events, keeps: bool) -> Option<Vec<u8>> {
        let index = events.index_of(record)?;
        let event = &events.all()[index];
        if !event.attr.sample_type.contains(SampleType::READ) {
            return None;
        }
        let sample = event.layout.sample(record.body(), record.offset).ok()?;
        let (fields, offsets) = (sample.decode().ok()?, sample.read_value_offsets().ok()?);
        let mut grown = Vec::new();
        // A value that makes no sense stays as it is, and readers say so.
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
