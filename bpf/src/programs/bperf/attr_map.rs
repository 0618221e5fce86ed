//! The pinned map in which sessions, perf's too, find the leader of an event.
//!
//! Its keys are `perf_event_attr` as the tools that share it build them, before anything but the event itself is set; its values
//! are the ids of a leader's link and of its map of differences. Whoever changes it holds the lock of the map's file.
//!
//! perf leaves its map pinned, for the next session to use. A map that was made here has a name, and goes with the last
//! session of ours that finds no living leader in it: under the lock, and whoever waits for the lock meanwhile looks again
//! whether the map that it has is still the one that is pinned.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::leader::{self, Leader};
use crate::error::{Error, Object, Result};
use crate::sys::{self, Entries};

const CALL: &str = "sharing counters by";
/// The name of maps made here, by which they are known.
const NAME: &str = "bprec_attrs";
const HASH: u32 = 1;
const VALUE_BYTES: usize = 8;
/// Number of entries that perf makes.
const ENTRIES: u32 = 16;
/// Sizes of keys that can be a `perf_event_attr`: the first one ever, and more than any will have for long.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 64..=512;
/// Limit on waiting for the lock: loading and attaching take others some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
const LOCK_AGAIN: Duration = Duration::from_millis(2);
/// Number of looks for a leader that should be gone: a process that lists links holds each for a moment.
const LEAVE_AGAIN: u32 = 4;
const LEAVE_EVERY: Duration = Duration::from_millis(5);
/// `BPF_ANY`
const ANY: u64 = 0;

/// The map, open.
#[derive(Debug)]
pub struct AttrMap {
    fd: OwnedFd,
    id: u32,
    path: PathBuf,
    key_bytes: usize,
    is_own: bool,
}

/// The map, and nobody else changes it as long as this lives.
#[derive(Debug)]
pub struct Locked(Option<AttrMap>);

/// State of the entry of one event in the map of leaders.
#[derive(Debug)]
pub enum LeaderSlot {
    /// Leader that this session holds from now on.
    Leader(Leader),
    /// No leader, or a leader that has ended.
    Free,
    /// Leader of another tool that followers cannot read, with the reason.
    Foreign(String),
}

impl AttrMap {
    /// Opens the map that is pinned at `path`, makes one with keys of `key_bytes` where there is none, and waits until
    /// nobody else has its lock.
    ///
    /// # Errors
    /// Fails if `path` is not in a bpf file system, is something else than such a map, or the lock is not given back.
    pub fn lock(path: &Path, key_bytes: usize) -> Result<Locked> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let map = AttrMap::open(path, key_bytes)?;
            map.wait_for_lock(deadline)?;
            let locked = Locked(Some(map));
            // Its last user may have removed it before we had the lock.
            if locked.map().is_some_and(AttrMap::is_pinned) {
                return Ok(locked);
            }
            if Instant::now() >= deadline {
                return Err(unfit(path, "another process keeps removing and recreating it".to_owned()));
            }
        }
    }

    fn open(path: &Path, key_bytes: usize) -> Result<AttrMap> {
        let refused = |call| {
            move |errno| {
                let remedy = matches!(errno, libc::EPERM | libc::ENOENT | libc::ENOTDIR | libc::EROFS | libc::EACCES)
                    .then_some("is a bpf file system mounted there? (mount -t bpf bpf /sys/fs/bpf)");
                Error::Syscall { call, object: Object::Path(path.to_owned()), errno, remedy }
            }
        };
        loop {
            match sys::obj_get_writable(path) {
                Ok(fd) => return AttrMap::of(fd, path),
                Err(error) if error.errno() != Some(libc::ENOENT) => {
                    return Err(error.errno().map_or(error, refused("bpf(BPF_OBJ_GET)")));
                }
                Err(_) => (),
            }
            let fd = sys::create_hash(NAME, key_bytes as u32, VALUE_BYTES as u32, ENTRIES)
                .map_err(refused("bpf(BPF_MAP_CREATE) for"))?;
            match sys::obj_pin(path, fd.as_fd()) {
                Ok(()) => return AttrMap::of(fd, path),
                // Somebody was faster.
                Err(libc::EEXIST) => (),
                Err(errno) => return Err(refused("bpf(BPF_OBJ_PIN)")(errno)),
            }
        }
    }

    fn of(fd: OwnedFd, path: &Path) -> Result<AttrMap> {
        let info = sys::map_info(fd.as_fd(), 0)?;
        let (kind, key_bytes, value_bytes) = (info.type_, info.key_size as usize, info.value_size as usize);
        // The type of what is no map at all is read as something, too: descriptors of maps alone have an id of a map.
        let id = sys::FdInfo::of_own(fd.as_fd())?.map_id;
        let Some(id) = id.filter(|_| kind == HASH && value_bytes == VALUE_BYTES && KEY_BYTES.contains(&key_bytes))
        else {
            let problem = match id {
                Some(_) => format!(
                    "what is pinned there is no map of event attributes (type {kind}, keys of {key_bytes} bytes, values of \
                     {value_bytes}; a hash with keys of {} or more and values of {VALUE_BYTES} is)",
                    KEY_BYTES.start()
                ),
                None => "the pinned object is not a map".to_owned(),
            };
            return Err(unfit(path, problem));
        };
        let is_own = sys::c_chars(&info.name) == NAME.as_bytes();
        Ok(AttrMap { fd, id, path: path.to_owned(), key_bytes, is_own })
    }

    /// Bytes of its keys: of `perf_event_attr` in the tool that made it.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Path of its pin.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn wait_for_lock(&self, deadline: Instant) -> Result<()> {
        loop {
            match sys::try_lock(self.fd.as_fd()) {
                Ok(()) => return Ok(()),
                Err(libc::EWOULDBLOCK | libc::EINTR) if Instant::now() < deadline => thread::sleep(LOCK_AGAIN),
                Err(libc::EWOULDBLOCK | libc::EINTR) => {
                    let problem = format!("another session has its lock, for more than {} s", PATIENCE.as_secs());
                    return Err(unfit(&self.path, problem));
                }
                Err(errno) => {
                    return Err(Error::refused("flock", Object::Path(self.path.clone()))(errno));
                }
            }
        }
    }

    /// Returns true if it is this map that is pinned at its path.
    fn is_pinned(&self) -> bool {
        let pinned = sys::obj_get(&self.path).and_then(|fd| sys::FdInfo::of_own(fd.as_fd()));
        pinned.is_ok_and(|info| info.map_id == Some(self.id))
    }

    /// Takes what is gone out of the map, after the leaders of `own` keys have been let go of; and the map's pin, when
    /// it was made here and holds no leader any more.
    pub fn leave(&self, own: &[Vec<u8>]) {
        for attempt in 1..=LEAVE_AGAIN {
            // An entry without a leader is used by the next recorder: nothing breaks when it stays.
            let Ok(left) = self.sweep(own) else { return };
            if left == 0 || attempt == LEAVE_AGAIN {
                return;
            }
            thread::sleep(LEAVE_EVERY);
        }
    }

    /// Number of leaders of `own` keys that are still there.
    fn sweep(&self, own: &[Vec<u8>]) -> Result<usize> {
        self.wait_for_lock(Instant::now() + PATIENCE)?;
        let swept = self.sweep_locked(own);
        sys::unlock(self.fd.as_fd());
        swept
    }

    fn sweep_locked(&self, own: &[Vec<u8>]) -> Result<usize> {
        let entries = Entries::of(&self.fd, self.id)?;
        let (mut live, mut own_live) = (0, 0);
        for key in keys(&entries)? {
            let mut value = Vec::new();
            if !entries.lookup(&key, &mut value)? {
                continue;
            }
            let is_own = own.contains(&key);
            if leader::link_is_there(sys::get_u32(&value, 0)) {
                live += 1;
                own_live += usize::from(is_own);
            } else if self.is_own || is_own {
                entries.delete(&key)?;
            }
        }
        if self.is_own && live == 0 && self.is_pinned() {
            drop(fs::remove_file(&self.path));
        }
        Ok(own_live)
    }
}

impl Locked {
    /// Bytes of its keys.
    pub fn key_bytes(&self) -> usize {
        self.map().map_or(0, AttrMap::key_bytes)
    }

    fn map(&self) -> Option<&AttrMap> {
        self.0.as_ref()
    }

    fn entries(&self) -> Result<Entries<'_>> {
        match self.map() {
            Some(map) => Entries::of(&map.fd, map.id),
            None => Err(unfit(Path::new(""), "the lock was given back".to_owned())),
        }
    }

    /// Looks for the leader of the event that `key` describes, and takes hold of it.
    ///
    /// # Errors
    /// Fails if it cannot be looked at, for another reason than that it is gone.
    pub fn find(&self, key: &[u8]) -> Result<LeaderSlot> {
        let mut value = Vec::new();
        if !self.entries()?.lookup(key, &mut value)? {
            return Ok(LeaderSlot::Free);
        }
        match Leader::find(sys::get_u32(&value, 0), sys::get_u32(&value, 4)) {
            // The last session of the leader ended during the lookup.
            Err(error) if error.is_gone() => Ok(LeaderSlot::Free),
            found => found,
        }
    }

    /// Makes a leader known as the one for the event that `key` describes.
    ///
    /// # Errors
    /// Fails if the map is full of leaders that are alive.
    pub fn publish(&self, key: &[u8], leader: &Leader) -> Result<()> {
        let entries = self.entries()?;
        let value = [leader.link_id().to_ne_bytes(), leader.differences_id().to_ne_bytes()].concat();
        match entries.update(key, &value, ANY) {
            Err(error) if error.errno() == Some(libc::E2BIG) => (),
            other => return other,
        }
        let mut held = Vec::new();
        let all = keys(&entries)?;
        for key in &all {
            entries.lookup(key, &mut held)?;
            if !leader::link_is_there(sys::get_u32(&held, 0)) {
                entries.delete(key)?;
            }
        }
        entries.update(key, &value, ANY).map_err(|error| match error.errno() {
            Some(libc::E2BIG) => {
                let path = self.map().map_or(Path::new(""), AttrMap::path);
                unfit(path, format!("it is full: all {} entries are in use", all.len()))
            }
            _ => error,
        })
    }

    /// Gives the lock back.
    pub fn unlock(mut self) -> Option<AttrMap> {
        let map = self.0.take()?;
        sys::unlock(map.fd.as_fd());
        Some(map)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(map) = &self.0 {
            sys::unlock(map.fd.as_fd());
        }
    }
}

fn keys(entries: &Entries<'_>) -> Result<Vec<Vec<u8>>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    while let Some(key) = entries.next_key(keys.last().map(Vec::as_slice))? {
        // A key that is removed meanwhile leads back to the first.
        if keys.contains(&key) {
            break;
        }
        keys.push(key);
    }
    Ok(keys)
}

fn unfit(path: &Path, problem: String) -> Error {
    Error::Answer { call: CALL, object: Object::Path(path.to_owned()), problem }
}
