//! What exact counters add to the table by program: columns, the comparison of the sources, and notes.

use super::grid;
use super::notes::grouped_by;
use super::table::{Column, number};
use super::text::{UNKNOWN, clean, counted, grouped, per_run, program_name};
use crate::{Counting, EventPerRun, EventReport, Exact, PerRun, Program, Report, Row, Unit, Unknown};

/// Above the comparison.
pub(super) const SOURCES: &str = "the same by its sources: exact (e), the kernel's statistics (s), samples";

/// A value that cannot be true.
pub(super) const IMPOSSIBLE: &str = "n/a!";

/// Columns that a recording with exact counters has.
pub(super) fn columns(counting: &Counting) -> Vec<Column> {
    let events = counting.events.iter().map(|event| number(&format!("{}/RUN", clean(&event.name)), 4));
    let mut columns: Vec<Column> = events.collect();
    columns.extend([number("IPC", 4), number("P50", 5), number("P99", 4), number("P99.9", 6)]);
    columns
}

/// Runs, time per run and misses from the best source, with a letter that names it.
pub(super) fn run_cells(program: &Program, stats: [String; 3]) -> [String; 3] {
    let [runs, time, misses] = stats.map(|cell| if cell == UNKNOWN { cell } else { format!("{cell}s") });
    match program.exact_throughout() {
        None => [runs, time, misses],
        Some(exact) => {
            let exact_time = time_cell(exact);
            let time = if exact_time == UNKNOWN { time } else { format!("{exact_time}e") };
            [format!("{}e", grouped(exact.runs)), time, misses]
        }
    }
}

/// The cells of [`columns`].
pub(super) fn cells(program: &Program, counting: &Counting) -> Vec<String> {
    match &program.exact {
        Ok(exact) => value_cells(exact, counting.events.len()),
        Err(_) => vec![UNKNOWN.into(); counting.events.len() + 4],
    }
}

/// Events per run, instructions per cycle and percentiles.
pub(super) fn value_cells(exact: &Exact, events: usize) -> Vec<String> {
    let mut cells: Vec<String> = exact.events.iter().map(|event| event_cell(event, exact)).collect();
    cells.resize(events, UNKNOWN.into());
    cells.extend(tail_cells(exact));
    cells
}

/// Instructions per cycle and percentiles.
pub(super) fn tail_cells(exact: &Exact) -> Vec<String> {
    let mut cells = vec![exact.ipc.map_or(UNKNOWN.into(), |ipc| format!("{ipc:.2}"))];
    cells.extend(exact.percentiles.map(|bounds| bounds.map_or(UNKNOWN.into(), |bounds| grouped(middle(bounds)))));
    cells
}

/// The middle of a bucket.
pub(super) fn middle((first, last): (u64, u64)) -> u64 {
    first + (last - first) / 2
}

/// An event per run.
pub(super) fn event_cell(event: &Result<EventPerRun, Unknown>, exact: &Exact) -> String {
    match event {
        Ok(event) => value(&event.per_run, exact.is_estimate) + &turns(event),
        Err(unknown) if exact.flaws.contains(&unknown.0) => IMPOSSIBLE.into(),
        Err(_) => UNKNOWN.into(),
    }
}

/// Share of the time for which an event was counted, when it took turns with others.
pub(super) fn turns(event: &EventPerRun) -> String {
    if event.running < 1.0 { format!("[{:.0}%]", (event.running * 100.0).clamp(1.0, 99.0)) } else { String::new() }
}

/// Time per run.
pub(super) fn time_cell(exact: &Exact) -> String {
    match &exact.time {
        Some(time) => value(time, exact.is_estimate),
        None if exact.measured > 0 => IMPOSSIBLE.into(),
        None => UNKNOWN.into(),
    }
}

fn value(per_run: &PerRun, is_estimate: bool) -> String {
    if per_run.is_below_pair() {
        return "≈0".into();
    }
    match per_run.error.filter(|_| per_run.value > 0.0).map(|error| error * 100.0 / per_run.value) {
        Some(percent) if percent < 10.0 => format!("{}±{percent:.1}%", decimal(per_run.value)),
        Some(percent) => format!("{}±{percent:.0}%", decimal(per_run.value)),
        None if is_estimate => format!("≈{}", decimal(per_run.value)),
        None => decimal(per_run.value),
    }
}

/// One decimal below 1000, whole thousands apart above; what is whole but for the rounding of a float stays whole.
pub(super) fn decimal(value: f64) -> String {
    let whole = (value + 1e-6) as u64;
    if whole >= 1000 { grouped(whole) } else { format!("{value:.1}") }
}

/// Lines of the comparison of the sources; the first are the names of the columns.
pub(super) fn by_source(report: &Report, event: &EventReport, rows: &[&Row]) -> Vec<String> {
    let names = ["ID", "<PROGRAM", "RUNS e", "RUNS s", "NS/RUN e", "NS/RUN s", "NS/RUN sampled", "MEASURED"];
    let mut lines = Vec::new();
    for row in rows {
        let program = &report.programs[row.program];
        let Ok(exact) = &program.exact else { continue };
        let (runs, time) = match &program.runs {
            Ok(runs) => (grouped(runs.count), per_run(runs)),
            Err(_) => (UNKNOWN.into(), UNKNOWN.into()),
        };
        let total = row.charges.total;
        // Of the runs of all of the time, where samples are of all of them.
        let all_runs = program.exact_throughout().map(|exact| exact.runs);
        let all_runs = all_runs.or(program.runs.as_ref().ok().map(|runs| runs.count)).filter(|runs| *runs > 0);
        let is_time =
            event.samples_are_whole && event.unit == Unit::Nanoseconds && row.blind.is_none() && total.samples > 0;
        let sampled = all_runs.filter(|_| is_time).map(|runs| decimal(total.weight as f64 / runs as f64));
        lines.push(vec![
            program.id.map_or(UNKNOWN.into(), |id| id.to_string()),
            program_name(program),
            grouped(exact.runs),
            runs,
            time_cell(exact),
            time,
            sampled.unwrap_or_else(|| UNKNOWN.into()),
            measured(exact),
        ]);
        for function in &program.exact_functions {
            lines.push(vec![
                String::new(),
                format!("  {}", clean(&function.name)),
                grouped(function.runs),
                String::new(),
                time_cell(function),
                String::new(),
                String::new(),
                measured(function),
            ]);
        }
    }
    if lines.is_empty() { Vec::new() } else { grid::lines(&names.map(str::to_owned), &lines) }
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

/// What the numbers are, and what is wrong with them.
pub(super) fn notes(report: &Report, rows: &[&Row], counting: &Counting) -> Vec<String> {
    let programs: Vec<&Program> = rows.iter().map(|row| &report.programs[row.program]).collect();
    let exact: Vec<(&Program, &Exact)> = programs
        .iter()
        .flat_map(|program| {
            let counted = program.exact.iter().chain(&program.exact_functions);
            counted.map(move |exact| (*program, exact))
        })
        .collect();
    let mut notes = Vec::new();
    if !exact.is_empty() {
        notes.push(
            "e: counted exactly, at the run; s: the kernel's run statistics; events per run, IPC and P50 to P99.9 (ns per \
             run) are exact; SAMPLES and shares are sampled"
                .into(),
        );
    }
    notes.extend(how(counting, exact.iter().map(|(_, exact)| *exact)));
    let refused = programs.iter().filter(|program| !program.counts_others()).filter_map(|program| {
        let unknown = program.exact.as_ref().err()?;
        Some((unknown.0.clone(), named(program, program_name(program))))
    });
    for (reason, names) in grouped_by(refused) {
        notes.push(format!("not counted exactly: {} ({})", listed(&names), clean(&reason)));
    }
    let exact: Vec<(String, &Exact)> =
        exact.iter().map(|(program, exact)| (named(program, target_name(program, exact)), *exact)).collect();
    notes.extend(exact_notes(&exact));
    notes
}

/// A name with the id that tells it from its equals.
fn named(program: &Program, name: String) -> String {
    program.id.map_or_else(|| name.clone(), |id| format!("{name} ({id})"))
}

fn target_name(program: &Program, exact: &Exact) -> String {
    let name = program_name(program);
    if exact.function == 0 { name } else { format!("{name}/{}", clean(&exact.name)) }
}

/// What is wrong with the numbers of some targets, which are given with their names.
pub(super) fn exact_notes(targets: &[(String, &Exact)]) -> Vec<String> {
    let flaw = |(name, exact): &(String, &Exact)| -> Vec<String> {
        exact.flaws.iter().map(|flaw| format!("! {name}: {}", clean(flaw))).collect()
    };
    let mut notes: Vec<String> = targets.iter().flat_map(flaw).collect();
    let ended = targets.iter().filter_map(|(name, exact)| Some((exact.ended.clone()?, name.clone())));
    for (why, names) in grouped_by(ended) {
        notes.push(format!("no longer counted: {} ({})", listed(&names), clean(&why)));
    }
    let unmeasured = |what: &str, runs: fn(&Exact) -> u64| {
        let of = |(name, exact): &(String, &Exact)| {
            let runs = runs(exact);
            (runs > 0).then(|| format!("{} of {name}", counted(runs, "run")))
        };
        let names: Vec<String> = targets.iter().filter_map(of).collect();
        (!names.is_empty()).then(|| format!("not measured, as {what}: {}", listed(&names)))
    };
    notes.extend(unmeasured("nested too deep", |exact| exact.too_deep));
    notes.extend(unmeasured("seen to begin or to end only", |exact| exact.discarded));
    notes.extend(unmeasured("missed by the recursion guard", |exact| exact.misses.unwrap_or(0)));
    notes
}

/// How it was counted.
pub(super) fn how<'e>(counting: &Counting, exact: impl Iterator<Item = &'e Exact> + Clone) -> Vec<String> {
    let mut notes = Vec::new();
    match counting.pair_ns {
        Some(pair_ns) => {
            let events = counting.events.iter().zip(&counting.pair);
            let events =
                events.filter_map(|(event, pair)| Some(format!(", {} {}", decimal((*pair)?), clean(&event.name))));
            notes.push(format!(
                "what counting adds is taken off each measured run: {} ns{} (found with {} of an empty program)",
                decimal(pair_ns),
                events.collect::<String>(),
                counted(counting.pair_runs, "run")
            ));
        }
        None if exact.clone().next().is_some() => {
            notes.push("what counting adds was not found out: nothing is taken off".into());
        }
        None => {}
    }
    if let [Some(measured), skipped] = counting.added_ns {
        let skipped = skipped.map(|ns| format!(", {} ns for one that is let pass", decimal(ns))).unwrap_or_default();
        notes.push(format!(
            "the kernel's time per run includes counting: {} ns for a measured run{skipped}",
            decimal(measured)
        ));
    }
    if exact.clone().any(|exact| exact.is_estimate) {
        let budget =
            counting.budget_ppm.map(|ppm| format!(", to stay within {} % of the machine", f64::from(ppm) / 1e4));
        notes.push(format!(
            "≈ and ±: not all runs were measured{}; ± is the 95 % confidence interval",
            budget.unwrap_or_default()
        ));
    }
    let per_run = |exact: &Exact| {
        let events = exact.events.iter().flatten().map(|event| event.per_run);
        events.chain(exact.time).any(|per_run| per_run.is_below_pair())
    };
    if exact.clone().any(per_run) {
        notes.push("≈0: less than what counting adds".into());
    }
    if exact.clone().any(|exact| exact.events.iter().flatten().any(|event| event.running < 1.0)) {
        notes.push("[n%]: events took turns on the hardware; counted for n % of the time and scaled".into());
    }
    for (why, names) in grouped_by(counting.absent.iter().map(|(name, why)| (why.clone(), clean(name)))) {
        notes.push(format!("not counted: {} ({})", listed(&names), clean(&why)));
    }
    if !counting.note.is_empty() {
        notes.push(format!("counting: {}", clean(&counting.note)));
    }
    notes
}

/// A few names, and how many more.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_marked() {
        let per_run = |value: f64, error| PerRun { value, with_pair: value + 10.0, error };
        assert_eq!(value(&per_run(1234.4, None), false), "1,234");
        assert_eq!(value(&per_run(2_999.999_999_999, None), false), "3,000");
        assert_eq!(value(&per_run(99.96, Some(2.0)), true), "100.0±2.0%");
        assert_eq!(value(&per_run(100.0, Some(12.4)), true), "100.0±12%");
        assert_eq!(value(&per_run(100.0, None), true), "≈100.0");
        assert_eq!(value(&per_run(0.0, None), false), "≈0");
    }

    #[test]
    fn long_lists_end() {
        let names: Vec<String> = ('a'..='h').map(String::from).collect();
        assert_eq!(listed(&names), "a, b, c, d, e, f and 2 more");
        assert_eq!(listed(&names[..2]), "a, b");
    }
}
