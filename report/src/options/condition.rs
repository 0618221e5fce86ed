//! Conditions of `--fail-if`: programs, metric and bound (grammar: docs/diff.md).

use crate::{Error, Result};
use bprec_filter::Glob;
use schemars::JsonSchema;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A condition of `--fail-if`: the comparison fails if the metric of a selected program is beyond the bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Text of the condition, as given on the command line.
    text: String,
    pub(crate) selector: Selector,
    pub(crate) metric: DiffMetric,
    /// Event of [`DiffMetric::EventPerRun`].
    pub(crate) event: Option<String>,
    pub(crate) bound: Bound,
}

/// Selection of the programs that a condition judges, each by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selector {
    /// Programs whose name matches the glob pattern.
    Name(String),
    /// Programs whose type matches the glob pattern.
    Type(String),
    /// Programs that have an owner with a matching name. Owners are the processes that hold the program.
    Owner(String),
    /// The sum of all programs.
    Total,
}

/// Kind of a compared number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DiffMetric {
    /// Share of the machine, %.
    #[serde(rename = "share")]
    Share,
    /// Cost per second and CPU: ns for clocks, otherwise events.
    #[serde(rename = "cost")]
    Cost,
    /// Runs per second, on all CPUs.
    #[serde(rename = "runs/s")]
    RunsPerSecond,
    /// Time per run by run statistics, ns: mean over the intervals, without the highest third. With too few intervals, mean over all runs.
    #[serde(rename = "time/run")]
    TimePerRun,
    /// Time per run by run statistics, ns: mean over all runs.
    #[serde(rename = "mean-time/run")]
    MeanTimePerRun,
    /// Weight per run, estimated from samples and runs.
    #[serde(rename = "event/run")]
    EventPerRun,
    /// Samples per recording.
    #[serde(rename = "samples")]
    Samples,
    /// Lost samples, % of all.
    #[serde(rename = "lost")]
    Lost,
}

/// Limit on the new value of a metric. The comparison fails if the whole confidence interval of the value (or of its change) is beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// True for a limit on the change: `limit` is a multiple of the base, 1.05 for `+5%` and 0.95 for `-5%`. False for a limit in the unit of the
    /// metric.
    pub(crate) is_relative: bool,
    /// True if values above the limit fail, false if values below the limit fail.
    pub(crate) is_upper: bool,
    pub(crate) limit: f64,
}

impl Selector {
    /// Returns true if the selector selects this program. [`Selector::Total`] selects no single program.
    pub(crate) fn matches(&self, name: &str, prog_type: &str, owners: &[String]) -> bool {
        match self {
            Selector::Name(pattern) => Glob::new(pattern).matches(name),
            Selector::Type(pattern) => Glob::new(pattern).matches(prog_type),
            Selector::Owner(pattern) => {
                let pattern = Glob::new(pattern);
                owners.iter().any(|owner| pattern.matches(owner))
            }
            Selector::Total => false,
        }
    }
}

impl DiffMetric {
    /// Returns true if the metric is a number of samples, recorded or lost: such a number is exact, other metrics are estimates.
    pub(crate) fn is_count(self) -> bool {
        matches!(self, DiffMetric::Samples | DiffMetric::Lost)
    }
}

worded_by_json! { DiffMetric }

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Condition> {
        let mut cursor = Cursor { text, at: 0 };
        let parsed = condition(&mut cursor);
        parsed.map_err(|fault| fault.in_text(text))
    }
}

/// Error in the text of a condition, with its byte offset in the text.
struct Fault {
    at: usize,
    problem: String,
}

impl Fault {
    /// Returns an error with the text of the condition, and a caret below the fault.
    fn in_text(self, text: &str) -> Error {
        let before = text[..self.at].chars().count();
        // The format `{:width$}` allows at most 65,535 blanks, but a text can be longer.
        let blanks = " ".repeat(before);
        let problem = format!("{} at character {}\n  {text}\n  {blanks}^", self.problem, before + 1);
        Error::option("--fail-if", text, problem)
    }
}

struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn fault<T>(&self, problem: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { at: self.at, problem: problem.into() })
    }

    /// Skips blanks, and returns the text up to the next blank.
    fn word(&mut self) -> &'t str {
        self.skip_blanks();
        let rest = self.rest();
        let word = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }
}

fn condition(cursor: &mut Cursor<'_>) -> Result<Condition, Fault> {
    let selector = selector(cursor)?;
    cursor.skip_blanks();
    let metric_at = cursor.at;
    let (metric, event) = metric(cursor)?;
    if metric == DiffMetric::Lost && selector != Selector::Total {
        return Err(Fault {
            at: metric_at,
            problem: "lost samples are counted for all programs together: write `total lost …`".into(),
        });
    }
    let is_of_runs = matches!(
        metric,
        DiffMetric::RunsPerSecond | DiffMetric::TimePerRun | DiffMetric::MeanTimePerRun | DiffMetric::EventPerRun
    );
    if selector == Selector::Total && is_of_runs {
        return Err(Fault {
            at: metric_at,
            problem: "`total` has no runs: conditions on runs apply to one program".into(),
        });
    }
    let bound = bound(cursor, metric)?;
    cursor.skip_blanks();
    if !cursor.rest().is_empty() {
        return cursor.fault("expected the end of the condition");
    }
    Ok(Condition { text: cursor.text.trim().to_owned(), selector, metric, event, bound })
}

fn selector(cursor: &mut Cursor<'_>) -> Result<Selector, Fault> {
    const EXPECTED: &str = "expected prog:NAME, type:TYPE, owner:NAME or total";
    cursor.skip_blanks();
    if let Some(rest) = cursor.rest().strip_prefix("total")
        && rest.starts_with(|c: char| c.is_whitespace())
    {
        cursor.at += "total".len();
        return Ok(Selector::Total);
    }
    let Some(kind) = ["prog:", "type:", "owner:"].into_iter().find(|kind| cursor.rest().starts_with(kind)) else {
        return cursor.fault(EXPECTED);
    };
    cursor.at += kind.len();
    let pattern = pattern(cursor)?;
    Ok(match kind {
        "prog:" => Selector::Name(pattern),
        "type:" => Selector::Type(pattern),
        _ => Selector::Owner(pattern),
    })
}

/// Reads a pattern: the text up to the next blank, or a text in quotes.
fn pattern(cursor: &mut Cursor<'_>) -> Result<String, Fault> {
    if let Some(quoted) = cursor.rest().strip_prefix('"') {
        let Some(end) = quoted.find('"') else { return cursor.fault("expected a closing quote") };
        cursor.at += end + 2;
        return Ok(quoted[..end].to_owned());
    }
    if cursor.rest().starts_with(|c: char| c.is_whitespace()) || cursor.rest().is_empty() {
        return cursor.fault("expected a name, or a pattern with * and ?");
    }
    Ok(cursor.word().to_owned())
}

/// Reads a metric and, for [`DiffMetric::EventPerRun`], the name of its event.
fn metric(cursor: &mut Cursor<'_>) -> Result<(DiffMetric, Option<String>), Fault> {
    let at = cursor.at;
    let word = cursor.word();
    match DiffMetric::deserialize(StrDeserializer::<serde::de::value::Error>::new(word)) {
        Ok(metric) if metric != DiffMetric::EventPerRun => Ok((metric, None)),
        _ => match word.strip_suffix("/run").filter(|event| !event.is_empty()) {
            Some(event) => Ok((DiffMetric::EventPerRun, Some(event.to_owned()))),
            None => {
                let problem =
                    "expected share, cost, runs/s, time/run, mean-time/run, EVENT/run, samples or lost".into();
                Err(Fault { at, problem })
            }
        },
    }
}

fn bound(cursor: &mut Cursor<'_>, metric: DiffMetric) -> Result<Bound, Fault> {
    cursor.skip_blanks();
    let sign_at = cursor.at;
    let Some(sign) = cursor.rest().chars().next().filter(|sign| "+-<>".contains(*sign)) else {
        return cursor.fault("expected a bound: +5%, -5%, > 2us or < 100");
    };
    cursor.at += 1;
    let is_relative = matches!(sign, '+' | '-');
    if is_relative && metric.is_count() {
        return Err(Fault { at: sign_at, problem: "samples and lost accept only bounds with > and <".into() });
    }
    if !is_relative {
        cursor.skip_blanks();
    }
    let number = number(cursor)?;
    let unit_at = cursor.at;
    let unit = cursor.word();
    if is_relative {
        if unit != "%" {
            return Err(Fault { at: unit_at, problem: "expected % directly after the number".into() });
        }
        if sign == '-' && number > 100.0 {
            return Err(Fault { at: sign_at, problem: "nothing can fall by more than 100%".into() });
        }
        let factor = if sign == '+' { 1.0 + number / 100.0 } else { 1.0 - number / 100.0 };
        return Ok(Bound { is_relative, is_upper: sign == '+', limit: factor });
    }
    let Some(scale) = scale(unit, metric) else {
        let units = match metric {
            DiffMetric::Share | DiffMetric::Lost => "% or no unit",
            DiffMetric::TimePerRun | DiffMetric::MeanTimePerRun | DiffMetric::Cost => {
                "ns, us, ms, s, k, M, G or no unit"
            }
            _ => "k, M, G or no unit",
        };
        return Err(Fault { at: unit_at, problem: format!("expected a unit: {units}") });
    };
    let value = number * scale;
    Ok(Bound { is_relative, is_upper: sign == '>', limit: value })
}

fn number(cursor: &mut Cursor<'_>) -> Result<f64, Fault> {
    let rest = cursor.rest();
    let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len())];
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && digits.len() <= 20 => {
            cursor.at += digits.len();
            Ok(number)
        }
        _ => cursor.fault("expected a number"),
    }
}

/// Returns the factor from `unit` to the unit of the metric; `None` if the metric does not accept `unit`.
fn scale(unit: &str, metric: DiffMetric) -> Option<f64> {
    let is_time = matches!(metric, DiffMetric::TimePerRun | DiffMetric::MeanTimePerRun | DiffMetric::Cost);
    let is_share = matches!(metric, DiffMetric::Share | DiffMetric::Lost);
    match unit {
        "" => Some(1.0),
        "%" if is_share => Some(1.0),
        "ns" if is_time => Some(1.0),
        "us" | "µs" if is_time => Some(1e3),
        "ms" if is_time => Some(1e6),
        "s" if is_time => Some(1e9),
        "k" if !is_share => Some(1e3),
        "M" if !is_share => Some(1e6),
        "G" if !is_share => Some(1e9),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Selector, DiffMetric, Bound) {
        let Condition { selector, metric, bound, .. } = text.parse().unwrap();
        (selector, metric, bound)
    }

    fn relative(is_upper: bool, limit: f64) -> Bound {
        Bound { is_relative: true, is_upper, limit }
    }

    fn absolute(is_upper: bool, limit: f64) -> Bound {
        Bound { is_relative: false, is_upper, limit }
    }

    #[test]
    fn conditions_are_read() {
        let name = |name: &str| Selector::Name(name.into());
        assert_eq!(parsed("prog:tcp_* time/run +5%"), (name("tcp_*"), DiffMetric::TimePerRun, relative(true, 1.05)));
        assert_eq!(parsed(" prog:x  time/run > 2us "), (name("x"), DiffMetric::TimePerRun, absolute(true, 2_000.0)));
        assert_eq!(parsed("prog:\"a b\" runs/s -25%"), (name("a b"), DiffMetric::RunsPerSecond, relative(false, 0.75)));
        assert_eq!(
            parsed("type:xdp share >1.5%"),
            (Selector::Type("xdp".into()), DiffMetric::Share, absolute(true, 1.5))
        );
        assert_eq!(
            "owner:cilium* instructions:k/run > 3k".parse::<Condition>().unwrap(),
            Condition {
                text: "owner:cilium* instructions:k/run > 3k".into(),
                selector: Selector::Owner("cilium*".into()),
                metric: DiffMetric::EventPerRun,
                event: Some("instructions:k".into()),
                bound: absolute(true, 3_000.0),
            }
        );
        assert_eq!(parsed("total lost > 1%"), (Selector::Total, DiffMetric::Lost, absolute(true, 1.0)));
        assert_eq!(parsed("total samples < 1k"), (Selector::Total, DiffMetric::Samples, absolute(false, 1_000.0)));
        assert_eq!(parsed("total cost +0%"), (Selector::Total, DiffMetric::Cost, relative(true, 1.0)));
        assert_eq!("prog:x cost > 5ms".parse::<Condition>().unwrap().to_string(), "prog:x cost > 5ms");
    }

    #[test]
    fn a_condition_of_any_length_is_an_error() {
        let text = format!("prog:{} cost", "x".repeat(70_000));
        let error = text.parse::<Condition>().unwrap_err().to_string();
        let caret = error.lines().last().unwrap();
        assert_eq!(caret.len(), 2 + text.len() + 1, "{}", &error[..80]);
    }

    /// In the error, the caret is below the invalid character.
    #[test]
    fn errors_point_at_the_place() {
        for (text, at, said) in [
            ("", 1, "prog:NAME"),
            ("programm:x time/run +5%", 1, "prog:NAME"),
            ("totals cost +1%", 1, "total"),
            ("prog: time/run +5%", 6, "a name"),
            ("prog:\"x time/run +5%", 6, "closing quote"),
            ("prog:x time +5%", 8, "EVENT/run"),
            ("prog:ü time +5%", 8, "EVENT/run"),
            ("prog:x /run +5%", 8, "EVENT/run"),
            ("prog:x time/run 5%", 17, "a bound"),
            ("prog:x time/run +x%", 18, "a number"),
            ("prog:x time/run +5", 19, "%"),
            ("prog:x time/run +5us", 19, "%"),
            ("prog:x time/run > 2kg", 20, "unit"),
            ("prog:x share > 2us", 17, "unit"),
            ("prog:x time/run +5% more", 21, "the end"),
            ("prog:x time/run -101%", 17, "100%"),
            ("prog:x samples +5%", 16, "> and <"),
            ("prog:x lost > 1%", 8, "total lost"),
            ("total time/run > 1us", 7, "to one program"),
            ("prog:x time/run > 1.2.3us", 19, "a number"),
        ] {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert!(error.contains(&format!("at character {at}\n")) && error.contains(said), "{text}: {error}");
            let caret = error.lines().last().unwrap();
            assert_eq!(caret.chars().count(), at + 2, "{error}");
        }
    }
}
