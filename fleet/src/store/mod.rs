//! Places of lakes: a [`Directory`], or a [`Bucket`] of an object store. A place keeps the files of batches, the states of days, and generations.
//!
//! A generation is a state of the whole lake: a state of each day. A writer writes the files of a batch and the new state of their day beside the
//! old ones, and then publishes the next generation in one step. A superseded generation is kept for [`HORIZON`], so that it can still be read.

mod bucket;
mod directory;

pub(crate) use bucket::Bucket;
pub(crate) use directory::Directory;

use crate::lake::Batch;
use crate::rows::Date;
use crate::schema::SCHEMA_VERSION;
use anyhow::{Result, bail};
use bytes::Bytes;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::path::Path as StorePath;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Directory, or prefix of keys, of the generations.
const GENERATIONS: &str = "generations";
/// Directory, or prefix of keys, of the days.
const DAYS: &str = "days";
/// End of a file name, after the id of the batch.
const SUFFIX: &str = ".parquet";
/// Time for which a superseded generation is kept.
const HORIZON: Duration = Duration::from_secs(3600);
/// Limit on files or objects that are read or written at the same time.
pub(crate) const PARALLEL: u32 = 16;

/// State of a lake.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generation {
    /// 0 for an empty lake.
    pub(crate) number: u64,
    /// Name of the state of each day.
    pub(crate) states: BTreeMap<Date, String>,
}

/// Contents of a day.
#[derive(Debug, Default)]
pub(crate) struct Day {
    /// Batches with the sizes of their files, sorted by id.
    pub(crate) batches: Vec<Batch>,
    /// Files that engines may read, but that no commit lists.
    pub(crate) foreign: Vec<PathBuf>,
}

/// Contents of the files of a batch, by table.
pub(crate) type Files = BTreeMap<String, Bytes>;

/// Place of a lake.
pub(crate) trait Store: Debug + Send + Sync {
    /// Returns the newest generation; `None` if there is no lake.
    fn newest(&self) -> Result<Option<Generation>>;

    /// Prepares the place for a writer, and creates the lake if it is missing. A directory has one writer at a time, until the returned file is
    /// dropped.
    fn prepare(&self) -> Result<Option<File>>;

    /// Removes files of killed writers, and what only generations have that were superseded at least [`HORIZON`] ago.
    fn remove_unused(&self, newest: &Generation) -> Result<()>;

    /// Reads the state of a day.
    ///
    /// # Errors
    /// Fails if a commit cannot be read: sums would lack its batch.
    fn read_day(&self, generation: &Generation, date: Date) -> Result<Day>;

    /// Writes the files of a batch, by table, and a state of its day with this batch and the batches `kept`. Sets the batch's `state` to the name of
    /// this state, which is a part of no generation yet.
    fn write_day(&self, base: &Generation, kept: &[Batch], batch: &mut Batch, files: &Files) -> Result<()>;

    /// Makes a generation the newest, if the newest still has the number before.
    ///
    /// # Errors
    /// Fails if another writer was first, or if the generation cannot be written; then nothing has changed.
    fn publish(&self, next: &Generation) -> Result<()>;

    /// Returns the path of a file, or its URL.
    fn path_of(&self, generation: &Generation, batch: &Batch, table: &str) -> PathBuf;

    /// Reads a part of a file.
    fn read(&self, path: &Path, range: Range<u64>) -> Result<Bytes>;

    /// Returns the location of a file in the object store of an engine.
    fn location(&self, path: &Path) -> Result<StorePath>;

    /// Returns the file that a commit replaces, in the directory that has all files of the lake; `None` if they are in an object store.
    fn local_output(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the object store with the files; `None` if they are in a directory.
    fn objects(&self) -> Option<Arc<dyn ObjectStore>> {
        None
    }
}

/// Opens a place: a URL such as `s3://bucket/prefix`, or else a directory.
///
/// # Errors
/// Fails if the lake in this place has another version, or if the settings of the object store are not valid.
pub(crate) fn open(lake: &Path) -> Result<Arc<dyn Store>> {
    Ok(match lake.to_str().filter(|name| name.contains("://")) {
        Some(url) => Arc::new(Bucket::open(url)?),
        None => Arc::new(Directory::open(lake)?),
    })
}

/// Fails if the lake has another version, by the names in its directory.
fn check_versions<'n>(lake: &Path, names: impl Iterator<Item = &'n str>) -> Result<()> {
    for name in names {
        let remedy = match name.strip_prefix('v').and_then(|version| version.parse::<i32>().ok()) {
            Some(version) if version > SCHEMA_VERSION => "a newer bprec-fleet wrote it; use the newer one",
            Some(version) if version < SCHEMA_VERSION => {
                "programs of this earlier version have other keys; import the recordings into a new directory"
            }
            _ => continue,
        };
        let lake = lake.display();
        bail!("{lake}: the lake has version {name}, and this bprec-fleet reads v{SCHEMA_VERSION}: {remedy}");
    }
    Ok(())
}
