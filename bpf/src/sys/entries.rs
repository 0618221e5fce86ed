//! Entries of a map: lookup, iteration and batches.
//!
//! The size that the kernel copies for an entry depends on the map's type, its sizes and the number of possible CPUs. This module
//! queries all of them, for the same descriptor that it then reads. Callers therefore cannot pass buffers that are too small.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bprec_format::bpf::names::MapType;

use libbpf_rs::libbpf_sys as cmd;

use super::info::map_info;
use super::syscall::{Attr, attr_end, bpf, number};
use crate::error::{Error, Object, Result};

const LOOKUP: &str = "bpf(BPF_MAP_LOOKUP_ELEM)";
const UPDATE: &str = "bpf(BPF_MAP_UPDATE_ELEM)";
const DELETE: &str = "bpf(BPF_MAP_DELETE_ELEM)";
const NEXT_KEY: &str = "bpf(BPF_MAP_GET_NEXT_KEY)";
const LOOKUP_BATCH: &str = "bpf(BPF_MAP_LOOKUP_BATCH)";

/// Newest map type for which the sizes below are known to be correct.
const KNOWN_TYPES: u32 = MapType::INSN_ARRAY.0;

/// Map types with one value per possible CPU. The kernel copies the values one after another, each padded to 8 bytes.
const PER_CPU: [MapType; 4] =
    [MapType::PERCPU_HASH, MapType::PERCPU_ARRAY, MapType::LRU_PERCPU_HASH, MapType::PERCPU_CGROUP_STORAGE];

/// Map types that hold kernel objects. The kernel copies four bytes per entry: the id of the object.
const OBJECTS: [MapType; 5] = [
    MapType::PROG_ARRAY,
    MapType::PERF_EVENT_ARRAY,
    MapType::CGROUP_ARRAY,
    MapType::ARRAY_OF_MAPS,
    MapType::HASH_OF_MAPS,
];

/// A map and the sizes of its entries.
#[derive(Debug)]
pub(crate) struct Entries<'fd> {
    fd: BorrowedFd<'fd>,
    id: u32,
    key_bytes: usize,
    value_bytes: usize,
    cpus: Vec<u32>,
    /// Bytes that the kernel copies for all values of one entry.
    copied_bytes: usize,
}

/// Position at which the next batch begins.
#[derive(Debug, Default)]
pub(crate) struct Cursor(Option<Vec<u8>>);

/// Entries of one batch. Keys and values are in separate buffers, as the kernel copies them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) keys: Vec<u8>,
    pub(crate) values: Vec<u8>,
    /// True if no entries follow.
    pub(crate) is_last: bool,
}

impl<'fd> Entries<'fd> {
    /// Reads the sizes of the map behind `fd`, which has the id `id`.
    pub(crate) fn of(fd: &'fd OwnedFd, id: u32) -> Result<Entries<'fd>> {
        let fd = fd.as_fd();
        let info = map_info(fd, id)?;
        let map_type = MapType(info.type_);
        if map_type.0 > KNOWN_TYPES {
            let problem = format!("this version of bprec does not know maps of type {map_type}");
            return Err(Error::Answer { call: LOOKUP, object: Object::Map(id), problem });
        }
        let (key_bytes, mut value_bytes) = (info.key_size as usize, info.value_size as usize);
        let mut cpus = Vec::new();
        if PER_CPU.contains(&map_type) {
            cpus = bprec_host::possible_cpus()?;
        } else if OBJECTS.contains(&map_type) {
            value_bytes = 4;
        }
        let copied_bytes = if cpus.is_empty() { value_bytes } else { value_bytes.next_multiple_of(8) * cpus.len() };
        Ok(Entries { fd, id, key_bytes, value_bytes, cpus, copied_bytes })
    }

    /// Bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of one value.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// CPUs for which an entry has a value, in the order of the values; empty if an entry has a single value.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Bytes that the kernel copies for all values of one entry.
    pub(crate) fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Reads the values of an entry. Returns false if the entry does not exist. Queues and stacks have empty keys; for them, reads the entry
    /// that the next pop returns.
    pub(crate) fn lookup(&self, key: &[u8], values: &mut Vec<u8>) -> Result<bool> {
        let mut attr = self.entry(LOOKUP, key)?;
        values.clear();
        values.resize(self.copied_bytes, 0);
        attr.__bindgen_anon_2.__bindgen_anon_1.value = values.as_mut_ptr() as u64;
        // SAFETY: the kernel reads one key from `key`, which has the map's key size (checked by `entry`). It writes `copied_bytes` to `values`; `of`
        // computed this size for this descriptor in the same way as the kernel. Both buffers outlive the call, and the sizes of a map never change.
        match unsafe { bpf(cmd::BPF_MAP_LOOKUP_ELEM, &mut attr, attr_end!(__bindgen_anon_2.flags)) } {
            Ok(_) => Ok(true),
            Err(libc::ENOENT) => Ok(false),
            Err(errno) => Err(self.refused(LOOKUP, errno)),
        }
    }

    /// Returns the key after `key`, or the first key if `key` is `None` or no longer exists. Returns `None` after the last key.
    pub(crate) fn next_key(&self, key: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let mut next = vec![0; self.key_bytes];
        let mut attr = key.map_or_else(|| Ok(self.first()), |key| self.entry(NEXT_KEY, key))?;
        attr.__bindgen_anon_2.__bindgen_anon_1.next_key = next.as_mut_ptr() as u64;
        // SAFETY: the kernel reads one key from `key`, or nothing if the pointer is null, and writes one key to `next`. Both have the map's key size
        // and outlive the call.
        match unsafe {
            bpf(cmd::BPF_MAP_GET_NEXT_KEY, &mut attr, attr_end!(__bindgen_anon_2.__bindgen_anon_1.next_key))
        } {
            Ok(_) => Ok(Some(next)),
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(self.refused(NEXT_KEY, errno)),
        }
    }

    /// Sets the value of an entry. `flags` is 0 to create or replace the entry, `BPF_NOEXIST` to create only. Fails for maps with one value
    /// per CPU.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<()> {
        if (value.len(), self.cpus.len()) != (self.copied_bytes, 0) {
            let problem =
                format!("the map's values have {} bytes, but the given value has {}", self.copied_bytes, value.len());
            return Err(Error::Answer { call: UPDATE, object: Object::Map(self.id), problem });
        }
        let mut attr = self.entry(UPDATE, key)?;
        attr.__bindgen_anon_2.__bindgen_anon_1.value = value.as_ptr() as u64;
        attr.__bindgen_anon_2.flags = flags;
        // SAFETY: the kernel reads one key and one value, and `key` and `value` have the map's sizes (just checked); both outlive the call.
        unsafe { bpf(cmd::BPF_MAP_UPDATE_ELEM, &mut attr, attr_end!(__bindgen_anon_2.flags)) }
            .map(drop)
            .map_err(|errno| self.refused(UPDATE, errno))
    }

    /// Removes an entry. Returns false if the entry did not exist.
    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut attr = self.entry(DELETE, key)?;
        // SAFETY: the kernel reads one key from `key`, which has the map's key size (checked by `entry`) and outlives the call.
        match unsafe { bpf(cmd::BPF_MAP_DELETE_ELEM, &mut attr, attr_end!(__bindgen_anon_2.key)) } {
            Ok(_) => Ok(true),
            Err(libc::ENOENT) => Ok(false),
            Err(errno) => Err(self.refused(DELETE, errno)),
        }
    }

    /// Reads up to `count` entries from the cursor on and advances it. Fails with ENOSPC if a hash bucket has more than `count` entries.
    pub(crate) fn batch(&self, cursor: &mut Cursor, count: u32) -> Result<Batch> {
        // The kernel's cursor is a bucket number for hash maps and a key for all other maps.
        let mut next = vec![0u8; self.key_bytes.max(4)];
        // A cursor of another length belongs to another map: start at the first entry.
        let from = cursor.0.take().filter(|from| from.len() == next.len());
        let room = count as usize;
        let mut batch = Batch {
            keys: vec![0; room * self.key_bytes],
            values: vec![0; room * self.copied_bytes],
            ..Batch::default()
        };
        let mut attr = Attr::default();
        attr.batch.in_batch = from.as_ref().map_or(0, |from| from.as_ptr() as u64);
        attr.batch.out_batch = next.as_mut_ptr() as u64;
        attr.batch.keys = batch.keys.as_mut_ptr() as u64;
        attr.batch.values = batch.values.as_mut_ptr() as u64;
        attr.batch.count = count;
        attr.batch.map_fd = number(self.fd);
        // SAFETY: the kernel reads and writes a cursor of 4 bytes or of the key size; both cursor buffers have the larger size (checked above
        // for the buffer that is read). It writes at most `count` keys and values, and the buffers have room for `count`. All buffers outlive
        // the call.
        let answer = unsafe { bpf(cmd::BPF_MAP_LOOKUP_BATCH, &mut attr, attr_end!(batch.flags)) };
        match answer {
            Ok(_) => {}
            Err(libc::ENOENT) => batch.is_last = true,
            Err(errno) => {
                cursor.0 = from;
                return Err(self.refused(LOOKUP_BATCH, errno));
            }
        }
        // SAFETY: the kernel wrote the count.
        batch.count = (unsafe { attr.batch.count } as usize).min(room);
        batch.keys.truncate(batch.count * self.key_bytes);
        batch.values.truncate(batch.count * self.copied_bytes);
        cursor.0 = Some(next);
        Ok(batch)
    }

    /// Attributes of a call without a key.
    fn first(&self) -> Attr {
        let mut attr = Attr::default();
        attr.__bindgen_anon_2.map_fd = number(self.fd);
        attr
    }

    /// Attributes of a call on the entry `key`, which must have the map's key size. For empty keys the pointer is null, as the kernel requires.
    fn entry(&self, call: &'static str, key: &[u8]) -> Result<Attr> {
        if key.len() != self.key_bytes {
            let problem = format!("the map's keys have {} bytes, but the given key has {}", self.key_bytes, key.len());
            return Err(Error::Answer { call, object: Object::Map(self.id), problem });
        }
        let mut attr = self.first();
        attr.__bindgen_anon_2.key = if key.is_empty() { 0 } else { key.as_ptr() as u64 };
        Ok(attr)
    }

    fn refused(&self, call: &'static str, errno: i32) -> Error {
        let remedy = (errno == libc::EPERM)
            .then_some("the map does not allow reads from user space, or kernel lockdown forbids them");
        Error::Syscall { call, object: Object::Map(self.id), errno, remedy }
    }
}

/// Reads the value at a four-byte key of a map. Fails with ENOENT if the entry does not exist.
pub(crate) fn value_at(fd: &OwnedFd, id: u32, key: u32) -> Result<Vec<u8>> {
    let entries = Entries::of(fd, id)?;
    let mut value = Vec::new();
    match entries.lookup(&key.to_ne_bytes(), &mut value)? {
        true => Ok(value),
        false => Err(entries.refused(LOOKUP, libc::ENOENT)),
    }
}
