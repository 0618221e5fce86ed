//! Advice as text.

use super::blocks::{Block, View, note};
use super::columns::{Field, Fields};
use super::screen::Screen;
use crate::model::{Advice, EventFinding};
use std::io;

pub(super) fn view(report: &Advice, _: usize) -> View<'_> {
    let mut view = View::default();
    if report.findings.is_empty() {
        view.push(Block::Text("no findings".to_owned()));
    }
    for (nth, found) in (1..).zip(&report.findings) {
        view.push(Block::Heading(format!("{nth}. {}, by {}", found.finding.code(), found.event)));
        view.push(Block::Note(found.measured(), None));
        view.push(Block::Note(found.finding.to_string(), None));
    }
    view.0.extend(report.problems.iter().map(note));
    view
}

pub(super) fn csv(report: &Advice, out: &mut Screen<'_>) -> io::Result<()> {
    let fields = [
        Field::csv("event", |found: &&EventFinding| Some(found.event.clone())),
        Field::csv("finding", |found: &&EventFinding| Some(found.finding.code())),
        Field::csv("cost_machine_percent", |found: &&EventFinding| found.cost.machine_percent),
        Field::csv("cost_samples", |found: &&EventFinding| Some(found.cost.samples)),
        Field::csv("saves_machine_percent", |found: &&EventFinding| found.saves.machine_percent),
        Field::csv("saves_samples", |found: &&EventFinding| Some(found.saves.samples)),
        Field::csv("text", |found: &&EventFinding| Some(found.finding.to_string())),
    ];
    Fields::new(fields).write_csv(&report.findings, out)
}
