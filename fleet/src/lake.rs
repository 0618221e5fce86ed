//! Lake on disk, and the commits that change it.
//!
//! ```text
//! v2/current ─▶ generations/17                                              the newest state of the lake
//! v2/generations/17/<table>/date=<day> ─▶ ../../../days/<day>.12/<table>
//! v2/days/<day>.12/<table>/<batch>.parquet                                  the state of a day since generation 12
//! ```
//!
//! A writer creates a new state of a day: new files, and hard links to the files that stay. A new generation has a symbolic link to the state of each
//! day. Renaming a link over `current` commits all tables at once. Until then, no directory that readers list has changed.
//! A superseded generation is kept for [`HORIZON`], so that queries that have resolved `current` are not disturbed.
//!
//! A batch holds recordings of one day, with a file for each table. Its file of `recording` lists its other files with sizes and hashes. Queries skip
//! files that are not listed.

use crate::rows::Date;
use crate::schema::{ProgRow, RecordingRow, Row, Rows, SCHEMA_VERSION, Table, fact_tables, tables};
use anyhow::{Context, Result, bail, ensure};
use datafusion::arrow::array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Metadata key of the schema version, in each file.
const VERSION_KEY: &str = "bprec.schema_version";
/// Metadata key of the commit, in files of `recording`.
const COMMIT_KEY: &str = "bprec.commit";
/// Limit on the rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// Empty range of days: no commit is read.
pub(crate) const NO_DAYS: (Date, Date) = (Date::MAX, Date::MIN);
/// Permissions of the directory `v2` of a new lake. Directories below get the permissions that `v2` has; files get the same without execution.
const OWNER_ONLY: u32 = 0o700;
/// Symbolic link to the newest generation.
pub(crate) const CURRENT: &str = "current";
const GENERATIONS: &str = "generations";
const DAYS: &str = "days";
/// End of a file name, after the id of the batch.
const SUFFIX: &str = ".parquet";
/// Time for which a superseded generation is kept.
const HORIZON: Duration = Duration::from_secs(3600);

/// File of a batch, as listed in the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Commit of a batch: its files by table.
type Commit = BTreeMap<String, Listed>;

/// Committed batch.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) date: Date,
    pub(crate) id: String,
    /// Count of rows of `recording`.
    pub(crate) recordings: u64,
    commit: Commit,
}

/// Committed file.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) date: Date,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// SHA-256 of the file as committed. `None` for a file of `recording`, which lists the hashes of the other files of its batch.
    sha256: Option<String>,
}

impl Committed {
    /// Compares the hash of the file with the committed hash. Files of `recording` have no committed hash and are not checked.
    ///
    /// # Errors
    /// Fails if the hash differs or the file cannot be read.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(sha256) = &self.sha256 else { return Ok(()) };
        let at = || self.path.display().to_string();
        let (found, _) = hash_of(&self.path).with_context(at)?;
        ensure!(found == *sha256, "{}: differs from the committed file (another SHA-256): {DAMAGED}", at());
        Ok(())
    }
}

/// Remedy for a changed file.
const DAMAGED: &str = "restore it, or remove the files of this name from all tables and import their recordings again";

/// A generation of a lake, with the batches of the days that were read.
#[derive(Debug, Clone)]
pub(crate) struct Lake {
    pub(crate) root: PathBuf,
    /// Number of the generation; 0 for an empty lake.
    generation: u64,
    /// Directory of each day, below `days`.
    states: BTreeMap<Date, String>,
    /// Days for which the commits were read.
    read: BTreeSet<Date>,
    /// Batches, sorted by id within a day.
    pub(crate) batches: Vec<Batch>,
    /// Files that no commit lists.
    pub(crate) foreign: BTreeSet<PathBuf>,
}

impl Lake {
    /// Opens the newest generation of an existing lake and reads the commits of `days`, first and last included.
    ///
    /// # Errors
    /// Fails if the lake is missing or has a newer version, or if a file of `recording` cannot be read: sums would lack its batch.
    pub(crate) fn open(path: &Path, (from, to): (Date, Date)) -> Result<Lake> {
        let root = root_of(path)?;
        ensure!(
            root.is_dir(),
            "{}: is not a lake: the directory v{SCHEMA_VERSION} is missing; `bprec-fleet import` creates it",
            path.display()
        );
        let mut lake = Lake::newest(root)?;
        for date in lake.days() {
            if (from..=to).contains(&date) {
                lake.read_day(date)?;
            }
        }
        Ok(lake)
    }

    /// Opens a lake as its only writer, until the returned file is dropped; creates the lake if it is missing. Removes files that no reader needs.
    /// Reads no commits.
    ///
    /// # Errors
    /// Fails if the lake cannot be created or locked, or has a newer version.
    pub(crate) fn open_to_write(path: &Path) -> Result<(Lake, File)> {
        let root = root_of(path)?;
        create_directory(&root, OWNER_ONLY)?;
        let lock = root.join(".lock");
        let file = File::options().create(true).append(true).open(&lock);
        let file = file.with_context(|| format!("open {}", lock.display()))?;
        flock(&file, FlockOperation::LockExclusive).with_context(|| format!("lock {}", lock.display()))?;
        let lake = Lake::newest(root)?;
        for name in [GENERATIONS, DAYS] {
            create_directory(&lake.root.join(name), mode_of(&lake.root)?)?;
        }
        lake.remove_unused()?;
        Ok((lake, file))
    }

    fn newest(root: PathBuf) -> Result<Lake> {
        let current = root.join(CURRENT);
        let (generation, states) = match fs::read_link(&current) {
            Ok(target) => {
                let number = target.file_name().and_then(|name| name.to_str()?.parse().ok());
                (number.with_context(|| format!("{}: is not a link to a generation", current.display()))?, target)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (0, PathBuf::new()),
            Err(error) => return Err(error).with_context(|| format!("read link {}", current.display())),
        };
        let states = if generation == 0 { BTreeMap::new() } else { states_of(&root.join(states))? };
        Ok(Lake { root, generation, states, read: BTreeSet::new(), batches: Vec::new(), foreign: BTreeSet::new() })
    }

    /// Returns the days of the lake, sorted.
    pub(crate) fn days(&self) -> Vec<Date> {
        self.states.keys().copied().collect()
    }

    /// Reads the commits of a day at the first call for this day. Returns the batches that this call read.
    ///
    /// # Errors
    /// Fails if a file of `recording` cannot be read.
    pub(crate) fn read_day(&mut self, date: Date) -> Result<&[Batch]> {
        let first = self.batches.len();
        if !self.states.contains_key(&date) || !self.read.insert(date) {
            return Ok(&[]);
        }
        for (name, path) in entries(&self.directory_of(RecordingRow::table().name, date))? {
            match name.strip_suffix(SUFFIX).map(|id| Ok::<_, anyhow::Error>((id, read_commit(&path)?))).transpose()? {
                Some((id, Some((commit, recordings)))) => {
                    self.batches.push(Batch { date, id: id.to_owned(), recordings, commit });
                }
                _ => drop(self.foreign.insert(path)),
            }
        }
        let files: BTreeSet<String> = self.batches[first..].iter().map(|batch| batch.id.clone() + SUFFIX).collect();
        for table in fact_tables() {
            let found = entries(&self.directory_of(table.name, date))?;
            self.foreign.extend(found.into_iter().filter(|(name, _)| !files.contains(name)).map(|(_, path)| path));
        }
        Ok(&self.batches[first..])
    }

    /// Removes files of a killed writer, generations that were superseded at least [`HORIZON`] ago, and states of days that only these generations
    /// have.
    fn remove_unused(&self) -> Result<()> {
        let (generations, days) = (self.root.join(GENERATIONS), self.root.join(DAYS));
        let found = entries(&generations)?;
        let numbered = found.iter().filter_map(|(name, path)| Some((name.parse::<u64>().ok()?, path)));
        let numbered: BTreeMap<u64, &PathBuf> = numbered.filter(|(number, _)| *number <= self.generation).collect();
        let mut superseded_at: Option<SystemTime> = None;
        let (mut kept, mut states) = (BTreeSet::new(), BTreeSet::new());
        for path in numbered.into_values().rev() {
            // `elapsed` fails if the clock was set back; the generation is then kept.
            if superseded_at.is_some_and(|at| at.elapsed().is_ok_and(|age| age >= HORIZON)) {
                break;
            }
            superseded_at = Some(fs::metadata(path).and_then(|found| found.modified()).with_context(|| stat(path))?);
            states.extend(states_of(path)?.into_values());
            kept.insert(path);
        }
        let unused = found.iter().map(|(_, path)| path).filter(|path| !kept.contains(path)).cloned();
        let of_days = entries(&days)?.into_iter().filter(|(name, _)| !states.contains(name)).map(|(_, path)| path);
        for path in unused.chain(of_days) {
            fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Commits a generation without the days before `first`, and returns these days.
    ///
    /// # Errors
    /// Fails if the generation cannot be written; then nothing has changed.
    pub(crate) fn expire(&mut self, first: Date) -> Result<Vec<Date>> {
        let (expired, kept) = self.states.clone().into_iter().partition::<BTreeMap<_, _>, _>(|(date, _)| *date < first);
        if !expired.is_empty() {
            self.publish(kept)?;
        }
        Ok(expired.into_keys().collect())
    }

    fn directory_of(&self, table: &str, date: Date) -> PathBuf {
        let generation = self.root.join(GENERATIONS).join(self.generation.to_string());
        generation.join(table).join(format!("date={date}"))
    }

    /// Returns the path of a file.
    fn path_of(&self, table: &str, date: Date, batch: &str) -> PathBuf {
        self.directory_of(table, date).join(format!("{batch}{SUFFIX}"))
    }

    /// Returns the committed files of a table.
    ///
    /// # Errors
    /// Fails if a file is missing or has another size than was committed: sums would be wrong.
    pub(crate) fn committed(&self, table: &str) -> Result<Vec<Committed>> {
        self.batches.iter().map(|batch| self.committed_of(batch, table)).collect()
    }

    /// Returns the file of a batch and table.
    ///
    /// # Errors
    /// Fails if the file is missing or has another size than was committed.
    pub(crate) fn committed_of(&self, batch: &Batch, table: &str) -> Result<Committed> {
        let path = self.path_of(table, batch.date, &batch.id);
        let bytes = fs::metadata(&path).with_context(|| stat(&path))?.len();
        let listed = batch.commit.get(table);
        if let Some(listed) = listed {
            ensure!(
                bytes == listed.bytes,
                "{}: has {bytes} bytes where {} were committed: {DAMAGED}",
                path.display(),
                listed.bytes
            );
        }
        Ok(Committed { date: batch.date, path, bytes, sha256: listed.map(|listed| listed.sha256.clone()) })
    }

    /// Returns the lake restricted to these batches.
    pub(crate) fn part(&self, batches: Vec<Batch>) -> Lake {
        Lake { batches, foreign: BTreeSet::new(), ..self.clone() }
    }

    /// Returns the committed count of rows of a file.
    pub(crate) fn rows_of(&self, batch: &Batch, table: &str) -> u64 {
        batch.commit.get(table).map_or(batch.recordings, |listed| listed.rows)
    }

    /// Writes and commits recordings of a day as one batch.
    ///
    /// # Errors
    /// Fails if a file cannot be written; then nothing is committed.
    pub(crate) fn commit(&mut self, date: Date, mut rows: Rows) -> Result<()> {
        let id = batch_id(rows.recordings.iter().map(|row| &*row.recording_id));
        drop_known(&mut rows.progs);
        let (recordings, facts) = rows.sorted()?;
        let facts: Vec<Vec<RecordBatch>> = facts.into_iter().map(|batch| vec![batch]).collect();
        self.commit_batch(date, id, &facts, &[recordings], &BTreeSet::new())
    }

    /// Writes and commits a batch with sorted rows of each table, in place of the batches `replaced` of this day.
    pub(crate) fn commit_batch(
        &mut self,
        date: Date,
        id: String,
        facts: &[Vec<RecordBatch>],
        recordings: &[RecordBatch],
        replaced: &BTreeSet<String>,
    ) -> Result<()> {
        // `batches` must have all batches of the day: the new state gets links only to the files of these batches.
        self.read_day(date)?;
        let state = format!("{date}.{}", self.generation + 1);
        let directory = self.root.join(DAYS).join(&state);
        for table in tables() {
            let directory = directory.join(table.name);
            create_directory(&directory, mode_of(&self.root)?)?;
            for batch in self.batches.iter().filter(|batch| batch.date == date && !replaced.contains(&batch.id)) {
                let file = self.path_of(table.name, date, &batch.id);
                let link = directory.join(batch.id.clone() + SUFFIX);
                fs::hard_link(&file, link).with_context(|| format!("link {}: {DAMAGED}", file.display()))?;
            }
        }
        let mut commit = Commit::new();
        let path = |table: &Table| directory.join(table.name).join(id.clone() + SUFFIX);
        for (table, rows) in fact_tables().iter().zip(facts) {
            commit.insert(table.name.to_owned(), self.write(&path(table), table, rows, None)?);
        }
        let table = RecordingRow::table();
        let recordings = self.write(&path(&table), &table, recordings, Some(&commit))?.rows;
        for path in tables().iter().map(|table| directory.join(table.name)).chain([directory.clone()]) {
            sync_directory(&path)?;
        }
        let mut states = self.states.clone();
        states.insert(date, state);
        self.publish(states)?;
        self.read.insert(date);
        self.batches.retain(|batch| batch.date != date || !replaced.contains(&batch.id));
        self.batches.push(Batch { date, id, recordings, commit });
        Ok(())
    }

    /// Writes a generation with these states of days, and makes it the newest.
    fn publish(&mut self, states: BTreeMap<Date, String>) -> Result<()> {
        let next = self.generation + 1;
        let directory = self.root.join(GENERATIONS).join(next.to_string());
        for Table { name, .. } in tables() {
            let directory = directory.join(name);
            create_directory(&directory, mode_of(&self.root)?)?;
            for (date, state) in &states {
                link(&format!("../../../{DAYS}/{state}/{name}"), &directory.join(format!("date={date}")))?;
            }
            sync_directory(&directory)?;
        }
        let new = directory.with_extension("link");
        link(&format!("{GENERATIONS}/{next}"), &new)?;
        for directory in [&directory, &self.root.join(GENERATIONS), &self.root.join(DAYS)] {
            sync_directory(directory)?;
        }
        let current = self.root.join(CURRENT);
        fs::rename(&new, &current).with_context(|| format!("rename to {}", current.display()))?;
        sync_directory(&self.root)?;
        (self.generation, self.states) = (next, states);
        Ok(())
    }

    /// Writes a new file.
    fn write(&self, path: &Path, table: &Table, rows: &[RecordBatch], commit: Option<&Commit>) -> Result<Listed> {
        let write = || -> Result<Listed> {
            let mode = mode_of(&self.root)? & 0o666;
            let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
            let options =
                ArrowWriterOptions::new().with_properties(properties(table, commit)?).with_skip_arrow_metadata(true);
            let mut writer = ArrowWriter::try_new_with_options(&mut file, table.schema.clone(), options)?;
            rows.iter().try_for_each(|rows| writer.write(rows))?;
            writer.close()?;
            file.sync_all()?;
            let rows = rows.iter().map(|rows| rows.num_rows() as u64).sum();
            let (sha256, bytes) = hash_of(path)?;
            Ok(Listed { rows, bytes, sha256 })
        };
        write().with_context(|| format!("write {}", path.display()))
    }
}

/// Returns the id of a batch, a hash of the ids of its recordings.
pub(crate) fn batch_id<'i>(recording_ids: impl Iterator<Item = &'i str>) -> String {
    let ids: BTreeSet<&str> = recording_ids.collect();
    let mut hash = Sha256::new();
    ids.iter().for_each(|id| hash.update(id));
    hex(&hash.finalize()[..16])
}

/// Keeps one row per program of a host: the row of the last recording.
fn drop_known(progs: &mut Vec<ProgRow>) {
    let key = |row: &ProgRow| {
        let host = (row.host_id.clone(), row.boot_id.clone());
        (host, row.prog_id, row.load_time_ns, row.prog_key.clone(), row.tag.clone())
    };
    let mut known = BTreeSet::new();
    progs.reverse();
    progs.retain(|row| known.insert(key(row)));
    progs.reverse();
}

fn properties(table: &Table, commit: Option<&Commit>) -> Result<WriterProperties> {
    let mut metadata = vec![KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string())];
    if let Some(commit) = commit {
        metadata.push(KeyValue::new(COMMIT_KEY.to_owned(), serde_json::to_string(commit)?));
    }
    let sorting = table.sorted_by.iter().map(|name| {
        let column = table.schema.index_of(name)?;
        Ok(SortingColumn { column_idx: i32::try_from(column)?, descending: false, nulls_first: true })
    });
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_sorting_columns(Some(sorting.collect::<Result<_>>()?))
        .set_key_value_metadata(Some(metadata))
        .set_created_by(concat!("bprec-fleet ", env!("CARGO_PKG_VERSION")).to_owned());
    Ok(properties.build())
}

/// Returns the hash and the size of a file.
fn hash_of(path: &Path) -> std::io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let bytes = hash_file(path, &mut hash)?;
    Ok((hex(&hash.finalize()), bytes))
}

/// Adds the bytes of a file to a hash, and returns their count.
pub(crate) fn hash_file(path: &Path, hash: &mut Sha256) -> std::io::Result<u64> {
    std::io::copy(&mut BufReader::with_capacity(1 << 16, File::open(path)?), hash)
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a commit and its count of recordings; `None` if bprec-fleet did not write the file.
fn read_commit(path: &Path) -> Result<Option<(Commit, u64)>> {
    let damaged = || {
        format!(
            "{}: cannot be read, so the files of its batch are unknown; restore it, or remove it and import its recordings again",
            path.display()
        )
    };
    let reader = SerializedFileReader::new(File::open(path).with_context(damaged)?).with_context(damaged)?;
    let metadata = reader.metadata().file_metadata();
    let Some(version) = value_of(metadata.key_value_metadata(), VERSION_KEY) else { return Ok(None) };
    if version != SCHEMA_VERSION.to_string() {
        bail!("{}: has version {version} of the schema, which a newer bprec-fleet wrote", path.display());
    }
    let commit = value_of(metadata.key_value_metadata(), COMMIT_KEY).with_context(damaged)?;
    let commit = serde_json::from_str(commit).with_context(damaged)?;
    Ok(Some((commit, u64::try_from(metadata.num_rows()).with_context(damaged)?)))
}

fn value_of<'m>(metadata: Option<&'m Vec<KeyValue>>, key: &str) -> Option<&'m str> {
    metadata?.iter().find(|entry| entry.key == key)?.value.as_deref()
}

/// Returns the directory of each day of a generation.
fn states_of(generation: &Path) -> Result<BTreeMap<Date, String>> {
    let links = entries(&generation.join(RecordingRow::table().name))?.into_iter();
    let state = |(name, path): (String, PathBuf)| {
        let state = fs::read_link(path).ok()?.parent()?.file_name()?.to_str()?.to_owned();
        Some((name.strip_prefix("date=")?.parse().ok()?, state))
    };
    Ok(links.filter_map(state).collect())
}

/// Returns the directory with all files of this version of a lake.
///
/// # Errors
/// Fails if the lake has another version.
fn root_of(lake: &Path) -> Result<PathBuf> {
    for (name, _) in lake.is_dir().then(|| entries(lake)).transpose()?.unwrap_or_default() {
        let remedy = match name.strip_prefix('v').and_then(|version| version.parse::<i32>().ok()) {
            Some(version) if version > SCHEMA_VERSION => "a newer bprec-fleet wrote it; use the newer one",
            Some(version) if version < SCHEMA_VERSION => {
                "programs of this earlier version have other keys; import the recordings into a new directory"
            }
            _ => continue,
        };
        bail!(
            "{}: the lake has version {name}, and this bprec-fleet reads v{SCHEMA_VERSION}: {remedy}",
            lake.display()
        );
    }
    Ok(lake.join(format!("v{SCHEMA_VERSION}")))
}

fn mode_of(path: &Path) -> Result<u32> {
    let metadata = fs::metadata(path).with_context(|| stat(path))?;
    Ok(metadata.permissions().mode() & 0o7777)
}

fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let at = || format!("read directory {}", directory.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).with_context(at)? {
        let entry = entry.with_context(at)?;
        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    entries.sort();
    Ok(entries)
}

fn create_directory(directory: &Path, mode: u32) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(directory);
    created.with_context(|| format!("create {}", directory.display()))
}

fn link(target: &str, link: &Path) -> Result<()> {
    symlink(target, link).with_context(|| format!("create {}", link.display()))
}

fn sync_directory(directory: &Path) -> Result<()> {
    let at = || format!("sync {}", directory.display());
    File::open(directory).and_then(|directory| directory.sync_all()).with_context(at)
}

fn stat(path: &Path) -> String {
    format!("stat {}", path.display())
}
