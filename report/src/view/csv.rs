//! Comma-separated values (RFC 4180, but lines end in a plain newline): what is not known is an empty field.

use super::rows::choose;
use super::text::{clean, owners, share};
use crate::{Charges, Count, EventReport, Origin, Program, Report};
use std::io::{self, Write};

const COLUMNS: [&str; 29] = [
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
];

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))?;
    for event in &report.events {
        let chosen = choose(report, event);
        for row in chosen.shown {
            let program = &report.programs[row.program];
            let blind = row.blind.is_some() && row.charges.total.samples == 0;
            let charges = if blind { None } else { Some(&row.charges) };
            Line::new(event, "program").program(program).charges(charges, true).facts(program).write(out)?;
            for part in &row.parts {
                let line = Line::new(event, "part").program(program).set("part", clean(&part.name));
                line.charges(Some(&part.charges), part.has_total).write(out)?;
            }
        }
        let rest = chosen.rest_charges;
        if chosen.rest > 0 {
            Line::new(event, "others").charges(Some(&rest), false).write(out)?;
        }
        Line::new(event, "entry").count(event.entry).write(out)?;
        Line::new(event, "interpreted").count(event.interpreted).write(out)?;
        if let Some(unresolved) = event.unresolved {
            Line::new(event, "unresolved").count(unresolved).write(out)?;
        }
        Line::new(event, "total").count(event.bpf()).write(out)?;
        Line::new(event, "samples").pair(["samples", "weight"], Some(event.samples)).write(out)?;
        Line::new(event, "idle").pair(["samples", "weight"], event.idle).write(out)?;
        if let Some(lost) = event.lost {
            Line::new(event, "lost").set("samples", lost.to_string()).write(out)?;
        }
    }
    Ok(())
}

/// A line being filled in.
struct Line<'e> {
    event: &'e EventReport,
    cells: [String; COLUMNS.len()],
}

impl<'e> Line<'e> {
    fn new(event: &'e EventReport, kind: &str) -> Line<'e> {
        Line { event, cells: Default::default() }.set("event", clean(&event.name)).set("kind", kind.into())
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

    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let quoted = self.cells.map(|cell| {
            if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
        });
        writeln!(out, "{}", quoted.join(","))
    }
}
