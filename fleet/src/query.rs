//! Named queries, and queries from a file.

use crate::answer::Answer;
use crate::engine::{Engine, EngineChoice};
use crate::lake::{Lake, NO_DAYS};
use crate::regressed::{self, RegressedOptions};
use crate::rows::Date;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Default count of base days: four of each weekday.
const BASE_DAYS: i64 = 28;
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
        }
    }
}

/// A query.
#[derive(Debug)]
pub(crate) enum Query {
    Known(Question),
    /// File with an SQL query.
    Sql(PathBuf),
}

impl Query {
    /// Name in the output.
    pub(crate) fn name(&self) -> String {
        let Query::Known(question) = self else { return "sql".into() };
        question.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Rows that a query reads, and limit on its answer.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) since: Option<Date>,
    pub(crate) until: Option<Date>,
    /// SQL conditions on the rows of the table.
    pub(crate) conditions: Vec<String>,
    pub(crate) limit: usize,
    pub(crate) regressed: RegressedOptions,
}

/// Runs a query.
///
/// # Errors
/// Fails if a file of the lake is missing or damaged, or if the query is not valid.
pub(crate) fn ask(path: &Path, choice: &EngineChoice, query: &Query, scope: &Scope) -> Result<Answer> {
    match query {
        Query::Sql(file) => {
            let sql = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            let lake = Lake::open(path, (scope.since.unwrap_or(Date::MIN), scope.until.unwrap_or(Date::MAX)))?;
            choice.open(&lake)?.ask(&sql).with_context(|| file.display().to_string())
        }
        Query::Known(Question::Regressed) => regressed(path, choice, scope),
        Query::Known(question) => {
            let days = (scope.since.unwrap_or(Date::MIN), scope.until.unwrap_or(Date::MAX));
            let (sql, table) = question.sql();
            engine(path, choice, days, table, scope)?.ask(&filled_in(sql, days, scope.limit))
        }
    }
}

/// SQL condition for a label, on the JSON object of all labels.
pub(crate) fn has_label((key, value): &(String, String)) -> String {
    let entry = serde_json::json!({ key: value }).to_string();
    let entry = entry.trim_start_matches('{').trim_end_matches('}').replace('\'', "''");
    format!("contains(labels, '{entry}')")
}

fn engine(
    path: &Path,
    choice: &EngineChoice,
    days: (Date, Date),
    table: &str,
    scope: &Scope,
) -> Result<Box<dyn Engine>> {
    let mut engine = choice.open(&Lake::open(path, days)?)?;
    for condition in &scope.conditions {
        engine.narrow(table, condition)?;
    }
    Ok(engine)
}

/// Compares days with base days.
fn regressed(path: &Path, choice: &EngineChoice, scope: &Scope) -> Result<Answer> {
    let (until, since) = last_days(path, choice, scope)?;
    ensure!(since <= until, "--since {since} is after --until {until}");
    let base_until = scope.regressed.base_until.unwrap_or(since.plus_days(-1));
    let base_since = scope.regressed.base_since.unwrap_or(base_until.plus_days(1 - BASE_DAYS).max(Date::MIN));
    ensure!(
        base_since <= base_until && base_until < since,
        "the base days, {base_since} to {base_until}, must end before {since}"
    );
    let (sql, table) = Question::Regressed.sql();
    let engine = engine(path, choice, (base_since, until), table, scope)?;
    let sql = filled_in(sql, (since, until), scope.limit);
    let values = [
        ("${base_since}", base_since.to_string()),
        ("${base_until}", base_until.to_string()),
        ("${min_runs}", scope.regressed.min_runs.max(1).to_string()),
        // Replaced last, because a version label may contain the text of a placeholder.
        ("${cohort}", scope.regressed.cohort()),
    ];
    let sql = values.iter().fold(sql, |sql, (name, value)| sql.replace(name, value));
    regressed::judge(&engine.ask(&sql)?, &scope.regressed, scope.limit)
}

/// Returns the last and the first of the days that are compared with base days. By default, these are the last seven days, or fewer if the lake would
/// have less than a week of base days before them. With a canary, they begin at the earliest on the first day of the new version.
fn last_days(path: &Path, choice: &EngineChoice, scope: &Scope) -> Result<(Date, Date)> {
    if let (Some(until), Some(since)) = (scope.until, scope.since) {
        return Ok((until, since));
    }
    let mut days = Lake::open(path, NO_DAYS)?.days();
    days.retain(|day| *day <= scope.until.unwrap_or(Date::MAX));
    let none = || format!("{}: has no recordings of these days", path.display());
    let (first, last) = (*days.first().with_context(none)?, *days.last().with_context(none)?);
    let recent = days[days.len().saturating_sub(RECENT_DAYS)];
    let lake = Lake::open(path, (recent, last))?;
    let mut recordings: BTreeMap<Date, u64> = BTreeMap::new();
    lake.batches.iter().for_each(|batch| *recordings.entry(batch.date).or_default() += batch.recordings);
    // The newest days are ignored if they have few recordings: these come from hosts with clocks that are ahead.
    let least = recordings.values().max().with_context(none)? / 10;
    let complete = || recordings.iter().rev().find(|(_, count)| **count >= least).map(|(date, _)| *date);
    let until = scope.until.or_else(complete).with_context(none)?;
    if let Some(since) = scope.since {
        return Ok((until, since));
    }
    let week = until.plus_days(-6).max(first.plus_days(7)).min(until);
    let Some(canary) = &scope.regressed.canary else { return Ok((until, week)) };
    let answer = choice.open(&lake)?.ask(&canary.first_day_sql())?;
    let first = answer.rows.first().and_then(|row| row.first()?.text()).map(str::parse).transpose()?;
    Ok((until, week.max(first.unwrap_or(week)).min(until)))
}

/// Replaces the placeholders of the days and the limit. These values need no escapes.
fn filled_in(sql: &str, days: (Date, Date), limit: usize) -> String {
    let values = [("${since}", days.0.to_string()), ("${until}", days.1.to_string()), ("${limit}", limit.to_string())];
    values.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
}
