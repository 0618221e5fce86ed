//! Cost of a lake of many recordings, and the truth of its answers, on fleets that are made up:
//! `cargo bench --manifest-path fleet/Cargo.toml --bench fleet -- [hosts=5000] [programs=100] [fleets=100]`.
//!
//! Each host is recorded on two days. Programs of the second day are slower by 5, 20 and 100 % where the generator was told to; in the small
//! fleets behind, none is.
#![allow(clippy::print_stdout, reason = "a tool for the one who runs it")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bprec_generate::{Fleet, Regression, generate};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Cost of a command, and its output.
struct Took {
    wall_s: f64,
    peak_mib: f64,
    stdout: String,
}

/// Sums over a lake, by arithmetic.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    runs: u64,
    time_ns: u64,
}

fn main() -> Result<()> {
    let (mut hosts, mut programs, mut fleets) = (5000, 100, 100);
    for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        match argument.split_once('=') {
            Some(("hosts", number)) => hosts = number.parse()?,
            Some(("programs", number)) => programs = number.parse()?,
            Some(("fleets", number)) => fleets = number.parse()?,
            _ => return Err(format!("{argument}: expected hosts=5000, programs=100 or fleets=100").into()),
        }
    }
    one_large(hosts, programs)?;
    false_alarms(fleets)
}

/// Import, questions, sums and verdicts of a large fleet.
fn one_large(hosts: u32, programs: u32) -> Result<()> {
    let planted = |program, kernel, percent| Regression { program, kernel, percent };
    let regressions = vec![
        planted(3, 0, 5),
        planted(7, 1, 5),
        planted(11, 0, 20),
        planted(12, 1, 20),
        planted(19, 0, 100),
        planted(19, 1, 100),
    ];
    let fleet = Fleet { hosts, programs, record_bytes: 20_000, seed: 1, regressions };
    let place = tempfile::tempdir()?;
    let (files, expected) = write(&fleet, place.path())?;
    let bytes: u64 = files.iter().map(|file| Ok(file.metadata()?.len())).sum::<Result<u64>>()?;
    let lake = place.path().join("lake");
    let import = measured(Command::new(program()).args(["import", "--out"]).arg(&lake).arg("-"), Some(&files))?;
    let count = files.len() as f64;
    println!("{} recordings of {programs} programs, {:.1} KB each", files.len(), bytes as f64 / count / 1e3);
    println!("import: {:.0} recordings/s ({:.1} s), {:.0} MiB", count / import.wall_s, import.wall_s, import.peak_mib);
    println!("lake: {:.1} KB a recording", bytes_below(&lake)? as f64 / count / 1e3);

    for question in ["top", "versions", "hosts", "functions", "counters", "regressed"] {
        let asked = ask(&lake, &[question, "--format", "json"])?;
        println!("{question}: {:.2} s, {:.0} MiB", asked.wall_s, asked.peak_mib);
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

    let mut verdicts = verdicts(&lake)?;
    for planted in &fleet.regressions {
        let key = (Fleet::program_name(planted.program), Fleet::kernel_release(planted.kernel).to_owned());
        let (verdict, ratio) = verdicts.remove(&key).unwrap_or_default();
        println!("planted {} % on {}: {verdict}, ratio {ratio:.3}", planted.percent, key.1);
    }
    let wrong = verdicts.values().filter(|(verdict, _)| is_alarm(verdict)).count();
    println!("others that are called slower or faster: {wrong} of {}", verdicts.len());
    Ok(())
}

/// Alarms in fleets in which nothing got slower.
fn false_alarms(fleets: u64) -> Result<()> {
    let (mut alarms, mut with_alarms, mut compared) = (0, 0, 0);
    for seed in 0..fleets {
        let fleet = Fleet { hosts: 100, programs: 20, record_bytes: 1, seed: 1000 + seed, regressions: Vec::new() };
        let place = tempfile::tempdir()?;
        let (files, _) = write(&fleet, place.path())?;
        let lake = place.path().join("lake");
        measured(Command::new(program()).args(["import", "--out"]).arg(&lake).arg("-"), Some(&files))?;
        let verdicts = verdicts(&lake)?;
        let here = verdicts.values().filter(|(verdict, _)| is_alarm(verdict)).count();
        alarms += here;
        with_alarms += usize::from(here > 0);
        compared += verdicts.len();
    }
    println!("{fleets} fleets without a regression: {alarms} false alarms of {compared}, in {with_alarms} fleets");
    Ok(())
}

/// Writes all recordings of a fleet, and tells what the lake's sums have to be.
fn write(fleet: &Fleet, directory: &Path) -> Result<(Vec<PathBuf>, Sums)> {
    let (mut files, mut sums) = (Vec::new(), Sums::default());
    for day in 0..Fleet::DAYS {
        for host in 0..fleet.hosts {
            let shape = fleet.recording(host, day);
            let path = directory.join(format!("{host}-{day}.data"));
            let made = generate(&shape, BufWriter::new(File::create(&path)?))?;
            // A microsecond a run, for as long as the program had samples.
            let sampled_ns = (made.weight / made.samples.max(1)) * made.bpf_samples;
            sums.runs += sampled_ns / 1000 + shape.ran.iter().map(|ran| ran.count).sum::<u64>();
            sums.time_ns += sampled_ns + shape.ran.iter().map(|ran| ran.time_ns).sum::<u64>();
            files.push(path);
        }
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

type Verdicts = BTreeMap<(String, String), (String, f64)>;

/// Verdict and ratio by program and kernel.
fn verdicts(lake: &Path) -> Result<Verdicts> {
    let rows = rows(&ask(lake, &["regressed", "--format", "json", "--limit", "100000"])?)?;
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let verdict = |row: &Value| (text(row, "verdict"), row["ratio"].as_f64().unwrap_or(f64::NAN));
    Ok(rows.iter().map(|row| ((text(row, "name"), text(row, "kernel_release")), verdict(row))).collect())
}

fn is_alarm(verdict: &str) -> bool {
    ["slower", "faster"].contains(&verdict)
}

/// Runs a command, with names of files on its standard input, and looks at its peak of memory while it runs.
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

/// The peak of its resident memory up to now, MiB.
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
