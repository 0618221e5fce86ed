//! bprec's additions to perf.data: states, samples of its own program, and the journal beside an unfinished file.
//! Generic modules do not depend on them.

use crate::{AttrFlags, File, FileAttr, event_type, software};

pub mod journal;
pub mod sampler;
pub mod state;

/// Returns true for a bpf-output event that starts disabled. In a recording of bprec, only the event that carries [`state`]s is such an event.
pub fn carries_states(event: &FileAttr) -> bool {
    let attr = &event.attr;
    (attr.kind, attr.config) == (event_type::SOFTWARE, software::BPF_OUTPUT) && attr.flags.contains(AttrFlags::DISABLED)
}

/// Returns true if an event of the file can carry [`state`]s, as in all recordings of bprec.
pub fn is_recording(file: &File<'_>) -> bool {
    file.attrs().iter().any(carries_states)
}

/// Returns true if the writer did not finish the file. A recording of bprec without features was cut off, even if its data section ends with the
/// file: the recorder updates the size of the data section while it records, and writes the features last.
pub fn is_unfinished(file: &File<'_>) -> bool {
    file.is_unfinished() || (file.is_featureless() && is_recording(file))
}
