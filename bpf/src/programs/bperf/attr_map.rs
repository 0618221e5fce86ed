//! The pinned map in which sessions of bprec and perf find the leader of an event.
//!
//! Each key is a `perf_event_attr` in which only the fields that describe the event are set; all tools that share the map build the key in the same
//! way. Each value holds the id of the leader's link and the id of the leader's map `diff_readings`. A session changes the map only while it holds the
//! map's lock (`flock`).
//!
//! perf leaves its map pinned for the next session. A map with bprec's name was created by bprec: a session of bprec that leaves it without a live
//! leader removes the pin, under the lock. A session that waited for the lock therefore checks that its map is still the pinned map.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::leader::{self, Leader};
use crate::error::{Error, Object, Result};
use crate::sys::{self, Entries};

const CALL: &str = "cannot share counters through the map";
/// Name of the maps that bprec creates, by which bprec recognizes them.
const NAME: &str = "bprec_attrs";
const HASH: u32 = 1;
const VALUE_BYTES: usize = 8;
/// Entries of a new map; perf's map has as many.
const ENTRIES: u32 = 16;
/// Accepted key sizes, in bytes: from the first version of `perf_event_attr` to more than future versions are likely to need.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 64..=512;
/// Limit on waiting for the lock. Other sessions hold it for some milliseconds, while they load and attach programs.
const PATIENCE: Duration = Duration::from_secs(10);
const LOCK_AGAIN: Duration = Duration::from_millis(2);
/// Limit on attempts to remove the entries of leaders that this session has released. Another process that lists links can keep a leader alive for a
/// moment.
const LEAVE_AGAIN: u32 = 4;
const LEAVE_EVERY: Duration = Duration::from_millis(5);
/// `BPF_ANY`
const ANY: u64 = 0;

/// The map of leaders, opened for reading and writing.
#[derive(Debug)]
pub struct AttrMap {
    fd: OwnedFd,
    id: u32,
    path: PathBuf,
    key_bytes: usize,
    is_own: bool,
}

/// The map with its lock held: no other session changes the map until this value is dropped.
#[derive(Debug)]
pub struct Locked(Option<AttrMap>);

/// State of the entry of one event in the map of leaders.
#[derive(Debug)]
pub enum LeaderSlot {
    /// Leader that this session holds from now on.
    Leader(Leader),
    /// No leader, or a leader that has ended.
    Free,
    /// Leader of another tool, with the reason why followers of bprec cannot read it.
    Foreign(String),
}

impl AttrMap {
    /// Opens the map that is pinned at `path` and waits for its lock. If nothing is pinned there, creates and pins a map with keys of `key_bytes`
    /// bytes.
    ///
    /// # Errors
    /// Fails if `path` is not in a bpf file system, if another kind of object is pinned there, or if another session keeps the lock.
    pub fn lock(path: &Path, key_bytes: usize) -> Result<Locked> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let map = AttrMap::open(path, key_bytes)?;
            map.wait_for_lock(deadline)?;
            let locked = Locked(Some(map));
            // The map's last user may have removed the pin while this session waited for the lock.
            if locked.map().is_some_and(AttrMap::is_pinned) {
                return Ok(locked);
            }
            if Instant::now() >= deadline {
                return Err(unfit(path, "another process keeps removing and recreating the pin".to_owned()));
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
                // Another session pinned its map first: open that map.
                Err(libc::EEXIST) => (),
                Err(errno) => return Err(refused("bpf(BPF_OBJ_PIN)")(errno)),
            }
        }
    }

    fn of(fd: OwnedFd, path: &Path) -> Result<AttrMap> {
        let info = sys::map_info(fd.as_fd(), 0)?;
        let (kind, key_bytes, value_bytes) = (info.type_, info.key_size as usize, info.value_size as usize);
        // The kernel also answers for descriptors of programs and links, with another structure. Only descriptors of maps have a map id in fdinfo.
        let id = sys::FdInfo::of_own(fd.as_fd())?.map_id;
        let Some(id) = id.filter(|_| kind == HASH && value_bytes == VALUE_BYTES && KEY_BYTES.contains(&key_bytes))
        else {
            let problem = match id {
                Some(_) => format!(
                    "the pinned map has another layout than perf's map of event attributes: type {kind}, keys of {key_bytes} \
                     bytes, values of {value_bytes} bytes; expected a hash with keys of {} bytes or more and values of \
                     {VALUE_BYTES} bytes",
                    KEY_BYTES.start()
                ),
                None => "the pinned object is not a map".to_owned(),
            };
            return Err(unfit(path, problem));
        };
        let is_own = sys::c_chars(&info.name) == NAME.as_bytes();
        Ok(AttrMap { fd, id, path: path.to_owned(), key_bytes, is_own })
    }

    /// Key size, in bytes: size of `perf_event_attr` in the tool that created the map.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Path of the map's pin.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn wait_for_lock(&self, deadline: Instant) -> Result<()> {
        loop {
            match sys::try_lock(self.fd.as_fd()) {
                Ok(()) => return Ok(()),
                Err(libc::EWOULDBLOCK | libc::EINTR) if Instant::now() < deadline => thread::sleep(LOCK_AGAIN),
                Err(libc::EWOULDBLOCK | libc::EINTR) => {
                    let problem =
                        format!("another session has held the lock of the map for more than {} s", PATIENCE.as_secs());
                    return Err(unfit(&self.path, problem));
                }
                Err(errno) => {
                    return Err(Error::refused("flock", Object::Path(self.path.clone()))(errno));
                }
            }
        }
    }

    /// Returns true if the object pinned at the path is this map.
    fn is_pinned(&self) -> bool {
        let pinned = sys::obj_get(&self.path).and_then(|fd| sys::FdInfo::of_own(fd.as_fd()));
        pinned.is_ok_and(|info| info.map_id == Some(self.id))
    }

    /// Removes entries of ended leaders. Call this after the session has dropped its leaders; `own` has the keys of their events. From a map that
    /// perf created, removes only entries of these keys. From a map that bprec created, removes all stale entries, and the pin if no live leader is
    /// left.
    pub fn leave(&self, own: &[Vec<u8>]) {
        for attempt in 1..=LEAVE_AGAIN {
            // An error is ignored: a stale entry does no harm, because the next recorder reuses it.
            let Ok(left) = self.sweep(own) else { return };
            if left == 0 || attempt == LEAVE_AGAIN {
                return;
            }
            thread::sleep(LEAVE_EVERY);
        }
    }

    /// Removes stale entries under the lock. Returns the count of leaders that have a key in `own` and are still attached.
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
    /// Key size, in bytes.
    pub fn key_bytes(&self) -> usize {
        self.map().map_or(0, AttrMap::key_bytes)
    }

    fn map(&self) -> Option<&AttrMap> {
        self.0.as_ref()
    }

    fn entries(&self) -> Result<Entries<'_>> {
        match self.map() {
            Some(map) => Entries::of(&map.fd, map.id),
            None => Err(unfit(Path::new(""), "the lock was already released".to_owned())),
        }
    }

    /// Finds and opens the leader of the event that `key` describes.
    ///
    /// # Errors
    /// Fails if the leader cannot be read. A leader that has ended is no error.
    pub fn find(&self, key: &[u8]) -> Result<LeaderSlot> {
        let mut value = Vec::new();
        if !self.entries()?.lookup(key, &mut value)? {
            return Ok(LeaderSlot::Free);
        }
        match Leader::find(sys::get_u32(&value, 0), sys::get_u32(&value, 4)) {
            // The leader's last session ended during the lookup.
            Err(error) if error.is_gone() => Ok(LeaderSlot::Free),
            found => found,
        }
    }

    /// Enters `leader` in the map as the leader of the event that `key` describes.
    ///
    /// # Errors
    /// Fails if the map is full and all its leaders are live.
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
                unfit(path, format!("the map is full: all {} entries are in use", all.len()))
            }
            _ => error,
        })
    }

    /// Releases the lock and returns the map.
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
        // If the last key was removed meanwhile, the kernel starts again at the first key: stop here.
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
