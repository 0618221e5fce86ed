//! Fewer and larger files: batches of a day become one, by the engine, with the same rows.

use crate::engine::DataFusionEngine;
use crate::lake::{Batch, Lake, batch_id};
use crate::rows::Date;
use crate::schema::{ProgRow, RecordingRow, Row, Table, fact_tables};
use anyhow::{Context, Result, ensure};
use datafusion::arrow::array::{AsArray, RecordBatch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Result of the work.
#[derive(Debug, Default)]
pub(crate) struct Compacted {
    pub(crate) before: usize,
    pub(crate) after: usize,
}

/// Puts batches of each day together, of `most` recordings at most.
///
/// # Errors
/// When the lake cannot be read or written. What was put together until then stays.
pub(crate) fn compact(path: &Path, most: u64) -> Result<Compacted> {
    let (mut lake, _lock) = Lake::open_to_write(path)?;
    let before = lake.batches.len();
    let mut days: BTreeMap<Date, Vec<Batch>> = BTreeMap::new();
    for batch in &lake.batches {
        days.entry(batch.date).or_default().push(batch.clone());
    }
    for (date, batches) in days {
        for group in groups(batches, most) {
            put_together(&mut lake, date, group)?;
        }
    }
    Ok(Compacted { before, after: lake.batches.len() })
}

/// Batches that become one, each at least two.
fn groups(batches: Vec<Batch>, most: u64) -> Vec<Vec<Batch>> {
    let mut groups: Vec<(u64, Vec<Batch>)> = Vec::new();
    for batch in batches {
        match groups.last_mut().filter(|(recordings, _)| recordings + batch.recordings <= most) {
            Some((recordings, group)) => {
                *recordings += batch.recordings;
                group.push(batch);
            }
            None => groups.push((batch.recordings, vec![batch])),
        }
    }
    groups.into_iter().map(|(_, group)| group).filter(|group| group.len() > 1).collect()
}

fn put_together(lake: &mut Lake, date: Date, group: Vec<Batch>) -> Result<()> {
    let part = lake.part(group);
    let engine = DataFusionEngine::open(&part)?;
    let rows = |table: &Table| -> Result<Vec<RecordBatch>> {
        let columns: Vec<&str> = table.schema.fields().iter().map(|field| field.name().as_str()).collect();
        // A program is a row for each batch that has it, of which one is enough.
        let is_prog = table.name == ProgRow::table().name;
        let sql = format!(
            "SELECT {} {} FROM {} ORDER BY {}",
            if is_prog { "DISTINCT" } else { "" },
            columns.join(", "),
            table.name,
            table.sorted_by.iter().map(|key| format!("{key} NULLS FIRST")).collect::<Vec<_>>().join(", ")
        );
        let rows = engine.rows(&sql, table)?;
        let found: u64 = rows.iter().map(|rows| rows.num_rows() as u64).sum();
        let expected: u64 = part.batches.iter().map(|batch| part.rows_of(batch, table.name)).sum();
        let is_all = if is_prog { found <= expected } else { found == expected };
        ensure!(is_all, "{}: {found} rows of {date} where {expected} were committed", table.name);
        Ok(rows)
    };
    let facts = fact_tables().iter().map(&rows).collect::<Result<Vec<_>>>()?;
    let recordings = rows(&RecordingRow::table())?;
    let mut ids = Vec::new();
    for batch in &recordings {
        let column = batch.column_by_name("recording_id").context("recording has no column recording_id")?;
        ids.extend(column.as_string::<i32>().iter().flatten());
    }
    let replaced: BTreeSet<(Date, String)> = part.batches.iter().map(|batch| (date, batch.id.clone())).collect();
    let replaces = part.batches.iter().map(|batch| batch.id.clone()).collect();
    lake.commit_batches(date, batch_id(ids.into_iter()), &facts, &recordings, replaces)?;
    lake.remove(&replaced)
}
