//! Options of a comparison of recordings.

use super::condition::Condition;
use super::{Error, ProgFilter, Result};
use std::fmt;
use std::str::FromStr;

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// Only programs that one of these matches; empty: all.
    pub programs: Vec<ProgFilter>,
    /// Only these events; empty: all that sample.
    pub events: Vec<String>,
    /// Order of the rows.
    pub sort: DiffSort,
    /// At most this many programs.
    pub limit: Option<usize>,
    /// Also programs without samples or runs.
    pub all: bool,
    /// Confidence of intervals, of what is significant, and of conditions.
    pub confidence: Confidence,
    /// When the comparison fails.
    pub conditions: Vec<Condition>,
    /// Threads that charge samples; `None`: as many as the machine has CPUs. The comparison does not depend on it.
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

/// Column that orders the rows: by how much it changed, the largest change first; names upwards. Ties are broken by name, type and where
/// programs are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiffSort {
    /// Change of the cost.
    #[default]
    Cost,
    /// Change of the share of the machine.
    Share,
    /// Change of the runs per second, relative.
    Runs,
    /// Change of the time per run, relative.
    TimePerRun,
    /// Name.
    Name,
    /// Type.
    Type,
    /// New and gone programs first, then new versions and renamed ones.
    Status,
}

/// Confidence level, per cent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence(f64);

impl Confidence {
    /// In per cent.
    pub fn percent(self) -> f64 {
        self.0
    }

    /// Probability of a false alarm by chance.
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
