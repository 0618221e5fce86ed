//! What exact counters say of each program.

use super::CounterHistory;
use super::estimate::{Strata, percentile, variance};
use super::track::Track;
use crate::{Runs, Unknown};
use bprec_format::event_type;
use bprec_format::state::{Calibration, CounterEvent, CounterEvents, CounterUnit, RunCounts};
use std::ops::RangeInclusive;

/// Shares of the runs, in thousandths, that [`Exact::percentiles`] are of.
pub const PERCENTILES: [u32; 3] = [500, 990, 999];

/// What exact counters count in this recording, and how.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counting {
    /// The events, in the order of [`Exact::events`].
    pub events: Vec<CounterEvent>,
    /// Events that were asked for and are not counted, each with its reason.
    pub absent: Vec<(String, String)>,
    /// What was taken off every measured run's time, ns; `None` when it was not found out, and nothing is taken off.
    pub pair_ns: Option<f64>,
    /// The same of each event.
    pub pair: Vec<Option<f64>>,
    /// Runs that it was found with.
    pub pair_runs: u64,
    /// What a measured run, and one that is let pass, takes longer for being counted: ns, where it was found out.
    pub added_ns: [Option<f64>; 2],
    /// How much of the machine counting may take, in millionths.
    pub budget_ppm: Option<u32>,
    /// How it is counted, or why not, in words.
    pub note: String,
    /// Positions of instructions and cycles among the events, when they are counted together.
    pub ipc: Option<(usize, usize)>,
    /// What is taken off from calibration to calibration: of the time, then of each event. The last is what stands above.
    pub(crate) pairs: Vec<Vec<Option<f64>>>,
}

impl Counting {
    /// What is to be taken off a run on average: of its time, then of each event.
    fn pair_of(&self, track: &Track) -> Vec<Option<f64>> {
        let periods = || self.pairs.iter().zip(&track.runs_by_period).filter(|(_, runs)| **runs > 0);
        let runs: f64 = periods().map(|(_, runs)| *runs as f64).sum();
        let mean = |at: usize| {
            let parts = periods().map(|(pair, runs)| Some(pair.get(at).copied().flatten()? * *runs as f64));
            parts.sum::<Option<f64>>().filter(|_| runs > 0.0).map(|sum| sum / runs)
        };
        (0..=self.events.len()).map(mean).collect()
    }
}

/// A value per run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerRun {
    /// Mean over all runs, what the counting adds taken off.
    pub value: f64,
    /// The same with it.
    pub with_pair: f64,
    /// Half of the 95 % confidence interval, when only some of the runs were measured and it can be told.
    pub error: Option<f64>,
}

impl PerRun {
    fn new(with_pair: f64, pair: Option<f64>, error: Option<f64>) -> PerRun {
        PerRun { value: (with_pair - pair.unwrap_or(0.0)).max(0.0), with_pair, error }
    }

    /// The run does less than the counting adds: all that can be said is that it is little.
    pub fn is_below_pair(&self) -> bool {
        self.value == 0.0 && self.with_pair > 0.0
    }
}

/// An event per run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventPerRun {
    /// How many, scaled to all of the time when the event took turns with others.
    pub per_run: PerRun,
    /// Share of the time for which it was counted; less than 1 when it took turns.
    pub running: f64,
}

/// What was counted of a program, or one of its functions.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    /// Which function: 0 is the entry.
    pub function: u32,
    /// Its name; empty for the entry.
    pub name: String,
    /// From when, ns of the recording's clock.
    pub from_ns: u64,
    /// Up to when.
    pub to_ns: u64,
    /// Runs.
    pub runs: u64,
    /// Runs that were measured.
    pub measured: u64,
    /// Runs not measured because too many were open.
    pub too_deep: u64,
    /// Runs of which only the begin or the end was seen.
    pub discarded: u64,
    /// Runs that the recursion guard kept from being counted, if that is known.
    pub misses: Option<u64>,
    /// One in so many runs was measured in the end.
    pub every: u64,
    /// Not all runs were measured: values are estimates.
    pub is_estimate: bool,
    /// Time per run, ns; `None` without a measured run.
    pub time: Option<PerRun>,
    /// Standard deviation of the time of a measured run, ns.
    pub deviation_ns: Option<f64>,
    /// Events per run, in the order of [`Counting::events`].
    pub events: Vec<Result<EventPerRun, Unknown>>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// Bounds of the time per run that this share of the runs stays within, ns, by [`PERCENTILES`]; what the counting adds taken
    /// off. `None` with too few measured runs.
    pub percentiles: [Option<(u64, u64)>; PERCENTILES.len()],
    /// What cannot be true of these numbers, in words.
    pub flaws: Vec<String>,
    /// Why counting of it ended before the recording.
    pub ended: Option<String>,
}

/// What is counted, and what counting adds: `calibrations` one after the other, of which that of `it` is the last.
pub(crate) fn counting_of(it: &CounterEvents, calibrations: &[Option<Calibration>]) -> Counting {
    let per_run = |total: u64, calibration: &Calibration| total as f64 / calibration.runs as f64;
    let known = |calibration: &'_ Option<Calibration>| calibration.clone().filter(|calibration| calibration.runs > 0);
    let pair = |calibration: &Option<Calibration>| {
        let calibration = known(calibration);
        let event = |at: usize| calibration.as_ref().and_then(|c| c.inside.get(at).map(|total| per_run(*total, c)));
        let time_ns = calibration.as_ref().map(|c| per_run(c.inside_ns, c));
        std::iter::once(time_ns).chain((0..it.events.len()).map(event)).collect::<Vec<_>>()
    };
    let calibration = known(&it.calibration);
    let added =
        |of: fn(&Calibration) -> Option<u64>| calibration.as_ref().and_then(|c| of(c).map(|total| per_run(total, c)));
    let last = pair(&it.calibration);
    Counting {
        pair: last[1..].to_vec(),
        ipc: together(&it.events),
        events: it.events.clone(),
        absent: it.absent.iter().map(|absent| (absent.name.clone(), absent.reason.clone())).collect(),
        pair_ns: last[0],
        pair_runs: calibration.as_ref().map_or(0, |c| c.runs),
        added_ns: [added(|c| c.measured_ns), added(|c| c.skipped_ns)],
        budget_ppm: it.budget_ppm,
        note: it.note.clone(),
        pairs: calibrations.iter().map(pair).collect(),
    }
}

/// Instructions and cycles of one group and of the same modes.
pub(super) fn together(events: &[CounterEvent]) -> Option<(usize, usize)> {
    // The PMU of a hybrid machine is in the upper half of the config.
    let is = |event: &CounterEvent, config: u64| {
        event.attr_type == event_type::HARDWARE && event.config & 0xffff_ffff == config
    };
    let modes = |event: &CounterEvent| event.name.split_once(':').map(|(_, modes)| modes.to_owned());
    events.iter().enumerate().filter(|(_, event)| is(event, 1)).find_map(|(at, instructions)| {
        let cycles = events.iter().position(|event| {
            is(event, 0)
                && event.config == instructions.config - 1
                && event.group == instructions.group
                && modes(event) == modes(instructions)
        })?;
        Some((at, cycles))
    })
}

/// By program: what is known of its entry function, and of others.
#[derive(Debug, Default)]
pub(crate) struct ExactProgram {
    pub(crate) entry: Option<Result<Exact, Unknown>>,
    pub(crate) functions: Vec<Exact>,
}

/// What is known of one program.
pub(crate) fn exact_program(
    history: &CounterHistory,
    counting: &Counting,
    key: (u32, u64),
    cpus: Option<u32>,
) -> ExactProgram {
    let (id, load_time_ns) = key;
    let mut program = ExactProgram::default();
    for ((_, _, function), target) in history.targets.range((id, load_time_ns, 0)..=(id, load_time_ns, u32::MAX)) {
        let counts = if target.counted {
            exact(*function, &target.name, &target.reason, &target.track, counting, cpus)
        } else {
            Err(Unknown(target.reason.clone()))
        };
        if *function == 0 {
            program.entry = Some(counts);
        } else if let Ok(counts) = counts {
            program.functions.push(counts);
        }
    }
    program
}

/// What the snapshots of one target come to.
pub(super) fn exact(
    function: u32,
    name: &str,
    ended: &str,
    track: &Track,
    counting: &Counting,
    cpus: Option<u32>,
) -> Result<Exact, Unknown> {
    let Some((from_ns, to_ns)) = track.span else {
        return Err(Unknown("no two snapshots of it in the window".into()));
    };
    if let Some((why, times)) = &track.broken {
        let more = if *times > 1 { format!(", and {} more like it", times - 1) } else { String::new() };
        return Err(Unknown(format!("its counts are impossible: {why}{more}")));
    }
    let sum = &track.sum;
    let flaws = flaws(sum, track.covered_ns, cpus, &counting.events);
    let is_estimate = is_estimate(sum, track.gated);
    let spread = variance(&sum.histogram);
    let pair = counting.pair_of(track);
    let pair_ns = pair[0];
    let time = track.time.mean().map(|mean| {
        let error = spread.and_then(|variance| track.time.error_of_variance(variance));
        PerRun::new(mean, pair_ns, error.filter(|_| is_estimate))
    });
    let events = (0..counting.events.len()).map(|at| {
        let strata = track.events.get(at).ok_or_else(|| Unknown("it was not counted".into()))?;
        event(at, strata, sum, pair[at + 1], is_estimate, &flaws)
    });
    let events: Vec<Result<EventPerRun, Unknown>> = events.collect();
    let ipc = counting.ipc.and_then(|(instructions, cycles)| {
        let value = |at: usize| events.get(at)?.as_ref().ok().map(|event| event.per_run.value);
        let (instructions, cycles) = (value(instructions)?, value(cycles)?);
        (cycles > 0.0).then(|| instructions / cycles)
    });
    let pair_ns = if sum.histogram.is_net() { 0 } else { pair_ns.unwrap_or(0.0).round() as u64 };
    let percentiles = PERCENTILES.map(|per_mille| {
        let (first, last) = percentile(&sum.histogram, per_mille)?;
        Some((first.saturating_sub(pair_ns), last.saturating_sub(pair_ns)))
    });
    Ok(Exact {
        function,
        name: name.to_owned(),
        from_ns,
        to_ns,
        runs: sum.runs,
        measured: sum.measured,
        too_deep: sum.too_deep,
        discarded: sum.discarded,
        misses: sum.misses,
        every: sum.every,
        is_estimate,
        deviation_ns: spread.map(f64::sqrt),
        time: time.filter(|_| !flaws.iter().any(|flaw| flaw.is_about(What::Time))),
        events,
        ipc,
        percentiles,
        flaws: flaws.into_iter().map(|flaw| flaw.text).collect(),
        ended: (!ended.is_empty()).then(|| ended.to_owned()),
    })
}

fn event(
    at: usize,
    strata: &Strata,
    sum: &RunCounts,
    pair: Option<f64>,
    is_estimate: bool,
    flaws: &[Flaw],
) -> Result<EventPerRun, Unknown> {
    if let Some(flaw) = flaws.iter().find(|flaw| flaw.is_about(What::Event(at))) {
        return Err(Unknown(flaw.text.clone()));
    }
    let unknown = || match sum.measured {
        0 => Unknown("no run was measured".into()),
        _ => Unknown("it was not on the hardware while the program ran".into()),
    };
    let mean = strata.mean().ok_or_else(unknown)?;
    let reading = sum.readings.get(at).copied().unwrap_or_default();
    let running = if reading.running_ns < reading.enabled_ns {
        reading.running_ns as f64 / reading.enabled_ns as f64
    } else {
        1.0
    };
    let error = strata.error_of_strata().filter(|_| is_estimate);
    Ok(EventPerRun { per_run: PerRun::new(mean, pair, error), running })
}

/// The gate let runs pass, or runs are missing for another reason. One in a hundred may be open at a snapshot.
pub(super) fn is_estimate(counts: &RunCounts, gated: bool) -> bool {
    gated || counts.measured < counts.runs - counts.runs / 100
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Runs,
    Time,
    Event(usize),
}

/// Something that cannot be true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) what: What,
    pub(super) text: String,
}

impl Flaw {
    pub(super) fn is_about(&self, what: What) -> bool {
        self.what == what
    }
}

/// More events than this in a ns no CPU has: its clock rate in GHz times what it can retire at once.
const MAX_EVENTS_PER_NS: u64 = 64;

/// What of these counts cannot be true. A snapshot is not taken in one moment, so that its numbers may differ by what was
/// counted meanwhile: that much is let pass.
pub(super) fn flaws(counts: &RunCounts, elapsed_ns: u64, cpus: Option<u32>, events: &[CounterEvent]) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let slack = |ns: u64| ns.saturating_add(ns / 1000).saturating_add(10_000);
    let room_ns = cpus.map(|cpus| elapsed_ns.saturating_mul(cpus.into()));
    let too_much = |ns: u64| room_ns.filter(|room| ns > slack(*room));
    if counts.measured > counts.runs.saturating_add(counts.runs / 1000 + 64) {
        let text = format!("{} measured runs of {}", counts.measured, counts.runs);
        flaws.push(Flaw { what: What::Runs, text });
    }
    if let Some(room) = too_much(counts.time_ns) {
        let text =
            format!("{} ns in it, where its CPUs had {room} ns (only a program that sleeps can)", counts.time_ns);
        flaws.push(Flaw { what: What::Time, text });
    }
    for (at, reading) in counts.readings.iter().enumerate() {
        let event = events.get(at);
        let name = event.map_or_else(|| format!("counter {at}"), |event| event.name.clone());
        let mut flaw = |text: String| flaws.push(Flaw { what: What::Event(at), text: format!("{name}: {text}") });
        let is_time = event.is_some_and(|event| event.unit == CounterUnit::NANOSECONDS);
        let rate = if is_time { 1 } else { MAX_EVENTS_PER_NS };
        if reading.running_ns > slack(reading.enabled_ns) {
            flaw(format!("counted for {} ns of {} ns", reading.running_ns, reading.enabled_ns));
        } else if let Some(room) = too_much(reading.enabled_ns) {
            flaw(format!("enabled for {} ns, where its CPUs had {room} ns", reading.enabled_ns));
        } else {
            let room = room_ns.unwrap_or(reading.enabled_ns);
            if reading.value > slack(room).saturating_mul(rate) {
                flaw(format!("{} in {room} ns of CPU time", reading.value));
            }
        }
    }
    flaws
}

/// Whether a program was counted for all of this time, but for a twentieth of it.
pub(crate) fn covers(exact: &Exact, (from_ns, to_ns): (u64, u64)) -> bool {
    let missing_ns = exact.from_ns.saturating_sub(from_ns).saturating_add(to_ns.saturating_sub(exact.to_ns));
    missing_ns <= to_ns.saturating_sub(from_ns) / 20
}

/// Where the kernel's run statistics and exact counters say different things of the same. Of different times they may.
pub(crate) fn disagreements(runs: &Runs, exact: &Exact, counting: &Counting) -> Vec<String> {
    let mut said = Vec::new();
    let Some((from_ns, to_ns)) = runs.span.filter(|span| covers(exact, *span)) else { return said };
    let (stats_ns, exact_ns) = (to_ns.saturating_sub(from_ns), exact.to_ns.saturating_sub(exact.from_ns));
    if stats_ns == 0 || exact_ns == 0 {
        return said;
    }
    // They were not read in the same moment: what ran between the readings is in one of them only.
    let apart_ns = from_ns.abs_diff(exact.from_ns).saturating_add(to_ns.abs_diff(exact.to_ns));
    let rate = (runs.count as f64 / stats_ns as f64).max(exact.runs as f64 / exact_ns as f64);
    let most = runs.count.max(exact.runs) as f64;
    let allowed = 2.0 * rate * apart_ns as f64 + 0.01 * most + 10.0;
    // The kernel counts the runs whose begin was missed.
    let misses = exact.misses.unwrap_or(0);
    let (least, most) = (exact.runs as f64 - allowed, exact.runs.saturating_add(misses) as f64 + allowed);
    if !(least..=most).contains(&(runs.count as f64)) {
        let missed = if misses > 0 { format!(" and {misses} missed") } else { String::new() };
        said.push(format!("{} runs by stats, {} counted exactly{missed}", runs.count, exact.runs));
    }
    if let Some(bounds) = stats_bounds(exact, counting).filter(|_| runs.count > 0) {
        let stats = runs.time_ns as f64 / runs.count as f64;
        if !bounds.contains(&stats) {
            let added = added_ns(exact, counting);
            let added = added.map(|added| format!(", {added:.0} of them for counting")).unwrap_or_default();
            let exact = exact.time.map_or(0.0, |time| time.value);
            said.push(format!("{stats:.0} ns per run by stats{added}, {exact:.0} counted exactly"));
        }
    }
    said
}

/// How many times what was found with an empty program counting may add elsewhere: there all of it was in the caches.
const ADDED_AT_MOST: f64 = 4.0;
/// Standard errors of the mean that are chance.
const CHANCE: f64 = 3.0;

/// Between what a run may take on average by the kernel's statistics, after what was counted exactly.
///
/// The kernel's clock stands outside of what counts, so that each measured run takes longer by it: by what the pair takes beside its own
/// readings. Of a run that is let pass it sees what that adds, and not the readings. How much that is was found where it is
/// least. And what interrupts a run now and then may fall between the two clocks.
fn stats_bounds(exact: &Exact, counting: &Counting) -> Option<RangeInclusive<f64>> {
    let time = exact.time.filter(|_| exact.measured > 0 && exact.runs > 0)?;
    let inside = time.with_pair - time.value;
    let skipped = 1.0 - (exact.measured as f64 / exact.runs as f64).min(1.0);
    let chance = exact.deviation_ns.map_or(0.0, |deviation| CHANCE * deviation / (exact.measured as f64).sqrt());
    let allowed = 0.1 * time.with_pair + 20.0 + time.error.unwrap_or(0.0) + chance;
    let least = time.with_pair - skipped * ADDED_AT_MOST * inside - allowed;
    let most = added_ns(exact, counting).map_or(f64::INFINITY, |added| time.value + ADDED_AT_MOST * added + allowed);
    Some(least..=most)
}

/// What counting adds to a run of this program on average, as the kernel's statistics see it.
fn added_ns(exact: &Exact, counting: &Counting) -> Option<f64> {
    let [measured_ns, skipped_ns] = counting.added_ns;
    let measured = exact.measured.min(exact.runs) as f64;
    let skipped = exact.runs as f64 - measured;
    let skipped_ns = if skipped > 0.0 { skipped_ns? } else { 0.0 };
    (exact.runs > 0).then_some(())?;
    Some((measured * measured_ns? + skipped * skipped_ns) / exact.runs as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bprec_format::state::Reading;

    fn event(name: &str, config: u64, group: u32) -> CounterEvent {
        CounterEvent { name: name.into(), config, group, ..CounterEvent::default() }
    }

    #[test]
    fn instructions_and_cycles_make_a_ratio_only_together() {
        assert_eq!(together(&[event("cycles", 0, 1), event("instructions", 1, 1)]), Some((1, 0)));
        assert_eq!(together(&[event("cycles", 0, 1), event("instructions", 1, 2)]), None, "two groups");
        assert_eq!(together(&[event("cycles:u", 0, 1), event("instructions:k", 1, 1)]), None, "two modes");
        assert_eq!(together(&[event("instructions", 1, 1)]), None);
        let of_pmu = |name: &str, config: u64, pmu: u64| event(name, config | pmu << 32, 1);
        assert_eq!(together(&[of_pmu("cycles", 0, 4), of_pmu("instructions", 1, 8)]), None, "two PMUs");
    }

    #[test]
    fn what_cannot_be_is_found() {
        let events = [CounterEvent { unit: CounterUnit::NANOSECONDS, ..event("cpu-clock", 0, 0) }, event("x", 5, 1)];
        let counts = |value: u64, enabled_ns: u64, running_ns: u64, time_ns: u64| RunCounts {
            runs: 10,
            measured: 10,
            time_ns,
            readings: vec![Reading { value, enabled_ns, running_ns }, Reading { value, enabled_ns, running_ns }],
            ..RunCounts::default()
        };
        // One ms on two CPUs.
        let found = |counts: &RunCounts| {
            flaws(counts, 1_000_000, Some(2), &events).iter().map(|flaw| flaw.what).collect::<Vec<_>>()
        };
        assert_eq!(found(&counts(2_000_000, 2_000_000, 2_000_000, 2_000_000)), []);
        assert_eq!(found(&counts(0, 0, 0, 2_100_000)), [What::Time]);
        assert_eq!(found(&counts(2_100_000, 10, 10, 0)), [What::Event(0)], "more ns than there were");
        assert_eq!(found(&counts(200_000_000, 10, 10, 0)), [What::Event(0), What::Event(1)]);
        assert_eq!(found(&counts(1, 1_000_000, 1_100_000, 0)), [What::Event(0), What::Event(1)]);
        assert_eq!(found(&counts(1, 2_100_000, 1, 0)), [What::Event(0), What::Event(1)]);
        let mut more = counts(0, 0, 0, 0);
        more.measured = 100;
        assert_eq!(found(&more), [What::Runs]);
    }

    #[test]
    fn statistics_are_held_against_what_the_clocks_and_chance_explain() {
        // A measured run takes 800 ns longer, of which the pair sees 300; one that is let pass 500.
        let counting = Counting { added_ns: [Some(800.0), Some(500.0)], ..Counting::default() };
        let counted = |measured, deviation_ns| Exact {
            runs: 10_000,
            measured,
            time: Some(PerRun { value: 1000.0, with_pair: 1300.0, error: None }),
            deviation_ns: Some(deviation_ns),
            ..nothing()
        };
        let agree = |exact: &Exact, stats: f64| stats_bounds(exact, &counting).unwrap().contains(&stats);
        // All are measured: what the kernel sees encloses what the pair sees.
        let all = counted(10_000, 0.0);
        assert!(agree(&all, 1300.0) && agree(&all, 1800.0) && agree(&all, 4000.0));
        assert!(!agree(&all, 1100.0) && !agree(&all, 4500.0));
        // One in a hundred is: few of the runs have the readings in them.
        let few = counted(100, 0.0);
        assert!(agree(&few, 1000.0) && agree(&few, 1500.0) && !agree(&few, 3500.0));
        // One in 10,000 runs is interrupted for 10 ms, and the next one may be between the clocks: 1 µs on average.
        let interrupted = counted(10_000, 100_000.0);
        assert!(agree(&interrupted, 5000.0) && !agree(&interrupted, 8000.0));
    }

    fn nothing() -> Exact {
        Exact {
            function: 0,
            name: String::new(),
            from_ns: 0,
            to_ns: 0,
            runs: 0,
            measured: 0,
            too_deep: 0,
            discarded: 0,
            misses: None,
            every: 1,
            is_estimate: false,
            time: None,
            deviation_ns: None,
            events: Vec::new(),
            ipc: None,
            percentiles: [None; PERCENTILES.len()],
            flaws: Vec::new(),
            ended: None,
        }
    }
}
