//! Exact counters: a pair of programs of our own around each program that may be traced.
//!
//! The programs that are there are attached to before sampling starts, several at a time; those that come later by a
//! thread of their own, so that the rings are emptied meanwhile. What is refused is said once, with its reason, and is
//! nothing to the others.

mod budget;
mod calibration;
mod reading;
pub(crate) mod target;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{EVENTS_MAX, Profiler, Refusals};
use bprec_format::bprec::state::{CounterEvents, CounterTier, ProgramCounters, State};

use super::inventory::{Known, Programs};
use super::statistics::Statistics;
use super::{Context, Event, Source, Tick};
use crate::events::machine;
use crate::events::syntax::groups::{OpenCounters, Wanted};
use crate::options::Exact;
use crate::{Level, Result, sys};

use budget::{Costs, Verdict};
use calibration::{Calibrations, Rates};
use reading::sources;
pub(crate) use target::Pattern;
use target::{Candidate, ExactTarget, TARGETS_MAX, refuse_beyond};

/// Events that are read together, so that what they count is of the same time.
const DEFAULT_EVENTS: &str = "{cycles,instructions}";
/// Threads that attach and detach: most of the time they wait for the kernel.
const THREADS: usize = 4;
/// Time between two looks at how often programs run, and the first one, before which every run is measured.
const ADAPT_EVERY: Duration = Duration::from_millis(100);
const ADAPT_FIRST: Duration = Duration::from_millis(20);
/// Time between two looks whether run statistics are on: others may switch them, too.
const LOOK_AT_STATS_EVERY: Duration = Duration::from_secs(1);
/// For so long it must have been too much before something is given up for good: a short look may have met a burst.
const TOO_MUCH_FOR: Duration = Duration::from_millis(100);
/// Twice this long is looked, before anything is attached, how often programs run.
const LOOK_FIRST: Duration = Duration::from_millis(15);
/// One in so many runs of a program is measured that runs too often for the budget, until that is sure.
const HARDLY_ANY: u64 = 1 << 20;
/// Largest age of the list of extensions when a program comes.
const REFUSALS_AGE: Duration = Duration::from_secs(1);

/// Exact counters, counting.
#[derive(Debug)]
struct ActiveCounters {
    shared: Arc<SharedProfiler>,
    pattern: Pattern,
    refusals: Refusals,
    /// When they were looked at.
    refused_at: Instant,
    targets: Vec<ExactTarget>,
    calibrations: Calibrations,
    /// Current cost of a run of a counted program.
    costs: Option<Costs>,
    /// Run statistics are on, ours or anyone's; the last calibration is of that.
    with_stats: bool,
    /// They are on in windows.
    in_windows: bool,
    next_look_at_stats: Instant,
    /// Events that are counted, as they were last told.
    described: CounterEvents,
    /// Counts of each CPU, too.
    per_cpu: bool,
    /// Time that counting may take of a second, ns; `None` without a limit.
    budget_ns: Option<f64>,
    /// Run statistics are paid of it as well.
    is_budget_shared: bool,
    next_adapt: Instant,
    /// Requests to attach, and their results. The thread ends with the first channel.
    to_attach: Sender<Candidate>,
    attached: Receiver<ExactTarget>,
    /// Candidates that the thread has not answered for.
    underway: usize,
    /// It is said that more match than are counted.
    is_full: bool,
    notify: fn(Level, &str),
}

/// Shared state of all threads that attach.
#[derive(Debug)]
struct SharedProfiler {
    profiler: Profiler,
    /// The events count as long as these are open.
    _events: Vec<(usize, u32, OwnedFd)>,
}

/// Loaded counting programs, and their cost without run statistics.
#[derive(Debug)]
struct Prepared {
    shared: SharedProfiler,
    calibrations: Calibrations,
    described: CounterEvents,
}

/// Opens the events that are counted. Before those that sample: each time something changes the kernel gives out counters of the
/// hardware in the order in which events were opened, and what they count is read in another way on another counter, which would
/// take longer than was found out.
///
/// # Errors
/// When events cannot be understood, or this kernel is too old.
pub(crate) fn open_events(asked: &Exact, notify: fn(Level, &str), online: &[u32]) -> Result<OpenCounters> {
    let wanted = Wanted::parse(&asked.events, DEFAULT_EVENTS)?;
    if wanted.count() > EVENTS_MAX {
        let problem = format!("{} events requested; at most {EVENTS_MAX} can be counted", wanted.count());
        return Err(crate::Error::Event { event: asked.events.join(","), problem });
    }
    if let Some(reason) = Profiler::unsafe_here() {
        return Err(crate::Error::Other(reason.to_owned()));
    }
    let counting = wanted.open(online);
    let level = if wanted.is_default { Level::Detail } else { Level::Warning };
    for event in &counting.absent {
        notify(level, &format!("{} is not counted: {}", event.name, event.reason));
    }
    Ok(counting)
}

/// Exact counters as a source.
#[derive(Debug)]
pub(crate) struct ExactCounters {
    asked: Exact,
    /// Level of the message that they cannot be had; `None` if the caller says it.
    unavailable: Option<Level>,
    stage: CountersStage,
}

/// State of exact counters.
#[derive(Debug)]
enum CountersStage {
    Prepared(Box<Result<Prepared>>),
    Counting(Box<ActiveCounters>),
    Off,
}

impl ExactCounters {
    /// Loads what counts; `counting` are the events, as [`open_events`] has opened them. The programs that are there have to be listed
    /// before, as what is loaded to count is none of what is counted, and run statistics switched on later: it is found out what counting
    /// takes without them. That there is no counting on this machine is said at level `unavailable`.
    pub(crate) fn load(
        asked: Exact,
        counting: Result<OpenCounters>,
        unavailable: Option<Level>,
        notify: fn(Level, &str),
    ) -> ExactCounters {
        let prepared = counting.and_then(|counting| Prepared::new(&asked, notify, counting));
        ExactCounters { asked, unavailable, stage: CountersStage::Prepared(Box::new(prepared)) }
    }

    /// Attaches. Run statistics are on, if they are asked for.
    fn start(&mut self, context: &mut Context<'_>) -> Result<()> {
        let CountersStage::Prepared(prepared) = std::mem::replace(&mut self.stage, CountersStage::Off) else {
            return Ok(());
        };
        let mut states = Vec::new();
        let started = prepared.and_then(|prepared| {
            ActiveCounters::start(
                prepared,
                &self.asked,
                context.notify,
                context.programs,
                context.statistics,
                &mut states,
            )
        });
        match started {
            Ok(exact) => {
                context.out.session.counters = "exact".to_owned();
                context.programs.set_own_references(exact.references());
                self.stage = CountersStage::Counting(Box::new(exact));
            }
            // The request itself is wrong; the machine has no part in it.
            Err(error @ crate::Error::Event { .. }) => return Err(error),
            Err(error) => {
                let instead = if context.statistics.are_used() { "run statistics" } else { "nothing" };
                let note = format!("{instead} instead of exact counters: {error}");
                if let Some(level) = self.unavailable {
                    (context.notify)(level, &note);
                }
                context.note_counters(&note);
            }
        }
        context.out.states(states)
    }
}

impl Source for ExactCounters {
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        if is_first {
            context.switch_statistics_on();
            self.start(context)?;
        }
        let CountersStage::Counting(exact) = &mut self.stage else { return Ok(()) };
        if !is_first {
            context.out.state(exact.describe())?;
        }
        context.out.states(exact.snapshot())
    }

    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        let CountersStage::Counting(exact) = &mut self.stage else { return Ok(None) };
        for event in context.events.iter() {
            match event {
                Event::Loaded(id) => {
                    context.programs.known().filter(|known| known.id() == *id).for_each(|known| exact.join(known));
                }
                Event::Released(id) => exact.released(*id),
                Event::CpuOnline(_) | Event::CpuOffline(_) => (),
            }
        }
        context.out.states(exact.take_and_adapt(context.statistics))?;
        context.programs.set_own_references(exact.references());
        if tick.is_reading {
            context.out.states(exact.snapshot())?;
        }
        Ok(exact.adapt_at())
    }

    fn end_file(&mut self, is_last: bool, context: &mut Context<'_>) -> Result<()> {
        let CountersStage::Counting(exact) = &mut self.stage else { return Ok(()) };
        if !is_last {
            return context.out.states(exact.snapshot());
        }
        if let CountersStage::Counting(exact) = std::mem::replace(&mut self.stage, CountersStage::Off) {
            context.out.states(exact.finish())?;
            context.programs.set_own_references(HashMap::new());
        }
        Ok(())
    }
}

impl Prepared {
    /// Loads what counts, and finds out what it costs. Run statistics are to be switched on after this, so that it is known what they
    /// take.
    ///
    /// # Errors
    /// When this machine does not allow it.
    fn new(asked: &Exact, notify: fn(Level, &str), counting: OpenCounters) -> Result<Prepared> {
        let failed = |error: bprec_bpf::Error| crate::Error::Other(error.to_string());
        let OpenCounters { events, absent, open, partial } = counting;
        let profiler = Profiler::load(&sources(&events), partial, machine::present_cpus()).map_err(not_allowed)?;
        for (event, cpu, fd) in &open {
            profiler.set_event(*event, *cpu, std::os::fd::AsFd::as_fd(fd)).map_err(failed)?;
        }
        let mut calibrations = Calibrations::default();
        if let Err(error) = calibrations.add(&profiler) {
            notify(Level::Warning, &format!("the counting overhead is unknown: {error}"));
        }
        let described = CounterEvents {
            tier: CounterTier::EXACT,
            time_ns: 0,
            events,
            absent,
            calibration: None,
            budget_ppm: asked.budget.of_exact().map(|part| (part * 1e6).round() as u32),
            note: String::new(),
        };
        Ok(Prepared { shared: SharedProfiler { profiler, _events: open }, calibrations, described })
    }
}

impl ActiveCounters {
    /// Attaches to the programs that are asked for. What is counted, and how, is the first of the states. Run statistics go when they
    /// would take more than they may beside it.
    ///
    /// # Errors
    /// When links cannot be listed; nothing has been attached then.
    fn start(
        prepared: Prepared,
        asked: &Exact,
        notify: fn(Level, &str),
        programs: &Programs,
        statistics: &mut Statistics,
        states: &mut Vec<State>,
    ) -> Result<ActiveCounters> {
        let Prepared { shared, mut calibrations, described } = prepared;
        if statistics.are_used()
            && let Err(error) = calibrations.add(&shared.profiler)
        {
            notify(Level::Warning, &format!("the counting overhead with run statistics is unknown: {error}"));
        }
        let refusals = Refusals::look().map_err(|error| crate::Error::Other(error.to_string()))?;
        let (to_attach, candidates) = mpsc::channel::<Candidate>();
        let (done, attached) = mpsc::channel();
        let shared = Arc::new(shared);
        let worker = Arc::clone(&shared);
        sys::spawn("bprec-profiler", move || {
            for candidate in candidates {
                if done.send(candidate.attach(&worker.profiler)).is_err() {
                    return;
                }
            }
        })?;
        let now = Instant::now();
        let mut exact = ActiveCounters {
            shared,
            pattern: Pattern::new(asked.pattern.as_deref()),
            refusals,
            refused_at: now,
            targets: Vec::new(),
            costs: None,
            calibrations,
            with_stats: false,
            in_windows: false,
            next_look_at_stats: now + LOOK_AT_STATS_EVERY,
            described,
            per_cpu: asked.per_cpu,
            budget_ns: asked.budget.exact_ns(),
            is_budget_shared: asked.budget.is_shared(),
            next_adapt: now + ADAPT_FIRST,
            to_attach,
            attached,
            underway: 0,
            is_full: false,
            notify,
        };
        exact.look_at_stats(statistics);
        let mut candidates: Vec<Candidate> = programs.known().flat_map(|known| exact.candidates(known)).collect();
        exact.keep_to_limit(0, &mut candidates);
        exact.look_first(&mut candidates, programs, statistics);
        exact.targets = attach_all(candidates, &exact.shared.profiler);
        exact.next_adapt = Instant::now() + ADAPT_FIRST;
        if exact.targets.is_empty() {
            let text = match &asked.pattern {
                Some(pattern) => format!("no program matches {pattern} yet"),
                None => "there is no program to count yet".to_owned(),
            };
            notify(Level::Notice, &text);
        }
        for target in exact.targets.iter().filter(|target| !target.reason.is_empty()) {
            notify(Level::Detail, &format!("{} is not counted: {}", target.shown(), target.reason));
        }
        exact.described.note = exact.note();
        states.push(exact.describe());
        Ok(exact)
    }

    /// Events that are counted, and the current overhead of counting.
    fn describe(&mut self) -> State {
        self.described.time_ns = sys::monotonic_ns();
        self.described.calibration = self.calibrations.calibration(self.with_stats);
        if let Some(found) = self.described.calibration.as_ref().filter(|found| found.runs > 0) {
            self.shared.profiler.subtract((found.inside_ns + found.runs / 2) / found.runs);
        }
        State::CounterEvents(self.described.clone())
    }

    /// True if run statistics are on, and so what counting costs and adds. True when that has changed.
    fn look_at_stats(&mut self, statistics: &Statistics) -> bool {
        let before = self.with_stats;
        // Statistics in windows are on for too short a time to change the cost of counting.
        self.in_windows = statistics.are_in_windows();
        self.with_stats = !self.in_windows && self.shared.profiler.stats_are_on().unwrap_or(before);
        if !self.calibrations.has(self.with_stats) {
            // Unknown overhead is not taken off, and the report says so.
            drop(self.calibrations.add(&self.shared.profiler));
        }
        self.costs = self.calibrations.costs(self.with_stats);
        self.with_stats != before
    }

    /// Looks how often programs run before each of their runs is met by us, and settles what is to become of them, and of run statistics.
    fn look_first(&mut self, candidates: &mut [Candidate], programs: &Programs, statistics: &mut Statistics) {
        if self.budget_ns.is_none() || self.costs.is_none() || !statistics.are_used() {
            return;
        }
        let mut rates = Rates::begin(programs);
        // A short look may have met a burst.
        let looks = [(); 2].map(|()| {
            thread::sleep(LOOK_FIRST);
            (rates.look(programs), rates.all)
        });
        statistics.adapt(looks[0].1.min(looks[1].1));
        let (Some(budget_ns), Some(costs)) = (self.left_ns(statistics), self.costs) else { return };
        let mut chosen: Vec<(&mut Candidate, u32)> =
            candidates.iter_mut().filter_map(|it| it.program_id().map(|id| (it, id))).collect();
        let [least, most] = [f64::min, f64::max].map(|pick| {
            let rate = |look: usize, id: &u32| looks[look].0.get(id).copied().unwrap_or(0.0);
            chosen.iter().map(|(_, id)| pick(rate(0, id), rate(1, id))).collect::<Vec<_>>()
        });
        let verdicts =
            budget::divide(&most, costs, budget_ns).into_iter().zip(budget::divide(&least, costs, budget_ns));
        for ((candidate, _), verdicts) in chosen.iter_mut().zip(verdicts) {
            match verdicts {
                (Verdict::Every(every), _) => candidate.set_every(every),
                // Rates are unknown for other functions than the entry.
                (Verdict::TooOften, Verdict::TooOften) if candidate.is_entry() => candidate.refuse(too_often(costs)),
                (Verdict::TooOften, _) => candidate.set_every(HARDLY_ANY),
            }
        }
    }

    /// Rest of the budget for counting, ns of each second.
    fn left_ns(&self, statistics: &Statistics) -> Option<f64> {
        let statistics_ns = if self.is_budget_shared { statistics.taken_ns() } else { 0.0 };
        self.budget_ns.map(|budget_ns| (budget_ns - statistics_ns).max(0.0))
    }

    /// Remark on all of it.
    fn note(&self) -> String {
        let callers: Vec<String> =
            self.targets.iter().filter(|it| it.tail_calls && it.reason.is_empty()).map(ExactTarget::shown).collect();
        if callers.is_empty() {
            return String::new();
        }
        format!("counts include the programs reached by tail calls from: {}", callers.join(", "))
    }

    /// The functions of a program that are asked for; each is a target, attached or refused.
    fn candidates(&self, known: Known<'_>) -> Vec<Candidate> {
        let refusal = self.refusals.reason(known.snapshot);
        self.pattern.choose(known, refusal.as_deref())
    }

    /// Refuses the candidates for which there is no room beside as many targets as there are, and says so once.
    fn keep_to_limit(&mut self, there: usize, candidates: &mut [Candidate]) {
        let refused = refuse_beyond(TARGETS_MAX.saturating_sub(there), candidates);
        if refused > 0 && !std::mem::replace(&mut self.is_full, true) {
            let text = format!(
                "exact counters: of the functions of programs that match, {TARGETS_MAX} are counted, and {refused} or more are not: name fewer"
            );
            (self.notify)(Level::Warning, &text);
        }
    }

    /// Programs that have come meanwhile are attached to, by and by.
    fn join(&mut self, known: Known<'_>) {
        if self.refused_at.elapsed() > REFUSALS_AGE {
            self.refused_at = Instant::now();
            // Earlier knowledge stands if links cannot be listed any more.
            drop(self.refusals.refresh());
        }
        let mut candidates = self.candidates(known);
        let attached = self.targets.iter().filter(|target| target.is_attached()).count();
        self.keep_to_limit(attached + self.underway, &mut candidates);
        for candidate in candidates {
            if self.to_attach.send(candidate).is_ok() {
                self.underway += 1;
            }
        }
    }

    /// Everyone else has let go of a program: its counts are final. References of ours on it are given back.
    fn released(&mut self, id: u32) {
        for target in self.targets.iter_mut().filter(|target| target.id == id) {
            target.end("");
            target.is_released = true;
        }
    }

    /// References that counting holds on each program.
    fn references(&self) -> HashMap<u32, i64> {
        let mut references = HashMap::new();
        for target in &self.targets {
            *references.entry(target.id).or_insert(0) += target.references();
        }
        references
    }

    /// Takes in what the thread has attached to, and keeps within the budget. Returns the counts of those that are new, and the last ones
    /// of those that are no longer counted.
    fn take_and_adapt(&mut self, statistics: &Statistics) -> Vec<State> {
        let new: Vec<ExactTarget> = self.attached.try_iter().collect();
        self.underway -= new.len();
        let mut states = snapshot_of(new.iter().filter(|target| target.is_attached()), self.per_cpu);
        let now = Instant::now();
        if !new.is_empty() {
            // All runs of these are measured until then.
            self.next_adapt = self.next_adapt.min(now + ADAPT_FIRST);
        }
        self.targets.extend(new);
        if now >= self.next_adapt {
            self.next_adapt = now + ADAPT_EVERY;
            self.adapt(now, statistics);
        }
        if now >= self.next_look_at_stats || statistics.are_in_windows() != self.in_windows {
            self.next_look_at_stats = now + LOOK_AT_STATS_EVERY;
            if self.look_at_stats(statistics) {
                states.extend(self.snapshot());
                states.push(self.describe());
            }
        }
        // At once, as what was counted is of the time up to here.
        states.extend(snapshot_of(self.targets.iter().filter(|target| target.is_news()), self.per_cpu));
        self.all_told();
        states
    }

    /// When [`ActiveCounters::take_and_adapt`] should be called next, if before the next round.
    fn adapt_at(&self) -> Option<Instant> {
        let has_cost = self.targets.iter().any(ExactTarget::is_attached);
        self.budget_ns.and(self.costs).filter(|_| has_cost).map(|_| self.next_adapt)
    }

    fn adapt(&mut self, now: Instant, statistics: &Statistics) {
        let (Some(left_ns), Some(costs)) = (self.left_ns(statistics), self.costs) else { return };
        let live = self.targets.iter_mut().filter(|target| target.is_attached());
        let rates: Vec<f64> = live.map(|target| target.rate(now)).collect();
        let live = self.targets.iter_mut().filter(|target| target.is_attached());
        for (target, verdict) in live.zip(budget::divide(&rates, costs, left_ns)) {
            match verdict {
                Verdict::Every(every) => target.set_every(every, now),
                Verdict::TooOften if target.is_too_often(HARDLY_ANY, now) < TOO_MUCH_FOR => (),
                Verdict::TooOften => target.end(&too_often(costs)),
            }
        }
    }

    /// Counts as of now of all that are counted, and of those of which it has not been said why they are not, or no
    /// longer.
    fn snapshot(&mut self) -> Vec<State> {
        let targets = self.targets.iter().filter(|target| target.is_attached() || target.is_news());
        let states = snapshot_of(targets, self.per_cpu);
        self.all_told();
        states
    }

    fn all_told(&mut self) {
        self.targets.iter_mut().for_each(|target| target.told = !target.is_attached());
        self.targets.retain(|target| !(target.told && target.is_released));
    }

    /// Detaches everything; the last counts.
    fn finish(mut self) -> Vec<State> {
        // Requests that wait for the thread are attached and dropped at once: waiting is the shortest way to know.
        for _ in 0..self.underway {
            match self.attached.recv() {
                Ok(target) => self.targets.push(target),
                Err(_) => break,
            }
        }
        let part = self.targets.len().div_ceil(THREADS).max(1);
        let parts = Mutex::new(self.targets.chunks_mut(part));
        sys::in_parallel(THREADS, || {
            while let Some(targets) = sys::next_of(&parts) {
                targets.iter_mut().for_each(|target| target.end(""));
            }
        });
        snapshot_of(self.targets.iter().filter(|target| target.is_news()), self.per_cpu)
    }
}

fn snapshot_of<'a>(targets: impl Iterator<Item = &'a ExactTarget>, per_cpu: bool) -> Vec<State> {
    let time_ns = sys::monotonic_ns();
    let counters = targets.flat_map(|target| target.counters(per_cpu)).collect();
    ProgramCounters::parts(time_ns, counters).into_iter().map(State::ProgramCounters).collect()
}

/// Attaches to many at a time, in the order given.
fn attach_all(candidates: Vec<Candidate>, profiler: &Profiler) -> Vec<ExactTarget> {
    let part = candidates.len().div_ceil(THREADS).max(1);
    let mut parts: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates {
        match parts.last_mut().filter(|last| last.len() < part) {
            Some(last) => last.push(candidate),
            None => parts.push(vec![candidate]),
        }
    }
    let parts = Mutex::new(parts.into_iter().enumerate());
    let attached = Mutex::new(BTreeMap::new());
    sys::in_parallel(THREADS, || {
        while let Some((number, part)) = sys::next_of(&parts) {
            let targets: Vec<ExactTarget> = part.into_iter().map(|it| it.attach(profiler)).collect();
            attached.lock().unwrap_or_else(PoisonError::into_inner).insert(number, targets);
        }
    });
    attached.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().flatten().collect()
}

/// Why nothing can be put around programs.
pub(crate) fn not_allowed(error: bprec_bpf::Error) -> crate::Error {
    crate::Error::Other(match (error.is_permission(), bprec_bpf::may_trace()) {
        (true, true) => {
            "the kernel refuses fentry and fexit: EPERM despite sufficient privileges (lockdown, a security module or a container?)"
                .to_owned()
        }
        (true, false) => {
            "fentry and fexit: EPERM; needs CAP_BPF and CAP_PERFMON (run as root)".to_owned()
        }
        (false, _) => error.to_string(),
    })
}

/// Why a program is not counted that runs often. Without its rate, so that it is said once of many.
fn too_often(costs: Costs) -> String {
    format!(
        "it runs too often: even skipping a run takes {:.0} ns, and all runs together exceed the --budget",
        costs.skipped_ns
    )
}
