//! Named queries, and queries from a file.

use crate::answer::Answer;
use crate::engine::{Engine, EngineChoice, quoted};
use crate::lake::{Lake, NO_DAYS};
use crate::regressed::{self, RegressedOptions};
use crate::rows::{Date, FIRST_DAY, LAST_DAY, date, label};
use anyhow::{Context, Result, ensure};
use chrono::TimeDelta;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Default count of base days: four of each weekday.
const BASE_DAYS: i32 = 28;
const DAY: TimeDelta = TimeDelta::days(1);
/// Count of the newest days of a lake in which [`last_days`] searches for the last complete day and the first day of a canary.
const RECENT_DAYS: usize = 35;

/// Named query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Question {
    /// Programs by CPU time.
    Top,
    /// Versions of each program, by kernel.
    Versions,
    /// Hosts by CPU time of all their programs.
    Hosts,
    /// Programs whose time per run changed.
    Regressed,
    /// Counters by processor model.
    Counters,
    /// Functions by samples.
    Functions,
    /// Owners of programs by their bills.
    Owners,
}

impl Question {
    /// SQL text with placeholders such as `${since}`, the same for all engines, and the table that `--where` applies to.
    fn sql(self) -> (&'static str, &'static str) {
        match self {
            Question::Top => (include_str!("../sql/top.sql"), "run_stats"),
            Question::Versions => (include_str!("../sql/versions.sql"), "run_stats"),
            Question::Hosts => (include_str!("../sql/hosts.sql"), "run_stats"),
            Question::Regressed => (include_str!("../sql/regressed.sql"), "run_stats"),
            Question::Counters => (include_str!("../sql/counters.sql"), "counter"),
            Question::Functions => (include_str!("../sql/functions.sql"), "sample"),
            Question::Owners => (include_str!("../sql/owners.sql"), "bill"),
        }
    }

    /// Name on the command line and in the output.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Lake and rows that queries read, the comparison of `regressed`, the engine, and the limit on answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Scope {
    /// Directory of the lake, or `s3://BUCKET/PREFIX`.
    #[arg(long, value_name = "LAKE")]
    pub(crate) lake: PathBuf,
    /// First day (UTC).
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
    pub(crate) since: Option<Date>,
    /// Last day.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
    pub(crate) until: Option<Date>,
    /// Select hosts with this label; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) regressed: RegressedOptions,
    #[command(flatten)]
    pub(crate) choice: EngineChoice,
    /// SQL condition on the rows of the table.
    #[arg(skip)]
    pub(crate) condition: Option<String>,
    #[arg(skip)]
    pub(crate) limit: usize,
}

impl Scope {
    /// First and last day.
    pub(crate) fn days(&self) -> (Date, Date) {
        (self.since.unwrap_or(FIRST_DAY), self.until.unwrap_or(LAST_DAY))
    }

    /// Returns the engine with the committed files of these days, and with only the rows of a table that meet the conditions.
    pub(crate) fn engine(&self, days: (Date, Date), table: &str) -> Result<Box<dyn Engine>> {
        let mut engine = self.choice.open(&Lake::open(&self.lake, days)?)?;
        for condition in self.labels.iter().map(has_label).chain(self.condition.clone()) {
            engine.narrow(table, &condition)?;
        }
        Ok(engine)
    }
}

/// Runs a query from a file.
///
/// # Errors
/// Fails if a file of the lake is missing or damaged, or if the query is not valid.
pub(crate) fn ask_file(file: &Path, scope: &Scope) -> Result<Answer> {
    let sql = fs_err::read_to_string(file)?;
    let engine = scope.choice.open(&Lake::open(&scope.lake, scope.days())?)?;
    engine.ask(&sql).with_context(|| format!("query {}", file.display()))
}

/// Runs a named query.
///
/// # Errors
/// Fails if a file of the lake is missing or damaged, or if a condition is not valid.
pub(crate) fn ask(question: Question, scope: &Scope) -> Result<Answer> {
    let (sql, table) = question.sql();
    match question {
        Question::Regressed => regressed(scope),
        _ => scope.engine(scope.days(), table)?.ask(&filled_in(sql, scope.days(), scope.limit)),
    }
}

/// SQL condition for a label, on the JSON object of all labels.
fn has_label((key, value): &(String, String)) -> String {
    let entry = serde_json::json!({ key: value }).to_string();
    format!("contains(labels, {})", quoted(entry.trim_start_matches('{').trim_end_matches('}')))
}

/// Compares days with base days.
fn regressed(scope: &Scope) -> Result<Answer> {
    let (until, since) = last_days(scope)?;
    ensure!(since <= until, "--since {since} is after --until {until}");
    let base_until = scope.regressed.base_until.unwrap_or(since - DAY);
    let base_since = scope.regressed.base_since.unwrap_or(base_until - DAY * (BASE_DAYS - 1)).max(FIRST_DAY);
    ensure!(
        base_since <= base_until && base_until < since,
        "the base days, {base_since} to {base_until}, must end before {since}"
    );
    let (sql, table) = Question::Regressed.sql();
    let engine = scope.engine((base_since, until), table)?;
    let sql = filled_in(sql, (since, until), scope.limit);
    let values = [
        ("${base_since}", base_since.to_string()),
        ("${base_until}", base_until.to_string()),
        ("${min_runs}", scope.regressed.min_runs.max(1).to_string()),
    ];
    let sql = values.iter().fold(sql, |sql, (name, value)| sql.replace(name, value));
    let (parts, mut days) = (engine.parts(table)?, Answer::default());
    for part in 0..parts {
        // The cohort is replaced last, because a version label may contain the text of a placeholder.
        let sql = sql.replace("${keys}", &keys(part, parts)).replace("${cohort}", &scope.regressed.cohort());
        let answer = engine.ask(&sql)?;
        days.columns = answer.columns;
        days.rows.extend(answer.rows);
    }
    regressed::judge(&days, &scope.regressed, scope.limit)
}

/// SQL condition for a part of the programs. Keys are hexadecimal digits of hashes, so ranges of their first digits have about the same number of
/// programs.
fn keys(part: usize, parts: usize) -> String {
    let digits = |part| format!("{:04x}", part * 0x1_0000 / parts);
    let end = if part + 1 == parts { "g".to_owned() } else { digits(part + 1) };
    format!("prog_key >= '{}' AND prog_key < '{end}'", digits(part))
}

/// Returns the last and the first of the days that are compared with base days. By default, these are the last seven days, or fewer if the lake would
/// have less than a week of base days before them. With a canary, they begin at the earliest on the first day of the new version.
fn last_days(scope: &Scope) -> Result<(Date, Date)> {
    if let (Some(until), Some(since)) = (scope.until, scope.since) {
        return Ok((until, since));
    }
    let mut days = Lake::open(&scope.lake, NO_DAYS)?.days();
    days.retain(|day| *day <= scope.until.unwrap_or(LAST_DAY));
    let none = || format!("{}: has no recordings of these days", scope.lake.display());
    let (first, last) = (*days.first().with_context(none)?, *days.last().with_context(none)?);
    let recent = days[days.len().saturating_sub(RECENT_DAYS)];
    let lake = Lake::open(&scope.lake, (recent, last))?;
    let mut recordings: BTreeMap<Date, u64> = BTreeMap::new();
    lake.batches.iter().for_each(|batch| *recordings.entry(batch.date).or_default() += batch.recordings);
    // The newest days are ignored if they have few recordings: these come from hosts with clocks that are ahead.
    let least = recordings.values().max().with_context(none)? / 10;
    let complete = || recordings.iter().rev().find(|(_, count)| **count >= least).map(|(date, _)| *date);
    let until = scope.until.or_else(complete).with_context(none)?;
    if let Some(since) = scope.since {
        return Ok((until, since));
    }
    let week = (until - DAY * 6).max(first + DAY * 7).min(until);
    let Some(canary) = &scope.regressed.canary else { return Ok((until, week)) };
    let new = quoted(&canary.new);
    let sql = format!("SELECT MIN(date) AS first FROM run_stats WHERE COALESCE(version_label, tag) = {new}");
    let answer = scope.choice.open(&lake)?.ask(&sql)?;
    let first = answer.rows.first().and_then(|row| row.first()?.text()).map(date).transpose()?;
    Ok((until, week.max(first.unwrap_or(week)).min(until)))
}

/// Replaces the placeholders of the days and the limit. These values need no escapes.
fn filled_in(sql: &str, days: (Date, Date), limit: usize) -> String {
    let values = [("${since}", days.0.to_string()), ("${until}", days.1.to_string()), ("${limit}", limit.to_string())];
    values.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
}

#[cfg(test)]
mod tests {
    use super::keys;

    #[test]
    fn parts_have_each_program_once() {
        assert_eq!(keys(0, 1), "prog_key >= '0000' AND prog_key < 'g'");
        for parts in [2, 3, 256, 70_000] {
            let conditions: Vec<String> = (0..parts).map(|part| keys(part, parts)).collect();
            let words: Vec<Vec<&str>> = conditions.iter().map(|keys| keys.split('\'').collect()).collect();
            assert!(words[0][1] == "0000" && words.last().is_some_and(|last| last[3] == "g"));
            assert!(words.windows(2).all(|pair| pair[0][3] == pair[1][1]), "{conditions:?}");
        }
    }
}
