//! Identity of hosts: a host is a machine, not a name.

use crate::support::{DAY_NS, Lake, TABLES, program, rows, text};
use bprec_generate::{Host, Ran, Shape, generate};
use bprec_report::{Input, Options, by_prog};
use datafusion::arrow::array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NS_PER_HOUR: u64 = 3_600_000_000_000;

/// Ids as recordings have them.
fn id(digit: char) -> String {
    digit.to_string().repeat(32)
}

/// Writes a recording of a host that began at an hour. The number of runs follows from the hour.
fn recording(place: &Path, name: &str, [machine_id, boot_id]: [&str; 2], hour: u64) -> PathBuf {
    let host = Host {
        name: name.to_owned(),
        machine_id: machine_id.to_owned(),
        boot_id: boot_id.to_owned(),
        start_unix_ns: DAY_NS + hour * NS_PER_HOUR,
        ..Host::default()
    };
    let ran = vec![Ran { count: 1000 + hour, time_ns: 1_000_000, version: 0 }; 2];
    let shape = Shape { record_bytes: 1 << 16, programs: 2, seed: hour, host, ran, ..Shape::default() };
    let path = place.join(format!("{name}-{hour}.data"));
    generate(&shape, BufWriter::new(File::create(&path).unwrap())).unwrap();
    path
}

/// Runs of all programs in recordings, by their reports.
fn runs(files: &[&PathBuf]) -> u64 {
    let report = |path: &&PathBuf| by_prog(&Input::open(path.as_path()).unwrap(), &Options::default()).unwrap();
    let of_report = |report: bprec_report::model::Report| -> u64 {
        report.programs.iter().filter_map(|program| program.runs.value()).map(|runs| runs.count).sum()
    };
    files.iter().map(report).map(of_report).sum()
}

#[test]
fn a_renamed_host_is_one_and_two_hosts_with_one_name_are_two() {
    let place = tempfile::tempdir().unwrap();
    let [a, b, first, second, third] = ['a', 'b', '1', '2', '3'].map(id);
    let before = recording(place.path(), "edge-1", [&a, &first], 1);
    let other = recording(place.path(), "edge-1", [&b, &second], 2);
    // The first host was started again, under another name.
    let after = recording(place.path(), "a-new-name", [&a, &third], 27);
    let unknown = recording(place.path(), "guest", ["", &id('4')], 3);
    let files = [before.clone(), other.clone(), after.clone(), unknown.clone()];
    let lake = Lake::with(&files, &[]);

    let answer = rows(&lake.query(&["hosts", "--format", "json"]));
    let mut found: Vec<(&str, &str, u64)> = answer
        .iter()
        .map(|row| {
            (row["host_id"].as_str().unwrap(), row["host_name"].as_str().unwrap(), row["runs"].as_u64().unwrap())
        })
        .collect();
    found.sort_unstable();
    let expected = [
        (a.as_str(), "a-new-name", runs(&[&before, &after])),
        (b.as_str(), "edge-1", runs(&[&other])),
        // A host without a machine id has its name as id.
        ("guest", "guest", runs(&[&unknown])),
    ];
    assert_eq!(found, expected);
    let hosts = lake.sql("SELECT COUNT(DISTINCT host_id) AS hosts, COUNT(DISTINCT boot_id) AS boots FROM run_stats");
    assert_eq!(hosts, [json!({"hosts": 3, "boots": 4})]);
    let verified = lake.verify();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
}

/// In every query, a condition on the host gives the rows of a lake that has only the recordings of this host.
#[test]
fn every_query_selects_by_boot_and_name() {
    let place = tempfile::tempdir().unwrap();
    let [a, b, first, second, third] = ['a', 'b', '1', '2', '3'].map(id);
    let files = [
        recording(place.path(), "edge-1", [&a, &first], 1),
        recording(place.path(), "edge-1", [&a, &second], 2),
        recording(place.path(), "core-1", [&b, &third], 3),
    ];
    let lake = Lake::with(&files, &[]);
    let by_boot = format!("boot_id = '{second}'");
    for (condition, recordings) in [(by_boot.as_str(), &files[1..2]), ("host_name LIKE 'edge%'", &files[..2])] {
        let alone = Lake::with(recordings, &[]);
        for query in ["top", "versions", "hosts", "functions", "owners", "counters"] {
            let selected = rows(&lake.query(&[query, "--format", "json", "--where", condition]));
            assert_eq!(selected, rows(&alone.query(&[query, "--format", "json"])), "{query} {condition}");
            assert!(query == "counters" || !selected.is_empty(), "{query}");
        }
    }
    for table in ["prog", "event"] {
        let count = lake.sql(&format!("SELECT COUNT(*) AS n FROM {table} WHERE boot_id = '{third}'"));
        assert_ne!(count[0]["n"], 0, "{table}");
    }
}

/// Machines made from one disk image have the same machine id. Their boots overlap in time; boots of a single machine
/// never do.
#[test]
fn machines_with_one_id_are_named() {
    let place = tempfile::tempdir().unwrap();
    let [a, first, second] = ['a', '1', '2'].map(id);
    let files = [
        recording(place.path(), "one", [&a, &first], 1),
        recording(place.path(), "two", [&a, &second], 2),
        recording(place.path(), "one", [&a, &first], 3),
    ];
    let verified = Lake::with(&files, &[]).verify();
    let said = text(&verified.stderr);
    assert!(verified.status.success(), "{said}");
    let expected = format!(
        "two boots of a host overlap in time: several machines have its machine id or name, or its clock was set: host_id {a}"
    );
    assert!(said.contains(&expected) && said.lines().count() == 1, "{said}");
}

/// Columns that earlier versions did not write.
const LATER: [&str; 2] = ["boot_id", "host_name"];

/// Writes a file again without the columns that came later, and returns its entry in the commit.
fn rewrite(path: &Path, commit: Option<&Value>) -> Value {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let schema = reader.schema().clone();
    let kept: Vec<usize> = (0..schema.fields().len())
        .filter(|at| {
            let name = schema.field(*at).name();
            // The table `recording` has had the name of the host from the start.
            !LATER.contains(&name.as_str()) || (name == "host_name" && commit.is_some())
        })
        .collect();
    assert!(kept.len() < schema.fields().len());
    let schema = Arc::new(schema.project(&kept).unwrap());
    let batches: Vec<RecordBatch> =
        reader.build().unwrap().map(|batch| batch.unwrap().project(&kept).unwrap()).collect();
    let mut metadata = vec![KeyValue::new("bprec.schema_version".to_owned(), "2".to_owned())];
    metadata.extend(commit.map(|commit| KeyValue::new("bprec.commit".to_owned(), commit.to_string())));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    fs::remove_file(path).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(File::create(path).unwrap(), schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    let bytes = fs::read(path).unwrap();
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    json!({"rows": rows, "bytes": bytes.len(), "sha256": sha256})
}

/// A lake of an earlier version, without boots and names: queries, imports, compaction and verification go on.
#[test]
fn a_lake_without_the_columns_is_read_and_written() {
    let place = tempfile::tempdir().unwrap();
    let [a, first] = ['a', '1'].map(id);
    let old = recording(place.path(), "edge-1", ["", ""], 1);
    let new = recording(place.path(), "edge-1", [&a, &first], 2);
    let lake = Lake::with(std::slice::from_ref(&old), &[]);
    let mut files = serde_json::Map::new();
    for table in &TABLES[1..] {
        files.insert((*table).to_owned(), rewrite(&lake.files(table)[0], None));
    }
    rewrite(&lake.files("recording")[0], Some(&Value::from(files)));
    assert!(lake.verify().status.success(), "{}", text(&lake.verify().stderr));

    let imported = lake.import(&[old.clone(), new.clone()], &[]);
    let said = "1 recordings imported in 1 batches, 1 already in the lake, 0 refused\n";
    assert_eq!(text(&imported.stdout), said, "{}", text(&imported.stderr));
    let sql = "SELECT host_id, host_name, boot_id, SUM(run_cnt) AS runs FROM run_stats GROUP BY host_id, host_name, boot_id ORDER BY host_id";
    let expected = [
        json!({"host_id": a, "host_name": "edge-1", "boot_id": first, "runs": runs(&[&new])}),
        json!({"host_id": "edge-1", "host_name": null, "boot_id": null, "runs": runs(&[&old])}),
    ];
    assert_eq!(lake.sql(sql), expected);
    let compacted = program().arg("compact").arg("--lake").arg(lake.path()).output().unwrap();
    assert_eq!(text(&compacted.stdout), "2 batches merged into 1\n", "{}", text(&compacted.stderr));
    assert_eq!(lake.sql(sql), expected);
    assert!(lake.verify().status.success(), "{}", text(&lake.verify().stderr));
}
