//! Cells: one value of a model as the tables have it.

use rustc_hash::FxHashMap;

use crate::index::student::NORMAL_95;
use crate::model::text::{UNKNOWN, decimal, estimated, fixed, grouped, seconds};
use crate::model::{
    CounterSource, Counting, Event, EventReport, Exact, Known, Line, PERCENTILES, PerRun, Percentile, Program, Reason,
    Runs, Share, TimeBound, UnsampledTime,
};
use crate::view::grid::Column;

/// A value that cannot be true.
pub(super) const IMPOSSIBLE: &str = "n/a!";

/// A share in per cent with two decimals.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.into(), |percent| fixed(percent, 2))
}

/// A number with its thousands apart.
pub(super) fn number(number: Option<u64>) -> String {
    number.map_or(UNKNOWN.into(), grouped)
}

/// Memory in a unit that keeps it short.
pub(super) fn memory(bytes: Option<u64>) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some(bytes) = bytes else { return UNKNOWN.into() };
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", fixed(bytes as f64 / *unit as f64, 1)),
        None => format!("{bytes} B"),
    }
}

/// A moment since the start.
pub(super) fn moment(bound: Option<TimeBound>) -> String {
    match bound {
        None => String::new(),
        Some(bound) if bound.is_exact() => seconds(bound.after_ns),
        Some(bound) => format!("≤{}", seconds(bound.before_ns)),
    }
}

/// Where a program is attached, each place once.
pub(super) fn attachments(program: &Program) -> String {
    let mut places: Vec<(&str, usize)> = Vec::new();
    let mut at: FxHashMap<&str, usize> = FxHashMap::default();
    for attachment in &program.attachments {
        let at = *at.entry(attachment).or_insert_with(|| {
            places.push((attachment, 0));
            places.len() - 1
        });
        places[at].1 += 1;
    }
    let places = places.into_iter().map(|(place, times)| match times {
        1 => place.to_owned(),
        _ => format!("{place} ×{times}"),
    });
    places.collect::<Vec<_>>().join(" ")
}

/// Time per run by the kernel's statistics.
pub(super) fn ns_per_run(runs: &Runs) -> String {
    runs.ns_per_run.map_or_else(|| UNKNOWN.into(), decimal)
}

/// Columns of exact counters: events per run, instructions per cycle and percentiles.
pub(super) fn exact_columns(counting: &Counting) -> Vec<Column> {
    let events = counting.events.iter().map(|event| Column::number(format!("{}/RUN", event.name)).droppable(4));
    let tail = [("IPC", 4), ("P50", 5), ("P99", 4), ("P99.9", 6)];
    events.chain(tail.map(|(name, order)| Column::number(name).droppable(order))).collect()
}

/// The cells of [`exact_columns`].
pub(super) fn exact(exact: Option<&Exact>, events: usize) -> Vec<String> {
    let Some(exact) = exact else { return vec![UNKNOWN.into(); events + 1 + PERCENTILES.len()] };
    let mut cells: Vec<String> = exact.events.iter().map(|event| self::event(event, exact)).collect();
    cells.resize(events, UNKNOWN.into());
    cells.extend(tail(exact));
    cells
}

/// Instructions per cycle and percentiles.
pub(super) fn tail(exact: &Exact) -> Vec<String> {
    let mut cells = vec![exact.ipc.map_or(UNKNOWN.into(), |ipc| format!("{ipc:.2}"))];
    cells.extend(exact.percentiles.iter().map(|percentile| number(Percentile::middle_ns(percentile))));
    cells
}

/// An event per run.
pub(super) fn event(event: &Event, exact: &Exact) -> String {
    match &event.counted {
        Known::Value(counted) => value(&counted.per_run, exact.is_estimate) + &turns(event),
        Known::Impossible(_) => IMPOSSIBLE.into(),
        Known::Unknown(_) => UNKNOWN.into(),
    }
}

/// Share of the time for which an event was counted, when it took turns with others.
pub(super) fn turns(event: &Event) -> String {
    match event.counted.value() {
        Some(event) if event.running < 1.0 => format!("[{:.0}%]", (event.running * 100.0).clamp(1.0, 99.0)),
        _ => String::new(),
    }
}

/// Time per run.
pub(super) fn time(exact: &Exact) -> String {
    match &exact.time {
        Known::Value(time) => value(time, exact.is_estimate),
        Known::Impossible(_) => IMPOSSIBLE.into(),
        Known::Unknown(_) => UNKNOWN.into(),
    }
}

/// Runs and time per run. Run statistics may have been on for a part of the time: then the runs are estimated, and time per run is of those
/// that were counted.
pub(super) fn runs_and_time(source: CounterSource, exact: &Exact) -> [String; 2] {
    match (source, exact.time.value()) {
        (CounterSource::Stats, Some(time)) if exact.is_estimate => [estimated(exact.runs, None), decimal(time.value)],
        _ => [grouped(exact.runs), time(exact)],
    }
}

fn value(per_run: &PerRun, is_estimate: bool) -> String {
    if per_run.is_below_overhead() {
        return "≈0".into();
    }
    match per_run.error.filter(|_| per_run.value > 0.0).map(|error| error * 100.0 / per_run.value) {
        Some(percent) if percent < 10.0 => format!("{}±{percent:.1}%", decimal(per_run.value)),
        Some(percent) => format!("{}±{percent:.0}%", decimal(per_run.value)),
        None if is_estimate => format!("≈{}", decimal(per_run.value)),
        None => decimal(per_run.value),
    }
}

/// How many of the runs were measured.
pub(super) fn measured(exact: &Exact) -> String {
    let unmeasured = exact.runs.saturating_sub(exact.measured);
    match exact.measured {
        _ if exact.runs == 0 => UNKNOWN.into(),
        0 => "none".into(),
        _ if !exact.is_estimate || unmeasured == 0 => "all".into(),
        // As "1 in 1" it would look like all.
        _ if unmeasured < exact.runs / 20 => format!("all but {}", grouped(unmeasured)),
        measured => format!("1 in {}", decimal(exact.runs as f64 / measured as f64).trim_end_matches(".0")),
    }
}

/// A value for CSV: nothing where it is not known.
pub(super) fn plain(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A share that rounds to nothing.
pub(super) const NOTHING: &str = "0.00";

/// Cells from `%MACHINE` to `TOTAL%`.
const LEDGER_CELLS: usize = 8;

/// Appends the cells of a row from `%MACHINE` to `TOTAL%`. What samples cannot see is in its share of the machine; other shares
/// of what they do see would stand for the whole cost.
pub(super) fn push_cost_cells(
    cells: &mut Vec<String>,
    line: Option<&Line>,
    unsampled: Option<&UnsampledTime>,
    event: &EventReport,
    few: Few,
) {
    let first = cells.len();
    match line {
        Some(line) => push_ledger_cells(cells, line, event, few),
        None => cells.resize(first + LEDGER_CELLS, UNKNOWN.into()),
    }
    if let Some(unsampled) = unsampled {
        let sampled = line.map_or(Some(0.0), |line| line.shares.machine);
        cells[first] = estimate(sampled.zip(unsampled.machine_percent).map(|(sampled, unsampled)| sampled + unsampled));
        [1, 2].into_iter().for_each(|share| cells[first + share] = UNKNOWN.into());
    }
}

/// A share that is an estimate. One that rounds to nothing is as good as known.
pub(super) fn estimate(share: Option<f64>) -> String {
    let cell = percent(share);
    if share.is_none() || cell == NOTHING { cell } else { format!("≈{cell}") }
}

/// A share of the machine, which is an estimate where ticks of the timer are missing.
pub(super) fn of_machine(share: Option<f64>, is_scaled: bool) -> String {
    if is_scaled { estimate(share) } else { percent(share) }
}

/// Form of a share that rests on few samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Few {
    /// Like any other: the table says how many samples there are.
    AsTheyAre,
    /// `≤` and its upper confidence bound.
    AtMost,
}

/// With fewer samples than this, chance alone makes a share two thirds larger or smaller, or more.
const FEW_SAMPLES: u64 = 10;

/// Upper 97.5 % confidence bound of a Poisson mean (Wilson and Hilferty), as a multiple of the `samples` that were taken.
fn at_most(samples: u64) -> f64 {
    let next = samples as f64 + 1.0;
    let root = 1.0 - 1.0 / (9.0 * next) + NORMAL_95 / (3.0 * next.sqrt());
    next * root * root * root / samples as f64
}

/// Appends the cells of a line from `%MACHINE` to `TOTAL%`.
pub(super) fn push_ledger_cells(cells: &mut Vec<String>, line: &Line, event: &EventReport, few: Few) {
    let shares = &line.shares;
    let is_few = |samples| few == Few::AtMost && (1..FEW_SAMPLES).contains(&samples);
    let shown =
        |share: Option<f64>, samples, show: &dyn Fn(Option<f64>) -> String| match share.filter(|_| is_few(samples)) {
            Some(share) => format!("≤{}", percent(Some((share * at_most(samples)).min(100.0)))),
            None => show(share),
        };
    let of_machine = |share, samples| shown(share, samples, &|share| of_machine(share, event.is_scaled()));
    let samples = line.count.samples;
    let [busy, bpf] = [shares.busy, shares.bpf].map(|share| shown(share, samples, &percent));
    cells.extend([of_machine(shares.machine, samples), busy, bpf, grouped(samples)]);
    let share = |share: &Known<Share>| match share {
        Known::Value(share) => of_machine(event.percent(share.count), share.count.samples),
        Known::Unknown(Reason::NotForThisLine) => String::new(),
        Known::Unknown(_) | Known::Impossible(_) => UNKNOWN.into(),
    };
    match &line.columns {
        Some(columns) => {
            let [own, helper, entry, inclusive] =
                [&columns.own, &columns.helper, &columns.entry, &columns.inclusive].map(share);
            let is_shared = columns.has_shared_entry();
            let is_number = entry.starts_with(|c: char| c.is_ascii_digit());
            let entry = if is_shared && is_number { format!("≈{entry}") } else { entry };
            cells.extend([own, helper, entry, inclusive]);
        }
        None => cells.extend([const { String::new() }; 4]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_marked() {
        let per_run = |value: f64, error| PerRun { value, gross: value + 10.0, error };
        assert_eq!(value(&per_run(1234.4, None), false), "1,234");
        assert_eq!(value(&per_run(2_999.999_999_999, None), false), "3,000");
        assert_eq!(value(&per_run(99.96, Some(2.0)), true), "100.0±2.0%");
        assert_eq!(value(&per_run(100.0, Some(12.4)), true), "100.0±12%");
        assert_eq!(value(&per_run(100.0, None), true), "≈100.0");
        assert_eq!(value(&per_run(0.0, None), false), "≈0");
    }

    /// Exact bounds of a Poisson distribution's mean at 97.5 %: of 1 sample 5.572, of 2 7.225, of 9 17.085.
    #[test]
    fn a_share_of_few_samples_may_be_as_large_as_chance_has_it() {
        for (samples, most) in [(1, 5.572), (2, 7.225), (9, 17.085)] {
            assert!((at_most(samples) * samples as f64 - most).abs() < 0.01 * most, "{samples}: {}", at_most(samples));
        }
    }

    #[test]
    fn times_per_run_read_well() {
        assert_eq!(ns_per_run(&Runs::new(3, 100, None, None)), "33.3");
        assert_eq!(ns_per_run(&Runs::new(0, 0, None, None)), "n/a");
        assert_eq!(ns_per_run(&Runs::new(2, 5001, None, None)), "2,501");
        assert_eq!(ns_per_run(&Runs::new(1200, 1_938_943, None, None)), "1,616");
        assert_eq!(ns_per_run(&Runs::new(100, 99_996, None, None)), "1,000");
    }
}
