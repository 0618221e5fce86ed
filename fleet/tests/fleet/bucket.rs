//! Lakes in an object store: the same answers as from a directory, and commits that hold while writers race and are killed.

use crate::support::{
    Lake, Server, TABLES, fleet_of, program, readers, recordings_of, run, server, text, whole_recordings,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Number of kills, unless `BPREC_KILLS` says otherwise.
const KILLS: usize = 12;

/// Setup step for the tests.
const SETUP: &str = "setup/fleet-readers installs an S3-compatible server";

/// Writes a summary of each recording.
fn summaries(recordings: &[PathBuf], directory: &Path) -> Vec<PathBuf> {
    let summary = |(number, recording): (usize, &PathBuf)| {
        let path = directory.join(format!("{number}.summary"));
        let output = program().arg("summarize").arg(recording).arg("-o").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        path
    };
    recordings.iter().enumerate().map(summary).collect()
}

/// A lake in the bucket with these summaries, which must all be imported.
fn lake_of(summaries: &[PathBuf], options: &[&str]) -> Lake {
    let lake = Lake::in_bucket();
    let output = lake.import(summaries, options);
    assert!(output.status.success(), "{}", text(&output.stderr));
    lake
}

fn is_clean(verified: &Output) {
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
}

fn is_refused(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output.stdout));
    assert!(output.stdout.is_empty() || text(&output.stdout).starts_with("0 recordings imported"));
    assert!(text(&output.stderr).contains(words), "{words}: {}", text(&output.stderr));
}

#[test]
fn a_bucket_answers_like_a_directory() {
    if server().is_none() {
        println!("SKIP a_bucket_answers_like_a_directory: {SETUP}");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut recordings = whole_recordings();
    recordings.extend(recordings_of(&fleet_of(3, 4, 4), place.path()));
    let summaries = summaries(&recordings, place.path());
    let options = ["--batch", "7"];
    let lakes = [Lake::with(&summaries, &options), lake_of(&summaries, &options)];
    let [directory, bucket] = &lakes;
    let is_equal = || {
        assert_eq!(directory.contents(), bucket.contents());
        lakes.iter().for_each(|lake| is_clean(&lake.verify()));
    };
    is_equal();
    for question in ["top", "versions", "hosts", "functions", "owners", "counters", "regressed"] {
        for days in [&[][..], &["--since", "2026-03-02", "--until", "2026-03-03", "--where", "host_id <> '1'"]] {
            let args = [&["--limit", "1000", "--format", "csv", question], days].concat();
            let [from_directory, from_bucket] = [directory.query(&args), bucket.query(&args)];
            assert!(matches!(from_directory.status.code(), Some(0 | 1)), "{}", text(&from_directory.stderr));
            assert_eq!(from_directory, from_bucket, "{args:?}");
        }
    }
    for args in [&["compact", "--batch", "20", "--lake"][..], &["expire", "--keep", "100d", "--lake"]] {
        let [from_directory, from_bucket] = [0, 1].map(|lake| lakes[lake].run(args));
        assert_eq!(from_directory, from_bucket);
        is_equal();
    }
    let again = lakes[1].import(&summaries[..1], &[]);
    assert_eq!(text(&again.stdout), "0 recordings imported in 0 batches, 1 already in the lake, 0 refused\n");
}

/// Begin of a script: `rows_of` returns the day and the rows of a table for each batch of the newest generation.
const FILES: &str = r#"
import json, os, sys
from pyarrow import compute, fs, parquet
bucket = fs.S3FileSystem(access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"], region="us-east-1",
                         endpoint_override=os.environ["AWS_ENDPOINT"])
lake = sys.argv[1].removeprefix("s3://") + "/v2"
def read(key):
    with bucket.open_input_file(f"{lake}/{key}.json") as file:
        return json.load(file)
newest = max(file.base_name for file in bucket.get_file_info(fs.FileSelector(f"{lake}/generations"))).removesuffix(".json")
def rows_of(table):
    for state in read(f"generations/{newest}"):
        for batch in read(f"days/{state}"):
            rows = parquet.read_table(f"{lake}/days/{batch['state']}.{table}.{batch['id']}.parquet", filesystem=bucket)
            assert rows.num_rows == batch["commit"][table]["rows"]
            yield state.split("/")[0].removeprefix("date="), rows
found = {}
"#;

/// Sums of columns by day.
const SUMS: &str = r#"
for table, column in [("run_stats", "run_cnt"), ("run_stats", "run_time_ns"), ("event", "weight"), ("sample", "weight"), ("counter", "value")]:
    for date, rows in rows_of(table):
        if rows.num_rows > 0:
            sums = found.setdefault(f"{table}.{column}", {})
            sums[date] = sums.get(date, 0) + compute.sum(rows[column]).as_py()
print(json.dumps(found))
"#;

/// All rows as text, by table and host, sorted.
const ROWS: &str = r#"
for table in sys.argv[2:]:
    for date, rows in rows_of(table):
        for row in rows.to_pylist():
            found.setdefault(table, {}).setdefault(row["host_id"], []).append(f"{date} {row}")
print(json.dumps({table: {host: sorted(rows) for host, rows in hosts.items()} for table, hosts in found.items()}))
"#;

/// Returns the output of a script that begins with [`FILES`].
fn pyarrow<T: DeserializeOwned>(packages: &Path, server: &Server, lake: &Lake, script: &str) -> T {
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).envs(server.settings()).args(["-c", &(FILES.to_owned() + script)]);
    let output = python.arg(lake.path()).args(TABLES).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn pyarrow_adds_up_to_the_same() {
    let (Some(packages), Some(server)) = (readers(), server()) else {
        println!("SKIP pyarrow_adds_up_to_the_same: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let lake = lake_of(&summaries(&whole_recordings(), place.path()), &["--batch", "2"]);
    // Files of superseded generations stay for an hour. A reader of the newest generation does not count them.
    assert!(lake.run(&["compact", "--lake"]).status.success());
    let found: BTreeMap<String, BTreeMap<String, u64>> = pyarrow(&packages, server, &lake, SUMS);
    assert_eq!(found.len(), 5);
    for (column, sums) in found {
        let (table, name) = column.split_once('.').unwrap();
        let rows =
            lake.sql(&format!("SELECT date, SUM(CAST({name} AS DECIMAL(20,0))) AS sum FROM {table} GROUP BY date"));
        let sum = |row: &Value| (row["date"].as_str().unwrap().to_owned(), row["sum"].as_u64().unwrap());
        assert_eq!(rows.iter().map(sum).collect::<BTreeMap<_, _>>(), sums, "{column}");
    }
}

/// The rows before and after, as pyarrow reads them: those of the erased host are gone, and all others are the same.
#[test]
fn a_host_is_erased_from_a_bucket() {
    let (Some(packages), Some(server)) = (readers(), server()) else {
        println!("SKIP a_host_is_erased_from_a_bucket: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let mut recordings = whole_recordings();
    recordings.extend(recordings_of(&fleet_of(3, 3, 3), place.path()));
    let summaries = summaries(&recordings, place.path());
    // Some batches have only rows of an erased host, and some also have rows of other hosts.
    let lake = lake_of(&summaries, &["--batch", "4"]);
    let rows = || -> BTreeMap<String, BTreeMap<String, Vec<String>>> { pyarrow(&packages, server, &lake, ROWS) };
    let mut expected = rows();
    let of_fleet = lake.sql("SELECT MIN(host_id) AS host FROM recording WHERE date = '2026-03-02'");
    let hosts = ["vm", of_fleet[0]["host"].as_str().unwrap()];
    assert!(expected["run_stats"].len() > 4);
    for host in hosts {
        let erase = || lake.run(&["erase", "--host", host, "--lake"]);
        let output = erase();
        assert!(text(&output.stdout).ends_with(&format!(" batches rewritten without the host {host}\n")), "{output:?}");
        let erased = expected.values_mut().filter_map(|hosts| hosts.remove(host)).count();
        assert!(erased >= 3, "{host}: {erased} tables");
        assert_eq!(rows(), expected);
        is_clean(&lake.verify());
        is_refused(&erase(), &format!("has no host with the id {host}"));
    }
    // The recordings of the hosts can be imported again.
    assert!(lake.import(&summaries, &[]).status.success());
    assert_eq!(lake.contents(), Lake::with(&summaries, &[]).contents());
}

/// An import that waits for names.
struct WaitingImport {
    process: Child,
}

impl WaitingImport {
    /// Starts an import and waits until it has committed a summary.
    fn start(lake: &Lake, summary: &Path) -> WaitingImport {
        let mut command = program();
        command.args(["import", "--batch", "1", "-", "--out"]).arg(lake.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut import = WaitingImport { process: command.spawn().unwrap() };
        import.name(summary);
        while !lake.verify().status.success() {
            assert!(import.process.try_wait().unwrap().is_none());
        }
        import
    }

    fn name(&mut self, summary: &Path) {
        writeln!(self.process.stdin.as_ref().unwrap(), "{}", summary.display()).unwrap();
    }

    fn end(mut self) -> Output {
        drop(self.process.stdin.take());
        self.process.wait_with_output().unwrap()
    }
}

#[test]
fn a_writer_that_is_not_the_first_changes_nothing() {
    let Some(server) = server() else {
        println!("SKIP a_writer_that_is_not_the_first_changes_nothing: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let summaries = summaries(&recordings_of(&fleet_of(2, 3, 3), place.path()), place.path());
    // The second time, the generation that the waiting writer creates was superseded and removed before.
    for is_late in [false, true] {
        let lake = Lake::in_bucket();
        let mut slow = WaitingImport::start(&lake, &summaries[0]);
        assert!(lake.import(&summaries[1..2], &[]).status.success());
        if is_late {
            assert!(lake.import(&summaries[2..3], &[]).status.success());
            server.tell(&format!("age {}/", lake.prefix()));
            assert_eq!(text(&lake.run(&["compact", "--lake"]).stdout), "3 batches merged into 3\n");
            let generations = server.keys(&format!("{}/v2/generations", lake.prefix()));
            assert_eq!(generations, ["00000000000000000003.json"]);
        }
        let before = lake.contents();
        slow.name(&summaries[3]);
        is_refused(&slow.end(), "nothing was committed, because another writer committed generation 2 before");
        assert_eq!(lake.contents(), before);
        is_clean(&lake.verify());
        let output = lake.import(&summaries, &["--batch", "1"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(lake.contents(), Lake::with(&summaries, &[]).contents());
    }
}

/// Runs a command, and kills it after a time. Returns true if it was killed.
fn is_killed(mut command: Command, after: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    let end = Instant::now() + after;
    while Instant::now() < end && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(500));
    }
    child.kill().unwrap();
    let ended = child.wait().unwrap();
    assert!(ended.success() || ended.signal() == Some(9), "{command:?}: {ended}");
    !ended.success()
}

/// Sums of a table by day and host, each of which has one recording.
fn sums(lake: &Lake, table: &str, value: &str) -> BTreeMap<String, u64> {
    let sql = format!("SELECT date || ' ' || host_id AS host, {value} AS sum FROM {table} GROUP BY date, host_id");
    let rows = lake.sql(&sql);
    rows.iter().map(|row| (row["host"].as_str().unwrap().to_owned(), row["sum"].as_u64().unwrap())).collect()
}

#[test]
fn writers_that_are_killed_leave_a_committed_state() {
    if server().is_none() {
        println!("SKIP writers_that_are_killed_leave_a_committed_state: {SETUP}");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let summaries = summaries(&recordings_of(&fleet_of(4, 3, 3), place.path()), place.path());
    let whole = Lake::with(&summaries, &["--batch", "1"]);
    let expected = sums(&whole, "run_stats", "SUM(run_cnt)");
    assert_eq!(expected.len(), summaries.len());
    let lake = lake_of(&summaries[..3], &["--batch", "1"]);
    // The first of three days expires, or a host is erased, and the next import has their recordings again.
    let today = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let keep = format!("{}d", today - 20_515 + 1);
    let command = |verb: &str, round: usize| {
        let mut command = program();
        match verb {
            "erase" => {
                let hosts = lake.sql("SELECT DISTINCT host_id FROM recording ORDER BY host_id");
                let host = hosts[round % hosts.len()]["host_id"].as_str().unwrap();
                command.args(["erase", "--host", host, "--lake"]).arg(lake.path())
            }
            "import" => command.args(["import", "--batch", "1", "--out"]).arg(lake.path()).args(&summaries),
            "compact" => command.args(["compact", "--lake"]).arg(lake.path()),
            _ => command.args(["expire", "--keep", &keep, "--lake"]).arg(lake.path()),
        };
        command
    };
    let wanted = std::env::var("BPREC_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut kills = BTreeMap::from(["import", "compact", "expire", "erase"].map(|verb| (verb, 0)));
    let (mut states, mut seed) = (BTreeSet::new(), 1_u64);
    // Longest time of each command that ended by itself, and else of its kills.
    let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
    for round in 0.. {
        let verb = ["import", "compact", "import", "expire", "import", "erase"][round % 6];
        let time = times.entry(verb).or_insert(Duration::from_millis(400));
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = time.mul_f64((seed >> 40) as f64 / (1_u64 << 24) as f64);
        let began = Instant::now();
        if is_killed(command(verb, round), after) {
            *kills.get_mut(verb).unwrap() += 1;
            // The next kill of this command can be later, so that some commands come to their end.
            *time = time.mul_f64(1.2);
        } else {
            *time = began.elapsed();
        }
        is_clean(&lake.verify());
        let read = sums(&lake, "run_stats", "SUM(run_cnt)");
        read.iter().for_each(|(host, sum)| assert_eq!(expected.get(host), Some(sum), "{host}"));
        assert!(sums(&lake, "recording", "COUNT(*)").into_iter().eq(read.keys().map(|host| (host.clone(), 1))));
        states.insert(read.into_keys().collect::<Vec<_>>());
        if kills.values().sum::<usize>() >= wanted && kills.values().all(|kills| *kills > 0) && states.len() > 2 {
            break;
        }
        assert!(round < 40 * wanted, "too few kills or states: {kills:?}, {} states", states.len());
    }
    println!("{kills:?}; {} states", states.len());
    assert!(lake.import(&summaries, &[]).status.success());
    assert_eq!(lake.contents(), whole.contents());
}

#[test]
fn unused_objects_are_removed_after_an_hour() {
    let Some(server) = server() else {
        println!("SKIP unused_objects_are_removed_after_an_hour: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let summaries = summaries(&recordings_of(&fleet_of(3, 2, 3), place.path()), place.path());
    let lake = lake_of(&summaries, &["--batch", "1"]);
    let keys = || server.keys(&format!("{}/v2", lake.prefix()));
    // The marker of the lake. For each of six batches: a generation, a state of a day, and a file of each table.
    let before = keys();
    assert_eq!(before.len(), 1 + 6 * (2 + TABLES.len()), "{before:?}");
    assert_eq!(text(&lake.run(&["compact", "--lake"]).stdout), "6 batches merged into 2\n");
    let merged = keys();
    assert_eq!(merged.len(), before.len() + 2 * (2 + TABLES.len()));
    let contents = lake.contents();
    let compact = || assert_eq!(text(&lake.run(&["compact", "--lake"]).stdout), "2 batches merged into 2\n");
    compact();
    assert_eq!(keys(), merged);
    server.tell(&format!("age {}/", lake.prefix()));
    compact();
    // Both days are of the last generation: one state and one batch each.
    let kept = keys();
    assert_eq!(kept.len(), 1 + 1 + 2 * (1 + TABLES.len()), "{kept:?}");
    assert_eq!(lake.contents(), contents);
    is_clean(&lake.verify());
    // Expired days go an hour after the first generation without them.
    let expire = || lake.run(&["expire", "--keep", "1d", "--lake"]);
    assert!(text(&expire().stdout).starts_with("2 days removed, "));
    server.tell(&format!("age {}/", lake.prefix()));
    assert!(text(&expire().stdout).starts_with("0 days removed, "));
    assert_eq!(keys(), ["generations/00000000000000000009.json", "lake"]);
}

#[test]
fn changed_objects_are_found() {
    let Some(server) = server() else {
        println!("SKIP changed_objects_are_found: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let summaries = summaries(&whole_recordings()[..2], place.path());
    let sql = place.path().join("query.sql");
    for change in ["cut", "remove", "flip"] {
        for table in ["run_stats", "recording"] {
            std::fs::write(&sql, format!("SELECT * FROM {table}")).unwrap();
            let lake = lake_of(&summaries, &["--batch", "1"]);
            let keys = server.keys(lake.prefix());
            let key = keys.iter().find(|key| key.contains(&format!(".{table}."))).unwrap();
            server.tell(&format!("{change} {}/{key}", lake.prefix()));
            let url = format!("{}/{key}", lake.path().display());
            let verified = lake.verify();
            assert_eq!(verified.status.code(), Some(1), "{change} {table}");
            assert!(text(&verified.stderr).contains(&url), "{url}: {}", text(&verified.stderr));
            // The changed byte of `recording` is in a header of gzip, and has no effect.
            if (change, table) != ("flip", "recording") {
                is_refused(&lake.query(&["--sql", sql.to_str().unwrap()]), &url);
            }
        }
    }
    // Without the state of a day, its batches are unknown.
    let lake = lake_of(&summaries[..1], &[]);
    let keys = server.keys(lake.prefix());
    let state = keys.iter().find(|key| key.contains("/days/") && key.ends_with(".json")).unwrap();
    server.tell(&format!("remove {}/{state}", lake.prefix()));
    is_refused(&lake.query(&["top"]), state);
    is_refused(&lake.verify(), state);
}

/// A server that ignores `If-None-Match: *` would let one writer undo the commits of another.
#[test]
fn a_server_that_ignores_conditions_is_refused() {
    let Some(server) = server() else {
        println!("SKIP a_server_that_ignores_conditions_is_refused: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let summaries = summaries(&recordings_of(&fleet_of(2, 1, 3), place.path()), place.path());
    let (lake, new) = (lake_of(&summaries[..1], &[]), Lake::in_bucket());
    let (keys, contents) = (server.keys(lake.prefix()), lake.contents());
    [&lake, &new].iter().for_each(|lake| drop(server.tell(&format!("unconditional {}/", lake.prefix()))));
    for output in [
        lake.import(&summaries, &[]),
        lake.run(&["compact", "--lake"]),
        lake.run(&["expire", "--keep", "1d", "--lake"]),
        new.import(&summaries, &[]),
    ] {
        is_refused(&output, "v2: the object store ignores `If-None-Match: *`, so one writer could undo the commits");
    }
    assert_eq!((server.keys(lake.prefix()), lake.contents()), (keys, contents));
    is_clean(&lake.verify());
    is_refused(&new.query(&["top"]), "is not a lake");
}

#[test]
fn recordings_need_an_import_without_the_sandbox() {
    if server().is_none() {
        println!("SKIP recordings_need_an_import_without_the_sandbox: {SETUP}");
        return;
    }
    let (lake, recordings) = (Lake::in_bucket(), &whole_recordings()[..2]);
    is_refused(&lake.import(recordings, &[]), "`bprec-fleet summarize` makes a summary, or give --no-sandbox");
    let output = lake.import(recordings, &["--no-sandbox"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lake.contents(), Lake::with(recordings, &[]).contents());
}

#[test]
fn errors_of_an_object_store_are_clear() {
    let Some(server) = server() else {
        println!("SKIP errors_of_an_object_store_are_clear: {SETUP}");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let summary = &summaries(&whole_recordings()[..1], place.path())[0];
    let lake = lake_of(std::slice::from_ref(summary), &[]);
    let query = |lake: &Path| {
        let mut command = program();
        command.args(["query", "top", "--lake"]).arg(lake);
        command
    };
    let import = |lake: &str| program().args(["import", "--out", lake]).arg(summary).output().unwrap();
    is_refused(&query(Path::new("s3://missing/lake")).output().unwrap(), "The specified bucket does not exist");
    is_refused(&import("s3://missing/lake"), "The specified bucket does not exist");
    is_refused(&query(Path::new("s3://lakes/missing")).output().unwrap(), "s3://lakes/missing: is not a lake");
    is_refused(&query(Path::new("gs://lakes/lake")).output().unwrap(), "is neither a directory nor s3://BUCKET/PREFIX");
    is_refused(&lake.query(&["top", "--spark", "local[1]"]), "--spark: the lake must be in a directory");
    let unreachable = query(&lake.path()).env("AWS_ENDPOINT", "http://127.0.0.1:1").output().unwrap();
    is_refused(&unreachable, "Connection refused");
    for (name, value) in [
        ("AWS_ENDPOINT", "127.0.0.1:1"),
        ("AWS_ENDPOINT", "http://127.0.0.1:99999"),
        ("AWS_REGION", "a b"),
        ("AWS_ACCESS_KEY_ID", "a\nb"),
    ] {
        let output = query(&lake.path()).env(name, value).output().unwrap();
        is_refused(&output, &format!("{name} is not valid"));
    }
    is_refused(&query(Path::new("s3://a b/lake")).output().unwrap(), "s3://a b/lake: AWS_BUCKET is not valid");
    server.tell("sign on");
    let denied = query(&lake.path()).env("AWS_SECRET_ACCESS_KEY", "wrong").output().unwrap();
    let allowed = query(&lake.path()).output().unwrap();
    server.tell("sign off");
    is_refused(&denied, "The request signature we calculated does not match");
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    // A lake in the place where a lake of a newer version would be.
    let newer = format!("{}/beside/v3", lake.path().display());
    assert!(import(&newer).status.success());
    let beside = run(&["query", "top", "--lake", newer.trim_end_matches("/v3")]);
    is_refused(&beside, "the lake has version v3, and this bprec-fleet reads v2: a newer bprec-fleet wrote it");
}
