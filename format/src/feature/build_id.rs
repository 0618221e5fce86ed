//! BUILD_ID: the build ids of binaries.

use super::SectionContent;
use crate::layout::{TEXT_ALIGN_BYTES, until_nul};
use crate::record::misc;
use crate::records::user::BuildIdRecord;
use crate::{Endian, Error, Reader, Result, Writer};

/// Bytes of an entry before its file name.
const ENTRY_BYTES: usize = 36;
/// Bytes before the file name in an old entry, which has no pid.
const OLD_ENTRY_BYTES: usize = 32;
/// Maximum length of a build id, in bytes.
const MAX_ID_BYTES: usize = 20;
/// Limit on the bytes of a written file name; longer names are cut. The size of an entry is a 16-bit field.
const MAX_FILE_BYTES: usize = 0xff00;

/// BUILD_ID (since 2.6.33), a sequence of entries: `type u32 = 0, misc u16, size u16`, then a [`BuildIdRecord`] with a
/// file name that fills the entry's size (writers pad it like a text).
///
/// The size of an entry is not a multiple of 8. Entries of the first recorders have no pid. Writers omit the section if MMAP2 records carry the build
/// ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildIds<'a>(pub Vec<BuildIdRecord<'a>>);

impl<'a> SectionContent<'a> for BuildIds<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<BuildIds<'a>> {
        let start = r.clone();
        let ids = read_entries(r, ENTRY_BYTES, problem);
        // The kernel's name lacks its first four bytes: the file is from the time before entries had a pid.
        if ids.iter().any(|id| id.filename == b"nel.kallsyms]") {
            *r = start;
            *problem = None;
            return Ok(BuildIds(read_entries(r, OLD_ENTRY_BYTES, problem)));
        }
        Ok(BuildIds(ids))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        for entry in &self.0 {
            let path = entry.written_path(w);
            let file = path.get(..MAX_FILE_BYTES).unwrap_or(&path);
            let name_bytes = (file.len() + 1).next_multiple_of(TEXT_ALIGN_BYTES);
            w.u32(0).u16(entry.misc()).u16((ENTRY_BYTES + name_bytes) as u16);
            entry.encode_ids(w);
            w.bytes(file).zeros(name_bytes - file.len());
        }
    }
}

/// Size of perf's buffer for a file name, with its NUL.
const PERF_FILE_BYTES: usize = 4096;

/// Checks that entries fit into perf's buffer, because perf trusts their sizes.
pub(super) fn check(bytes: &[u8], endian: Endian) -> Result<()> {
    let mut rest = bytes;
    while let Some(entry) = endian.u16_at(rest, 6).and_then(|size| rest.get(..usize::from(size).max(1))) {
        let has_size = endian.u16_at(entry, 4).is_some_and(|bits| bits & misc::BUILD_ID_SIZE != 0);
        let is_long = has_size && entry.get(OLD_ENTRY_BYTES).is_some_and(|bytes| usize::from(*bytes) > MAX_ID_BYTES);
        let name = entry.get(OLD_ENTRY_BYTES..).unwrap_or_default();
        if is_long || name.len() > ENTRY_BYTES - OLD_ENTRY_BYTES + PERF_FILE_BYTES || name.last() != Some(&0) {
            let offset = (bytes.len() - rest.len()) as u64;
            return Err(Error::other(offset, "BUILD_ID", "an entry is too long for perf"));
        }
        rest = &rest[entry.len()..];
    }
    Ok(())
}

fn read_entries<'a>(r: &mut Reader<'a>, entry_bytes: usize, problem: &mut Option<Error>) -> Vec<BuildIdRecord<'a>> {
    let mut ids = Vec::new();
    while !r.is_empty() {
        match read_entry(r, entry_bytes) {
            Ok(id) => ids.push(id),
            Err(error) => {
                *problem = Some(error);
                break;
            }
        }
    }
    ids
}

fn read_entry<'a>(r: &mut Reader<'a>, entry_bytes: usize) -> Result<BuildIdRecord<'a>> {
    let at = r.offset();
    r.u32("BUILD_ID type")?;
    let misc = r.u16("BUILD_ID misc")?;
    let size = r.u16("BUILD_ID size")?;
    let name_bytes = usize::from(size)
        .checked_sub(entry_bytes)
        .ok_or_else(|| Error::value(at + 6, "BUILD_ID size", size.into(), "a size of at least one entry"))?;
    let pid = if entry_bytes == ENTRY_BYTES { r.u32("BUILD_ID pid")? as i32 } else { -1 };
    let entry = BuildIdRecord::parse_id(r, misc, pid)?;
    let file = r.take(name_bytes, "BUILD_ID file name")?;
    Ok(BuildIdRecord { filename: until_nul(file), ..entry })
}
