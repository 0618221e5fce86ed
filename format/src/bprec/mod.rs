//! bprec's additions to perf.data: states, samples of its own program, and the journal beside an unfinished file.
//! Generic modules do not depend on them.

use crate::{AttrFlags, File, FileAttr, event_type, software};

pub mod journal;
pub mod sampler;
pub mod state;

/// Names of the programs that count other programs, or calibrate this counting.
const COUNTING_PROGRAMS: [&str; 4] = ["bprec_enter", "bprec_gauge", "bprec_leave", "bprec_session"];
/// Names of the other programs with which a recorder measures.
const OTHER_PROGRAMS: [&str; 7] = [
    "bprec_aggregate",
    "bprec_follow",
    "bprec_follow_o",
    "bprec_inherit",
    "bprec_names",
    "bprec_refs",
    "bprec_sampler",
];

/// Returns true for the name of a program with which a recorder measures. A program of another tool may have the same name.
pub fn is_program(name: &[u8]) -> bool {
    counts_others(name) || OTHER_PROGRAMS.iter().any(|own| own.as_bytes() == name)
}

/// Returns true for the name of a program, of any recorder, that counts other programs or calibrates this counting.
pub fn counts_others(name: &[u8]) -> bool {
    COUNTING_PROGRAMS.iter().any(|own| own.as_bytes() == name)
}

/// Returns true if an event can carry [`state`]s: the event for states is the only bpf-output event of bprec that is
/// never enabled.
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
