//! Contents of a map, read entry by entry without changing it.
//!
//! All lookups leave the map unchanged: they take no element out of a queue, and do not count as a use in an LRU map. Programs may write during the
//! walk: each entry is consistent, but the entries are from different moments.

use bprec_format::bpf::names::MapType;
use bprec_format::bprec::state::{ContentsEnd, MapContents, PAYLOAD_MAX_BYTES};

use crate::error::Result;
use crate::inspect::maps::Map;
use crate::sys::{Cursor, Entries};

/// Limits on the data read from one map; beyond them, the contents are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Limit on entries.
    pub entries: u64,
    /// Limit on the bytes of keys and values.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { entries: 1_000_000, bytes: 64 << 20 }
    }
}

/// Target size of one batch, bytes.
const BATCH_BYTES: usize = 256 << 10;
/// Limit on the entries of one batch.
const BATCH_ENTRIES: usize = 4096;

/// Method by which the entries of a map type are read.
enum ReadMethod {
    /// By batches, or key by key.
    Walk,
    /// Only the next element: queues and stacks.
    Peek,
    /// The contents cannot be read, for this reason.
    None(&'static str),
}

fn read_method(map_type: MapType) -> ReadMethod {
    match map_type {
        MapType::QUEUE | MapType::STACK => ReadMethod::Peek,
        MapType::RINGBUF | MapType::USER_RINGBUF => {
            ReadMethod::None("a ring buffer has no entries to look up: only its consumer can read its records")
        }
        MapType::PERF_EVENT_ARRAY => ReadMethod::None("the kernel does not report which perf events are in the map"),
        MapType::CGROUP_ARRAY => ReadMethod::None("the kernel does not report which cgroups are in the map"),
        MapType::XSKMAP => ReadMethod::None("the kernel does not report which sockets are in the map"),
        MapType::SK_STORAGE | MapType::INODE_STORAGE | MapType::TASK_STORAGE | MapType::CGRP_STORAGE => {
            ReadMethod::None(
                "the kernel does not list the entries of local storage: reading an entry needs a descriptor of its task, \
                 cgroup, socket or inode",
            )
        }
        MapType::BLOOM_FILTER => ReadMethod::None(
            "a bloom filter has no entries to list: the kernel only tests whether a given value may be in it",
        ),
        MapType::ARENA => ReadMethod::None(
            "bprec would have to map the arena to read it, and reading a missing page would allocate this page",
        ),
        _ => ReadMethod::Walk,
    }
}

impl Map {
    /// Reads the contents and passes them to `put` in one or more parts. The last part has the entry count and the reason if contents are missing; it
    /// is passed even if nothing could be read. `clock_ns` is the clock of the recording.
    ///
    /// # Errors
    /// Returns only errors of `put`.
    pub fn read_contents<E>(
        &self,
        bounds: &Bounds,
        clock_ns: impl Fn() -> u64,
        put: impl FnMut(MapContents) -> Result<(), E>,
    ) -> Result<(), E> {
        let about = self.about();
        let mut parts = ContentsParts {
            part: MapContents { map_id: about.id, time_ns: clock_ns(), ..MapContents::default() },
            entries: 0,
            bytes: 0,
            bounds: *bounds,
            copied_bytes: 0,
            put,
        };
        let cut = match read_method(MapType(about.map_type)) {
            ReadMethod::None(reason) => Ok(Some(reason.to_owned())),
            way => match Entries::of(self.fd(), about.id) {
                Ok(entries) => parts.read(&entries, matches!(way, ReadMethod::Peek), about.max_entries),
                Err(error) => Ok(Some(error.to_string())),
            },
        }?;
        parts.finish(cut, clock_ns())
    }
}

/// Collects entries into parts of limited size.
struct ContentsParts<F> {
    part: MapContents,
    entries: u64,
    bytes: u64,
    bounds: Bounds,
    copied_bytes: usize,
    put: F,
}

/// Reason why the contents are incomplete; `None` if they are complete.
type Cut = Option<String>;

impl<E, F: FnMut(MapContents) -> Result<(), E>> ContentsParts<F> {
    fn read(&mut self, entries: &Entries<'_>, only_next: bool, max_entries: u32) -> Result<Cut, E> {
        self.part.key_bytes = entries.key_bytes() as u32;
        self.part.value_bytes = entries.value_bytes() as u32;
        self.part.cpus = entries.cpus().to_vec();
        self.copied_bytes = entries.copied_bytes();
        let entry_bytes = (entries.key_bytes() + entries.copied_bytes()) as u64;
        if entry_bytes > self.bounds.bytes {
            return Ok(Some(format!(
                "one entry has {entry_bytes} bytes; the limit is {} bytes for the whole map",
                self.bounds.bytes
            )));
        }
        if only_next {
            return self.peek(entries);
        }
        match self.batches(entries)? {
            Some(cut) => Ok(cut),
            None => self.keys(entries, max_entries),
        }
    }

    fn peek(&mut self, entries: &Entries<'_>) -> Result<Cut, E> {
        let mut value = Vec::new();
        match entries.lookup(&[], &mut value) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let cut = self.entry(&[], &value)?;
                let others = "only the next element was read: reading the others would remove them from the map";
                Ok(cut.or(Some(others.to_owned())))
            }
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// Reads in batches. Returns `None` if the first batch fails: this map type or this kernel does not support batches. Otherwise returns the
    /// [`Cut`].
    fn batches(&mut self, entries: &Entries<'_>) -> Result<Option<Cut>, E> {
        let entry_bytes = (entries.key_bytes() + entries.copied_bytes()).max(1);
        let mut count = (BATCH_BYTES / entry_bytes).clamp(1, BATCH_ENTRIES);
        let mut cursor = Cursor::default();
        let mut is_first = true;
        loop {
            let batch = match entries.batch(&mut cursor, count as u32) {
                Ok(batch) => batch,
                // The kernel returns only whole hash buckets, and this bucket did not fit: try again with room for a larger bucket.
                Err(error)
                    if error.errno() == Some(libc::ENOSPC)
                        && (2 * count * entry_bytes) as u64 <= self.bounds.bytes.max(BATCH_BYTES as u64) =>
                {
                    count *= 2;
                    continue;
                }
                Err(_) if is_first => return Ok(None),
                Err(error) => return Ok(Some(Some(error.to_string()))),
            };
            is_first = false;
            for n in 0..batch.count {
                let key = batch.keys.get(n * entries.key_bytes()..(n + 1) * entries.key_bytes());
                let values = batch.values.get(n * self.copied_bytes..(n + 1) * self.copied_bytes);
                let (Some(key), Some(values)) = (key, values) else { break };
                if let Some(cut) = self.entry(key, values)? {
                    return Ok(Some(Some(cut)));
                }
            }
            if batch.is_last {
                return Ok(Some(None));
            }
        }
    }

    /// Reads key by key. If the current key was removed, the kernel starts again at the first key. The walk therefore ends after `max_entries` keys.
    fn keys(&mut self, entries: &Entries<'_>, max_entries: u32) -> Result<Cut, E> {
        let limit = if max_entries == 0 { u64::from(u32::MAX) } else { max_entries.into() };
        let mut values = Vec::new();
        let mut key = None;
        let mut walked = 0u64;
        loop {
            key = match entries.next_key(key.as_deref()) {
                Ok(Some(next)) => Some(next),
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error.to_string())),
            };
            if walked == limit {
                return Ok(Some(
                    "the map changed while it was read: entries may be missing or listed twice".to_owned(),
                ));
            }
            walked += 1;
            let Some(at) = &key else { return Ok(None) };
            let cut = match entries.lookup(at, &mut values) {
                Ok(true) => self.entry(at, &values)?,
                // The slot is empty, or its entry was removed after `next_key`. A walk through a large array of empty slots ends early.
                Ok(false) if walked >= self.bounds.entries.saturating_mul(16) => {
                    Some(format!("reading stopped after {walked} slots, because most of them are empty"))
                }
                Ok(false) => None,
                Err(error) => Some(error.to_string()),
            };
            if cut.is_some() {
                return Ok(cut);
            }
        }
    }

    /// Adds one entry. Returns the reason if the entry would exceed a limit.
    fn entry(&mut self, key: &[u8], copied: &[u8]) -> Result<Cut, E> {
        if self.entries == self.bounds.entries {
            return Ok(Some(format!("cut at {}", entries(self.entries))));
        }
        let value_bytes = self.part.value_bytes as usize;
        let values = self.part.cpus.len().max(1);
        let entry_bytes = (key.len() + value_bytes * values) as u64;
        if self.bytes + entry_bytes > self.bounds.bytes {
            return Ok(Some(format!("cut at {} bytes, {}", self.bytes, entries(self.entries))));
        }
        self.entries += 1;
        self.bytes += entry_bytes;
        self.piece(key)?;
        if self.part.cpus.is_empty() {
            self.piece(copied)?;
        } else {
            for value in copied.chunks(value_bytes.next_multiple_of(8).max(1)) {
                self.piece(value.get(..value_bytes).unwrap_or(value))?;
            }
        }
        Ok(None)
    }

    /// Appends bytes to the current part and passes on each full part.
    fn piece(&mut self, mut bytes: &[u8]) -> Result<(), E> {
        let room = PAYLOAD_MAX_BYTES.saturating_sub(MapContents::overhead_bytes(self.part.cpus.len())).max(1000);
        while !bytes.is_empty() {
            if self.part.bytes.len() == room {
                self.hand_over(None)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(room - self.part.bytes.len()));
            self.part.bytes.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn hand_over(&mut self, end: Option<ContentsEnd>) -> Result<(), E> {
        let bytes = std::mem::take(&mut self.part.bytes);
        let len = bytes.len() as u64;
        (self.put)(MapContents { bytes, end, ..self.part.clone() })?;
        self.part.offset += len;
        Ok(())
    }

    fn finish(&mut self, cut: Cut, time_ns: u64) -> Result<(), E> {
        let mut cut = cut.unwrap_or_default();
        cut.truncate(cut.floor_char_boundary(1000));
        let entries = self.entries;
        self.hand_over(Some(ContentsEnd { entries, time_ns, cut }))
    }
}

fn entries(entries: u64) -> String {
    format!("{entries} {}", if entries == 1 { "entry" } else { "entries" })
}
