//! Recordings into a lake: read in parallel, written in batches, each of which counts as a whole or not at all.

use crate::lake::Lake;
use crate::rows::{Date, Rows, Said, content_id, rows_of};
use crate::schema::{RecordingRow, Row};
use anyhow::{Context, Result, anyhow};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::TimestampMicrosecondType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of an import.
#[derive(Debug)]
pub(crate) struct ImportOptions {
    pub(crate) said: Said,
    /// Most recordings of a batch.
    pub(crate) batch: usize,
    /// Threads that read recordings.
    pub(crate) threads: usize,
}

/// Result of the work.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    pub(crate) recordings: u64,
    /// Recordings that were in the lake before.
    pub(crate) already_there: u64,
    /// Recordings that are not in the lake, each with its reason.
    pub(crate) refused: u64,
    pub(crate) batches: u64,
}

/// Fate of a name.
enum Outcome {
    Read(Date, u128, Box<Rows>),
    AlreadyThere,
    Refused(anyhow::Error),
}

/// Imports recordings in the order of their names. `tell` is told of what is refused, and of progress.
///
/// # Errors
/// When the lake cannot be read or written. What cannot be imported is told and left out.
pub(crate) fn import(
    lake: &Path,
    names: impl Iterator<Item = Result<PathBuf>>,
    options: &ImportOptions,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Imported> {
    let (mut lake, _lock) = Lake::open_to_write(lake)?;
    for path in &lake.foreign {
        tell(Event::Foreign(path));
    }
    let mut known = Known::of(&lake)?;
    let mut imported = Imported::default();
    let mut names = names.peekable();
    while names.peek().is_some() {
        let names: Vec<PathBuf> = names.by_ref().take(options.batch).collect::<Result<_>>()?;
        let mut days: BTreeMap<Date, Rows> = BTreeMap::new();
        for (name, outcome) in names.iter().zip(read_all(&names, options, &known)?) {
            match outcome {
                Outcome::AlreadyThere => imported.already_there += 1,
                Outcome::Refused(error) => {
                    imported.refused += 1;
                    tell(Event::Refused(&error));
                }
                Outcome::Read(date, id, rows) => match known.insert(id, &rows.recordings) {
                    Found::New => {
                        imported.recordings += 1;
                        days.entry(date).or_default().append(*rows);
                    }
                    Found::Same => imported.already_there += 1,
                    Found::OtherForm => {
                        imported.refused += 1;
                        tell(Event::OtherForm(name));
                    }
                },
            }
        }
        for (date, rows) in days {
            lake.commit(date, rows)?;
            imported.batches += 1;
        }
        tell(Event::Progress(&imported));
    }
    Ok(imported)
}

/// Events worth telling while importing.
#[derive(Debug)]
pub(crate) enum Event<'e> {
    Refused(&'e anyhow::Error),
    /// The recording is there, compressed or rewritten.
    OtherForm(&'e Path),
    Foreign(&'e Path),
    Progress(&'e Imported),
}

/// Fate of each name, in their order.
fn read_all(names: &[PathBuf], options: &ImportOptions, known: &Known) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = names.get(at) else { return done };
            done.push((at, read(name, &options.said, known).unwrap_or_else(Outcome::Refused)));
        }
    };
    let mut outcomes = Vec::with_capacity(names.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads.clamp(1, names.len().max(1))).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            outcomes.extend(thread.join().map_err(|_| anyhow!("a thread that reads recordings failed"))?);
        }
        Ok::<(), anyhow::Error>(())
    })?;
    outcomes.sort_by_key(|(at, _)| *at);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

fn read(path: &Path, said: &Said, known: &Known) -> Result<Outcome> {
    let content = content_id(path)?;
    if known.ids.contains(&content.0) {
        return Ok(Outcome::AlreadyThere);
    }
    let (date, rows) = rows_of(path, content, said)?;
    Ok(Outcome::Read(date, content.0, Box::new(rows)))
}

/// Recordings of a lake.
#[derive(Debug, Default)]
struct Known {
    /// By their bytes.
    ids: HashSet<u128>,
    /// By host and start: no host begins two recordings in one microsecond.
    starts: HashSet<u64>,
    /// Makes the second of these of a host and a start.
    hasher: RandomState,
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    New,
    Same,
    OtherForm,
}

impl Known {
    fn of(lake: &Lake) -> Result<Known> {
        let mut known = Known::default();
        for file in lake.committed(RecordingRow::table().name)? {
            known.read(&file.path).with_context(|| format!("read {}", file.path.display()))?;
        }
        Ok(known)
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
        let columns = ["recording_id", "host_id", "start_time"];
        let mask = ProjectionMask::columns(reader.parquet_schema(), columns);
        for batch in reader.with_projection(mask).build()? {
            let batch = batch?;
            let texts = |name| Ok::<_, anyhow::Error>(column(&batch, name)?.as_string::<i32>());
            let (ids, hosts) = (texts("recording_id")?, texts("host_id")?);
            let starts = column(&batch, "start_time")?.as_primitive::<TimestampMicrosecondType>();
            for row in 0..batch.num_rows() {
                self.ids.insert(u128::from_str_radix(ids.value(row), 16)?);
                let host = hosts.is_valid(row).then(|| hosts.value(row));
                let start = starts.is_valid(row).then(|| starts.value(row));
                self.starts.extend(self.start(host, start));
            }
        }
        Ok(())
    }

    fn start(&self, host: Option<&str>, start: Option<i64>) -> Option<u64> {
        Some(self.hasher.hash_one((host?, start?)))
    }

    /// `recordings` is the one row of the recording.
    fn insert(&mut self, id: u128, recordings: &[RecordingRow]) -> Found {
        let start =
            recordings.iter().find_map(|row| self.start(row.host_id.as_deref(), row.start_time.map(|start| start.0)));
        if self.ids.contains(&id) {
            return Found::Same;
        }
        if start.is_some_and(|start| !self.starts.insert(start)) {
            return Found::OtherForm;
        }
        self.ids.insert(id);
        Found::New
    }
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    batch.column_by_name(name).with_context(|| format!("it has no column {name}"))
}
