//! Verification: a lake is what imports made of it.

use crate::answer::Value;
use crate::engine::{DataFusionEngine, Engine};
use crate::lake::Lake;
use crate::rows::Date;
use crate::schema::tables;
use anyhow::Result;
use std::path::Path;

/// Findings.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) batches: usize,
    pub(crate) recordings: u64,
    pub(crate) rows: u64,
    /// Findings that make sums wrong.
    pub(crate) faults: Vec<String>,
    /// Files that count for nothing.
    pub(crate) remarks: Vec<String>,
}

/// Rows that would make sums wrong, by what is wrong with them. No answer has a row in a lake that is whole.
const CHECKS: [(&str, &str); 3] = [
    (
        "a recording is there more than once",
        "SELECT recording_id, COUNT(*) AS times FROM recording GROUP BY recording_id HAVING COUNT(*) > 1",
    ),
    (
        "a host begins several recordings in the same microsecond",
        "SELECT host_id, start_time, COUNT(*) AS times FROM recording \
         WHERE host_id IS NOT NULL AND start_time IS NOT NULL GROUP BY host_id, start_time HAVING COUNT(*) > 1",
    ),
    (
        "samples charged to BPF do not add up to those of the event",
        "SELECT e.host_id, e.window_start, e.event, e.weight, s.weight AS charged FROM \
         (SELECT host_id, window_start, event, SUM(CAST(bpf_weight AS DECIMAL(20,0))) AS weight FROM event GROUP BY host_id, window_start, event) e \
         LEFT JOIN (SELECT host_id, window_start, event, SUM(CAST(weight AS DECIMAL(20,0))) AS weight FROM sample GROUP BY host_id, window_start, event) s \
         ON (e.host_id IS NOT DISTINCT FROM s.host_id) AND (e.window_start IS NOT DISTINCT FROM s.window_start) AND (e.event = s.event) \
         WHERE e.weight <> COALESCE(s.weight, 0)",
    ),
];

/// Reads all of a lake.
///
/// # Errors
/// When there is none, or a mark of a commit cannot be read. What else is wrong is found.
pub(crate) fn verify(path: &Path) -> Result<Findings> {
    let lake = Lake::open(path, (Date::MIN, Date::MAX))?;
    let mut findings = Findings { batches: lake.batches.len(), ..Findings::default() };
    for batch in &lake.batches {
        findings.recordings += batch.recordings;
        for table in tables() {
            findings.rows += lake.rows_of(batch, table.name);
            if let Err(error) = lake.committed_of(batch, table.name).and_then(|file| file.check()) {
                findings.faults.push(format!("{error:#}"));
            }
        }
    }
    let remark = |path: &Path, what| format!("{}: {what}", path.display());
    findings.remarks.extend(lake.foreign.iter().map(|path| remark(path, "is not of bprec-fleet")));
    let left_over = "is of no commit; the next import removes it";
    findings.remarks.extend(lake.left_over.iter().map(|path| remark(path, left_over)));
    // Queries refuse damaged files, which are told of already.
    if !findings.faults.is_empty() {
        return Ok(findings);
    }
    let engine = DataFusionEngine::open(&lake)?;
    for (what, sql) in CHECKS {
        match engine.ask(sql) {
            Ok(answer) => findings.faults.extend(answer.rows.iter().map(|row| {
                let values: Vec<String> =
                    answer.columns.iter().zip(row).map(|(name, value)| said(name, value)).collect();
                format!("{what}: {}", values.join(", "))
            })),
            Err(error) => findings.faults.push(format!("{error:#}")),
        }
    }
    Ok(findings)
}

fn said(name: &str, value: &Value) -> String {
    match value {
        Value::Null => format!("{name} not known"),
        Value::Integer(number) => format!("{name} {number}"),
        Value::Real(number) => format!("{name} {number}"),
        Value::Bool(flag) => format!("{name} {flag}"),
        Value::Text(text) => format!("{name} {text}"),
    }
}
