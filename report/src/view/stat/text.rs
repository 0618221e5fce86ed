//! The table for people.

use super::StatWriter;
use super::lines::{event_total, together};
use crate::view::exact::{IMPOSSIBLE, event_cell, exact_notes, how, listed, measured, tail_cells, time_cell, turns};
use crate::view::grid::Grid;
use crate::view::notes::{grouped_by, write_notes};
use crate::view::text::{UNKNOWN, clean, counted, fit, grouped};
use crate::{CounterRow, Counting, Exact, Metered, MeteredRow};
use bprec_format::state::{CounterEvent, CounterUnit};
use std::io::{self, Write};
use std::time::Duration;

/// Lines after which the names of the columns come again.
const NAMES_EVERY: usize = 40;

impl StatWriter {
    pub(super) fn text(&mut self, metered: &Metered, first: bool, out: &mut dyn Write, width: usize) -> io::Result<()> {
        if first {
            writeln!(out, "# {}", fit(&clean(&metered.target), width.saturating_sub(2)))?;
            if let Some(note) = metered.note.as_ref().filter(|_| self.over_time) {
                writeln!(out, "# {}", fit(&clean(note), width.saturating_sub(2)))?;
            }
        }
        let time = match (self.over_time, metered.is_total) {
            (false, _) => String::new(),
            (true, false) => format!("{:.3}", metered.to_ns as f64 / 1e9),
            (true, true) => "total".to_owned(),
        };
        let (names, rows) = match &metered.shared {
            Some(counting) => targets(metered, counting, &time),
            None => programs(metered, &time, self.per_cpu),
        };
        let grid = self.grid.get_or_insert_with(|| Grid::new(&names));
        let changed = grid.fit(&rows);
        if rows.is_empty() && !self.over_time {
            writeln!(out, "# no program ran")?;
        }
        if metered.is_total && self.over_time && !rows.is_empty() {
            writeln!(out, "{}", "-".repeat(grid.header().chars().count().min(width)))?;
        }
        if !rows.is_empty() && (changed || self.since_names == 0 || self.since_names >= NAMES_EVERY) {
            writeln!(out, "{}", fit(&grid.header(), width))?;
            self.since_names = 0;
        }
        self.since_names += rows.len();
        grid.lines(&rows).try_for_each(|line| writeln!(out, "{}", fit(&line, width)))
    }
}

/// Columns, and a row per program.
fn programs(metered: &Metered, time: &str, per_cpu: bool) -> (Vec<String>, Vec<Vec<String>>) {
    let events = metered.exact.as_ref().map_or(&[][..], |counting| &counting.events);
    let mut names: Vec<String> =
        ["TIME", "ID", "<TYPE", "<PROGRAM", "CPU", "RUNS", "NS/RUN", "CPU%", "MISSES"].map(str::to_owned).into();
    for event in events {
        let name = clean(&event.name);
        names.extend([name.to_uppercase(), format!("{name}/RUN").to_uppercase()]);
    }
    names.extend(["IPC", "P50", "P99", "P99.9", "MEASURED", "<SOURCE"].map(str::to_owned));
    let rows = metered.rows.iter().map(|row| {
        let cpu = match (per_cpu, row.target.cpu) {
            (false, _) => String::new(),
            (true, None) => "all".to_owned(),
            (true, Some(cpu)) => cpu.to_string(),
        };
        let mut cells = vec![time.to_owned(), row.target.id.to_string(), clean(&row.prog_type), program_name(row), cpu];
        let best = row.best();
        let misses = row.misses().map_or(UNKNOWN.into(), grouped);
        match best.map(|row| (&row.counts, row)) {
            Some((Ok(counts), best)) => {
                let exact = &counts.values;
                cells.push(grouped(exact.runs));
                cells.push(time_cell(exact));
                cells.push(counts.cpu_percent.map_or(UNKNOWN.into(), |percent| format!("{percent:.3}")));
                cells.push(misses);
                for event in 0..events.len() {
                    cells.extend(event_cells(exact, event));
                }
                let is_exact = best.source == crate::CounterSource::Exact;
                cells.extend(tail_cells(exact));
                cells.push(if is_exact { measured(exact) } else { UNKNOWN.into() });
                let name = best.source.name();
                cells.push(match &exact.ended {
                    Some(_) if metered.is_total => format!("{name}, until {:.3} s", best.to_ns as f64 / 1e9),
                    _ => name.to_owned(),
                });
            }
            Some((Err(_), best)) => {
                cells.extend([IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE].map(str::to_owned));
                cells.push(misses);
                cells.resize(names.len() - 1, UNKNOWN.into());
                cells.push(best.source.name().to_owned());
            }
            None => {
                cells.resize(names.len(), UNKNOWN.into());
            }
        }
        cells
    });
    let rows = rows.collect();
    (names, rows)
}

/// How many, and how many per run.
fn event_cells(exact: &Exact, at: usize) -> [String; 2] {
    let Some(event) = exact.events.get(at) else { return [UNKNOWN.into(), UNKNOWN.into()] };
    let per_run = event_cell(event, exact);
    let total = match event {
        Ok(event) if event.per_run.is_below_pair() => per_run.clone(),
        Ok(event) => {
            let about = if exact.is_estimate { "≈" } else { "" };
            format!("{about}{}", grouped(event_total(event, exact.runs).round() as u64))
        }
        Err(_) => per_run.clone(),
    };
    [total, per_run]
}

fn program_name(row: &MeteredRow) -> String {
    let name = clean(&row.target.name);
    if name.is_empty() { "[no name]".into() } else { name }
}

/// Columns, and a row per target and event.
fn targets(metered: &Metered, counting: &Counting, time: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let names = ["TIME", "<TARGET", "VALUE", "<UNIT", "<EVENT", "RATE", "<", "COUNTED"].map(str::to_owned).into();
    let elapsed_s = (metered.to_ns - metered.from_ns) as f64 / 1e9;
    let is_alone = metered.rows.len() == 1;
    let mut rows = Vec::new();
    for row in &metered.rows {
        let target = if is_alone { String::new() } else { target_name(row) };
        let shared = row.shared.as_ref().and_then(|shared| shared.as_ref().ok());
        for (at, event) in counting.events.iter().enumerate() {
            let [value, unit, rate, of, running] = value_cells(shared, counting, event, at, elapsed_s);
            rows.push(vec![time.to_owned(), target.clone(), value, unit, clean(&event.name), rate, of, running]);
        }
    }
    (names, rows)
}

/// Value, unit, rate, of what, and how much of the time it was counted.
fn value_cells(
    row: Option<&CounterRow>,
    counting: &Counting,
    event: &CounterEvent,
    at: usize,
    elapsed_s: f64,
) -> [String; 5] {
    let unknown = |cell: &str| [cell.to_owned(), String::new(), String::new(), String::new(), String::new()];
    let exact = match row.map(|row| &row.counts) {
        None => return unknown(UNKNOWN),
        Some(Err(_)) => return unknown(IMPOSSIBLE),
        Some(Ok(counts)) => &counts.values,
    };
    let counted = match exact.events.get(at) {
        Some(Ok(counted)) => counted,
        Some(Err(why)) if exact.flaws.contains(&why.0) => return unknown(IMPOSSIBLE),
        _ => return unknown(UNKNOWN),
    };
    let value = counted.per_run.value;
    let running = turns(counted).trim_matches(['[', ']']).to_owned();
    if event.unit == CounterUnit::NANOSECONDS {
        let cpus = if elapsed_s > 0.0 { value / 1e9 / elapsed_s } else { 0.0 };
        return [ms(value / 1e6), "ms".into(), format!("{cpus:.3}"), "CPUs".into(), running];
    }
    let count = grouped(value.round() as u64);
    let (rate, of) = match exact.ipc.filter(|_| counting.ipc.is_some_and(|(instructions, _)| instructions == at)) {
        Some(ipc) => (format!("{ipc:.2}"), "per cycle"),
        None => match together(exact, counting, at, "branch-misses", "branches") {
            Some(share) => (format!("{:.2}", share * 100.0), "% of branches"),
            None if elapsed_s > 0.0 => (rounded(value / elapsed_s), "/s"),
            None => (String::new(), ""),
        },
    };
    [count, String::new(), rate, of.to_owned(), running]
}

/// Milliseconds with two decimals, thousands apart.
fn ms(value: f64) -> String {
    let hundredths = (value * 100.0).round() as u64;
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

/// A rate: whole when it is large.
fn rounded(value: f64) -> String {
    if value >= 100.0 { grouped(value.round() as u64) } else { format!("{value:.1}") }
}

pub(super) fn target_name(row: &MeteredRow) -> String {
    let name = clean(&row.target.name);
    match row.target.kind {
        "machine" => "all".to_owned(),
        "cpu" => format!("CPU{}", row.target.id),
        "cgroup" => name,
        _ if name.is_empty() => row.target.id.to_string(),
        _ => format!("{name}/{}", row.target.id),
    }
}

/// What there is to say, and how long it took.
pub(super) fn end(
    metered: &Metered,
    per_cpu: bool,
    command_time: Option<(Duration, Duration)>,
    out: &mut dyn Write,
    width: usize,
) -> io::Result<()> {
    let mut notes = notes(metered);
    if per_cpu && metered.shared.is_none() && metered.exact.is_none() {
        notes.push("the kernel's run statistics are of all CPUs together: only exact counters tell them apart".into());
    }
    write_notes(&notes, out, width)?;
    let elapsed_s = (metered.to_ns - metered.from_ns) as f64 / 1e9;
    let programs = metered
        .rows
        .iter()
        .filter(|row| row.target.kind == "program" && row.target.cpu.is_none() && row.target.function == 0);
    let costs: Vec<f64> = programs
        .filter_map(|row| row.best()?.counts.as_ref().ok()?.cpu_percent.map(|percent| (row, percent)))
        .map(|(row, percent)| {
            // Of the time for which it was there.
            let span = row.best().map_or(0.0, |row| (row.to_ns - row.from_ns) as f64 / 1e9);
            percent / 100.0 * span
        })
        .collect();
    writeln!(out)?;
    write!(out, "{elapsed_s:>15.6} s elapsed")?;
    if costs.len() > 1 && elapsed_s > 0.0 {
        let sum_s: f64 = costs.iter().sum();
        write!(
            out,
            ", {:.3} ms of it in these {} programs: {:.3} % of one CPU",
            sum_s * 1e3,
            costs.len(),
            sum_s / elapsed_s * 100.0
        )?;
        if let Some(cpus) = metered.cpus.filter(|cpus| *cpus > 1) {
            write!(out, ", {:.3} % of all {cpus}", sum_s / elapsed_s * 100.0 / f64::from(cpus))?;
        }
    }
    writeln!(out)?;
    if let Some((user, system)) = command_time {
        writeln!(out, "{:>15.6} s user, {:.6} s system of the command", user.as_secs_f64(), system.as_secs_f64())?;
    }
    Ok(())
}

fn notes(metered: &Metered) -> Vec<String> {
    let mut notes: Vec<String> = metered.note.iter().map(|note| clean(note)).collect();
    let exact = metered.rows.iter().filter_map(|row| match &row.exact {
        Some(Ok(exact)) => exact.counts.as_ref().ok().map(|counts| (row, &counts.values)),
        _ => None,
    });
    if let Some(counting) = &metered.exact {
        notes.extend(how(counting, exact.clone().map(|(_, exact)| exact)));
        if exact.clone().next().is_some() {
            notes.push("exact: counted at each run; MISSES, and rows of stats, are the kernel's run statistics".into());
        }
    }
    if let Some(counting) = &metered.shared {
        for (reason, names) in grouped_by(counting.absent.iter().map(|(name, why)| (why.clone(), clean(name)))) {
            notes.push(format!("not counted: {} ({})", listed(&names), clean(&reason)));
        }
        if !counting.note.is_empty() {
            notes.push(clean(&counting.note));
        }
    }
    let refused = metered.rows.iter().filter_map(|row| match &row.exact {
        Some(Err(unknown)) => Some((unknown.0.clone(), format!("{} ({})", program_name(row), row.target.id))),
        _ => None,
    });
    for (reason, names) in grouped_by(refused) {
        notes.push(format!("not counted exactly: {} ({})", listed(&names), clean(&reason)));
    }
    let named = |row: &MeteredRow| format!("{} ({})", program_name(row), row.target.id);
    let exact: Vec<(String, &Exact)> =
        exact.filter(|(row, _)| row.target.cpu.is_none()).map(|(row, exact)| (named(row), exact)).collect();
    notes.extend(exact_notes(&exact));
    for row in &metered.rows {
        let name = if row.target.kind == "program" { program_name(row) } else { target_name(row) };
        let sources = [row.exact.as_ref().and_then(|it| it.as_ref().ok()), row.stats.as_ref()];
        let shared = row.shared.as_ref().and_then(|it| it.as_ref().ok());
        for source in sources.into_iter().chain([shared]).flatten() {
            if let Err(unknown) = &source.counts {
                notes.push(format!("! {name}: {}", clean(&unknown.0)));
            }
        }
        if let Some(Ok(counts)) = shared.map(|shared| &shared.counts) {
            notes.extend(exact_notes(&[(name.clone(), &counts.values)]));
        }
        if let Some(Err(unknown)) = &row.shared {
            notes.push(format!("{name}: not counted, {}", clean(&unknown.0)));
        }
        notes.extend(row.disagreements.iter().map(|said| format!("≠ {name}: {said}")));
        if let Some(unloaded_ns) = row.unloaded_ns.filter(|_| row.target.cpu.is_none() && row.target.function == 0) {
            notes.push(format!("{name} ({}): unloaded after {:.3} s", row.target.id, unloaded_ns as f64 / 1e9));
        }
    }
    if metered.quiet > 0 {
        notes.push(format!("{} did not run; -b all shows them", counted(metered.quiet as u64, "more program")));
    }
    if !metered.missed.is_empty() {
        let ids: Vec<String> = metered.missed.iter().map(|(id, _)| id.to_string()).collect();
        let missed = counted(ids.len() as u64, "program");
        notes.push(format!("not counted: {missed} that came and went, or could not be taken: {}", listed(&ids)));
    }
    notes
}
