//! Lakes with damaged files, files of other programs, or files of another version: no query gives wrong sums.

use crate::support::{Lake, TABLES, program, recording, run, text, whole_recordings};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const QUESTIONS: [&str; 6] = ["top", "versions", "hosts", "counters", "functions", "owners"];

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
    must_be_refused(&lake.query(&[question]), path.file_name().unwrap().to_str().unwrap());
}

fn must_be_refused(output: &Output, name: &str) {
    assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stdout));
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains(name), "{name}: {}", text(&output.stderr));
}

#[test]
fn a_damaged_file_is_named_and_nothing_is_answered_from_it() {
    let lake = Lake::with(&whole_recordings(), &["--batch", "4"]);
    let read = [("run_stats", "run_cnt"), ("run_stats", "tag"), ("run_stats", "run_time_ns")];
    let read = read.into_iter().chain([("counter", "value"), ("sample", "weight"), ("bill", "weight")]);
    for (question, (table, column)) in QUESTIONS.into_iter().zip(read) {
        let path = largest(&lake, table);
        let cut: &dyn Fn(&mut Vec<u8>) = &|bytes| bytes.truncate(bytes.len() / 2);
        let flip: &dyn Fn(&mut Vec<u8>) = &|bytes| {
            let (_, chunk) = columns(&path).into_iter().find(|(name, _)| name == column).unwrap();
            bytes[(chunk.start + chunk.end) / 2] ^= 0x10;
        };
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
    let gone = largest(&lake, "run_stats");
    std::fs::remove_file(&gone).unwrap();
    must_refuse(&lake, "top", &gone);
}

fn largest(lake: &Lake, table: &str) -> PathBuf {
    lake.files(table).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Name and range of each column chunk of a file: pages and their headers.
fn columns(path: &Path) -> Vec<(String, Range<usize>)> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let columns = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
    let range = |(start, length): (u64, u64)| start as usize..(start + length) as usize;
    columns.map(|column| (column.column_path().string(), range(column.byte_range()))).collect()
}

/// Rows of a file; `None` if it cannot be read. The library panics at some headers of pages.
fn rows_in(bytes: Vec<u8>) -> Option<Vec<RecordBatch>> {
    let read = || {
        ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).ok()?.build().ok()?.collect::<Result<_, _>>().ok()
    };
    std::panic::catch_unwind(read).ok().flatten()
}

/// Each byte in the column chunks, changed alone. The checksum of a page is in its last eight bytes, so this requires that it is read, too.
#[test]
fn a_changed_byte_of_a_page_never_changes_a_row() {
    let lake = Lake::with(&whole_recordings(), &[]);
    for table in ["run_stats", "sample", "recording"] {
        let (mut refused, mut same) = (0, 0);
        let path = largest(&lake, table);
        let whole = std::fs::read(&path).unwrap();
        let rows = rows_in(whole.clone()).unwrap();
        for at in columns(&path).into_iter().flat_map(|(_, chunk)| chunk) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            match rows_in(bytes) {
                None => refused += 1,
                Some(read) => {
                    assert_eq!(read, rows, "{table}: byte {at}");
                    same += 1;
                }
            }
        }
        println!("{table}: {refused} changes refused, {same} without effect");
        assert!(same < refused / 3, "{table}: {refused} changes refused, {same} without effect");
    }
}

/// A byte in each column of each table, in one table after the other at another quarter of the column. A query refuses the file and names it, or its
/// answer is the same; `verify` names the files.
#[test]
fn a_changed_byte_of_a_column_is_found() {
    let lake = Lake::with(&whole_recordings(), &[]);
    let directory = tempfile::tempdir().unwrap();
    let query = |table: &str| {
        let sql = directory.path().join(table);
        std::fs::write(&sql, format!("SELECT * FROM {table}")).unwrap();
        let output = lake.query(&["--format", "csv", "--sql", sql.to_str().unwrap()]);
        let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        (output, lines)
    };
    let files = TABLES.map(|table| {
        let path = largest(&lake, table);
        (table, query(table).1, std::fs::read(&path).unwrap(), columns(&path), path)
    });
    let most = files.iter().map(|(_, _, _, columns, _)| columns.len()).max().unwrap();
    let (mut refused, mut same) = (0, 0);
    for column in 0..most {
        for (at, (_, _, whole, columns, path)) in files.iter().enumerate() {
            let mut bytes = whole.clone();
            let (_, chunk) = &columns[column % columns.len()];
            bytes[chunk.start + chunk.len() * (2 * ((column + at) % 4) + 1) / 8] ^= 0x10;
            std::fs::write(path, bytes).unwrap();
        }
        let verified = lake.verify();
        assert_eq!(verified.status.code(), Some(1));
        for (table, before, _, _, path) in &files {
            let ((output, lines), path) = (query(table), path.to_str().unwrap());
            let is_same = output.status.success();
            if is_same {
                assert_eq!(lines, *before, "{path}");
                same += 1;
            } else {
                must_be_refused(&output, path);
                refused += 1;
            }
            // A file of `recording` has no committed hash, so only changes that have an effect are known.
            let is_named = text(&verified.stderr).contains(path);
            assert!(is_named || *table == "recording" && is_same, "{path}: {}", text(&verified.stderr));
        }
    }
    println!("{refused} changes refused, {same} without effect");
    assert!(same < refused / 2, "{refused} changes refused, {same} without effect");
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
    for table in TABLES {
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
