//! Cells of tables: values of a model as text.

use rustc_hash::FxHashMap;

use crate::model::text::{UNKNOWN, decimal, estimated, fixed, grouped, seconds};
use crate::model::{
    CounterSource, Counting, Event, Exact, Known, PERCENTILES, PerRun, Percentile, Program, Runs, TimeBound,
};
use crate::view::grid::Column;

/// Text of an impossible value.
pub(super) const IMPOSSIBLE: &str = "n/a!";

/// Share in per cent, with two decimals.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.into(), |percent| fixed(percent, 2))
}

/// Number with thousands separators.
pub(super) fn number(number: Option<u64>) -> String {
    number.map_or(UNKNOWN.into(), grouped)
}

/// Memory in the largest unit, up to GiB, that gives a number of at least 1.
pub(super) fn memory(bytes: Option<u64>) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some(bytes) = bytes else { return UNKNOWN.into() };
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", fixed(bytes as f64 / *unit as f64, 1)),
        None => format!("{bytes} B"),
    }
}

/// Time since the start of the recording, s. If only a range is known: `≤` and the end of the range. Empty for `None`.
pub(super) fn moment(bound: Option<TimeBound>) -> String {
    match bound {
        None => String::new(),
        Some(bound) if bound.is_exact() => seconds(bound.after_ns),
        Some(bound) => format!("≤{}", seconds(bound.before_ns)),
    }
}

/// Distinct attach points of a program; a repeated attach point is followed by its count. `beside` is the program's type, if the same row shows the
/// type: attach points then lack the prefix that consists of this type and a colon.
pub(super) fn attachments(places: &[String], beside: Option<&str>) -> String {
    let without_type = |attachment| beside.and_then(|it| str::strip_prefix(attachment, it)?.strip_prefix(':'));
    let mut distinct: Vec<(&str, usize)> = Vec::new();
    let mut at: FxHashMap<&str, usize> = FxHashMap::default();
    for attachment in places.iter().map(String::as_str) {
        let attachment = without_type(attachment).unwrap_or(attachment);
        let at = *at.entry(attachment).or_insert_with(|| {
            distinct.push((attachment, 0));
            distinct.len() - 1
        });
        distinct[at].1 += 1;
    }
    let places = distinct.into_iter().map(|(place, times)| match times {
        1 => place.to_owned(),
        _ => format!("{place} ×{times}"),
    });
    places.collect::<Vec<_>>().join(" ")
}

/// Holders of a program: processes, the first pin, and the count of further pins as `+N`.
pub(super) fn holders(program: &Program) -> String {
    let pin = program.pins.first().cloned();
    let more = program.pins.len().saturating_sub(1);
    let more = (more > 0).then(|| format!("+{more}"));
    program.processes().chain(pin).chain(more).collect::<Vec<_>>().join(" ")
}

/// Time per run by run statistics, ns.
pub(super) fn ns_per_run(runs: &Runs) -> String {
    runs.ns_per_run.map_or_else(|| UNKNOWN.into(), decimal)
}

/// Columns of exact counters: a column per event, instructions per cycle, and percentiles of the time per run.
pub(super) fn exact_columns(counting: &Counting) -> Vec<Column> {
    let events = counting.events.iter().map(|event| Column::number(format!("{}/RUN", event.name)).droppable(4));
    let tail = [("IPC", 4)].into_iter().chain(PERCENTILE_COLUMNS);
    events.chain(tail.map(|(name, order)| Column::number(name).droppable(order))).collect()
}

/// Columns of [`PERCENTILES`]: heading, and order in which columns are dropped.
pub(super) const PERCENTILE_COLUMNS: [(&str, u8); PERCENTILES.len()] = [("P50", 5), ("P99", 4), ("P99.9", 6)];

/// Percentile at this position of [`PERCENTILES`], ns.
pub(super) fn percentile(exact: &Exact, at: usize) -> String {
    number(exact.percentiles.get(at).and_then(Percentile::middle_ns))
}

/// Cell for column `at` of [`exact_columns`]; the first `events` columns are those of events.
pub(super) fn exact(exact: Option<&Exact>, events: usize, at: usize) -> String {
    let Some(exact) = exact else { return UNKNOWN.into() };
    match at.checked_sub(events) {
        None => exact.events.get(at).map_or(UNKNOWN.into(), |it| event(it, exact)),
        Some(0) => exact.ipc.map_or(UNKNOWN.into(), |ipc| format!("{ipc:.2}")),
        Some(place) => percentile(exact, place - 1),
    }
}

/// Cell of a value: `n/a!` if it is impossible, `n/a` if it is unknown.
pub(super) fn known<T>(value: &Known<T>, cell: impl FnOnce(&T) -> String) -> String {
    match value {
        Known::Value(value) => cell(value),
        Known::Impossible(_) => IMPOSSIBLE.into(),
        Known::Unknown(_) => UNKNOWN.into(),
    }
}

/// Events per run.
pub(super) fn event(event: &Event, exact: &Exact) -> String {
    known(&event.counted, |counted| value(&counted.per_run, exact.is_estimate) + &turns(event))
}

/// Share of the time in which a multiplexed event was counted, in brackets. Empty if the event was counted all of the time, or if its count is
/// unknown.
pub(super) fn turns(event: &Event) -> String {
    match event.counted.value() {
        Some(event) if event.running < 1.0 => format!("[{:.0}%]", (event.running * 100.0).clamp(1.0, 99.0)),
        _ => String::new(),
    }
}

/// Time per run, ns.
pub(super) fn time(exact: &Exact) -> String {
    known(&exact.time, |time| value(time, exact.is_estimate))
}

/// Count of runs, marked as an estimate if run statistics were on for only a part of the time.
pub(super) fn runs(source: CounterSource, exact: &Exact) -> String {
    if is_in_parts(source, exact) { estimated(exact.runs, None) } else { grouped(exact.runs) }
}

/// Time per run, ns. If run statistics were on for only a part of the time, it is the mean of the runs in that part, without the mark of an estimate.
pub(super) fn time_per_run(source: CounterSource, exact: &Exact) -> String {
    match exact.time.value().filter(|_| is_in_parts(source, exact)) {
        Some(time) => decimal(time.value),
        None => time(exact),
    }
}

fn is_in_parts(source: CounterSource, exact: &Exact) -> bool {
    source == CounterSource::Stats && exact.is_estimate && exact.time.is_value()
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

/// Part of the runs that was measured, in words: `all`, `none`, `all but 12`, `1 in 100`.
pub(super) fn measured(exact: &Exact) -> String {
    let unmeasured = exact.runs.saturating_sub(exact.measured);
    match exact.measured {
        _ if exact.runs == 0 => UNKNOWN.into(),
        0 => "none".into(),
        _ if !exact.is_estimate || unmeasured == 0 => "all".into(),
        // For nearly all runs, a ratio would read "1 in 1".
        _ if unmeasured < exact.runs / 20 => format!("all but {}", grouped(unmeasured)),
        measured => format!("1 in {}", decimal(exact.runs as f64 / measured as f64).trim_end_matches(".0")),
    }
}

/// CSV value; empty when unknown.
pub(super) fn plain(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Text of a share that rounds to zero.
pub(super) const NOTHING: &str = "0.00";

/// Share with `≈`; without the mark if the share is unknown or rounds to zero.
pub(super) fn estimate(share: Option<f64>) -> String {
    let cell = percent(share);
    if share.is_none() || cell == NOTHING { cell } else { format!("≈{cell}") }
}

/// Share of the machine, marked as an estimate if `is_scaled`.
pub(super) fn of_machine(share: Option<f64>, is_scaled: bool) -> String {
    if is_scaled { estimate(share) } else { percent(share) }
}

/// Texts in one cell, separated by semicolons.
pub(super) fn joined<T: ToString>(said: &[T]) -> String {
    said.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Names of percentiles in CSV.
pub(super) const PERCENTILE_NAMES: [&str; PERCENTILES.len()] = ["p50", "p99", "p999"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Owner;

    #[test]
    fn a_program_of_the_recorder_keeps_its_pin() {
        let owner = Owner { pid: 3, comm: "bprec".to_owned(), uid: 0, cgroup: String::new() };
        let pins = vec!["/sys/fs/bpf/a".to_owned(), "/sys/fs/bpf/b".to_owned()];
        let program = Program { owners: vec![owner], pins: pins.into(), of_recorder: true, ..Program::default() };
        assert_eq!(holders(&program), "(bprec) /sys/fs/bpf/a +1");
        assert_eq!(holders(&Program { of_recorder: false, ..program }), "bprec/3 /sys/fs/bpf/a +1");
    }

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

    #[test]
    fn times_per_run_read_well() {
        assert_eq!(ns_per_run(&Runs::new(3, 100, None, None)), "33.3");
        assert_eq!(ns_per_run(&Runs::new(0, 0, None, None)), "n/a");
        assert_eq!(ns_per_run(&Runs::new(2, 5001, None, None)), "2,501");
        assert_eq!(ns_per_run(&Runs::new(1200, 1_938_943, None, None)), "1,616");
        assert_eq!(ns_per_run(&Runs::new(100, 99_996, None, None)), "1,000");
    }
}
