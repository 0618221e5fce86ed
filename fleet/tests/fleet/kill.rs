//! An import that is killed leaves what was committed, and the same import again does the rest.

use crate::support::{Lake, program, recordings_of, text};
use bprec_generate::Fleet;
use std::process::Stdio;
use std::time::Duration;

/// Files of a lake, temporary ones among them.
fn files(lake: &Lake) -> usize {
    let mut places = vec![lake.path()];
    let mut count = 0;
    while let Some(place) = places.pop() {
        // A temporary file may be renamed meanwhile.
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.path().is_dir() { places.push(entry.path()) } else { count += 1 }
        }
    }
    count
}

#[test]
fn an_import_that_is_killed_again_and_again_is_as_if_it_had_been_done_once() {
    // Small ones, so that there are many moments and little to be done again.
    let place = tempfile::tempdir().unwrap();
    let fleet = Fleet { hosts: 8, programs: 3, record_bytes: 1, seed: 1, regressions: Vec::new() };
    let recordings = recordings_of(&fleet, place.path());
    let once = Lake::with(&recordings, &["--batch", "1"]).contents();
    let lake = Lake::new();
    let (mut kills, mut left_over, mut seed) = (0, 0, 1_u64);
    loop {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A batch has six files, each of which is there under a temporary name first.
        let more = (seed >> 33) as usize % 9;
        let before = files(&lake);
        let mut import = program()
            .args(["import", "--batch", "1", "--out"])
            .arg(lake.path())
            .args(&recordings)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let done = loop {
            if let Some(status) = import.try_wait().unwrap() {
                break Some(status);
            }
            if files(&lake) >= before + more {
                import.kill().unwrap();
                import.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        if let Some(status) = done {
            assert!(status.success());
            break;
        }
        kills += 1;
        // At every moment the lake is whole, whatever else lies there.
        let verified = lake.verify();
        assert!(verified.status.success(), "{}", text(&verified.stderr));
        left_over += usize::from(text(&verified.stderr).contains("is of no commit"));
        assert!(kills < 300, "no progress");
    }
    assert!(kills >= 10 && left_over > 0, "{kills} kills, of which {left_over} left something over");
    assert_eq!(lake.contents(), once);
    let verified = lake.verify();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    println!("{kills} kills, of which {left_over} left something over");
}
