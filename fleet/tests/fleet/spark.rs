//! Spark as the engine: a cluster of a master and two workers on this machine gives the same rows as DataFusion.

pub(crate) mod cluster;

use crate::support::{Lake, TABLES, program, recording, rows, text, whole_recordings};
use cluster::{Cluster, Spark};
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

/// Named queries with their arguments.
const QUESTIONS: [&[&str]; 7] = [
    &["top"],
    &["versions", "--limit", "1000"],
    &["hosts", "--where", r"name NOT LIKE 'a\_%' AND kernel_release LIKE '%cloud%'"],
    &["functions", "--limit", "1000"],
    &["owners", "--limit", "1000"],
    &["counters"],
    &["regressed", "--since", "2026-03-16", "--until", "2026-03-21", "--min-runs", "100"],
];

/// All column types, nulls, and text and names that Spark might interpret differently.
const TYPES: &str = r#"
-- All programs of all recordings.
SELECT r.host_id, r.start_time, r.duration_ns, r.labels, p.tag, p.version_label, p.counts_others, p.date, p.owner_uid,
       CAST(r.start_time AS DATE) AS "a day", 'a\nb' AS backslash, CAST(p.prog_id AS DOUBLE) / 3e0 AS third, CAST(1.5 AS DECIMAL(9,2)) AS decimal
FROM recording r LEFT JOIN prog p ON r.host_id = p.host_id AND r.kernel_release = p.kernel_release
ORDER BY r.host_id NULLS LAST, r.recording_id, p.prog_id, p.load_time_ns, p.prog_key, p.tag NULLS LAST, p.date
"#;

const BY_DAY: &str = "SELECT date, COUNT(*) AS programs, SUM(CAST(run_cnt AS DECIMAL(20,0))) AS runs, \
                      SUM(CAST(run_time_ns AS DECIMAL(20,0))) AS cpu_ns FROM run_stats GROUP BY date ORDER BY date";

/// First row that differs between two engines.
fn difference(ours: &[Value], theirs: &[Value]) -> Option<String> {
    let rows = (0..ours.len().max(theirs.len())).map(|at| (ours.get(at), theirs.get(at)));
    let mut rows = rows.filter(|(ours, theirs)| ours != theirs);
    rows.next().map(|(ours, theirs)| format!("{ours:?}\n{theirs:?}"))
}

fn query(lake: &Lake, args: &[&str], spark: Option<(&Spark, &str)>) -> Output {
    let mut command = program();
    command.args(["query", "--format", "json"]).args(args).arg("--lake").arg(lake.path());
    if let Some((spark, master)) = spark {
        spark.environment(&mut command).args(["--spark", master, "--start-timeout", "600"]);
    }
    command.output().unwrap()
}

fn sql_file(directory: &Path, sql: &str) -> String {
    let file = directory.join("query.sql");
    fs::write(&file, sql).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_cluster_answers_as_datafusion_does() {
    let Some(spark) = Spark::installed() else {
        println!("SKIP a_cluster_answers_as_datafusion_does: setup/fleet-spark installs Spark");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (recording("7.2/ratio.data"), recording("7.2/everything.data"));
    let days: Vec<&Path> = (0..21).map(|day| if day < 15 { &*old } else { &*new }).collect();
    let lake = Lake::of_four_hosts(&days);
    let output = lake.import(&whole_recordings(), &["--batch", "4", "--label", "role=édge"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Files that no commit lists, and a file that is not Parquet: neither engine reads them.
    let fact = &lake.files("run_stats")[0];
    fs::copy(fact, fact.with_file_name("copy.parquet")).unwrap();
    fs::write(fact.with_file_name("stray.parquet"), "PAR1 and no more").unwrap();

    let cluster = Cluster::start(&spark);
    let types = sql_file(directory.path(), TYPES);
    for args in QUESTIONS.iter().copied().chain([&["--sql", &*types][..]]) {
        let ours = rows(&query(&lake, args, None));
        let theirs = rows(&query(&lake, args, Some((&spark, &cluster.master))));
        assert!(ours.len() > 1, "{args:?}: {ours:?}");
        assert_eq!(difference(&ours, &theirs), None, "{args:?}");
        if args[0] == "regressed" {
            assert!(ours.iter().any(|row| row["hosts_new"].as_u64() == Some(4) && row["ratio"].is_f64()), "{ours:?}");
        }
    }
    for (worker, tasks) in cluster.finished_tasks().into_iter().enumerate() {
        assert!(tasks > 0, "worker {worker} ran no task");
    }
    wrong_lakes_answer_differently(&spark, &cluster);
    strangers_get_nothing(&cluster);
    cluster.must_listen_on_loopback_alone();
    cluster.stop();
}

/// A client with another secret gets no answer but an error with the possible causes, and runs no task.
fn strangers_get_nothing(cluster: &Cluster) {
    let (stranger, before) = (Spark::installed().unwrap(), cluster.finished_tasks());
    let lake = Lake::with(&whole_recordings()[..1], &[]);
    let mut command = program();
    command.args(["query", "top", "--start-timeout", "20", "--spark", &cluster.master]);
    let output = stranger.environment(&mut command).arg("--lake").arg(lake.path()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true));
    let error = text(&output.stderr);
    assert!(error.contains("has another spark.authenticate.secret") || error.contains("gave no answer"), "{error}");
    assert_eq!(cluster.finished_tasks(), before);
}

/// The comparison detects a duplicated batch, a missing batch and a changed value. The test makes the commits agree with the damaged files, because
/// `--spark` refuses files that differ from their commits.
fn wrong_lakes_answer_differently(spark: &Spark, cluster: &Cluster) {
    let directory = tempfile::tempdir().unwrap();
    let recording = recording("7.2/ratio.data");
    let (lake, by_day) = (Lake::of_four_hosts(&[&*recording; 4]), sql_file(directory.path(), BY_DAY));
    let args = ["--sql", &*by_day];
    let ours = rows(&query(&lake, &args, None));
    let files = lake.files("run_stats");
    let days: Vec<String> = ours.iter().map(|row| row["date"].as_str().unwrap().to_owned()).collect();
    let file_of = |day: &str| files.iter().find(|file| file.to_string_lossy().contains(day)).unwrap();
    let [twice, missing, changed, _] = &days[..] else { panic!("{days:?}") };
    let of_batch = |file: &Path| {
        let name = file.file_name().unwrap().to_owned();
        TABLES.map(|table| lake.files(table).into_iter().find(|file| file.file_name() == Some(&name)).unwrap())
    };

    let must_refuse = |file: &Path| {
        let output = query(&lake, &args, Some((spark, &cluster.master)));
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true));
        assert!(text(&output.stderr).contains(file.to_str().unwrap()), "{}", text(&output.stderr));
    };
    let bytes = fs::read(file_of(missing)).unwrap();
    let batch = of_batch(file_of(missing));
    fs::remove_file(file_of(missing)).unwrap();
    must_refuse(file_of(missing));
    fs::write(file_of(missing), bytes).unwrap();
    batch.iter().for_each(|file| fs::remove_file(file).unwrap());

    let file = file_of(changed);
    let mark = &of_batch(file)[0];
    change_one_value(file);
    must_refuse(file);
    recommit(mark, "run_stats", file);

    for file in of_batch(file_of(twice)) {
        fs::copy(&file, file.with_file_name("again.parquet")).unwrap();
    }

    let theirs = rows(&query(&lake, &args, Some((spark, &cluster.master))));
    let of =
        |rows: &[Value], day: &str| -> Vec<Value> { rows.iter().filter(|row| row["date"] == day).cloned().collect() };
    for day in &days {
        let differs = difference(&of(&ours, day), &of(&theirs, day)).is_some();
        assert_eq!(differs, [twice, missing, changed].contains(&day), "{day}: {ours:?} {theirs:?}");
    }
}

fn read(file: &Path) -> (Vec<RecordBatch>, Option<Vec<KeyValue>>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().cloned();
    (reader.build().unwrap().map(Result::unwrap).collect(), metadata)
}

fn write(file: &Path, rows: &[RecordBatch], metadata: Option<Vec<KeyValue>>) {
    let properties = WriterProperties::builder().set_key_value_metadata(metadata).build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let to = File::create(file).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(to, rows[0].schema(), options).unwrap();
    rows.iter().for_each(|rows| writer.write(rows).unwrap());
    writer.close().unwrap();
}

/// Adds a nanosecond to the time of one program.
fn change_one_value(file: &Path) {
    let (mut batches, metadata) = read(file);
    let column = batches[0].schema().index_of("run_time_ns").unwrap();
    let mut columns = batches[0].columns().to_vec();
    let mut values: Vec<i64> = columns[column].as_primitive::<Int64Type>().values().to_vec();
    values[0] += 1;
    columns[column] = Arc::new(Int64Array::from(values)) as ArrayRef;
    batches[0] = RecordBatch::try_new(batches[0].schema(), columns).unwrap();
    write(file, &batches, metadata);
}

/// Updates size and hash of a file in the commit of its batch.
fn recommit(mark: &Path, table: &str, file: &Path) {
    let (batches, mut metadata) = read(mark);
    let entry = metadata.as_mut().unwrap().iter_mut().find(|entry| entry.key == "bprec.commit").unwrap();
    let mut commit: Value = serde_json::from_str(entry.value.as_ref().unwrap()).unwrap();
    let bytes = fs::read(file).unwrap();
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    commit[table]["bytes"] = bytes.len().into();
    commit[table]["sha256"] = hash.into();
    entry.value = Some(commit.to_string());
    write(mark, &batches, metadata);
}

#[test]
fn what_is_no_query_is_refused() {
    let Some(spark) = Spark::installed() else {
        println!("SKIP what_is_no_query_is_refused: setup/fleet-spark installs Spark");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let lake = Lake::with(&whole_recordings()[..2], &[]);
    let insert = sql_file(directory.path(), "INSERT INTO run_stats SELECT * FROM run_stats");
    let condition = ["top", "--where", "1 = 1; DROP TABLE run_stats"];
    for (args, expected) in
        [(&["--sql", &*insert][..], "Syntax error"), (&condition, "is not a condition on the columns of run_stats")]
    {
        let output = query(&lake, args, Some((&spark, "local[1]")));
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn a_driver_goes_with_the_query_that_is_killed() {
    let Some(spark) = Spark::installed() else {
        println!("SKIP a_driver_goes_with_the_query_that_is_killed: setup/fleet-spark installs Spark");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let lake = Lake::with(&whole_recordings()[..2], &[]);
    let mut command = program();
    spark.environment(&mut command).env("TMPDIR", directory.path()).current_dir(directory.path());
    command.args(["query", "top", "--spark", "local[1]", "--lake"]).arg(lake.path());
    let mut query = command.stdout(Stdio::null()).spawn().unwrap();
    let has = |name: &str| {
        let entries = fs::read_dir(directory.path()).unwrap().flatten();
        entries.into_iter().any(|entry| entry.path().join(name).exists())
    };
    cluster::wait_until("the driver runs", &|| has("answer.part"));
    query.kill().unwrap();
    query.wait().unwrap();
    cluster::wait_until("all processes end", &|| cluster::processes_in(directory.path()).is_empty());
    assert!(!has("request.json"));
}

#[test]
fn without_spark_the_error_says_what_to_install() {
    let lake = Lake::with(&whole_recordings()[..1], &[]);
    let nowhere = tempfile::tempdir().unwrap();
    let ask = |args: &[&str], home: &Path| {
        let mut command = program();
        command.env("PATH", nowhere.path()).env("SPARK_HOME", home);
        let output = command.args(["query", "top", "--lake"]).arg(lake.path()).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let spark = ["--spark", "local[1]"];
    assert!(ask(&spark, Path::new("")).contains("start spark-submit: install Spark and Java on this machine"));
    let submit = format!("start {}: install Spark and Java", nowhere.path().join("bin/spark-submit").display());
    assert!(ask(&spark, nowhere.path()).contains(&submit));
    assert!(ask(&["--start-timeout", "9"], nowhere.path()).contains("--spark <URL>"));
}
