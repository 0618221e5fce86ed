//! Counters as they come, without a recording: the same states, the same arithmetic, one table per interval and one for
//! all of the time.

use super::exact::{Counting, disagreements};
use super::over_time::{About, CounterRow, CounterSource, CounterTarget, Scale, says_something};
use super::track::Track;
use super::{CounterHistory, Target};
use crate::index::counters_note;
use crate::window::Window;
use crate::{Runs, Unknown};
use bprec_format::state::{Missed, Session, State};
use std::collections::BTreeMap;

/// Takes states of one clock in the order of their times, and tells what they come to.
#[derive(Debug)]
pub struct Meter {
    history: CounterHistory,
    session: Option<Session>,
    names: BTreeMap<(u32, u64), Name>,
    /// When everyone else had let go of a program.
    released: BTreeMap<(u32, u64), u64>,
    missed: Vec<Missed>,
    /// Programs that did not run, too.
    all: bool,
    /// Where the next interval begins, ns of the clock.
    from_ns: u64,
    window: Window,
}

#[derive(Debug)]
struct Name {
    name: String,
    prog_type: String,
}

/// What was counted in one interval, or altogether.
#[derive(Debug, Clone, PartialEq)]
pub struct Metered {
    /// It is all of the time, and not the last interval.
    pub is_total: bool,
    /// From when, ns since counting began.
    pub from_ns: i64,
    /// Up to when.
    pub to_ns: i64,
    /// What is counted, in words.
    pub target: String,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// What exact counters count.
    pub exact: Option<Counting>,
    /// What counters of other targets than programs count.
    pub shared: Option<Counting>,
    /// Why not more is counted.
    pub note: Option<String>,
    /// Per target: in an interval by id, altogether by cost, the most expensive first.
    pub rows: Vec<MeteredRow>,
    /// Programs that are left out because they did not run.
    pub quiet: usize,
    /// Programs that came and went before they could be counted: id and reason.
    pub missed: Vec<(u32, String)>,
}

/// One target, from each source that counts it.
#[derive(Debug, Clone, PartialEq)]
pub struct MeteredRow {
    /// What it is of.
    pub target: CounterTarget,
    /// Type of the program; empty for other targets.
    pub prog_type: String,
    /// By programs around it, or why not; `None` when nobody tried.
    pub exact: Option<Result<CounterRow, Unknown>>,
    /// By the kernel's run statistics; `None` for what these do not have.
    pub stats: Option<CounterRow>,
    /// By perf events, for targets that are not programs; or why not.
    pub shared: Option<Result<CounterRow, Unknown>>,
    /// When it was unloaded, ns since counting began.
    pub unloaded_ns: Option<i64>,
    /// Where its sources say different things, in words.
    pub disagreements: Vec<String>,
}

impl MeteredRow {
    /// What of its sources is best.
    pub fn best(&self) -> Option<&CounterRow> {
        let exact = self.exact.as_ref().and_then(|exact| exact.as_ref().ok());
        let shared = self.shared.as_ref().and_then(|shared| shared.as_ref().ok());
        // What was given up on the way is of a part of the time.
        let to_the_end = |row: &&CounterRow| row.counts.as_ref().is_ok_and(|counts| counts.values.ended.is_none());
        let stats = self.stats.as_ref();
        // What came to be counted on the way as well.
        let throughout = |exact: &&CounterRow| stats.filter(to_the_end).is_none_or(|stats| is_as_long(exact, stats));
        exact.filter(to_the_end).filter(throughout).or(stats.filter(to_the_end)).or(shared).or(exact).or(stats)
    }

    /// Runs that the kernel's recursion guard kept from happening, if it tells.
    pub fn misses(&self) -> Option<u64> {
        let stats = &self.stats.as_ref()?.counts.as_ref().ok()?.values;
        stats.misses.filter(|_| stats.ended.is_none())
    }

    /// Time in it, of one CPU's, in per cent.
    fn cost(&self) -> f64 {
        let counts = self.best().and_then(|row| row.counts.as_ref().ok());
        counts.and_then(|counts| counts.cpu_percent).unwrap_or(0.0)
    }
}

/// What rows are sorted by, and joined by.
type Key = (&'static str, u64, Option<u64>, u32, Option<u32>);

impl Meter {
    /// Has seen nothing yet. With `all`, programs that do not run are shown too.
    pub fn new(all: bool) -> Meter {
        Meter {
            history: CounterHistory { over_time: true, ..CounterHistory::default() },
            session: None,
            names: BTreeMap::new(),
            released: BTreeMap::new(),
            missed: Vec::new(),
            all,
            from_ns: 0,
            window: Window::everything(),
        }
    }

    /// What a program is called.
    pub fn name(&mut self, id: u32, load_time_ns: u64, name: String, prog_type: String) {
        self.names.insert((id, load_time_ns), Name { name, prog_type });
    }

    /// Takes a state in.
    pub fn add(&mut self, state: State) {
        match state {
            State::Session(session) => {
                self.from_ns = session.start_ns;
                self.session = Some(session);
            }
            State::RunStats(stats) => self.history.stats(&stats, self.session.as_ref(), &self.window),
            State::StatsOff(off) => self.history.stats_off(&off),
            State::CounterEvents(events) => self.history.events(events),
            State::ProgramCounters(counters) => self.history.programs(&counters, &self.window),
            State::SharedCounters(counters) => self.history.shared(&counters, &self.window),
            State::Released(released) => {
                self.released.insert((released.id, released.load_time_ns), released.before_ns);
            }
            State::Missed(missed) => self.missed.push(missed),
            _ => {}
        }
    }

    /// Forgets where intervals began and ended: only all of the time is of interest.
    pub fn skip(&mut self) {
        let CounterHistory { targets, cpu_targets, stats, shared_targets, .. } = &mut self.history;
        let tracks = targets.values_mut().chain(cpu_targets.values_mut()).chain(stats.values_mut());
        tracks.chain(shared_targets.values_mut()).for_each(|target| target.track.intervals.clear());
    }

    /// What happened since the last call, up to `to_ns` of the clock.
    pub fn interval(&mut self, to_ns: u64) -> Metered {
        let metered = self.metered(false, self.from_ns, to_ns);
        self.skip();
        self.from_ns = to_ns;
        metered
    }

    /// What happened altogether, up to `to_ns` of the clock.
    pub fn total(&self, to_ns: u64) -> Metered {
        let start_ns = self.session.as_ref().map_or(0, |session| session.start_ns);
        self.metered(true, start_ns, to_ns)
    }

    fn metered(&self, is_total: bool, from_ns: u64, to_ns: u64) -> Metered {
        let session = self.session.as_ref();
        let scale = Scale {
            start_ns: session.map_or(0, |session| session.start_ns),
            cpus: session.map(|session| session.cpus_online).filter(|cpus| *cpus > 0),
        };
        let exact = self.history.counting();
        let shared = self.history.shared_counting();
        let mut rows: BTreeMap<Key, MeteredRow> = BTreeMap::new();
        let none = Counting::default();
        let mut add = |about: About<'_>, counting: &Counting, prog_type: &str, unloaded_ns: Option<i64>| {
            let row = self.row(is_total, &scale, &about, counting);
            let Some(row) = row else { return };
            let CounterTarget { kind, id, load_time_ns, function, cpu, .. } = about.target;
            let key = (kind, id, load_time_ns, function, cpu);
            let metered = rows.entry(key).or_insert_with(|| MeteredRow {
                target: about.target.clone(),
                prog_type: prog_type.to_owned(),
                exact: None,
                stats: None,
                shared: None,
                unloaded_ns,
                disagreements: Vec::new(),
            });
            match about.source {
                CounterSource::Exact => metered.exact = Some(row),
                CounterSource::Stats => metered.stats = row.ok(),
                CounterSource::Shared => metered.shared = Some(row),
            }
        };
        for (key, target) in &self.history.stats {
            let (name, prog_type, unloaded_ns) = self.known(*key, &scale);
            let about = About::program(CounterSource::Stats, (key.0, key.1, 0), name, target);
            add(about, &none, prog_type, unloaded_ns);
        }
        let of_all = self.history.targets.iter().map(|(key, target)| (*key, None, target));
        let of_cpus = self.history.cpu_targets.iter().map(|((key, cpu), target)| (*key, Some(*cpu), target));
        for (key, cpu, target) in of_all.chain(of_cpus) {
            let (name, prog_type, unloaded_ns) = self.known((key.0, key.1), &scale);
            let mut about = About::program(CounterSource::Exact, key, name, target);
            about.target.cpu = cpu;
            add(about, exact.as_ref().unwrap_or(&none), prog_type, unloaded_ns);
        }
        for ((scope, id), target) in &self.history.shared_targets {
            add(About::shared(*scope, *id, target), shared.as_ref().unwrap_or(&none), "", None);
        }
        if let Some(counting) = exact.as_ref().filter(|_| is_total) {
            rows.values_mut().for_each(|row| row.disagreements = disagree(row, counting));
        }
        let (mut rows, idle): (Vec<_>, Vec<_>) =
            rows.into_values().partition(|row| self.all || ran(row) || is_total && may_have_run(row));
        let quiet = idle.iter().filter(|row| row.target.function == 0 && row.target.cpu.is_none()).count();
        if is_total {
            sort_by_cost(&mut rows);
        }
        let since_start = |time: u64| time.wrapping_sub(scale.start_ns) as i64;
        Metered {
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
        }
    }

    /// One source's part of a row; `None` when there is nothing of it in the interval.
    fn row(
        &self,
        is_total: bool,
        scale: &Scale,
        about: &About<'_>,
        counting: &Counting,
    ) -> Option<Result<CounterRow, Unknown>> {
        let target: &Target = about.counted;
        if !target.counted {
            return Some(Err(Unknown(target.reason.clone())));
        }
        if is_total {
            target.track.span?;
            return Some(Ok(scale.row(about, &target.track, counting)));
        }
        let track = Track::of(&target.track.intervals);
        track.span?;
        Some(Ok(scale.row(about, &track, counting)))
    }

    /// Name and type of a program, and when it was unloaded.
    fn known(&self, key: (u32, u64), scale: &Scale) -> (&str, &str, Option<i64>) {
        let name = self.names.get(&key);
        let unloaded = self.released.get(&key).map(|time| time.wrapping_sub(scale.start_ns) as i64);
        (name.map_or("", |it| &it.name), name.map_or("", |it| &it.prog_type), unloaded)
    }
}

/// Whether a row is of the time of another, but for what lies between two readings.
fn is_as_long(row: &CounterRow, other: &CounterRow) -> bool {
    const BETWEEN_NS: i64 = 2_000_000;
    let length_ns = other.to_ns - other.from_ns;
    let missing_ns = (row.from_ns - other.from_ns).max(0) + (other.to_ns - row.to_ns).max(0);
    missing_ns <= (length_ns / 20).max(BETWEEN_NS.min(length_ns / 4))
}

fn ran(row: &MeteredRow) -> bool {
    row.target.kind != "program"
        || row.stats.as_ref().is_some_and(says_something)
        || row.exact.as_ref().is_some_and(|exact| exact.as_ref().is_ok_and(says_something))
}

/// No source was there to see whether a program ran in all of the time.
fn may_have_run(row: &MeteredRow) -> bool {
    let saw_it_all = |row: &CounterRow| row.counts.as_ref().is_ok_and(|counts| counts.values.ended.is_none());
    let exact = row.exact.as_ref().and_then(|exact| exact.as_ref().ok());
    !row.stats.iter().chain(exact).any(saw_it_all)
}

fn disagree(row: &MeteredRow, counting: &Counting) -> Vec<String> {
    let (Some(Ok(exact)), Some(stats)) = (&row.exact, &row.stats) else { return Vec::new() };
    let (Ok(exact_counts), Ok(stats_counts)) = (&exact.counts, &stats.counts) else { return Vec::new() };
    if stats_counts.values.ended.is_some() {
        return Vec::new();
    }
    // Both are of one clock; where it begins does not matter for their differences.
    let values = &stats_counts.values;
    let runs = Runs {
        count: values.runs,
        time_ns: stats_counts.measured_ns,
        misses: values.misses,
        span: Some((values.from_ns, values.to_ns)),
    };
    disagreements(&runs, &exact_counts.values, counting)
}

/// Programs by what all their runs cost, each followed by its parts: functions, and CPUs.
fn sort_by_cost(rows: &mut [MeteredRow]) {
    let whole = |row: &MeteredRow| (row.target.kind, row.target.id, row.target.load_time_ns);
    let costs: BTreeMap<(&str, u64, Option<u64>), f64> =
        rows.iter().filter(|row| row.target.cpu.is_none()).fold(BTreeMap::new(), |mut costs, row| {
            let cost = costs.entry(whole(row)).or_insert(0.0f64);
            *cost = cost.max(row.cost());
            costs
        });
    let cost = |row: &MeteredRow| costs.get(&whole(row)).copied().unwrap_or(0.0);
    // The sort keeps the order of keys among what costs the same.
    rows.sort_by(|a, b| cost(b).total_cmp(&cost(a)).then(whole(a).cmp(&whole(b))));
}
