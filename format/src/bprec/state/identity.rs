//! Identity of a recording.

use crate::layout::{Codec, Plain};
use crate::{Reader, Result, Writer};

/// Identity of a recording, first in its file and in the first frame of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingId(pub [u8; 16]);

impl<'a> Codec<'a, RecordingId> for Plain {
    const MIN_BYTES: usize = 16;

    fn put(value: &RecordingId, w: &mut Writer<'_>) {
        w.bytes(&value.0);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<RecordingId> {
        r.array(what).map(RecordingId)
    }
}
