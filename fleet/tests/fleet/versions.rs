//! Lakes and summaries of older versions, which have fewer tables.

use crate::support::{Lake, TABLES, copy_with_start, program, recording, repository, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Start of the recording in the committed lake, and of a second recording on the same day, ns since 1970.
fn starts(lake: &Lake) -> (u64, u64) {
    let rows = lake.sql("SELECT CAST(start_time AS BIGINT) AS micros FROM recording");
    let nanos = rows[0]["micros"].as_u64().unwrap() * 1000;
    (nanos, nanos + 1_000_000)
}

/// Rows of the tables that the committed lake has, without the columns about the import.
fn contents(lake: &Lake) -> BTreeMap<&'static str, Vec<String>> {
    let mut contents = lake.contents();
    contents.remove("bill");
    for row in contents.get_mut("recording").unwrap() {
        let mut columns: Value = serde_json::from_str(row).unwrap();
        columns.as_object_mut().unwrap().retain(|name, _| name != "source_uri" && name != "recording_id");
        *row = columns.to_string();
    }
    contents
}

/// The committed lake has no table `bill`. It is read, continued, compacted and verified as any other; only `owners` lacks its recording.
#[test]
fn a_lake_with_fewer_tables_is_continued() {
    let lake = Lake::new();
    let older = repository().join("fleet/tests/lakes/seven-tables");
    assert!(Command::new("cp").arg("-a").arg(older).arg(lake.path()).status().unwrap().success());
    let owners = || lake.sql("SELECT DISTINCT window_start FROM bill").len();
    assert_eq!(owners(), 0);
    let of_fixture = recording("6.18/busy.data");
    let (first, second) = starts(&lake);
    let place = tempfile::tempdir().unwrap();
    let copy = |start, name: &str| {
        let to = place.path().join(name);
        copy_with_start(&of_fixture, start, &to);
        to
    };
    let expected = Lake::with(&[copy(first, "first"), copy(second, "second")], &[]);
    let output = lake.import(&[copy(second, "again")], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let is_whole = |what: &str| {
        assert_eq!(contents(&lake), contents(&expected), "{what}");
        assert_eq!(owners(), 1, "{what}");
        let verified = lake.verify();
        assert!(verified.status.success() && verified.stderr.is_empty(), "{what}: {}", text(&verified.stderr));
    };
    is_whole("after the import");
    let compact = |lake: &Path| program().args(["compact", "--lake"]).arg(lake).output().unwrap();
    assert_eq!(text(&compact(&lake.path()).stdout), "2 batches merged into 1\n");
    is_whole("after the compaction");
    assert_eq!(TABLES.len(), 8, "a new table needs a lake without it");
}
