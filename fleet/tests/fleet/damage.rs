//! Lakes with damaged files, files of other programs, or files of another version: no query gives wrong sums.

use crate::support::{Lake, program, recording, run, text, whole_recordings};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::Command;

const QUESTIONS: [&str; 5] = ["top", "versions", "hosts", "counters", "functions"];

/// Damages a file, runs a check, and restores the file.
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
        // The bit is inside a Parquet page, which has no checksum.
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
    // The file of `recording` has the commit. If it is damaged, the files of its batch are unknown.
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
    let recording = recording("7.2/everything.data");
    let lake = Lake::of_four_hosts(&[&recording]);
    let before = lake.contents();
    let facts = lake.files("run_stats");
    let beside = |name: &str| facts[0].with_file_name(name);
    // A copy of a file of the lake (no commit lists the copy), and files that are not Parquet.
    let others = [beside("copy.parquet"), beside("notes.txt"), beside("x.parquet")];
    std::fs::copy(&facts[0], &others[0]).unwrap();
    others[1..].iter().for_each(|path| std::fs::write(path, "PAR1 and no more").unwrap());
    assert_eq!(lake.contents(), before);
    let verified = lake.verify();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    for path in &others {
        assert!(text(&verified.stderr).contains(path.to_str().unwrap()), "{path:?} {}", text(&verified.stderr));
    }
    // An import makes a new state of the day, which has only committed files.
    let again = lake.import_with_start(&recording, 1_772_323_200_009_000_000, &["--host", "host4"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let verified = lake.verify();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
}

/// Gives a file another size, with zeros at the end, and lists this size in the commit. The listed hash stays.
fn resize(lake: &Lake, table: &str, bytes: u64) {
    let mark = &lake.files("recording")[0];
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(mark).unwrap()).unwrap();
    let mut metadata = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
    let commit = metadata.iter_mut().find(|entry| entry.key == "bprec.commit").unwrap();
    let mut listed: Value = serde_json::from_str(commit.value.as_deref().unwrap()).unwrap();
    listed[table]["bytes"] = bytes.into();
    commit.value = Some(listed.to_string());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
    let (schema, rows) = (reader.schema().clone(), reader.build().unwrap().map(Result::unwrap).collect::<Vec<_>>());
    let mut writer = ArrowWriter::try_new(File::create(mark).unwrap(), schema, Some(properties)).unwrap();
    rows.iter().for_each(|rows| writer.write(rows).unwrap());
    writer.close().unwrap();
    File::options().write(true).open(&lake.files(table)[0]).unwrap().set_len(bytes).unwrap();
}

/// A file four times as large as the memory that the program gets is hashed.
#[test]
fn large_files_are_hashed_in_little_memory() {
    const MEMORY_KIB: u64 = 96 << 10;
    let lake = Lake::with(&whole_recordings()[..1], &[]);
    resize(&lake, "sample", 4 * (MEMORY_KIB << 10));
    for verb in ["verify", "query functions"] {
        let limited = format!("ulimit -d {MEMORY_KIB}; exec \"$0\" {verb} --lake \"$1\"");
        let program = program().get_program().to_owned();
        let output = Command::new("sh").args(["-c", &limited]).arg(program).arg(lake.path()).output().unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{verb}: {}", text(&output.stderr));
        let expected = format!("{}: differs from the committed file", lake.files("sample")[0].display());
        assert!(text(&output.stderr).contains(&expected), "{verb}: {}", text(&output.stderr));
    }
}

/// The files of a batch, copied with their commit, count twice; `verify` finds this.
#[test]
fn a_batch_that_is_there_twice_is_found() {
    let lake = Lake::with(&whole_recordings()[..2], &[]);
    for table in crate::support::TABLES {
        let file = &lake.files(table)[0];
        std::fs::copy(file, file.with_file_name("again.parquet")).unwrap();
    }
    let verified = lake.verify();
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified.stderr).contains("a recording is in the lake more than once"), "{}", text(&verified.stderr));
}

#[test]
fn what_a_newer_version_wrote_is_refused() {
    let lake = Lake::with(&whole_recordings()[..2], &[]);
    let mark = &lake.files("recording")[0];
    let newer = |bytes: &mut Vec<u8>| {
        let key = b"bprec.schema_version";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len();
        // The value in Thrift's compact protocol: field, length, one digit.
        assert_eq!(bytes[at..at + 3], [0x18, 1, b'2']);
        bytes[at + 2] = b'3';
    };
    with_damage(&lake, mark, &newer, &|| {
        let output = lake.query(&["top"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("which a newer bprec-fleet wrote"), "{}", text(&output.stderr));
    });
    std::fs::create_dir(lake.path().join("v3")).unwrap();
    is_refused(&lake, "the lake has version v3, and this bprec-fleet reads v2: a newer bprec-fleet wrote it");
}

/// Programs have other keys in lakes of version 1.
#[test]
fn what_an_earlier_version_wrote_is_refused() {
    let lake = Lake::new();
    std::fs::create_dir_all(lake.path().join("v1/generations")).unwrap();
    is_refused(&lake, "the lake has version v1, and this bprec-fleet reads v2");
    assert!(!lake.path().join("v2").exists());
}

fn is_refused(lake: &Lake, words: &str) {
    let path = lake.path();
    let keep = ["expire", "--keep", "9d", "--lake", path.to_str().unwrap()];
    for output in [lake.query(&["top"]), lake.verify(), lake.import(&whole_recordings()[..1], &[]), run(&keep)] {
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
