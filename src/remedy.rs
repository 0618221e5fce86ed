//! Remedies for errors whose own text has none.

use std::io::{self, ErrorKind};
use std::path::Path;

/// Remedy for an error, as a clause that follows its message.
pub(crate) fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    let of_input = error.chain().find_map(|cause| cause.downcast_ref::<bprec_report::Error>()).and_then(of_reading);
    #[cfg(all(feature = "record", target_os = "linux"))]
    let of_input = of_input
        .or_else(|| error.chain().find_map(|cause| cause.downcast_ref::<bprec_record::Error>()).and_then(of_recording));
    of_input.or_else(|| error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).and_then(of_output))
}

fn of_reading(error: &bprec_report::Error) -> Option<&'static str> {
    use bprec_report::Error::{Format, Io, Write};
    match error {
        Io { call: "open" | "stat", path, source } => match source.kind() {
            ErrorKind::NotFound if path.ends_with("data") && path.parent().is_some_and(Path::is_dir) => {
                Some("this directory has no file `data`, so it is no recording; give the name of a file")
            }
            ErrorKind::NotFound => Some("check the path; `bprec record -a -o FILE` makes a recording"),
            ErrorKind::PermissionDenied => Some("only its owner can read a recording: run bprec as that user"),
            _ => None,
        },
        Format { source, .. } if source.what == "file" => {
            Some("check the path; `bprec record -a -o FILE` makes a recording")
        }
        Format { source, .. } if source.offset < HEADER_BYTES => {
            Some("this is not a recording by bprec or perf, or its header was cut off; check the path")
        }
        Io { source, .. } | Write(source) => of_output(source),
        _ => None,
    }
}

/// Size of the header of a perf.data file, bytes.
const HEADER_BYTES: u64 = 104;

#[cfg(all(feature = "record", target_os = "linux"))]
fn of_recording(error: &bprec_record::Error) -> Option<&'static str> {
    use bprec_record::Error::{Command, File, Incomplete};
    match error {
        Command { answer, .. } if answer.kind() == ErrorKind::NotFound => {
            Some("check that it is installed and in PATH")
        }
        Command { answer, .. } if answer.kind() == ErrorKind::PermissionDenied => Some("make it executable: chmod +x"),
        File { answer, .. } | Incomplete { answer, .. } => of_output(answer),
        _ => None,
    }
}

/// Remedy for errors of output files and of files that an option names.
fn of_output(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound => Some("check the path: its directory must exist"),
        ErrorKind::PermissionDenied => Some("choose a directory that you can write to"),
        ErrorKind::StorageFull => Some("free space on the disk, or write to another disk"),
        _ => None,
    }
}
