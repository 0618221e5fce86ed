//! Verification: every file of a lake is as it was committed, and the rows are consistent.

use crate::engine::{DataFusionEngine, Engine};
use crate::lake::Lake;
use crate::print::cell;
use crate::rows::Date;
use crate::schema::tables;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Contents of a lake, and its faults.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) batches: usize,
    pub(crate) recordings: u64,
    pub(crate) rows: u64,
    /// Faults that make sums wrong.
    pub(crate) faults: Vec<String>,
    /// Files that no query reads.
    pub(crate) remarks: Vec<String>,
}

/// Faults, each with a query for the rows that have it.
const CHECKS: [(&str, &str); 3] = [
    (
        "a recording is in the lake more than once",
        "SELECT recording_id, COUNT(*) AS times FROM recording GROUP BY recording_id HAVING COUNT(*) > 1",
    ),
    (
        "a host starts several recordings in the same microsecond",
        "SELECT host_id, start_time, COUNT(*) AS times FROM recording \
         WHERE host_id IS NOT NULL AND start_time IS NOT NULL GROUP BY host_id, start_time HAVING COUNT(*) > 1",
    ),
    (
        "the sum of samples in `sample` differs from the samples charged to BPF in `event`",
        "SELECT e.host_id, e.window_start, e.event, e.weight, s.weight AS charged FROM \
         (SELECT host_id, window_start, event, SUM(CAST(bpf_weight AS DECIMAL(20,0))) AS weight FROM event GROUP BY host_id, window_start, event) e \
         LEFT JOIN (SELECT host_id, window_start, event, SUM(CAST(weight AS DECIMAL(20,0))) AS weight FROM sample GROUP BY host_id, window_start, event) s \
         ON (e.host_id IS NOT DISTINCT FROM s.host_id) AND (e.window_start IS NOT DISTINCT FROM s.window_start) AND (e.event = s.event) \
         WHERE e.weight <> COALESCE(s.weight, 0)",
    ),
];

/// Reads a lake completely and returns its faults.
///
/// # Errors
/// Fails if the lake is missing or a file of `recording` cannot be read.
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
    let remark = |path: &PathBuf| format!("{}: belongs to no commit, and no query reads it", path.display());
    findings.remarks.extend(lake.foreign.iter().map(remark));
    // Queries would only repeat that they refuse the damaged files.
    if !findings.faults.is_empty() {
        return Ok(findings);
    }
    let engine = DataFusionEngine::open(&lake)?;
    for (what, sql) in CHECKS {
        match engine.ask(sql) {
            Ok(answer) => findings.faults.extend(answer.rows.iter().map(|row| {
                let values: Vec<String> =
                    answer.columns.iter().zip(row).map(|(name, value)| format!("{name} {}", cell(value))).collect();
                format!("{what}: {}", values.join(", "))
            })),
            Err(error) => findings.faults.push(format!("{error:#}")),
        }
    }
    Ok(findings)
}
