//! Compaction and erasure: DataFusion rewrites batches of a day, with the same rows in fewer and larger files, or without the rows of a host.

use crate::engine::{DataFusionEngine, Engine, quoted};
use crate::lake::{Batch, Lake};
use crate::rows::Date;
use crate::schema::{PROG, Table, tables};
use anyhow::{Result, ensure};
use datafusion::arrow::array::RecordBatch;
use std::path::Path;

/// SQL condition for all rows.
const ALL: &str = "TRUE";

/// Merges the batches of each day into batches of at most `most` recordings. Returns the counts of batches before and after.
///
/// # Errors
/// Fails if the lake cannot be read or written. Batches that were merged before the failure stay merged.
pub(crate) fn compact(path: &Path, most: u64) -> Result<(usize, usize)> {
    let (mut lake, _lock) = Lake::open_to_change(path)?;
    let mut before = 0;
    for date in lake.days() {
        let batches = lake.read_day(date)?.to_vec();
        before += batches.len();
        for group in groups(batches, most) {
            rewrite(&mut lake, date, group, ALL)?;
        }
    }
    Ok((before, lake.batches.len()))
}

/// Rewrites the batches that have rows of a host, without these rows. Returns the count of these batches.
///
/// # Errors
/// Fails if the lake cannot be read or written. Batches that were rewritten before the failure stay rewritten.
pub(crate) fn erase(path: &Path, host: &str) -> Result<usize> {
    let (mut lake, _lock) = Lake::open_to_change(path)?;
    let (host, mut rewritten) = (quoted(host), 0);
    for date in lake.days() {
        for batch in lake.read_day(date)?.to_vec() {
            let engine = DataFusionEngine::open(&lake.part(vec![batch.clone()]))?;
            let found = engine.ask(&format!("SELECT host_id FROM recording WHERE host_id = {host} LIMIT 1"))?;
            if !found.rows.is_empty() {
                rewrite(&mut lake, date, vec![batch], &format!("host_id IS DISTINCT FROM {host}"))?;
                rewritten += 1;
            }
        }
    }
    Ok(rewritten)
}

/// Groups of batches to merge; batches that stay alone are left out.
fn groups(batches: Vec<Batch>, most: u64) -> Vec<Vec<Batch>> {
    let mut groups: Vec<Vec<Batch>> = Vec::new();
    for batch in batches {
        let recordings = |group: &[Batch]| group.iter().map(|batch| batch.recordings).sum::<u64>();
        match groups.last_mut().filter(|group| recordings(group) + batch.recordings <= most) {
            Some(group) => group.push(batch),
            None => groups.push(vec![batch]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Replaces batches of a day by one batch with their rows that meet a condition.
fn rewrite(lake: &mut Lake, date: Date, group: Vec<Batch>, condition: &str) -> Result<()> {
    let part = lake.part(group);
    // Checksums of pages do not protect the other parts of a file, and a rewrite would commit damaged values.
    part.check(|_| true)?;
    let engine = DataFusionEngine::open(&part)?;
    let rows = |table: &Table| -> Result<Vec<RecordBatch>> {
        // Several batches may have the same row of a program; one row is enough.
        let is_prog = table.name == PROG;
        let distinct = if is_prog { "DISTINCT" } else { "" };
        let keys: Vec<String> = table.sorted_by.iter().map(|key| format!("{key} NULLS FIRST")).collect();
        let (name, keys) = (table.name, keys.join(", "));
        let sql = format!("SELECT {distinct} * EXCLUDE (date) FROM {name} WHERE {condition} ORDER BY {keys}");
        let rows = engine.rows(&sql, table)?;
        let found: u64 = rows.iter().map(|rows| rows.num_rows() as u64).sum();
        let expected: u64 = part.batches.iter().map(|batch| part.rows_of(batch, table.name)).sum();
        let is_all = found == expected || found < expected && (is_prog || condition != ALL);
        ensure!(is_all, "{}: {found} rows of {date} where {expected} were committed", table.name);
        Ok(rows)
    };
    let merged = tables().into_iter().map(|table| Ok((table.clone(), rows(&table)?))).collect::<Result<_>>()?;
    let replaced = part.batches.iter().map(|batch| batch.id.clone()).collect();
    lake.commit_batch(date, merged, &replaced)
}
