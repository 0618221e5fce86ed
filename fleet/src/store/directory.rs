//! Lake in a directory.
//!
//! ```text
//! v2/current ─▶ generations/17                                              the newest state of the lake
//! v2/generations/17/<table>/date=<day> ─▶ ../../../days/<day>.12/<table>
//! v2/days/<day>.12/<table>/<batch>.parquet                                  the state of a day since generation 12
//! ```
//!
//! A new state of a day has new files, and hard links to the files that stay. A new generation has a symbolic link to the state of each day. Renaming
//! a link over `current` commits all tables at once. Until then, no directory that readers list has changed.

use super::{DAYS, Day, Files, GENERATIONS, Generation, HORIZON, SUFFIX, Store, check_versions};
use crate::lake::{Batch, DAMAGED, read_commit};
use crate::rows::{Date, date};
use crate::schema::{RECORDING, SCHEMA_VERSION, Table, tables};
use anyhow::{Context, Result};
use bytes::Bytes;
use datafusion::object_store::path::Path as StorePath;
use fs_err::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use fs_err::{self as fs, DirEntry, File, OpenOptions};
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Permissions of the directory `v2` of a new lake. Directories below get the permissions that `v2` has; files get the same without execution.
const OWNER_ONLY: u32 = 0o700;
/// Symbolic link to the newest generation.
const CURRENT: &str = "current";

/// Lake in a directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Directory with all files of this version of the lake.
    root: PathBuf,
}

impl Directory {
    pub(super) fn open(lake: &Path) -> Result<Directory> {
        let names = lake.is_dir().then(|| entries(lake)).transpose()?.unwrap_or_default();
        check_versions(lake, names.iter().map(|(name, _)| &**name))?;
        Ok(Directory { root: lake.join(format!("v{SCHEMA_VERSION}")) })
    }

    fn directory_of(&self, generation: &Generation, table: &str, date: Date) -> PathBuf {
        let generation = self.root.join(GENERATIONS).join(generation.number.to_string());
        generation.join(table).join(format!("date={date}"))
    }
}

impl Store for Directory {
    fn newest(&self) -> Result<Option<Generation>> {
        if !self.root.is_dir() {
            return Ok(None);
        }
        let current = self.root.join(CURRENT);
        let target = match fs::read_link(&current) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(Generation::default())),
            Err(error) => return Err(error.into()),
        };
        let number = target.file_name().and_then(|name| name.to_str()?.parse().ok());
        let number = number.with_context(|| format!("{}: is not a link to a generation", current.display()))?;
        Ok(Some(Generation { number, states: states_of(&self.root.join(target))? }))
    }

    fn prepare(&self) -> Result<Option<std::fs::File>> {
        create_directory(&self.root, OWNER_ONLY)?;
        let lock = self.root.join(".lock");
        let file = OpenOptions::new().create(true).append(true).open(&lock)?.into_file();
        flock(&file, FlockOperation::LockExclusive).with_context(|| format!("lock {}", lock.display()))?;
        for name in [GENERATIONS, DAYS] {
            create_directory(&self.root.join(name), mode_of(&self.root)?)?;
        }
        Ok(Some(file))
    }

    fn remove_unused(&self, newest: &Generation) -> Result<()> {
        let found = entries(&self.root.join(GENERATIONS))?;
        let numbered = found.iter().filter_map(|(name, path)| Some((name.parse::<u64>().ok()?, path)));
        let numbered: BTreeMap<u64, &PathBuf> = numbered.filter(|(number, _)| *number <= newest.number).collect();
        let mut superseded_at: Option<SystemTime> = None;
        let (mut kept, mut states) = (BTreeSet::new(), BTreeSet::new());
        for path in numbered.into_values().rev() {
            // `elapsed` fails if the clock was set back; the generation is then kept.
            if superseded_at.is_some_and(|at| at.elapsed().is_ok_and(|age| age >= HORIZON)) {
                break;
            }
            superseded_at = Some(fs::metadata(path)?.modified()?);
            states.extend(states_of(path)?.into_values());
            kept.insert(path);
        }
        let unused = found.iter().map(|(_, path)| path).filter(|path| !kept.contains(path)).cloned();
        let of_days = entries(&self.root.join(DAYS))?.into_iter();
        let of_days = of_days.filter(|(name, _)| !states.contains(name)).map(|(_, path)| path);
        for path in unused.chain(of_days) {
            fs::remove_dir_all(&path)?;
        }
        Ok(())
    }

    fn read_day(&self, generation: &Generation, date: Date) -> Result<Day> {
        let (mut batches, mut foreign) = (BTreeMap::new(), Vec::new());
        // The files of `recording`, which is the last table, have the commits.
        for table in tables().iter().rev() {
            let directory = self.directory_of(generation, table.name, date);
            // Batches of older versions have fewer tables.
            for (name, path) in directory.is_dir().then(|| entries(&directory)).transpose()?.unwrap_or_default() {
                if table.name == RECORDING
                    && let Some(id) = name.strip_suffix(SUFFIX)
                    && let Some((commit, recordings)) = read_commit(&path)?
                {
                    let id = id.to_owned();
                    batches.insert(name.clone(), Batch { date, id, recordings, commit, ..Batch::default() });
                }
                match batches.get_mut(&name) {
                    Some(batch) => drop(batch.found.insert(table.name.to_owned(), fs::metadata(&path)?.len())),
                    None => foreign.push(path),
                }
            }
        }
        Ok(Day { batches: batches.into_values().collect(), foreign })
    }

    fn write_day(&self, base: &Generation, kept: &[Batch], batch: &mut Batch, files: &Files) -> Result<()> {
        batch.state = format!("{}.{}", batch.date, base.number + 1);
        let directory = self.root.join(DAYS).join(&batch.state);
        let mode = mode_of(&self.root)?;
        for (table, bytes) in files {
            let directory = directory.join(table);
            create_directory(&directory, mode)?;
            for batch in kept.iter().filter(|batch| batch.has(table)) {
                let file = self.path_of(base, batch, table);
                let link = directory.join(batch.id.clone() + SUFFIX);
                fs::hard_link(&file, link).with_context(|| format!("{}: {DAMAGED}", file.display()))?;
            }
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode & 0o666);
            let mut file = options.open(directory.join(batch.id.clone() + SUFFIX))?;
            file.write_all(bytes)?;
            file.sync_all()?;
            sync_directory(&directory)?;
        }
        sync_directory(&directory)
    }

    fn publish(&self, next: &Generation) -> Result<()> {
        let Generation { number, states } = next;
        let directory = self.root.join(GENERATIONS).join(number.to_string());
        for Table { name, .. } in tables() {
            let directory = directory.join(name);
            create_directory(&directory, mode_of(&self.root)?)?;
            let has_table = |(_, state): &(&Date, &String)| self.root.join(DAYS).join(state).join(name).is_dir();
            for (date, state) in states.iter().filter(has_table) {
                symlink(format!("../../../{DAYS}/{state}/{name}"), directory.join(format!("date={date}")))?;
            }
            sync_directory(&directory)?;
        }
        let new = directory.with_extension("link");
        symlink(format!("{GENERATIONS}/{number}"), &new)?;
        for directory in [&directory, &self.root.join(GENERATIONS), &self.root.join(DAYS)] {
            sync_directory(directory)?;
        }
        fs::rename(&new, self.root.join(CURRENT))?;
        sync_directory(&self.root)
    }

    fn path_of(&self, generation: &Generation, batch: &Batch, table: &str) -> PathBuf {
        self.directory_of(generation, table, batch.date).join(batch.id.clone() + SUFFIX)
    }

    fn read(&self, path: &Path, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start)?];
        File::open(path)?.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    }

    fn location(&self, path: &Path) -> Result<StorePath> {
        Ok(StorePath::from_absolute_path(fs::canonicalize(path)?)?)
    }

    fn local_output(&self) -> Option<PathBuf> {
        Some(self.root.join(CURRENT))
    }
}

/// Returns the name of the state of each day of a generation.
fn states_of(generation: &Path) -> Result<BTreeMap<Date, String>> {
    let links = entries(&generation.join(RECORDING))?.into_iter();
    let state = |(name, path): (String, PathBuf)| {
        let state = fs::read_link(path).ok()?.parent()?.file_name()?.to_str()?.to_owned();
        Some((date(name.strip_prefix("date=")?).ok()?, state))
    };
    Ok(links.filter_map(state).collect())
}

fn mode_of(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
}

fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let named = |entry: DirEntry| (entry.file_name().to_string_lossy().into_owned(), entry.path());
    let mut entries: Vec<_> = fs::read_dir(directory)?.map(|entry| entry.map(named)).collect::<io::Result<_>>()?;
    entries.sort();
    Ok(entries)
}

fn create_directory(directory: &Path, mode: u32) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(directory);
    created.with_context(|| format!("create {}", directory.display()))
}

fn sync_directory(directory: &Path) -> Result<()> {
    Ok(File::open(directory)?.sync_all()?)
}
