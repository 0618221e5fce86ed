//! Runs the fuzzers, and makes their seeds from the project's recordings and from parts of these recordings.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use bprec_format::bpf::btf::BpfBtfSection;
use bprec_format::feature::Feature;
use bprec_format::{Container, Endian, Events, File, Metadata, RecordType, bprec};
use bprec_generate::HOSTILE_SHAPES;

/// Limit on the bytes of a seed; a larger input is cut off. Fuzzers find more with many runs than with large inputs.
const SEED_MAX_BYTES: usize = 60_000;
/// Limit on the BTF blobs of one recording that become seeds, and on its states of each kind.
const PARTS_MAX: usize = 20;
/// Number of views and exports from which the first byte of an input chooses.
const VIEWS: u8 = 16;
/// Number of seeds of the fuzzer `shapes`, which makes its recordings from four numbers: kind, view and two sizes.
const SHAPE_SEEDS: u16 = 64;
/// Directory in the path of seeds of hostile shapes.
const HOSTILE: &str = "hostile";
/// Compiler flags that report the executed branches of an input to libFuzzer.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Writes the seeds into `fuzz/corpus/<target>/`; `cargo fuzz run` reads this directory and adds new inputs there.
pub(crate) fn seeds() -> Result<()> {
    let written = seeds_into(Path::new("fuzz/corpus"))?;
    println!("{written} seeds in fuzz/corpus");
    Ok(())
}

fn seeds_into(corpus: &Path) -> Result<usize> {
    let mut inputs = hostile();
    for folder in ["fixtures/recordings", "fixtures/corpus", "fixtures/regressions", "fixtures/bpf"] {
        for path in crate::tree::files_under(Path::new(folder))? {
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            inputs.push((path, bytes));
        }
    }
    let folder = corpus.join("shapes");
    fs::create_dir_all(&folder)?;
    for seed in 0..SHAPE_SEEDS {
        // Two sizes of some thousand; over the seeds, sometimes the first size is larger and sometimes the second.
        let numbers = [seed, seed, 0x9000 | seed << 8, 0xb000 ^ seed << 8];
        fs::write(folder.join(seed.to_string()), numbers.map(u16::to_le_bytes).concat())?;
    }
    let mut written = usize::from(SHAPE_SEEDS);
    for (path, bytes) in inputs {
        let name = path.display().to_string().replace(['/', '\\'], "_");
        for (number, (target, seed)) in seeds_of(&path, &bytes).into_iter().enumerate() {
            let folder = corpus.join(target);
            fs::create_dir_all(&folder)?;
            let cut = &seed[..seed.len().min(SEED_MAX_BYTES)];
            fs::write(folder.join(format!("{name}.{number}")), cut)?;
            written += 1;
        }
    }
    Ok(written)
}

/// Returns a recording of each hostile shape, as large as a seed may be, and its journal if the shape has one.
fn hostile() -> Vec<(PathBuf, Vec<u8>)> {
    let mut inputs = Vec::new();
    for shape in HOSTILE_SHAPES {
        let (n, m) = shape.fitted(shape.sizes, SEED_MAX_BYTES);
        let files = (shape.make)(n, m);
        let path = Path::new(HOSTILE).join(shape.name);
        inputs.extend(files.journal.map(|journal| (path.with_extension("journal"), journal)));
        inputs.push((path.with_extension("data"), files.recording));
    }
    inputs
}

/// Name of a fuzzer, and a seed for this fuzzer.
type Seed = (&'static str, Vec<u8>);

/// Makes the seeds from one file.
fn seeds_of(path: &Path, bytes: &[u8]) -> Vec<Seed> {
    let extension = path.extension().unwrap_or_default();
    if extension == "journal" {
        return vec![("journal", bytes.to_vec())];
    }
    if bytes.starts_with(b"\x7fELF") {
        // The fuzzer `elf` reads offsets from the first eight bytes, and looks up the functions at these offsets.
        return vec![("elf", [&[0, 64, 0, 128, 1, 0, 2, 0], bytes].concat())];
    }
    if Container::detect(bytes).is_err() {
        return Vec::new();
    }
    let mut seeds: Vec<Seed> =
        ["file", "recover", "in_place"].into_iter().map(|target| (target, bytes.to_vec())).collect();
    // The fuzzer `outputs` keeps the output in memory. A hostile recording repeats a long name in each line; `shapes` discards the output.
    if !path.starts_with(HOSTILE) {
        seeds.extend((0..VIEWS).map(|view| ("outputs", [&[view], bytes].concat())));
    }
    // The fuzzers convert parts to the other byte order themselves.
    match File::parse(bytes) {
        Ok(file) if file.endian() == Endian::Little => seeds.extend(parts_of(bytes, &file)),
        Ok(_) => {}
        // The fuzzer `stream` reads the byte order and the size of pieces from the first byte.
        Err(_) => seeds.push(("stream", [&[0], bytes.get(16..).unwrap_or_default()].concat())),
    }
    seeds
}

fn parts_of(bytes: &[u8], file: &File<'_>) -> Vec<Seed> {
    let data = file.data();
    let records = bytes.get(data.offset as usize..).unwrap_or_default();
    let records = &records[..records.len().min(data.size as usize)];
    let mut seeds = vec![("stream", [&[0], records].concat())];
    if let Some(attr) = attr_of(bytes) {
        seeds.push(("record", [attr, &records[..records.len().min(SEED_MAX_BYTES / 2)]].concat()));
    }
    seeds.extend(states(file).into_iter().map(|state| ("state", state)));
    for section in Metadata::of_file(file).sections() {
        match section.feature {
            Feature::BPF_PROG_INFO => seeds.push(("prog_info", section.bytes.to_vec())),
            Feature::BPF_BTF => {
                let blobs = BpfBtfSection::new(&section.bytes, section.offset, file.endian()).into_iter().flatten();
                seeds.extend(blobs.flatten().take(PARTS_MAX).map(|(_, blob)| ("btf", blob.to_vec())));
            }
            _ => {}
        }
    }
    seeds
}

/// Returns the bytes of the first attr in the file, without its ids section. The header contains the size of an attr with that section.
fn attr_of(bytes: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?) as usize);
    let (with_ids, at) = (number(16)?, number(24)?);
    bytes.get(at..at.checked_add(with_ids.checked_sub(16)?)?)
}

/// Returns the first [`PARTS_MAX`] states of each kind.
fn states(file: &File<'_>) -> Vec<Vec<u8>> {
    let Ok(events) = Events::new(file.attrs(), file.endian()) else { return Vec::new() };
    let raw = file.records().map_while(Result::ok).filter(|it| it.kind == RecordType::SAMPLE).filter_map(|record| {
        let index =
            events.index_of(&record).filter(|index| file.attrs().get(*index).is_some_and(bprec::carries_states))?;
        let sample = events.all().get(index)?.layout.sample(record.body(), record.offset).ok()?;
        Some(sample.raw().ok()??.to_vec())
    });
    let mut found: Vec<Vec<u8>> = Vec::new();
    for state in raw {
        // The first four bytes are the kind.
        let alike = found.iter().filter(|it| it.first_chunk::<4>() == state.first_chunk::<4>()).count();
        if alike < PARTS_MAX {
            found.push(state);
        }
    }
    found
}

/// Builds the fuzzers and runs each with its seeds for `seconds`; as many fuzzers run at the same time as the machine has CPUs.
pub(crate) fn run(seconds: &str, names: &[&str]) -> Result<()> {
    let seconds: u32 = seconds.parse().with_context(|| format!("{seconds} is no number of seconds"))?;
    let target = std::path::absolute(crate::target_directory().join("fuzz"))?;
    let corpus = target.join("corpus");
    let _ = fs::remove_dir_all(&corpus);
    seeds_into(&corpus)?;
    let host = host()?;
    // With --target, cargo applies the flags to the fuzzers only: build scripts must not be instrumented.
    let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", &host])
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"))
        .status()
        .context("run cargo build")?;
    ensure!(status.success(), "the fuzzers do not build");
    let all = targets()?;
    let chosen: Vec<String> =
        if names.is_empty() { all } else { names.iter().map(|name| (*name).to_owned()).collect() };
    let left = Mutex::new(chosen.into_iter());
    let take_one = || left.lock().map_or(None, |mut left| left.next());
    let programs = target.join(host).join("release");
    let worker =
        || std::iter::from_fn(take_one).map(|name| fuzz(&programs, &corpus, &name, seconds)).collect::<Vec<_>>();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let ended: Vec<Result<String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut found = 0;
    for result in ended {
        match result {
            Ok(line) => println!("{line}"),
            Err(error) => {
                println!("{error:#}");
                found += 1;
            }
        }
    }
    ensure!(found == 0, "{found} fuzzers found something");
    Ok(())
}

/// Runs one fuzzer; returns a line with its number of runs.
fn fuzz(programs: &Path, corpus: &Path, name: &str, seconds: u32) -> Result<String> {
    let seeds = corpus.join(name);
    fs::create_dir_all(&seeds)?;
    let output = Command::new(programs.join(name))
        .arg(&seeds)
        .arg(format!("-artifact_prefix={}/{name}-", corpus.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=65536", "-rss_limit_mb=1024", "-timeout=60", "-print_final_stats=1"])
        .output()
        .with_context(|| format!("run the fuzzer {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let stat = |what: &str| said.lines().find_map(|line| line.strip_prefix(what)).map_or("?", str::trim);
    if !output.status.success() {
        let lines: Vec<_> = said.lines().collect();
        bail!("{name}: {}\n{}", output.status, lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    let (runs, peak) = (stat("stat::number_of_executed_units:"), stat("stat::peak_rss_mb:"));
    Ok(format!("{name}: {runs} inputs in {seconds} s, {peak} MB at most"))
}

/// Returns the names of all fuzzers.
fn targets() -> Result<Vec<String>> {
    let sources = crate::tree::files_under(Path::new("fuzz/fuzz_targets"))?;
    Ok(sources.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

/// Returns the target triple of the compiler's host.
fn host() -> Result<String> {
    let output = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into())).arg("-vV").output();
    let said = String::from_utf8_lossy(&output.context("run rustc")?.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what it builds for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hostile_recording_is_a_seed_of_the_readers() {
        let inputs = hostile();
        let names: Vec<_> = inputs.iter().map(|(path, _)| path.file_stem().unwrap()).collect();
        assert!(HOSTILE_SHAPES.iter().all(|shape| names.iter().any(|name| *name == shape.name)));
        for (path, bytes) in &inputs {
            assert!(bytes.len() <= SEED_MAX_BYTES, "{}: {} bytes", path.display(), bytes.len());
            let targets: Vec<&str> = seeds_of(path, bytes).into_iter().map(|(target, _)| target).collect();
            let is_packed = bytes.starts_with(&[0x1f, 0x8b]);
            let reads_it = |target: &str| targets.contains(&target) || is_packed;
            assert!(reads_it("journal") || reads_it("file") && reads_it("recover"), "{}", path.display());
        }
    }
}
