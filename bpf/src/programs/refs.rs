//! Counts the references of each program, through a BPF iterator of bprec.
//!
//! The recorder holds a descriptor of each program that others use, so that it can read the last run counts. This keeps the program loaded in the
//! kernel; only the reference count shows that no other process uses the program any more. Other recorders do the same. Each recorder has an
//! iterator with the name `bprec_refs` loaded. Recorders find each other by this name: the names of their executables and their pid namespaces do
//! not matter. A map of the iterator has the count of references that its recorder has on each program.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::AsFd;

use bprec_format::bpf::prog_info::ProgInfoBuf;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramMut};

use crate::error::{self, Error, Result};
use crate::inspect::Program;
use crate::programs::names::{REFS, lists_references};
use crate::programs::quiet::{missing, quietly};
use crate::sys::{self, Cursor, Entries, FdInfo, Kind};

const OBJECT: &[u8] = include_bytes!("refs.bpf.o");

/// Bytes of `struct refs_record` in refs.bpf.c: `id u32 · zero u32 · refcnt s64 · own s64 · load_time u64 · name [u8; 16]`.
const RECORD_BYTES: usize = 48;
/// Name of the map with the references that a recorder holds.
const HELD: &str = "bprec_held";
/// Limit on the entries that one call reads from this map. It must be large enough for a whole hash bucket, because the kernel returns only whole
/// buckets.
const HELD_BATCH: u32 = 4096;

/// The loaded iterator program.
#[derive(Debug)]
pub struct Refs {
    link: Link,
    /// Keeps the program and its map loaded; dropped after the link.
    object: Object,
    own_id: u32,
}

/// References on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgRefs {
    /// Id of the program.
    pub id: u32,
    /// Count of descriptors, links, maps and attachments that refer to the program.
    pub references: i64,
    /// Count of references of this recorder, as set by [`Refs::set_held`].
    pub own: i64,
    /// Count of references that other recorders have announced so far.
    pub other_recorders: i64,
    /// Load time of the program, ns of CLOCK_BOOTTIME.
    pub load_time_ns: u64,
    /// True if the program is the iterator of a recorder.
    pub is_recorder: bool,
}

impl Refs {
    /// Loads the iterator. The program runs only during a read. Dropping the value unloads it.
    ///
    /// # Errors
    /// Fails if the kernel refuses the iterator (before 5.9, without BTF, without CAP_BPF and CAP_PERFMON); the error includes libbpf's log.
    pub fn load() -> Result<Refs> {
        let (object, link) = quietly(|| {
            let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
            let link = program_of(&object)?.attach()?;
            Ok((object, link))
        })
        .map_err(Error::not_loaded(REFS))?;
        let info = FdInfo::of_own(program_of(&object).map_err(Error::libbpf(REFS))?.as_fd())?;
        Ok(Refs { link, object, own_id: info.prog_id.unwrap_or(0) })
    }

    /// Reads the references of all loaded programs, in ascending order of id. References that the read itself takes are not counted;
    /// references of the caller's descriptors are counted.
    ///
    /// A recorder announces a reference after it takes the reference, and withdraws the announcement before it releases the reference. The announced
    /// count is therefore never too high. The announcements of a recorder must vanish when the recorder ends. Recorders therefore hold no descriptor
    /// of another recorder's iterator: the descriptor would keep the announcements alive.
    ///
    /// # Errors
    /// Fails if the iterator cannot be read.
    pub fn read(&self) -> Result<Vec<ProgRefs>> {
        let refused = Error::refused("read", error::Object::Named("of the iterator over programs"));
        let mut iter = Iter::new(&self.link).map_err(Error::libbpf(REFS))?;
        let mut bytes = Vec::new();
        iter.read_to_end(&mut bytes).map_err(|source| refused(source.raw_os_error().unwrap_or(0)))?;
        let mut refs: Vec<ProgRefs> = bytes.chunks_exact(RECORD_BYTES).map(ProgRefs::parse).collect();
        self.add_other_recorders(&mut refs);
        Ok(refs)
    }

    /// Adds the references that other recorders have announced. If a recorder cannot be read, its references count as use by others.
    fn add_other_recorders(&self, refs: &mut [ProgRefs]) {
        let others = refs.iter().filter(|it| it.is_recorder && it.id != self.own_id);
        let told: Vec<HashMap<u32, i64>> = others.filter_map(|it| held_by(it.id).ok()).collect();
        for it in refs {
            it.other_recorders = told.iter().filter_map(|held| held.get(&it.id)).sum();
        }
    }

    /// Announces the count of references that the caller has on a program, for other recorders and for later reads. Returns false if the map is full.
    pub fn set_held(&self, id: u32, references: i64) -> bool {
        let Some(held) = self.object.maps().find(|map| map.name() == HELD) else { return false };
        if references == 0 {
            // Deletion fails if the references were never announced; this is no error.
            drop(held.delete(&id.to_ne_bytes()));
            return true;
        }
        held.update(&id.to_ne_bytes(), &references.to_ne_bytes(), MapFlags::ANY).is_ok()
    }

    /// Id of this recorder's iterator program.
    pub fn own_id(&self) -> u32 {
        self.own_id
    }
}

/// Finds the iterator program in its object.
fn program_of(object: &Object) -> libbpf_rs::Result<ProgramMut<'_>> {
    object.progs_mut().find(|program| program.name() == REFS).ok_or_else(missing)
}

/// Reads the references that the recorder of an iterator has announced, by program id.
fn held_by(iterator: u32) -> Result<HashMap<u32, i64>> {
    let program = Program::take(iterator)?;
    let raw = sys::prog_info(program.as_fd(), iterator)?;
    let info = ProgInfoBuf::new(raw.info, raw.arrays);
    let maps: Vec<u32> = info.view().map_ids().map(|ids| ids.iter().collect()).unwrap_or_default();
    let mut held = HashMap::new();
    for map in maps {
        let fd = sys::fd_by_id(Kind::Map, map)?;
        let about = sys::map_info(fd.as_fd(), map)?;
        if sys::c_chars(&about.name) != HELD.as_bytes() || (about.key_size, about.value_size) != (4, 8) {
            continue;
        }
        let entries = Entries::of(&fd, map)?;
        let mut cursor = Cursor::default();
        loop {
            let batch = entries.batch(&mut cursor, HELD_BATCH)?;
            let (keys, values) = (batch.keys.chunks_exact(4), batch.values.chunks_exact(8));
            held.extend(
                keys.zip(values).map(|(id, count)| (sys::get_u32(id, 0), sys::get_u64(count, 0).cast_signed())),
            );
            if batch.is_last {
                break;
            }
        }
    }
    Ok(held)
}

impl ProgRefs {
    /// Decodes a record. Subtracts the reference that the kernel holds on the program while the iterator visits it.
    fn parse(record: &[u8]) -> ProgRefs {
        let refcnt = sys::get_u64(record, 8).cast_signed();
        let is_recorder = lists_references(sys::up_to_nul(&record[32..]));
        ProgRefs {
            id: sys::get_u32(record, 0),
            references: refcnt - 1,
            own: sys::get_u64(record, 16).cast_signed(),
            other_recorders: 0,
            load_time_ns: sys::get_u64(record, 24),
            is_recorder,
        }
    }
}
