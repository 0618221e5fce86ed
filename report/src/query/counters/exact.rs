//! Exact counts of programs.

use super::CounterHistory;
use super::estimate::{Strata, Times};
use super::track::Track;
use crate::index::runs::Stretch;
use crate::model::{
    AbsentEvent, Anomaly, CountedEvent, Counting, Event, EventPerRun, Exact, Known, PERCENTILES, PerRun, Percentile,
    Reason, Unit,
};
use bprec_format::bprec::state::{Calibration, CounterEvent, CounterEvents, CounterUnit, Reading, RunCounts};
use bprec_format::event_type;

/// Returns the mean overhead of counting per run: first of the time, ns, then of each event. `None` where unknown.
fn overhead_of(counting: &Counting, track: &Track) -> Vec<Option<f64>> {
    let periods = || counting.overheads.iter().zip(&track.runs_by_period).filter(|(_, runs)| **runs > 0);
    let runs: f64 = periods().map(|(_, runs)| *runs as f64).sum();
    let mean = |at: usize| {
        let parts = periods().map(|(overhead, runs)| Some(overhead.get(at).copied().flatten()? * *runs as f64));
        parts.sum::<Option<f64>>().filter(|_| runs > 0.0).map(|sum| sum / runs)
    };
    (0..=counting.events.len()).map(mean).collect()
}

/// Describes the counters of `it` and their overhead. `calibrations` has all calibrations in order; the last one belongs to `it`.
pub(crate) fn counting_of(it: &CounterEvents, calibrations: &[Option<Calibration>]) -> Counting {
    let per_run = |total: u64, calibration: &Calibration| total as f64 / calibration.runs as f64;
    let known = |calibration: &'_ Option<Calibration>| calibration.clone().filter(|calibration| calibration.runs > 0);
    let overhead = |calibration: &Option<Calibration>| {
        let calibration = known(calibration);
        let event = |at: usize| calibration.as_ref().and_then(|c| c.inside.get(at).map(|total| per_run(*total, c)));
        let time_ns = calibration.as_ref().map(|c| per_run(c.inside_ns, c));
        std::iter::once(time_ns).chain((0..it.events.len()).map(event)).collect::<Vec<_>>()
    };
    let calibration = known(&it.calibration);
    let added =
        |of: fn(&Calibration) -> Option<u64>| calibration.as_ref().and_then(|c| of(c).map(|total| per_run(total, c)));
    let last = overhead(&it.calibration);
    let events = it.events.iter().zip(&last[1..]).map(|(event, overhead)| CountedEvent {
        name: event.name.clone(),
        unit: if event.unit == CounterUnit::NANOSECONDS { Unit::Nanoseconds } else { Unit::Events },
        group: event.group,
        software: event.software,
        overhead: *overhead,
    });
    let absent = it.absent.iter().map(|it| AbsentEvent { name: it.name.clone(), reason: it.reason.clone() });
    Counting {
        events: events.collect(),
        absent: absent.collect(),
        overhead_ns: last[0],
        calibration_runs: calibration.as_ref().map_or(0, |c| c.runs),
        added_to_measured_ns: added(|c| c.measured_ns),
        added_to_skipped_ns: added(|c| c.skipped_ns),
        budget_percent: it.budget_ppm.map(|ppm| f64::from(ppm) / 1e4),
        note: it.note.clone(),
        ipc: together(&it.events),
        overheads: calibrations.iter().map(overhead).collect(),
    }
}

/// Returns the positions of the instructions event and the cycles event. `None` unless both are in one group and have the same modes, as their ratio
/// has no meaning otherwise.
pub(super) fn together(events: &[CounterEvent]) -> Option<(usize, usize)> {
    // On hybrid machines, the upper 32 bits of the config select the PMU.
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

/// Exact counts of a program: of its entry function, and of other functions.
#[derive(Debug, Default)]
pub(crate) struct ExactProgram {
    pub(crate) entry: Option<Known<Exact>>,
    pub(crate) functions: Vec<Exact>,
}

/// Returns the exact counts of a program.
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
            Known::Unknown(Reason::recorder(&target.reason))
        };
        if *function == 0 {
            program.entry = Some(counts);
        } else if let Known::Value(counts) = counts {
            program.functions.push(counts);
        }
    }
    program
}

/// Returns run statistics in the form of exact counts; `runs` is the rounded count of runs.
pub(super) fn exact_of_runs(it: &Stretch, runs: u64, ended: Option<&str>, cpus: Option<u32>) -> Exact {
    let whole = |number: f64| number.round() as u64;
    let counts = RunCounts { runs, measured: runs, time_ns: whole(it.time_ns), ..RunCounts::default() };
    // The runs may be an estimate, which may exceed a limit by chance: this is no contradiction.
    let anomalies = if it.is_estimate { Vec::new() } else { anomalies(&counts, whole(it.length_ns), cpus, &[]) };
    let anomalies: Vec<Anomaly> = anomalies.into_iter().map(|(_, anomaly)| anomaly).collect();
    let mean = || Known::or_unknown(it.ns_per_run(), Reason::NoRunMeasured);
    Exact {
        function: 0,
        name: String::new(),
        from_ns: it.span.0,
        to_ns: it.span.1,
        runs,
        measured: whole(it.counted).min(runs),
        nesting_overflow: 0,
        discarded: 0,
        misses: it.misses.map(whole),
        every: 1,
        is_estimate: it.is_estimate,
        deviation_ns: None,
        time: anomalies
            .first()
            .map_or_else(mean, |it| Known::Impossible(Box::new(it.clone())))
            .map(|it| PerRun::new(it, None, None)),
        events: Vec::new(),
        ipc: None,
        percentiles: percentiles(&Times::default(), 0),
        anomalies,
        ended: ended.map(str::to_owned),
    }
}

fn percentiles(times: &Times, overhead_ns: u64) -> Vec<Percentile> {
    let percentile = |per_mille| {
        let bounds = times.percentile(per_mille);
        Percentile {
            percent: f64::from(per_mille) / 10.0,
            from_ns: bounds.map(|(first, _)| first.saturating_sub(overhead_ns)),
            to_ns: bounds.map(|(_, last)| last.saturating_sub(overhead_ns)),
        }
    };
    PERCENTILES.map(percentile).into()
}

/// Returns the totals of a target over its snapshots.
pub(super) fn exact(
    function: u32,
    name: &str,
    ended: &str,
    track: &Track,
    counting: &Counting,
    cpus: Option<u32>,
) -> Known<Exact> {
    let Some((from_ns, to_ns)) = track.span else { return Known::Unknown(Reason::NoSnapshots) };
    if let Some((first, times)) = &track.broken {
        let anomaly = Anomaly::SnapshotsDisagree { first: first.clone(), more: times.saturating_sub(1) };
        return Known::Impossible(Box::new(anomaly));
    }
    let sum = &track.sum;
    let anomalies = anomalies(sum, track.covered_ns, cpus, &counting.events);
    let is_estimate = is_estimate(sum, track.gated);
    let spread = track.times.variance();
    let overhead = overhead_of(counting, track);
    let overhead_ns = overhead[0];
    let time = match anomalies.iter().find(|(metric, _)| *metric == ExactMetric::Time) {
        Some((_, anomaly)) => Known::Impossible(Box::new(anomaly.clone())),
        None => Known::or_unknown(track.time.mean(), Reason::NoRunMeasured).map(|mean| {
            let error = spread.and_then(|variance| track.time.error_of_variance(variance));
            PerRun::new(mean, overhead_ns, error.filter(|_| is_estimate))
        }),
    };
    let events = counting.events.iter().enumerate().map(|(at, event)| Event {
        name: event.name.clone(),
        counted: match track.events.get(at) {
            Some(strata) => counted(at, strata, sum, overhead[at + 1], is_estimate, &anomalies),
            None => Known::Unknown(Reason::NotCounted),
        },
        is_altogether: false,
    });
    let events: Vec<Event> = events.collect();
    let ipc = counting.ipc.and_then(|(instructions, cycles)| {
        let value = |at: usize| events.get(at)?.counted.value().map(|event| event.per_run.value);
        let (instructions, cycles) = (value(instructions)?, value(cycles)?);
        (cycles > 0.0).then(|| instructions / cycles)
    });
    let overhead_ns = if sum.histogram.is_net() { 0 } else { overhead_ns.unwrap_or(0.0).round() as u64 };
    Known::Value(Exact {
        function,
        name: name.to_owned(),
        from_ns,
        to_ns,
        runs: sum.runs,
        measured: sum.measured,
        nesting_overflow: sum.too_deep,
        discarded: sum.discarded,
        misses: sum.misses,
        every: sum.every,
        is_estimate,
        deviation_ns: spread.map(f64::sqrt),
        time,
        events,
        ipc,
        percentiles: percentiles(&track.times, overhead_ns),
        anomalies: anomalies.into_iter().map(|(_, anomaly)| anomaly).collect(),
        ended: (!ended.is_empty()).then(|| ended.to_owned()),
    })
}

fn counted(
    at: usize,
    strata: &Strata,
    sum: &RunCounts,
    overhead: Option<f64>,
    is_estimate: bool,
    anomalies: &[(ExactMetric, Anomaly)],
) -> Known<EventPerRun> {
    if let Some((_, anomaly)) = anomalies.iter().find(|(metric, _)| *metric == ExactMetric::Event(at)) {
        return Known::Impossible(Box::new(anomaly.clone()));
    }
    let Some(mean) = strata.mean() else {
        return Known::Unknown(match sum.measured {
            0 => Reason::NoRunMeasured,
            _ => Reason::NotOnHardware,
        });
    };
    let reading = sum.readings.get(at).copied().unwrap_or_default();
    let running = if reading.running_ns < reading.enabled_ns {
        reading.running_ns as f64 / reading.enabled_ns as f64
    } else {
        1.0
    };
    let error = strata.error_of_strata().filter(|_| is_estimate);
    let per_run = PerRun::new(mean, overhead, error);
    Known::Value(EventPerRun { per_run, total: per_run.value * sum.runs as f64, running })
}

/// Returns true if the counting programs' gate skipped runs, or if more than 1 % of the runs were not measured. A few unmeasured runs are normal,
/// because they were open at a snapshot.
pub(super) fn is_estimate(counts: &RunCounts, gated: bool) -> bool {
    gated || counts.measured < counts.runs - counts.runs / 100
}

/// Number that an anomaly is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExactMetric {
    Runs,
    Time,
    Event(usize),
}

/// Limit on the events of a CPU per ns: 8 GHz with 8 events per cycle.
const MAX_EVENTS_PER_NS: u64 = 64;

/// Allowance for the time that a snapshot takes, ns. The counters of another CPU are read by an interrupt, which may be late on a busy or emulated
/// CPU.
const SNAPSHOT_NS: u64 = 500_000;

/// Returns the contradictions in counts. The numbers of a snapshot are read one after another, so they may differ by the events in between. Such
/// small differences are no contradictions.
pub(super) fn anomalies(
    counts: &RunCounts,
    elapsed_ns: u64,
    cpus: Option<u32>,
    events: &[CountedEvent],
) -> Vec<(ExactMetric, Anomaly)> {
    let mut anomalies = Vec::new();
    let slack = |ns: u64| ns.saturating_add(ns / 1000).saturating_add(SNAPSHOT_NS);
    let machine_ns = cpus.map(|cpus| elapsed_ns.saturating_mul(cpus.into()));
    let too_much = |ns: u64| machine_ns.filter(|machine_ns| ns > slack(*machine_ns));
    if counts.measured > counts.runs.saturating_add(counts.runs / 1000 + 64) {
        let (measured, runs) = (counts.measured, counts.runs);
        anomalies.push((ExactMetric::Runs, Anomaly::MoreMeasuredThanRan { measured, runs }));
    }
    if let Some(machine_ns) = too_much(counts.time_ns) {
        let time_ns = counts.time_ns;
        anomalies.push((ExactMetric::Time, Anomaly::TimeExceedsMachine { time_ns, machine_ns }));
    }
    for (at, reading) in counts.readings.iter().enumerate() {
        let known = events.get(at);
        let event = known.map_or_else(|| format!("counter {at}"), |event| event.name.clone());
        let Reading { value, enabled_ns, running_ns } = *reading;
        let is_time = known.is_some_and(|event| event.unit == Unit::Nanoseconds);
        let rate = if is_time { 1 } else { MAX_EVENTS_PER_NS };
        let anomaly = if running_ns > slack(enabled_ns) {
            Anomaly::RunningExceedsEnabled { event, running_ns, enabled_ns }
        } else if let Some(machine_ns) = too_much(enabled_ns) {
            Anomaly::EnabledExceedsMachine { event, enabled_ns, machine_ns }
        } else {
            let cpu_ns = machine_ns.unwrap_or(enabled_ns);
            if value <= slack(cpu_ns).saturating_mul(rate) {
                continue;
            }
            Anomaly::EventExceedsTime { event, value, cpu_ns }
        };
        anomalies.push((ExactMetric::Event(at), anomaly));
    }
    anomalies
}

#[cfg(test)]
mod tests {
    use super::*;
    use bprec_format::bprec::state::Reading;

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
        let event =
            |name: &str, unit| CountedEvent { name: name.into(), unit, group: 0, software: false, overhead: None };
        let events = [event("cpu-clock", Unit::Nanoseconds), event("x", Unit::Events)];
        let counts = |value: u64, enabled_ns: u64, running_ns: u64, time_ns: u64| RunCounts {
            runs: 10,
            measured: 10,
            time_ns,
            readings: vec![Reading { value, enabled_ns, running_ns }, Reading { value, enabled_ns, running_ns }],
            ..RunCounts::default()
        };
        // A tenth of a second on two CPUs: at most 200,000,000 ns.
        let found = |counts: &RunCounts| {
            anomalies(counts, 100_000_000, Some(2), &events).iter().map(|(metric, _)| *metric).collect::<Vec<_>>()
        };
        assert_eq!(found(&counts(200_000_000, 200_000_000, 200_000_000, 200_000_000)), []);
        assert_eq!(
            found(&counts(200_300_000, 200_300_000, 200_300_000, 200_300_000)),
            [],
            "the counts were read slightly later"
        );
        assert_eq!(found(&counts(0, 0, 0, 210_000_000)), [ExactMetric::Time]);
        assert_eq!(found(&counts(210_000_000, 10, 10, 0)), [ExactMetric::Event(0)], "more ns than all CPUs had");
        assert_eq!(found(&counts(20_000_000_000, 10, 10, 0)), [ExactMetric::Event(0), ExactMetric::Event(1)]);
        assert_eq!(found(&counts(1, 100_000_000, 110_000_000, 0)), [ExactMetric::Event(0), ExactMetric::Event(1)]);
        assert_eq!(found(&counts(1, 210_000_000, 1, 0)), [ExactMetric::Event(0), ExactMetric::Event(1)]);
        let mut more = counts(0, 0, 0, 0);
        more.measured = 100;
        assert_eq!(found(&more), [ExactMetric::Runs]);
    }
}
