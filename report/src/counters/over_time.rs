//! Counters from snapshot to snapshot, and what that adds up to.

use super::exact::exact;
use super::history::History;
use super::notes;
use super::track::Track;
use super::{CounterHistory, Target, TargetKey};
use crate::index::Index;
use crate::input::recording::Recording;
use crate::input::window::{Window, since};
use crate::model::text::UNNAMED;
use crate::model::{
    CounterRow, CounterSource, CounterTarget, CounterTotals, CountersReport, Counting, Exact, JSON_VERSION, Known,
    NamedReading, Note, RefusedTarget,
};
use crate::{Options, Result};
use bprec_format::feature::{CpuCount, Feature};
use bprec_format::state::SharedScope;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Makes the view.
pub(crate) fn over_time(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<CountersReport> {
    let window = Window::of(&options.time, recording, index.start_ns())?;
    let history = &History::of(recording, index, &window, true).counters;
    let session = index.states.session.as_ref();
    let count: Option<CpuCount> = recording.feature(Feature::NRCPUS);
    let cpus = session.map(|session| session.cpus_online).or(count.map(|count| count.online));
    let snapshots = history.stats.values().chain(history.targets.values()).chain(history.shared_targets.values());
    let first = snapshots.filter_map(|target| target.track.span).map(|(from_ns, _)| from_ns).min();
    let mut maker = Maker {
        index,
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
        problems,
        notes: Vec::new(),
    };
    report.notes = notes_of(&report);
    Ok(report)
}

struct Maker<'m> {
    index: &'m Index,
    options: &'m Options,
    scale: Scale,
    exact: Option<Counting>,
    shared: Option<Counting>,
    rows: Vec<CounterRow>,
    totals: Vec<CounterRow>,
    refused: Vec<RefusedTarget>,
}

/// What a row is about.
pub(super) struct About<'a> {
    pub(super) source: CounterSource,
    pub(super) target: CounterTarget,
    pub(super) counted: &'a Target,
    /// Key of the program that it is of.
    program: Option<(u32, u64)>,
    /// Tag of that.
    tag: Option<[u8; 8]>,
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
        About { source, target, counted, program: Some((id, key.1)), tag: None }
    }

    pub(super) fn shared(scope: SharedScope, id: u64, counted: &'a Target) -> About<'a> {
        let (kind, name) = (scope_name(scope), counted.name.clone());
        let target = CounterTarget { kind, id, load_time_ns: None, function: 0, cpu: None, name };
        About { source: CounterSource::Shared, target, counted, program: None, tag: None }
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
        let since_start = |time: u64| since(time, self.start_ns);
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
            counts: values.map(|mut values| {
                values.events.iter_mut().for_each(|event| event.is_altogether = is_shared);
                let time = values.time.value().filter(|_| !is_shared).map(|time| time.value * values.runs as f64);
                // None of no runs took any time.
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
        let program = self.index.programs.by_key(id, load_time_ns);
        let name = program.map_or("", |program| program.name());
        About { tag: program.and_then(|program| program.tag), ..About::program(source, key, name, target) }
    }

    fn target(&mut self, about: &About<'_>, counting: &Counting) {
        let asked = self.options.programs.is_empty()
            || about.target.kind == "program"
                && self.options.programs.iter().any(|filter| {
                    let name = about.target.name.split('/').next().unwrap_or_default();
                    filter.matches(about.program.map(|(id, _)| id), about.tag, name)
                });
        if !asked {
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

    /// Keeps the targets that took most time.
    fn limit(&mut self) {
        let Some(limit) = self.options.limit else { return };
        let mut order: Vec<(Reverse<u64>, Key)> = self
            .totals
            .iter()
            .map(|row| (Reverse(row.counts.value().map_or(0, |counts| counts.measured_ns)), key(row)))
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

/// What a target is called.
fn name(row: &CounterRow) -> String {
    match row.target.name.as_str() {
        "" if row.target.kind == "program" => UNNAMED.to_owned(),
        name => name.to_owned(),
    }
}

/// What has to be said beside the numbers.
fn notes_of(report: &CountersReport) -> Vec<Note> {
    let mut all = Vec::new();
    if let Some(counting) = &report.exact {
        let exact = report.rows.iter().chain(&report.totals).filter(|row| row.source == CounterSource::Exact);
        all.extend(notes::how(counting, exact.filter_map(|row| Some(&row.counts.value()?.values))));
    }
    if let Some(counting) = &report.shared {
        all.extend(notes::absent(counting));
        if !counting.note.is_empty() {
            all.push(Note::HowShared { said: counting.note.clone() });
        }
    }
    all.extend(report.counters_note.iter().map(|said| Note::CountersNote { said: said.clone() }));
    let counted = |row| -> Option<(String, &Exact)> { Some((name(row), &row.counts.value()?.values)) };
    all.extend(notes::of_targets(&report.totals.iter().filter_map(counted).collect::<Vec<_>>()));
    let exact = report.totals.iter().filter(|row| row.source == CounterSource::Exact);
    all.extend(notes::not_measured(&exact.filter_map(counted).collect::<Vec<_>>()));
    for row in &report.rows {
        let (of, interval) = (name(row), (row.from_ns, row.to_ns));
        match &row.counts {
            Known::Unknown(reason) => all.push(Note::IntervalUnknown { of, interval, reason: reason.clone() }),
            Known::Impossible(anomaly) => {
                all.push(Note::Impossible { of, interval: Some(interval), anomaly: anomaly.clone() });
            }
            Known::Value(counts) => {
                for anomaly in &counts.values.anomalies {
                    // What is true of the total as well is said above.
                    let of_total = Note::Impossible { of: of.clone(), interval: None, anomaly: anomaly.clone() };
                    if !all.contains(&of_total) {
                        let (of, anomaly) = (of.clone(), anomaly.clone());
                        all.push(Note::Impossible { of, interval: Some(interval), anomaly });
                    }
                }
            }
        }
    }
    all.extend(report.refused.iter().map(|refused| Note::NeverCounted {
        name: if refused.name.is_empty() { UNNAMED.to_owned() } else { refused.name.clone() },
        id: refused.id,
        why: refused.reason.clone(),
    }));
    all
}
