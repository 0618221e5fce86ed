//! Import: threads read recordings, and the lake gets them in batches that are committed completely or not at all.

use crate::lake::{Committed, Lake};
use crate::parallel::in_parallel;
use crate::rows::{Date, GivenFacts, Recorded, content_id, rows_of};
use crate::schema::{RECORDING, rows_in};
use crate::store::PARALLEL;
use crate::summary;
use anyhow::{Context, Result, ensure};
use bprec_host::sandbox::{Confined, KeptAccess};
use bytes::Bytes;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::TimestampMicrosecondType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// Why a compressed or rewritten copy of a recording is refused.
const OTHER_FORM: &str =
    "not imported, because the lake already has this recording in another form (same host, same start time)";

/// Why an import into an object store refuses recordings.
const NO_SANDBOX: &str = "is not a summary; an import into an object store needs the network, which the sandbox for recordings does not allow: \
                          `bprec-fleet summarize` makes a summary, or give --no-sandbox";

/// Options for reading recordings.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadOptions {
    #[command(flatten)]
    pub(crate) given: GivenFacts,
    /// Threads that read recordings; the default is one per CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Do not confine the process. By default, it cannot execute programs, use the network, or write outside of the output's directory,
    /// if the kernel supports this (Landlock, seccomp).
    #[arg(long)]
    no_sandbox: bool,
}

impl ReadOptions {
    /// Confines the process. Called before it opens the first recording, and before threads start.
    pub(crate) fn confine(&self, output: &Path, directories: bool) {
        if !self.no_sandbox {
            drop(Confined::enter(KeptAccess { output: Some(output), directories, ..KeptAccess::default() }));
        }
    }
}

/// Options of the import.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportOptions {
    #[command(flatten)]
    read: ReadOptions,
    /// Limit on the recordings of a batch. A batch is committed completely or not at all.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
}

/// Counts of recordings and batches of an import.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    pub(crate) recordings: u64,
    /// Recordings that were already in the lake.
    pub(crate) already_there: u64,
    /// Recordings that could not be imported; each is named.
    pub(crate) refused: u64,
    pub(crate) batches: u64,
}

/// Imports recordings in the order of `names`. `refuse` gets the errors of recordings that cannot be imported, `progress` the counts after each batch.
///
/// # Errors
/// Fails if the lake cannot be read or written. After a recording that cannot be imported, the import continues with the next recording.
pub(crate) fn import(
    path: &Path,
    names: impl Iterator<Item = Result<PathBuf>>,
    options: &ImportOptions,
    mut refuse: impl FnMut(&anyhow::Error),
    mut progress: impl FnMut(&Imported),
) -> Result<Imported> {
    let (mut lake, _lock) = Lake::open_to_write(path)?;
    let output = lake.store.local_output();
    if let Some(output) = &output {
        options.read.confine(output, true);
    }
    let takes_recordings = output.is_some() || options.read.no_sandbox;
    let mut known = Known::default();
    let mut imported = Imported::default();
    let mut names = names.peekable();
    while names.peek().is_some() {
        let names: Vec<PathBuf> = names.by_ref().take(options.batch as usize).collect::<Result<_>>()?;
        let mut days: BTreeMap<Date, Vec<RecordBatch>> = BTreeMap::new();
        let read = |name: &PathBuf| read(name, &options.read.given, &known, takes_recordings);
        for (name, read) in names.iter().zip(in_parallel(&names, options.read.threads, read)?) {
            let mut refuse = |error: &anyhow::Error| {
                imported.refused += 1;
                refuse(error);
            };
            match read {
                Err(error) => refuse(&error),
                Ok(None) => imported.already_there += 1,
                Ok(Some(recordings)) => {
                    for Recorded { date, rows } in recordings {
                        known.read_day(&mut lake, date)?;
                        match known.insert(&rows) {
                            Ok(true) => {
                                imported.recordings += 1;
                                days.entry(date).or_default().push(rows);
                            }
                            Ok(false) => imported.already_there += 1,
                            Err(error) => refuse(&error.context(name.display().to_string())),
                        }
                    }
                }
            }
        }
        for (date, rows) in days {
            lake.commit(date, &rows)?;
            imported.batches += 1;
        }
        progress(&imported);
    }
    Ok(imported)
}

/// Reads a summary or a recording; `None` for a recording that the lake has.
fn read(path: &Path, given: &GivenFacts, known: &Known, takes_recordings: bool) -> Result<Option<Vec<Recorded>>> {
    if let Some(recordings) = summary::read(path, given).with_context(|| path.display().to_string())? {
        return Ok(Some(recordings));
    }
    ensure!(takes_recordings, "{}: {NO_SANDBOX}", path.display());
    let content = content_id(path)?;
    let is_new = !known.ids.contains(&content.0);
    is_new.then(|| Ok(vec![rows_of(path, content, given)?])).transpose()
}

/// Recordings that the lake has on the days of the imported files. Other days are not read, so imports do not slow down as the lake grows older.
#[derive(Debug, Default)]
struct Known {
    /// Ids, which are hashes of the bytes.
    ids: HashSet<u128>,
    /// Hashes of host and start: a host starts no two recordings in one microsecond.
    starts: HashSet<u64>,
    hasher: RandomState,
}

impl Known {
    /// Reads the recordings of a day at the first call for this day.
    fn read_day(&mut self, lake: &mut Lake, date: Date) -> Result<()> {
        let batches = lake.read_day(date)?.to_vec();
        let files = lake.part(batches).committed(RECORDING)?;
        for files in files.chunks(PARALLEL as usize) {
            for (file, bytes) in files.iter().zip(in_parallel(files, Some(PARALLEL), Committed::read)?) {
                let read = bytes.and_then(|bytes| self.read(bytes));
                read.with_context(|| format!("read {}", file.path.display()))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: Bytes) -> Result<()> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
        let mask = ProjectionMask::columns(reader.parquet_schema(), ["recording_id", "host_id", "start_time"]);
        for rows in reader.with_projection(mask).build()? {
            for (id, start) in self.keys(&rows?)? {
                self.ids.insert(id);
                self.starts.extend(start);
            }
        }
        Ok(())
    }

    /// Returns the id, and the hash of host and start, of each row of `recording`.
    fn keys(&self, rows: &RecordBatch) -> Result<Vec<(u128, Option<u64>)>> {
        let column = |name| rows.column_by_name(name).with_context(|| format!("the file has no column {name}"));
        let (ids, hosts) = (column("recording_id")?.as_string::<i32>(), column("host_id")?.as_string::<i32>());
        let starts = column("start_time")?.as_primitive::<TimestampMicrosecondType>();
        let key = |((id, host), start): ((Option<&str>, Option<&str>), Option<i64>)| {
            let id = u128::from_str_radix(id.unwrap_or_default(), 16)?;
            Ok((id, host.zip(start).map(|start| self.hasher.hash_one(start))))
        };
        ids.iter().zip(hosts).zip(starts).map(key).collect()
    }

    /// Adds a recording. Returns false if the lake has it already, and fails if the lake has it in another form.
    fn insert(&mut self, recorded: &RecordBatch) -> Result<bool> {
        for (id, start) in self.keys(&rows_in(recorded, RECORDING)?)? {
            if self.ids.contains(&id) {
                return Ok(false);
            }
            ensure!(start.is_none_or(|start| self.starts.insert(start)), OTHER_FORM);
            self.ids.insert(id);
        }
        Ok(true)
    }
}
