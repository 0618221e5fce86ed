//! Which rows a view shows, and what the rest adds up to.

use crate::{Charges, EventReport, Origin, Report, Row};

/// The rows of an event that are shown, and those that are not.
pub(super) struct Chosen<'r> {
    pub(super) shown: Vec<&'r Row>,
    /// Programs left out that have samples, and what is charged to them.
    pub(super) rest: usize,
    pub(super) rest_charges: Charges,
    /// Programs left out because nothing happened to them.
    pub(super) quiet: usize,
}

pub(super) fn choose<'r>(report: &Report, event: &'r EventReport) -> Chosen<'r> {
    let options = &report.shown;
    let mut chosen = Chosen { shown: Vec::new(), rest: 0, rest_charges: Charges::default(), quiet: 0 };
    for row in &event.rows {
        let asked = options.asked.as_ref().map(|asked| asked[row.program]);
        let loud = options.all || asked == Some(true) || happened(report, row);
        let room = options.limit.is_none_or(|limit| chosen.shown.len() < limit);
        if asked != Some(false) && loud && room {
            chosen.shown.push(row);
        } else if row.charges.total.samples > 0 || row.charges.sum().samples > 0 {
            chosen.rest += 1;
            chosen.rest_charges.merge(&row.charges);
        } else {
            chosen.quiet += 1;
        }
    }
    chosen
}

/// Samples or runs; where runs are not known, also that the program came or went. A program that is not in the recording is
/// listed among the missed.
fn happened(report: &Report, row: &Row) -> bool {
    let program = &report.programs[row.program];
    if row.charges.total.samples > 0 || row.charges.sum().samples > 0 {
        return true;
    }
    if program.exact.as_ref().is_ok_and(|exact| exact.runs > 0) {
        return true;
    }
    match &program.runs {
        Ok(runs) => runs.count > 0 || runs.misses.is_some_and(|misses| misses > 0),
        Err(_) => {
            program.captured
                && (program.loaded.is_some()
                    || program.unloaded.is_some_and(|origin| match origin {
                        // What was gone before the recording started is no part of it.
                        Origin::At(time) | Origin::Between(_, time) => time >= 0,
                    }))
        }
    }
}
