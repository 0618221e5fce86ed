//! Errors of a report.

use crate::ProgFilter;
use bprec_format::Problem;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Error that prevents a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call on the input or output failed.
    #[error("{call} {path}: {source}")]
    Io {
        /// Name of the system call.
        call: &'static str,
        /// File or directory of the call.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file became shorter while it was read, or its disk failed.
    #[error("{path}: the file was truncated while it was read: offset {offset:#x} can no longer be read")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Lowest offset that could not be read.
        offset: u64,
    },
    /// The input is not a recording: a text, an empty file, a directory.
    #[error("{}: not a recording by bprec or perf: {problem}", path.display())]
    NotRecording {
        /// The input.
        path: PathBuf,
        /// Reason why the input is not a recording.
        problem: String,
    },
    /// A recording is so damaged that it cannot be read.
    #[error("{path}: {source}")]
    Format {
        /// The input.
        path: PathBuf,
        /// Offset of the damage in the input, and the problem there.
        source: bprec_format::Error,
    },
    /// Files that do not belong to one recording.
    #[error("{} and {}: {problem}", first.display(), second.display())]
    Files {
        /// The earlier file.
        first: PathBuf,
        /// The later file.
        second: PathBuf,
        /// Reason why the two files cannot be read as one recording.
        problem: String,
    },
    /// An option with an invalid value, or a value that does not fit the recording.
    #[error("{option} {value}: {problem}")]
    Option {
        /// Name of the option, such as `--time`.
        option: &'static str,
        /// The given value.
        value: String,
        /// Problem with the value, and the values that are accepted.
        problem: String,
    },
    /// No program matches the requested filters.
    #[error("no program in the recording matches --prog {}", listed(asked))]
    NoProgram {
        /// The requested filters.
        asked: Vec<ProgFilter>,
        /// Names of the recording's programs, sorted.
        names: Vec<String>,
    },
    /// Neither a program nor an owner matches a value of `--without`.
    #[error("no program and no owner of programs matches --without {asked}")]
    NoProgramOrOwner {
        /// The requested value.
        asked: String,
        /// Names of the recording's programs and owners, sorted.
        names: Vec<String>,
    },
    /// No task name matches the requested patterns.
    #[error("no task in the recording matches --comms {}", listed(asked))]
    NoTask {
        /// The requested patterns.
        asked: Vec<String>,
        /// Names of the recording's tasks, sorted.
        names: Vec<String>,
    },
    /// The recording has no sample in the requested time.
    #[error("no sample in the recording matches --time {asked}: {problem}")]
    NoTime {
        /// The requested range.
        asked: String,
        /// Text that the range is outside the recording, with the times of the first and last sample.
        problem: String,
    },
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Write(#[from] std::io::Error),
}

/// Returns the values of an option as the user types them, with commas.
fn listed(values: &[impl Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl Error {
    /// Error for filters that match none of these programs.
    pub(crate) fn no_program<'n>(asked: &[ProgFilter], names: impl Iterator<Item = &'n str>) -> Error {
        Error::NoProgram { asked: asked.to_vec(), names: sorted(names) }
    }

    /// Error for a value of `--without` that matches neither a program nor an owner of these names.
    pub(crate) fn no_program_or_owner<'n>(asked: &str, names: impl Iterator<Item = &'n str>) -> Error {
        Error::NoProgramOrOwner { asked: asked.to_owned(), names: sorted(names) }
    }

    /// Error for an input with a defect that prevents reading it.
    pub(crate) fn format(path: &Path, source: bprec_format::Error) -> Error {
        let problem = match (source.what, &source.problem) {
            ("magic" | "header size" | "file header", Problem::Truncated { available: 0, .. })
                if source.offset == 0 =>
            {
                "the file is empty".to_owned()
            }
            ("magic" | "header size" | "file header" | "features", Problem::Truncated { .. }) => {
                "its header was cut off".to_owned()
            }
            ("file" | "header size", problem) => problem.to_string(),
            _ => return Error::Format { path: path.to_owned(), source },
        };
        Error::NotRecording { path: path.to_owned(), problem }
    }

    /// Returns true if a filter matches no program, owner, task or time of the recording. `bprec` then ends with exit code 1, as grep does, and not 2.
    pub fn is_no_match(&self) -> bool {
        use Error::{NoProgram, NoProgramOrOwner, NoTask, NoTime};
        matches!(self, NoProgram { .. } | NoProgramOrOwner { .. } | NoTask { .. } | NoTime { .. })
    }

    /// Remedy, as a clause to print after the message; `None` if no remedy is known.
    pub fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Error::NoProgram { asked, names } => {
                let patterns = asked.iter().filter(|filter| matches!(filter, ProgFilter::Name(_)));
                let similar = similar(patterns.map(ToString::to_string), names);
                return Some(format!("{similar}bprec report --all lists all programs"));
            }
            Error::NoProgramOrOwner { asked, names } => {
                let similar = similar([asked.clone()].into_iter(), names);
                return Some(format!("{similar}bprec report --all lists programs, and --bill lists owners"));
            }
            Error::NoTask { asked, names } => {
                return Some(format!("{}bprec report --by comm lists tasks", similar(asked.iter().cloned(), names)));
            }
            Error::Io { call: "open" | "stat", source, .. } => match source.kind() {
                ErrorKind::NotFound => A_RECORDING,
                ErrorKind::PermissionDenied => "only its owner can read a recording: run bprec as that user",
                _ => return None,
            },
            Error::NotRecording { .. } => A_RECORDING,
            _ => return None,
        };
        Some(remedy.to_owned())
    }

    pub(crate) fn option(option: &'static str, value: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Option { option, value: value.into(), problem: problem.into() }
    }
}

/// Remedy if the input does not exist or is not a recording.
const A_RECORDING: &str = "check the path; `bprec record -a -o FILE` makes a recording";

/// Names similar to one of the patterns, as the beginning of a remedy; empty if no name is similar.
pub(crate) fn similar(patterns: impl Iterator<Item = String>, names: &[String]) -> String {
    let found: Vec<_> = patterns.flat_map(|pattern| near(&pattern, names.iter().map(String::as_str))).collect();
    if found.is_empty() { String::new() } else { format!("similar names: {}; ", found.join(", ")) }
}

/// Up to three names similar to a pattern, the most similar first.
fn near<'n>(pattern: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    const NAMES_MAX: usize = 3;
    const LEAST_LIKENESS: f64 = 0.8;
    let plain = pattern.replace(['*', '?'], "");
    let likeness = |name: &str| match !plain.is_empty() && (name.contains(&plain) || plain.contains(name)) {
        true => 1.0,
        false => strsim::jaro_winkler(&plain, name),
    };
    let mut near: Vec<(f64, &str)> = names.filter(|name| !name.is_empty()).map(|name| (likeness(name), name)).collect();
    near.retain(|(likeness, _)| *likeness >= LEAST_LIKENESS);
    near.sort_by(|(a, name), (b, other)| b.total_cmp(a).then(name.cmp(other)));
    near.dedup_by_key(|(_, name)| *name);
    near.into_iter().take(NAMES_MAX).map(|(_, name)| name).collect()
}

/// Sorted names, each once.
pub(crate) fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    names.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
}

/// Result of reporting.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_close_are_found() {
        let names = ["sched_switch", "account_syscall_enter", "account_syscall_exit", "xdp_count"];
        assert_eq!(near("shed_switch", names.into_iter()), ["sched_switch"]);
        assert_eq!(near("*syscall*", names.into_iter()), ["account_syscall_enter", "account_syscall_exit"]);
        assert!(near("nosuch*", names.into_iter()).is_empty());
    }
}
