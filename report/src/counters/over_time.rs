//! Counters from snapshot to snapshot, and what that adds up to.

use super::exact::{Counting, Exact, exact};
use super::track::Track;
use super::{CounterHistory, Target, TargetKey};
use crate::index::{Index, Wanted};
use crate::recording::Recording;
use crate::window::Window;
use crate::{Options, Result, Unknown};
use bprec_format::feature::{CpuCount, Feature};
use bprec_format::state::{Reading, SharedScope};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Where a count comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterSource {
    /// The kernel's run statistics.
    Stats,
    /// Programs of the recorder around each counted one.
    Exact,
    /// Counters that are read at context switches.
    Shared,
}

impl CounterSource {
    /// Its name in every view.
    pub fn name(self) -> &'static str {
        match self {
            CounterSource::Stats => "stats",
            CounterSource::Exact => "exact",
            CounterSource::Shared => "shared",
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterTarget {
    /// `program`, or `machine`, `cpu`, `pid`, `tgid`, `cgroup` of shared counters.
    pub kind: &'static str,
    /// Id of the program, number of the CPU or task, id of the cgroup; 0 for the machine.
    pub id: u64,
    /// When the program was loaded, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Which function of the program; 0 is the entry.
    pub function: u32,
    /// The CPU that it was counted on; `None` for all, and for a target that is a CPU.
    pub cpu: Option<u32>,
    /// Name of the program or function, of the task, path of the cgroup.
    pub name: String,
}

/// What was counted of one target, between two snapshots or altogether.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterRow {
    /// Where it comes from.
    pub source: CounterSource,
    /// What it is of.
    pub target: CounterTarget,
    /// From when, ns since the recording's start.
    pub from_ns: i64,
    /// Up to when.
    pub to_ns: i64,
    /// What was counted, or why that cannot be told.
    pub counts: Result<CounterTotals, Unknown>,
}

/// Counts as they were read, and what follows from them.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterTotals {
    /// Time of the measured runs, ns, nothing taken off. 0 for shared counters.
    pub measured_ns: u64,
    /// Readings of the measured runs, nothing taken off and nothing scaled.
    pub readings: Vec<Reading>,
    /// Time of all runs of one CPU's time, in per cent; `None` when the time is not known, and for shared counters.
    pub cpu_percent: Option<f64>,
    /// Runs, and values per run. For shared counters there are no runs, and events are not per run but altogether.
    pub values: Exact,
}

/// The view of counters over time.
#[derive(Debug, Clone, PartialEq)]
pub struct CountersReport {
    /// When the recording started, ns of its clock.
    pub start_ns: u64,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// What exact counters count.
    pub exact: Option<Counting>,
    /// What shared counters count.
    pub shared: Option<Counting>,
    /// Where run statistics come from, in words.
    pub counters_note: Option<String>,
    /// From snapshot to snapshot, by time.
    pub rows: Vec<CounterRow>,
    /// The same targets over all of the time that is looked at.
    pub totals: Vec<CounterRow>,
    /// Targets that were never counted: name, id, reason.
    pub refused: Vec<(String, u64, String)>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

/// Makes the view.
pub(crate) fn over_time(recording: &Recording<'_>, options: &Options) -> Result<CountersReport> {
    let window = Window::of(&options.time, recording)?;
    let index = Index::build(recording, &window, Wanted { over_time: true, ..Wanted::default() });
    let history = &index.counters;
    let session = index.states.session.as_ref();
    let count: Option<CpuCount> = recording.feature(Feature::NRCPUS);
    let cpus = session.map(|session| session.cpus_online).or(count.map(|count| count.online));
    let snapshots = history.stats.values().chain(history.targets.values()).chain(history.shared_targets.values());
    let first = snapshots.filter_map(|target| target.track.span).map(|(from_ns, _)| from_ns).min();
    let mut maker = Maker {
        index: &index,
        options,
        scale: Scale {
            start_ns: session.map(|session| session.start_ns).or(first).unwrap_or(0),
            cpus: cpus.filter(|cpus| *cpus > 0),
        },
        exact: history.counting(),
        shared: history.shared_counting(),
        rows: Vec::new(),
        totals: Vec::new(),
        refused: Vec::new(),
    };
    maker.fill(history);
    let mut problems = recording.problems().to_vec();
    problems.extend(index.problems.iter().cloned());
    if index.bad_records > 0 {
        problems.push(format!("{} more records could not be read", index.bad_records));
    }
    Ok(CountersReport {
        start_ns: maker.scale.start_ns,
        cpus: maker.scale.cpus,
        exact: maker.exact,
        shared: maker.shared,
        counters_note: index.states.counters_note(),
        rows: maker.rows,
        totals: maker.totals,
        refused: maker.refused,
        problems,
    })
}

struct Maker<'m> {
    index: &'m Index,
    options: &'m Options,
    scale: Scale,
    exact: Option<Counting>,
    shared: Option<Counting>,
    rows: Vec<CounterRow>,
    totals: Vec<CounterRow>,
    refused: Vec<(String, u64, String)>,
}

/// What a row is about.
pub(super) struct About<'a> {
    pub(super) source: CounterSource,
    pub(super) target: CounterTarget,
    pub(super) counted: &'a Target,
}

impl<'a> About<'a> {
    /// A function of a program; `program` is the program's name.
    pub(super) fn program(source: CounterSource, key: TargetKey, program: &str, counted: &'a Target) -> About<'a> {
        let (id, load_time_ns, function) = key;
        let name = match function {
            0 => program.to_owned(),
            _ => format!("{program}/{}", counted.name),
        };
        let load_time_ns = Some(load_time_ns);
        let target = CounterTarget { kind: "program", id: id.into(), load_time_ns, function, cpu: None, name };
        About { source, target, counted }
    }

    pub(super) fn shared(scope: SharedScope, id: u64, counted: &'a Target) -> About<'a> {
        let (kind, name) = (scope_name(scope), counted.name.clone());
        let target = CounterTarget { kind, id, load_time_ns: None, function: 0, cpu: None, name };
        About { source: CounterSource::Shared, target, counted }
    }
}

/// What numbers are held against.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scale {
    /// Where times count from, ns of the clock.
    pub(super) start_ns: u64,
    /// CPUs that were online.
    pub(super) cpus: Option<u32>,
}

impl Scale {
    /// What a track comes to.
    pub(super) fn row(&self, about: &About<'_>, track: &Track, counting: &Counting) -> CounterRow {
        let (from_ns, to_ns) = track.span.unwrap_or_default();
        let since_start = |time: u64| time.wrapping_sub(self.start_ns) as i64;
        let is_shared = about.source == CounterSource::Shared;
        // What is of one CPU has no more time than one CPU has.
        let cpus = if about.target.cpu.is_some() { Some(1) } else { self.cpus };
        let values = if is_shared {
            // Not per run: as if there had been one. CPUs are read one after the other, where a machine is slow some ms apart, so that it is
            // the time enabled, which was read with it, that a value is held against.
            exact(about.target.function, &about.target.name, &about.counted.reason, &track.as_one_run(), counting, None)
        } else {
            exact(about.target.function, &about.target.name, &about.counted.reason, track, counting, cpus)
        };
        CounterRow {
            source: about.source,
            target: about.target.clone(),
            from_ns: since_start(from_ns),
            to_ns: since_start(to_ns),
            counts: values.map(|values| {
                let time = values.time.filter(|_| !is_shared).map(|time| time.value * values.runs as f64);
                // None of no runs took any time.
                let time = time.or((!is_shared && values.runs == 0 && values.flaws.is_empty()).then_some(0.0));
                let covered = track.covered_ns as f64;
                CounterTotals {
                    measured_ns: track.sum.time_ns,
                    readings: track.sum.readings.clone(),
                    cpu_percent: time.filter(|_| covered > 0.0).map(|time| time * 100.0 / covered),
                    values,
                }
            }),
        }
    }
}

impl Maker<'_> {
    fn fill(&mut self, history: &CounterHistory) {
        let stats = Counting::default();
        for ((id, load_time_ns), target) in &history.stats {
            let about = self.program(CounterSource::Stats, (*id, *load_time_ns, 0), target);
            self.target(&about, &stats);
        }
        let exact = self.exact.clone().unwrap_or_default();
        for (key, target) in &history.targets {
            let about = self.program(CounterSource::Exact, *key, target);
            self.target(&about, &exact);
        }
        let shared = self.shared.clone().unwrap_or_default();
        for ((scope, id), target) in &history.shared_targets {
            self.target(&About::shared(*scope, *id, target), &shared);
        }
        self.limit();
        self.rows.sort_by_key(|row| (row.from_ns, row.to_ns));
    }

    fn program<'a>(&self, source: CounterSource, key: TargetKey, target: &'a Target) -> About<'a> {
        let (id, load_time_ns, _) = key;
        let known = self
            .index
            .programs
            .known
            .iter()
            .find(|known| known.id == Some(id) && known.info.is_some_and(|info| info.load_time_ns == load_time_ns));
        let name = known.and_then(|known| known.functions.first()).map_or("", |function| &function.name);
        About::program(source, key, name, target)
    }

    fn target(&mut self, about: &About<'_>, counting: &Counting) {
        let asked = self.options.programs.is_empty()
            || about.target.kind == "program"
                && self.options.programs.iter().any(|filter| {
                    let tag =
                        self.index.programs.known.iter().find(|known| known.id.map(u64::from) == Some(about.target.id));
                    let name = about.target.name.split('/').next().unwrap_or_default();
                    filter.matches(Some(about.target.id as u32), tag.and_then(|known| known.tag), name)
                });
        if !asked {
            return;
        }
        if !about.counted.counted {
            self.refused.push((about.target.name.clone(), about.target.id, about.counted.reason.clone()));
            return;
        }
        for interval in &about.counted.track.intervals {
            let row = self.scale.row(about, &Track::of(std::slice::from_ref(interval)), counting);
            if self.options.all || says_something(&row) {
                self.rows.push(row);
            }
        }
        if about.counted.track.span.is_some() {
            let row = self.scale.row(about, &about.counted.track, counting);
            if self.options.all || says_something(&row) {
                self.totals.push(row);
            }
        }
    }

    /// Keeps the targets that took most time.
    fn limit(&mut self) {
        let Some(limit) = self.options.limit else { return };
        let mut order: Vec<(Reverse<u64>, Key)> = self
            .totals
            .iter()
            .map(|row| (Reverse(row.counts.as_ref().map_or(0, |counts| counts.measured_ns)), key(row)))
            .collect();
        order.sort();
        // A program counts once, from whatever source.
        let mut kept: BTreeSet<Key> = BTreeSet::new();
        for (_, key) in order {
            if kept.len() < limit {
                kept.insert(key);
            }
        }
        self.rows.retain(|row| kept.contains(&key(row)));
        self.totals.retain(|row| kept.contains(&key(row)));
    }
}

type Key = (&'static str, u64, Option<u64>, u32);

fn key(row: &CounterRow) -> Key {
    (row.target.kind, row.target.id, row.target.load_time_ns, row.target.function)
}

/// Something was counted, or something is wrong.
pub(super) fn says_something(row: &CounterRow) -> bool {
    match &row.counts {
        Err(_) => true,
        Ok(counts) => {
            let values = &counts.values;
            values.runs > 0
                || values.misses.is_some_and(|misses| misses > 0)
                || !values.flaws.is_empty()
                || row.source == CounterSource::Shared
        }
    }
}

fn scope_name(scope: SharedScope) -> &'static str {
    match scope {
        SharedScope::MACHINE => "machine",
        SharedScope::CPU => "cpu",
        SharedScope::PID => "pid",
        SharedScope::TGID => "tgid",
        SharedScope::CGROUP => "cgroup",
        _ => "other",
    }
}
