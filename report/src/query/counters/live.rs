//! Live counters without a recording: one table per interval, and one for the whole time. States and arithmetic are those of a recording.

use super::notes;
use super::over_time::{About, CounterScale, says_something, target_of};
use super::track::Track;
use super::{CountedTarget, CounterHistory};
use crate::index::runs::{ProgramKey, RunSeries, Stretch};
use crate::index::states::BootTimes;
use crate::index::states::counters_note;
use crate::input::window::{Window, since};
use crate::model::{
    CounterRow, CounterSource, CounterTarget, Counting, Exact, Known, Note, Reason, StatRow, StatSnapshot,
};
use bprec_format::bprec::state::{Missed, RunStats, Session, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Limit on the unloaded programs that are kept, and on the uncaptured programs. Beyond it, the oldest are dropped, because counting may go on for
/// months.
const MOST_ENDED: usize = 1000;

/// Accumulates states in the order of time, and makes tables of counts.
#[derive(Debug)]
pub struct StatAccumulator {
    history: CounterHistory,
    runs: RunSeries,
    /// Time of the last reading of run statistics before the interval, ns.
    read_ns: u64,
    session: Option<Session>,
    boot_times: BootTimes,
    names: BTreeMap<(u32, u64), TargetName>,
    /// For each unloaded program, a time at which it was certainly unloaded, ns.
    released: BTreeMap<(u32, u64), u64>,
    /// Unloaded programs, in the order of their unloads.
    ended: VecDeque<ProgramKey>,
    missed: VecDeque<Missed>,
    /// Count of unloaded or uncaptured programs that are no longer kept.
    forgotten: u64,
    /// True if programs without runs are shown.
    all: bool,
    /// Start of the next interval, ns.
    from_ns: u64,
    window: Window,
}

#[derive(Debug)]
struct TargetName {
    name: String,
    prog_type: String,
}

impl StatRow {
    /// Returns the row of the best source.
    pub fn best(&self) -> Option<&CounterRow> {
        let exact = self.exact.as_ref().and_then(Known::value);
        let shared = self.shared.as_ref().and_then(Known::value);
        // A source that stopped counting covers only a part of the time, so another source is better.
        let to_the_end = |row: &&CounterRow| row.counts.value().is_some_and(|counts| counts.values.ended.is_none());
        let stats = self.stats.as_ref();
        // If exact counters started late and run statistics cover more of the time, run statistics are better.
        let throughout = |exact: &&CounterRow| stats.filter(to_the_end).is_none_or(|stats| is_as_long(exact, stats));
        exact.filter(to_the_end).filter(throughout).or(stats.filter(to_the_end)).or(shared).or(exact).or(stats)
    }

    /// Returns the runs refused by the kernel's recursion guard, if known.
    pub fn misses(&self) -> Option<u64> {
        let stats = &self.stats.as_ref()?.counts.value()?.values;
        stats.misses.filter(|_| stats.ended.is_none())
    }

    /// Returns the time in the program, % of one CPU.
    fn cost(&self) -> f64 {
        let counts = self.best().and_then(|row| row.counts.value());
        counts.and_then(|counts| counts.cpu_percent).unwrap_or(0.0)
    }
}

/// Key by which rows are sorted and joined: kind, id, load time, function and CPU of the target.
type LiveRowKey = (&'static str, u64, Option<u64>, u32, Option<u32>);

fn key_of(target: &CounterTarget) -> LiveRowKey {
    (target.kind, target.id, target.load_time_ns, target.function, target.cpu)
}

impl StatAccumulator {
    /// Makes an empty accumulator. With `all`, programs without runs are shown too.
    pub fn new(all: bool) -> StatAccumulator {
        StatAccumulator {
            history: CounterHistory { over_time: true, ..CounterHistory::default() },
            runs: RunSeries::default(),
            read_ns: 0,
            session: None,
            boot_times: BootTimes::default(),
            names: BTreeMap::new(),
            released: BTreeMap::new(),
            ended: VecDeque::new(),
            missed: VecDeque::new(),
            forgotten: 0,
            all,
            from_ns: 0,
            window: Window::everything(),
        }
    }

    /// Sets the name and type of a program.
    pub fn name(&mut self, id: u32, load_time_ns: u64, name: String, prog_type: String) {
        self.names.insert((id, load_time_ns), TargetName { name, prog_type });
    }

    /// Adds a state.
    pub fn add(&mut self, state: State) {
        match state {
            State::Session(session) => {
                self.from_ns = session.start_ns;
                self.boot_times.begin(&session);
                self.session = Some(session);
            }
            State::BootClock(clock) => self.boot_times.changed(&clock),
            State::RunStats(stats) => self.run_stats(&stats),
            State::StatsOff(off) => self.history.stats_off(&off),
            State::CounterEvents(events) => self.history.events(events),
            State::ProgramCounters(counters) => self.history.programs(&counters, &self.window),
            State::SharedCounters(counters) => self.history.shared(&counters, &self.window),
            State::Released(released) => {
                let key = (released.id, released.load_time_ns);
                if self.released.insert(key, released.before_ns).is_none() {
                    self.ended.push_back(key);
                }
            }
            State::Missed(missed) => {
                self.missed.push_back(missed);
                if self.missed.len() > MOST_ENDED {
                    self.missed.pop_front();
                    self.forgotten += 1;
                }
            }
            _ => {}
        }
    }

    fn run_stats(&mut self, stats: &RunStats) {
        if self.history.stats_off.as_ref().is_some_and(|off| off.time_ns <= stats.time_ns) {
            return;
        }
        self.runs.add(stats);
        let Some(start_ns) = self.session.as_ref().map(|session| session.start_ns) else { return };
        for program in &stats.programs {
            let loaded_ns = self.boot_times.to_recording(program.load_time_ns);
            if let Some(loaded_ns) = loaded_ns.filter(|loaded_ns| *loaded_ns >= start_ns) {
                self.runs.loaded((program.id, program.load_time_ns), loaded_ns);
            }
        }
        self.runs.settle();
    }

    /// Corrects the runs that were counted in windows: counting slows programs, so they run more often outside of windows. Unlike a recording, a live
    /// count has no samples that measure the slowdown. Called once for each table, not for each reading: readings are far more frequent.
    fn correct_runs(&mut self) {
        let run_ns = self.session.as_ref().and_then(|session| session.statistics_run_ns);
        if let Some(run_ns) = run_ns.filter(|_| self.runs.has_windows()) {
            self.runs.correct(run_ns, None);
        }
    }

    /// Starts a new interval without a table for the current one.
    pub fn skip(&mut self) {
        let CounterHistory { targets, cpu_targets, shared_targets, .. } = &mut self.history;
        let tracks = targets.values_mut().chain(cpu_targets.values_mut());
        tracks.chain(shared_targets.values_mut()).for_each(|target| target.track.intervals.clear());
        self.read_ns = self.runs.moments_ns().next_back().unwrap_or(0);
        self.forget_ended();
    }

    /// Removes the oldest of the unloaded programs if too many are kept. Called after the table of an interval is made, so the table has all programs
    /// that were unloaded in the interval.
    fn forget_ended(&mut self) {
        let more = self.ended.len().saturating_sub(MOST_ENDED);
        if more == 0 {
            return;
        }
        let keys: BTreeSet<ProgramKey> = self.ended.drain(..more).collect();
        self.history.targets.retain(|(id, load_time_ns, _), _| !keys.contains(&(*id, *load_time_ns)));
        self.history.cpu_targets.retain(|((id, load_time_ns, _), _), _| !keys.contains(&(*id, *load_time_ns)));
        for key in &keys {
            self.runs.forget(*key);
            self.names.remove(key);
            self.released.remove(key);
        }
        self.forgotten += more as u64;
    }

    /// Returns the counts since the last call, up to `to_ns` of the clock.
    pub fn interval(&mut self, to_ns: u64) -> StatSnapshot {
        self.correct_runs();
        let snapshot = self.snapshot(false, self.from_ns, to_ns);
        self.skip();
        self.from_ns = to_ns;
        snapshot
    }

    /// Returns all counts, up to `to_ns` of the clock.
    pub fn total(&mut self, to_ns: u64) -> StatSnapshot {
        self.correct_runs();
        let start_ns = self.session.as_ref().map_or(0, |session| session.start_ns);
        self.snapshot(true, start_ns, to_ns)
    }

    fn snapshot(&self, is_total: bool, from_ns: u64, to_ns: u64) -> StatSnapshot {
        let session = self.session.as_ref();
        let scale = CounterScale {
            start_ns: session.map_or(0, |session| session.start_ns),
            cpus: session.map(|session| session.cpus_online).filter(|cpus| *cpus > 0),
        };
        let exact = self.history.counting();
        let shared = self.history.shared_counting();
        let mut rows: BTreeMap<LiveRowKey, StatRow> = BTreeMap::new();
        let none = Counting::default();
        let empty = |target: &CounterTarget, prog_type: &str, unloaded_ns: Option<i64>| StatRow {
            target: target.clone(),
            prog_type: prog_type.to_owned(),
            exact: None,
            stats: None,
            shared: None,
            unloaded_ns,
        };
        let ended = self.history.stats_off.as_ref().map(|off| off.reason.as_str());
        for key in self.runs.keys() {
            let (name, prog_type, unloaded_ns) = self.known(key, &scale);
            let target = target_of(key, name);
            if let Some(stats) = scale.known_runs(&target, self.ran(key, is_total), ended) {
                let row = StatRow { stats: Some(stats), ..empty(&target, prog_type, unloaded_ns) };
                rows.insert(key_of(&target), row);
            }
        }
        let mut add = |about: About<'_>, counting: &Counting, prog_type: &str, unloaded_ns: Option<i64>| {
            let row = self.row(is_total, &scale, &about, counting);
            let Some(row) = row else { return };
            let found = rows.entry(key_of(&about.target));
            let found = found.or_insert_with(|| empty(&about.target, prog_type, unloaded_ns));
            match about.source {
                CounterSource::Shared => found.shared = Some(row),
                CounterSource::Exact | CounterSource::Stats => found.exact = Some(row),
            }
        };
        let of_all = self.history.targets.iter().map(|(key, target)| (*key, None, target));
        let of_cpus = self.history.cpu_targets.iter().map(|((key, cpu), target)| (*key, Some(*cpu), target));
        for (key, cpu, target) in of_all.chain(of_cpus) {
            let (name, prog_type, unloaded_ns) = self.known((key.0, key.1), &scale);
            let mut about = About::program(key, name, target);
            about.target.cpu = cpu;
            add(about, exact.as_ref().unwrap_or(&none), prog_type, unloaded_ns);
        }
        for ((scope, id), target) in &self.history.shared_targets {
            add(About::shared(*scope, *id, target), shared.as_ref().unwrap_or(&none), "", None);
        }
        let (mut rows, idle): (Vec<_>, Vec<_>) =
            rows.into_values().partition(|row| self.all || ran(row) || is_total && may_have_run(row));
        let quiet = idle.iter().filter(|row| row.target.function == 0 && row.target.cpu.is_none()).count();
        if is_total {
            sort_by_cost(&mut rows);
        }
        let since_start = |time: u64| since(time, scale.start_ns);
        let mut snapshot = StatSnapshot {
            is_total,
            from_ns: since_start(from_ns),
            to_ns: since_start(to_ns),
            target: session.map(|session| session.target.clone()).unwrap_or_default(),
            cpus: scale.cpus,
            exact,
            shared,
            note: counters_note(session, self.history.stats_off.as_ref()),
            rows,
            quiet,
            missed: self.missed.iter().map(|missed| (missed.id, missed.reason.clone())).collect(),
            notes: Vec::new(),
        };
        if is_total {
            snapshot.notes = notes_of(&snapshot);
            let forgotten = Note::EndedNotListed { programs: self.forgotten };
            snapshot.notes.extend((self.forgotten > 0).then_some(forgotten));
        }
        snapshot
    }

    /// Returns the runs of a program: with `is_total`, in the whole time, otherwise in the interval.
    fn ran(&self, key: ProgramKey, is_total: bool) -> Known<Stretch> {
        if is_total {
            return self.runs.within(key, &self.window);
        }
        match self.runs.between(key, self.read_ns, u64::MAX) {
            // The program was unloaded before the interval.
            Known::Value(stretch) if stretch.length_ns == 0.0 => Known::Unknown(Reason::NoSnapshots),
            known => known,
        }
    }

    /// Returns the row of one source; `None` without counts in the interval.
    fn row(
        &self,
        is_total: bool,
        scale: &CounterScale,
        about: &About<'_>,
        counting: &Counting,
    ) -> Option<Known<CounterRow>> {
        let target: &CountedTarget = about.counted;
        if !target.counted {
            return Some(Known::Unknown(Reason::recorder(&target.reason)));
        }
        if is_total {
            target.track.span?;
            return Some(Known::Value(scale.row(about, &target.track, counting)));
        }
        let track = Track::of(&target.track.intervals);
        track.span?;
        Some(Known::Value(scale.row(about, &track, counting)))
    }

    /// Returns the name, type and unload time of a program.
    fn known(&self, key: (u32, u64), scale: &CounterScale) -> (&str, &str, Option<i64>) {
        let name = self.names.get(&key);
        let unloaded = self.released.get(&key).map(|time| since(*time, scale.start_ns));
        (name.map_or("", |it| &it.name), name.map_or("", |it| &it.prog_type), unloaded)
    }
}

/// Returns true if `row` covers the time of `other`, except for a short time at its start or end.
fn is_as_long(row: &CounterRow, other: &CounterRow) -> bool {
    const BETWEEN_NS: i64 = 2_000_000;
    let length_ns = other.to_ns.saturating_sub(other.from_ns);
    let late_ns = row.from_ns.saturating_sub(other.from_ns).max(0);
    let missing_ns = late_ns.saturating_add(other.to_ns.saturating_sub(row.to_ns).max(0));
    missing_ns <= (length_ns / 20).max(BETWEEN_NS.min(length_ns / 4))
}

fn ran(row: &StatRow) -> bool {
    row.target.kind != "program"
        || row.stats.as_ref().is_some_and(says_something)
        || row.exact.as_ref().is_some_and(|exact| exact.value().is_some_and(says_something))
}

/// Returns true if each source has no counts or stopped early, so that the program may have run unseen.
fn may_have_run(row: &StatRow) -> bool {
    let saw_it_all = |row: &CounterRow| row.counts.value().is_some_and(|counts| counts.values.ended.is_none());
    let exact = row.exact.as_ref().and_then(Known::value);
    !row.stats.iter().chain(exact).any(saw_it_all)
}

/// Sorts programs by the cost of their runs, each followed by its functions and CPUs.
fn sort_by_cost(rows: &mut [StatRow]) {
    let whole = |row: &StatRow| (row.target.kind, row.target.id, row.target.load_time_ns);
    let costs: BTreeMap<(&str, u64, Option<u64>), f64> =
        rows.iter().filter(|row| row.target.cpu.is_none()).fold(BTreeMap::new(), |mut costs, row| {
            let cost = costs.entry(whole(row)).or_insert(0.0f64);
            *cost = cost.max(row.cost());
            costs
        });
    let cost = |row: &StatRow| costs.get(&whole(row)).copied().unwrap_or(0.0);
    // The sort is stable: equal costs keep the order of keys.
    rows.sort_by(|a, b| cost(b).total_cmp(&cost(a)).then(whole(a).cmp(&whole(b))));
}

/// Returns the notes for the table of the whole time.
fn notes_of(snapshot: &StatSnapshot) -> Vec<Note> {
    let mut all: Vec<Note> = snapshot.note.iter().map(|said| Note::CountersNote { said: said.clone() }).collect();
    let exact = snapshot.rows.iter().filter_map(|row| {
        let counts = row.exact.as_ref()?.value()?.counts.value()?;
        Some((row, &counts.values))
    });
    let labelled = |row: &StatRow| format!("{} ({})", row.target.label(), row.target.id);
    if let Some(counting) = &snapshot.exact {
        all.extend(notes::how(counting, exact.clone().map(|(_, exact)| exact)));
        if exact.clone().next().is_some() {
            all.push(Note::ExactBesideStatistics);
        }
    }
    all.extend(snapshot.shared.iter().flat_map(notes::how_shared));
    all.extend(notes::refused(
        snapshot.rows.iter().filter_map(|row| Some((row.exact.as_ref()?.why()?, labelled(row)))),
    ));
    let exact = exact.filter(|(row, _)| row.target.cpu.is_none()).map(|(row, exact)| (labelled(row), exact));
    let exact: Vec<(String, &Exact)> = exact.collect();
    all.extend(notes::of_targets(&exact));
    all.extend(notes::not_measured(&exact));
    for row in &snapshot.rows {
        let of = row.target.label();
        let shared = row.shared.as_ref().and_then(Known::value);
        for source in [row.exact.as_ref().and_then(Known::value), row.stats.as_ref(), shared].into_iter().flatten() {
            match &source.counts {
                Known::Value(_) => {}
                Known::Unknown(reason) => {
                    all.push(Note::TargetNotCounted { name: of.clone(), reason: reason.clone() });
                }
                Known::Impossible(anomaly) => {
                    all.push(Note::Impossible { of: of.clone(), interval: None, anomaly: anomaly.clone() });
                }
            }
        }
        if let Some(counts) = shared.and_then(|shared| shared.counts.value()) {
            all.extend(notes::of_targets(&[(of.clone(), &counts.values)]));
        }
        if let Some(Known::Unknown(reason)) = &row.shared {
            all.push(Note::TargetNotCounted { name: of.clone(), reason: reason.clone() });
        }
        if let Some(after_ns) = row.unloaded_ns.filter(|_| row.target.cpu.is_none() && row.target.function == 0) {
            all.push(Note::Unloaded { program: labelled(row), after_ns });
        }
    }
    if snapshot.quiet > 0 {
        all.push(Note::DidNotRun { programs: snapshot.quiet });
    }
    if !snapshot.missed.is_empty() {
        all.push(Note::NotCaptured { ids: snapshot.missed.iter().map(|(id, _)| *id).collect() });
    }
    all
}
