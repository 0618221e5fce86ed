//! What a map held when it was read.

use super::parts::{get_list, get_string, put_list, put_text};
use crate::{Reader, Result, Writer};

/// A part of a map's contents.
///
/// The entries of a map are one run of bytes: the first entry's key and values, then the second's. Each part has the next
/// piece of it, of any length, so that an entry may be larger than a payload. An entry has `key_bytes` of key and then
/// `value_bytes` for each of `cpus`, or once when there are none: nothing is padded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapContents {
    /// Map id.
    pub map_id: u32,
    /// When reading it began, ns of the recording's clock.
    pub time_ns: u64,
    /// Bytes of an entry's key; 0 where entries have none, as those of queues and stacks.
    pub key_bytes: u32,
    /// Bytes of one value.
    pub value_bytes: u32,
    /// The CPUs whose values an entry has one behind the other; empty when it has one value for all.
    pub cpus: Vec<u32>,
    /// Where `bytes` start in the run.
    pub offset: u64,
    /// The next piece of the run.
    pub bytes: Vec<u8>,
    /// In the last part only.
    pub end: Option<ContentsEnd>,
}

/// How the reading of a map ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentsEnd {
    /// Entries in the run.
    pub entries: u64,
    /// When it ended, ns of the recording's clock.
    pub time_ns: u64,
    /// Why there is not more; empty when these are all entries that the map had.
    pub cut: String,
}

impl MapContents {
    /// The most bytes that a part takes beside its `bytes`, with so many CPUs and `cut` no longer than 1,000 bytes.
    pub fn overhead_bytes(cpus: usize) -> usize {
        1200 + 4 * cpus
    }

    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.map_id).u64(self.time_ns).u32(self.key_bytes).u32(self.value_bytes);
        put_list(w, &self.cpus, |cpu, w| {
            w.u32(*cpu);
        });
        w.u64(self.offset).u32(self.bytes.len() as u32).bytes(&self.bytes);
        w.u8(self.end.is_some().into());
        if let Some(end) = &self.end {
            w.u64(end.entries).u64(end.time_ns);
            put_text(w, end.cut.as_bytes());
        }
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<MapContents> {
        let (map_id, time_ns) = (r.u32("contents map id")?, r.u64("contents time")?);
        let (key_bytes, value_bytes) = (r.u32("contents key size")?, r.u32("contents value size")?);
        let cpus = get_list(r, 4, |r| r.u32("contents cpu"))?;
        let offset = r.u64("contents offset")?;
        let len = r.u32("contents length")?;
        let bytes = r.take(len as usize, "contents bytes")?.to_vec();
        let end = if r.u8("contents end")? == 0 {
            None
        } else {
            let (entries, time_ns) = (r.u64("contents entries")?, r.u64("contents end time")?);
            Some(ContentsEnd { entries, time_ns, cut: get_string(r, "contents cut")? })
        };
        Ok(MapContents { map_id, time_ns, key_bytes, value_bytes, cpus, offset, bytes, end })
    }
}
