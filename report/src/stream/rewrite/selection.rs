//! Which samples a rewritten recording keeps.

use bprec_format::{Events, Metadata, Record, Sample, misc};

use crate::index::programs::Program;
use crate::index::{Index, Wanted};
use crate::input::event_kind::EventKind;
use crate::input::recording::Recording;
use crate::input::window::Window;
use crate::pass::attribution::Attributor;
use crate::{CpuList, Input, ProgFilter, Result, RewriteOptions, Source, TimeRange};

/// What is asked for, worked out for one recording.
pub(super) struct Selection {
    window: Window,
    cpus: Option<CpuList>,
    programs: Option<Chosen>,
}

/// Programs of the recording, and what tells which samples are theirs.
struct Chosen {
    index: Index,
    /// By number of the program.
    asked: Vec<bool>,
}

impl Selection {
    /// Works out `options`; `None` when they ask for everything. Percentages and programs need a look at all of the
    /// recording first.
    pub(super) fn new(source: &mut Source, options: &RewriteOptions) -> Result<Option<Selection>> {
        if options.cpus.is_none() && options.time == TimeRange::All && options.programs.is_empty() {
            return Ok(None);
        }
        let window = source.window(&options.time)?;
        let programs = if options.programs.is_empty() { None } else { Some(look(source.whole()?, options)?) };
        Ok(Some(Selection { window, cpus: options.cpus.clone(), programs }))
    }

    /// How many programs of the recording are asked for, if any in particular are.
    pub(super) fn matched_programs(&self) -> Option<usize> {
        let chosen = self.programs.as_ref()?;
        Some(chosen.asked.iter().filter(|asked| **asked).count())
    }
}

fn look(input: &Input, options: &RewriteOptions) -> Result<Chosen> {
    let index = Recording::open_with_events(input).map(|recording| Index::build(&recording, Wanted::default()));
    let index = input.checked(index)?;
    let is_asked = |filter: &ProgFilter, known: &Program| filter.matches(known.id, known.tag, known.name());
    let known = index.programs.list.iter();
    let asked = known.map(|known| options.programs.iter().any(|filter| is_asked(filter, known))).collect();
    Ok(Chosen { index, asked })
}

/// Tells which samples are selected.
pub(super) struct Sieve<'s> {
    selection: &'s Selection,
    attributor: Option<Attributor<'s>>,
    /// By event.
    kinds: Vec<EventKind>,
}

impl<'s> Sieve<'s> {
    /// For a recording with these events.
    pub(super) fn new(selection: &'s Selection, events: &Events, metadata: &Metadata<'_>) -> Sieve<'s> {
        let kinds = EventKind::of_all(events, &metadata.event_names());
        let attributor = selection.programs.as_ref().map(|chosen| Attributor::new(&chosen.index));
        Sieve { selection, attributor, kinds }
    }

    /// Whether a sample stays, and its time if it was selected. What a recorder says about the machine in samples of an event
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
        let Selection { window, cpus, .. } = self.selection;
        (window.whole || sample.time_ns().is_some_and(|time| window.contains(time)))
            && cpus.as_ref().is_none_or(|cpus| sample.cpu().is_some_and(|cpu| cpus.contains(cpu)))
            && self.is_in_program(record, sample, event)
    }

    /// Whether one of the programs is in the sample's kernel call chain, or all samples are asked for.
    fn is_in_program(&mut self, record: &Record<'_>, sample: &Sample<'_>, event: usize) -> bool {
        let (Some(attributor), Some(chosen)) = (&mut self.attributor, &self.selection.programs) else { return true };
        let in_kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        let leaf = sample.ip().filter(|_| in_kernel);
        let kind = self.kinds.get(event).copied().unwrap_or(EventKind::Other);
        let chain = kind.callchain(sample, record.offset).ok().flatten();
        let attribution = attributor.attribution(leaf, chain, sample.time_ns().unwrap_or(u64::MAX));
        // Whose share it is cannot be told without those of the others.
        let mut programs = attribution.programs().iter().chain(attribution.sharers());
        programs.any(|program| chosen.asked[*program as usize])
    }
}
