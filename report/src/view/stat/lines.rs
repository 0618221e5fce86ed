//! Live counters as CSV lines and JSON lines.

use crate::model::{
    CounterRow, CounterSource, CounterTarget, CounterTotals, Counting, Exact, JSON_VERSION, Known, StatRow,
    StatSnapshot, Unit,
};
use crate::view::json;
use crate::view::screen::Screen;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Ratio of event `at` to the event `whole` in its group, if event `at` is the event `part`. `None` for another event, if the group lacks `whole`, if
/// a count is unknown, or if `whole` is 0.
pub(super) fn together(exact: &Exact, counting: &Counting, at: usize, part: &str, whole: &str) -> Option<f64> {
    let events = &counting.events;
    if events[at].name != part {
        return None;
    }
    let whole = events.iter().position(|event| event.name == whole && event.group == events[at].group)?;
    let value = |at: usize| exact.events.get(at)?.counted.value().map(|event| event.per_run.value);
    let (part, whole) = (value(at)?, value(whole)?);
    (whole > 0.0).then(|| part / whole)
}

/// A value of a CSV line.
#[derive(Default)]
struct StatValue {
    value: Option<String>,
    unit: &'static str,
    event: String,
    /// Time in which the event was counted, ns, and the share of the enabled time, %.
    running: Option<(u64, f64)>,
    metric: Option<String>,
    metric_unit: &'static str,
    source: &'static str,
}

/// Writes the line of field names for [`csv`], separated by commas.
pub(super) fn names(over_time: bool, per_cpu: bool, out: &mut Screen<'_>) -> io::Result<()> {
    let before = [("time", over_time), ("cpu", per_cpu)].into_iter().filter(|(_, is_there)| *is_there);
    let names = ["value", "unit", "event", "running_ns", "running_percent", "metric", "metric_unit", "source"];
    let names = before.map(|(name, _)| name).chain(names).chain(["kind", "id", "function", "name"]);
    out.values(names.map(str::to_owned), ",")
}

/// Writes a CSV line per value. The first fields have the order of `perf stat -x`.
pub(super) fn csv(
    snapshot: &StatSnapshot,
    separator: &str,
    over_time: bool,
    per_cpu: bool,
    out: &mut Screen<'_>,
) -> io::Result<()> {
    for row in &snapshot.rows {
        for value in values(snapshot, row) {
            let mut fields = Vec::new();
            if over_time {
                let time = format!("{:.9}", snapshot.to_ns as f64 / 1e9);
                fields.push(if snapshot.is_total { "total".to_owned() } else { time });
            }
            if per_cpu {
                fields.push(match (row.target.kind, row.target.cpu) {
                    ("cpu", _) => format!("CPU{}", row.target.id),
                    (_, Some(cpu)) => format!("CPU{cpu}"),
                    (_, None) => "all".to_owned(),
                });
            }
            let (running_ns, percent) = value.running.unzip();
            fields.extend([
                value.value.unwrap_or_default(),
                value.unit.to_owned(),
                value.event,
                running_ns.map(|ns| ns.to_string()).unwrap_or_default(),
                percent.map(|percent| format!("{percent:.2}")).unwrap_or_default(),
                value.metric.unwrap_or_default(),
                value.metric_unit.to_owned(),
                value.source.to_owned(),
                row.target.kind.to_owned(),
                row.target.id.to_string(),
                row.target.function.to_string(),
                row.target.name.clone(),
            ]);
            out.values(fields, separator)?;
        }
    }
    Ok(())
}

fn values(snapshot: &StatSnapshot, row: &StatRow) -> Vec<StatValue> {
    let Some(best) = row.best() else {
        // No source counted this target.
        return vec![StatValue { event: "runs".to_owned(), ..StatValue::default() }];
    };
    match row.target.kind {
        "program" => of_program(snapshot, row, best),
        _ => of_target(snapshot, best),
    }
}

fn of_program(snapshot: &StatSnapshot, row: &StatRow, best: &CounterRow) -> Vec<StatValue> {
    let source = best.source.name();
    // Share of the time in which runs were counted: below 100 % if counting ended early, because the whole time then includes the time from that end
    // until now.
    let given_up = best.counts.value().is_some_and(|counts| counts.values.ended.is_some());
    let until_ns = if given_up { snapshot.to_ns.max(best.to_ns) } else { best.to_ns };
    let (counted_ns, all_ns) = (best.to_ns.saturating_sub(best.from_ns), until_ns.saturating_sub(best.from_ns));
    let percent = if all_ns > 0 { counted_ns as f64 * 100.0 / all_ns as f64 } else { 100.0 };
    let elapsed = Some((u64::try_from(counted_ns).unwrap_or(0), percent));
    let named = |event: &str, unit| StatValue { event: event.to_owned(), unit, source, ..StatValue::default() };
    let exact = best.counts.value().map(|counts| &counts.values);
    let per_run = exact.and_then(|exact| exact.time.value()).map(|time| time.value);
    let runs = exact.map_or(0, |exact| exact.runs);
    let mut values = vec![
        StatValue { value: exact.map(|exact| exact.runs.to_string()), running: elapsed, ..named("runs", "") },
        StatValue {
            value: per_run.map(|ns| (ns * runs as f64).round().to_string()),
            running: elapsed,
            metric: per_run.map(|ns| ns.to_string()),
            metric_unit: "ns/run",
            ..named("time", "ns")
        },
    ];
    if let Some(misses) = row.misses() {
        let stats = CounterSource::Stats.name();
        values.push(StatValue {
            value: Some(misses.to_string()),
            running: elapsed,
            source: stats,
            ..named("recursion-misses", "")
        });
    }
    let counted = exact.filter(|_| best.source == CounterSource::Exact);
    let (Some(exact), Some(counting)) = (counted, &snapshot.exact) else { return values };
    let readings = best.counts.value().map_or(&[][..], |counts| &counts.readings);
    for (at, event) in counting.events.iter().enumerate() {
        let known = exact.events.get(at).and_then(|event| event.counted.value());
        let unit = if event.unit == Unit::Nanoseconds { "ns" } else { "" };
        values.push(StatValue {
            value: known.map(|known| known.total.round().to_string()),
            running: known.zip(readings.get(at)).map(|(known, it)| (it.running_ns, known.running * 100.0)),
            metric: known.map(|known| known.per_run.value.to_string()),
            metric_unit: "per run",
            ..named(&event.name, unit)
        });
    }
    if let Some(ipc) = exact.ipc {
        values.push(StatValue { value: Some(ipc.to_string()), ..named("ipc", "per cycle") });
    }
    for percentile in &exact.percentiles {
        let name = format!("p{}", percentile.percent);
        values.push(StatValue { value: percentile.middle_ns().map(|ns| ns.to_string()), ..named(&name, "ns") });
    }
    values
}

fn of_target(snapshot: &StatSnapshot, row: &CounterRow) -> Vec<StatValue> {
    let Some(counting) = &snapshot.shared else { return Vec::new() };
    let elapsed_s = snapshot.to_ns.saturating_sub(snapshot.from_ns) as f64 / 1e9;
    let mut values = Vec::new();
    for (at, event) in counting.events.iter().enumerate() {
        let counts = row.counts.value();
        let known = counts.and_then(|counts| counts.values.events.get(at)?.counted.value());
        let reading = counts.and_then(|counts| counts.readings.get(at));
        let is_time = event.unit == Unit::Nanoseconds;
        let value = known.map(|known| known.per_run.value);
        let per_second = value.filter(|_| elapsed_s > 0.0).map(|value| value / elapsed_s);
        values.push(StatValue {
            value: value.map(|value| value.round().to_string()),
            unit: if is_time { "ns" } else { "" },
            event: event.name.clone(),
            running: known.zip(reading).map(|(known, it)| (it.running_ns, known.running * 100.0)),
            metric: per_second.map(|rate| if is_time { rate / 1e9 } else { rate }.to_string()),
            metric_unit: if is_time { "CPUs" } else { "/s" },
            source: row.source.name(),
        });
    }
    if let Some(ipc) = row.counts.value().and_then(|counts| counts.values.ipc) {
        values.push(StatValue {
            value: Some(ipc.to_string()),
            unit: "per cycle",
            event: "ipc".to_owned(),
            source: row.source.name(),
            ..StatValue::default()
        });
    }
    values
}

/// First line: counted targets, and configuration of the counters.
#[derive(Serialize)]
struct Begin<'s> {
    row: &'static str,
    format: &'static str,
    version: u32,
    target: &'s str,
    cpus: Option<u32>,
    counters_note: Option<&'s str>,
    exact: Option<&'s Counting>,
    shared: Option<&'s Counting>,
}

/// Line of a target, for an interval or for the total.
#[derive(Serialize)]
struct TargetLine<'s> {
    row: &'static str,
    #[serde(flatten)]
    target: &'s CounterTarget,
    #[serde(rename = "type")]
    prog_type: Option<&'s str>,
    from_ns: i64,
    to_ns: i64,
    source: Option<CounterSource>,
    #[serde(flatten)]
    sources: Sources<'s>,
    unloaded_ns: Option<i64>,
}

/// Counts by source: members `exact` and `stats` of programs, member `shared` of other targets. `NAME_unknown` is the reason if counts are missing.
struct Sources<'s>(&'s StatRow);

impl Serialize for Sources<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.0;
        let mut map = serializer.serialize_map(None)?;
        let mut source = |name: &str, counts: Option<&Known<CounterTotals>>, why: Option<String>| {
            map.serialize_entry(name, &counts.and_then(Known::value))?;
            match counts.and_then(Known::why).or(why) {
                Some(why) => map.serialize_entry(&format!("{name}_unknown"), &why),
                None => Ok(()),
            }
        };
        let counts = |row: &Option<Known<CounterRow>>| {
            let row = row.as_ref();
            (row.and_then(Known::value).map(|row| row.counts.clone()), row.and_then(Known::why))
        };
        if row.target.kind == "program" {
            let (exact, why) = counts(&row.exact);
            source("exact", exact.as_ref(), why)?;
            source("stats", row.stats.as_ref().map(|stats| &stats.counts), None)?;
        } else {
            let (shared, why) = counts(&row.shared);
            source("shared", shared.as_ref(), why)?;
        }
        map.end()
    }
}

/// Last line: elapsed time, times of the command, and programs without a line.
#[derive(Serialize)]
struct End {
    row: &'static str,
    elapsed_ns: i64,
    command_user_ns: Option<u64>,
    command_system_ns: Option<u64>,
    quiet_programs: usize,
    missed: Vec<MissedLine>,
}

#[derive(Serialize)]
struct MissedLine {
    id: u32,
    reason: String,
}

/// Writes a line per target. If `first`, a line about the counted events comes before them.
pub(super) fn json(snapshot: &StatSnapshot, first: bool, out: &mut dyn Write) -> io::Result<()> {
    if first {
        let begin = Begin {
            row: "begin",
            format: "bprec stat",
            version: JSON_VERSION,
            target: &snapshot.target,
            cpus: snapshot.cpus,
            counters_note: snapshot.note.as_deref(),
            exact: snapshot.exact.as_ref(),
            shared: snapshot.shared.as_ref(),
        };
        json::line(&begin, out)?;
    }
    snapshot.rows.iter().try_for_each(|row| {
        let line = TargetLine {
            row: if snapshot.is_total { "total" } else { "interval" },
            target: &row.target,
            prog_type: Some(row.prog_type.as_str()).filter(|it| !it.is_empty()),
            from_ns: snapshot.from_ns,
            to_ns: snapshot.to_ns,
            source: row.best().map(|best| best.source),
            sources: Sources(row),
            unloaded_ns: row.unloaded_ns,
        };
        json::line(&line, out)
    })
}

/// Writes the last line, after the total.
pub(super) fn json_end(
    snapshot: &StatSnapshot,
    command_time: Option<(Duration, Duration)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let missed = snapshot.missed.iter().map(|(id, reason)| MissedLine { id: *id, reason: reason.clone() });
    let end = End {
        row: "end",
        elapsed_ns: snapshot.to_ns.saturating_sub(snapshot.from_ns),
        command_user_ns: command_time.map(|(user, _)| ns(user)),
        command_system_ns: command_time.map(|(_, system)| ns(system)),
        quiet_programs: snapshot.quiet,
        missed: missed.collect(),
    };
    json::line(&end, out)
}
