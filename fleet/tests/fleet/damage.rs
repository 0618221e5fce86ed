//! Lakes with files that are damaged, of others, or of a newer version: never wrong sums.

use crate::support::{Lake, text, whole_recordings};
use std::path::{Path, PathBuf};

const QUESTIONS: [&str; 5] = ["top", "versions", "hosts", "counters", "functions"];

/// Damages a file, and asks.
fn with_damage(lake: &Lake, path: &Path, damage: &dyn Fn(&mut Vec<u8>), then: &dyn Fn()) {
    let whole = std::fs::read(path).unwrap();
    let mut bytes = whole.clone();
    damage(&mut bytes);
    std::fs::write(path, bytes).unwrap();
    then();
    std::fs::write(path, whole).unwrap();
    assert!(lake.verify().status.success());
}

fn must_refuse(lake: &Lake, question: &str, path: &Path) {
    let output = lake.query(&[question]);
    assert_eq!(output.status.code(), Some(2), "{question}: {}", text(&output.stdout));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains(path.file_name().unwrap().to_str().unwrap()), "{question}: {said}");
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_answered_from_it() {
    let lake = Lake::with(&whole_recordings(), &["--batch", "4"]);
    let largest =
        |table: &str| lake.files(table).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    for (question, table) in QUESTIONS.into_iter().zip(["run_stats", "run_stats", "run_stats", "counter", "sample"]) {
        let path = largest(table);
        let cut: &dyn Fn(&mut Vec<u8>) = &|bytes| bytes.truncate(bytes.len() / 2);
        // In the middle of a page, whose reader has no checksum to find it by.
        let flip: &dyn Fn(&mut Vec<u8>) = &|bytes| bytes[100] ^= 0x10;
        for damage in [cut, flip] {
            with_damage(&lake, &path, damage, &|| {
                must_refuse(&lake, question, &path);
                let verified = lake.verify();
                assert_eq!(verified.status.code(), Some(1));
                assert!(text(&verified.stderr).contains(path.to_str().unwrap()), "{}", text(&verified.stderr));
            });
        }
    }
    // The mark commits a batch: without it nobody knows what there was.
    let mark = &lake.files("recording")[0];
    with_damage(&lake, mark, &|bytes| bytes.truncate(bytes.len() - 1), &|| {
        QUESTIONS.iter().for_each(|question| must_refuse(&lake, question, mark));
        assert_eq!(lake.verify().status.code(), Some(2));
        assert_eq!(lake.import(&whole_recordings(), &[]).status.code(), Some(2));
    });
    let gone = largest("run_stats");
    std::fs::remove_file(&gone).unwrap();
    must_refuse(&lake, "top", &gone);
}

#[test]
fn files_of_others_change_no_sum() {
    let lake = Lake::with(&whole_recordings(), &[]);
    let before = lake.contents();
    let facts = lake.files("run_stats");
    let beside = |name: &str| facts[0].with_file_name(name);
    // A copy of a file of the lake, which no commit has; and what is no Parquet, or stands where no file belongs.
    let copy = beside("copy.parquet");
    std::fs::copy(&facts[0], &copy).unwrap();
    let others: Vec<PathBuf> =
        vec![beside("notes.txt"), beside("x.parquet"), lake.path().join("v1/run_stats/stray.parquet")];
    others.iter().for_each(|path| std::fs::write(path, "PAR1 and no more").unwrap());
    assert_eq!(lake.contents(), before);
    let verified = lake.verify();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    for path in others.iter().chain([&copy]) {
        assert!(text(&verified.stderr).contains(path.to_str().unwrap()), "{path:?} {}", text(&verified.stderr));
    }
    let again = lake.import(&whole_recordings(), &[]);
    assert!(again.status.success() && !copy.exists() && others.iter().all(|path| path.exists()));
    assert_eq!(lake.contents(), before);
}

/// Files of a batch that are copied count twice: verification finds that.
#[test]
fn a_batch_that_is_there_twice_is_found() {
    let lake = Lake::with(&whole_recordings()[..2], &[]);
    for table in crate::support::TABLES {
        let file = &lake.files(table)[0];
        std::fs::copy(file, file.with_file_name("again.parquet")).unwrap();
    }
    let verified = lake.verify();
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified.stderr).contains("a recording is there more than once"), "{}", text(&verified.stderr));
}

#[test]
fn what_a_newer_version_wrote_is_refused() {
    let lake = Lake::with(&whole_recordings()[..2], &[]);
    let mark = &lake.files("recording")[0];
    let newer = |bytes: &mut Vec<u8>| {
        let key = b"bprec.schema_version";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len();
        // The value: a field of Thrift's compact protocol, its length and its one digit.
        assert_eq!(bytes[at..at + 3], [0x18, 1, b'1']);
        bytes[at + 2] = b'2';
    };
    with_damage(&lake, mark, &newer, &|| {
        let output = lake.query(&["top"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("which a newer bprec-fleet wrote"), "{}", text(&output.stderr));
    });
    std::fs::create_dir(lake.path().join("v2")).unwrap();
    for output in [lake.query(&["top"]), lake.verify(), lake.import(&whole_recordings()[..1], &[])] {
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("v2, which a newer bprec-fleet wrote"), "{}", text(&output.stderr));
    }
}
