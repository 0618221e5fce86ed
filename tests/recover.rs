//! `bprec recover` on recordings that other tools did not finish.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

fn recover(arguments: &[&Path]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bprec")).arg("recover").args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// Lines of samples that `bprec script` prints.
fn samples(path: &Path) -> usize {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
    let output = command.args(["script", "-F", "time,ip", "-i"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().count()
}

/// perf leaves a file whose header has no size yet, and whose last record may be there in part.
#[test]
fn what_perf_left_behind_is_made_whole_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus/perf.data.singleprocess-3.8");
    let mut bytes = fs::read(&original).unwrap();
    let data_end =
        u64::from_le_bytes(bytes[40..48].try_into().unwrap()) + u64::from_le_bytes(bytes[48..56].try_into().unwrap());
    bytes.truncate(data_end as usize - 4);
    bytes[48..56].fill(0);
    fs::write(&path, &bytes).unwrap();
    let before = samples(&path);
    assert!(before > 0);

    let (done, text) = recover(&[&path]);
    assert!(done, "{text}");
    assert!(text.contains("cut off while it was written"), "{text}");
    assert_eq!(samples(&path), before);
    let mended = fs::read(&path).unwrap();
    assert_ne!(mended[48..56], [0; 8], "the header says how much there is");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn whole_recordings_are_left_alone_and_others_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let whole = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus/ro_sample.perf")).unwrap();
    fs::write(&path, &whole).unwrap();
    let (done, text) = recover(&[&path]);
    assert!(done && text.contains("nothing to do"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), whole);

    fs::write(&path, b"not a recording").unwrap();
    let (done, text) = recover(&[&path]);
    assert!(!done && text.contains("this is no perf.data"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), b"not a recording");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}
