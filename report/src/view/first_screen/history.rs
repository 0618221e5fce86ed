//! Cost over time on the screen of `bprec top`: shares of earlier intervals by run statistics.

use super::{FirstScreen, Flag, MAX_FLAGS};
use crate::model::text::clean;
use crate::model::{History, Program, Report};

impl FirstScreen {
    /// Replaces the series by shares from run statistics, and the marks by the loads and unloads in the same time, if any of these shares is above 0.
    pub(super) fn add_history(&mut self, report: &Report, history: &History) {
        let length = history.intervals();
        let series = |program: &Program| {
            let shares = history.of(program);
            let missing = length.saturating_sub(shares.len());
            let shares = shares.map(|share| share.unwrap_or(0.0));
            std::iter::repeat_n(0.0, missing).chain(shares).collect::<Vec<f64>>()
        };
        let mut others = vec![0.0; length];
        let is_shown = |at: usize| self.programs.iter().any(|row| row.program == Some(at));
        let hidden = report.programs.iter().enumerate().filter(|(at, _)| !is_shown(*at));
        for (_, program) in hidden {
            others.iter_mut().zip(series(program)).for_each(|(sum, share)| *sum += share);
        }
        let of_rows: Vec<Vec<f64>> = self
            .programs
            .iter()
            .map(|row| match row.program {
                Some(program) => series(&report.programs[program]),
                None if row.is_folded => others.clone(),
                None => vec![0.0; length],
            })
            .collect();
        if of_rows.iter().flatten().any(|share| *share > 0.0) {
            let rows = self.programs.iter_mut().zip(of_rows);
            rows.for_each(|(row, series)| row.series = history.over_time(&series));
            (self.series_from_s, self.series_s) = (0.0, history.length_ns() as f64 / 1e9);
            let shown = self.programs.iter().filter_map(|row| Some(&report.programs[row.program?]));
            let flags = shown.flat_map(|program| {
                let marks = history.loads(program).zip(["loaded", "unloaded"]);
                marks.filter_map(move |(at_ns, what)| {
                    Some(Flag { at_s: at_ns? as f64 / 1e9, text: clean(&format!("{} {what}", program.label())) })
                })
            });
            self.flags = flags.take(MAX_FLAGS).collect();
        }
    }
}
