//! Contents of a disk after a power loss: all synced data of each file and a first part of the data written later; the same holds for names.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use super::{brief, files, scratch};
use crate::disk::{Answer, Inode, Step, run};

/// Contents of a file before the run, and its changes in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    before: Vec<u8>,
    changes: Vec<Change>,
    /// Number of changes, from the first on, that are certainly on the disk.
    pub(crate) synced: usize,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Truncate { len: u64 },
}

/// The disk at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    pub(crate) files: HashMap<Inode, History>,
    before: BTreeMap<String, Inode>,
    names: Vec<Step>,
    /// Number of changes of names, from the first on, that are certainly on the disk.
    pub(crate) synced_names: usize,
}

impl History {
    /// Number of changes.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The contents after this number of changes.
    pub(crate) fn contents(&self, changes: usize) -> Vec<u8> {
        let mut bytes = self.before.clone();
        for change in &self.changes[..changes] {
            match change {
                Change::Write { offset, data } => {
                    let end = *offset as usize + data.len();
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[*offset as usize..end].copy_from_slice(data);
                }
                Change::Truncate { len } => bytes.resize(*len as usize, 0),
            }
        }
        bytes
    }
}

impl Disk {
    /// A disk with these files, all of them synced.
    pub(crate) fn new(files: &BTreeMap<String, (Inode, Vec<u8>)>) -> Disk {
        let before = files.iter().map(|(name, (inode, _))| (name.clone(), *inode)).collect();
        let history = |bytes: &Vec<u8>| History { before: bytes.clone(), ..History::default() };
        let files = files.values().map(|(inode, bytes)| (*inode, history(bytes))).collect();
        Disk { files, before, ..Disk::default() }
    }

    pub(crate) fn take(&mut self, step: &Step) {
        let file = |disk: &mut Disk, inode: Inode, change| disk.files.entry(inode).or_default().changes.push(change);
        match step {
            Step::Write { inode, offset, data, .. } => {
                file(self, *inode, Change::Write { offset: *offset, data: data.clone().unwrap() });
            }
            Step::Truncate { inode, len } => file(self, *inode, Change::Truncate { len: *len }),
            Step::Sync { inode } => {
                let history = self.files.entry(*inode).or_default();
                history.synced = history.changes.len();
            }
            Step::SyncNames => self.synced_names = self.names.len(),
            Step::Create { inode: Some(inode), .. } => {
                self.files.entry(*inode).or_default();
                self.names.push(step.clone());
            }
            Step::Link { .. } | Step::Rename { .. } | Step::Unlink { .. } => self.names.push(step.clone()),
            Step::Create { inode: None, .. } | Step::Open | Step::Refused => {}
        }
    }

    /// Number of changes of names.
    pub(crate) fn name_changes(&self) -> usize {
        self.names.len()
    }

    /// The names after this number of name changes.
    pub(crate) fn names(&self, changes: usize) -> BTreeMap<String, Inode> {
        let mut names = self.before.clone();
        for change in &self.names[..changes] {
            match change {
                Step::Create { name, inode: Some(inode) } | Step::Link { inode, name } => {
                    names.insert(name.clone(), *inode);
                }
                Step::Rename { from, to } => {
                    if let Some(inode) = names.remove(from) {
                        names.insert(to.clone(), inode);
                    }
                }
                Step::Unlink { name } => drop(names.remove(name)),
                _ => {}
            }
        }
        names
    }
}

/// A generator of numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// Combinations of changes to try, for files with these numbers of changes since their last sync: all combinations if they are few; otherwise no
/// changes, all changes, and some combinations in between.
fn choices(pending: &[usize], random: &mut Random) -> Vec<Vec<usize>> {
    const ALL_MAX: usize = 24;
    const SOME: usize = 6;
    if pending.iter().try_fold(1usize, |all, one| all.checked_mul(one + 1)).is_some_and(|all| all <= ALL_MAX) {
        let mut all = vec![Vec::new()];
        for one in pending {
            all = all.iter().flat_map(|begun| (0..=*one).map(|next| [&begun[..], &[next]].concat())).collect();
        }
        return all;
    }
    let some = (0..SOME).map(|_| pending.iter().map(|one| random.below(one + 1)).collect());
    [vec![0; pending.len()], pending.to_vec()].into_iter().chain(some).collect()
}

/// Tests all disk states that a power loss after any step of a program may cause.
pub(crate) fn lose_power_everywhere(
    prepare: &dyn Fn(&Path),
    program: &dyn Fn(&Path) -> Command,
    mut check: impl FnMut(&str, &Disk, &BTreeMap<String, Vec<u8>>),
) -> (usize, usize) {
    let directory = scratch();
    prepare(directory.path());
    let mut disk = Disk::new(&files(directory.path()));
    let ran = run(directory.path(), program(directory.path()), &mut |_, _| Answer::Go);
    assert!(ran.status.success(), "{}", ran.said);
    let (mut random, mut states) = (Random(3), 0);
    let mut known = HashSet::new();
    for (at, step) in ran.steps.iter().enumerate() {
        disk.take(step);
        let inodes: BTreeSet<Inode> =
            disk.names(disk.name_changes()).into_values().chain(disk.names(disk.synced_names).into_values()).collect();
        let inodes: Vec<Inode> = inodes.into_iter().collect();
        let mut pending: Vec<usize> =
            inodes.iter().map(|inode| disk.files[inode].len() - disk.files[inode].synced).collect();
        pending.push(disk.name_changes() - disk.synced_names);
        for choice in choices(&pending, &mut random) {
            let names = disk.names(disk.synced_names + choice[inodes.len()]);
            let changes: HashMap<Inode, usize> =
                inodes.iter().zip(&choice).map(|(inode, more)| (*inode, disk.files[inode].synced + more)).collect();
            let left: BTreeMap<String, Vec<u8>> = names
                .iter()
                .map(|(name, inode)| {
                    (name.clone(), disk.files[inode].contents(changes.get(inode).copied().unwrap_or(0)))
                })
                .collect();
            if known.insert((left.clone(), disk.files.values().map(|file| file.synced).sum::<usize>())) {
                states += 1;
                check(&format!("after step {at} ({}), {choice:?}", brief(step)), &disk, &left);
            }
        }
    }
    (ran.steps.len(), states)
}
