//! Where tail calls lead.

use super::parts::{get_list, put_list};
use crate::{Reader, Result, Writer};

/// The programs in a program array (`BPF_MAP_TYPE_PROG_ARRAY`): a program that uses the map can jump to each of them.
///
/// A recording has a reading of each array that its programs use, from when it was first seen, and a second one from the end of the
/// recording where that differs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProgArray {
    /// Map id.
    pub map_id: u32,
    /// The slots that hold a program, in order.
    pub slots: Vec<TailCall>,
    /// Slots that were not looked at, as the array has too many.
    pub unread_slots: u32,
}

/// A slot of a program array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TailCall {
    /// Its index.
    pub index: u32,
    /// The program in it.
    pub prog_id: u32,
}

impl ProgArray {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.map_id).u32(self.unread_slots);
        put_list(w, &self.slots, |slot, w| {
            w.u32(slot.index).u32(slot.prog_id);
        });
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<ProgArray> {
        Ok(ProgArray {
            map_id: r.u32("program array map id")?,
            unread_slots: r.u32("program array unread slots")?,
            slots: get_list(r, 8, |r| {
                Ok(TailCall { index: r.u32("program array index")?, prog_id: r.u32("program array program")? })
            })?,
        })
    }
}
