//! Numbers of one recording for a comparison: the cost of each program, in total and by interval.

use super::estimate::{Uncertain, ratio, typical};
use crate::index::Index;
use crate::index::runs::RunSeries;
use crate::input::recording::OpenRecording;
use crate::model::{Count, DiffRecording, Identity, Known, Program, Reason, Unit};
use crate::options::diff::DiffOptions;
use crate::pass::Selection;
use crate::pass::sinks::pivot::{Charges, Key, KeyBy, PivotCell};
use crate::query::by_prog::facts::{EventFacts, Facts, WantedFacts};
use crate::{Options, Result};
use bprec_format::bpf::Tag;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// Count of equal intervals that a recording is cut into if it has too few snapshots of run statistics.
const EQUAL_INTERVALS: u64 = 32;
/// Least number of [`RunSeries::cuts`] to use as the bounds of intervals. With fewer, [`EQUAL_INTERVALS`] equal intervals are used.
const LEAST_CUTS: usize = 10;

/// Limit on pairs of a program and an event in a recording, if `--event` is not given. Each pair needs memory and time for a series over all
/// intervals. With many programs, fewer events are therefore compared, but at least one.
const PAIRS: usize = 1 << 13;
/// Limit on the compared events, if `--event` is not given. It keeps time and memory linear in the input.
const EVENTS: usize = 1 << 10;

/// Choice of the events to compare. Made once a recording has too many events.
#[derive(Debug, Default)]
pub(super) struct EventsCompared {
    /// Names of the compared events; `None` until a recording has too many.
    events: Option<Vec<String>>,
    /// Count of events left out.
    pub(super) left_out: usize,
}

impl EventsCompared {
    /// Returns the events to read from a recording; an empty list stands for all. Requested events are never left out.
    fn cut(
        &mut self,
        recording: &OpenRecording<'_>,
        index: &Index,
        asked: &DiffOptions,
        options: &Options,
    ) -> Result<Vec<String>> {
        if !asked.events.is_empty() {
            return Ok(Vec::new());
        }
        let selected = Selection::new(recording, index, options)?.events;
        let names = recording.names.iter().zip(selected).filter(|(_, is_selected)| *is_selected).map(|(name, _)| name);
        let known: Option<FxHashSet<&String>> = self.events.as_ref().map(|events| events.iter().collect());
        let mut each = FxHashSet::default();
        let names: Vec<&String> = names
            .filter(|name| known.as_ref().is_none_or(|known| known.contains(name)) && each.insert(*name))
            .collect();
        let room = (PAIRS / index.programs.list.len().max(1)).clamp(1, EVENTS);
        if names.len() > room {
            self.left_out += names.len() - room;
            self.events = Some(names.into_iter().take(room).cloned().collect());
        }
        Ok(self.events.clone().unwrap_or_default())
    }
}

/// Numbers of a recording.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) facts: DiffRecording,
    /// Target of the recording, as text.
    pub(super) target: Option<String>,
    pub(super) is_cut_off: bool,
    /// True if the recording has attach points.
    pub(super) has_places: bool,
    /// Reason why the runs of all programs are unknown; `None` if some are known.
    pub(super) no_runs: Option<String>,
    pub(super) in_windows: bool,
    pub(super) events: Vec<RecordedEvent>,
    pub(super) programs: Vec<(Identity, RecordedProgram)>,
    pub(super) problems: Vec<String>,
    /// Time covered by run statistics, ns.
    observed_ns: f64,
    /// Lengths of the intervals, ns.
    lengths_ns: Vec<f64>,
}

/// Numbers of an event.
#[derive(Debug)]
pub(super) struct RecordedEvent {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) samples: Count,
    pub(super) lost: Known<u64>,
    pub(super) throttled: u64,
    /// Charges to BPF.
    pub(super) bpf: ChargedOverTime,
    /// CPU time of the machine, ns.
    machine_ns: Option<f64>,
}

/// Charges in an event, in total and by interval.
#[derive(Debug, Clone, Default)]
pub(super) struct ChargedOverTime {
    pub(super) count: Count,
    /// Weights by interval; empty if all are 0.
    intervals: Vec<u64>,
}

/// Numbers of a program, or of several programs with one identity.
#[derive(Debug, Clone)]
pub(super) struct RecordedProgram {
    pub(super) programs: usize,
    /// Tags, in no particular order.
    pub(super) tags: Vec<Tag>,
    pub(super) owners: BTreeSet<String>,
    pub(super) ids: Vec<(Option<u32>, Option<[u8; 8]>)>,
    runs: Known<Ran>,
    /// Charges by event.
    events: Vec<OfEvent>,
}

#[derive(Debug, Clone)]
struct Ran {
    count: u64,
    time_ns: u64,
    /// Runs and their time, ns, by interval.
    intervals: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
struct OfEvent {
    charged: Known<ChargedOverTime>,
    /// Samples during runs: entry code, which runs before and after the program, is left out.
    inside: Known<ChargedOverTime>,
}

impl Recorded {
    /// Reads a recording.
    pub(super) fn read(
        recording: &OpenRecording<'_>,
        index: &Index,
        path: String,
        asked: &DiffOptions,
        compared: &mut EventsCompared,
    ) -> Result<Recorded> {
        let mut options = Options { all: true, threads: asked.threads, ..Options::default() };
        options.events = compared.cut(recording, index, asked, &options)?;
        let mut moments = index.runs.cuts().to_vec();
        let has_run_intervals = moments.len() >= LEAST_CUTS;
        if !has_run_intervals {
            moments = evenly(span(recording, index));
        }
        let lengths_ns: Vec<f64> = moments.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect();
        let wanted = WantedFacts { pivots: vec![KeyBy::Moments(moments)], ..WantedFacts::default() };
        let (facts, ()) = Facts::gather(recording, index, &options, wanted, |_| ())?;
        // Events are compared by name. If several events have the same name, only the first counts.
        let mut names = FxHashSet::default();
        let of_name = facts.events().filter(|event| names.insert(&recording.names[*event]));
        let maker = SideBuilder {
            facts: &facts,
            runs: has_run_intervals.then_some(&index.runs),
            intervals: lengths_ns.len(),
            events: of_name.map(|event| (event, facts.event(event))).collect(),
        };
        let observed = facts.programs.iter().filter_map(|program| program.runs.value()?.span);
        let observed = observed.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        let recorded = &facts.recorded;
        Ok(Recorded {
            target: recorded.target.clone(),
            is_cut_off: recorded.unfinished,
            has_places: index.states.session.is_some(),
            no_runs: no_runs(&facts.programs),
            in_windows: facts.programs.iter().any(|it| it.runs.value().is_some_and(|runs| runs.estimate.is_some())),
            events: maker.events.iter().map(|(at, event)| maker.event(*at, event)).collect(),
            programs: maker.programs(),
            problems: facts.problems().iter().map(|problem| format!("{path}: {problem}")).collect(),
            observed_ns: observed.map_or(0, |(from_ns, to_ns)| to_ns.saturating_sub(from_ns)) as f64,
            facts: DiffRecording {
                path,
                hostname: recorded.hostname.clone(),
                os_release: recorded.os_release.clone(),
                arch: recorded.arch.clone(),
                cpus: recorded.cpus,
                elapsed_ns: recorded.elapsed_ns,
                intervals: lengths_ns.len(),
            },
            lengths_ns,
        })
    }

    pub(super) fn event(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event.name == name)
    }

    /// Returns charges per second and CPU.
    pub(super) fn cost(&self, event: usize, charged: &ChargedOverTime) -> Known<Uncertain> {
        // Weight per second of CPU time; for clocks, ns per second.
        self.rate(event, charged, 1e9)
    }

    /// Returns charges as a share of the machine, %; known only for clocks.
    pub(super) fn share(&self, event: usize, charged: &ChargedOverTime) -> Known<Uncertain> {
        match self.events[event].unit {
            Unit::Nanoseconds => self.rate(event, charged, 100.0),
            Unit::Events => Known::Unknown(Reason::CapacityUnknown),
        }
    }

    /// Returns the weight divided by the machine's CPU time, times `scale`.
    fn rate(&self, event: usize, charged: &ChargedOverTime, scale: f64) -> Known<Uncertain> {
        let event = &self.events[event];
        let (Some(machine_ns), Some(elapsed_ns)) = (event.machine_ns, self.facts.elapsed_ns) else {
            return Known::Unknown(Reason::LengthUnknown);
        };
        let cpus = machine_ns / elapsed_ns as f64;
        let weights = charged.weights().map(|weight| weight * scale);
        let pairs = weights.zip(self.lengths_ns.iter().map(|length_ns| length_ns * cpus)).collect::<Vec<_>>();
        let least = event.least(charged) * scale * scale / (machine_ns * machine_ns);
        Known::Value(ratio(&pairs, charged.count.weight as f64 * scale / machine_ns, least))
    }

    /// Returns a time as ns per second and CPU.
    pub(super) fn per_second_and_cpu(&self, time_ns: u64) -> Option<f64> {
        let cpus = self.facts.cpus.filter(|cpus| *cpus > 0)?;
        (self.observed_ns > 0.0).then(|| time_ns as f64 * 1e9 / self.observed_ns / f64::from(cpus))
    }

    /// Returns runs per second.
    pub(super) fn runs_per_second(&self, program: &RecordedProgram) -> Known<Uncertain> {
        program.runs.clone().and_then(|ran| {
            if self.observed_ns <= 0.0 {
                return Known::Unknown(Reason::NoSnapshots);
            }
            let runs = ran.intervals.iter().map(|(runs, _)| runs * 1e9);
            let pairs: Vec<(f64, f64)> = runs.zip(self.lengths_ns.iter().copied()).collect();
            Known::Value(ratio(&pairs, ran.count as f64 * 1e9 / self.observed_ns, 0.0))
        })
    }
}

impl RecordedEvent {
    /// Returns the share of lost samples in all samples, recorded or lost, %.
    pub(super) fn lost_percent(&self) -> Known<Uncertain> {
        self.lost.clone().map(|lost| {
            let all = self.samples.samples.saturating_add(lost).max(1);
            let percent = lost as f64 * 100.0 / all as f64;
            Uncertain { value: percent, mean: percent, variance: None }
        })
    }

    /// Returns the least variance of a sum of weights. The number of samples varies by chance, with a variance equal to the number, and each has the
    /// mean weight. Without samples, it is the variance of a single sample.
    fn least(&self, charged: &ChargedOverTime) -> f64 {
        let of = if charged.count.samples > 0 { charged.count } else { self.samples };
        let mean = of.weight as f64 / of.samples.max(1) as f64;
        charged.count.samples.max(1) as f64 * mean * mean
    }
}

impl RecordedProgram {
    /// Charges of the program in an event.
    pub(super) fn charged(&self, event: usize) -> &Known<ChargedOverTime> {
        &self.events[event].charged
    }

    /// Returns true if the runs allow a trimmed mean of the time per run: enough intervals with enough runs.
    pub(super) fn has_typical_runs(&self) -> bool {
        self.runs.value().is_some_and(|ran| typical(&ran.pairs(), 0.0).is_some())
    }

    /// Returns the time per run in a typical interval, ns: the trimmed mean, or the mean if no trimmed mean is possible.
    pub(super) fn typical_time_per_run(&self) -> Known<Uncertain> {
        self.time_of_runs(|intervals, mean| typical(intervals, mean).unwrap_or_else(|| ratio(intervals, mean, 0.0)))
    }

    /// Returns the mean time per run, ns.
    pub(super) fn mean_time_per_run(&self) -> Known<Uncertain> {
        self.time_of_runs(|intervals, mean| ratio(intervals, mean, 0.0))
    }

    fn time_of_runs(&self, estimate: fn(&[(f64, f64)], f64) -> Uncertain) -> Known<Uncertain> {
        self.runs.clone().and_then(|ran| match ran.count {
            0 => Known::Unknown(Reason::NoRuns),
            count => Known::Value(estimate(&ran.pairs(), ran.time_ns as f64 / count as f64)),
        })
    }

    /// Returns the weight of an event per run.
    pub(super) fn per_run(&self, at: usize, event: &RecordedEvent) -> Known<Uncertain> {
        self.runs.clone().and_then(|ran| {
            self.events[at].inside.clone().and_then(|inside| match ran.count {
                0 => Known::Unknown(Reason::NoRuns),
                count => {
                    let runs = ran.intervals.iter().map(|(runs, _)| *runs);
                    let pairs: Vec<(f64, f64)> = inside.weights().zip(runs).collect();
                    let least = event.least(&inside) / (count as f64 * count as f64);
                    Known::Value(ratio(&pairs, inside.count.weight as f64 / count as f64, least))
                }
            })
        })
    }

    /// Returns true if the program ran or has samples.
    pub(super) fn happened(&self) -> bool {
        let hit = self.events.iter().filter_map(|event| event.charged.value()).any(|it| it.count.samples > 0);
        hit || self.ran()
    }

    /// Returns true if the program ran.
    pub(super) fn ran(&self) -> bool {
        self.runs.value().is_some_and(|ran| ran.count > 0)
    }

    /// Time in the program by run statistics, ns.
    pub(super) fn run_time_ns(&self) -> Option<u64> {
        self.runs.value().map(|ran| ran.time_ns)
    }

    /// Adds a program with the same identity.
    fn add(&mut self, other: RecordedProgram) {
        self.programs += other.programs;
        self.tags.extend(other.tags);
        self.owners.extend(other.owners);
        self.ids.extend(other.ids);
        self.runs = both(std::mem::replace(&mut self.runs, Known::Unknown(Reason::NoRuns)), other.runs, Ran::and);
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            let nothing = || Known::Unknown(Reason::NoSamples);
            mine.charged = both(std::mem::replace(&mut mine.charged, nothing()), theirs.charged, ChargedOverTime::and);
            mine.inside = both(std::mem::replace(&mut mine.inside, nothing()), theirs.inside, ChargedOverTime::and);
        }
    }
}

/// Adds two values; the sum is unknown if either value is unknown.
fn both<T>(one: Known<T>, other: Known<T>, add: fn(T, T) -> T) -> Known<T> {
    match (one, other) {
        (Known::Value(one), Known::Value(other)) => Known::Value(add(one, other)),
        (Known::Value(_), lack) | (lack, _) => lack,
    }
}

impl Ran {
    /// Returns time and runs of each interval.
    fn pairs(&self) -> Vec<(f64, f64)> {
        self.intervals.iter().map(|(runs, time_ns)| (*time_ns, *runs)).collect()
    }

    fn and(mut self, other: Ran) -> Ran {
        self.count = self.count.saturating_add(other.count);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        // One of the programs may have no intervals. The sum then has none either, as a part would be missing in each.
        if self.intervals.len() == other.intervals.len() {
            for (mine, theirs) in self.intervals.iter_mut().zip(other.intervals) {
                *mine = (mine.0 + theirs.0, mine.1 + theirs.1);
            }
        } else {
            self.intervals.clear();
        }
        self
    }
}

impl ChargedOverTime {
    /// Returns the weights by interval, followed by endless zeros: `intervals` is empty if all weights are 0.
    fn weights(&self) -> impl Iterator<Item = f64> {
        self.intervals.iter().map(|weight| *weight as f64).chain(std::iter::repeat(0.0))
    }

    fn and(mut self, other: ChargedOverTime) -> ChargedOverTime {
        self.count = self.count + other.count;
        self.intervals.resize(self.intervals.len().max(other.intervals.len()), 0);
        for (mine, theirs) in self.intervals.iter_mut().zip(other.intervals) {
            *mine = mine.saturating_add(theirs);
        }
        self
    }
}

/// Builder of the programs and events of a recording, from its facts.
struct SideBuilder<'m> {
    facts: &'m Facts<'m>,
    /// Runs by interval, if known.
    runs: Option<&'m RunSeries>,
    /// Count of intervals.
    intervals: usize,
    /// Compared events, each with its position in the recording.
    events: Vec<(usize, EventFacts<'m>)>,
}

impl SideBuilder<'_> {
    /// Returns the programs by identity, without programs that count other programs.
    fn programs(&self) -> Vec<(Identity, RecordedProgram)> {
        let of = self.facts.programs.iter().enumerate().filter(|(_, program)| !program.counts_others);
        let mut programs: Vec<(Identity, RecordedProgram)> =
            of.map(|(at, program)| (program.identity(), self.program(at, program))).collect();
        programs.sort_by(|(a, _), (b, _)| a.cmp(b));
        programs
    }

    fn program(&self, at: usize, program: &Program) -> RecordedProgram {
        let known = program.id.zip(program.load_time_ns).zip(self.runs);
        // The runs of an interval are unknown if the program was not loaded in it. They then count as 0.
        let intervals = known.map_or_else(Vec::new, |(key, runs)| {
            let intervals = (1..runs.cuts().len() as u32).map(|it| runs.in_interval(key, it - 1).into_value());
            intervals.map(|it| it.map_or((0.0, 0.0), |it| (it.runs, it.time_ns))).collect()
        });
        let runs = program.runs.clone().map(|runs| Ran { count: runs.count, time_ns: runs.time_ns, intervals });
        RecordedProgram {
            programs: 1,
            tags: program.tag.into_iter().collect(),
            owners: program.owner_names().map(str::to_owned).collect(),
            ids: vec![(program.id, program.tag.map(|tag| tag.0))],
            runs,
            events: self.events.iter().map(|(number, event)| self.of_event(*number, event, at)).collect(),
        }
    }

    fn of_event(&self, number: usize, event: &EventFacts<'_>, at: usize) -> OfEvent {
        let charges = event.ledger.programs.get(at as u32);
        let row = self.facts.row(event, at, charges.into());
        if let Some(why) = row.lack().filter(|_| !row.has_samples()) {
            return OfEvent { charged: Known::Unknown(why.clone()), inside: Known::Unknown(why.clone()) };
        }
        let cells = self.facts.pivots[0].events[number].of(at as u32);
        let charged = |count: fn(&Charges) -> Count| ChargedOverTime {
            count: count(&charges),
            intervals: self.series(cells, count),
        };
        let inside = match &row.sampled_per_run {
            // A program without samples during its runs has 0 events per run, which is not an unknown number.
            Known::Value(_) | Known::Unknown(Reason::NoSamples) if event.has_chains => {
                Known::Value(charged(Charges::inside))
            }
            Known::Value(_) | Known::Unknown(Reason::NoSamples) => Known::Unknown(Reason::NoCallChains),
            Known::Unknown(reason) => Known::Unknown(reason.clone()),
            Known::Impossible(anomaly) => Known::Impossible(anomaly.clone()),
        };
        OfEvent { charged: Known::Value(charged(Charges::sum)), inside }
    }

    /// Returns the weights by interval; empty without cells.
    fn series(&self, cells: &[PivotCell], count: fn(&Charges) -> Count) -> Vec<u64> {
        let mut series = vec![0_u64; if cells.is_empty() { 0 } else { self.intervals }];
        for cell in cells {
            if let [Key::Interval(interval)] = self.facts.pivots[0].keys[cell.key as usize][..] {
                let sum = &mut series[interval as usize];
                *sum = sum.saturating_add(count(&cell.charges).weight);
            }
        }
        series
    }

    fn event(&self, number: usize, event: &EventFacts<'_>) -> RecordedEvent {
        let (facts, recorded) = (self.facts, &self.facts.recorded);
        let elapsed = recorded.elapsed_ns.zip(recorded.cpus).filter(|(ns, cpus)| *ns > 0 && *cpus > 0);
        let elapsed_ns = elapsed.map(|(ns, cpus)| ns as f64 * f64::from(cpus));
        // If ticks are missing in busy and idle time alike, the time of the ticks that arrived stands for the machine's time, as in the report by
        // program.
        let ticked_ns = event.machine.value().filter(|ns| event.is_scaled() && **ns > 0).map(|ns| *ns as f64);
        let cells = &facts.pivots[0].events[number].cells;
        RecordedEvent {
            name: facts.recording.names[number].clone(),
            unit: event.unit,
            samples: event.ledger.samples,
            lost: facts.lost(number),
            throttled: facts.throttled(number),
            bpf: ChargedOverTime { count: event.bpf, intervals: self.series(cells, Charges::sum) },
            machine_ns: ticked_ns.or(elapsed_ns),
        }
    }
}

/// Merges programs with the same identity. `programs` must be sorted by identity.
pub(super) fn merged(programs: Vec<(Identity, RecordedProgram)>) -> Vec<(Identity, RecordedProgram)> {
    let mut merged: Vec<(Identity, RecordedProgram)> = Vec::with_capacity(programs.len());
    for (identity, program) in programs {
        match merged.last_mut() {
            Some((last, sum)) if *last == identity => sum.add(program),
            _ => merged.push((identity, program)),
        }
    }
    for (_, sum) in &mut merged {
        sum.tags.sort_unstable();
        sum.tags.dedup();
    }
    merged
}

/// Returns why the runs of all programs are unknown; `None` if some are known or there are no programs.
fn no_runs(programs: &[Program]) -> Option<String> {
    let first = programs.first()?;
    let none = programs.iter().all(|program| !program.runs.is_value());
    if none { first.runs.why() } else { None }
}

/// Returns the start and end of the recording, if known before its samples are read.
fn span(recording: &OpenRecording<'_>, index: &Index) -> Option<(u64, u64)> {
    let (first_ns, last_ns) = recording.stated_span().unzip();
    let to_ns = index.states.cost.map(|cost| cost.end_ns).or(last_ns);
    index.start_ns().or(first_ns).zip(to_ns).filter(|(from_ns, to_ns)| from_ns < to_ns)
}

/// Returns the bounds of `EQUAL_INTERVALS` equal intervals of `span`; empty if `span` is `None`.
fn evenly(span: Option<(u64, u64)>) -> Vec<u64> {
    let Some((from_ns, to_ns)) = span else { return Vec::new() };
    let length = u128::from(to_ns - from_ns);
    (0..=EQUAL_INTERVALS).map(|at| from_ns + (length * u128::from(at) / u128::from(EQUAL_INTERVALS)) as u64).collect()
}

#[cfg(test)]
impl RecordedProgram {
    /// Makes a program that has only a tag.
    pub(super) fn with_tag(tag: Tag) -> RecordedProgram {
        RecordedProgram {
            programs: 1,
            tags: vec![tag],
            owners: BTreeSet::new(),
            ids: Vec::new(),
            runs: Known::Unknown(Reason::NoRunStatistics),
            events: Vec::new(),
        }
    }
}
