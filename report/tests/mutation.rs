//! Damaged recordings: cut, with flipped bits, spliced, with wrong lengths. Every read ends with an error or a partial result and never panics;
//! memory stays in proportion to the input.
//!
//! `BPREC_MUTATIONS` is the number of recordings to try, or a range: `400000..500000`. The default suits CI. A number is divided among processes, one
//! for each CPU, because the limits on memory and CPU time are per process. A range is read by this process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;
#[path = "support/damaged.rs"]
mod damaged;
#[path = "support/limits.rs"]
mod limits;

use std::io::{Cursor, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::feature::tracing::TracingData;
use bprec_format::feature::{
    BuildIds, CpuTopology, EventDesc, Feature, NumaTopology, PmuMappings, SectionContent, TextList,
};
use bprec_format::{File, Metadata};
use bprec_report::{
    AnnotateOptions, By, Detail, DiffOptions, Document, ExportFormat, Group, Input, MapsForm, MapsOptions, Options,
    Payer, Redact, RewriteOptions, ScriptOptions, Session, Show, Source, Split, TimeRange, by_prog, counters, diff,
    header, maps, rewrite, script,
};
use damaged::{Numbers, inputs, mutate};
use limits::within_limits;

/// Checks text for people: it must not contain control characters. Tabs are allowed before lines that continue a record.
struct Terminal;

impl Write for Terminal {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let steers = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t');
        assert!(!text.iter().any(steers), "{:?}", String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns recordings that were cut off, each with its journal.
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

/// Reads a recording, damaged in half of the cases, with its damaged journal. Both are files, because a reader finds a journal only beside a file.
fn read_with_journal(
    directory: &Path,
    baseline: &Input,
    (recording, journal): &(Vec<u8>, Vec<u8>),
    numbers: &mut Numbers,
) {
    let (mut bytes, mut beside) = (recording.clone(), journal.clone());
    if numbers.below(2) == 0 {
        mutate(&mut bytes, journal, numbers);
    }
    mutate(&mut beside, recording, numbers);
    let path = directory.join("perf.data");
    std::fs::write(&path, &bytes).unwrap();
    std::fs::write(directory.join("perf.data.journal"), &beside).unwrap();
    let Ok(input) = Input::open(&path) else { return };
    report(&input, baseline, numbers);
    let options = ScriptOptions { show: Show::ALL, ..ScriptOptions::default() };
    let _ = script(&mut Source::open(&path).unwrap(), &options, &mut Terminal);
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let mut out = Cursor::new(Vec::new());
    if rewrite(&mut Source::open(&path).unwrap(), &options, &mut out).is_ok() {
        File::parse(&out.into_inner()).expect("the written recording is a file");
    }
}

/// Reads a recording with every command. `baseline` is the recording to compare with.
fn read_all(bytes: &[u8], baseline: &Input, numbers: &mut Numbers) {
    if let Ok(file) = File::parse(bytes) {
        features(&Metadata::of_file(&file));
    }
    let show = Show::ALL;
    let options = ScriptOptions { show, ..ScriptOptions::default() };
    let _ = script(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut Terminal);
    if numbers.below(8) == 0 {
        report(&Input::from_bytes("test", bytes.to_vec()), baseline, numbers);
    }
    let programs = if numbers.below(4) == 0 { vec!["*".parse().unwrap()] } else { Vec::new() };
    let redact = [None, Some(Redact::Machine), Some(Redact::MachineAndPrograms)][numbers.below(3)];
    let options = RewriteOptions { repair: numbers.below(2) == 0, programs, redact, ..RewriteOptions::default() };
    let mut out = Cursor::new(Vec::new());
    if rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).is_ok() {
        let written = out.into_inner();
        File::parse(&written).expect("the written recording is a file");
    }
}

/// Reports the cost of programs, with a grouping and a time range that `numbers` choose, and compares the report with that of `baseline`.
fn report(input: &Input, baseline: &Input, numbers: &mut Numbers) {
    let names = Split::NAMES.iter().map(|(split, _)| By::from(*split));
    let names = names.chain(Group::NAMES.iter().map(|(group, _)| By::from(*group)));
    let by: Vec<Option<By>> = std::iter::once(None).chain(names.map(Some)).collect();
    let by = by[numbers.below(by.len())];
    let time = ["", "10%-90%", "0.5,"][numbers.below(3)];
    let time = if time.is_empty() { TimeRange::All } else { time.parse().unwrap() };
    // One thread: each of several threads would have its own sums, and the peak of allocated memory would differ between runs of this test.
    let options = Options { by, time, threads: Some(1), ..Options::default() };
    if let Ok(report) = by_prog(input, &options) {
        report.write_table(&mut Terminal, 200).unwrap();
        (0..=report.events.len()).for_each(|event| drop(report.listing(event, 60)));
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(report) = counters(input, &options) {
        report.write_table(&mut Terminal, 132).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    annotate_and_lines(input, &options, numbers);
    let keys = [Payer::Comm, Payer::Pid, Payer::Cgroup, Payer::Container, Payer::Cpu];
    let keys = &keys[..numbers.below(keys.len() + 1)];
    if let Ok(report) = Session::open(input).and_then(|session| session.payers(&options, keys)) {
        [None, Some(0)].into_iter().for_each(|program| drop(report.listing(program, 60)));
        report.write_table(&mut Terminal, 120).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(advice) = Session::open(input).and_then(|session| session.advice(&options)) {
        advice.write_table(&mut Terminal, 120).unwrap();
        advice.write_json(&mut std::io::sink()).unwrap();
        advice.write_csv(&mut std::io::sink()).unwrap();
    }
    let interval_ns = [None, Some(1), Some(10_000_000)][numbers.below(3)];
    if let Ok(report) = Session::open(input).and_then(|session| session.over_time(&options, interval_ns)) {
        report.write_table(&mut Terminal, 120).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    let (before, after) = if numbers.below(2) == 0 { (input, input) } else { (baseline, input) };
    let conditions = vec!["prog:* time/run +5%".parse().unwrap(), "total lost > 1%".parse().unwrap()];
    let options_of_diff = DiffOptions { conditions, all: true, threads: Some(1), ..DiffOptions::default() };
    if let Ok(report) = diff(std::slice::from_ref(before), std::slice::from_ref(after), &options_of_diff) {
        report.write_table(&mut Terminal, 120).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(report) = Session::open(input).and_then(|session| session.trees(&options, [0.0, 0.5][numbers.below(2)])) {
        [None, Some(0)].into_iter().for_each(|program| drop(report.listing(program, 60)));
        report.write_table(&mut Terminal, 120).unwrap();
        report.write_json(&mut std::io::sink()).unwrap();
        report.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(session) = Session::open(input) {
        if let Ok(stacks) = session.stacks(&options) {
            let whole = stacks.flame_listing(60, &[]);
            let frame = whole.rows.first().and_then(|row| row.boxes.first()?.frame.clone());
            drop(stacks.flame_listing(60, frame.as_slice()));
        }
        if let [from_ns, .., to_ns] = session.read_times_ns()[..] {
            let _ = session.interval(&options, from_ns, to_ns);
        }
        let format = ExportFormat::ALL[numbers.below(ExportFormat::ALL.len())];
        let _ = session.export(&options, format, &mut std::io::sink());
    }
    let form = MapsForm::ALL[numbers.below(MapsForm::ALL.len())];
    let _ = maps(input, &MapsOptions { form, ..MapsOptions::default() }, &mut std::io::sink());
    let _ = header(input);
}

/// Lists the code and the lines of all programs.
fn annotate_and_lines(input: &Input, options: &Options, numbers: &mut Numbers) {
    let Ok(session) = Session::open(input) else { return };
    // A filter for a task that does not exist leaves no samples; `annotate` then lists all programs.
    let comms = if numbers.below(2) == 0 { vec!["no such task".to_owned()] } else { Vec::new() };
    let limit = if numbers.below(4) == 0 { Some(1) } else { None };
    let query = Options { programs: vec!["*".parse().unwrap()], by: None, comms, limit, ..options.clone() };
    if let Ok(lines) = session.lines(&query) {
        lines.write_table(&mut Terminal, 132).unwrap();
        lines.write_json(&mut std::io::sink()).unwrap();
        lines.write_csv(&mut std::io::sink()).unwrap();
    }
    if let Ok(annotation) = session.annotate(&AnnotateOptions { query, ..AnnotateOptions::default() }) {
        annotation.write_table(&mut Terminal, 132).unwrap();
        annotation.functions_listing(0, 60);
        annotation.code_listing(0, 0, Detail::Instructions, 60);
        annotation.line_listing(0, 0, 0, 60);
        annotation.write_json(&mut std::io::sink()).unwrap();
        annotation.write_csv(&mut std::io::sink()).unwrap();
    }
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

/// Environment variable with the number of mutations to try, or a range of them.
const MUTATIONS: &str = "BPREC_MUTATIONS";

/// Parses a range of mutations; each mutation depends only on its number.
fn range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once("..")?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

#[test]
fn damage_is_survived() {
    let asked = std::env::var(MUTATIONS).unwrap_or_else(|_| "100000".to_owned());
    if let Some(rounds) = range(&asked) {
        return survive(rounds);
    }
    let all: u64 = asked.parse().unwrap_or_else(|_| panic!("{MUTATIONS}={asked}: not N or FROM..TO"));
    let processes = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let started: Vec<_> = (0..processes)
        .map(|part| {
            let rounds = format!("{}..{}", all * part / processes, all * (part + 1) / processes);
            let mut process = Command::new(std::env::current_exe().unwrap());
            process.args(["--exact", "damage_is_survived"]).env(MUTATIONS, rounds);
            process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let ended: Vec<_> = started.into_iter().map(|process| process.wait_with_output().unwrap()).collect();
    if let Some(process) = ended.iter().find(|process| !process.status.success()) {
        // The output is indented, so that tools that count test results do not count the result lines of this process.
        let said = String::from_utf8_lossy(&process.stdout).replace('\n', "\n  ");
        panic!("{}\n  {said}{}", process.status, String::from_utf8_lossy(&process.stderr));
    }
}

/// Makes the damaged recordings with these numbers, and reads them.
fn survive(rounds: Range<u64>) {
    let inputs = inputs();
    assert!(!inputs.is_empty(), "no recording to damage");
    let baseline = common::fixtures().into_iter().find(|(name, _)| name.ends_with("linux-6.1/ratio.data")).unwrap();
    let baseline = Input::from_bytes("baseline", baseline.1);
    // Inputs that caused bugs in the past are read unchanged, with 100 different choices of options.
    for (_, bytes) in inputs.iter().filter(|(name, _)| rounds.start == 0 && name.contains("regressions")) {
        (0..100).for_each(|seed| read_all(bytes, &baseline, &mut Numbers(seed)));
    }
    let directory = tempfile::tempdir().unwrap();
    let journaled = journaled();
    assert!(!journaled.is_empty(), "no recording with a journal");
    for round in rounds.start / 50..rounds.end / 50 {
        let mut numbers = Numbers(round);
        read_with_journal(directory.path(), &baseline, &journaled[numbers.below(journaled.len())], &mut numbers);
    }
    let mut slowest = (std::time::Duration::ZERO, String::new());
    for round in rounds.clone() {
        let mut numbers = Numbers(round);
        let (name, original) = &inputs[numbers.below(inputs.len())];
        let other = &inputs[numbers.below(inputs.len())].1;
        let mut bytes = original.clone();
        mutate(&mut bytes, other, &mut numbers);
        let start = std::time::Instant::now();
        within_limits(&format!("{name}, round {round}"), bytes.len(), || read_all(&bytes, &baseline, &mut numbers));
        let took = start.elapsed();
        if took > slowest.0 {
            slowest = (took, format!("{name}, round {round}, {} bytes", bytes.len()));
        }
    }
    eprintln!("mutations {rounds:?} of {} recordings, slowest {slowest:?}", inputs.len());
}
