//! The recording that a command reads.

use std::path::{Path, PathBuf};

/// The recording that a command reads, behind `-i` or by itself.
#[derive(clap::Args)]
pub(crate) struct InputArgs {
    /// Recording to read; `-` is standard input. Can be gzip-compressed [default: perf.data].
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Recording to read, as with -i.
    #[arg(value_name = "FILE", conflicts_with = "input")]
    file: Option<PathBuf>,
}

impl InputArgs {
    /// The file to read.
    pub(crate) fn path(&self) -> &Path {
        self.input.as_deref().or(self.file.as_deref()).unwrap_or(Path::new("perf.data"))
    }

    /// Whether a word without an option was taken for the file.
    pub(crate) fn is_bare(&self) -> bool {
        self.file.is_some()
    }
}
