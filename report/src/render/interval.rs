//! An interval of a recording that is under way, as a table.

use super::cells::percent;
use super::screen::Screen;
use super::table::{self, Rates};
use super::write_notes;
use crate::model::text::{counted, fixed, seconds};
use crate::model::{Interval, Known};
use std::io;

pub(super) fn table(interval: &Interval, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    writeln!(out, "# {}", totals(interval))?;
    for event in interval.report.events.iter().filter(|event| event.same_rows_as.is_none()) {
        table::sheet(&interval.report, event, Rates::PerSecond).write(out, width)?;
        write_notes(&event.notes.iter().map(ToString::to_string).collect::<Vec<_>>(), out, width)?;
    }
    writeln!(out, "#")
}

/// How long the interval was, what all of BPF took, and what watching took.
pub(super) fn totals(interval: &Interval) -> String {
    let length_ns = interval.to_ns.saturating_sub(interval.from_ns);
    let mut parts = vec![format!("{} s", seconds(i64::try_from(length_ns).unwrap_or(i64::MAX)))];
    if let Some(event) = interval.report.events.first() {
        parts.push(format!("{} of {}", counted(event.samples.samples, "sample"), event.name));
        parts.push(match event.total.shares.machine {
            Some(machine) => format!("all BPF: {} % of this machine", percent(Some(machine))),
            None => format!("all BPF: {} % of the samples", percent(event.total.shares.samples)),
        });
        if let Known::Value(lost @ 1..) = event.lost {
            parts.push(format!("{lost} lost so far"));
        }
    }
    parts.extend(interval.own_cpu_percent.map(|percent| format!("watching: {} % of a CPU", fixed(percent, 2))));
    parts.join(" · ")
}
