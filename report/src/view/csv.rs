//! Comma-separated values (RFC 4180, but lines end in a plain newline): what is not known is an empty field.

use super::cells::plain;
use super::screen::Screen;
use crate::model::{
    Columns, Count, Counting, EventReport, Known, Line, PERCENTILES, Program, Report, Runs, Share, UnsampledTime,
};
use std::io;

const COLUMNS: [&str; 34] = [
    "event",
    "kind",
    "id",
    "load_time_ns",
    "name",
    "part",
    "type",
    "tag",
    "samples",
    "weight",
    "self_samples",
    "self_weight",
    "helper_samples",
    "helper_weight",
    "entry_samples",
    "entry_weight",
    "entry_shared_samples",
    "entry_shared_weight",
    "inclusive_samples",
    "inclusive_weight",
    "machine_percent",
    "busy_percent",
    "bpf_percent",
    "samples_percent",
    "unsampled_ns",
    "unsampled_machine_percent",
    "runs",
    "run_time_ns",
    "misses",
    "loaded_ns",
    "unloaded_ns",
    "attached",
    "owner",
    "programs",
];

pub(super) fn write(report: &Report, out: &mut Screen<'_>) -> io::Result<()> {
    let counting = report.counting.as_ref();
    let mut names: Vec<String> = COLUMNS.map(str::to_owned).into();
    names.extend(counting.into_iter().flat_map(exact_columns));
    let columns = names.len();
    out.values(names, ",")?;
    for event in &report.events {
        for cells in event_cells(report, event) {
            let mut cells = cells.0;
            cells.resize(columns, String::new());
            out.values(cells, ",")?;
        }
    }
    Ok(())
}

/// All lines of an event.
fn event_cells(report: &Report, event: &EventReport) -> Vec<Cells> {
    let line = |kind: &str| Cells::new(event, kind);
    let mut lines = Vec::new();
    for row in &event.rows {
        let program = &report.programs[row.program];
        let cells = line("program").program(program).facts(program);
        let cells = cells.ledger(row.line.as_deref()).unsampled(row.unsampled.as_ref());
        lines.push(cells.exact(program, report.counting.as_ref()));
        for part in row.parts.iter().flatten() {
            lines.push(line("part").program(program).set("part", part.name.clone()).ledger(Some(&part.line)));
        }
    }
    for group in &event.groups {
        let cells = line("group").set("name", group.name.clone()).set("programs", group.programs.len().to_string());
        let cells = cells.ledger(group.line.as_ref()).unsampled(group.unsampled.as_ref());
        lines.push(cells.runs(group.runs.value().map(AsRef::as_ref)));
    }
    for (kind, others) in [("others", &event.others), ("counting", &event.counting_programs)] {
        if others.programs > 0 {
            let cells = line(kind).set("programs", others.programs.to_string());
            lines.push(cells.ledger(Some(&others.line)));
        }
    }
    lines.push(line("entry").sum(event.entry_unattributed.value().map(AsRef::as_ref)));
    lines.push(line("interpreted").sum(event.interpreted.value().map(AsRef::as_ref)));
    lines.push(line("total").sum(Some(&event.total)).unsampled(event.unsampled.as_ref()));
    if let Some(statistics) = report.recording.cost.and_then(|cost| cost.run_statistics) {
        lines.push(line("run_statistics").set("run_time_ns", statistics.time_ns.to_string()));
    }
    if event.unknown_kernel_code.is_value() {
        lines.push(line("unknown_kernel_code").sum(event.unknown_kernel_code.value().map(AsRef::as_ref)));
    }
    lines.push(line("samples").count(Some(event.samples)));
    lines.push(line("idle").count(event.idle.value().map(|idle| idle.count)));
    if let Some(sampler) = &event.bpf_sampler {
        let lost = sampler.full.zip(sampler.failed).map(|(full, failed)| full.saturating_add(failed));
        let cells = line("bpf_sampler").set("samples", plain(sampler.written));
        lines.push(cells.set("runs", plain(sampler.runs)).set("misses", plain(lost)));
        if let Some(blind) = &sampler.blind_spot {
            let cells = line("blind_spot").set("name", blind.event.clone()).count(Some(blind.inside));
            lines.push(cells.set("samples_percent", plain(blind.percent)));
        }
    }
    if let Some(aggregated) = &event.aggregated {
        lines.push(line("overflow").count(Some(aggregated.overflow)));
        lines.push(line("blind_spot").count(aggregated.blind_spot.value().copied()));
    }
    if let Known::Value(lost) = event.lost {
        lines.push(line("lost").set("samples", lost.to_string()));
    }
    lines
}

/// A line being filled in.
struct Cells(Vec<String>);

impl Cells {
    fn new(event: &EventReport, kind: &str) -> Cells {
        Cells(vec![String::new(); COLUMNS.len()]).set("event", event.name.clone()).set("kind", kind.into())
    }

    fn set(mut self, column: &str, value: String) -> Cells {
        if let Some(at) = COLUMNS.iter().position(|name| *name == column) {
            self.0[at] = value;
        }
        self
    }

    fn program(self, program: &Program) -> Cells {
        self.set("id", plain(program.id))
            .set("load_time_ns", plain(program.load_time_ns))
            .set("name", program.name.clone())
            .set("type", plain(program.prog_type))
            .set("tag", plain(program.tag))
    }

    fn facts(self, program: &Program) -> Cells {
        self.runs(program.runs.value().map(AsRef::as_ref))
            .set("loaded_ns", plain(program.loaded.map(|loaded| loaded.before_ns)))
            .set("unloaded_ns", plain(program.unloaded.map(|unloaded| unloaded.before_ns)))
            .set("attached", program.attachments.join(" "))
            .set("owner", program.holders())
    }

    fn runs(self, runs: Option<&Runs>) -> Cells {
        self.set("runs", plain(runs.map(|runs| runs.count)))
            .set("run_time_ns", plain(runs.map(|runs| runs.time_ns)))
            .set("misses", plain(runs.and_then(|runs| runs.misses)))
    }

    fn count(self, count: Option<Count>) -> Cells {
        self.pair(["samples", "weight"], count)
    }

    fn pair(self, columns: [&str; 2], count: Option<Count>) -> Cells {
        self.set(columns[0], plain(count.map(|count| count.samples)))
            .set(columns[1], plain(count.map(|count| count.weight)))
    }

    /// What is charged, and its shares.
    fn sum(self, line: Option<&Line>) -> Cells {
        let shares = line.map(|line| line.shares).unwrap_or_default();
        self.count(line.map(|line| line.count))
            .set("machine_percent", plain(shares.machine))
            .set("busy_percent", plain(shares.busy))
            .set("bpf_percent", plain(shares.bpf))
            .set("samples_percent", plain(shares.samples))
    }

    fn unsampled(self, unsampled: Option<&UnsampledTime>) -> Cells {
        self.set("unsampled_ns", plain(unsampled.map(|it| it.time_ns)))
            .set("unsampled_machine_percent", plain(unsampled.and_then(|it| it.machine_percent)))
    }

    /// The same by column.
    fn ledger(self, line: Option<&Line>) -> Cells {
        let cells = self.sum(line);
        let Some(Columns { own, helper, entry, entry_shared, inclusive }) =
            line.and_then(|line| line.columns.as_deref())
        else {
            return cells;
        };
        let count = |share: &Known<Share>| share.value().map(|share| share.count);
        cells
            .pair(["self_samples", "self_weight"], count(own))
            .pair(["helper_samples", "helper_weight"], count(helper))
            .pair(["entry_samples", "entry_weight"], count(entry))
            .pair(["entry_shared_samples", "entry_shared_weight"], count(entry_shared))
            .pair(["inclusive_samples", "inclusive_weight"], count(inclusive))
    }

    fn exact(mut self, program: &Program, counting: Option<&Counting>) -> Cells {
        self.0.extend(counting.into_iter().flat_map(|counting| exact_cells(program, counting)));
        self
    }
}

/// What exact counters add: only where the recording has them.
fn exact_columns(counting: &Counting) -> impl Iterator<Item = String> {
    let fixed = [
        "exact_runs",
        "exact_measured_runs",
        "exact_ns_per_run",
        "exact_ns_per_run_error",
        "exact_is_estimate",
        "p50_from_ns",
        "p50_to_ns",
        "p99_from_ns",
        "p99_to_ns",
        "p999_from_ns",
        "p999_to_ns",
        "ipc",
        "exact_unknown",
    ];
    let events = counting.events.iter().flat_map(|event| {
        let name = &event.name;
        [format!("{name}_per_run"), format!("{name}_per_run_error"), format!("{name}_running")]
    });
    fixed.map(str::to_owned).into_iter().chain(events)
}

/// The cells of [`exact_columns`].
fn exact_cells(program: &Program, counting: &Counting) -> Vec<String> {
    let exact = program.exact.value();
    let time = exact.and_then(|exact| exact.time.value());
    let mut cells = vec![
        plain(exact.map(|exact| exact.runs)),
        plain(exact.map(|exact| exact.measured)),
        plain(time.map(|time| time.value)),
        plain(time.and_then(|time| time.error)),
        plain(exact.map(|exact| exact.is_estimate)),
    ];
    for at in 0..PERCENTILES.len() {
        let percentile = exact.and_then(|exact| exact.percentiles.get(at));
        cells.push(plain(percentile.and_then(|percentile| percentile.from_ns)));
        cells.push(plain(percentile.and_then(|percentile| percentile.to_ns)));
    }
    cells.push(plain(exact.and_then(|exact| exact.ipc)));
    cells.push(match exact {
        None => plain(program.exact.why()),
        Some(exact) => joined(&exact.anomalies),
    });
    for at in 0..counting.events.len() {
        let event = exact.and_then(|exact| exact.events.get(at)?.counted.value());
        cells.push(plain(event.map(|event| event.per_run.value)));
        cells.push(plain(event.and_then(|event| event.per_run.error)));
        cells.push(plain(event.map(|event| event.running)));
    }
    cells
}

/// Several sentences in one cell.
pub(super) fn joined<T: ToString>(said: &[T]) -> String {
    said.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
