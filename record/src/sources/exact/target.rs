//! One function of a program: chosen, attached to or refused, and counted.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bprec_bpf::{HISTOGRAM_SUB_BITS, Probe, ProbeCounts, Profiler, makes_tail_calls};
use bprec_format::bprec::state::{Histogram, Reading, RunCounts, TargetCounters};

use crate::events::glob;
use crate::sources::inventory::{Function, Known};
use crate::sys;

/// Time for which a gate holds before it may open further.
const KEPT_FOR: Duration = Duration::from_millis(200);

/// Targets that are counted at once: each takes two programs and, on each CPU, a table of 5 kB.
pub(super) const TARGETS_MAX: usize = 1000;

/// Functions of programs that are asked for.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Patterns of programs, by full name or id; and of their functions, without which the entry is meant.
    parts: Vec<(String, Option<String>)>,
}

/// A function that is asked for.
#[derive(Debug)]
pub(super) struct Candidate {
    target: ExactTarget,
    /// The program and the type of the function; `None` when it was refused already.
    place: Option<(OwnedFd, u32)>,
    /// One in so many runs is measured at first.
    every: u64,
}

/// A function that is counted, or was, or could not be.
#[derive(Debug, Default)]
pub(super) struct ExactTarget {
    pub(super) id: u32,
    load_time_ns: u64,
    function: u32,
    program_name: String,
    /// Empty for the entry.
    name: Vec<u8>,
    since_ns: u64,
    /// Why it is not counted, or no longer.
    pub(super) reason: String,
    /// It may leave by a tail call.
    pub(super) tail_calls: bool,
    pair: Option<Probe>,
    /// The last counts, once it is detached.
    last: Option<TargetCounts>,
    /// Everyone else has let go of its program.
    pub(super) is_released: bool,
    /// True once a snapshot says that it is not counted, or no longer.
    pub(super) told: bool,
    /// Runs at the last look, and when that was.
    seen_runs: u64,
    seen_at: Option<Instant>,
    /// From when on its runs were too many for the budget at every look.
    too_often: Option<Instant>,
    /// When the share of its runs that is measured was last changed.
    paced_at: Option<Instant>,
}

/// Counts of a target, over all CPUs and on each.
#[derive(Debug, Clone)]
struct TargetCounts {
    all: RunCounts,
    /// By number of the CPU.
    cpus: Vec<RunCounts>,
}

impl Pattern {
    /// `PROGRAM[:FUNCTION]`, several with commas; none is the entry of every program.
    pub(crate) fn new(text: Option<&str>) -> Pattern {
        let part = |part: &str| match part.split_once(':') {
            Some((program, function)) => (program.to_owned(), Some(function.to_owned())),
            None => (part.to_owned(), None),
        };
        Pattern { parts: text.unwrap_or("*").split(',').map(str::trim).filter(|it| !it.is_empty()).map(part).collect() }
    }

    /// True if a program is asked for, or some function of it.
    pub(crate) fn matches(&self, known: Known<'_>) -> bool {
        let name = known.name();
        self.parts.iter().any(|(program, _)| is_program(program, &name, known.id()))
    }

    /// The functions of a program that are asked for; with a refusal they are to stay alone for that reason.
    pub(super) fn choose(&self, known: Known<'_>, refusal: Option<&str>) -> Vec<Candidate> {
        let info = known.snapshot.info.view();
        let id = info.id().unwrap_or(0);
        let names = known.functions();
        let program_name = known.name();
        let is_program = |pattern: &str| is_program(pattern, &program_name, id);
        let wanted = |index: u32, name: &str| {
            self.parts.iter().any(|(program, function)| {
                is_program(program)
                    && match function {
                        None => index == 0,
                        Some(pattern) => glob(pattern, name),
                    }
            })
        };
        let target = |index: u32, name: &str, reason: &str| ExactTarget {
            id,
            load_time_ns: info.load_time_ns().unwrap_or(0),
            function: index,
            program_name: program_name.clone().into_owned(),
            name: if index == 0 { Vec::new() } else { name.as_bytes().to_vec() },
            reason: reason.to_owned(),
            since_ns: sys::monotonic_ns(),
            tail_calls: makes_tail_calls(&info),
            ..ExactTarget::default()
        };
        if names.is_empty() {
            // Without functions it is not traced either way; it is said if it was asked for.
            let reason = refusal.unwrap_or("the kernel does not tell its functions");
            return if wanted(0, &program_name) {
                vec![Candidate { target: target(0, "", reason), place: None, every: 1 }]
            } else {
                Vec::new()
            };
        }
        let chosen = names.iter().filter(|function| wanted(function.index, &function.name));
        chosen
            .map(|Function { index, type_id, name }| {
                let place = match (refusal, type_id) {
                    (None, Some(type_id)) => known.descriptor().map(|fd| (fd, *type_id)).map_err(|it| it.to_string()),
                    (Some(reason), _) => Err(reason.to_owned()),
                    (None, None) => Err("it has no BTF, which is needed to find its functions".to_owned()),
                };
                let reason = place.as_ref().err().cloned().unwrap_or_default();
                Candidate { target: target(*index, name, &reason), place: place.ok(), every: 1 }
            })
            .collect()
    }
}

/// True if a program has the name or the id that is asked for.
fn is_program(pattern: &str, name: &str, id: u32) -> bool {
    glob(pattern, name) || pattern.parse::<u32>().is_ok_and(|asked| asked == id)
}

impl Candidate {
    /// A program with this id that the kernel does not know.
    #[cfg(test)]
    pub(super) fn in_memory(id: u32) -> Candidate {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        Candidate { target: ExactTarget { id, ..ExactTarget::default() }, place: Some((nothing.into(), 0)), every: 1 }
    }

    /// The program, when it is to be attached to.
    pub(super) fn program_id(&self) -> Option<u32> {
        self.place.is_some().then_some(self.target.id)
    }

    pub(super) fn is_entry(&self) -> bool {
        self.target.function == 0
    }

    /// Has one in so many runs measured at first.
    pub(super) fn set_every(&mut self, every: u64) {
        self.every = every;
    }

    /// It is to stay alone.
    pub(super) fn refuse(&mut self, reason: String) {
        self.place = None;
        self.target.reason = reason;
    }

    /// Attaches to it.
    pub(super) fn attach(self, profiler: &Profiler) -> ExactTarget {
        let Candidate { mut target, place, every } = self;
        let Some((program, type_id)) = place else { return target };
        let mut since = Instant::now();
        match profiler.attach(program.as_fd(), target.id, type_id, every) {
            Ok(pair) => {
                since = pair.began().unwrap_or(since);
                target.pair = Some(pair);
                target.seen_at = Some(since);
            }
            Err(error) => target.reason = error.to_string(),
        }
        // It was 0 then: a busy machine counts hundreds of runs before attaching is over.
        let ago_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(0);
        target.since_ns = sys::monotonic_ns().saturating_sub(ago_ns);
        target
    }
}

impl ExactTarget {
    /// For messages.
    pub(super) fn shown(&self) -> String {
        match self.name.is_empty() {
            true => format!("{} ({})", self.program_name, self.id),
            false => format!("{}:{} ({})", self.program_name, String::from_utf8_lossy(&self.name), self.id),
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        self.pair.is_some()
    }

    /// True while it is still to be said that it is not counted, or no longer.
    pub(super) fn is_news(&self) -> bool {
        !self.is_attached() && !self.told
    }

    pub(super) fn references(&self) -> i64 {
        self.pair.as_ref().map_or(0, Probe::references)
    }

    /// Runs per second since the last call, or since it is counted.
    pub(super) fn rate(&mut self, now: Instant) -> f64 {
        let runs = self.pair.as_ref().map_or(self.seen_runs, Probe::runs);
        let new = runs.saturating_sub(std::mem::replace(&mut self.seen_runs, runs));
        let since = self.seen_at.replace(now).map_or(Duration::ZERO, |seen_at| now.duration_since(seen_at));
        new as f64 / since.as_secs_f64().max(1e-3)
    }

    /// Has one in `every` runs measured: more of them only when it has been less for a while.
    pub(super) fn set_every(&mut self, every: u64, now: Instant) {
        self.too_often = None;
        self.pace(every, now);
    }

    /// Its runs are too many for the budget: hardly any is measured. For how long that has been so.
    pub(super) fn is_too_often(&mut self, hardly_any: u64, now: Instant) -> Duration {
        self.pace(hardly_any, now);
        now.duration_since(*self.too_often.get_or_insert(now))
    }

    fn pace(&mut self, every: u64, now: Instant) {
        let is_new = self.paced_at.is_some_and(|at| now.duration_since(at) < KEPT_FOR);
        if let Some(pair) = self.pair.as_ref().filter(|pair| every > pair.every() || every < pair.every() && !is_new) {
            pair.set_every(every);
            self.paced_at = Some(now);
        }
    }

    /// Detaches it. With a reason it is no longer counted for that, and without because there is nothing more to count.
    pub(super) fn end(&mut self, reason: &str) {
        let Some(mut pair) = self.pair.take() else { return };
        let every = pair.every();
        pair.detach();
        // It is detached: what it counted keeps still.
        if let Some(mut cpus) = pair.read_cpus() {
            // Open runs will not be seen to end.
            cpus.iter_mut().for_each(|counted| counted.discarded += counted.open);
            self.last = Some(TargetCounts::of(&cpus, pair.misses(), every));
        }
        self.reason = reason.to_owned();
    }

    /// Its counts as of now: the sum, and if wanted those of each CPU. None of them when they cannot be read at this moment.
    pub(super) fn counters(&self, per_cpu: bool) -> Vec<TargetCounters> {
        let counts = match &self.pair {
            Some(pair) => {
                let Some(cpus) = pair.read_cpus() else { return Vec::new() };
                Some(TargetCounts::of(&cpus, pair.misses(), pair.every()))
            }
            None => self.last.clone(),
        };
        let one = |counts: Option<RunCounts>, cpu: Option<u32>| TargetCounters {
            id: self.id,
            load_time_ns: self.load_time_ns,
            function: self.function,
            name: self.name.clone(),
            since_ns: self.since_ns,
            reason: self.reason.clone(),
            counts,
            cpu,
        };
        let (all, cpus) = counts.map(|counts| (counts.all, counts.cpus)).unzip();
        let cpus = cpus.filter(|_| per_cpu).into_iter().flatten();
        // Most programs run on few of the CPUs.
        let cpus = cpus.zip(0u32..).filter(|(counts, _)| counts.runs > 0);
        let cpus = cpus.map(|(counts, cpu)| one(Some(counts), Some(cpu)));
        std::iter::once(one(all, None)).chain(cpus).collect()
    }
}

impl TargetCounts {
    fn of(cpus: &[ProbeCounts], misses: Option<u64>, every: u64) -> TargetCounts {
        TargetCounts {
            all: run_counts(&ProbeCounts::sum(cpus), misses, every),
            // The kernel tells misses of all CPUs together.
            cpus: cpus.iter().map(|counted| run_counts(counted, None, every)).collect(),
        }
    }
}

fn run_counts(counted: &ProbeCounts, misses: Option<u64>, every: u64) -> RunCounts {
    let reading = |[value, enabled_ns, running_ns]: &[u64; 3]| Reading {
        value: *value,
        enabled_ns: *enabled_ns,
        running_ns: *running_ns,
    };
    RunCounts {
        runs: counted.runs,
        measured: counted.measured,
        too_deep: counted.nesting_overflow,
        discarded: counted.discarded,
        misses,
        every,
        time_ns: counted.time_ns,
        readings: counted.readings.iter().map(reading).collect(),
        histogram: Histogram { sub_bits: HISTOGRAM_SUB_BITS | Histogram::NET, buckets: counted.buckets.clone() },
    }
}

/// Refuses candidates that are to be attached to, but for the first ones. Returns how many.
pub(super) fn refuse_beyond(room: usize, candidates: &mut [Candidate]) -> usize {
    let to_attach = candidates.iter_mut().filter(|candidate| candidate.program_id().is_some());
    let beyond = to_attach.skip(room).map(|candidate| {
        candidate
            .refuse(format!("more than {TARGETS_MAX} functions of programs match; a narrower pattern has room for it"));
    });
    beyond.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_beyond_the_limit_are_refused_and_counted() {
        let mut candidates: Vec<Candidate> = (1..=5).map(Candidate::in_memory).collect();
        candidates[1].refuse("it runs in NMI".to_owned());
        assert_eq!(refuse_beyond(3, &mut candidates), 1);
        let left: Vec<_> = candidates.iter().filter_map(Candidate::program_id).collect();
        assert_eq!(left, [1, 3, 4]);
        assert_eq!(refuse_beyond(3, &mut candidates), 0);
    }
}
