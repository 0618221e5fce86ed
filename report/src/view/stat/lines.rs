//! One line per value, and one JSON object per line.

use crate::counters::CounterSource;
use crate::view::counters::counts;
use crate::view::exact::middle;
use crate::view::json::{self, Json};
use crate::view::text::clean;
use crate::{CounterRow, Counting, EventPerRun, Exact, Metered, MeteredRow, PERCENTILES};
use bprec_format::state::CounterUnit;
use std::io::{self, Write};
use std::time::Duration;

/// How many there were in all runs.
pub(super) fn event_total(event: &EventPerRun, runs: u64) -> f64 {
    event.per_run.value * runs as f64
}

/// The event `at` as a part of another of its group, if these are their names.
pub(super) fn together(exact: &Exact, counting: &Counting, at: usize, part: &str, whole: &str) -> Option<f64> {
    let events = &counting.events;
    if events[at].name != part {
        return None;
    }
    let whole = events.iter().position(|event| event.name == whole && event.group == events[at].group)?;
    let value = |at: usize| exact.events.get(at)?.as_ref().ok().map(|event| event.per_run.value);
    let (part, whole) = (value(at)?, value(whole)?);
    (whole > 0.0).then(|| part / whole)
}

/// One value.
#[derive(Default)]
struct Value {
    value: Option<String>,
    unit: &'static str,
    event: String,
    /// Time for which it was counted, ns, and the share of the time for which it was to be.
    running: Option<(u64, f64)>,
    metric: Option<String>,
    metric_unit: &'static str,
    source: &'static str,
}

/// Values, a line each. The fields of a value come first and are where `perf stat -x` has them.
pub(super) fn csv(
    metered: &Metered,
    separator: &str,
    over_time: bool,
    per_cpu: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    for row in &metered.rows {
        for value in values(metered, row) {
            let mut fields = Vec::new();
            if over_time {
                let time = format!("{:.9}", metered.to_ns as f64 / 1e9);
                fields.push(if metered.is_total { "total".to_owned() } else { time });
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
                clean(&value.event),
                running_ns.map(|ns| ns.to_string()).unwrap_or_default(),
                percent.map(|percent| format!("{percent:.2}")).unwrap_or_default(),
                value.metric.unwrap_or_default(),
                value.metric_unit.to_owned(),
                value.source.to_owned(),
                row.target.kind.to_owned(),
                row.target.id.to_string(),
                row.target.function.to_string(),
                clean(&row.target.name),
            ]);
            let quoted = fields.into_iter().map(|field| match field.contains(separator) || field.contains('"') {
                true => format!("\"{}\"", field.replace('"', "\"\"")),
                false => field,
            });
            writeln!(out, "{}", quoted.collect::<Vec<_>>().join(separator))?;
        }
    }
    Ok(())
}

fn values(metered: &Metered, row: &MeteredRow) -> Vec<Value> {
    let Some(best) = row.best() else {
        // Nothing counted it.
        return vec![Value { event: "runs".to_owned(), ..Value::default() }];
    };
    match row.target.kind {
        "program" => of_program(metered, row, best),
        _ => of_target(metered, best),
    }
}

fn of_program(metered: &Metered, row: &MeteredRow, best: &CounterRow) -> Vec<Value> {
    let source = best.source.name();
    // What was given up on the way was to be counted until now.
    let given_up = best.counts.as_ref().is_ok_and(|counts| counts.values.ended.is_some());
    let until_ns = if given_up { metered.to_ns.max(best.to_ns) } else { best.to_ns };
    let (counted_ns, all_ns) = (best.to_ns - best.from_ns, until_ns - best.from_ns);
    let percent = if all_ns > 0 { counted_ns as f64 * 100.0 / all_ns as f64 } else { 100.0 };
    let elapsed = Some((u64::try_from(counted_ns).unwrap_or(0), percent));
    let named = |event: &str, unit| Value { event: event.to_owned(), unit, source, ..Value::default() };
    let exact = best.counts.as_ref().ok().map(|counts| &counts.values);
    let per_run = exact.and_then(|exact| exact.time).map(|time| time.value);
    let runs = exact.map_or(0, |exact| exact.runs);
    let mut values = vec![
        Value { value: exact.map(|exact| exact.runs.to_string()), running: elapsed, ..named("runs", "") },
        Value {
            value: per_run.map(|ns| (ns * runs as f64).round().to_string()),
            running: elapsed,
            metric: per_run.map(|ns| ns.to_string()),
            metric_unit: "ns/run",
            ..named("time", "ns")
        },
    ];
    if let Some(misses) = row.misses() {
        let stats = CounterSource::Stats.name();
        values.push(Value {
            value: Some(misses.to_string()),
            running: elapsed,
            source: stats,
            ..named("recursion-misses", "")
        });
    }
    let counted = exact.filter(|_| best.source == CounterSource::Exact);
    let (Some(exact), Some(counting)) = (counted, &metered.exact) else { return values };
    let readings = best.counts.as_ref().map_or(&[][..], |counts| &counts.readings);
    for (at, event) in counting.events.iter().enumerate() {
        let known = exact.events.get(at).and_then(|event| event.as_ref().ok());
        let unit = if event.unit == CounterUnit::NANOSECONDS { "ns" } else { "" };
        values.push(Value {
            value: known.map(|known| event_total(known, exact.runs).round().to_string()),
            running: known.zip(readings.get(at)).map(|(known, it)| (it.running_ns, known.running * 100.0)),
            metric: known.map(|known| known.per_run.value.to_string()),
            metric_unit: "per run",
            ..named(&event.name, unit)
        });
    }
    if let Some(ipc) = exact.ipc {
        values.push(Value { value: Some(ipc.to_string()), ..named("ipc", "per cycle") });
    }
    for (per_mille, bounds) in PERCENTILES.iter().zip(exact.percentiles) {
        let name = format!("p{}", f64::from(*per_mille) / 10.0);
        values.push(Value { value: bounds.map(|bounds| middle(bounds).to_string()), ..named(&name, "ns") });
    }
    values
}

fn of_target(metered: &Metered, row: &CounterRow) -> Vec<Value> {
    let Some(counting) = &metered.shared else { return Vec::new() };
    let elapsed_s = (metered.to_ns - metered.from_ns) as f64 / 1e9;
    let mut values = Vec::new();
    for (at, event) in counting.events.iter().enumerate() {
        let counts = row.counts.as_ref().ok();
        let known = counts.and_then(|counts| counts.values.events.get(at)?.as_ref().ok());
        let reading = counts.and_then(|counts| counts.readings.get(at));
        let is_time = event.unit == CounterUnit::NANOSECONDS;
        let value = known.map(|known| known.per_run.value);
        let per_second = value.filter(|_| elapsed_s > 0.0).map(|value| value / elapsed_s);
        values.push(Value {
            value: value.map(|value| value.round().to_string()),
            unit: if is_time { "ns" } else { "" },
            event: event.name.clone(),
            running: known.zip(reading).map(|(known, it)| (it.running_ns, known.running * 100.0)),
            metric: per_second.map(|rate| if is_time { rate / 1e9 } else { rate }.to_string()),
            metric_unit: if is_time { "CPUs" } else { "/s" },
            source: row.source.name(),
        });
    }
    if let Some(ipc) = row.counts.as_ref().ok().and_then(|counts| counts.values.ipc) {
        values.push(Value {
            value: Some(ipc.to_string()),
            unit: "per cycle",
            event: "ipc".to_owned(),
            source: row.source.name(),
            ..Value::default()
        });
    }
    values
}

/// A line that says what is counted before the first, then one per target.
pub(super) fn json(metered: &Metered, first: bool, out: &mut dyn Write) -> io::Result<()> {
    if first {
        let mut json = Json::on_one_line(out);
        json.object(|json| {
            json.text("row", "begin")?;
            json.text("format", "bprec stat")?;
            json.number("version", json::VERSION)?;
            json.text("target", &metered.target)?;
            json.optional("cpus", metered.cpus.map(u64::from))?;
            json.optional_text("counters_note", metered.note.as_deref())?;
            json::counting(json, "exact", metered.exact.as_ref())?;
            json::counting(json, "shared", metered.shared.as_ref())
        })?;
        json.end()?;
    }
    metered.rows.iter().try_for_each(|row| {
        let mut json = Json::on_one_line(out);
        json.object(|json| json_row(json, metered, row))?;
        json.end()
    })
}

fn json_row(json: &mut Json<'_>, metered: &Metered, row: &MeteredRow) -> io::Result<()> {
    json.text("row", if metered.is_total { "total" } else { "interval" })?;
    json.text("kind", row.target.kind)?;
    json.number("id", row.target.id)?;
    json.optional("load_time_ns", row.target.load_time_ns)?;
    json.number("function", row.target.function.into())?;
    json.optional("cpu", row.target.cpu.map(u64::from))?;
    json.text("name", &row.target.name)?;
    json.optional_text("type", Some(row.prog_type.as_str()).filter(|it| !it.is_empty()))?;
    json.signed("from_ns", metered.from_ns)?;
    json.signed("to_ns", metered.to_ns)?;
    json.optional_text("source", row.best().map(|best| best.source.name()))?;
    let of = |source: &Option<Result<CounterRow, crate::Unknown>>| match source {
        None => None,
        Some(Err(unknown)) => Some(Err(unknown.0.clone())),
        Some(Ok(row)) => Some(Ok(row.clone())),
    };
    if row.target.kind == "program" {
        source(json, "exact", metered.exact.as_ref(), of(&row.exact))?;
        source(json, "stats", None, row.stats.clone().map(Ok))?;
    } else {
        source(json, "shared", metered.shared.as_ref(), of(&row.shared))?;
    }
    match row.unloaded_ns {
        Some(unloaded_ns) => json.signed("unloaded_ns", unloaded_ns)?,
        None => json.null("unloaded_ns")?,
    }
    json.list("disagreements", &row.disagreements, |json, text| json.string(text))
}

/// What one source counted, or why it did not.
fn source(
    json: &mut Json<'_>,
    name: &str,
    counting: Option<&Counting>,
    row: Option<Result<CounterRow, String>>,
) -> io::Result<()> {
    let unknown = match row {
        None => return json.null(name),
        Some(Err(reason)) => reason,
        Some(Ok(row)) => match &row.counts {
            Ok(counted) => {
                return json.member(name, |json| json.object(|json| counts(json, counting, row.source, counted)));
            }
            Err(unknown) => unknown.0.clone(),
        },
    };
    json.null(name)?;
    json.text(&format!("{name}_unknown"), &unknown)
}

/// The last line.
pub(super) fn json_end(
    metered: &Metered,
    command_time: Option<(Duration, Duration)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut json = Json::on_one_line(out);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    json.object(|json| {
        json.text("row", "end")?;
        json.signed("elapsed_ns", metered.to_ns - metered.from_ns)?;
        json.optional("command_user_ns", command_time.map(|(user, _)| ns(user)))?;
        json.optional("command_system_ns", command_time.map(|(_, system)| ns(system)))?;
        json.number("quiet_programs", metered.quiet as u64)?;
        json.list("missed", &metered.missed, |json, (id, reason)| {
            json.object(|json| {
                json.number("id", (*id).into())?;
                json.text("reason", reason)
            })
        })
    })?;
    json.end()
}
