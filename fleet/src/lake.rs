//! Lake: batches of recordings, and the commits that change it, in a place of `store`.
//!
//! A batch holds recordings of one day, with a file for each table. Its commit lists the files with sizes and hashes, and is in the metadata of the
//! file of `recording`. Queries skip files that are not listed.

use crate::parallel::in_parallel;
use crate::rows::{Date, FIRST_DAY, LAST_DAY};
use crate::schema::{Columns, PROG, RECORDING, SCHEMA_VERSION, Table, Time, recorded_schema, rows_in, tables};
use crate::store::{self, Day, Generation, PARALLEL, Store};
use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use bytes::Bytes;
use chrono::Utc;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::row::{RowConverter, SortField};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, GzipLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Metadata key of the schema version, in each file.
const VERSION_KEY: &str = "bprec.schema_version";
/// Metadata key of the commit, in files of `recording`.
const COMMIT_KEY: &str = "bprec.commit";
/// Limit on the bytes of a file that are in memory while it is hashed.
const CHUNK_BYTES: usize = 1 << 22;
/// Limit on the rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// Level of the compression. Gzip has a checksum of each page, which readers compare; the Parquet library cannot write the checksums of Parquet.
const LEVEL: u32 = 3;
/// Empty range of days: no commit is read.
pub(crate) const NO_DAYS: (Date, Date) = (LAST_DAY, FIRST_DAY);
/// Remedy for a changed file.
pub(crate) const DAMAGED: &str =
    "restore it, or remove the files of this name from all tables and import their recordings again";

/// File of a batch, as listed in the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Commit of a batch: its files by table. In a directory, it lacks the file of `recording`, which has the commit in its metadata.
pub(crate) type Commit = BTreeMap<String, Listed>;

/// Committed batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Batch {
    #[serde(skip)]
    pub(crate) date: Date,
    pub(crate) id: String,
    /// Name of the first state of the day that has this batch, if the place needs it to find the files.
    pub(crate) state: String,
    /// Count of rows of `recording`.
    pub(crate) recordings: u64,
    pub(crate) commit: Commit,
    /// Sizes in bytes of the files that the place has, by table.
    #[serde(skip)]
    pub(crate) found: BTreeMap<String, u64>,
}

impl Batch {
    /// Returns false for a table that the writer of the batch did not know.
    pub(crate) fn has(&self, table: &str) -> bool {
        table == RECORDING || self.commit.contains_key(table)
    }
}

/// Committed file.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) date: Date,
    /// Path, or URL.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// SHA-256 of the file as committed, if the commit has it.
    sha256: Option<String>,
    store: Arc<dyn Store>,
}

impl Committed {
    /// Compares the hash of the file with the committed hash; without one, checks all pages.
    ///
    /// # Errors
    /// Fails if the hash or the checksum of a page differs, or the file cannot be read.
    fn check(&self) -> Result<()> {
        let path = self.path.display();
        let Some(sha256) = &self.sha256 else {
            let rows = || {
                Ok(ParquetRecordBatchReaderBuilder::try_new(self.read()?)?.build()?.collect::<Result<Vec<_>, _>>()?)
            };
            // The Parquet library panics at some headers of damaged pages.
            let read = catch_unwind(AssertUnwindSafe(rows)).unwrap_or_else(|_| Err(anyhow!("a page is damaged")));
            return read.map(drop).with_context(|| format!("{path}: cannot be read; {DAMAGED}"));
        };
        let mut found = Sha256::new();
        for at in (0..self.bytes).step_by(CHUNK_BYTES) {
            let end = self.bytes.min(at + CHUNK_BYTES as u64);
            found.update(self.store.read(&self.path, at..end).with_context(|| path.to_string())?);
        }
        let is_equal = hex::encode(found.finalize()) == *sha256;
        ensure!(is_equal, "{path}: differs from the committed file (another SHA-256): {DAMAGED}");
        Ok(())
    }

    /// Reads the whole file.
    pub(crate) fn read(&self) -> Result<Bytes> {
        self.store.read(&self.path, 0..self.bytes)
    }
}

/// A generation of a lake, with the batches of the days that were read.
#[derive(Debug, Clone)]
pub(crate) struct Lake {
    pub(crate) store: Arc<dyn Store>,
    generation: Generation,
    /// Batches of the days that were read, sorted by id within a day.
    pub(crate) batches: Vec<Batch>,
    /// Files that engines may read, but that no commit lists.
    pub(crate) foreign: Vec<PathBuf>,
}

impl Lake {
    /// Opens the newest generation of an existing lake and reads the commits of `days`, first and last included.
    ///
    /// # Errors
    /// Fails if the lake is missing or has a newer version, or if a commit cannot be read: sums would lack its batch.
    pub(crate) fn open(path: &Path, (from, to): (Date, Date)) -> Result<Lake> {
        let store = store::open(path)?;
        let missing = format!("the directory v{SCHEMA_VERSION} is missing; `bprec-fleet import` creates it");
        let generation = store.newest()?.with_context(|| format!("{}: is not a lake: {missing}", path.display()))?;
        let mut lake = Lake { store, generation, batches: Vec::new(), foreign: Vec::new() };
        let dates: Vec<Date> = lake.days().into_iter().filter(|date| (from..=to).contains(date)).collect();
        for day in in_parallel(&dates, Some(PARALLEL), |date| lake.store.read_day(&lake.generation, *date))? {
            lake.add(day?);
        }
        Ok(lake)
    }

    /// Opens a lake as a writer; creates the lake if it is missing. Removes files that no reader needs. Reads no commits. A directory has no other
    /// writer until the returned file is dropped.
    ///
    /// # Errors
    /// Fails if the lake cannot be created or locked, or has a newer version.
    pub(crate) fn open_to_write(path: &Path) -> Result<(Lake, Option<File>)> {
        let store = store::open(path)?;
        let lock = store.prepare()?;
        let generation = store.newest()?.unwrap_or_default();
        store.remove_unused(&generation)?;
        Ok((Lake { store, generation, batches: Vec::new(), foreign: Vec::new() }, lock))
    }

    /// Opens an existing lake as a writer; a mistyped name creates no lake.
    ///
    /// # Errors
    /// Fails as [`Lake::open_to_write`] does, or if the lake is missing.
    pub(crate) fn open_to_change(path: &Path) -> Result<(Lake, Option<File>)> {
        Lake::open(path, NO_DAYS)?;
        Lake::open_to_write(path)
    }

    fn add(&mut self, day: Day) {
        self.batches.extend(day.batches);
        self.foreign.extend(day.foreign);
    }

    /// Returns the days of the lake, sorted.
    pub(crate) fn days(&self) -> Vec<Date> {
        self.generation.states.keys().copied().collect()
    }

    /// Reads the commits of a day at the first call for this day. Returns the batches that this call read.
    ///
    /// # Errors
    /// Fails if a commit cannot be read.
    pub(crate) fn read_day(&mut self, date: Date) -> Result<&[Batch]> {
        let first = self.batches.len();
        let is_read = self.batches.iter().any(|batch| batch.date == date);
        if self.generation.states.contains_key(&date) && !is_read {
            self.add(self.store.read_day(&self.generation, date)?);
        }
        Ok(&self.batches[first..])
    }

    /// Commits a generation without the days before `first`, and returns these days.
    ///
    /// # Errors
    /// Fails if the generation cannot be written; then nothing has changed.
    pub(crate) fn expire(&mut self, first: Date) -> Result<Vec<Date>> {
        let states = self.generation.states.clone();
        let (expired, kept) = states.into_iter().partition::<BTreeMap<_, _>, _>(|(date, _)| *date < first);
        if !expired.is_empty() {
            self.publish(kept)?;
        }
        Ok(expired.into_keys().collect())
    }

    fn publish(&mut self, states: BTreeMap<Date, String>) -> Result<()> {
        let next = Generation { number: self.generation.number + 1, states };
        self.store.publish(&next)?;
        self.generation = next;
        Ok(())
    }

    /// Returns the committed files of a table.
    ///
    /// # Errors
    /// Fails if a file is missing or has another size than was committed: sums would be wrong.
    pub(crate) fn committed(&self, table: &str) -> Result<Vec<Committed>> {
        let batches = self.batches.iter().filter(|batch| batch.has(table));
        batches.map(|batch| self.committed_of(batch, table)).collect()
    }

    /// Returns the file of a batch and table.
    ///
    /// # Errors
    /// Fails if the file is missing or has another size than was committed.
    pub(crate) fn committed_of(&self, batch: &Batch, table: &str) -> Result<Committed> {
        let path = self.store.path_of(&self.generation, batch, table);
        let name = path.display();
        let bytes = *batch.found.get(table).with_context(|| format!("{name}: is missing: {DAMAGED}"))?;
        let listed = batch.commit.get(table);
        let committed = listed.map_or(bytes, |listed| listed.bytes);
        ensure!(bytes == committed, "{name}: has {bytes} bytes where {committed} were committed: {DAMAGED}");
        let sha256 = listed.map(|listed| listed.sha256.clone());
        Ok(Committed { date: batch.date, path, bytes, sha256, store: self.store.clone() })
    }

    /// Compares the files of the tables that `has` accepts with the committed ones. Returns an error for each file that differs.
    ///
    /// # Errors
    /// Fails if threads cannot be started.
    pub(crate) fn faults(&self, has: impl Fn(&str) -> bool) -> Result<Vec<Error>> {
        let tables = tables().map(|table| table.name).into_iter().filter(|table| has(table));
        let files = tables.flat_map(|table| self.batches.iter().map(move |it| (it, table)));
        let files: Vec<_> = files.filter(|(batch, table)| batch.has(table)).collect();
        let check = |(batch, table): &(&Batch, &str)| self.committed_of(batch, table)?.check();
        Ok(in_parallel(&files, Some(PARALLEL), check)?.into_iter().filter_map(Result::err).collect())
    }

    /// Compares the files of the tables that `has` accepts with the committed ones.
    ///
    /// # Errors
    /// Fails if a file differs; the message names the first such file.
    pub(crate) fn check(&self, has: impl Fn(&str) -> bool) -> Result<()> {
        self.faults(has)?.into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the lake restricted to these batches.
    pub(crate) fn part(&self, batches: Vec<Batch>) -> Lake {
        Lake { batches, foreign: Vec::new(), ..self.clone() }
    }

    /// Returns the committed count of rows of a file.
    pub(crate) fn rows_of(&self, batch: &Batch, table: &str) -> u64 {
        let of_recording = if table == RECORDING { batch.recordings } else { 0 };
        batch.commit.get(table).map_or(of_recording, |listed| listed.rows)
    }

    /// Writes and commits recordings of a day as one batch.
    ///
    /// # Errors
    /// Fails if a file cannot be written; then nothing is committed.
    pub(crate) fn commit(&mut self, date: Date, recordings: &[RecordBatch]) -> Result<()> {
        let recordings = concat_batches(&recorded_schema(), recordings)?;
        let rows = |table: Table| {
            let mut rows = rows_in(&recordings, table.name)?;
            if table.name == RECORDING {
                let ingested_at = Time::arrays(&vec![Some(&Utc::now()); rows.num_rows()]);
                let (schema, mut columns, _) = rows.into_parts();
                let at = schema.index_of("ingested_at")?;
                columns.splice(at..=at, ingested_at);
                rows = RecordBatch::try_new(schema, columns)?;
            }
            let rows = sorted(&table, &rows)?;
            Ok((table, vec![rows]))
        };
        let rows = tables().into_iter().map(rows).collect::<Result<_>>()?;
        self.commit_batch(date, rows, &BTreeSet::new())
    }

    /// Writes and commits a batch with sorted rows of each table, those of `recording` last, in place of the batches `replaced` of this day.
    pub(crate) fn commit_batch(
        &mut self,
        date: Date,
        rows: Vec<(Table, Vec<RecordBatch>)>,
        replaced: &BTreeSet<String>,
    ) -> Result<()> {
        // `batches` must have all batches of the day: the new state of the day has no others.
        self.read_day(date)?;
        let id = batch_id(rows.last().map_or(&[], |(_, recordings)| recordings), replaced);
        let (mut recordings, mut commit, mut files) = (0, Commit::new(), BTreeMap::new());
        for (table, rows) in rows {
            recordings = rows.iter().map(|rows| rows.num_rows() as u64).sum();
            let bytes = encoded(&table, &rows, &commit)?;
            let sha256 = hex::encode(Sha256::digest(&bytes));
            commit.insert(table.name.to_owned(), Listed { rows: recordings, bytes: bytes.len() as u64, sha256 });
            files.insert(table.name.to_owned(), bytes);
        }
        let found = commit.iter().map(|(table, listed)| (table.clone(), listed.bytes)).collect();
        let mut batch = Batch { date, id, recordings, commit, found, ..Batch::default() };
        let is_replaced = |batch: &Batch| batch.date == date && replaced.contains(&batch.id);
        let kept = self.batches.iter().filter(|batch| batch.date == date && !is_replaced(batch));
        let kept: Vec<Batch> = kept.cloned().collect();
        self.store.write_day(&self.generation, &kept, &mut batch, &files)?;
        let mut states = self.generation.states.clone();
        states.insert(date, batch.state.clone());
        self.publish(states)?;
        self.batches.retain(|batch| !is_replaced(batch));
        self.batches.push(batch);
        Ok(())
    }
}

/// Returns the bytes of a Parquet file.
fn encoded(table: &Table, rows: &[RecordBatch], commit: &Commit) -> Result<Bytes> {
    let options = ArrowWriterOptions::new().with_properties(properties(table, commit)?).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), table.schema.clone(), options)?;
    rows.iter().try_for_each(|rows| writer.write(rows))?;
    Ok(writer.into_inner()?.into())
}

/// Returns the id of a batch, a hash of the ids of its recordings and of the batches that it replaces.
fn batch_id(recordings: &[RecordBatch], replaced: &BTreeSet<String>) -> String {
    let ids = recordings.iter().flat_map(|rows| rows["recording_id"].as_string::<i32>().iter().flatten());
    let ids: BTreeSet<&str> = ids.collect();
    let mut hash = Sha256::new();
    ids.into_iter().chain(replaced.iter().map(String::as_str)).for_each(|id| hash.update(id));
    hex::encode(&hash.finalize()[..16])
}

/// Sorts the rows of recordings. Keeps one row per program of a host: the row of the last recording.
fn sorted(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    let keys_of = |names: &[&str]| {
        let columns: Vec<ArrayRef> = names.iter().map(|name| rows[*name].clone()).collect();
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone()));
        RowConverter::new(fields.collect())?.convert_columns(&columns)
    };
    let mut order: Vec<u32> = (0..u32::try_from(rows.num_rows())?).collect();
    if table.name == PROG {
        let programs = keys_of(&["host_id", "boot_id", "prog_id", "load_time_ns", "prog_key", "tag"])?;
        let last: BTreeMap<_, u32> = programs.iter().zip(order).collect();
        order = last.into_values().collect();
        order.sort_unstable();
    }
    let keys = keys_of(table.sorted_by)?;
    order.sort_by_key(|row| keys.row(*row as usize));
    Ok(take_record_batch(rows, &UInt32Array::from(order))?)
}

fn properties(table: &Table, commit: &Commit) -> Result<WriterProperties> {
    let mut metadata = vec![KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string())];
    if table.name == RECORDING {
        metadata.push(KeyValue::new(COMMIT_KEY.to_owned(), serde_json::to_string(commit)?));
    }
    let sorting = table.sorted_by.iter().map(|name| {
        let column = table.schema.index_of(name)?;
        Ok(SortingColumn { column_idx: i32::try_from(column)?, descending: false, nulls_first: true })
    });
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::try_new(LEVEL)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_sorting_columns(Some(sorting.collect::<Result<_>>()?))
        .set_key_value_metadata(Some(metadata))
        .set_created_by(concat!("bprec-fleet ", env!("CARGO_PKG_VERSION")).to_owned());
    Ok(properties.build())
}

/// Reads a commit and its count of recordings; `None` if bprec-fleet did not write the file.
pub(crate) fn read_commit(path: &Path) -> Result<Option<(Commit, u64)>> {
    let name = path.display();
    let remedy = "restore it, or remove it and import its recordings again";
    let damaged = || format!("{name}: cannot be read, so the files of its batch are unknown; {remedy}");
    let reader = SerializedFileReader::new(File::open(path).with_context(damaged)?).with_context(damaged)?;
    let metadata = reader.metadata().file_metadata();
    let value_of = |key: &str| metadata.key_value_metadata()?.iter().find(|entry| entry.key == key)?.value.as_deref();
    let Some(version) = value_of(VERSION_KEY) else { return Ok(None) };
    if version != SCHEMA_VERSION.to_string() {
        bail!("{name}: has version {version} of the schema, which a newer bprec-fleet wrote");
    }
    let commit = value_of(COMMIT_KEY).with_context(damaged)?;
    let commit = serde_json::from_str(commit).with_context(damaged)?;
    Ok(Some((commit, u64::try_from(metadata.num_rows()).with_context(damaged)?)))
}
