//! Counters over time as table, JSON and CSV.

use super::exact::{exact_notes, how, measured, time_cell, turns, value_cells};
use super::json::{Json, exact_members};
use super::notes::write_notes;
use super::text::{UNKNOWN, clean, csv_line, fit, grouped, seconds};
use super::{grid, json};
use crate::counters::CounterSource;
use crate::{CounterRow, CounterTotals, CountersReport, Counting, Exact, PERCENTILES, Result};
use std::io::{self, Write};

impl CountersReport {
    /// A table for people, `width` columns wide at most.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, width: usize) -> Result<()> {
        Ok(table(self, out, width)?)
    }

    /// One JSON document; `docs/json.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        Ok(write_json(self, out)?)
    }

    /// One line per interval and target, and one per target for all of the time, after a line of column names.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(csv(self, out)?)
    }

    fn counting(&self, source: CounterSource) -> Option<&Counting> {
        match source {
            CounterSource::Stats => None,
            CounterSource::Exact => self.exact.as_ref(),
            CounterSource::Shared => self.shared.as_ref(),
        }
    }
}

fn table(report: &CountersReport, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let is_program = |row: &&CounterRow| row.source != CounterSource::Shared;
    let is_shared = |row: &&CounterRow| row.source == CounterSource::Shared;
    let mut blocks = Vec::new();
    if report.totals.iter().any(|row| is_program(&row)) {
        blocks.push(programs(report, &is_program));
    }
    if report.totals.iter().any(|row| is_shared(&row)) {
        blocks.push(shared(report, &is_shared));
    }
    if blocks.is_empty() {
        writeln!(out, "# no counters between two snapshots in this recording, or in this part of it")?;
    }
    for (at, (lines, rule)) in blocks.iter().enumerate() {
        if at > 0 {
            writeln!(out, "#")?;
        }
        for (number, line) in lines.iter().enumerate() {
            if number == *rule {
                let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
                writeln!(out, "{}", "-".repeat(longest.min(width)))?;
            }
            writeln!(out, "{}", fit(line, width))?;
        }
    }
    write_notes(&notes(report), out, width)
}

type Chosen<'c> = &'c dyn Fn(&&CounterRow) -> bool;

/// Rows, then totals; the line that the totals start with.
fn block(
    report: &CountersReport,
    chosen: Chosen<'_>,
    names: &[String],
    cells: impl Fn(&CounterRow) -> Vec<String>,
) -> (Vec<String>, usize) {
    let rows: Vec<Vec<String>> = report.rows.iter().filter(chosen).map(&cells).collect();
    let rule = rows.len() + 1;
    let totals = report.totals.iter().filter(chosen).map(&cells);
    (grid::lines(names, &rows.into_iter().chain(totals).collect::<Vec<_>>()), rule)
}

fn programs(report: &CountersReport, chosen: Chosen<'_>) -> (Vec<String>, usize) {
    let mut names: Vec<String> =
        ["<TIME", "ID", "<PROGRAM", "<SOURCE", "RUNS", "NS/RUN", "CPU%", "MISSES"].map(str::to_owned).into();
    let events = report.exact.as_ref().map_or(&[][..], |counting| &counting.events);
    names.extend(events.iter().map(|event| format!("{}/RUN", clean(&event.name))));
    names.extend(["IPC", "P50", "P99", "P99.9", "MEASURED"].map(str::to_owned));
    let values = events.len() + 1 + PERCENTILES.len();
    block(report, chosen, &names, |row| {
        let mut cells = vec![time(row), row.target.id.to_string(), name(row), row.source.name().to_owned()];
        match &row.counts {
            Err(_) => {
                cells.extend(vec!["n/a!".to_owned(); 4]);
                cells.resize(cells.len() + values + 1, UNKNOWN.into());
            }
            Ok(counts) => {
                let exact = &counts.values;
                cells.push(grouped(exact.runs));
                cells.push(time_cell(exact));
                cells.push(counts.cpu_percent.map_or(UNKNOWN.into(), |percent| format!("{percent:.3}")));
                cells.push(exact.misses.map_or(UNKNOWN.into(), grouped));
                let is_exact = row.source == CounterSource::Exact;
                cells.extend(value_cells(exact, events.len()));
                cells.push(if is_exact { measured(exact) } else { UNKNOWN.into() });
            }
        }
        cells
    })
}

fn shared(report: &CountersReport, chosen: Chosen<'_>) -> (Vec<String>, usize) {
    let mut names: Vec<String> = ["<TIME", "<SCOPE", "ID", "<NAME"].map(str::to_owned).into();
    let events = report.shared.as_ref().map_or(&[][..], |counting| &counting.events);
    names.extend(events.iter().map(|event| clean(&event.name)));
    names.push("IPC".into());
    block(report, chosen, &names, |row| {
        let id = if row.target.kind == "machine" { String::new() } else { row.target.id.to_string() };
        let mut cells = vec![time(row), row.target.kind.to_owned(), id, name(row)];
        let first = cells.len();
        if let Ok(counts) = &row.counts {
            let exact = &counts.values;
            cells.extend(exact.events.iter().map(|event| match event {
                Ok(event) => grouped(event.per_run.value.round() as u64) + &turns(event),
                Err(unknown) if exact.flaws.contains(&unknown.0) => "n/a!".into(),
                Err(_) => UNKNOWN.into(),
            }));
            cells.resize(first + events.len(), UNKNOWN.into());
            cells.push(exact.ipc.map_or(UNKNOWN.into(), |ipc| format!("{ipc:.2}")));
        }
        cells.resize(first + events.len() + 1, "n/a!".into());
        cells
    })
}

fn time(row: &CounterRow) -> String {
    format!("{}..{}", seconds(row.from_ns), seconds(row.to_ns))
}

fn name(row: &CounterRow) -> String {
    let name = clean(&row.target.name);
    if name.is_empty() && row.target.kind == "program" { "[no name]".into() } else { name }
}

fn notes(report: &CountersReport) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.totals.is_empty() {
        notes.push(
            "TIME: s since the start, under the line all of it; CPU%: of one CPU; n/a!: cannot be true, see below"
                .into(),
        );
    }
    if let Some(counting) = &report.exact {
        let exact = report.rows.iter().chain(&report.totals).filter(|row| row.source == CounterSource::Exact);
        notes.extend(how(counting, exact.filter_map(|row| Some(&row.counts.as_ref().ok()?.values))));
    }
    if let Some(counting) = &report.shared {
        notes.extend(counting.absent.iter().map(|(name, why)| format!("{}: not counted, {}", clean(name), clean(why))));
        if !counting.note.is_empty() {
            notes.push(format!("shared counters: {}", clean(&counting.note)));
        }
    }
    notes.extend(report.counters_note.iter().map(|note| clean(note)));
    let counted = |row| -> Option<(String, &Exact)> { Some((name(row), &row.counts.as_ref().ok()?.values)) };
    notes.extend(exact_notes(&report.totals.iter().filter_map(counted).collect::<Vec<_>>()));
    for row in &report.rows {
        let at = format!("! {} {} s: ", name(row), time(row));
        match &row.counts {
            Err(unknown) => notes.push(at + &clean(&unknown.0)),
            Ok(counts) => {
                // What is true of the total as well is said above.
                let said = notes.len();
                let flaws = counts.values.flaws.iter().map(|flaw| clean(flaw));
                let new = flaws.filter(|flaw| !notes[..said].contains(&format!("! {}: {flaw}", name(row))));
                let new: Vec<String> = new.map(|flaw| format!("{at}{flaw}")).collect();
                notes.extend(new);
            }
        }
    }
    for (name, id, reason) in &report.refused {
        let name = if name.is_empty() { "[no name]".to_owned() } else { clean(name) };
        notes.push(format!("not counted: {name} (id {id}): {}", clean(reason)));
    }
    notes.extend(report.problems.iter().map(|problem| clean(problem)));
    notes
}

fn write_json(report: &CountersReport, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Json::new(out);
    json.object(|json| {
        json.text("format", "bprec counters")?;
        json.number("version", json::VERSION)?;
        json.number("start_ns", report.start_ns)?;
        json.optional("cpus", report.cpus.map(u64::from))?;
        json.optional_text("counters_note", report.counters_note.as_deref())?;
        json::counting(json, "exact", report.exact.as_ref())?;
        json::counting(json, "shared", report.shared.as_ref())?;
        json.list("intervals", &report.rows, |json, it| row(json, report, it))?;
        json.list("totals", &report.totals, |json, it| row(json, report, it))?;
        json.list("refused", &report.refused, |json, (name, id, reason)| {
            json.object(|json| {
                json.text("name", name)?;
                json.number("id", *id)?;
                json.text("reason", reason)
            })
        })?;
        json.list("problems", &report.problems, |json, problem| json.string(problem))
    })?;
    json.end()
}

fn row(json: &mut Json<'_>, report: &CountersReport, row: &CounterRow) -> io::Result<()> {
    json.object(|json| {
        json.text("source", row.source.name())?;
        json.text("kind", row.target.kind)?;
        json.number("id", row.target.id)?;
        json.optional("load_time_ns", row.target.load_time_ns)?;
        json.number("function", row.target.function.into())?;
        json.text("name", &row.target.name)?;
        json.signed("from_ns", row.from_ns)?;
        json.signed("to_ns", row.to_ns)?;
        match &row.counts {
            Err(unknown) => {
                json.null("counts")?;
                json.text("unknown", &unknown.0)
            }
            Ok(counts) => json.member("counts", |json| {
                json.object(|json| self::counts(json, report.counting(row.source), row.source, counts))
            }),
        }
    })
}

pub(super) fn counts(
    json: &mut Json<'_>,
    counting: Option<&Counting>,
    source: CounterSource,
    counts: &CounterTotals,
) -> io::Result<()> {
    let events = counting.map_or(&[][..], |counting| &counting.events);
    if source != CounterSource::Shared {
        json.number("measured_ns", counts.measured_ns)?;
        json.fraction("cpu_percent", counts.cpu_percent)?;
    }
    json.list("readings", &counts.readings.iter().enumerate().collect::<Vec<_>>(), |json, (at, reading)| {
        json.object(|json| {
            json.optional_text("event", events.get(*at).map(|event| event.name.as_str()))?;
            json.number("value", reading.value)?;
            json.number("enabled_ns", reading.enabled_ns)?;
            json.number("running_ns", reading.running_ns)
        })
    })?;
    match source {
        CounterSource::Shared => json::events(json, "events", "value", &counts.values, events),
        _ => exact_members(json, &counts.values, events),
    }
}

const CSV_COLUMNS: [&str; 27] = [
    "row",
    "source",
    "kind",
    "id",
    "load_time_ns",
    "function",
    "name",
    "from_ns",
    "to_ns",
    "runs",
    "measured_runs",
    "misses",
    "too_deep",
    "discarded",
    "measured_ns",
    "ns_per_run",
    "ns_per_run_error",
    "is_estimate",
    "cpu_percent",
    "p50_from_ns",
    "p50_to_ns",
    "p99_from_ns",
    "p99_to_ns",
    "p999_from_ns",
    "p999_to_ns",
    "ipc",
    "problem",
];

fn csv(report: &CountersReport, out: &mut dyn Write) -> io::Result<()> {
    let mut events: Vec<String> = Vec::new();
    for counting in [&report.exact, &report.shared].into_iter().flatten() {
        for event in &counting.events {
            if !events.contains(&event.name) {
                events.push(event.name.clone());
            }
        }
    }
    let mut names: Vec<String> = CSV_COLUMNS.map(str::to_owned).into();
    for event in &events {
        let event = clean(event);
        names.extend([
            event.clone(),
            format!("{event}_enabled_ns"),
            format!("{event}_running_ns"),
            format!("{event}_per_run"),
            format!("{event}_per_run_error"),
        ]);
    }
    csv_line(names, out)?;
    let rows = report.rows.iter().map(|row| ("interval", row)).chain(report.totals.iter().map(|row| ("total", row)));
    for (kind, row) in rows {
        let mut cells = vec![
            kind.to_owned(),
            row.source.name().to_owned(),
            row.target.kind.to_owned(),
            row.target.id.to_string(),
            optional(row.target.load_time_ns),
            row.target.function.to_string(),
            clean(&row.target.name),
            row.from_ns.to_string(),
            row.to_ns.to_string(),
        ];
        match &row.counts {
            Err(unknown) => {
                cells.resize(CSV_COLUMNS.len() - 1, String::new());
                cells.push(clean(&unknown.0));
            }
            Ok(counts) => {
                cells.extend(csv_counts(row.source, counts));
                let known = report.counting(row.source).map_or(&[][..], |counting| &counting.events);
                for name in &events {
                    let at = known.iter().position(|event| event.name == *name);
                    let reading = at.and_then(|at| counts.readings.get(at));
                    cells.push(optional(reading.map(|reading| reading.value)));
                    cells.push(optional(reading.map(|reading| reading.enabled_ns)));
                    cells.push(optional(reading.map(|reading| reading.running_ns)));
                    let event = at.and_then(|at| counts.values.events.get(at)?.as_ref().ok());
                    let per_run = event.filter(|_| row.source != CounterSource::Shared).map(|event| event.per_run);
                    cells.push(optional(per_run.map(|per_run| per_run.value)));
                    cells.push(optional(per_run.and_then(|per_run| per_run.error)));
                }
            }
        }
        cells.resize(CSV_COLUMNS.len() + events.len() * 5, String::new());
        csv_line(cells, out)?;
    }
    Ok(())
}

/// From `runs` to `unknown`.
fn csv_counts(source: CounterSource, counts: &CounterTotals) -> Vec<String> {
    let exact: &Exact = &counts.values;
    let flaws = clean(&exact.flaws.join("; "));
    let ipc = optional(exact.ipc);
    if source == CounterSource::Shared {
        let mut cells = vec![String::new(); 16];
        cells.extend([ipc, flaws]);
        return cells;
    }
    let mut cells = vec![
        exact.runs.to_string(),
        exact.measured.to_string(),
        optional(exact.misses),
        exact.too_deep.to_string(),
        exact.discarded.to_string(),
        counts.measured_ns.to_string(),
        optional(exact.time.map(|time| time.value)),
        optional(exact.time.and_then(|time| time.error)),
        exact.is_estimate.to_string(),
        optional(counts.cpu_percent),
    ];
    for bounds in exact.percentiles {
        cells.extend([optional(bounds.map(|(first, _)| first)), optional(bounds.map(|(_, last)| last))]);
    }
    cells.extend([ipc, flaws]);
    cells
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
