//! A lake on disk: `v1/<table>/date=<day>/<batch>.parquet`, and which of these files count.
//!
//! A batch is some recordings of a day. Its files of all tables are written under temporary names, synced and renamed, that of `recording`
//! last: it is the mark of the commit, and lists the others with their sizes and hashes. What no mark lists does not count. A batch that is
//! made of others (`compact`) lists those too: they no longer count from then on, whether they are still there or not.

use crate::rows::{Date, Rows};
use crate::schema::{
    CounterRow, EventRow, ProgRow, RecordingRow, Row, RunStatsRow, SCHEMA_VERSION, SampleRow, Table, fact_tables,
    tables,
};
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
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Key of a file's metadata that has the version of the schema.
const VERSION_KEY: &str = "bprec.schema_version";
/// Key of a mark's metadata that has what was committed.
const COMMIT_KEY: &str = "bprec.commit";
/// Most rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// Prefix of temporary names: engines take no such files for data.
const TEMPORARY: &str = ".bprec-";

/// A file of a batch, as its mark lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Content of a mark: its batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Commit {
    /// By table.
    files: BTreeMap<String, Listed>,
    /// Batches of the same day that this one is made of.
    replaces: BTreeSet<String>,
}

/// A batch that was committed.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) date: Date,
    pub(crate) id: String,
    /// Rows of `recording`.
    pub(crate) recordings: u64,
    commit: Commit,
}

/// A file that counts.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) date: Date,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Not known of a mark, since a mark lists the others.
    sha256: Option<String>,
}

impl Committed {
    /// Returns true if it is what was committed, to the last bit.
    ///
    /// # Errors
    /// When it is not, or cannot be read.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(sha256) = &self.sha256 else { return Ok(()) };
        let at = || self.path.display().to_string();
        let found = File::open(&self.path).and_then(hash_of).with_context(at)?;
        ensure!(found == *sha256, "{}: is not what was committed, its hash is another: {DAMAGED}", at());
        Ok(())
    }
}

/// Remedy for a file that is no longer what it was.
const DAMAGED: &str = "restore it, or remove the files of this name from all tables and import their recordings again";

/// A lake, and what of it counts.
#[derive(Debug)]
pub(crate) struct Lake {
    root: PathBuf,
    /// By day and id.
    pub(crate) batches: Vec<Batch>,
    /// Files that are not bprec's, or no Parquet: they count for nothing.
    pub(crate) foreign: Vec<PathBuf>,
    /// Files of bprec's that no mark lists, or no longer: of an import that did not come to its end, or of batches that were compacted.
    pub(crate) left_over: Vec<PathBuf>,
}

/// Lock of the only writer of a lake.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held")] File);

impl Lake {
    /// Looks at a lake that is there; days outside of `days` are not looked at.
    ///
    /// # Errors
    /// When there is none, or it was written in a newer version, or a mark cannot be read: what it lists would be missing from every sum.
    pub(crate) fn open(path: &Path, days: (Date, Date)) -> Result<Lake> {
        let root = path.join(format!("v{SCHEMA_VERSION}"));
        if !root.is_dir() {
            bail!(
                "{}: is no lake: it has no directory v{SCHEMA_VERSION}; `bprec-fleet import` makes one",
                path.display()
            );
        }
        Lake::read(root, days)
    }

    /// The same for whoever writes to it; makes one where there is none.
    pub(crate) fn open_to_write(path: &Path) -> Result<(Lake, Lock)> {
        let root = path.join(format!("v{SCHEMA_VERSION}"));
        for table in tables() {
            let directory = root.join(table.name);
            fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        }
        let lock = root.join(".lock");
        let file = File::options().create(true).append(true).open(&lock);
        let file = file.with_context(|| format!("open {}", lock.display()))?;
        flock(&file, FlockOperation::LockExclusive).with_context(|| format!("lock {}", lock.display()))?;
        let mut lake = Lake::read(root, (Date::MIN, Date::MAX))?;
        for path in std::mem::take(&mut lake.left_over) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
        Ok((lake, Lock(file)))
    }

    fn read(root: PathBuf, (from, to): (Date, Date)) -> Result<Lake> {
        let beside = root.parent().map(subdirectories).transpose()?.unwrap_or_default();
        if let Some((name, _)) = beside.iter().find(|(name, _)| is_newer_version(name)) {
            bail!("{}: has {name}, which a newer bprec-fleet wrote: take that one", root.display());
        }
        let mut lake = Lake { root, batches: Vec::new(), foreign: Vec::new(), left_over: Vec::new() };
        let mut files: BTreeMap<&str, BTreeSet<(Date, String)>> = BTreeMap::new();
        let tables = tables();
        for table in &tables {
            let found = lake.files_of(table.name)?;
            files.insert(table.name, found.into_iter().filter(|(date, _)| (from..=to).contains(date)).collect());
        }
        let marks = files.remove(RecordingRow::table().name).unwrap_or_default();
        for (date, id) in marks {
            let path = lake.path_of(RecordingRow::table().name, date, &id);
            match read_mark(&path)? {
                Some((commit, recordings)) => lake.batches.push(Batch { date, id, recordings, commit }),
                None => lake.foreign.push(path),
            }
        }
        let replaced: BTreeSet<(Date, String)> = lake
            .batches
            .iter()
            .flat_map(|batch| batch.commit.replaces.iter().map(|id| (batch.date, id.clone())))
            .collect();
        let (gone, batches) = std::mem::take(&mut lake.batches)
            .into_iter()
            .partition(|batch| replaced.contains(&(batch.date, batch.id.clone())));
        lake.batches = batches;
        for Batch { date, id, .. } in gone {
            lake.left_over.push(lake.path_of(RecordingRow::table().name, date, &id));
        }
        let committed: BTreeSet<(Date, &str)> = lake.batches.iter().map(|batch| (batch.date, &*batch.id)).collect();
        for (table, found) in &files {
            for (date, id) in found.iter().filter(|(date, id)| !committed.contains(&(*date, &**id))) {
                let path = lake.path_of(table, *date, id);
                if is_ours(&path)? { lake.left_over.push(path) } else { lake.foreign.push(path) }
            }
        }
        Ok(lake)
    }

    /// Days and names of the Parquet files of a table; what else is there is told or is left over.
    fn files_of(&mut self, table: &str) -> Result<Vec<(Date, String)>> {
        let mut files = Vec::new();
        let directory = self.root.join(table);
        if !directory.is_dir() {
            return Ok(files);
        }
        for (name, path) in entries(&directory)? {
            let date = name.strip_prefix("date=").and_then(|date| date.parse::<Date>().ok());
            let Some(date) = date.filter(|_| path.is_dir()) else {
                self.foreign.push(path);
                continue;
            };
            for (name, path) in entries(&path)? {
                match name.strip_suffix(".parquet").filter(|_| path.is_file()) {
                    Some(_) if name.starts_with(TEMPORARY) => self.left_over.push(path),
                    Some(id) => files.push((date, id.to_owned())),
                    None if name.starts_with(TEMPORARY) => self.left_over.push(path),
                    None => self.foreign.push(path),
                }
            }
        }
        Ok(files)
    }

    /// Path of a file of a batch.
    pub(crate) fn path_of(&self, table: &str, date: Date, batch: &str) -> PathBuf {
        self.root.join(table).join(format!("date={date}")).join(format!("{batch}.parquet"))
    }

    /// Files of a table that count.
    ///
    /// # Errors
    /// When one is not there, or is not as long as it was: every sum would be wrong.
    pub(crate) fn committed(&self, table: &str) -> Result<Vec<Committed>> {
        self.batches.iter().map(|batch| self.committed_of(batch, table)).collect()
    }

    /// A batch's file of a table.
    ///
    /// # Errors
    /// When the lake cannot be read, see [`Lake::committed`].
    pub(crate) fn committed_of(&self, batch: &Batch, table: &str) -> Result<Committed> {
        let path = self.path_of(table, batch.date, &batch.id);
        let bytes = fs::metadata(&path).with_context(|| format!("stat {}", path.display()))?.len();
        let listed = batch.commit.files.get(table);
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

    /// The same lake with these batches alone.
    pub(crate) fn part(&self, batches: Vec<Batch>) -> Lake {
        Lake { root: self.root.clone(), batches, foreign: Vec::new(), left_over: Vec::new() }
    }

    /// Rows of a batch's file, as its mark says.
    pub(crate) fn rows_of(&self, batch: &Batch, table: &str) -> u64 {
        batch.commit.files.get(table).map_or(batch.recordings, |listed| listed.rows)
    }

    /// Writes recordings of a day, which counts when this returns, and never in part.
    ///
    /// # Errors
    /// When it cannot be written; then nothing of it counts.
    pub(crate) fn commit(&mut self, date: Date, mut rows: Rows) -> Result<()> {
        let id = batch_id(rows.recordings.iter().map(|row| &*row.recording_id));
        drop_known(&mut rows.progs);
        RecordingRow::sort(&mut rows.recordings);
        let facts = [
            sorted::<ProgRow>(&mut rows.progs)?,
            sorted::<RunStatsRow>(&mut rows.run_stats)?,
            sorted::<EventRow>(&mut rows.events)?,
            sorted::<SampleRow>(&mut rows.samples)?,
            sorted::<CounterRow>(&mut rows.counters)?,
        ];
        let facts: Vec<Vec<RecordBatch>> = facts.into_iter().map(|batch| vec![batch]).collect();
        let recordings = vec![RecordingRow::batch(&rows.recordings)?];
        self.commit_batches(date, id, &facts, &recordings, BTreeSet::new())
    }

    /// Writes a batch: of each table its rows in their order. `replaces`: batches that count no longer.
    pub(crate) fn commit_batches(
        &mut self,
        date: Date,
        id: String,
        facts: &[Vec<RecordBatch>],
        recordings: &[RecordBatch],
        replaces: BTreeSet<String>,
    ) -> Result<()> {
        let mut commit = Commit { files: BTreeMap::new(), replaces };
        for (table, rows) in fact_tables().iter().zip(facts) {
            let listed = self.write(table, date, &id, rows, None)?;
            commit.files.insert(table.name.to_owned(), listed);
        }
        // All names of the facts are on the disk before the mark's is.
        for table in fact_tables() {
            sync_directory(self.path_of(table.name, date, &id).parent())?;
        }
        let table = RecordingRow::table();
        let listed = self.write(&table, date, &id, recordings, Some(&commit))?;
        sync_directory(self.path_of(table.name, date, &id).parent())?;
        self.batches.push(Batch { date, id, recordings: listed.rows, commit });
        Ok(())
    }

    fn write(
        &self,
        table: &Table,
        date: Date,
        id: &str,
        rows: &[RecordBatch],
        commit: Option<&Commit>,
    ) -> Result<Listed> {
        let path = self.path_of(table.name, date, id);
        let directory = path.parent().context("a file without a directory")?;
        if !directory.is_dir() {
            fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
            sync_directory(directory.parent())?;
        }
        let mut file = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .suffix(".tmp")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(directory)
            .with_context(|| format!("create a file in {}", directory.display()))?;
        let mut write = || -> Result<Listed> {
            let mut bytes = Hashing { file: file.as_file_mut(), hash: Sha256::new(), bytes: 0 };
            let options =
                ArrowWriterOptions::new().with_properties(properties(table, commit)?).with_skip_arrow_metadata(true);
            let mut writer = ArrowWriter::try_new_with_options(&mut bytes, table.schema.clone(), options)?;
            rows.iter().try_for_each(|rows| writer.write(rows))?;
            writer.close()?;
            let count = rows.iter().map(|rows| rows.num_rows() as u64).sum();
            let listed = Listed { rows: count, bytes: bytes.bytes, sha256: hex(&bytes.hash.finalize()) };
            file.as_file().sync_all()?;
            Ok(listed)
        };
        let listed = write().with_context(|| format!("write {}", path.display()))?;
        file.persist(&path).with_context(|| format!("rename to {}", path.display()))?;
        Ok(listed)
    }

    /// Removes batches that another one replaces.
    pub(crate) fn remove(&mut self, replaced: &BTreeSet<(Date, String)>) -> Result<()> {
        // The marks go last: until then their files are known as what is left over.
        for table in fact_tables().iter().chain([&RecordingRow::table()]) {
            for (date, id) in replaced {
                let path = self.path_of(table.name, *date, id);
                fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        self.batches.retain(|batch| !replaced.contains(&(batch.date, batch.id.clone())));
        Ok(())
    }
}

/// A name for a batch that follows from what is in it.
pub(crate) fn batch_id<'i>(recording_ids: impl Iterator<Item = &'i str>) -> String {
    let mut ids: Vec<&str> = recording_ids.collect();
    ids.sort_unstable();
    let mut hash = Sha256::new();
    ids.iter().for_each(|id| hash.update(id));
    hex(&hash.finalize()[..16])
}

/// Programs that several recordings of a host know are one row: that of the last one.
fn drop_known(progs: &mut Vec<ProgRow>) {
    let key =
        |row: &ProgRow| (row.host_id.clone(), row.prog_id, row.load_time_ns, row.prog_key.clone(), row.tag.clone());
    let mut known = BTreeSet::new();
    progs.reverse();
    progs.retain(|row| known.insert(key(row)));
    progs.reverse();
}

fn sorted<R: Row>(rows: &mut [R]) -> Result<RecordBatch> {
    R::sort(rows);
    Ok(R::batch(rows)?)
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

/// Hashes what is written.
struct Hashing<'f> {
    file: &'f mut File,
    hash: Sha256,
    bytes: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn hash_of(file: File) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut reader = BufReader::new(file);
    let mut buffer = [0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files that a mark lists, and its rows; `None` if the file is someone else's.
fn read_mark(path: &Path) -> Result<Option<(Commit, u64)>> {
    let damaged = || {
        format!(
            "{}: cannot be read, so what was committed with it is not known; restore it, or remove it and import those recordings again",
            path.display()
        )
    };
    let reader = SerializedFileReader::new(File::open(path).with_context(damaged)?).with_context(damaged)?;
    let metadata = reader.metadata().file_metadata();
    let Some(version) = value_of(metadata.key_value_metadata(), VERSION_KEY) else { return Ok(None) };
    if version != SCHEMA_VERSION.to_string() {
        bail!(
            "{}: has version {version} of the schema, which a newer bprec-fleet wrote: take that one",
            path.display()
        );
    }
    let commit = value_of(metadata.key_value_metadata(), COMMIT_KEY).with_context(damaged)?;
    let commit = serde_json::from_str(commit).with_context(damaged)?;
    Ok(Some((commit, u64::try_from(metadata.num_rows()).with_context(damaged)?)))
}

/// Returns true if a file that no mark lists is of this program.
fn is_ours(path: &Path) -> Result<bool> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let Ok(reader) = SerializedFileReader::new(file) else { return Ok(false) };
    Ok(value_of(reader.metadata().file_metadata().key_value_metadata(), VERSION_KEY).is_some())
}

fn value_of<'m>(metadata: Option<&'m Vec<KeyValue>>, key: &str) -> Option<&'m str> {
    metadata?.iter().find(|entry| entry.key == key)?.value.as_deref()
}

fn is_newer_version(name: &str) -> bool {
    let version = name.strip_prefix('v').and_then(|version| version.parse::<i32>().ok());
    version.is_some_and(|version| version > SCHEMA_VERSION)
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

fn subdirectories(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    Ok(entries(directory)?.into_iter().filter(|(_, path)| path.is_dir()).collect())
}

fn sync_directory(directory: Option<&Path>) -> Result<()> {
    let Some(directory) = directory else { return Ok(()) };
    let at = || format!("sync {}", directory.display());
    File::open(directory).and_then(|directory| directory.sync_all()).with_context(at)
}
