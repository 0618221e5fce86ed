//! Counters from snapshot to snapshot, and their totals.

use super::exact::{exact, exact_of_runs};
use super::notes;
use super::track::Track;
use super::{CountedTarget, CounterHistory, TargetKey};
use crate::index::Index;
use crate::index::runs::{ProgramKey, Stretch};
use crate::input::recording::OpenRecording;
use crate::input::window::{Window, since};
use crate::model::text::UNNAMED;
use crate::model::{
    CounterRow, CounterSource, CounterTarget, CounterTotals, CountersReport, Counting, Exact, JSON_VERSION, Known,
    NamedReading, Note, Reason, RefusedTarget,
};
use crate::pass::Asked;
use crate::{Options, Result};
use bprec_format::bpf::Tag;
use bprec_format::bprec::state::SharedScope;
use bprec_format::feature::{CpuCount, Feature};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Reads the snapshots, and makes the report of counters from snapshot to snapshot.
pub(crate) fn over_time(recording: &OpenRecording<'_>, index: &Index, options: &Options) -> Result<CountersReport> {
    Asked::of(options, index)?;
    let window = Window::of(&options.time, recording, index.start_ns(), &index.gaps)?;
    let history = CounterHistory::of(recording, index, &window);
    Ok(report(recording, index, options, &history, &window))
}

/// Makes the report of counters from the counts in `history`.
pub(crate) fn report(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    history: &CounterHistory,
    window: &Window,
) -> CountersReport {
    let session = index.states.session.as_ref();
    let count: Option<CpuCount> = recording.feature(Feature::NRCPUS);
    let cpus = session.map(|session| session.cpus_online).or(count.map(|count| count.online));
    let snapshots = history.targets.values().chain(history.shared_targets.values());
    let first = snapshots.filter_map(|target| target.track.span).map(|(from_ns, _)| from_ns);
    let first = first.chain(index.runs.moments_ns().find(|time_ns| window.contains(*time_ns))).min();
    let mut maker = RowsBuilder {
        index,
        options,
        scale: CounterScale {
            start_ns: session.map(|session| session.start_ns).or(first).unwrap_or(0),
            cpus: cpus.filter(|cpus| *cpus > 0),
        },
        exact: history.counting(),
        shared: history.shared_counting(),
        rows: Vec::new(),
        totals: Vec::new(),
        refused: Vec::new(),
    };
    maker.fill(history, window);
    let mut report = CountersReport {
        format: "bprec counters",
        version: JSON_VERSION,
        start_ns: maker.scale.start_ns,
        cpus: maker.scale.cpus,
        counters_note: index.states.counters_note(),
        exact: maker.exact,
        shared: maker.shared,
        rows: maker.rows,
        totals: maker.totals,
        refused: maker.refused,
        problems: index.all_problems(recording),
        notes: Vec::new(),
    };
    report.notes = notes_of(&report);
    report
}

struct RowsBuilder<'m> {
    index: &'m Index,
    options: &'m Options,
    scale: CounterScale,
    exact: Option<Counting>,
    shared: Option<Counting>,
    rows: Vec<CounterRow>,
    totals: Vec<CounterRow>,
    refused: Vec<RefusedTarget>,
}

/// Source and target of a row, and its counts.
pub(super) struct About<'a> {
    pub(super) source: CounterSource,
    pub(super) target: CounterTarget,
    pub(super) counted: &'a CountedTarget,
}

/// Returns the target of a program's entry function.
pub(super) fn target_of((id, load_time_ns): ProgramKey, program: &str) -> CounterTarget {
    let load_time_ns = Some(load_time_ns);
    CounterTarget { kind: "program", id: id.into(), load_time_ns, function: 0, cpu: None, name: program.to_owned() }
}

impl<'a> About<'a> {
    /// Describes an exactly counted function; `program` is the program's name.
    pub(super) fn program(key: TargetKey, program: &str, counted: &'a CountedTarget) -> About<'a> {
        let (id, load_time_ns, function) = key;
        let mut target = target_of((id, load_time_ns), program);
        if function > 0 {
            target.name = format!("{program}/{}", counted.name);
        }
        let target = CounterTarget { function, ..target };
        About { source: CounterSource::Exact, target, counted }
    }

    pub(super) fn shared(scope: SharedScope, id: u64, counted: &'a CountedTarget) -> About<'a> {
        let (kind, name) = (scope_name(scope), counted.name.clone());
        let target = CounterTarget { kind, id, load_time_ns: None, function: 0, cpu: None, name };
        About { source: CounterSource::Shared, target, counted }
    }
}

/// Start of a table's time axis, and the number of CPUs: their time limits the counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CounterScale {
    /// Start of the time axis, ns of the clock.
    pub(super) start_ns: u64,
    /// Count of online CPUs; `None` if unknown.
    pub(super) cpus: Option<u32>,
}

impl CounterScale {
    /// Returns the row of a program's runs; `None` without readings.
    pub(super) fn known_runs(
        &self,
        target: &CounterTarget,
        known: Known<Stretch>,
        ended: Option<&str>,
    ) -> Option<CounterRow> {
        let lack =
            |counts| CounterRow { source: CounterSource::Stats, target: target.clone(), from_ns: 0, to_ns: 0, counts };
        match known {
            Known::Value(stretch) => Some(self.runs(target, &stretch, stretch.count(), ended)),
            Known::Unknown(Reason::NoSnapshots) => None,
            Known::Unknown(reason) => Some(lack(Known::Unknown(reason))),
            Known::Impossible(anomaly) => Some(lack(Known::Impossible(anomaly))),
        }
    }

    /// Returns the row of a program's runs; `count` is the rounded count of runs.
    pub(super) fn runs(&self, target: &CounterTarget, it: &Stretch, count: u64, ended: Option<&str>) -> CounterRow {
        let (from_ns, to_ns) = it.span;
        let values = exact_of_runs(it, count, ended, self.cpus);
        CounterRow {
            source: CounterSource::Stats,
            target: target.clone(),
            from_ns: since(from_ns, self.start_ns),
            to_ns: since(to_ns, self.start_ns),
            counts: Known::Value(CounterTotals {
                is_shared: false,
                measured_ns: it.counted_time_ns.round() as u64,
                readings: Vec::new(),
                cpu_percent: (it.length_ns > 0.0 && values.time.value().is_some() || count == 0)
                    .then(|| it.time_ns * 100.0 / it.length_ns.max(1.0)),
                values,
            }),
        }
    }

    /// Returns the row of a track's totals.
    pub(super) fn row(&self, about: &About<'_>, track: &Track, counting: &Counting) -> CounterRow {
        let (from_ns, to_ns) = track.span.unwrap_or_default();
        let since_start = |time: u64| since(time, self.start_ns);
        let is_shared = about.source == CounterSource::Shared;
        // Counts of one CPU are limited by the time of one CPU.
        let cpus = if about.target.cpu.is_some() { Some(1) } else { self.cpus };
        let values = if is_shared {
            // Shared counters have no runs, so their totals are treated as one run. The CPUs' counters are read one after another, on a slow machine
            // some ms apart. A value is therefore checked against the time in which it was enabled, not against the time between the snapshots.
            exact(about.target.function, &about.target.name, &about.counted.reason, &track.as_one_run(), counting, None)
        } else {
            exact(about.target.function, &about.target.name, &about.counted.reason, track, counting, cpus)
        };
        CounterRow {
            source: about.source,
            target: about.target.clone(),
            from_ns: since_start(from_ns),
            to_ns: since_start(to_ns),
            counts: values.map(|mut values| {
                values.events.iter_mut().for_each(|event| event.is_altogether = is_shared);
                let time = values.time.value().filter(|_| !is_shared).map(|time| time.value * values.runs as f64);
                // Intervals without runs took no time.
                let time = time.or((!is_shared && values.runs == 0 && values.anomalies.is_empty()).then_some(0.0));
                let covered = track.covered_ns as f64;
                let readings = track.sum.readings.iter().enumerate().map(|(at, reading)| NamedReading {
                    event: counting.events.get(at).map(|event| event.name.clone()),
                    value: reading.value,
                    enabled_ns: reading.enabled_ns,
                    running_ns: reading.running_ns,
                });
                CounterTotals {
                    is_shared,
                    measured_ns: track.sum.time_ns,
                    readings: readings.collect(),
                    cpu_percent: time.filter(|_| covered > 0.0).map(|time| time * 100.0 / covered),
                    values,
                }
            }),
        }
    }
}

impl RowsBuilder<'_> {
    fn fill(&mut self, history: &CounterHistory, window: &Window) {
        let cuts = self.index.runs.cut_at(usize::MAX);
        let ended = history.stats_off.as_ref().map(|off| off.reason.as_str());
        for key in self.index.runs.keys() {
            self.runs(key, window, &cuts, ended);
        }
        let exact = self.exact.clone().unwrap_or_default();
        for (key, target) in &history.targets {
            let about = About::program(*key, self.name((key.0, key.1)), target);
            self.target(&about, Some((key.0, key.1)), &exact);
        }
        let shared = self.shared.clone().unwrap_or_default();
        for ((scope, id), target) in &history.shared_targets {
            self.target(&About::shared(*scope, *id, target), None, &shared);
        }
        self.limit();
        self.rows.sort_by_key(|row| (row.from_ns, row.to_ns));
    }

    fn name(&self, (id, load_time_ns): ProgramKey) -> &str {
        self.index.programs.by_key(id, load_time_ns).map_or("", |program| program.name())
    }

    fn is_asked(&self, program: Option<ProgramKey>) -> bool {
        let matches = |(id, load_time_ns): ProgramKey| {
            let tag = self.index.programs.by_key(id, load_time_ns).and_then(|program| program.tag);
            let name = self.name((id, load_time_ns));
            self.options.programs.iter().any(|filter| filter.matches(Some(id), tag.map(Tag), name))
        };
        self.options.programs.is_empty() || program.is_some_and(matches)
    }

    /// Adds the rows of a program's run statistics.
    fn runs(&mut self, key: ProgramKey, window: &Window, cuts: &[u64], ended: Option<&str>) {
        if !self.is_asked(Some(key)) {
            return;
        }
        let target = target_of(key, self.name(key));
        let shown = |row: &CounterRow| self.options.all || says_something(row);
        if let Known::Value(steps) = self.index.runs.steps(key, window, cuts) {
            let counts = Stretch::counts(&steps);
            let rows = steps.iter().zip(counts).map(|(step, count)| self.scale.runs(&target, step, count, ended));
            let rows: Vec<CounterRow> = rows.filter(shown).collect();
            self.rows.extend(rows);
        }
        let total = self.scale.known_runs(&target, self.index.runs.within(key, window), ended).filter(shown);
        self.totals.extend(total);
    }

    fn target(&mut self, about: &About<'_>, program: Option<ProgramKey>, counting: &Counting) {
        if !self.is_asked(program) {
            return;
        }
        if !about.counted.counted {
            let (name, reason) = (about.target.name.clone(), about.counted.reason.clone());
            self.refused.push(RefusedTarget { name, id: about.target.id, reason });
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

    /// Keeps the targets that took the most time.
    fn limit(&mut self) {
        let Some(limit) = self.options.limit else { return };
        let mut order: Vec<(Reverse<u64>, RowKey)> = self
            .totals
            .iter()
            .map(|row| (Reverse(row.counts.value().map_or(0, |counts| counts.measured_ns)), key(row)))
            .collect();
        order.sort();
        // Rows of one program from several sources have the same key, so they count as one target.
        let mut kept: BTreeSet<RowKey> = BTreeSet::new();
        for (_, key) in order {
            if kept.len() < limit {
                kept.insert(key);
            }
        }
        self.rows.retain(|row| kept.contains(&key(row)));
        self.totals.retain(|row| kept.contains(&key(row)));
    }
}

type RowKey = (&'static str, u64, Option<u64>, u32);

fn key(row: &CounterRow) -> RowKey {
    (row.target.kind, row.target.id, row.target.load_time_ns, row.target.function)
}

/// Returns true if a row has counts or an anomaly.
pub(super) fn says_something(row: &CounterRow) -> bool {
    match row.counts.value() {
        None => true,
        Some(counts) => {
            let values = &counts.values;
            values.runs > 0
                || values.misses.is_some_and(|misses| misses > 0)
                || !values.anomalies.is_empty()
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

/// Returns the name of a row's target.
fn name(row: &CounterRow) -> String {
    match row.target.name.as_str() {
        "" if row.target.kind == "program" => UNNAMED.to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the notes of the report.
fn notes_of(report: &CountersReport) -> Vec<Note> {
    let mut all = Vec::new();
    if let Some(counting) = &report.exact {
        let exact = report.rows.iter().chain(&report.totals).filter(|row| row.source == CounterSource::Exact);
        all.extend(notes::how(counting, exact.filter_map(|row| Some(&row.counts.value()?.values))));
    }
    all.extend(report.shared.iter().flat_map(notes::how_shared));
    all.extend(report.counters_note.iter().map(|said| Note::CountersNote { said: said.clone() }));
    let counted = |row| -> Option<(String, &Exact)> { Some((name(row), &row.counts.value()?.values)) };
    all.extend(notes::of_targets(&report.totals.iter().filter_map(counted).collect::<Vec<_>>()));
    let exact = report.totals.iter().filter(|row| row.source == CounterSource::Exact);
    all.extend(notes::not_measured(&exact.filter_map(counted).collect::<Vec<_>>()));
    let of_totals: FxHashSet<(String, String)> = all
        .iter()
        .filter_map(|note| match note {
            Note::Impossible { of, interval: None, anomaly } => Some((of.clone(), anomaly.to_string())),
            _ => None,
        })
        .collect();
    for row in &report.rows {
        let (of, interval) = (name(row), (row.from_ns, row.to_ns));
        match &row.counts {
            Known::Unknown(reason) => all.push(Note::IntervalUnknown { of, interval, reason: reason.clone() }),
            Known::Impossible(anomaly) => {
                all.push(Note::Impossible { of, interval: Some(interval), anomaly: anomaly.clone() });
            }
            Known::Value(counts) => {
                for anomaly in &counts.values.anomalies {
                    // An anomaly that the notes on totals report is not repeated for the interval.
                    if !of_totals.contains(&(of.clone(), anomaly.to_string())) {
                        let (of, anomaly) = (of.clone(), Box::new(anomaly.clone()));
                        all.push(Note::Impossible { of, interval: Some(interval), anomaly });
                    }
                }
            }
        }
    }
    let refused = report.refused.iter().map(|refused| {
        let name = if refused.name.is_empty() { UNNAMED } else { &refused.name };
        (refused.reason.clone(), format!("{name} ({})", refused.id))
    });
    all.extend(notes::refused(refused));
    all
}
