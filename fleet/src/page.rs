//! The answers to all named queries in one HTML page that needs no network.

use crate::answer::Value;
use crate::print;
use crate::query::{self, Question, Scope};
use crate::schema::RECORDING;
use anyhow::{Context, Result};
use bprec_report::{PageTable, TablesPage};

/// Sections in the order of the page: query, heading, description of the rows.
const SECTIONS: [(Question, &str, &str); 7] = [
    (Question::Top, "Programs", "Cost of each program on all hosts together."),
    (
        Question::Regressed,
        "Changes",
        "Time per run of each program against the same weekdays of the weeks before; verdicts hold for all programs together at the confidence level.",
    ),
    (Question::Versions, "Versions", "The same programs by version label, tag and kernel."),
    (
        Question::Owners,
        "Owners",
        "Bill of each owner of programs: its programs in tasks of others, its own tasks, and work that its programs cause.",
    ),
    (Question::Hosts, "Hosts", "Cost of all programs of each host."),
    (Question::Functions, "Functions", "Functions of programs by the weight of their samples."),
    (Question::Counters, "Counters", "Exact and shared counters by processor model."),
];

const CONTENTS: &str = "SELECT COUNT(*) AS recordings, COUNT(DISTINCT host_id) AS hosts, MIN(date) AS first_day, MAX(date) AS last_day \
                    FROM recording";

/// Runs all named queries.
///
/// # Errors
/// Fails if a file of the lake is missing or damaged.
pub(crate) fn page(scope: &Scope) -> Result<TablesPage> {
    let contents = scope.engine(scope.days(), RECORDING)?.ask(CONTENTS)?;
    let contents = contents.rows.first().context("the query for the contents of the lake has no row")?;
    let name = scope.lake.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let [recordings, hosts, first, last] = [0, 1, 2, 3].map(|at| print::cell(&contents[at]));
    let mut page = TablesPage {
        title: format!("bprec fleet · {name}"),
        facts: vec![format!("{recordings} recordings of {hosts} hosts, {first} to {last} (UTC)")],
        tables: Vec::new(),
    };
    for (question, title, about) in SECTIONS {
        let (name, answer) = (question.name(), query::ask(question, scope)?);
        if answer.rows.is_empty() {
            page.facts.push(format!("{name}: no rows for these days"));
        } else if question == Question::Regressed && answer.rows.iter().all(|row| row[0] == Value::Text("new".into())) {
            page.facts.push(format!("{name}: the lake has no earlier days to compare with"));
        } else {
            if answer.rows.len() == scope.limit {
                page.facts.push(format!("{name}: the first {} rows (--limit)", scope.limit));
            }
            let columns = answer.columns.iter().enumerate();
            page.tables.push(PageTable {
                title: title.into(),
                about: about.into(),
                columns: columns.map(|(at, name)| (name.clone(), answer.is_numeric(at))).collect(),
                rows: answer.rows.iter().map(|row| row.iter().map(print::cell).collect()).collect(),
            });
        }
    }
    Ok(page)
}
