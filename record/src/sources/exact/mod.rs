//! Exact counters: counting programs of the recorder around each program that the kernel allows to trace. They are a
//! pair (fentry and fexit), or a session (fsession), one program for both ends.
//!
//! Existing programs get their counting programs before sampling starts, several at a time. Programs that are loaded later get theirs from a separate
//! thread, so that the control thread does not wait. If one program is refused, the reason is reported once, and the other programs are still
//! counted.

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
use bprec_format::bprec::state::{CounterEvents, CounterTier, State};

use super::inventory::{Known, Programs};
use super::statistics::Statistics;
use super::{Context, Event, Source, Tick};
use crate::events::{OpenCounters, Wanted, machine};
use crate::options::Exact;
use crate::{Level, Result, sys};

use budget::{Costs, Verdict};
use calibration::{Calibrations, Rates};
use reading::sources;
pub(crate) use target::WantedFunctions;
use target::{Candidate, ExactTarget, TARGETS_MAX, refuse_beyond, snapshot_of};

/// Default events: one group, so that cycles and instructions are counted over the same time.
const DEFAULT_EVENTS: &str = "{cycles,instructions}";
/// Threads that attach and detach. Most of the time they wait for the kernel, so there can be more threads than CPUs.
const THREADS: usize = 4;
/// Time between two adjustments of the measured part of runs to the rates of runs.
const ADAPT_EVERY: Duration = Duration::from_millis(100);
/// Time from attaching to the first adjustment. Until then, usually every run is measured.
const ADAPT_FIRST: Duration = Duration::from_millis(20);
/// Time between two checks of the kernel's switch of run statistics, because other tools can change the switch, too.
const LOOK_AT_STATS_EVERY: Duration = Duration::from_secs(1);
/// Time for which a program must run too often before it is detached for good: a short burst must not detach it.
const TOO_MUCH_FOR: Duration = Duration::from_millis(100);
/// Duration of each of the two measurements of run rates before anything is attached.
const LOOK_FIRST: Duration = Duration::from_millis(15);
/// Interval of measurement of a program that runs too often: one run in this number is measured until the program is detached.
const HARDLY_ANY: u64 = 1 << 20;
/// Age of `ActiveCounters::refusals` above which they are read again when a program is loaded.
const REFUSALS_AGE: Duration = Duration::from_secs(1);

/// Active exact counters.
#[derive(Debug)]
struct ActiveCounters {
    shared: Arc<SharedProfiler>,
    wanted: WantedFunctions,
    refusals: Refusals,
    /// Time at which `refusals` was read.
    refused_at: Instant,
    targets: Vec<ExactTarget>,
    calibrations: Calibrations,
    /// Time that counting adds to one run of a counted program. `None` if it was not measured.
    costs: Option<Costs>,
    /// True if run statistics are on, by this recorder or by another tool; `costs` is for this setting.
    with_stats: bool,
    /// True if run statistics are on only in short windows, not throughout.
    in_windows: bool,
    next_look_at_stats: Instant,
    /// Counted events, as last written to the recording.
    described: CounterEvents,
    /// True if the counts of each CPU are recorded too.
    per_cpu: bool,
    /// CPU time that counting may take per second, ns; `None` without a limit.
    budget_ns: Option<f64>,
    /// True if the cost of run statistics counts against the same budget.
    is_budget_shared: bool,
    next_adapt: Instant,
    /// Channel of requests to attach. The attaching thread ends when the channel is closed.
    to_attach: Sender<Candidate>,
    /// Channel of the targets that the attaching thread has attached or refused.
    attached: Receiver<ExactTarget>,
    /// Number of requests without a result yet.
    underway: usize,
    /// True once the user was told that more functions match than can be counted.
    is_full: bool,
    notify: fn(Level, &str),
}

/// Shared state of all threads that attach.
#[derive(Debug)]
struct SharedProfiler {
    profiler: Profiler,
    /// Descriptors that keep the events counting.
    _events: Vec<(usize, u32, OwnedFd)>,
}

/// Loaded counting programs, and their cost without run statistics.
#[derive(Debug)]
struct Prepared {
    shared: SharedProfiler,
    calibrations: Calibrations,
    described: CounterEvents,
}

/// Opens the counted events. This must happen before the sampling events are opened. Whenever an event is added or removed, the kernel assigns the
/// hardware counters again, in the order in which the events were opened. If a counted event then moved to another counter, reading it could take
/// longer than was calibrated.
///
/// # Errors
/// Fails if an event is invalid, there are too many events, or this kernel is too old.
pub(crate) fn open_events(asked: &Exact, notify: fn(Level, &str), online: &[u32]) -> Result<OpenCounters> {
    let wanted = Wanted::parse(&asked.events, DEFAULT_EVENTS)?;
    if wanted.count() > EVENTS_MAX {
        let problem = format!("exact counters count at most {EVENTS_MAX} events, but {} are requested", wanted.count());
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
    /// Level of the message that exact counters are unavailable; `None` if the caller reports it.
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
    /// Loads the counting programs; `counting` holds the events that [`open_events`] opened. The caller must list the existing programs first, so
    /// that the counting programs are not counted. Run statistics must still be off, because the overhead is calibrated without them. If this machine
    /// does not allow exact counters, [`ExactCounters::start`] reports this at level `unavailable`.
    pub(crate) fn load(
        asked: Exact,
        counting: Result<OpenCounters>,
        unavailable: Option<Level>,
        notify: fn(Level, &str),
    ) -> ExactCounters {
        let prepared = counting.and_then(|counting| Prepared::new(&asked, notify, counting));
        ExactCounters { asked, unavailable, stage: CountersStage::Prepared(Box::new(prepared)) }
    }

    /// Attaches to the programs. Run statistics are already on if they are requested.
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
            // The request itself is invalid, so a recording without exact counters is no remedy.
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
                _ => (),
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
    /// Loads the counting programs and calibrates their overhead. Run statistics must still be off, so that the overhead without them
    /// is known.
    ///
    /// # Errors
    /// Fails if this machine does not allow exact counters.
    fn new(asked: &Exact, notify: fn(Level, &str), counting: OpenCounters) -> Result<Prepared> {
        let failed = |error: bprec_bpf::Error| crate::Error::Other(error.to_string());
        let OpenCounters { events, absent, open, partial } = counting;
        let profiler = Profiler::load(&sources(&events), partial, machine::present_cpus()).map_err(not_allowed)?;
        for (event, cpu, fd) in &open {
            profiler.set_event(*event, *cpu, std::os::fd::AsFd::as_fd(fd)).map_err(failed)?;
        }
        let mut calibrations = Calibrations::default();
        if let Err(error) = calibrations.add(&profiler) {
            notify(
                Level::Warning,
                &format!("the counting overhead is unknown, so bprec does not subtract it from run times: {error}"),
            );
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
    /// Attaches to the requested programs, and appends the state that describes the counted events. Run statistics
    /// change to windows if they would exceed the budget.
    ///
    /// # Errors
    /// Fails if links cannot be listed; nothing is attached then.
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
            notify(
                Level::Warning,
                &format!(
                    "the counting overhead while run statistics are on is unknown, so bprec does not subtract it from run \
                     times: {error}"
                ),
            );
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
            wanted: WantedFunctions::new(&asked.functions),
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
            notify(Level::Notice, &exact.wanted.nothing_yet());
        }
        for target in exact.targets.iter().filter(|target| !target.reason.is_empty()) {
            notify(Level::Detail, &format!("{} is not counted: {}", target.shown(), target.reason));
        }
        exact.described.note = exact.note();
        states.push(exact.describe());
        Ok(exact)
    }

    /// Describes the counted events and the current overhead of counting.
    fn describe(&mut self) -> State {
        self.described.time_ns = sys::monotonic_ns();
        self.described.calibration = self.calibrations.calibration(self.with_stats);
        if let Some(found) = self.described.calibration.as_ref().filter(|found| found.runs > 0) {
            self.shared.profiler.subtract((found.inside_ns + found.runs / 2) / found.runs);
        }
        State::CounterEvents(self.described.clone())
    }

    /// Checks if run statistics are on, and sets the costs for this setting. Returns true if the setting has changed.
    fn look_at_stats(&mut self, statistics: &Statistics) -> bool {
        let before = self.with_stats;
        // Statistics in windows are on for too short a time to change the cost of counting.
        self.in_windows = statistics.are_in_windows();
        self.with_stats = !self.in_windows && self.shared.profiler.stats_are_on().unwrap_or(before);
        if !self.calibrations.has(self.with_stats) {
            // If this fails, the overhead stays unknown: it is not subtracted, and the report says so.
            drop(self.calibrations.add(&self.shared.profiler));
        }
        self.costs = self.calibrations.costs(self.with_stats);
        self.with_stats != before
    }

    /// Measures how often programs run, before anything is attached. Uses these rates to choose the part of each
    /// program's runs to measure, and to change run statistics to windows if they would exceed the budget.
    fn look_first(&mut self, candidates: &mut [Candidate], programs: &Programs, statistics: &mut Statistics) {
        if self.budget_ns.is_none() || self.costs.is_none() || !statistics.are_used() {
            return;
        }
        let mut rates = Rates::begin(programs);
        // Measures twice, because a single short measurement can meet a burst.
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
                // The program runs too often even by the lower of its two measured rates. Only entry functions are
                // refused here: run statistics have the rate of the whole program, and other functions may run less
                // often.
                (Verdict::TooOften, Verdict::TooOften) if candidate.is_entry() => candidate.refuse(costs.too_often()),
                (Verdict::TooOften, _) => candidate.set_every(HARDLY_ANY),
            }
        }
    }

    /// Part of the budget that run statistics leave for exact counters, ns of each second; `None` without a limit.
    fn left_ns(&self, statistics: &Statistics) -> Option<f64> {
        let statistics_ns = if self.is_budget_shared { statistics.taken_ns() } else { 0.0 };
        self.budget_ns.map(|budget_ns| (budget_ns - statistics_ns).max(0.0))
    }

    /// Note for the recording: programs whose counts include the programs that they tail-call. Empty if there are none.
    fn note(&self) -> String {
        let callers: Vec<String> =
            self.targets.iter().filter(|it| it.tail_calls && it.reason.is_empty()).map(ExactTarget::shown).collect();
        if callers.is_empty() {
            return String::new();
        }
        format!("the counts of these programs include the programs that they tail-call: {}", callers.join(", "))
    }

    /// Returns the requested functions of a program. Each function becomes a target, attached or refused.
    fn candidates(&self, known: Known<'_>) -> Vec<Candidate> {
        let refusal = self.refusals.reason(known.snapshot);
        self.wanted.choose(known, refusal.as_deref())
    }

    /// Refuses the candidates beyond the limit of targets, and reports this once. `there` is the number of existing
    /// targets.
    fn keep_to_limit(&mut self, there: usize, candidates: &mut [Candidate]) {
        let refused = refuse_beyond(TARGETS_MAX.saturating_sub(there), candidates);
        if refused > 0 && !std::mem::replace(&mut self.is_full, true) {
            let text = format!(
                "exact counters count {TARGETS_MAX} of the matching functions; {refused} or more matching functions are not \
                 counted. Give a narrower name with --counters exact=NAME"
            );
            (self.notify)(Level::Warning, &text);
        }
    }

    /// Requests to attach to a program that was loaded during the recording.
    fn join(&mut self, known: Known<'_>) {
        if self.refused_at.elapsed() > REFUSALS_AGE {
            self.refused_at = Instant::now();
            // If links cannot be listed now, the previous list is used.
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

    /// Detaches from a program that all other users have released. Its counts are final; detaching releases the recorder's references to it.
    fn released(&mut self, id: u32) {
        for target in self.targets.iter_mut().filter(|target| target.id == id) {
            target.end("");
            target.is_released = true;
        }
    }

    /// Number of references that counting holds on each program, by program id.
    fn references(&self) -> HashMap<u32, i64> {
        let mut references = HashMap::new();
        for target in &self.targets {
            *references.entry(target.id).or_insert(0) += target.references();
        }
        references
    }

    /// Takes the results of the attaching thread and adjusts to the budget. Returns the counts of new targets, and the last counts of targets
    /// that are no longer counted.
    fn take_and_adapt(&mut self, statistics: &Statistics) -> Vec<State> {
        let new: Vec<ExactTarget> = self.attached.try_iter().collect();
        self.underway -= new.len();
        let mut states = Vec::from_iter(snapshot_of(new.iter().filter(|target| target.is_attached()), self.per_cpu));
        let now = Instant::now();
        if !new.is_empty() {
            // All runs of new targets are measured until the next adjustment.
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
        // The last counts are written at once, because they end at this time.
        states.extend(snapshot_of(self.targets.iter().filter(|target| target.is_news()), self.per_cpu));
        self.all_told();
        states
    }

    /// Time at which [`ActiveCounters::take_and_adapt`] is due; `None` if there is no limit, the cost is unknown, or no target is attached.
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
                Verdict::TooOften => target.end(&costs.too_often()),
            }
        }
    }

    /// Returns the current counts of all attached targets. A target that was refused or detached is returned once, with the reason.
    fn snapshot(&mut self) -> Option<State> {
        let targets = self.targets.iter().filter(|target| target.is_attached() || target.is_news());
        let state = snapshot_of(targets, self.per_cpu);
        self.all_told();
        state
    }

    fn all_told(&mut self) {
        self.targets.iter_mut().for_each(|target| target.told = !target.is_attached());
        self.targets.retain(|target| !(target.told && target.is_released));
    }

    /// Detaches from all programs and returns the last counts.
    fn finish(mut self) -> Option<State> {
        // The thread still attaches to all requested programs; their results must be received so that all are detached.
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

/// Attaches in several threads; returns the targets in the given order.
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

/// Explains why the kernel refuses to attach to programs.
pub(crate) fn not_allowed(error: bprec_bpf::Error) -> crate::Error {
    crate::Error::Other(match (error.is_permission(), bprec_bpf::may_trace()) {
        (true, true) => {
            "the kernel refuses fentry and fexit (EPERM), although bprec has sufficient privileges (lockdown, a security \
             module or a container?)"
                .to_owned()
        }
        (true, false) => {
            "the kernel refuses fentry and fexit (EPERM): bprec needs CAP_BPF and CAP_PERFMON (run as root)".to_owned()
        }
        (false, _) => error.to_string(),
    })
}
