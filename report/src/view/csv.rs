//! Comma-separated values (RFC 4180, but lines end in a plain newline): what is not known is an empty field.

use super::rows::choose;
use super::text::{clean, csv_line, owners, share};
use crate::{Charges, Count, Counting, EventReport, Exact, Origin, Program, Report};
use std::io::{self, Write};

const COLUMNS: [&str; 30] = [
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
    "inclusive_samples",
    "inclusive_weight",
    "machine_percent",
    "busy_percent",
    "bpf_percent",
    "samples_percent",
    "runs",
    "run_time_ns",
    "misses",
    "loaded_ns",
    "unloaded_ns",
    "attached",
    "owner",
    "disagreement",
];

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let exact = report.counting.iter().flat_map(exact_columns);
    csv_line(COLUMNS.iter().map(|name| (*name).to_owned()).chain(exact), out)?;
    for event in &report.events {
        let chosen = choose(report, event, false);
        for row in chosen.shown {
            let program = &report.programs[row.program];
            let blind = row.blind.is_some() && row.charges.total.samples == 0;
            let charges = if blind { None } else { Some(&row.charges) };
            let line = Line::new(event, "program").program(program).charges(charges, true).facts(program);
            let line = line.optional("disagreement", row.disagreement.as_deref().map(clean));
            line.exact(program, report.counting.as_ref()).write(out, report)?;
            for part in &row.parts {
                let line = Line::new(event, "part").program(program).set("part", clean(&part.name));
                line.charges(Some(&part.charges), part.has_total).write(out, report)?;
            }
        }
        let rest = chosen.rest_charges;
        if chosen.rest > 0 {
            Line::new(event, "others").charges(Some(&rest), false).write(out, report)?;
        }
        Line::new(event, "entry").count(event.entry).write(out, report)?;
        Line::new(event, "interpreted").count(event.interpreted).write(out, report)?;
        if let Some(unresolved) = event.unresolved {
            Line::new(event, "unresolved").count(unresolved).write(out, report)?;
        }
        Line::new(event, "total").count(event.bpf()).write(out, report)?;
        Line::new(event, "samples").pair(["samples", "weight"], Some(event.samples)).write(out, report)?;
        Line::new(event, "idle").pair(["samples", "weight"], event.idle).write(out, report)?;
        if let Some(sampler) = &event.bpf_sampler {
            let counts = sampler.counts;
            let line = Line::new(event, "bpf_sampler").optional("samples", counts.map(|counts| counts.written));
            let line = line.optional("runs", counts.map(|counts| counts.runs));
            line.optional("misses", counts.map(|counts| counts.full + counts.failed)).write(out, report)?;
            if let Some(blind) = &sampler.blind_spot {
                let percent = share(blind.inside.samples, Some(blind.of.samples));
                let line = Line::new(event, "blind_spot").set("name", clean(&blind.event));
                line.pair(["samples", "weight"], Some(blind.inside))
                    .optional("samples_percent", percent)
                    .write(out, report)?;
            }
        }
        if let Some(aggregated) = &event.aggregated {
            Line::new(event, "overflow").pair(["samples", "weight"], Some(aggregated.overflow)).write(out, report)?;
            Line::new(event, "blind_spot").pair(["samples", "weight"], aggregated.blind_spot).write(out, report)?;
        }
        if let Some(lost) = event.lost {
            Line::new(event, "lost").set("samples", lost.to_string()).write(out, report)?;
        }
    }
    Ok(())
}

/// A line being filled in.
struct Line<'e> {
    event: &'e EventReport,
    cells: [String; COLUMNS.len()],
    exact: Vec<String>,
}

impl<'e> Line<'e> {
    fn new(event: &'e EventReport, kind: &str) -> Line<'e> {
        Line { event, cells: Default::default(), exact: Vec::new() }
            .set("event", clean(&event.name))
            .set("kind", kind.into())
    }

    fn set(mut self, column: &str, value: String) -> Line<'e> {
        if let Some(at) = COLUMNS.iter().position(|name| *name == column) {
            self.cells[at] = value;
        }
        self
    }

    fn optional(self, column: &str, value: Option<impl ToString>) -> Line<'e> {
        match value {
            Some(value) => self.set(column, value.to_string()),
            None => self,
        }
    }

    fn program(self, program: &Program) -> Line<'e> {
        self.optional("id", program.id)
            .optional("load_time_ns", program.load_time_ns)
            .set("name", clean(&program.name))
            .optional("type", program.prog_type)
            .optional("tag", program.tag)
    }

    fn facts(self, program: &Program) -> Line<'e> {
        let runs = program.runs.as_ref().ok();
        let at = |origin: Option<Origin>| {
            origin.map(|origin| match origin {
                Origin::At(time) | Origin::Between(_, time) => time,
            })
        };
        let attached: Vec<String> = program.attachments.iter().map(|attachment| clean(attachment)).collect();
        self.optional("runs", runs.map(|runs| runs.count))
            .optional("run_time_ns", runs.map(|runs| runs.time_ns))
            .optional("misses", runs.and_then(|runs| runs.misses))
            .optional("loaded_ns", at(program.loaded))
            .optional("unloaded_ns", at(program.unloaded))
            .set("attached", attached.join(" "))
            .set("owner", owners(program))
    }

    fn count(self, count: Count) -> Line<'e> {
        let event = self.event;
        let busy = event.idle.map(|idle| event.samples.weight.saturating_sub(idle.weight));
        self.set("samples", count.samples.to_string())
            .set("weight", count.weight.to_string())
            .optional("machine_percent", share(count.weight, event.machine))
            .optional("busy_percent", share(count.weight, busy))
            .optional("bpf_percent", share(count.weight, Some(event.bpf().weight)))
            .optional("samples_percent", share(count.weight, Some(event.samples.weight)))
    }

    /// The ledger; nothing when it is not known.
    fn charges(self, charges: Option<&Charges>, has_total: bool) -> Line<'e> {
        let Some(charges) = charges else { return self };
        let chains = self.event.has_chains;
        self.count(charges.sum())
            .pair(["self_samples", "self_weight"], Some(charges.own))
            .pair(["helper_samples", "helper_weight"], chains.then_some(charges.helper))
            .pair(["entry_samples", "entry_weight"], chains.then_some(charges.entry))
            .pair(["inclusive_samples", "inclusive_weight"], (chains && has_total).then_some(charges.total))
    }

    fn pair(self, columns: [&str; 2], count: Option<Count>) -> Line<'e> {
        self.optional(columns[0], count.map(|count| count.samples))
            .optional(columns[1], count.map(|count| count.weight))
    }

    fn exact(mut self, program: &Program, counting: Option<&Counting>) -> Line<'e> {
        self.exact = counting.map_or_else(Vec::new, |counting| exact_cells(program, counting));
        self
    }

    fn write(self, out: &mut dyn Write, report: &Report) -> io::Result<()> {
        let columns = report.counting.as_ref().map_or(0, |counting| exact_columns(counting).count());
        let none = std::iter::repeat_n(String::new(), columns - self.exact.len());
        csv_line(self.cells.into_iter().chain(self.exact).chain(none), out)
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
        "disagreements",
    ];
    let events = counting.events.iter().flat_map(|event| {
        let name = clean(&event.name);
        [format!("{name}_per_run"), format!("{name}_per_run_error"), format!("{name}_running")]
    });
    fixed.map(str::to_owned).into_iter().chain(events)
}

/// The cells of [`exact_columns`].
fn exact_cells(program: &Program, counting: &Counting) -> Vec<String> {
    fn optional(value: Option<impl ToString>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let exact: Option<&Exact> = program.exact.as_ref().ok();
    let time = exact.and_then(|exact| exact.time);
    let mut cells = vec![
        optional(exact.map(|exact| exact.runs)),
        optional(exact.map(|exact| exact.measured)),
        optional(time.map(|time| time.value)),
        optional(time.and_then(|time| time.error)),
        optional(exact.map(|exact| exact.is_estimate)),
    ];
    for bounds in exact.map(|exact| exact.percentiles).unwrap_or_default() {
        cells.extend([optional(bounds.map(|(first, _)| first)), optional(bounds.map(|(_, last)| last))]);
    }
    cells.push(optional(exact.and_then(|exact| exact.ipc)));
    cells.push(match &program.exact {
        Err(unknown) => clean(&unknown.0),
        Ok(exact) => clean(&exact.flaws.join("; ")),
    });
    cells.push(clean(&program.disagreements.join("; ")));
    for at in 0..counting.events.len() {
        let event = exact.and_then(|exact| exact.events.get(at)?.as_ref().ok());
        cells.push(optional(event.map(|event| event.per_run.value)));
        cells.push(optional(event.and_then(|event| event.per_run.error)));
        cells.push(optional(event.map(|event| event.running)));
    }
    cells
}
