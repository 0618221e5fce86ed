//! Verification: every file of a lake is as it was committed, and the rows are consistent.

use crate::answer::Value;
use crate::engine::{DataFusionEngine, Engine};
use crate::lake::{Batch, Lake};
use crate::print::cell;
use crate::rows::{FIRST_DAY, LAST_DAY};
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
    /// Files that no query reads, and machines that are counted as one host.
    pub(crate) remarks: Vec<String>,
}

/// Faults, each with a query for the rows that have it.
const FAULTS: [(&str, &str); 3] = [
    ("a recording is in the lake more than once", include_str!("../sql/verify_recordings.sql")),
    ("a host starts several recordings in the same microsecond", include_str!("../sql/verify_starts.sql")),
    (
        "the sum of samples in `sample` differs from the samples charged to BPF in `event`",
        include_str!("../sql/verify_samples.sql"),
    ),
];
/// Remark, with a query for the rows that it is about. It is not a fault, because a single machine has such rows, too,
/// if its clock was set.
const ONE_HOST: (&str, &str) = (
    "two boots of a host overlap in time: several machines have its machine id or name, or its clock was set",
    include_str!("../sql/verify_boots.sql"),
);

/// Reads a lake completely and returns its faults.
///
/// # Errors
/// Fails if the lake is missing, or a file of `recording` or a row cannot be read.
pub(crate) fn verify(path: &Path) -> Result<Findings> {
    let lake = Lake::open(path, (FIRST_DAY, LAST_DAY))?;
    let mut findings = Findings { batches: lake.batches.len(), ..Findings::default() };
    let of_batch = |batch: &Batch| tables().iter().map(|table| lake.rows_of(batch, table.name)).sum::<u64>();
    findings.recordings = lake.batches.iter().map(|batch| batch.recordings).sum();
    findings.rows = lake.batches.iter().map(of_batch).sum();
    findings.faults.extend(lake.faults(|_| true)?.iter().map(|fault| format!("{fault:#}")));
    let remark = |path: &PathBuf| format!("{}: belongs to no commit, and no query reads it", path.display());
    findings.remarks.extend(lake.foreign.iter().map(remark));
    // Queries would only repeat that they refuse the damaged files.
    if !findings.faults.is_empty() {
        return Ok(findings);
    }
    let engine = DataFusionEngine::open(&lake)?;
    let found = |(what, sql): (&str, &str)| -> Result<Vec<String>> {
        let answer = engine.ask(sql)?;
        let value = |(name, value): (&String, &Value)| format!("{name} {}", cell(value));
        let values = |row: &Vec<Value>| answer.columns.iter().zip(row).map(value).collect::<Vec<_>>().join(", ");
        Ok(answer.rows.iter().map(|row| format!("{what}: {}", values(row))).collect())
    };
    for check in FAULTS {
        findings.faults.extend(found(check)?);
    }
    findings.remarks.extend(found(ONE_HOST)?);
    Ok(findings)
}
