//! Exact counters as JSON.

use super::Json;
use crate::{Counting, Exact, PERCENTILES, PerRun, Program};
use bprec_format::state::{CounterEvent, CounterUnit};
use std::io;

/// What is counted, and how; `null` when nothing is.
pub(in crate::view) fn counting(json: &mut Json<'_>, name: &str, counting: Option<&Counting>) -> io::Result<()> {
    let Some(counting) = counting else { return json.null(name) };
    json.member(name, |json| {
        json.object(|json| {
            let events: Vec<(&CounterEvent, Option<f64>)> =
                counting.events.iter().zip(counting.pair.iter().copied()).collect();
            json.list("events", &events, |json, (event, pair)| {
                json.object(|json| {
                    json.text("name", &event.name)?;
                    json.text("unit", if event.unit == CounterUnit::NANOSECONDS { "ns" } else { "events" })?;
                    json.number("group", event.group.into())?;
                    json.boolean("software", event.software)?;
                    json.fraction("pair", *pair)
                })
            })?;
            json.list("absent", &counting.absent, |json, (name, reason)| {
                json.object(|json| {
                    json.text("name", name)?;
                    json.text("reason", reason)
                })
            })?;
            json.fraction("pair_ns", counting.pair_ns)?;
            json.number("pair_runs", counting.pair_runs)?;
            json.fraction("added_to_measured_ns", counting.added_ns[0])?;
            json.fraction("added_to_skipped_ns", counting.added_ns[1])?;
            json.fraction("budget_percent", counting.budget_ppm.map(|ppm| f64::from(ppm) / 1e4))?;
            json.text("note", &counting.note)
        })
    })
}

/// What a program's exact counters say.
pub(super) fn program(json: &mut Json<'_>, program: &Program, events: &[CounterEvent]) -> io::Result<()> {
    match &program.exact {
        Err(unknown) => {
            json.null("exact")?;
            json.text("exact_unknown", &unknown.0)?;
        }
        Ok(exact) => json.member("exact", |json| json.object(|json| exact_members(json, exact, events)))?,
    }
    json.list("exact_functions", &program.exact_functions, |json, exact| {
        json.object(|json| {
            json.number("function", exact.function.into())?;
            json.text("name", &exact.name)?;
            exact_members(json, exact, events)
        })
    })?;
    json.list("disagreements", &program.disagreements, |json, text| json.string(text))
}

/// The members of a target's counts.
pub(in crate::view) fn exact_members(json: &mut Json<'_>, exact: &Exact, counted: &[CounterEvent]) -> io::Result<()> {
    json.number("runs", exact.runs)?;
    json.number("measured", exact.measured)?;
    json.number("too_deep", exact.too_deep)?;
    json.number("discarded", exact.discarded)?;
    json.optional("misses", exact.misses)?;
    json.number("every", exact.every)?;
    json.boolean("is_estimate", exact.is_estimate)?;
    match &exact.time {
        None => json.null("ns_per_run")?,
        Some(time) => json.member("ns_per_run", |json| json.object(|json| per_run(json, time)))?,
    }
    events(json, "events", "per_run", exact, counted)?;
    json.fraction("ipc", exact.ipc)?;
    let percentiles: Vec<(u32, Option<(u64, u64)>)> = PERCENTILES.into_iter().zip(exact.percentiles).collect();
    json.list("percentiles", &percentiles, |json, (per_mille, bounds)| {
        json.object(|json| {
            json.fraction("percent", Some(f64::from(*per_mille) / 10.0))?;
            json.optional("from_ns", bounds.map(|(first, _)| first))?;
            json.optional("to_ns", bounds.map(|(_, last)| last))
        })
    })?;
    json.list("flaws", &exact.flaws, |json, flaw| json.string(flaw))?;
    json.optional_text("ended", exact.ended.as_deref())
}

/// A list of events: their values as `value`, or why there is none.
pub(in crate::view) fn events(
    json: &mut Json<'_>,
    list: &str,
    value: &str,
    exact: &Exact,
    events: &[CounterEvent],
) -> io::Result<()> {
    let events: Vec<_> = events.iter().zip(&exact.events).collect();
    json.list(list, &events, |json, (event, counted)| {
        json.object(|json| {
            json.text("name", &event.name)?;
            match counted {
                Err(unknown) => {
                    json.null(value)?;
                    json.text("unknown", &unknown.0)
                }
                Ok(counted) => {
                    json.member(value, |json| json.object(|json| per_run(json, &counted.per_run)))?;
                    json.fraction("running", Some(counted.running))
                }
            }
        })
    })
}

fn per_run(json: &mut Json<'_>, per_run: &PerRun) -> io::Result<()> {
    json.fraction("value", Some(per_run.value))?;
    json.fraction("with_pair", Some(per_run.with_pair))?;
    json.fraction("error", per_run.error)
}
