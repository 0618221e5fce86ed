//! How many references each program has, through a small iterator program of our own.
//!
//! The recorder holds one descriptor of every program to the end, so that the kernel does not give the id and the
//! addresses to another. It therefore never sees a program go; what it can see is that nobody else holds it any more.

use std::io::{self, Read};
use std::os::fd::AsFd;

use libbpf_rs::{Iter, Link, Object, ObjectBuilder, ProgramMut};

use crate::error::{self, Error, Result};
use crate::programs::names::REFS;
use crate::programs::quiet::quietly;
use crate::sys;
use crate::sys::FdInfo;

const OBJECT: &[u8] = include_bytes!("refs.bpf.o");

/// Bytes of `struct refs_record` in refs.bpf.c: `id u32 · zero u32 · refcnt s64`.
const RECORD_BYTES: usize = 16;

/// The iterator program, loaded.
#[derive(Debug)]
pub struct Refs {
    link: Link,
    /// Keeps the program loaded; dropped after the link.
    _object: Object,
    own_id: u32,
}

/// References on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgRefs {
    /// Id of the program.
    pub id: u32,
    /// Descriptors, links, maps and attachments that refer to it.
    pub references: i64,
}

impl Refs {
    /// Loads the iterator. Nothing runs until it is read, and it goes when this is dropped.
    ///
    /// # Errors
    /// When the kernel refuses it (before 5.9, without BTF, without CAP_BPF and CAP_PERFMON), with libbpf's account.
    pub fn load() -> Result<Refs> {
        let refused = |(source, log)| Error::Load { program: REFS, source, log };
        let (object, link) = quietly(|| {
            let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
            let link = program_of(&object)?.attach()?;
            Ok((object, link))
        })
        .map_err(refused)?;
        let info = FdInfo::of_own(program_of(&object).map_err(|source| refused((source, String::new())))?.as_fd())?;
        Ok(Refs { link, _object: object, own_id: info.prog_id.unwrap_or(0) })
    }

    /// Reads the references of all programs alive now, by ascending id. Those that the reading itself takes are not
    /// counted, those of the caller's own descriptors are.
    ///
    /// # Errors
    /// When the iterator cannot be read.
    pub fn read(&self) -> Result<Vec<ProgRefs>> {
        let refused = |source: io::Error| Error::Syscall {
            call: "read",
            object: error::Object::Named("of the iterator over programs"),
            errno: source.raw_os_error().unwrap_or(0),
            remedy: None,
        };
        let mut iter =
            Iter::new(&self.link).map_err(|source| Error::Load { program: REFS, source, log: String::new() })?;
        let mut bytes = Vec::new();
        iter.read_to_end(&mut bytes).map_err(refused)?;
        Ok(bytes.chunks_exact(RECORD_BYTES).map(ProgRefs::parse).collect())
    }

    /// The id of the iterator program itself, which is none of the machine's own.
    pub fn own_id(&self) -> u32 {
        self.own_id
    }
}

/// The iterator program in its object.
fn program_of(object: &Object) -> libbpf_rs::Result<ProgramMut<'_>> {
    let missing = || libbpf_rs::Error::from(io::Error::from_raw_os_error(libc::ENOENT));
    object.progs_mut().find(|program| program.name() == REFS).ok_or_else(missing)
}

impl ProgRefs {
    /// The kernel holds one reference on the program that the iterator is at.
    fn parse(record: &[u8]) -> ProgRefs {
        let refcnt = sys::get_u64(record, 8).cast_signed();
        ProgRefs { id: sys::get_u32(record, 0), references: refcnt - 1 }
    }
}
