//! Findings of the advice, as text and as CSV.

use super::blocks::{Block, View, note};
use super::columns::{LineColumn, LineColumns};
use super::screen::Screen;
use crate::model::{Advice, EventFinding};
use std::io;

pub(super) fn view(report: &Advice, _: usize) -> View<'_> {
    let mut view = View::default();
    if report.findings.is_empty() {
        view.push(Block::Text("no findings".to_owned()));
    }
    for (nth, found) in (1..).zip(&report.findings) {
        view.push(Block::Heading(format!("{nth}. {}, by {}", found.finding.title(), found.event)));
        view.push(Block::Note(found.measured(), None));
        view.push(Block::Note(found.finding.to_string(), None));
    }
    view.0.extend(report.problems.iter().map(note));
    view
}

pub(super) fn csv(report: &Advice, out: &mut Screen<'_>) -> io::Result<()> {
    let fields = [
        LineColumn::csv("event", |found: &&EventFinding| Some(found.event.clone())),
        LineColumn::csv("finding", |found: &&EventFinding| Some(found.finding.code())),
        LineColumn::csv("cost_machine_percent", |found: &&EventFinding| found.cost.machine_percent),
        LineColumn::csv("cost_samples", |found: &&EventFinding| Some(found.cost.samples)),
        LineColumn::csv("saves_machine_percent", |found: &&EventFinding| found.saves.machine_percent),
        LineColumn::csv("saves_samples", |found: &&EventFinding| Some(found.saves.samples)),
        LineColumn::csv("text", |found: &&EventFinding| Some(found.finding.to_string())),
    ];
    LineColumns::new(fields).write_csv(&report.findings, out)
}
