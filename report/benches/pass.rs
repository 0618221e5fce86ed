//! CPU time of reports and scripts, compared in the same run with a walk over the record headers and with perf: `cargo bench -p bprec-report --bench
//! pass -- [size=135M] [runs=5] [perf=PATH]… [only=PART]`.
//!
//! Each measurement is a separate process of this program, so CPU time, elapsed time and memory are of this measurement alone. The runs of all
//! measurements are interleaved, so that other load on the machine affects all of them.
#![allow(clippy::print_stdout, reason = "benchmarks print their results")]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use bprec_generate::{Container, Shape, generate};
use bprec_report::{
    AnnotateOptions, DiffOptions, Document, Fields, Input, Options, Payer, ScriptOptions, Session, Source, TableStyle,
    diff, script,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Cost of one run.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    cpu_ms: f64,
    wall_ms: f64,
    /// Peak memory without the mapped file.
    beside_kib: f64,
}

/// A measurement: a command and the file that it reads.
struct Row {
    name: String,
    file: PathBuf,
    runs: Vec<Took>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [one, what, file] = arguments.as_slice()
        && one == "one"
    {
        return run_one(what, Path::new(file));
    }
    let mut settings = Settings { record_bytes: 135_000_000, runs: 5, perfs: Vec::new(), only: String::new() };
    for argument in &arguments {
        settings.apply(argument)?;
    }
    let directory = tempfile::tempdir()?;
    let mut rows = rows(&settings, directory.path())?;
    for _ in 0..settings.runs {
        for row in &mut rows {
            row.runs.push(measure(&row.name, &row.file)?);
        }
    }
    print(&rows);
    Ok(())
}

struct Settings {
    record_bytes: u64,
    runs: usize,
    perfs: Vec<String>,
    only: String,
}

impl Settings {
    fn apply(&mut self, argument: &str) -> Result<()> {
        match argument.split_once('=') {
            Some(("size", size)) => self.record_bytes = 1_000_000 * size.trim_end_matches('M').parse::<u64>()?,
            Some(("runs", runs)) => self.runs = runs.parse()?,
            Some(("perf", path)) => self.perfs.push(path.to_owned()),
            Some(("only", part)) => self.only = part.to_owned(),
            _ => return Err(format!("{argument}: expected size=135M, runs=5, perf=PATH or only=PART").into()),
        }
        Ok(())
    }
}

fn rows(settings: &Settings, directory: &Path) -> Result<Vec<Row>> {
    let plain = Shape { record_bytes: settings.record_bytes, ..Shape::default() };
    let write = |name: &str, shape: Shape| -> Result<PathBuf> {
        let path = directory.join(name);
        generate(&shape, BufWriter::new(File::create(&path)?))?;
        Ok(path)
    };
    let file = write("plain", plain.clone())?;
    let mut rows = Vec::new();
    let mut add = |name: &str, file: &Path| {
        if name == "walk" || name.contains(&settings.only) {
            rows.push(Row { name: name.to_owned(), file: file.to_owned(), runs: Vec::new() });
        }
    };
    let views = ["func", "comm", "cpu", "cgroup", "helper"].map(|by| format!("by {by}"));
    for name in ["walk", "by-prog, 1 thread", "by-prog", "by-prog --json"] {
        add(name, &file);
    }
    views.iter().for_each(|view| add(view, &file));
    for name in ["tree", "payers", "annotate", "diff of two"] {
        add(name, &file);
    }
    add("script -F ip,sym", &file);
    for perf in &settings.perfs {
        add(&format!("{perf} report --sort sym"), &file);
        add(&format!("{perf} script -F ip,sym"), &file);
    }
    if "zstd".contains(&settings.only) {
        add("by-prog, zstd", &write("zstd", Shape { container: Container::ZstdFile(3), ..plain.clone() })?);
    }
    if "pipe".contains(&settings.only) {
        add("by-prog, pipe", &write("pipe", Shape { container: Container::Pipe, ..plain.clone() })?);
    }
    if "churn".contains(&settings.only) {
        let churn = Shape { programs: 5000, churned_programs: 5000, ..plain.clone() };
        add("by-prog, churn of 10,000 programs", &write("churn", churn)?);
    }
    if "events".contains(&settings.only) {
        for (name, record_bytes) in [("thinly", 8 << 20), ("densely", settings.record_bytes)] {
            let events = Shape { record_bytes, programs: 1000, events: 700, ..plain.clone() };
            add(&format!("by-prog, 700 events of 1,000 programs, {name} sampled"), &write(name, events)?);
        }
    }
    if "large".contains(&settings.only) {
        add(
            "by-prog, large: 10 times the size",
            &write("large", Shape { record_bytes: 10 * settings.record_bytes, ..plain })?,
        );
    }
    Ok(rows)
}

/// Runs one measurement in a separate process.
fn measure(name: &str, file: &Path) -> Result<Took> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["one", name]).arg(file);
    let mut cat = None;
    if name.contains("pipe") {
        let mut writer = Command::new("cat").arg(file).stdout(Stdio::piped()).spawn()?;
        command.stdin(writer.stdout.take().ok_or("cat has no output")?);
        cat = Some(writer);
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if let Some(mut cat) = cat {
        cat.wait()?;
    }
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next().ok_or_else(|| format!("{name}: no measurement"))?.map_err(|e| e.to_string());
    Ok(Took { cpu_ms: next()?, wall_ms: next()?, beside_kib: next()? })
}

fn run_one(name: &str, file: &Path) -> Result<()> {
    let start = Instant::now();
    if let Some((perf, arguments)) = name.split_once(' ').filter(|(perf, _)| perf.ends_with("perf")) {
        let status = Command::new(perf)
            .args(arguments.split(' '))
            .args(if arguments.starts_with("report") { &["--stdio"][..] } else { &[] })
            .arg("-i")
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        println!("{} {} 0", cpu_ms(), start.elapsed().as_secs_f64() * 1e3);
        return if status.success() { Ok(()) } else { Err(format!("{perf}: {status}").into()) };
    }
    let mut out = BufWriter::new(File::options().write(true).open("/dev/null")?);
    let path = if name.contains("pipe") { Path::new("-") } else { file };
    let mapped = match name {
        "walk" => {
            let input = Input::open(path)?;
            std::hint::black_box(walk(input.bytes()));
            input.bytes().len()
        }
        _ if name.starts_with("script") => {
            let options = ScriptOptions { fields: Fields::parse("ip,sym")?, ..ScriptOptions::default() };
            script(&mut Source::open(path)?, &options, &mut out)?;
            file.metadata()?.len() as usize
        }
        "diff of two" => {
            let two = [Input::open(path)?, Input::open(path)?];
            diff(&two[..1], &two[1..], &DiffOptions::default())?.write_table(&mut out, 132)?;
            two.iter().map(|input| input.bytes().len()).sum()
        }
        "tree" | "payers" | "annotate" => {
            let (input, options) = (Input::open(path)?, Options::default());
            let session = Session::open(&input)?;
            match name {
                "tree" => session.trees(&options, 0.5)?.write_table(&mut out, 132)?,
                "payers" => session.payers(&options, &[Payer::Comm])?.write_table(&mut out, 132)?,
                _ => session.annotate(&AnnotateOptions::default())?.write_table(&mut out, 132)?,
            }
            input.bytes().len()
        }
        _ => {
            let input = Input::open(path)?;
            let by = name.strip_prefix("by ").map(str::parse).transpose()?;
            let threads = name.contains("1 thread").then_some(1);
            let options = Options { by, threads, ..Options::default() };
            let session = Session::open_for(&input, &options)?;
            let report = session.by_prog_lazily(&options, TableStyle::default())?;
            if name.contains("--json") {
                report.write_json(&mut out)?
            } else {
                report.write_table(&mut out, 132)?
            }
            if name.contains("pipe") { 0 } else { input.bytes().len() }
        }
    };
    let beside = peak_kib() - mapped as f64 / 1024.0;
    println!("{} {} {beside}", cpu_ms(), start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Walks over a file by the sizes of its records, which is the least that a reader must do.
fn walk(bytes: &[u8]) -> usize {
    let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes) as usize;
    let (mut at, end) = (word(40), word(40) + word(48));
    let mut samples = 0;
    while at < end
        && let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>())
    {
        let [kind, _, _, _, _, _, low, high] = *head;
        samples += usize::from(kind == 9);
        at += usize::from(u16::from_le_bytes([low, high])).max(8);
    }
    samples
}

/// CPU time of this process and of the children that it has waited for.
fn cpu_ms() -> f64 {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = own.tv_sec as f64 * 1e3 + own.tv_nsec as f64 / 1e6;
    // The kernel reports the time of children only in ticks.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    own + ticks * 10.0
}

/// Peak memory of this process, mapped files included.
fn peak_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

fn print(rows: &[Row]) {
    let median = |row: &Row, of: fn(&Took) -> f64| {
        let mut all: Vec<f64> = row.runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    let medians = |row: &Row| [median(row, |t| t.cpu_ms), median(row, |t| t.wall_ms), median(row, |t| t.beside_kib)];
    let [walk_cpu, walk_wall, _] = rows.first().map(&medians).unwrap_or_default();
    println!("| what | CPU, ms | times the walk | wall, ms | times the walk | MiB beside the mapping |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let [cpu, wall, beside] = medians(row);
        println!(
            "| {} | {cpu:.1} | {:.2} | {wall:.1} | {:.2} | {:.1} |",
            row.name,
            cpu / walk_cpu,
            wall / walk_wall,
            beside / 1024.0
        );
    }
}
