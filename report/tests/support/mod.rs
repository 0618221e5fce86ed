//! The committed recordings.

use std::path::{Path, PathBuf};

/// Recordings of this recorder and of perf, on several kernels.
pub(crate) fn fixtures() -> Vec<PathBuf> {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let places = std::fs::read_dir(recordings).unwrap().map(|entry| entry.unwrap().path());
    let files = places.filter(|path| path.is_dir()).flat_map(|place| std::fs::read_dir(place).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "data")).collect()
}
