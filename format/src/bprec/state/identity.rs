//! Identity of a recording.

use crate::layout::layout;

layout! {
    /// Identity of a recording, first in its file and in the first frame of its journal.
    #[derive(Copy)]
    pub struct RecordingId(pub [u8; 16]);
}
