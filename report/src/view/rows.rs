//! Which rows a view shows, and what the rest adds up to.

use crate::{Charges, EventReport, Origin, Report, Row};

/// The rows of an event that are shown, and those that are not.
pub(super) struct Chosen<'r> {
    pub(super) shown: Vec<&'r Row>,
    /// Programs left out that have samples, and what is charged to them.
    pub(super) rest: usize,
    pub(super) rest_charges: Charges,
    /// Programs that count others, left out, and what is charged to them.
    pub(super) counting: usize,
    pub(super) counting_charges: Charges,
    /// Programs left out because nothing happened to them.
    pub(super) quiet: usize,
}

/// Which rows are shown. With `fold`, those of programs that count others are put together.
pub(super) fn choose<'r>(report: &Report, event: &'r EventReport, fold: bool) -> Chosen<'r> {
    let options = &report.shown;
    let mut chosen = Chosen {
        shown: Vec::new(),
        rest: 0,
        rest_charges: Charges::default(),
        counting: 0,
        counting_charges: Charges::default(),
        quiet: 0,
    };
    for row in &event.rows {
        let asked = options.asked.as_ref().map(|asked| asked[row.program]);
        let loud = options.all || asked == Some(true) || happened(report, row);
        let room = options.limit.is_none_or(|limit| chosen.shown.len() < limit);
        let has_samples = row.charges.total.samples > 0 || row.charges.sum().samples > 0;
        if fold && report.programs[row.program].counts_others() && asked.is_none() && !options.all {
            // There are two for each program that is counted: together they say what counting takes.
            chosen.counting += usize::from(has_samples);
            chosen.counting_charges.merge(&row.charges);
        } else if asked != Some(false) && loud && room {
            chosen.shown.push(row);
        } else if has_samples {
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
