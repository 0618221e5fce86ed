//! The program, lakes to try it on, and the recordings of this repository.

use bprec_generate::{Fleet, generate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Every table of a lake.
pub(crate) const TABLES: [&str; 6] = ["recording", "prog", "run_stats", "event", "sample", "counter"];

/// 2026-03-01 00:00 UTC, `date -u -d 2026-03-01 +%s`.
const DAY_NS: u64 = 1_772_323_200_000_000_000;
const NS_PER_DAY: u64 = 86_400_000_000_000;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bprec-fleet"))
}

pub(crate) fn run(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

/// Files of a directory and those below it, with this ending.
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

/// Recordings of bprec and perf: several kernels, two architectures, cut off ones among them.
pub(crate) fn recordings() -> Vec<PathBuf> {
    let is_one = |path: &Path| path.extension().is_some_and(|extension| extension == "data");
    files_below(&repository().join("fixtures/recordings"), &is_one)
}

/// The same of bprec alone that have an end: these need no options.
pub(crate) fn whole_recordings() -> Vec<PathBuf> {
    let mut files = recordings();
    files.retain(|path| {
        let text = path.to_string_lossy();
        !text.contains("perf-6.12") && !text.contains("cut-off")
    });
    files
}

/// The one of these whose path has this in it.
pub(crate) fn recording(name: &str) -> PathBuf {
    whole_recordings().into_iter().find(|path| path.to_string_lossy().contains(name)).unwrap()
}

/// Recordings that others made, of several architectures.
pub(crate) fn corpus() -> Vec<PathBuf> {
    files_below(&repository().join("fixtures/corpus"), &|path| {
        path.extension().is_none_or(|it| it != "tsv" && it != "md")
    })
}

/// Recordings of a big-endian machine, by perf; none where they are not there.
pub(crate) fn big_endian_recordings() -> Vec<PathBuf> {
    let directory = repository().join("../shared/recordings/s390x-6.12");
    if !directory.is_dir() {
        return Vec::new();
    }
    files_below(&directory, &|path| path.extension().is_some_and(|extension| extension == "data"))
}

/// Writes the recordings of a fleet that is made up.
pub(crate) fn recordings_of(fleet: &Fleet, directory: &Path) -> Vec<PathBuf> {
    let recordings = (0..fleet.hosts).flat_map(|host| (0..Fleet::DAYS).map(move |day| (host, day)));
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

/// A lake in a directory that goes when it is dropped.
pub(crate) struct Lake {
    directory: tempfile::TempDir,
}

impl Lake {
    pub(crate) fn new() -> Lake {
        Lake { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("lake")
    }

    pub(crate) fn import(&self, files: &[PathBuf], options: &[&str]) -> Output {
        program().args(["import", "--out"]).arg(self.path()).args(options).args(files).output().unwrap()
    }

    /// Imports what can be imported.
    pub(crate) fn with(files: &[PathBuf], options: &[&str]) -> Lake {
        let lake = Lake::new();
        let output = lake.import(files, options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        lake
    }

    /// Hosts that have a recording each day, these in turn, from 2026-03-01 on. Each host is a batch of each day.
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

    /// Rows of a query of one's own.
    pub(crate) fn sql(&self, sql: &str) -> Vec<Value> {
        let file = self.directory.path().join("query.sql");
        std::fs::write(&file, sql).unwrap();
        rows(&self.query(&["--format", "json", "--sql", file.to_str().unwrap()]))
    }

    pub(crate) fn verify(&self) -> Output {
        program().arg("verify").arg("--lake").arg(self.path()).output().unwrap()
    }

    /// Every row of every table, whatever file it is in. Programs are a row for each batch that has them: here they are one.
    pub(crate) fn contents(&self) -> BTreeMap<&'static str, Vec<String>> {
        let rows = |table: &&'static str| {
            let distinct = if *table == "prog" { "DISTINCT" } else { "" };
            let mut rows: Vec<String> =
                self.sql(&format!("SELECT {distinct} * FROM {table}")).iter().map(Value::to_string).collect();
            rows.sort();
            (*table, rows)
        };
        TABLES.iter().map(rows).collect()
    }

    /// Files of a table, in order.
    pub(crate) fn files(&self, table: &str) -> Vec<PathBuf> {
        let is_one = |path: &Path| path.extension().is_some_and(|extension| extension == "parquet");
        files_below(&self.path().join("v1").join(table), &is_one)
    }
}

/// Rows of a document, none where nothing matched.
pub(crate) fn rows(output: &Output) -> Vec<Value> {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["rows"].as_array().unwrap().clone()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
