//! Columns of the table by program and of its CSV.

use super::entries::LedgerEntry;
use super::spark::{SparkColumn, spark};
use crate::index::student::NORMAL_95;
use crate::model::text::{UNKNOWN, decimal, estimated, fixed, grouped};
use crate::model::{
    Columns, EventReport, Exact, History, Known, Line, PERCENTILES, Program, Reason, Report, Row, Runs, RunsEstimate,
    Share, Shares, UnsampledTime,
};
use crate::options::{By, Group, TableColumns};
use crate::view::cells::{self, NOTHING, estimate, joined, moment, number, of_machine, percent};
use crate::view::columns::{LineColumn, LineColumns};
use crate::view::grid::Column;

/// Form in which a table shows runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum Rates {
    /// Count of runs, for a recording.
    Count,
    /// Runs per second, for an interval; the table also has a column of map memory.
    PerSecond,
}

/// Name of the column of time in programs, measured by run statistics.
pub(super) const STATISTICS: &str = "STATS%";

/// Name of the column with the cost of a program and of the programs that it tail-calls or triggers.
pub(super) const INCLUSIVE: &str = "TOTAL%";

/// Name of the column of samples in kernel code that runs programs.
pub(super) const ENTRY: &str = "ENTRY%";

/// Drop orders that depend on the kind of table: of a recording, or of an interval. In an interval, samples are few while all runs are counted, so
/// its table keeps the columns of runs longer.
struct Orders {
    kind: u8,
    machine: u8,
    inclusive: u8,
    runs: u8,
    statistics: u8,
    owner: u8,
}

impl Orders {
    fn of(rates: Rates) -> Orders {
        match rates {
            Rates::Count => Orders { kind: 4, machine: 1, inclusive: 6, runs: 5, statistics: 9, owner: 3 },
            Rates::PerSecond => Orders { kind: 18, machine: 4, inclusive: 17, runs: 3, statistics: 1, owner: 6 },
        }
    }
}

/// Drop order of the column of earlier intervals: after `TYPE` and before `RUNS/S`.
const HISTORY_ORDER: u8 = 4;

/// Optional columns.
#[derive(Clone, Copy, Default)]
pub(super) struct Extra<'r> {
    /// Highest cost of a row, %; `None` if rows have no bars.
    pub(super) highest_cost: Option<f64>,
    /// Spark lines of samples over time.
    pub(super) spark: Option<&'r SparkColumn<'r>>,
    /// Time in programs in earlier intervals, by run statistics.
    pub(super) history: Option<&'r History>,
}

/// Selects the share of one column (such as self or helper) from the columns of a line.
type PartOf = fn(&Columns) -> &Known<Share>;

/// Columns of the table and of CSV. If the table is too wide, the column with the highest drop order is dropped first.
pub(super) fn fields<'r>(
    report: &'r Report,
    event: Option<&EventReport>,
    rates: Rates,
    extra: Extra<'r>,
) -> LineColumns<'r, LedgerEntry<'r>> {
    type F<'r> = LineColumn<'r, LedgerEntry<'r>>;
    let [first, name] = match report.by {
        Some(By::Group(group)) => [
            "PROGRAMS",
            match group {
                Group::Owner => "OWNER",
                Group::Name => "NAME",
                Group::Type => "TYPE",
                Group::Hook => "HOOK",
            },
        ],
        Some(By::Split(_)) | None => ["ID", "PROGRAM"],
    };
    let mut order = Orders::of(rates);
    // If shares of the machine are unknown, only TOTAL% shows which program is the costliest. It then has the drop order of %MACHINE.
    if rates == Rates::Count && event.is_some_and(|it| !it.machine.is_value()) {
        order.inclusive = order.machine;
    }
    let share = |name: &str, order| Column::number(name).droppable(order).nothing(NOTHING);
    let few = Few::of(rates);
    let has_exact = report.counting.is_some();
    let exact_of = move |line: &LedgerEntry<'r>| line.head().filter(|_| has_exact).and_then(Program::exact_throughout);
    let mut fields = vec![
        F::csv("event", |l| Some(&l.event?.name)),
        F::csv("kind", |l| Some(l.kind)),
        F::csv("id", |l| l.program?.id).and_text(Column::number(first).always(), |l| match (l.head(), l.group) {
            (Some(program), _) => program.id.map_or_else(|| UNKNOWN.into(), |id| id.to_string()),
            (None, Some(group)) => grouped(group.programs.len() as u64),
            (None, None) => String::new(),
        }),
        F::csv("load_time_ns", |l| l.program?.load_time_ns),
        F::csv("name", |l| l.plain_name.or(l.program.map(|it| it.name.as_str())))
            .and_text(Column::text(name).cut_to(24).always(), |l| l.name.to_string()),
        F::csv("part", |l| l.part),
        F::csv("type", |l| l.program?.prog_type).and_text(Column::text("TYPE").droppable(order.kind).cut_to(10), |l| {
            match l.head() {
                Some(program) => program.prog_type.map_or_else(|| UNKNOWN.into(), |it| it.to_string()),
                None => String::new(),
            }
        }),
        F::csv("tag", |l| l.program?.tag),
        F::csv("samples", |l| l.samples).and_text(Column::number("SAMPLES").droppable(14), |l| {
            let is_unknown = l.is_row() && l.line.is_none();
            if l.is_share { String::new() } else { number(l.samples.filter(|_| !is_unknown)) }
        }),
        F::csv("weight", |l| l.weight),
    ];
    let shares: [(&str, &str, Column, PartOf); 4] = [
        ("self", "SELF%", share("SELF%", 11).says("in its own code"), |it| &it.own),
        ("helper", "HELPER%", share("HELPER%", 12).says("in kernel code that the program called"), |it| &it.helper),
        ("entry", ENTRY, share(ENTRY, 13).says("in code that runs the program"), |it| &it.entry),
        (
            "inclusive",
            INCLUSIVE,
            share(INCLUSIVE, order.inclusive).says("in the program and in programs that it tail-calls or triggers"),
            |it| &it.inclusive,
        ),
    ];
    for (key, name, column, of) in shares {
        let count = move |l: &LedgerEntry<'r>, of: PartOf| Some(of(l.columns?).value()?.count);
        fields.push(F::csv(format!("{key}_samples"), move |l| Some(count(l, of)?.samples)).and_text(
            column.share(),
            move |l| {
                l.of_line(|line| line.columns.as_deref().map_or_else(String::new, |it| part(l.event, it, of, few)))
            },
        ));
        fields.push(F::csv(format!("{key}_weight"), move |l| Some(count(l, of)?.weight)));
        if name == ENTRY {
            let shared: PartOf = |it| &it.entry_shared;
            fields.push(F::csv("entry_shared_samples", move |l| Some(count(l, shared)?.samples)));
            fields.push(F::csv("entry_shared_weight", move |l| Some(count(l, shared)?.weight)));
        }
    }
    fields.extend([F::csv("machine_percent", |l| l.shares.machine)
        .and_text(share("%MACHINE", order.machine).share().says("of all CPUs' time"), move |l| {
            if let Some(unsampled) = l.unseen() {
                return estimate(cost_percent(l.event, l.line, Some(unsampled)));
            }
            l.machine.clone().unwrap_or_else(|| {
                l.of_line(|it| few.share(it.shares.machine, it.count.samples, |it| machine(l.event, it)))
            })
        })
        .ahead(5)]);
    fields.extend(extra.highest_cost.map(|highest| {
        F::text(Column::text("COST").droppable(12), move |l| {
            let percent = cost_percent(l.event, l.line, l.unsampled);
            bar(percent.filter(|_| l.is_row()), highest)
        })
        .ahead(5)
    }));
    fields.extend([
        F::csv("busy_percent", |l| l.shares.busy)
            .and_text(share("%BUSY", 15).says("of non-idle time"), move |l| sampled(l, few, |it| it.busy))
            .ahead(5),
        F::csv("bpf_percent", |l| l.shares.bpf)
            .and_text(share("%BPF", 8).says("of all BPF"), move |l| sampled(l, few, |it| it.bpf))
            .ahead(5),
        F::csv("samples_percent", |l| l.shares.samples),
        F::csv("unsampled_ns", |l| Some(l.unsampled?.time_ns)),
        F::csv("unsampled_machine_percent", |l| l.unsampled?.machine_percent),
        F::csv("runs", |l| l.run_count).and_text(
            Column::number(if rates == Rates::PerSecond { "RUNS/S" } else { "RUNS" }).droppable(order.runs),
            move |l| match exact_of(l).filter(|_| rates == Rates::Count) {
                Some(exact) => grouped(exact.runs),
                None => l.summed(l.of_runs(|runs| count(runs, rates))),
            },
        ),
        F::text(Column::number("NS/RUN").droppable(2), move |l| match exact_of(l).filter(|it| it.time.is_value()) {
            Some(exact) => cells::time(exact),
            None => l.of_runs(cells::ns_per_run),
        }),
        F::csv("run_time_ns", |l| l.run_time_ns).and_text(
            share(STATISTICS, order.statistics)
                .share()
                .says("share of all CPUs' time that the program took, by the kernel's run statistics"),
            |l| l.summed(l.of_runs(|runs| percent(runs.machine_percent))),
        ),
    ]);
    fields.extend(extra.history.map(|history| {
        F::text(Column::text("STATS% BEFORE").droppable(HISTORY_ORDER), |l| {
            l.head().map_or_else(String::new, |program| {
                let shares = history.of(program);
                let older = shares.len().saturating_sub(History::LENGTH);
                spark(shares.skip(older))
            })
        })
    }));
    fields.push(F::csv("misses", |l| l.misses).and_text(
        Column::number("MISSES").droppable(10).says("runs that the kernel's recursion guard refused"),
        |l| l.summed(l.of_runs(|runs| number(runs.misses))),
    ));
    let probe_misses = |l: &LedgerEntry<'r>| l.head()?.probe_misses;
    let mut missed = F::csv("probe_misses", probe_misses);
    if report.programs.iter().any(|program| program.probe_misses.is_some_and(|misses| misses > 0)) {
        let column =
            Column::number("PROBE MISSES").droppable(10).says("hits of the program's kprobes that ran no program");
        missed = missed.and_text(column, move |l| probe_misses(l).map_or_else(String::new, grouped));
    }
    fields.push(missed);
    if let Some(event) = event.filter(|event| shows_per_run(report, event)) {
        let name = format!("≈{}/RUN", without_modifiers(&event.name));
        fields.push(F::text(Column::number(name).droppable(4), |l| l.row.map_or_else(String::new, per_run)));
    }
    if let Some(counting) = &report.counting {
        let events = counting.events.len();
        for (at, column) in cells::exact_columns(counting).into_iter().enumerate() {
            let cell = move |it: &Program| cells::exact(it.exact.value().map(AsRef::as_ref), events, at);
            fields.push(F::text(column, move |l| l.head().map_or_else(String::new, cell)));
        }
    }
    if rates == Rates::PerSecond {
        fields.push(F::text(Column::number("MAP MEM").droppable(6), |l| {
            l.head().map_or_else(String::new, |it| cells::memory(it.map_memory_bytes.value().copied()))
        }));
    }
    fields.extend([
        F::csv("map_memory_bytes", |l| l.head()?.map_memory_bytes.value().copied()),
        F::csv("jited_bytes", |l| l.head()?.load().jited_bytes),
        F::csv("verified_insns", |l| l.head()?.load().verified_insns),
        F::csv("load_duration_ns", |l| l.head()?.load().load_duration_ns),
        F::csv("loaded_ns", |l| Some(l.head()?.loaded?.before_ns))
            .and_text(Column::number("LOADED").droppable(16), |l| {
                l.head().map_or_else(String::new, |it| moment(it.loaded))
            }),
        F::csv("unloaded_ns", |l| Some(l.head()?.unloaded?.before_ns))
            .and_text(Column::number("UNLOADED").droppable(17), |l| {
                l.head().map_or_else(String::new, |it| moment(it.unloaded))
            }),
        F::csv("attached", |l| Some(l.head()?.attached().join(" "))).and_text(
            Column::text("ATTACHED TO").droppable(7).cut_to(20),
            move |l| {
                // In the table of an interval, attach points keep their prefix, such as `kprobe:`, because TYPE is dropped earlier than they are.
                let Some(program) = l.head() else { return String::new() };
                let prog_type = program.prog_type.filter(|_| rates == Rates::Count).map(|it| it.to_string());
                cells::attachments(&program.attached(), prog_type.as_deref())
            },
        ),
        F::csv("owner", |l| Some(l.head()?.holders()))
            .and_text(Column::text("OWNER").droppable(order.owner).cut_to(16), |l| {
                l.head().map_or_else(String::new, cells::holders)
            }),
        F::csv("programs", |l| l.programs),
    ]);
    fields.extend(extra.spark.map(|spark| {
        F::text(Column::text(TableColumns::SPARK), |l| match (l.kind, l.row, l.group) {
            (_, Some(row), _) => spark.program(row),
            (_, _, Some(group)) => spark.group(&group.programs),
            ("others", ..) => spark.others(),
            ("counting", ..) => spark.counting(),
            ("entry" | "interpreted", ..) => spark.unattributed(&l.name),
            ("total", ..) => spark.total(),
            _ => String::new(),
        })
    }));
    if let Some(counting) = &report.counting {
        fields.extend(exact_fields(counting.events.iter().map(|event| event.name.as_str())));
    }
    LineColumns::new(fields)
}

/// CSV columns of exact counters.
fn exact_fields<'r>(events: impl Iterator<Item = &'r str>) -> Vec<LineColumn<'r, LedgerEntry<'r>>> {
    type F<'r> = LineColumn<'r, LedgerEntry<'r>>;
    fn exact<'r>(line: &LedgerEntry<'r>) -> Option<&'r Exact> {
        line.head()?.exact.value().map(AsRef::as_ref)
    }
    let mut fields: Vec<F<'r>> = vec![
        F::csv("exact_runs", |l| Some(exact(l)?.runs)),
        F::csv("exact_measured_runs", |l| Some(exact(l)?.measured)),
        F::csv("exact_ns_per_run", |l| Some(exact(l)?.time.value()?.value)),
        F::csv("exact_ns_per_run_error", |l| exact(l)?.time.value()?.error),
        F::csv("exact_is_estimate", |l| Some(exact(l)?.is_estimate)),
    ];
    for at in 0..PERCENTILES.len() {
        let name = cells::PERCENTILE_NAMES[at];
        fields.push(F::csv(format!("{name}_from_ns"), move |l| exact(l)?.percentiles.get(at)?.from_ns));
        fields.push(F::csv(format!("{name}_to_ns"), move |l| exact(l)?.percentiles.get(at)?.to_ns));
    }
    fields.push(F::csv("ipc", |l| exact(l)?.ipc));
    fields.push(F::csv("exact_unknown", |l| match exact(l) {
        None => l.head()?.exact.why(),
        Some(exact) => Some(joined(&exact.anomalies)),
    }));
    for (at, name) in events.enumerate() {
        let event = move |l: &LedgerEntry<'r>| exact(l)?.events.get(at)?.counted.value();
        fields.push(F::csv(format!("{name}_per_run"), move |l| Some(event(l)?.per_run.value)));
        fields.push(F::csv(format!("{name}_per_run_error"), move |l| event(l)?.per_run.error));
        fields.push(F::csv(format!("{name}_running"), move |l| Some(event(l)?.running)));
    }
    fields
}

/// Event name without perf's modifiers: `cycles:P` becomes `cycles`. The name of a tracepoint, such as `sched:sched_switch`, stays.
fn without_modifiers(name: &str) -> &str {
    match name.split_once(':') {
        Some((event, modifiers)) if modifiers.chars().all(|it| "ukhGHIpPSDWe".contains(it)) => event,
        _ => name,
    }
}

/// Returns true if the table has a column of events per run, estimated from samples. The column is left out for timer events, because run statistics
/// give better times per run, and for recordings with exact counters, which have counts of events per run.
fn shows_per_run(report: &Report, event: &EventReport) -> bool {
    !event.is_timer && report.counting.is_none() && event.rows.iter().any(|row| row.sampled_per_run.is_value())
}

/// Events per run, estimated from samples.
fn per_run(row: &Row) -> String {
    row.sampled_per_run.value().map_or(UNKNOWN.into(), |it| {
        let [value, margin, most] = [it.value, it.margin, it.value + it.margin].map(decimal);
        // If the margin is at least as large as the value, the lower bound would be zero or less. Only the upper bound is printed then.
        if it.margin < it.value { format!("{value}±{margin}") } else { format!("{value} ≤{most}") }
    })
}

/// Runs, or runs per second, with the margin of an estimate.
pub(super) fn count(runs: &Runs, rates: Rates) -> String {
    match (runs.estimate, rates) {
        (None, Rates::Count) => grouped(runs.count),
        (None, Rates::PerSecond) => runs.per_second.map_or(UNKNOWN.into(), decimal),
        (Some(estimate), Rates::Count) => estimated(runs.count, estimate.count_margin),
        (Some(estimate), Rates::PerSecond) => per_second(runs, &estimate),
    }
}

/// Runs per second, with the margin of the estimated count of runs.
fn per_second(runs: &Runs, estimate: &RunsEstimate) -> String {
    let Some(rate) = runs.per_second else { return UNKNOWN.into() };
    let scale = if runs.count > 0 { rate / runs.count as f64 } else { 0.0 };
    estimated(rate.round() as u64, estimate.count_margin.map(|margin| (margin as f64 * scale).ceil() as u64))
}

/// Cost of a line, % of the machine: by samples, plus the time that samples cannot see. If the machine's capacity is unknown: the cost by samples,
/// % of all samples, or `None` for a line with time that samples cannot see.
pub(super) fn cost_percent(
    event: Option<&EventReport>,
    line: Option<&Line>,
    unsampled: Option<&UnsampledTime>,
) -> Option<f64> {
    let sampled = line.map_or(Some(0.0), |line| event?.percent(line.count));
    // The time that samples cannot see comes from run statistics, so only its share of the machine is known. If the machine's capacity is unknown,
    // the sum is unknown.
    let unsampled = unsampled.map_or(Some(0.0), |unsampled| event?.machine.value().and(unsampled.machine_percent));
    sampled.zip(unsampled).map(|(sampled, unsampled)| sampled + unsampled)
}

/// Bar of a cost; the highest cost of the table has a full bar.
fn bar(percent: Option<f64>, highest: f64) -> String {
    const CELLS: f64 = 10.0;
    let cells = percent.filter(|_| highest > 0.0).map_or(0.0, |percent| percent * CELLS / highest);
    "▆".repeat(cells.clamp(0.0, CELLS).round() as usize)
}

/// Cost of a program: the cell of `%MACHINE`, or the share of all samples if the machine's capacity is unknown.
pub(in crate::view) fn cost(event: &EventReport, row: &Row, rates: Rates) -> String {
    let line = row.line.as_deref();
    if let Some(unsampled) = &row.unsampled {
        return estimate(cost_percent(Some(event), line, Some(unsampled)));
    }
    line.map_or_else(
        || UNKNOWN.into(),
        |line| Few::of(rates).share(event.percent(line.count), line.count.samples, |share| machine(Some(event), share)),
    )
}

fn machine(event: Option<&EventReport>, share: Option<f64>) -> String {
    of_machine(share, event.is_some_and(EventReport::is_scaled))
}

/// Cell of a share of samples. Unknown for rows that also have time that samples cannot see: the share of that time is unknown.
fn sampled(entry: &LedgerEntry<'_>, few: Few, of: fn(&Shares) -> Option<f64>) -> String {
    match entry.unseen() {
        Some(_) => UNKNOWN.into(),
        None => entry.of_line(|line| few.share(of(&line.shares), line.count.samples, percent)),
    }
}

/// Cell of the share that `of` selects. A share of entry code has the mark `≈` if a part of it is an estimate.
fn part(event: Option<&EventReport>, columns: &Columns, of: PartOf, few: Few) -> String {
    let cell = match of(columns) {
        Known::Value(share) => {
            few.share(event.and_then(|it| it.percent(share.count)), share.count.samples, |share| machine(event, share))
        }
        Known::Unknown(Reason::NotForThisLine) => String::new(),
        Known::Unknown(_) | Known::Impossible(_) => UNKNOWN.into(),
    };
    let is_shared = std::ptr::eq(of(columns), &columns.entry) && columns.has_shared_entry();
    if is_shared && cell.starts_with(|c: char| c.is_ascii_digit()) { format!("≈{cell}") } else { cell }
}

/// Form of shares that come from few samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Few {
    /// Printed like any other share, for a recording.
    AsTheyAre,
    /// Printed as `≤` and the upper confidence bound, for an interval: most of its shares come from few samples.
    AtMost,
}

/// Count of samples below which a share is uncertain: its 95 % margin is then about two thirds of the share or more.
const UNCERTAIN_SAMPLES: u64 = 10;

impl Few {
    /// Returns the form for a table; `Rates::PerSecond` is the table of an interval.
    fn of(rates: Rates) -> Few {
        if rates == Rates::PerSecond { Few::AtMost } else { Few::AsTheyAre }
    }

    fn share(self, share: Option<f64>, samples: u64, show: impl Fn(Option<f64>) -> String) -> String {
        let is_few = self == Few::AtMost && (1..UNCERTAIN_SAMPLES).contains(&samples);
        match share.filter(|_| is_few) {
            Some(share) => format!("≤{}", fixed((share * at_most(samples)).min(100.0), 2)),
            None => show(share),
        }
    }
}

/// Upper 97.5 % confidence bound of a Poisson mean after `samples` events (Wilson-Hilferty approximation), as a multiple of `samples`.
fn at_most(samples: u64) -> f64 {
    let next = samples as f64 + 1.0;
    let root = 1.0 - 1.0 / (9.0 * next) + NORMAL_95 / (3.0 * next.sqrt());
    next * root * root * root / samples as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Options, by_prog};
    use std::path::Path;

    /// `docs/table.md` must list the declared columns with their meanings, and the order in which columns are dropped.
    #[test]
    fn columns_are_documented_as_they_are_declared() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let input = Input::open(root.join("fixtures/recordings/linux-7.2/ratio.data")).unwrap();
        let mut report = by_prog(&input, &Options::default()).unwrap();
        // The table has the column of missed hits of probes only if a program has some.
        std::sync::Arc::make_mut(&mut report.programs)[0].probe_misses = Some(1);
        let docs = std::fs::read_to_string(root.join("docs/table.md")).unwrap();
        let fields = fields(&report, None, Rates::Count, Extra::default());
        for column in fields.columns().iter().filter(|column| !column.what().is_empty()) {
            let row = format!("| `{}` | {} |", column.name(), column.what());
            assert!(docs.contains(&row), "docs/table.md lacks {row}");
        }
        let mut dropped: Vec<(u8, &str)> =
            fields.columns().iter().map(|column| (column.drop_order(), column.name())).collect();
        dropped.retain(|(order, _)| *order > 0);
        dropped.sort_unstable_by_key(|(order, _)| std::cmp::Reverse(*order));
        let declared: Vec<&str> = dropped.iter().map(|(_, name)| *name).collect();
        let sentence = docs.split("Then columns are dropped:").nth(1).unwrap().split("in this order").next().unwrap();
        let documented: Vec<&str> = sentence.split('`').skip(1).step_by(2).collect();
        assert_eq!(documented, declared);
    }

    /// Exact upper bounds at 97.5 % for the mean of a Poisson distribution: 5.572 for 1 sample, 7.225 for 2, 17.085 for 9.
    #[test]
    fn a_share_of_few_samples_may_be_as_large_as_chance_has_it() {
        for (samples, most) in [(1, 5.572), (2, 7.225), (9, 17.085)] {
            assert!((at_most(samples) * samples as f64 - most).abs() < 0.01 * most, "{samples}: {}", at_most(samples));
        }
    }
}
