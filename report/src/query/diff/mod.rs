//! Comparison of recordings: the changes of each program, and a test against chance.

mod estimate;
mod gate;
mod join;
mod notes;
mod recorded;

use crate::index::student::Quantiles;
use crate::index::{Index, Wanted};
use crate::input::recording::OpenRecording;
use crate::model::{
    Change, Diff, DiffEvent, DiffMetric, DiffNote, DiffSide, Estimate, JSON_VERSION, Known, MetricDiff, MetricValue,
    ProgramDiff, Reason, Status,
};
use crate::options::diff::{DiffOptions, DiffSort};
use crate::options::names_event;
use crate::pass::sinks::slowed::correct_runs;
use crate::{Error, Input, Result};
use bprec_format::bpf::Tag;
use estimate::{Pair, Side, Uncertain};
use gate::{Candidate, Measured, judge};
use join::{MatchedProgram, are_tags_comparable, join};
use recorded::{EventsCompared, Recorded, RecordedProgram};
use std::cmp::Ordering;

/// Compares the recordings of two sides. Reads one recording after another.
///
/// # Errors
/// Fails if a side has no recording, if a recording cannot be read, or if `options` name an event that not every recording has.
pub fn diff(base: &[Input], new: &[Input], options: &DiffOptions) -> Result<Diff> {
    let mut events = EventsCompared::default();
    let mut read = |inputs: &[Input]| {
        inputs.iter().map(|input| read(input, options, &mut events)).collect::<Result<Vec<Recorded>>>()
    };
    let (mut base, mut new) = (read(base)?, read(new)?);
    let left_out = events.left_out;
    if base.is_empty() || new.is_empty() {
        return Err(Error::option("diff", "", "expected recordings of two sides"));
    }
    let events = common_events(&base, &new, options)?;
    let all = || base.iter().chain(&new);
    let has_tags = are_tags_comparable(all());
    let has_places = all().all(|recorded| recorded.has_places);
    let mut notes = notes::of(&base, &new, &events, has_places, has_tags);
    if left_out > 0 {
        notes.push(DiffNote::EventsLeftOut { events: left_out });
    }
    let problems = all().flat_map(|recorded| recorded.problems.clone()).collect();
    let mut joined = join(&mut base, &mut new, has_places, has_tags);
    let all_programs = joined.len();
    // Programs that neither ran nor have samples in any recording are hidden by default. Without conditions to judge, they are skipped here already.
    if !options.all && options.programs.is_empty() && options.conditions.is_empty() {
        joined.retain(|joined| joined.recorded().any(RecordedProgram::happened));
    }
    let hidden_programs = all_programs - joined.len();
    let comparison = Comparison {
        two_sided: Quantiles::new(options.confidence.error() / 2.0),
        base: &base,
        new: &new,
        events: &events,
    };
    let total = comparison.total();
    let programs: Vec<Compared> = joined.into_iter().map(|joined| comparison.program(joined, has_tags)).collect();
    let gate = {
        let all = Candidate { label: None, name: "", prog_type: "", owners: &[], metrics: &total };
        let each = programs.iter().map(|program| Candidate {
            label: Some(program.shown.label()),
            name: &program.shown.name,
            prog_type: &program.shown.prog_type,
            owners: &program.shown.owners,
            metrics: &program.metrics,
        });
        let candidates: Vec<Candidate<'_>> = std::iter::once(all).chain(each).collect();
        judge(&options.conditions, &candidates, options.confidence)?
    };
    let mut made = Diff {
        format: "bprec diff",
        version: JSON_VERSION,
        confidence_percent: options.confidence.percent(),
        events,
        programs: Vec::new(),
        hidden_programs,
        total: total.into_iter().map(|measured| measured.shown).collect(),
        gate,
        problems,
        notes,
        matched_programs: hidden_programs + programs.iter().filter(|program| program.is_asked(options)).count(),
        base: base.into_iter().map(|recorded| recorded.facts).collect(),
        new: new.into_iter().map(|recorded| recorded.facts).collect(),
    };
    if made.matched_programs == 0 && !options.programs.is_empty() {
        return Err(Error::no_program(&options.programs, programs.iter().map(|program| &program.shown.name[..])));
    }
    choose(&mut made, programs, options);
    notes::of_rows(&mut made);
    Ok(made)
}

fn read(input: &Input, options: &DiffOptions, events: &mut EventsCompared) -> Result<Recorded> {
    let recorded = OpenRecording::open_with_events(input).and_then(|recording| {
        let mut index = Index::build(&recording, Wanted { threads: options.threads, ..Wanted::default() });
        correct_runs(&recording, &mut index, options.threads);
        let path = input.path().display().to_string();
        recording.checked(Recorded::read(&recording, &index, path, options, events))
    });
    input.checked(recorded)
}

/// Returns the events that every recording has, in the order of the first recording.
fn common_events(base: &[Recorded], new: &[Recorded], options: &DiffOptions) -> Result<Vec<DiffEvent>> {
    let is_common = |name: &str, unit| {
        let has = |recorded: &Recorded| recorded.event(name).is_some_and(|at| recorded.events[at].unit == unit);
        base.iter().chain(new).all(has)
    };
    let events = base[0].events.iter().filter(|event| is_common(&event.name, event.unit));
    let mut events: Vec<DiffEvent> =
        events.map(|event| DiffEvent { name: event.name.clone(), unit: event.unit }).collect();
    for asked in &options.events {
        if !events.iter().any(|event| names_event(asked, &event.name)) {
            let known: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
            let problem =
                format!("not every recording has this event; events in every recording: {}", known.join(", "));
            return Err(Error::option("--event", asked, problem));
        }
    }
    let is_asked = |event: &DiffEvent| options.events.iter().any(|asked| names_event(asked, &event.name));
    events.retain(|event| options.events.is_empty() || is_asked(event));
    Ok(events)
}

struct Comparison<'c> {
    two_sided: Quantiles,
    base: &'c [Recorded],
    new: &'c [Recorded],
    events: &'c [DiffEvent],
}

/// Compared program, with the numbers that its order and the judgments need.
struct Compared {
    /// Row of the program. The metrics are added when the row is chosen.
    shown: ProgramDiff,
    metrics: Vec<Measured>,
    happened: bool,
    ids: Vec<(Option<u32>, Option<[u8; 8]>)>,
    /// Change of the time by run statistics, ns per second and CPU. Orders the program if the change of its cost is unknown, for instance because no
    /// event samples it.
    run_time_change: Option<f64>,
}

impl Compared {
    fn is_asked(&self, options: &DiffOptions) -> bool {
        options.programs.is_empty()
            || options.programs.iter().any(|filter| {
                let mut ids = self.ids.iter();
                ids.any(|(id, tag)| filter.matches(*id, tag.map(Tag), &self.shown.name))
                    || self.shown.previous_name.as_ref().is_some_and(|name| filter.matches(None, None, name))
            })
    }

    fn change(&self, metric: DiffMetric, of: fn(&Change) -> Option<f64>) -> Option<f64> {
        let found = self.metrics.iter().find(|measured| measured.shown.metric == metric)?;
        of(found.shown.change.as_ref()?)
    }

    /// Returns the absolute change of the cost; for a program on one side only, its whole cost. If these are unknown, returns the absolute change of
    /// the time by run statistics.
    fn cost_change(&self) -> Option<f64> {
        let cost = self.metrics.iter().find(|measured| measured.shown.metric == DiffMetric::Cost);
        let cost = cost.and_then(|cost| {
            let value = |side: &MetricValue| side.estimate.value().map(|estimate| estimate.value);
            match (value(&cost.shown.base), value(&cost.shown.new)) {
                (Some(base), Some(new)) => Some(new - base),
                (None, Some(new)) if self.shown.status == Status::New => Some(new),
                (Some(base), None) if self.shown.status == Status::Gone => Some(base),
                _ => None,
            }
        });
        cost.or(self.run_time_change).map(f64::abs)
    }
}

impl Comparison<'_> {
    /// Returns the numbers of all programs together.
    fn total(&self) -> Vec<Measured> {
        let mut metrics = Vec::new();
        for event in self.events {
            let name = &event.name;
            let each = |of: &dyn Fn(&Recorded, usize) -> Known<Uncertain>| {
                let side = |recordings: &[Recorded]| -> Vec<Option<Known<Uncertain>>> {
                    recordings.iter().map(|recorded| Some(of(recorded, recorded.event(name)?))).collect()
                };
                (side(self.base), side(self.new))
            };
            let mut add = |metric, (base, new)| metrics.push(self.measured(metric, Some(name), base, new));
            add(DiffMetric::Share, each(&|recorded, event| recorded.share(event, &recorded.events[event].bpf)));
            add(DiffMetric::Cost, each(&|recorded, event| recorded.cost(event, &recorded.events[event].bpf)));
            add(
                DiffMetric::Samples,
                each(&|recorded, event| Known::Value(count(recorded.events[event].samples.samples))),
            );
            add(DiffMetric::Lost, each(&|recorded, event| recorded.events[event].lost_percent()));
        }
        metrics
    }

    fn program(&self, joined: MatchedProgram, is_tag_comparable: bool) -> Compared {
        let mut metrics = Vec::with_capacity(4 * self.events.len() + 3);
        let each = |of: &dyn Fn(&Recorded, &RecordedProgram) -> Known<Uncertain>| {
            let side = |recordings: &[Recorded], programs: &[Option<RecordedProgram>]| {
                let both = recordings.iter().zip(programs);
                both.map(|(recorded, program)| Some(of(recorded, program.as_ref()?))).collect::<Vec<_>>()
            };
            (side(self.base, &joined.base), side(self.new, &joined.new))
        };
        for event in self.events {
            let name = &event.name;
            let of_event = |of: &dyn Fn(&Recorded, &RecordedProgram, usize) -> Known<Uncertain>| {
                each(&|recorded, program| match recorded.event(name) {
                    Some(event) => of(recorded, program, event),
                    None => Known::Unknown(Reason::NoSuchEvent),
                })
            };
            let mut add = |metric, (base, new)| metrics.push(self.measured(metric, Some(name), base, new));
            let charged = |program: &RecordedProgram, event| program.charged(event).clone();
            add(
                DiffMetric::Share,
                of_event(&|recorded, program, event| charged(program, event).and_then(|it| recorded.share(event, &it))),
            );
            add(
                DiffMetric::Cost,
                of_event(&|recorded, program, event| charged(program, event).and_then(|it| recorded.cost(event, &it))),
            );
            add(
                DiffMetric::EventPerRun,
                of_event(&|recorded, program, event| program.per_run(event, &recorded.events[event])),
            );
            add(
                DiffMetric::Samples,
                of_event(&|_, program, event| charged(program, event).map(|it| count(it.count.samples))),
            );
        }
        let (base, new) = each(&|recorded, program| recorded.runs_per_second(program));
        metrics.push(self.measured(DiffMetric::RunsPerSecond, None, base, new));
        // A trimmed mean is lower than a mean over all runs, so both sides must use the same kind of mean. The trimmed mean is used if all recordings
        // of both sides allow it.
        let is_typical = joined.recorded().filter(|program| program.ran()).all(RecordedProgram::has_typical_runs);
        let (base, new) = each(&|_, program| match is_typical {
            true => program.typical_time_per_run(),
            false => program.mean_time_per_run(),
        });
        metrics.push(self.measured(DiffMetric::TimePerRun, None, base, new));
        let (base, new) = each(&|_, program| program.mean_time_per_run());
        metrics.push(self.measured(DiffMetric::MeanTimePerRun, None, base, new));

        let most = |side: &[Option<RecordedProgram>]| side.iter().flatten().map(|it| it.programs).max().unwrap_or(0);
        let shown = ProgramDiff {
            status: joined.status,
            owners: joined.owners(),
            is_tag_comparable,
            base_tags: MatchedProgram::tags(&joined.base).iter().map(Tag::to_string).collect(),
            new_tags: MatchedProgram::tags(&joined.new).iter().map(Tag::to_string).collect(),
            base_programs: most(&joined.base),
            new_programs: most(&joined.new),
            metrics: Vec::new(),
            name: joined.identity.name.clone(),
            prog_type: joined.identity.prog_type.clone(),
            attached: joined.identity.attached.clone(),
            previous_name: joined.previous_name.clone(),
        };
        let run_time = |recordings: &[Recorded], programs: &[Option<RecordedProgram>]| {
            let each = recordings.iter().zip(programs).map(|(recorded, program)| match program {
                Some(program) => recorded.per_second_and_cpu(program.run_time_ns()?),
                None => Some(0.0),
            });
            Some(each.sum::<Option<f64>>()? / recordings.len() as f64)
        };
        let run_time_change = run_time(self.base, &joined.base).zip(run_time(self.new, &joined.new));
        Compared {
            shown,
            metrics,
            happened: joined.recorded().any(RecordedProgram::happened),
            ids: joined.recorded().flat_map(|program| program.ids.iter().copied()).collect(),
            run_time_change: run_time_change.map(|(base, new)| new - base),
        }
    }

    /// Compares a number on both sides. `base` and `new` have an entry for each recording; `None` for recordings without the program or the event.
    fn measured(
        &self,
        metric: DiffMetric,
        event: Option<&String>,
        base: Vec<Option<Known<Uncertain>>>,
        new: Vec<Option<Known<Uncertain>>>,
    ) -> Measured {
        let is_count = matches!(metric, DiffMetric::Samples | DiffMetric::Lost);
        let side = |recordings: Vec<Option<Known<Uncertain>>>, side| {
            let (mut values, mut lack) = (Vec::new(), None);
            for value in recordings.into_iter().flatten() {
                match value {
                    Known::Value(value) => values.push(value),
                    unknown => lack = lack.or(Some(unknown)),
                }
            }
            let Some(found) = Side::of(&values) else {
                let why = lack.unwrap_or(Known::Unknown(Reason::NotInRecordings { side }));
                let estimate = why.map(|it| Estimate { value: it.value, margin: None, recordings: 0 });
                return (None, MetricValue { estimate });
            };
            let (value, margin) = found.interval(&self.two_sided);
            let estimate = Estimate { value, margin: margin.filter(|_| !is_count), recordings: values.len() };
            (Some(found), MetricValue { estimate: Known::Value(estimate) })
        };
        let (of_base, base) = side(base, DiffSide::Base);
        let (of_new, new) = side(new, DiffSide::New);
        let change = of_base.as_ref().zip(of_new.as_ref()).map(|(base, new)| self.change(base, new));
        // Counts of samples and losses depend on the recording, not on the program. Their change would say nothing, so it is not shown.
        let change = change.filter(|_| !is_count);
        let shown = MetricDiff { metric, event: event.cloned(), base, new, change };
        Measured { shown, base: of_base, new: of_new }
    }

    fn change(&self, base: &Side, new: &Side) -> Change {
        let pair = Pair::new(base, new);
        let (before, after) = (base.value(), new.value());
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = pair.ratio_interval(&self.two_sided).filter(|(_, to)| to.is_finite());
        Change {
            difference: after - before,
            percent: (before != 0.0).then(|| (after - before) / before * 100.0),
            from_percent: interval.map(|(from, _)| percent(from)),
            to_percent: interval.map(|(_, to)| percent(to)),
            significant: Known::or_unknown(pair.is_significant(&self.two_sided), Reason::TooFewIntervals),
        }
    }
}

/// Makes a number without uncertainty.
fn count(number: u64) -> Uncertain {
    Uncertain { value: number as f64, mean: number as f64, variance: None }
}

/// Sorts the programs, and keeps the programs to show.
fn choose(made: &mut Diff, mut programs: Vec<Compared>, options: &DiffOptions) {
    let largest = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => b.abs().total_cmp(&a.abs()),
        (known, other) => other.is_some().cmp(&known.is_some()),
    };
    let by = |a: &Compared, b: &Compared| -> Ordering {
        let change = |metric, of: fn(&Change) -> Option<f64>| largest(a.change(metric, of), b.change(metric, of));
        match options.sort {
            DiffSort::Cost => largest(a.cost_change(), b.cost_change()),
            DiffSort::Share => change(DiffMetric::Share, |it| Some(it.difference)),
            DiffSort::Runs => change(DiffMetric::RunsPerSecond, |it| it.percent),
            DiffSort::TimePerRun => change(DiffMetric::TimePerRun, |it| it.percent),
            DiffSort::Name => a.shown.name.cmp(&b.shown.name),
            DiffSort::Type => a.shown.prog_type.cmp(&b.shown.prog_type),
            DiffSort::Status => a.shown.status.cmp(&b.shown.status),
        }
    };
    // The sort is stable: equal programs stay in the order of their identities.
    programs.sort_by(by);
    for mut program in programs {
        let has_room = options.limit.is_none_or(|limit| made.programs.len() < limit);
        let is_named = !options.programs.is_empty() && program.is_asked(options);
        if !program.is_asked(options) {
            continue;
        }
        if has_room && (options.all || is_named || program.happened) {
            program.shown.metrics = program.metrics.into_iter().map(|measured| measured.shown).collect();
            made.programs.push(program.shown);
        } else {
            made.hidden_programs += 1;
        }
    }
}
