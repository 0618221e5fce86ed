//! Options of a comparison of recordings.

use super::condition::Condition;
use super::{Error, ProgFilter, Result};
use std::fmt;
use std::str::FromStr;

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// Filters of programs: a program is selected if one filter matches; empty selects all.
    pub programs: Vec<ProgFilter>,
    /// Selected events; empty selects all sampling events.
    pub events: Vec<String>,
    /// Order of the rows.
    pub sort: DiffSort,
    /// Limit on the number of programs.
    pub limit: Option<usize>,
    /// True to show programs without samples and runs.
    pub all: bool,
    /// Confidence level of intervals, significance and conditions.
    pub confidence: Confidence,
    /// Conditions that make the comparison fail.
    pub conditions: Vec<Condition>,
    /// Number of threads that attribute samples; `None` for one per CPU. The result is the same for any number.
    pub threads: Option<usize>,
}

named! { DiffSort, "--sort",
    Cost = "cost",
    Share = "share",
    Runs = "runs/s",
    TimePerRun = "time/run",
    Name = "name",
    Type = "type",
    Status = "status",
}

/// Column that orders the rows: changes descending by size, names ascending. Ties are ordered by name, type and attach points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiffSort {
    /// Change of the cost.
    #[default]
    Cost,
    /// Change of the share of the machine.
    Share,
    /// Relative change of the runs per second.
    Runs,
    /// Relative change of the time per run.
    TimePerRun,
    /// Name of the program.
    Name,
    /// Type of the program.
    Type,
    /// Status: new and gone programs first, then new versions, then renamed programs.
    Status,
}

/// Confidence level, %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence(f64);

impl Confidence {
    /// Level in per cent.
    pub fn percent(self) -> f64 {
        self.0
    }

    /// Probability of a false alarm, from 0 to 1.
    pub(crate) fn error(self) -> f64 {
        (100.0 - self.0) / 100.0
    }
}

impl Default for Confidence {
    fn default() -> Confidence {
        Confidence(99.9)
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Confidence {
    type Err = Error;

    fn from_str(text: &str) -> Result<Confidence> {
        let number = text.trim().strip_suffix('%').unwrap_or(text).trim();
        let percent = number.parse::<f64>().ok().filter(|percent| (50.0..=99.999_999).contains(percent));
        let problem = "expected a percentage from 50 to 99.999999, like 99.9%";
        percent.map(Confidence).ok_or_else(|| Error::option("--confidence", text, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_in_per_cent() {
        assert_eq!("95%".parse::<Confidence>().unwrap(), "95".parse().unwrap());
        assert!((Confidence::default().error() - 0.001).abs() < 1e-12);
        for bad in ["", "0.95", "100", "49", "x", "nan", "-95"] {
            assert!(bad.parse::<Confidence>().is_err(), "{bad}");
        }
    }
}
