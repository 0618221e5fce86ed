//! Advice as text.

use super::line::Line;
use super::screen::Screen;
use super::{write_wrapped, write_wrapped_in};
use crate::model::Advice;
use crate::options::Tone;
use std::io;

pub(super) fn text(report: &Advice, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    if report.findings.is_empty() {
        writeln!(out, "no findings")?;
    }
    for (nth, found) in (1..).zip(&report.findings) {
        let event = found.event.as_ref().map(|event| format!(", by {event}")).unwrap_or_default();
        out.line(&Line::of(Tone::Bold, format!("{nth}. {}{event}", found.finding.code())))?;
        write_wrapped_in(None, &found.finding.to_string(), out, width)?;
    }
    report.problems.iter().try_for_each(|problem| write_wrapped(problem, out, width))
}

pub(super) fn csv(report: &Advice, out: &mut Screen<'_>) -> io::Result<()> {
    out.values(["event", "finding", "text"].map(str::to_owned), ",")?;
    report.findings.iter().try_for_each(|found| {
        let event = found.event.clone().unwrap_or_default();
        out.values([event, found.finding.code().to_owned(), found.finding.to_string()], ",")
    })
}
