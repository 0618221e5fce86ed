//! An interval of a recording that is under way, as a table.

use super::cells::percent;
use super::screen::Screen;
use super::table;
use crate::model::text::{chars, counted, fixed, seconds};
use crate::model::{Interval, Known};
use std::io;

pub(super) fn table(interval: &Interval, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    totals(interval, width).iter().try_for_each(|line| writeln!(out, "# {line}"))?;
    for event in &interval.report.events {
        table::write_interval(&interval.report, event, out, width)?;
    }
    writeln!(out, "#")
}

/// Length of the interval, cost of all BPF and cost of watching, wrapped to lines of `width`.
pub(super) fn totals(interval: &Interval, width: usize) -> Vec<String> {
    let length_ns = interval.to_ns.saturating_sub(interval.from_ns);
    let mut parts = vec![format!("{} s", seconds(i64::try_from(length_ns).unwrap_or(i64::MAX)))];
    if let Some(event) = interval.report.events.first() {
        let over = interval.sampled_ns.map(|ns| format!(" in {} s", fixed(ns as f64 / 1e9, 1))).unwrap_or_default();
        parts.push(format!("{} of {}{over}", counted(event.samples.samples, "sample"), event.name));
        parts.push(match event.total.shares.machine {
            Some(machine) => format!("all BPF: {} % of this machine", percent(Some(machine))),
            None => format!("all BPF: {} % of the samples", percent(event.total.shares.samples)),
        });
        if let Known::Value(lost @ 1..) = event.lost {
            parts.push(format!("{lost} lost so far"));
        }
    }
    parts.extend(interval.counting_percent.map(|percent| format!("counting runs: ≈{} %", fixed(percent, 2))));
    parts.extend(interval.own_cpu_percent.map(|percent| format!("watching: {} % of a CPU", fixed(percent, 2))));
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if chars(line) + SEPARATOR.len() + chars(&part) <= width => {
                *line += &format!("{SEPARATOR}{part}")
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// Between two parts of a line.
const SEPARATOR: &str = " · ";
