//! Which recording it is.

use crate::{Reader, Result, Writer};

/// What tells a recording from all others, first in its file and in the first frame of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingId(pub [u8; 16]);

impl RecordingId {
    pub(crate) fn put(&self, w: &mut Writer<'_>) {
        w.bytes(&self.0);
    }

    pub(crate) fn get(r: &mut Reader<'_>) -> Result<RecordingId> {
        Ok(RecordingId(r.array("recording id")?))
    }
}
