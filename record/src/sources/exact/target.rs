//! Target of exact counters: a function of a program, attached or refused.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bprec_bpf::{HISTOGRAM_SUB_BITS, Probe, ProbeCounts, Profiler, makes_tail_calls};
use bprec_filter::{FunctionFilter, ProgFilter};
use bprec_format::bprec::state::{Histogram, ProgramCounters, Reading, RunCounts, State, TargetCounters};

use crate::options::listed;
use crate::sources::inventory::{Function, Known};
use crate::sys;

/// Shortest time between a change of the measured part of runs and the next increase of this part.
const KEPT_FOR: Duration = Duration::from_millis(200);

/// Limit on targets counted at the same time. Each needs one or two programs and, on each CPU, a table of 5 kB.
pub(super) const TARGETS_MAX: usize = 1000;

/// The requested functions of programs.
#[derive(Debug)]
pub(crate) struct WantedFunctions {
    /// A filter without a function selects the entry function. Empty selects the entry function of every program.
    filters: Vec<FunctionFilter>,
}

/// Requested function, not attached yet.
#[derive(Debug)]
pub(super) struct Candidate {
    target: ExactTarget,
    /// Descriptor of the program, and BTF id of the function's type; `None` if the candidate is refused.
    place: Option<(OwnedFd, u32)>,
    /// Interval of measurement at first: one run in this number is measured.
    every: u64,
}

/// Function that is counted, was counted, or was refused.
#[derive(Debug, Default)]
pub(super) struct ExactTarget {
    pub(super) id: u32,
    load_time_ns: u64,
    function: u32,
    program_name: String,
    /// Name of the function; empty for the entry function.
    name: Vec<u8>,
    since_ns: u64,
    /// Reason why counting of the function was refused or has ended.
    pub(super) reason: String,
    /// True if the program contains tail calls.
    pub(super) tail_calls: bool,
    pair: Option<Probe>,
    /// Last counts, after detaching.
    last: Option<TargetCounts>,
    /// True if all other users have released the program.
    pub(super) is_released: bool,
    /// True if a snapshot has reported that counting of the function was refused or has ended.
    pub(super) told: bool,
    /// Count of runs at the last call of `rate`.
    seen_runs: u64,
    /// Time of the last call of `rate`, or of attaching.
    seen_at: Option<Instant>,
    /// Time of the first of the consecutive checks that found the program too frequent for the budget.
    too_often: Option<Instant>,
    /// Time of the last change of the measured part of runs.
    paced_at: Option<Instant>,
}

/// Counts of a target, of all CPUs together and of each CPU.
#[derive(Debug, Clone)]
struct TargetCounts {
    all: RunCounts,
    /// Counts by CPU number.
    cpus: Vec<RunCounts>,
}

impl WantedFunctions {
    pub(crate) fn new(filters: &[FunctionFilter]) -> WantedFunctions {
        WantedFunctions { filters: filters.to_vec() }
    }

    /// Returns true if a program or one of its functions can match.
    pub(crate) fn matches(&self, known: Known<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| is_of(filter, known))
    }

    /// Message for the user while no loaded program matches.
    pub(crate) fn nothing_yet(&self) -> String {
        match self.filters.is_empty() {
            true => "no BPF program is loaded yet".to_owned(),
            false => format!("no loaded program matches {} yet", listed(&self.filters)),
        }
    }

    /// Returns true if all programs are requested by id.
    pub(crate) fn has_only_ids(&self) -> bool {
        !self.filters.is_empty() && self.filters.iter().all(|filter| matches!(filter.program, ProgFilter::Id(_)))
    }

    /// Requested ids of programs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.filters.iter().filter_map(|filter| match filter.program {
            ProgFilter::Id(id) => Some(id),
            _ => None,
        })
    }

    /// Returns the requested functions of a program. With a `refusal`, all functions are refused for that reason.
    pub(super) fn choose(&self, known: Known<'_>, refusal: Option<&str>) -> Vec<Candidate> {
        let info = known.snapshot.info.view();
        let id = info.id().unwrap_or(0);
        let names = known.functions();
        let program_name = known.name();
        let filters: Vec<_> = self.filters.iter().filter(|filter| is_of(filter, known)).collect();
        let wanted = |index: u32, name: &str| {
            let is_named = |filter: &&FunctionFilter| {
                filter.function.as_ref().map_or(index == 0, |function| function.matches(name))
            };
            self.filters.is_empty() && index == 0 || filters.iter().any(is_named)
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
            // A program without listed functions cannot be traced. If it was requested, it becomes a refused candidate,
            // so that the reason is reported.
            let reason = refusal.unwrap_or("the kernel does not list its functions");
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

/// Returns true if a filter selects a program, or functions of it.
fn is_of(filter: &FunctionFilter, known: Known<'_>) -> bool {
    filter.program.matches(Some(known.id()), known.snapshot.info.view().tag(), &known.name())
}

impl Candidate {
    /// Makes a candidate for a program that does not exist in the kernel.
    #[cfg(test)]
    pub(super) fn in_memory(id: u32) -> Candidate {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        Candidate { target: ExactTarget { id, ..ExactTarget::default() }, place: Some((nothing.into(), 0)), every: 1 }
    }

    /// Id of the program; `None` if the candidate is refused.
    pub(super) fn program_id(&self) -> Option<u32> {
        self.place.is_some().then_some(self.target.id)
    }

    pub(super) fn is_entry(&self) -> bool {
        self.target.function == 0
    }

    /// Makes the target measure one run in `every` at first.
    pub(super) fn set_every(&mut self, every: u64) {
        self.every = every;
    }

    /// Refuses the candidate: the recorder does not attach to it.
    pub(super) fn refuse(&mut self, reason: String) {
        self.place = None;
        self.target.reason = reason;
    }

    /// Attaches to the function.
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
        // Counting starts at `began`, before `attach` returns: on a busy machine, hundreds of runs are counted in
        // between.
        let ago_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(0);
        target.since_ns = sys::monotonic_ns().saturating_sub(ago_ns);
        target
    }
}

impl ExactTarget {
    /// Name of the function for messages.
    pub(super) fn shown(&self) -> String {
        match self.name.is_empty() {
            true => format!("{} ({})", self.program_name, self.id),
            false => format!("{}:{} ({})", self.program_name, String::from_utf8_lossy(&self.name), self.id),
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        self.pair.is_some()
    }

    /// Returns true if counting of the function was refused or has ended, and no snapshot has reported this yet.
    pub(super) fn is_news(&self) -> bool {
        !self.is_attached() && !self.told
    }

    pub(super) fn references(&self) -> i64 {
        self.pair.as_ref().map_or(0, Probe::references)
    }

    /// Returns the runs per second since the last call, or since attaching.
    pub(super) fn rate(&mut self, now: Instant) -> f64 {
        let runs = self.pair.as_ref().map_or(self.seen_runs, Probe::runs);
        let new = runs.saturating_sub(std::mem::replace(&mut self.seen_runs, runs));
        let since = self.seen_at.replace(now).map_or(Duration::ZERO, |seen_at| now.duration_since(seen_at));
        new as f64 / since.as_secs_f64().max(1e-3)
    }

    /// Measures one run in `every`. The measured part of runs increases only if it has not changed for `KEPT_FOR`.
    pub(super) fn set_every(&mut self, every: u64, now: Instant) {
        self.too_often = None;
        self.pace(every, now);
    }

    /// Measures only one run in `hardly_any`, because the program runs too often for the budget. Returns the time since the first of the consecutive
    /// checks that found the program too frequent.
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

    /// Detaches from the function. `reason` is empty if there is nothing more to count.
    pub(super) fn end(&mut self, reason: &str) {
        let Some(mut pair) = self.pair.take() else { return };
        let every = pair.every();
        pair.detach();
        // The counts no longer change after detaching.
        if let Some(mut cpus) = pair.read_cpus() {
            // Runs that were open while the counting programs were detached have no counted end, so they are discarded.
            cpus.iter_mut().for_each(|counted| counted.discarded += counted.open);
            self.last = Some(TargetCounts::of(&cpus, pair.misses(), every));
        }
        self.reason = reason.to_owned();
    }

    /// Returns the current counts: the sum, and with `per_cpu` the counts of each CPU. Empty if the counts cannot be read at this moment.
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
        // Most programs run on few CPUs, so CPUs without runs are left out.
        let cpus = cpus.zip(0u32..).filter(|(counts, _)| counts.runs > 0);
        let cpus = cpus.map(|(counts, cpu)| one(Some(counts), Some(cpu)));
        std::iter::once(one(all, None)).chain(cpus).collect()
    }
}

impl TargetCounts {
    fn of(cpus: &[ProbeCounts], misses: Option<u64>, every: u64) -> TargetCounts {
        TargetCounts {
            all: run_counts(&ProbeCounts::sum(cpus), misses, every),
            // The kernel counts misses only for all CPUs together.
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

/// Keeps the first `room` candidates that are not refused yet, and refuses the candidates after them. Returns the number of
/// newly refused candidates.
pub(super) fn refuse_beyond(room: usize, candidates: &mut [Candidate]) -> usize {
    let to_attach = candidates.iter_mut().filter(|candidate| candidate.program_id().is_some());
    let beyond = to_attach.skip(room).map(|candidate| {
        candidate.refuse(format!(
            "exact counters count at most {TARGETS_MAX} functions of programs, and more match; give a narrower name to \
             count this function"
        ));
    });
    beyond.count()
}

/// State with the current counters of the targets, and the current time; `None` without targets.
pub(super) fn snapshot_of<'a>(targets: impl Iterator<Item = &'a ExactTarget>, per_cpu: bool) -> Option<State> {
    let time_ns = sys::monotonic_ns();
    let targets: Vec<_> = targets.flat_map(|target| target.counters(per_cpu)).collect();
    (!targets.is_empty()).then_some(State::ProgramCounters(ProgramCounters { time_ns, targets }))
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
