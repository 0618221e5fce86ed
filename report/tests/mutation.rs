//! Damaged recordings: cut, flipped, spliced, with lengths that lie. Whatever comes out, it is an error or a partial
//! result, never a panic, and memory stays in proportion to the input.
//!
//! `BPREC_MUTATIONS` says how many; the default suits CI.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::feature::tracing::TracingData;
use bprec_format::feature::{BuildIds, CpuTopology, EventDesc, Feature, NumaTopology, Payload, PmuMappings, TextList};
use bprec_format::{Container, File, Metadata};
use bprec_report::{
    By, Group, Input, MapsOptions, Options, RewriteOptions, ScriptOptions, Session, Show, Source, Split, StacksFormat,
    TimeRange, by_prog, counters, header, maps, rewrite, script,
};

/// Counts what is allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise for `layout` is the one that is needed.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `ptr` came from `alloc` with this `layout`, that is, from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A generator of numbers that are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Values that lengths and counts like to lie with.
const LIES: [u64; 12] =
    [0, 1, 7, 8, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 60, u64::MAX, u64::MAX - 7, i64::MIN as u64];

fn mutate(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..=numbers.below(4) {
        // Half of the damage goes to the front, where header, attrs and the first records are.
        let reach = if numbers.below(2) == 0 { bytes.len().min(1024) } else { bytes.len() };
        let at = numbers.below(reach);
        match numbers.below(5) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] ^= 1 << numbers.below(8),
            2 => {
                let from = numbers.below(other.len());
                let len = numbers.below(256).min(other.len() - from).min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&other[from..from + len]);
            }
            kind => {
                let width = if kind == 3 { 8 } else { 2 << numbers.below(2) };
                let at = at / width * width;
                let lie = LIES[numbers.below(LIES.len())].to_le_bytes();
                if let Some(field) = bytes.get_mut(at..at + width) {
                    field.copy_from_slice(&lie[..width]);
                }
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

/// Recordings of up to this size: of larger ones fewer can be damaged in the same time.
const INPUT_MAX_BYTES: usize = 100_000;

fn inputs() -> Vec<(String, Vec<u8>)> {
    let corpus = common::corpus_files().into_iter().map(|file| (file.name, file.bytes));
    let mut inputs: Vec<(String, Vec<u8>)> = corpus.chain(common::recordings()).chain(common::fixtures()).collect();
    let regressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/regressions");
    for entry in std::fs::read_dir(regressions).into_iter().flatten().flatten() {
        inputs.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()));
    }
    inputs.retain(|(_, bytes)| bytes.len() < INPUT_MAX_BYTES && Container::detect(bytes).is_ok());
    inputs.sort();
    inputs
}

/// Recordings that were cut off, with the journal beside each.
fn journaled() -> Vec<(Vec<u8>, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        for journal in std::fs::read_dir(entry.path()).unwrap().flatten().map(|entry| entry.path()) {
            if journal.extension().is_some_and(|extension| extension == "journal") {
                found.push((std::fs::read(journal.with_extension("")).unwrap(), std::fs::read(&journal).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Reads a recording with its journal, both damaged, as files: only there is a journal found.
fn read_with_journal(directory: &Path, (recording, journal): &(Vec<u8>, Vec<u8>), numbers: &mut Numbers) {
    let (mut bytes, mut beside) = (recording.clone(), journal.clone());
    if numbers.below(2) == 0 {
        mutate(&mut bytes, journal, numbers);
    }
    mutate(&mut beside, recording, numbers);
    let path = directory.join("perf.data");
    std::fs::write(&path, &bytes).unwrap();
    std::fs::write(directory.join("perf.data.journal"), &beside).unwrap();
    let Ok(input) = Input::open(&path) else { return };
    report(&input, numbers);
    let options = ScriptOptions { show: Show::ALL, ..ScriptOptions::default() };
    let _ = script(&mut Source::open(&path).unwrap(), &options, &mut std::io::sink());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let mut out = Cursor::new(Vec::new());
    if rewrite(&mut Source::open(&path).unwrap(), &options, &mut out).is_ok() {
        File::parse(&out.into_inner()).expect("what was written is a file");
    }
}

/// Reads everything there is to read.
fn read_all(bytes: &[u8], numbers: &mut Numbers) {
    if let Ok(file) = File::parse(bytes) {
        features(&Metadata::of_file(&file));
    }
    let show = Show::ALL;
    let options = ScriptOptions { show, dump: numbers.below(8) == 0, ..ScriptOptions::default() };
    let _ = script(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut std::io::sink());
    if numbers.below(8) == 0 {
        report(&Input::from_bytes("test", bytes.to_vec()), numbers);
    }
    let programs = if numbers.below(4) == 0 { vec!["*".parse().unwrap()] } else { Vec::new() };
    let options = RewriteOptions { repair: numbers.below(2) == 0, programs, ..RewriteOptions::default() };
    let mut out = Cursor::new(Vec::new());
    if rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).is_ok() {
        let written = out.into_inner();
        File::parse(&written).expect("what was written is a file");
    }
}

/// Reports what programs cost, in one of the ways.
fn report(input: &Input, numbers: &mut Numbers) {
    let names = Split::NAMES.iter().map(|(split, _)| By::from(*split));
    let names = names.chain(Group::NAMES.iter().map(|(group, _)| By::from(*group)));
    let by: Vec<Option<By>> = std::iter::once(None).chain(names.map(Some)).collect();
    let by = by[numbers.below(by.len())];
    let time = ["", "10%-90%", "0.5,"][numbers.below(3)];
    let time = if time.is_empty() { TimeRange::All } else { time.parse().unwrap() };
    // Threads would each hold a ledger, and what they allocate at one time would differ between runs.
    let options = Options { by, time, threads: Some(1), ..Options::default() };
    if let Ok(report) = by_prog(input, &options) {
        report.write_table(&mut std::io::sink(), 200).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(report) = counters(input, &options) {
        report.write_table(&mut std::io::sink(), 132).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(stacks) = Session::open(input).and_then(|session| session.stacks(&options)) {
        let formats = [StacksFormat::Folded, StacksFormat::Pprof, StacksFormat::Speedscope];
        stacks.write(formats[numbers.below(formats.len())], &mut std::io::sink()).unwrap();
    }
    let json = numbers.below(2) == 0;
    let _ = maps(input, &MapsOptions { json, ..MapsOptions::default() }, &mut std::io::sink());
    let _ = header(input);
}

fn features(metadata: &Metadata<'_>) {
    let endian = metadata.endian();
    let _ = metadata.event_names();
    for section in metadata.sections() {
        let (bytes, offset) = (&section.bytes[..], section.offset);
        match section.feature {
            Feature::EVENT_DESC => drop(EventDesc::parse(bytes, offset, endian)),
            Feature::TRACING_DATA => drop(TracingData::parse(bytes, offset, endian).map(|t| t.value.events().count())),
            Feature::BUILD_ID => drop(BuildIds::parse(bytes, offset, endian)),
            Feature::CPU_TOPOLOGY => drop(CpuTopology::parse(bytes, offset, endian, 4096)),
            Feature::NUMA_TOPOLOGY => drop(NumaTopology::parse(bytes, offset, endian)),
            Feature::PMU_MAPPINGS => drop(PmuMappings::parse(bytes, offset, endian)),
            Feature::CMDLINE => drop(TextList::parse(bytes, offset, endian)),
            Feature::BPF_PROG_INFO => {
                for program in BpfProgInfoSection::new(bytes, offset, endian).into_iter().flatten().flatten() {
                    let _ =
                        (program.func_info().map(|f| f.iter().count()), program.line_info().map(|l| l.iter().count()));
                }
            }
            Feature::BPF_BTF => {
                for (_, data) in BpfBtfSection::new(bytes, offset, endian).into_iter().flatten().flatten() {
                    let Ok(btf) = Btf::parse(data) else { continue };
                    for id in 0..btf.len().min(200) as u32 {
                        let _ = (btf.size_of(id), btf.resolve(id).is_some());
                    }
                }
            }
            _ => {}
        }
    }
}

/// What reading takes beside the input: buffers, tables of names, the text of one record in hexadecimal.
const FIXED_BYTES: usize = 4 << 20;

#[test]
fn damage_is_survived() {
    let inputs = inputs();
    assert!(!inputs.is_empty(), "no recording to damage");
    // What was a mistake once is read as it is, in every way that the numbers choose.
    for (_, bytes) in inputs.iter().filter(|(name, _)| name.contains("regressions")) {
        (0..100).for_each(|seed| read_all(bytes, &mut Numbers(seed)));
    }
    let count = std::env::var("BPREC_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000u64);
    let directory = tempfile::tempdir().unwrap();
    let journaled = journaled();
    assert!(!journaled.is_empty(), "no recording with a journal");
    for round in 0..count / 50 {
        let mut numbers = Numbers(round);
        read_with_journal(directory.path(), &journaled[numbers.below(journaled.len())], &mut numbers);
    }
    let mut slowest = (std::time::Duration::ZERO, String::new());
    for round in 0..count {
        let mut numbers = Numbers(round);
        let (name, original) = &inputs[numbers.below(inputs.len())];
        let other = &inputs[numbers.below(inputs.len())].1;
        let mut bytes = original.clone();
        mutate(&mut bytes, other, &mut numbers);
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let start = std::time::Instant::now();
        read_all(&bytes, &mut numbers);
        let took = start.elapsed();
        let used = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        assert!(used <= FIXED_BYTES + 10 * bytes.len(), "{name}, round {round}: {used} bytes for {}", bytes.len());
        if took > slowest.0 {
            slowest = (took, format!("{name}, round {round}, {} bytes", bytes.len()));
        }
    }
    eprintln!("{count} mutations of {} recordings, slowest {slowest:?}", inputs.len());
}
