//! The program under test, lakes for tests, and recordings of this repository.

use bprec_generate::{Fleet, generate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

/// Tables of a lake.
pub(crate) const TABLES: [&str; 8] =
    ["recording", "prog", "attachment", "run_stats", "event", "sample", "bill", "counter"];

/// 2026-03-01 00:00 UTC, `date -u -d 2026-03-01 +%s`.
pub(crate) const DAY_NS: u64 = 1_772_323_200_000_000_000;
const NS_PER_DAY: u64 = 86_400_000_000_000;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the program under test, which finds the server of [`server`] if it runs.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bprec-fleet"));
    if let Some(Some(server)) = SERVER.get() {
        command.envs(server.settings());
    }
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

/// S3-compatible server. It ends with this process, because its standard input is closed then.
pub(crate) struct Server {
    /// The process and its output.
    process: Mutex<(Child, BufReader<ChildStdout>)>,
    endpoint: String,
    access_key: String,
    secret: String,
}

static SERVER: OnceLock<Option<Server>> = OnceLock::new();

/// Returns the server, which starts at the first call; `None` if it is not installed.
pub(crate) fn server() -> Option<&'static Server> {
    SERVER.get_or_init(|| Some(Server::start(&readers()?))).as_ref()
}

impl Server {
    fn start(packages: &Path) -> Server {
        let script = repository().join("fleet/tests/s3_server.py");
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", packages).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let [endpoint, access_key, secret] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("the server did not start: {line:?}")
        };
        let (endpoint, access_key, secret) = (endpoint.to_owned(), access_key.to_owned(), secret.to_owned());
        Server { process: Mutex::new((child, output)), endpoint, access_key, secret }
    }

    /// Variables for the program.
    pub(crate) fn settings(&self) -> [(&'static str, &str); 5] {
        [
            ("AWS_ENDPOINT", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", &self.access_key),
            ("AWS_SECRET_ACCESS_KEY", &self.secret),
        ]
    }

    /// Sends a command of `s3_server.py`, and returns the answer.
    pub(crate) fn tell(&self, command: &str) -> Value {
        let mut process = self.process.lock().unwrap();
        writeln!(process.0.stdin.as_ref().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        process.1.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the keys of the objects below a prefix, without the prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let keys: Vec<String> = serde_json::from_value(self.tell(&format!("keys {prefix}/"))).unwrap();
        keys.iter().map(|key| key[prefix.len() + 1..].to_owned()).collect()
    }
}

/// Returns the directory of Python packages with DuckDB, pandas and an S3-compatible server; `None` if they are not installed. In CI, this is a failure.
pub(crate) fn readers() -> Option<PathBuf> {
    let packages = repository().join("fleet/target/readers/packages");
    if packages.is_dir() {
        return Some(packages);
    }
    assert!(std::env::var_os("CI").is_none(), "setup/fleet-readers was not run");
    None
}

/// Returns the files in a directory and below it that meet a condition, sorted.
fn files_below(directory: &Path, is_one: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path, is_one));
        } else if is_one(&path) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Recordings of bprec and perf: several kernels, two architectures, some of them cut off.
pub(crate) fn recordings() -> Vec<PathBuf> {
    let is_one = |path: &Path| path.extension().is_some_and(|extension| extension == "data");
    files_below(&repository().join("fixtures/recordings"), &is_one)
}

/// Complete recordings of bprec, which `import` accepts without options. Recordings of perf and cut-off recordings are left out.
pub(crate) fn whole_recordings() -> Vec<PathBuf> {
    let mut files = recordings();
    files.retain(|path| {
        let text = path.to_string_lossy();
        !text.contains("perf-6.12") && !text.contains("cut-off")
    });
    files
}

/// Returns the complete recording with `name` in its path.
pub(crate) fn recording(name: &str) -> PathBuf {
    whole_recordings().into_iter().find(|path| path.to_string_lossy().contains(name)).unwrap()
}

/// Recordings of other tools, of several architectures.
pub(crate) fn corpus() -> Vec<PathBuf> {
    files_below(&repository().join("fixtures/corpus"), &|path| {
        path.extension().is_none_or(|it| it != "tsv" && it != "md")
    })
}

/// Recordings of a big-endian machine, by perf; empty if they are not installed.
pub(crate) fn big_endian_recordings() -> Vec<PathBuf> {
    let directory = repository().join("../shared/recordings/s390x-6.12");
    if !directory.is_dir() {
        return Vec::new();
    }
    files_below(&directory, &|path| path.extension().is_some_and(|extension| extension == "data"))
}

/// A generated fleet without canaries, kernel upgrades or regressions.
pub(crate) fn fleet_of(hosts: u32, days: u32, programs: u32) -> Fleet {
    Fleet {
        hosts,
        days,
        programs,
        record_bytes: 1,
        seed: 1,
        canary: None,
        upgraded_from: None,
        regressions: Vec::new(),
    }
}

/// Writes the recordings of a generated fleet.
pub(crate) fn recordings_of(fleet: &Fleet, directory: &Path) -> Vec<PathBuf> {
    let recordings = (0..fleet.hosts).flat_map(|host| (0..fleet.days).map(move |day| (host, day)));
    let written = recordings.map(|(host, day)| {
        let path = directory.join(format!("{host}-{day}.data"));
        generate(&fleet.recording(host, day), BufWriter::new(File::create(&path).unwrap())).unwrap();
        path
    });
    written.collect()
}

/// Writes a copy of a recording that began at another time (ns since 1970).
pub(crate) fn copy_with_start(from: &Path, start_unix_ns: u64, to: &Path) {
    let input = bprec_report::Input::open(from).unwrap();
    let report = bprec_report::by_prog(&input, &bprec_report::Options::default()).unwrap();
    let was = report.recording.start_unix_ns.unwrap().to_le_bytes();
    let mut bytes = std::fs::read(from).unwrap();
    let at: Vec<usize> = (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == was).collect();
    assert_eq!(at.len(), 1, "{}", from.display());
    bytes[at[0]..at[0] + 8].copy_from_slice(&start_unix_ns.to_le_bytes());
    std::fs::write(to, bytes).unwrap();
}

/// Lake in a temporary directory, removed when dropped, or in a bucket.
pub(crate) struct Lake {
    directory: tempfile::TempDir,
    /// Prefix of the keys in the bucket.
    prefix: Option<String>,
}

impl Lake {
    pub(crate) fn new() -> Lake {
        Lake { directory: tempfile::tempdir().unwrap(), prefix: None }
    }

    /// A lake in the bucket of [`server`].
    pub(crate) fn in_bucket() -> Lake {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("{}/lake", COUNT.fetch_add(1, Ordering::Relaxed));
        Lake { prefix: Some(prefix), ..Lake::new() }
    }

    /// Prefix of the keys of a lake in the bucket.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap()
    }

    /// Directory of the lake, or its URL.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.prefix {
            Some(prefix) => PathBuf::from(format!("s3://lakes/{prefix}")),
            None => self.directory.path().join("lake"),
        }
    }

    /// Runs a command on the lake, given by the arguments before its name.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        program().args(args).arg(self.path()).output().unwrap()
    }

    pub(crate) fn import(&self, files: &[PathBuf], options: &[&str]) -> Output {
        program().args(["import", "--out"]).arg(self.path()).args(options).args(files).output().unwrap()
    }

    /// Returns a lake with these recordings, which must all be imported.
    pub(crate) fn with(files: &[PathBuf], options: &[&str]) -> Lake {
        let lake = Lake::new();
        let output = lake.import(files, options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        lake
    }

    /// Adds a recording that began at this time (ns since 1970).
    pub(crate) fn import_with_start(&self, from: &Path, start_unix_ns: u64, options: &[&str]) -> Output {
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("copy.data");
        copy_with_start(from, start_unix_ns, &to);
        self.import(&[to], options)
    }

    /// A lake of four hosts with one of the recordings on each day, in their order, from 2026-03-01 on. Each host has a batch of its own on each day.
    pub(crate) fn of_four_hosts(recordings: &[&Path]) -> Lake {
        let place = tempfile::tempdir().unwrap();
        let lake = Lake::new();
        for host in 0..4_u64 {
            let mut files = Vec::new();
            for (day, from) in recordings.iter().enumerate() {
                let to = place.path().join(format!("{host}-{day}.data"));
                copy_with_start(from, DAY_NS + day as u64 * NS_PER_DAY + host * 1000, &to);
                files.push(to);
            }
            let output = lake.import(&files, &["--host", &format!("host{host}")]);
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
        lake
    }

    pub(crate) fn query(&self, args: &[&str]) -> Output {
        program().arg("query").args(args).arg("--lake").arg(self.path()).output().unwrap()
    }

    /// Returns the rows of an SQL query.
    pub(crate) fn sql(&self, sql: &str) -> Vec<Value> {
        let file = self.directory.path().join("query.sql");
        std::fs::write(&file, sql).unwrap();
        rows(&self.query(&["--format", "json", "--sql", file.to_str().unwrap()]))
    }

    pub(crate) fn verify(&self) -> Output {
        program().arg("verify").arg("--lake").arg(self.path()).output().unwrap()
    }

    /// All rows of all tables, without the time of the import. The table `prog` has a row of a program in each of its batches; the result has equal
    /// rows only once.
    pub(crate) fn contents(&self) -> BTreeMap<&'static str, Vec<String>> {
        let rows = |table: &&'static str| {
            let distinct = if *table == "prog" { "DISTINCT" } else { "" };
            let text = |mut row: Value| {
                row.as_object_mut().unwrap().remove("ingested_at");
                row.to_string()
            };
            let rows = self.sql(&format!("SELECT {distinct} * FROM {table}"));
            let mut rows: Vec<String> = rows.into_iter().map(text).collect();
            rows.sort();
            (*table, rows)
        };
        TABLES.iter().map(rows).collect()
    }

    /// Returns the directory of the newest generation, which readers see.
    pub(crate) fn generation(&self) -> PathBuf {
        self.path().join("v2/current").canonicalize().unwrap()
    }

    /// Returns the files of a table in the newest generation, sorted.
    pub(crate) fn files(&self, table: &str) -> Vec<PathBuf> {
        let is_one = |path: &Path| path.extension().is_some_and(|extension| extension == "parquet");
        files_below(&self.generation().join(table), &is_one)
    }
}

/// Returns the rows of a JSON answer; empty if nothing matched.
pub(crate) fn rows(output: &Output) -> Vec<Value> {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["rows"].as_array().unwrap().clone()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
