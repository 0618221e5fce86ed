//! Exact counters: a pair of programs of our own around each program that may be traced.
//!
//! The programs that are there are attached to before sampling starts, several at a time; those that come later by a
//! thread of their own, so that the rings are emptied meanwhile. What is refused is said once, with its reason, and is
//! nothing to the others.

mod budget;
mod target;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{EVENTS_MAX, Gauged, Profiler, Refusals, Source};
use bprec_format::state::{Calibration, CounterEvent, CounterEvents, CounterTier, CounterUnit, ProgramCounters, State};

use crate::event::groups::{Counting, Wanted};
use crate::inventory::Known;
use crate::options::Exact as Asked;
use crate::{Level, Result, machine, sys};

use budget::{Costs, Verdict};
pub(crate) use target::Pattern;
use target::{Candidate, Target};

/// Events that are read together, so that what they count is of the same time.
const DEFAULT_EVENTS: &str = "{cycles,instructions}";
/// Threads that attach and detach: most of the time they wait for the kernel.
const THREADS: usize = 4;
/// Time between two looks at how often programs run, and the first one, before which every run is measured.
const ADAPT_EVERY: Duration = Duration::from_millis(200);
const ADAPT_FIRST: Duration = Duration::from_millis(20);
/// One in so many runs of a program is measured that runs too often for the budget, until that is sure.
const HARDLY_ANY: u64 = 1 << 20;
/// How old the list of extensions may be when a program comes.
const REFUSALS_AGE: Duration = Duration::from_secs(1);

/// Exact counters, counting.
#[derive(Debug)]
pub(crate) struct Exact {
    shared: Arc<Shared>,
    pattern: Pattern,
    refusals: Refusals,
    /// When they were looked at.
    refused_at: Instant,
    targets: Vec<Target>,
    costs: Option<Costs>,
    /// Counts of each CPU, too.
    per_cpu: bool,
    /// What counting may take of a second, ns; `None` without a limit.
    budget_ns: Option<f64>,
    next_adapt: Instant,
    /// What to attach to, and what became of it. The thread ends with the first.
    to_attach: Sender<Candidate>,
    attached: Receiver<Target>,
    /// Candidates that the thread has not answered for.
    underway: usize,
}

/// What all threads that attach use.
#[derive(Debug)]
struct Shared {
    profiler: Profiler,
    /// The events count as long as these are open.
    _events: Vec<(usize, u32, OwnedFd)>,
}

impl Exact {
    /// Loads what counts, finds out what it costs, and attaches to the programs in `known` that are asked for. What
    /// is counted, and how, is the first of the states.
    ///
    /// # Errors
    /// When events cannot be understood, or this machine does not allow it; nothing has been attached then.
    pub(crate) fn start(
        asked: &Asked,
        notify: fn(Level, &str),
        online: &[u32],
        known: &[Known<'_>],
        states: &mut Vec<State>,
    ) -> Result<Exact> {
        let failed = |error: bprec_bpf::Error| crate::Error::Other(error.to_string());
        let wanted = Wanted::parse(&asked.events, DEFAULT_EVENTS)?;
        if wanted.count() > EVENTS_MAX {
            let problem = format!("{} events are to be counted; there is room for {EVENTS_MAX}", wanted.count());
            return Err(crate::Error::Event { event: asked.events.join(","), problem });
        }
        if let Some(reason) = Profiler::unsafe_here() {
            return Err(crate::Error::Other(reason.to_owned()));
        }
        let Counting { events, absent, open, partial } = wanted.open(online);
        let level = if wanted.is_default { Level::Detail } else { Level::Warning };
        for event in &absent {
            notify(level, &format!("{} is not counted: {}", event.name, event.reason));
        }
        let profiler = Profiler::load(&sources(&events), partial, machine::possible_cpus()).map_err(not_allowed)?;
        for (event, cpu, fd) in &open {
            profiler.set_event(*event, *cpu, std::os::fd::AsFd::as_fd(fd)).map_err(failed)?;
        }
        let gauged = profiler.gauge();
        if let Err(error) = &gauged {
            notify(Level::Warning, &format!("what counting costs stays unknown: {error}"));
        }
        let gauged = gauged.ok();
        let refusals = Refusals::look().map_err(failed)?;
        let (to_attach, candidates) = mpsc::channel::<Candidate>();
        let (done, attached) = mpsc::channel();
        let shared = Arc::new(Shared { profiler, _events: open });
        let worker = Arc::clone(&shared);
        thread::Builder::new()
            .name("bprec-profiler".to_owned())
            .spawn(move || {
                for candidate in candidates {
                    if done.send(candidate.attach(&worker.profiler)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| crate::Error::Other(format!("cannot start a thread: {error}")))?;
        let now = Instant::now();
        let mut exact = Exact {
            shared,
            pattern: Pattern::new(asked.pattern.as_deref()),
            refusals,
            refused_at: now,
            targets: Vec::new(),
            costs: gauged.as_ref().and_then(costs),
            per_cpu: asked.per_cpu,
            budget_ns: asked.budget.map(|part| part * online.len() as f64 * 1e9),
            next_adapt: now + ADAPT_FIRST,
            to_attach,
            attached,
            underway: 0,
        };
        let candidates = known.iter().flat_map(|known| exact.candidates(*known)).collect();
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
        states.push(State::CounterEvents(CounterEvents {
            tier: CounterTier::EXACT,
            time_ns: sys::clock_ns(sys::CLOCK_MONOTONIC),
            events,
            absent,
            calibration: gauged.map(calibration),
            budget_ppm: asked.budget.map(|part| (part * 1e6).round() as u32),
            note: exact.note(),
        }));
        Ok(exact)
    }

    /// What there is to say about all of it.
    fn note(&self) -> String {
        let callers: Vec<String> =
            self.targets.iter().filter(|it| it.tail_calls && it.reason.is_empty()).map(Target::shown).collect();
        if callers.is_empty() {
            return String::new();
        }
        format!(
            "what a program reaches by a tail call is in the counts of the program that called: {}",
            callers.join(", ")
        )
    }

    /// The functions of a program that are asked for; each is a target, attached or refused.
    fn candidates(&self, known: Known<'_>) -> Vec<Candidate> {
        let refusal = self.refusals.reason(known.snapshot);
        self.pattern.choose(known, refusal.as_deref())
    }

    /// Programs that have come meanwhile are attached to, by and by.
    pub(crate) fn join(&mut self, known: Known<'_>) {
        if self.refused_at.elapsed() > REFUSALS_AGE {
            self.refused_at = Instant::now();
            // What was known before stands when links cannot be listed any more.
            drop(self.refusals.refresh());
        }
        for candidate in self.candidates(known) {
            if self.to_attach.send(candidate).is_ok() {
                self.underway += 1;
            }
        }
    }

    /// Everyone else has let go of a program: its counts are final. References of ours on it are given back.
    pub(crate) fn released(&mut self, id: u32) {
        for target in self.targets.iter_mut().filter(|target| target.id == id) {
            target.end("");
        }
    }

    /// References that counting holds on each program.
    pub(crate) fn references(&self) -> HashMap<u32, i64> {
        let mut references = HashMap::new();
        for target in &self.targets {
            *references.entry(target.id).or_insert(0) += target.references();
        }
        references
    }

    /// Takes in what the thread has attached to, and keeps within the budget. Returns the counts of those that are new, and the last ones
    /// of those that are no longer counted.
    pub(crate) fn tend(&mut self) -> Vec<State> {
        let new: Vec<Target> = self.attached.try_iter().collect();
        self.underway -= new.len();
        let mut states = snapshot_of(new.iter().filter(|target| target.is_attached()), self.per_cpu);
        self.targets.extend(new);
        let now = Instant::now();
        if now >= self.next_adapt {
            self.next_adapt = now + ADAPT_EVERY;
            self.adapt(now);
        }
        // At once, as what was counted is of the time up to here.
        states.extend(snapshot_of(self.targets.iter().filter(|target| target.is_news()), self.per_cpu));
        self.all_told();
        states
    }

    /// When [`Exact::tend`] should be called next, if before the next round.
    pub(crate) fn tend_at(&self) -> Option<Instant> {
        self.budget_ns.and(self.costs).map(|_| self.next_adapt)
    }

    fn adapt(&mut self, now: Instant) {
        let (Some(budget_ns), Some(costs)) = (self.budget_ns, self.costs) else { return };
        let mut live: Vec<&mut Target> = self.targets.iter_mut().filter(|target| target.is_attached()).collect();
        let rates: Vec<f64> = live.iter_mut().map(|target| target.rate(now)).collect();
        for ((target, rate), verdict) in live.iter_mut().zip(&rates).zip(budget::divide(&rates, costs, budget_ns)) {
            let was_too_often = std::mem::replace(&mut target.too_often, verdict == Verdict::TooOften);
            match verdict {
                Verdict::Every(every) => target.set_every(every),
                // A short look may have met a burst.
                Verdict::TooOften if !was_too_often => target.set_every(HARDLY_ANY),
                Verdict::TooOften => target.end(&format!(
                    "it ran {rate:.0} times a second: to see that many runs, {:.0} ns each, takes more than counting may \
                     (--budget)",
                    costs.skipped_ns
                )),
            }
        }
    }

    /// Counts as of now of all that are counted, and of those of which it has not been said why they are not, or no
    /// longer.
    pub(crate) fn snapshot(&mut self) -> Vec<State> {
        let targets = self.targets.iter().filter(|target| target.is_attached() || target.is_news());
        let states = snapshot_of(targets, self.per_cpu);
        self.all_told();
        states
    }

    fn all_told(&mut self) {
        self.targets.iter_mut().for_each(|target| target.told = !target.is_attached());
    }

    /// Detaches everything; the last counts.
    pub(crate) fn finish(mut self) -> Vec<State> {
        // What the thread has not come to yet is attached and let go of at once: waiting is the shortest way to know.
        for _ in 0..self.underway {
            match self.attached.recv() {
                Ok(target) => self.targets.push(target),
                Err(_) => break,
            }
        }
        let part = self.targets.len().div_ceil(THREADS).max(1);
        thread::scope(|scope| {
            for targets in self.targets.chunks_mut(part) {
                scope.spawn(|| targets.iter_mut().for_each(|target| target.end("")));
            }
        });
        snapshot_of(self.targets.iter().filter(|target| target.is_news()), self.per_cpu)
    }
}

fn snapshot_of<'a>(targets: impl Iterator<Item = &'a Target>, per_cpu: bool) -> Vec<State> {
    let time_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
    let counters = targets.flat_map(|target| target.counters(per_cpu)).collect();
    ProgramCounters::parts(time_ns, counters).into_iter().map(State::ProgramCounters).collect()
}

/// Attaches to many at a time, in the order given.
fn attach_all(candidates: Vec<Candidate>, profiler: &Profiler) -> Vec<Target> {
    let part = candidates.len().div_ceil(THREADS).max(1);
    let mut parts: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates {
        match parts.last_mut().filter(|last| last.len() < part) {
            Some(last) => last.push(candidate),
            None => parts.push(vec![candidate]),
        }
    }
    thread::scope(|scope| {
        let attach = |part: Vec<Candidate>| move || part.into_iter().map(|it| it.attach(profiler)).collect::<Vec<_>>();
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(attach(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// How each event is read. A group of software events never waits for hardware; any other does as a whole.
fn sources(events: &[CounterEvent]) -> Vec<Source> {
    let groups = events.chunk_by(|a, b| a.group == b.group);
    let of_group = |group: &[CounterEvent]| -> Vec<Source> {
        let never_waits = group.iter().all(|event| event.software);
        let source = |(index, event): (usize, &CounterEvent)| match never_waits {
            true if event.unit == CounterUnit::NANOSECONDS => Source::Clock,
            true => Source::Always,
            false if index == 0 => Source::Leading,
            false => Source::Following,
        };
        group.iter().enumerate().map(source).collect()
    };
    groups.flat_map(of_group).collect()
}

/// Why nothing can be put around programs.
fn not_allowed(error: bprec_bpf::Error) -> crate::Error {
    crate::Error::Other(match (error.is_permission(), bprec_bpf::may_trace()) {
        (true, true) => {
            "this machine lets no program trace another (fentry and fexit: EPERM, though no privilege is missing)"
                .to_owned()
        }
        (true, false) => {
            "tracing programs (fentry and fexit: EPERM) takes CAP_BPF and CAP_PERFMON; run as root".to_owned()
        }
        (false, _) => error.to_string(),
    })
}

fn costs(gauged: &Gauged) -> Option<Costs> {
    let per_run = |total_ns: u64| total_ns as f64 / gauged.runs as f64;
    (gauged.runs > 0)
        .then(|| Costs { measured_ns: per_run(gauged.measured_ns), skipped_ns: per_run(gauged.skipped_ns) })
}

fn calibration(gauged: Gauged) -> Calibration {
    Calibration {
        runs: gauged.runs,
        inside_ns: gauged.inside_ns,
        inside: gauged.inside,
        measured_ns: Some(gauged.measured_ns),
        skipped_ns: Some(gauged.skipped_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_is_read_with_its_times_once_a_group() {
        let event = |group, software, unit| CounterEvent {
            name: String::new(),
            attr_type: 0,
            config: 0,
            group,
            unit,
            software,
        };
        let (number, clock) = (CounterUnit::EVENTS, CounterUnit::NANOSECONDS);
        let events = [
            // {cycles,instructions,cpu-clock}
            event(0, false, number),
            event(0, false, number),
            event(0, true, clock),
            // cpu-clock, {page-faults,task-clock}, cycles
            event(3, true, clock),
            event(4, true, number),
            event(4, true, clock),
            event(6, false, number),
        ];
        use Source::{Always, Clock, Following, Leading};
        assert_eq!(sources(&events), [Leading, Following, Following, Clock, Always, Clock, Leading]);
    }
}
