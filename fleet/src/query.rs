//! The questions that bprec-fleet knows, and those of the user's own.

use crate::answer::Answer;
use crate::engine::{Engine, EngineChoice};
use crate::lake::Lake;
use crate::regressed::{self, RegressedOptions};
use crate::rows::Date;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Questions that can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Question {
    /// Programs by what they cost.
    Top,
    /// Versions of each program, on each kernel.
    Versions,
    /// Hosts by what all of their programs cost.
    Hosts,
    /// Programs whose time per run changed, on each kernel.
    Regressed,
    /// Counters by processor model.
    Counters,
    /// Functions by their samples.
    Functions,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Question::Top => "top",
            Question::Versions => "versions",
            Question::Hosts => "hosts",
            Question::Regressed => "regressed",
            Question::Counters => "counters",
            Question::Functions => "functions",
        }
    }

    /// The query, the same for every engine: `${since}` and the like stand for values.
    fn sql(self) -> &'static str {
        match self {
            Question::Top => include_str!("../sql/top.sql"),
            Question::Versions => include_str!("../sql/versions.sql"),
            Question::Hosts => include_str!("../sql/hosts.sql"),
            Question::Regressed => include_str!("../sql/regressed.sql"),
            Question::Counters => include_str!("../sql/counters.sql"),
            Question::Functions => include_str!("../sql/functions.sql"),
        }
    }

    /// The table that it is of, whose rows `--where` chooses.
    fn table(self) -> &'static str {
        match self {
            Question::Top | Question::Versions | Question::Hosts | Question::Regressed => "run_stats",
            Question::Counters => "counter",
            Question::Functions => "sample",
        }
    }
}

/// A question, and the rows that it is about.
#[derive(Debug)]
pub(crate) enum Query {
    Known(Question),
    /// A file with a query.
    Sql(PathBuf),
}

/// Rows that a question is about.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) since: Option<Date>,
    pub(crate) until: Option<Date>,
    pub(crate) condition: Option<String>,
    pub(crate) limit: usize,
    pub(crate) regressed: RegressedOptions,
}

/// The name of a query, and its answer.
///
/// # Errors
/// When the lake cannot be read as a whole, or the query is none.
pub(crate) fn ask(path: &Path, choice: &EngineChoice, query: &Query, scope: &Scope) -> Result<(&'static str, Answer)> {
    match query {
        Query::Sql(file) => {
            let sql = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            let lake = Lake::open(path, (scope.since.unwrap_or(Date::MIN), scope.until.unwrap_or(Date::MAX)))?;
            let answer = choice.open(&lake)?.ask(&sql).with_context(|| file.display().to_string())?;
            Ok(("sql", answer))
        }
        Query::Known(Question::Regressed) => Ok(("regressed", regressed(path, choice, scope)?)),
        Query::Known(question) => {
            let days = (scope.since.unwrap_or(Date::MIN), scope.until.unwrap_or(Date::MAX));
            let sql = filled_in(question.sql(), days, days, scope.limit);
            Ok((question.name(), engine(path, choice, days, *question, scope)?.ask(&sql)?))
        }
    }
}

fn engine(
    path: &Path,
    choice: &EngineChoice,
    days: (Date, Date),
    question: Question,
    scope: &Scope,
) -> Result<Box<dyn Engine>> {
    let mut engine = choice.open(&Lake::open(path, days)?)?;
    if let Some(condition) = &scope.condition {
        engine.narrow(question.table(), condition)?;
    }
    Ok(engine)
}

/// Compares days with those before them.
fn regressed(path: &Path, choice: &EngineChoice, scope: &Scope) -> Result<Answer> {
    let until = match (scope.until, scope.since) {
        (Some(until), _) => until,
        // The last day that there is.
        (None, since) => {
            let lake = Lake::open(path, (since.unwrap_or(Date::MIN), Date::MAX))?;
            let last = lake.batches.iter().map(|batch| batch.date).max();
            last.with_context(|| format!("{}: has no recordings of these days", path.display()))?
        }
    };
    let since = scope.since.unwrap_or(until);
    ensure!(since <= until, "--since {since} is behind --until {until}");
    let base_until = scope.regressed.base_until.unwrap_or(since.plus_days(-1));
    let base_since = scope.regressed.base_since.unwrap_or(base_until.plus_days(-until.days_since(since)));
    ensure!(
        base_since <= base_until && base_until < since,
        "what is compared with, {base_since} to {base_until}, does not end before {since}"
    );
    let engine = engine(path, choice, (base_since, until), Question::Regressed, scope)?;
    let sql = filled_in(Question::Regressed.sql(), (since, until), (base_since, base_until), scope.limit);
    regressed::judge(&engine.ask(&sql)?, &scope.regressed, scope.limit)
}

/// A query with its values: days and a number, so that there is nothing to be quoted.
fn filled_in(sql: &str, days: (Date, Date), base: (Date, Date), limit: usize) -> String {
    let values = [
        ("${since}", days.0.to_string()),
        ("${until}", days.1.to_string()),
        ("${base_since}", base.0.to_string()),
        ("${base_until}", base.1.to_string()),
        ("${limit}", limit.to_string()),
    ];
    values.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
}
