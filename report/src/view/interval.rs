//! An interval of a running recording, as a table.

use super::blocks::{Block, View};
use super::by_prog;
use super::cells::percent;
use crate::model::text::{counted, fixed, seconds, width_of};
use crate::model::{Interval, Known};

pub(super) fn view(interval: &Interval, width: usize) -> View<'_> {
    let report = &interval.report;
    let totals = totals(interval, width).into_iter().map(Block::Fact);
    let events = report.events.iter();
    let tables = events.flat_map(|event| by_prog::interval(report, event));
    View(totals.chain(tables).chain([Block::Gap]).collect())
}

/// Summary lines of the interval, wrapped to `width`: duration, samples, cost of all BPF, cost of counting runs, and CPU time of bprec itself.
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
            parts.push(format!("{lost} samples lost so far"));
        }
    }
    parts.extend(interval.counting_percent.map(|percent| format!("counting runs: ≈{} %", fixed(percent, 2))));
    parts.extend(interval.own_cpu_percent.map(|percent| format!("bprec itself: {} % of a CPU", fixed(percent, 2))));
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width_of(line) + SEPARATOR.len() + width_of(&part) <= width => {
                *line += &format!("{SEPARATOR}{part}")
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// Separator between facts on one line.
const SEPARATOR: &str = " · ";
