//! Cost of a lake of many recordings, and correctness of its sums, on a generated fleet:
//! `cargo bench --manifest-path fleet/Cargo.toml --bench fleet -- [hosts=500] [days=21] [programs=100] [history=0]`.
//!
//! With `history=N`, it measures other costs: imports of one day into an empty lake, and into a lake with N earlier days.
//!
//! Both also measure a lake in an S3-compatible server on this machine, if `setup/fleet-readers` has installed the server.
#![allow(clippy::print_stdout, reason = "the output of the benchmark")]

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bprec_generate::{Fleet, generate};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Cost of a command, and its output.
struct Took {
    wall_s: f64,
    peak_mib: f64,
    stdout: String,
}

/// Sums over a lake, found by a query or expected from the generated recordings.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    runs: u64,
    time_ns: u64,
}

fn main() -> Result<()> {
    let (mut hosts, mut days, mut programs, mut history) = (500, 21, 100, 0);
    for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        match argument.split_once('=') {
            Some(("hosts", number)) => hosts = number.parse()?,
            Some(("days", number)) => days = number.parse()?,
            Some(("programs", number)) => programs = number.parse()?,
            Some(("history", number)) => history = number.parse()?,
            _ => return Err(format!("{argument}: expected hosts=500, days=21, programs=100 or history=0").into()),
        }
    }
    let fleet = Fleet {
        hosts,
        days,
        programs,
        record_bytes: if history > 0 { 1 } else { 20_000 },
        seed: 1,
        canary: None,
        upgraded_from: None,
        regressions: Vec::new(),
    };
    if history > 0 {
        return import_rates(&fleet, history);
    }
    let place = tempfile::tempdir()?;
    let recordings = (0..days).flat_map(|day| (0..hosts).map(move |host| (host, day)));
    let (files, expected) = write(&fleet, recordings, place.path())?;
    let bytes: u64 = files.iter().map(|file| Ok(file.metadata()?.len())).sum::<Result<u64>>()?;
    let lake = place.path().join("lake");
    let import = measured(Command::new(program()).args(["import", "--out"]).arg(&lake).arg("-"), Some(&files))?;
    let count = files.len() as f64;
    println!("{} recordings of {programs} programs, {:.1} KB each", files.len(), bytes as f64 / count / 1e3);
    println!("import: {:.0} recordings/s ({:.1} s), {:.0} MiB", count / import.wall_s, import.wall_s, import.peak_mib);
    println!("lake: {:.1} KB a recording", bytes_below(&lake.join("v2/current"))? as f64 / count / 1e3);

    queries(&lake)?;
    if let Some(server) = Server::start()? {
        let import = server.import(&files)?;
        println!("import into a bucket: {:.0} recordings/s, {:.0} MiB", count / import.wall_s, import.peak_mib);
        server.queries()?;
    }
    let sql = place.path().join("sums.sql");
    std::fs::write(
        &sql,
        "SELECT CAST(SUM(CAST(run_cnt AS DECIMAL(20,0))) AS BIGINT) AS runs, \
         CAST(SUM(CAST(run_time_ns AS DECIMAL(20,0))) AS BIGINT) AS time_ns FROM run_stats",
    )?;
    let rows = rows(&ask(&lake, &["--sql", &sql.to_string_lossy(), "--format", "json"])?)?;
    let number = |name: &str| rows[0][name].as_u64().ok_or(format!("no {name}: {}", rows[0]));
    let found = Sums { runs: number("runs")?, time_ns: number("time_ns")? };
    println!(
        "sums: {}",
        if found == expected { "equal".to_owned() } else { format!("{found:?}, expected {expected:?}") }
    );

    Ok(())
}

/// Hosts of the earlier days.
const HISTORY_HOSTS: u32 = 20;
/// Imports into each lake.
const ROUNDS: usize = 3;

/// Measures imports of one day's recordings, and of one summary per recording, each without and with earlier days in the lake.
fn import_rates(fleet: &Fleet, history: u32) -> Result<()> {
    let place = tempfile::tempdir()?;
    let (recordings, _) = write(fleet, (0..fleet.hosts).map(|host| (host, history)), place.path())?;
    let earlier = (0..history).flat_map(|day| (0..HISTORY_HOSTS).map(move |host| (host, day)));
    let (earlier, _) = write(fleet, earlier, place.path())?;
    let mut summaries = Vec::new();
    let began = Instant::now();
    for recording in &recordings {
        let summary = recording.with_extension("summary");
        measured(Command::new(program()).arg("summarize").arg(recording).arg("-o").arg(&summary), None)?;
        summaries.push(summary);
    }
    println!("summarize: {:.1} ms a recording", began.elapsed().as_secs_f64() * 1e3 / recordings.len() as f64);
    for (name, files) in [("recordings", &recordings), ("summaries", &summaries)] {
        let bytes: u64 = files.iter().map(|file| Ok(file.metadata()?.len())).sum::<Result<u64>>()?;
        println!("{} {name}, {:.2} KB each", files.len(), bytes as f64 / files.len() as f64 / 1e3);
        // The two lakes alternate, so that a change of the machine's speed affects both.
        let (mut rates, mut peaks_mib) = ([Vec::new(), Vec::new()], [0.0_f64; 2]);
        for round in 0..ROUNDS {
            for (at, before) in [None, Some(&earlier)].into_iter().enumerate() {
                let lake = place.path().join(format!("{name}-{at}-{round}"));
                let import = |files: &[PathBuf]| {
                    measured(Command::new(program()).args(["import", "--out"]).arg(&lake).arg("-"), Some(files))
                };
                before.map(|files| import(files)).transpose()?;
                let Took { wall_s, peak_mib, .. } = import(files)?;
                rates[at].push(files.len() as f64 / wall_s);
                peaks_mib[at] = peaks_mib[at].max(peak_mib);
            }
        }
        for ((days, rates), peak_mib) in [0, history].into_iter().zip(&rates).zip(peaks_mib) {
            let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
            println!("import of {name} after {days} days: {}/s, {peak_mib:.0} MiB", rates.join(", "));
        }
    }
    queries(&place.path().join(format!("summaries-1-{}", ROUNDS - 1)))?;
    if let Some(server) = Server::start()? {
        server.import(&earlier)?;
        let import = server.import(&summaries)?;
        let rate = summaries.len() as f64 / import.wall_s;
        println!("import of summaries into a bucket after {history} days: {rate:.0}/s, {:.0} MiB", import.peak_mib);
        server.queries()?;
    }
    Ok(())
}

const QUESTIONS: [&str; 7] = ["top", "versions", "hosts", "functions", "owners", "counters", "regressed"];

fn queries(lake: &Path) -> Result<()> {
    for question in QUESTIONS {
        let asked = ask(lake, &[question, "--format", "json"])?;
        println!("{question}: {:.2} s, {:.0} MiB", asked.wall_s, asked.peak_mib);
    }
    Ok(())
}

/// S3-compatible server, which ends when its standard input is closed.
struct Server {
    process: Child,
    settings: Vec<(&'static str, String)>,
}

impl Server {
    /// Lake in the server's bucket.
    const LAKE: &str = "s3://lakes/bench";

    /// Starts the server; `None` if it is not installed.
    fn start() -> Result<Option<Server>> {
        let fleet = Path::new(env!("CARGO_MANIFEST_DIR"));
        let packages = fleet.join("target/readers/packages");
        if !packages.join("moto").is_dir() {
            println!("SKIP buckets: setup/fleet-readers installs an S3-compatible server");
            return Ok(None);
        }
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", packages).arg(fleet.join("tests/s3_server.py"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().ok_or("no output")?).read_line(&mut line)?;
        let names = ["AWS_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ALLOW_HTTP"];
        let values = line.split_whitespace().chain(["true"]).map(str::to_owned);
        Ok(Some(Server { process, settings: names.into_iter().zip(values).collect() }))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Imports files. Without the sandbox, these may be recordings.
    fn import(&self, files: &[PathBuf]) -> Result<Took> {
        measured(self.command().args(["import", "--no-sandbox", "--out", Server::LAKE, "-"]), Some(files))
    }

    fn queries(&self) -> Result<()> {
        for question in QUESTIONS {
            let mut command = self.command();
            let asked = measured(command.args(["query", question, "--format", "json", "--lake", Server::LAKE]), None)?;
            println!("{question} over a bucket: {:.2} s, {:.0} MiB", asked.wall_s, asked.peak_mib);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // A failure cannot be reported here.
        let _ = self.process.wait();
    }
}

/// Writes recordings of a fleet, given by host and day. Returns their names and the expected sums of the lake.
fn write(
    fleet: &Fleet,
    recordings: impl Iterator<Item = (u32, u32)>,
    directory: &Path,
) -> Result<(Vec<PathBuf>, Sums)> {
    let (mut files, mut sums) = (Vec::new(), Sums::default());
    for (host, day) in recordings {
        let shape = fleet.recording(host, day);
        let path = directory.join(format!("{host}-{day}.data"));
        let made = generate(&shape, BufWriter::new(File::create(&path)?))?;
        // The generator gives a program with samples one run per microsecond of its sampled time.
        let sampled_ns = (made.weight / made.samples.max(1)) * made.bpf_samples;
        sums.runs += sampled_ns / 1000 + shape.ran.iter().map(|ran| ran.count).sum::<u64>();
        sums.time_ns += sampled_ns + shape.ran.iter().map(|ran| ran.time_ns).sum::<u64>();
        files.push(path);
    }
    Ok((files, sums))
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_bprec-fleet")
}

fn ask(lake: &Path, arguments: &[&str]) -> Result<Took> {
    measured(Command::new(program()).arg("query").args(arguments).arg("--lake").arg(lake), None)
}

fn rows(answer: &Took) -> Result<Vec<Value>> {
    let document: Value = serde_json::from_str(&answer.stdout)?;
    Ok(document["rows"].as_array().ok_or("no rows")?.clone())
}

/// Runs a command with names of files on its standard input, and polls its peak of memory.
fn measured(command: &mut Command, files: Option<&[PathBuf]>) -> Result<Took> {
    let output = tempfile::NamedTempFile::new()?;
    let mut input = tempfile::tempfile()?;
    for file in files.unwrap_or_default() {
        std::io::Write::write_all(&mut input, format!("{}\n", file.display()).as_bytes())?;
    }
    std::io::Seek::rewind(&mut input)?;
    let began = Instant::now();
    let mut child = command.stdin(Stdio::from(input)).stdout(output.reopen()?).spawn()?;
    let mut peak_mib = 0.0;
    let status = loop {
        peak_mib = peak_of(&child).unwrap_or(peak_mib);
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let wall_s = began.elapsed().as_secs_f64();
    match status.code() {
        Some(0 | 1) => Ok(Took { wall_s, peak_mib, stdout: std::fs::read_to_string(output.path())? }),
        _ => Err(format!("{command:?}: {status}").into()),
    }
}

/// Peak of the resident memory of a process, MiB.
fn peak_of(child: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
}

fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        bytes += if path.is_dir() { bytes_below(&path)? } else { path.metadata()?.len() };
    }
    Ok(bytes)
}
