//! Compaction: DataFusion merges the batches of a day into fewer and larger files with the same rows.

use crate::engine::DataFusionEngine;
use crate::lake::{Batch, Lake};
use crate::rows::Date;
use crate::schema::{PROG, Table, tables};
use anyhow::{Result, ensure};
use datafusion::arrow::array::RecordBatch;
use std::path::Path;

/// Merges the batches of each day into batches of at most `most` recordings. Returns the counts of batches before and after.
///
/// # Errors
/// Fails if the lake cannot be read or written. Batches that were merged before the failure stay merged.
pub(crate) fn compact(path: &Path, most: u64) -> Result<(usize, usize)> {
    let (mut lake, _lock) = Lake::open_to_write(path)?;
    let mut before = 0;
    for date in lake.days() {
        let batches = lake.read_day(date)?.to_vec();
        before += batches.len();
        for group in groups(batches, most) {
            merge(&mut lake, date, group)?;
        }
    }
    Ok((before, lake.batches.len()))
}

/// Groups of batches to merge; batches that stay alone are left out.
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

fn merge(lake: &mut Lake, date: Date, group: Vec<Batch>) -> Result<()> {
    let part = lake.part(group);
    let engine = DataFusionEngine::open(&part)?;
    let rows = |table: &Table| -> Result<Vec<RecordBatch>> {
        let columns: Vec<&str> = table.schema.fields().iter().map(|field| field.name().as_str()).collect();
        // Several batches may have the same row of a program; one row is enough.
        let is_prog = table.name == PROG;
        let distinct = if is_prog { "DISTINCT" } else { "" };
        let keys: Vec<String> = table.sorted_by.iter().map(|key| format!("{key} NULLS FIRST")).collect();
        let (name, columns, keys) = (table.name, columns.join(", "), keys.join(", "));
        let sql = format!("SELECT {distinct} {columns} FROM {name} ORDER BY {keys}");
        let rows = engine.rows(&sql, table)?;
        let found: u64 = rows.iter().map(|rows| rows.num_rows() as u64).sum();
        let expected: u64 = part.batches.iter().map(|batch| part.rows_of(batch, table.name)).sum();
        let is_all = if is_prog { found <= expected } else { found == expected };
        ensure!(is_all, "{}: {found} rows of {date} where {expected} were committed", table.name);
        Ok(rows)
    };
    let merged = tables().into_iter().map(|table| Ok((table.clone(), rows(&table)?))).collect::<Result<_>>()?;
    let replaced = part.batches.iter().map(|batch| batch.id.clone()).collect();
    lake.commit_batch(date, merged, &replaced)
}
