//! Writers that are killed at any moment, while other engines list the lake and read it: each read is a committed state.

use crate::spark::cluster::python_with_spark;
use crate::support::{Lake, fleet_of, program, readers, recordings_of, text};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Number of kills, unless `BPREC_KILLS` says otherwise.
const KILLS: usize = 40;

/// Sums by table, then by day and host.
type Sums = BTreeMap<String, BTreeMap<String, i64>>;

/// Tables that are read, each with the sum for a day and host, in SQL. Each host has one recording on a day.
const READ: [(&str, &str); 2] = [("recording", "COUNT(*)"), ("run_stats", "SUM(run_cnt)")];

/// Prints, until the file `stop` exists, the name and the sums of a generation, and then the sums of `current`. Writers change `current` meanwhile:
/// if a listed file is missing, DuckDB fails and no sums are printed.
const DUCKDB: &str = r#"
import json, os, sys
import duckdb
lake, stop = sys.argv[1:3]
tables = json.loads(sys.argv[3])
def read(root):
    found = {}
    for table, value in tables:
        rows = duckdb.sql(f"SELECT CAST(date AS VARCHAR) || ' ' || host_id, CAST({value} AS BIGINT) FROM read_parquet('{root}/{table}/*/*.parquet', hive_partitioning = true, hive_types_autocast = false) GROUP BY 1")
        found[table] = dict(rows.fetchall())
    return found
current = f"{lake}/v2/current"
while not os.path.exists(stop):
    generation = os.path.realpath(current)
    print(json.dumps([generation, read(generation)]))
    try:
        print(json.dumps([current, read(current)]))
    except duckdb.IOException:
        pass
"#;

/// Prints the sums of generations by Spark, in one process, until the file `stop` exists, and at least once.
const SPARK: &str = r#"
import json, os, sys
from pyspark.sql import SparkSession
lake, stop = sys.argv[1:3]
tables = json.loads(sys.argv[3])
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).config("spark.ui.showConsoleProgress", False).getOrCreate()
spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", False)
def read(root):
    found = {}
    for table, value in tables:
        spark.read.parquet(f"{root}/{table}").createOrReplaceTempView(table)
        found[table] = dict(spark.sql(f"SELECT date || ' ' || host_id, CAST({value} AS BIGINT) FROM {table} GROUP BY 1").collect())
    return found
while True:
    generation = os.path.realpath(f"{lake}/v2/current")
    print(json.dumps([generation, read(generation)]), flush=True)
    if os.path.exists(stop):
        break
"#;

/// Sums of a generation, by DataFusion's own listing of directories.
async fn sums(generation: &Path) -> datafusion::error::Result<Sums> {
    let context = SessionContext::new();
    let mut sums = Sums::new();
    for (table, value) in READ {
        let options = ParquetReadOptions::default().table_partition_cols(vec![("date".into(), DataType::Utf8)]);
        context.register_parquet(table, generation.join(table).to_str().unwrap(), options).await?;
        let sql =
            format!("SELECT date || ' ' || host_id AS host, CAST({value} AS BIGINT) AS sum FROM {table} GROUP BY 1");
        let sums = sums.entry(table.to_owned()).or_default();
        for rows in context.sql(&sql).await?.collect().await? {
            let hosts = datafusion::arrow::compute::cast(&rows.columns()[0], &DataType::Utf8)?;
            let hosts = hosts.as_string::<i32>().iter().flatten().map(str::to_owned);
            sums.extend(hosts.zip(rows.columns()[1].as_primitive::<Int64Type>().values().iter().copied()));
        }
    }
    Ok(sums)
}

/// Engine in another process, which reads the lake until the file `stop` exists.
struct Reader {
    name: &'static str,
    process: Child,
    answers: PathBuf,
}

impl Reader {
    fn start(name: &'static str, mut python: Command, script: &str, lake: &Lake, place: &Path) -> Reader {
        let answers = place.join(name);
        python.args(["-c", script]).arg(lake.path()).arg(place.join("stop")).arg(serde_json::to_string(&READ).unwrap());
        let process = python.stdout(File::create(&answers).unwrap()).spawn().unwrap();
        Reader { name, process, answers }
    }

    /// Waits for the end, and returns the reads.
    fn reads(mut self) -> Vec<(PathBuf, Sums)> {
        let ended = self.process.wait().unwrap();
        assert!(ended.success(), "{}: {ended}", self.name);
        let answers = std::fs::read_to_string(&self.answers).unwrap();
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{}: {line}", self.name));
        answers.lines().map(read).collect()
    }
}

/// Starts the engines that are installed. Also returns a setup step for each engine that is not installed.
fn start_readers(lake: &Lake, place: &Path) -> (Vec<Reader>, Vec<&'static str>) {
    let duckdb = readers().map(|packages| {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", packages);
        python
    });
    let (mut started, mut missing) = (Vec::new(), Vec::new());
    for (name, python, script, setup) in [
        ("duckdb", duckdb, DUCKDB, "setup/fleet-readers installs DuckDB"),
        ("spark", python_with_spark(), SPARK, "setup/fleet-spark installs Spark"),
    ] {
        match python {
            Some(python) => started.push(Reader::start(name, python, script, lake, place)),
            None => missing.push(setup),
        }
    }
    (started, missing)
}

/// Count of the directories of states of days and of generations.
fn states(lake: &Lake) -> usize {
    let count = |name: &str| std::fs::read_dir(lake.path().join("v2").join(name)).unwrap().count();
    count("days") + count("generations")
}

/// Runs a command, and kills it `delay` after it has created `more` states. Returns true if it was killed.
fn is_killed(mut command: Command, lake: &Lake, more: usize, delay: Duration) -> bool {
    let before = states(lake);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        if states(lake) >= before + more {
            std::thread::sleep(delay);
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    assert!(ended.success() || ended.signal() == Some(9), "{command:?}: {ended}");
    !ended.success()
}

/// Sums of each generation that was read.
type Reads = BTreeMap<PathBuf, Sums>;

/// Adds a read. All reads of a generation must have the same sums, at any time and in any engine.
fn add(reads: &mut Reads, generation: PathBuf, sums: Sums) {
    let first = reads.entry(generation.clone()).or_insert_with(|| sums.clone());
    assert_eq!(*first, sums, "{}", generation.display());
}

/// Distinct states that were read, each as its list of days and hosts.
fn different(reads: &Reads) -> BTreeSet<Vec<&String>> {
    reads.values().map(|sums| sums["recording"].keys().collect()).collect()
}

#[test]
fn every_read_is_a_committed_state_while_writers_are_killed() {
    let place = tempfile::tempdir().unwrap();
    let recordings = recordings_of(&fleet_of(6, 3, 3), place.path());
    let whole = Lake::with(&recordings, &["--batch", "1"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let expected = runtime.block_on(sums(&whole.generation())).unwrap();
    assert!(expected.values().all(|sums| sums.len() == recordings.len()), "{expected:?}");
    let must_be_right = |read: &Sums| {
        for (table, sums) in read {
            sums.iter().for_each(|(host, sum)| assert_eq!(Some(sum), expected[table].get(host), "{table} {host}"));
        }
    };

    let lake = Lake::with(&recordings[..3], &["--batch", "1"]);
    let (engines, missing) = start_readers(&lake, place.path());
    for setup in missing {
        println!("SKIP every_read_is_a_committed_state_while_writers_are_killed: {setup}");
    }
    let (is_done, reads) = (AtomicBool::new(false), Mutex::new(Reads::new()));
    let read_until_done = || {
        while !is_done.load(Ordering::Relaxed) {
            let generation = lake.generation();
            let sums = runtime.block_on(sums(&generation)).unwrap();
            add(&mut reads.lock().unwrap(), generation, sums);
        }
    };
    let wanted = std::env::var("BPREC_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let write = |reader: &ScopedJoinHandle<'_, ()>| {
        let mut kills = BTreeMap::from(["import", "compact", "expire", "erase"].map(|verb| (verb, 0)));
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        // The first of three days expires, or a host is erased, and the next import has their recordings again.
        let today = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
        let keep = format!("{}d", today - 20_515 + 1);
        for round in 0.. {
            let verb = ["import", "compact", "import", "expire", "import", "erase"][round % 6];
            let mut command = program();
            match verb {
                "erase" => {
                    let hosts = lake.sql("SELECT DISTINCT host_id FROM recording ORDER BY host_id");
                    let host = hosts[random(hosts.len() as u64) as usize]["host_id"].as_str().unwrap();
                    command.args(["erase", "--host", host, "--lake"]).arg(lake.path())
                }
                "import" => command.args(["import", "--batch", "1", "--out"]).arg(lake.path()).args(&recordings),
                "compact" => command.args(["compact", "--lake"]).arg(lake.path()),
                _ => command.args(["expire", "--keep", &keep, "--lake"]).arg(lake.path()),
            };
            let more = if verb == "import" { random(8) } else { random(2) };
            let delay = Duration::from_micros(random(5000));
            *kills.get_mut(verb).unwrap() += usize::from(is_killed(command, &lake, more as usize, delay));
            let verified = lake.verify();
            assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
            // On a busy machine the reader reads less often, so the writers continue until it has read several states.
            let states = different(&reads.lock().unwrap()).len();
            if kills.values().sum::<usize>() >= wanted && kills.values().all(|kills| *kills >= 5) && states >= 5 {
                break;
            }
            assert!(!reader.is_finished() && round < 4000, "too few kills or states: {kills:?}, {states} states");
        }
        kills
    };
    let kills = std::thread::scope(|scope| {
        let reader = scope.spawn(read_until_done);
        let kills = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| write(&reader)));
        is_done.store(true, Ordering::Relaxed);
        File::create(place.path().join("stop")).unwrap();
        reader.join().unwrap();
        kills.unwrap()
    });
    let mut reads = reads.into_inner().unwrap();
    let mut counts = BTreeMap::from([("generations of datafusion", reads.len())]);
    for engine in engines {
        let name = engine.name;
        for (root, read) in engine.reads() {
            must_be_right(&read);
            *counts.entry(name).or_default() += 1;
            if !root.ends_with("current") {
                add(&mut reads, root, read);
            }
        }
    }
    for read in reads.values() {
        must_be_right(read);
        // In one read, all tables are of the same state.
        assert!(read["recording"].keys().eq(read["run_stats"].keys()), "{read:?}");
    }
    println!("{kills:?}; {counts:?}; {} generations, {} states", reads.len(), different(&reads).len());

    assert!(lake.import(&recordings, &[]).status.success());
    assert_eq!(lake.contents(), whole.contents());
}
