//! Events that are read with the samples of their group's leader (`{a,b,c}:S`). The sums must equal those of the written values, and those of the
//! installed perf for the same file.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test")]

use bprec_format::records::{Comm, write_record};
use bprec_format::{
    AttrFlags, Endian, EventAttr, FILE_HEADER_BYTES, FileAttr, FileLayout, ReadFormat, RecordType, SampleId,
    SampleLayout, SampleType, event_type, misc, software,
};
use bprec_report::model::{Count, Report};
use bprec_report::{
    Fields, Input, Options, RewriteOptions, ScriptOptions, ScriptSummary, Source, by_prog, rewrite, script,
};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::process::Command;
use std::thread;

/// `PERF_COUNT_SW_PAGE_FAULTS`.
const PAGE_FAULTS: u64 = 2;
/// `PERF_COUNT_SW_CONTEXT_SWITCHES`.
const CONTEXT_SWITCHES: u64 = 3;

/// Id of the leader on CPU 0. The id of each event on CPU 1 is one more than its id on CPU 0.
const LEADER: u64 = 10;
/// Id of the event that counts page faults on CPU 0.
const FAULTS: u64 = 20;
/// Id of the event that counts context switches on CPU 0.
const SWITCHES: u64 = 30;

/// A sample of the leader on a CPU, with the counts of all events on this CPU since the recording began.
struct Read {
    cpu: u32,
    tid: u32,
    values: [u64; 3],
}

const fn read(cpu: u32, tid: u32, values: [u64; 3]) -> Read {
    Read { cpu, tid, values }
}

/// Samples of two CPUs, alternating in the file. The count of the third event does not increase at each sample.
const READS: [Read; 5] = [
    read(0, 5, [1_000_000, 7, 0]),
    read(1, 6, [2_000_000, 100, 3]),
    read(0, 5, [1_500_000, 9, 4]),
    read(1, 6, [3_000_000, 100, 3]),
    read(0, 5, [1_750_000, 59, 5]),
];

fn events(flags: AttrFlags) -> Vec<FileAttr> {
    let sample_type = [SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU, SampleType::PERIOD];
    let sample_type = sample_type.into_iter().fold(SampleType::IDENTIFIER.with(SampleType::READ), SampleType::with);
    let event = |config, id: u64, sample_period| FileAttr {
        attr: EventAttr {
            kind: event_type::SOFTWARE,
            config,
            sample_period,
            sample_type,
            read_format: [ReadFormat::GROUP, ReadFormat::LOST].into_iter().fold(ReadFormat::ID, ReadFormat::with),
            flags: flags.with(AttrFlags::SAMPLE_ID_ALL).with(AttrFlags::EXCLUDE_GUEST),
            ..EventAttr::default()
        },
        ids: vec![id, id + 1],
    };
    vec![
        event(software::CPU_CLOCK, LEADER, 1_000_000),
        event(PAGE_FAULTS, FAULTS, 0),
        event(CONTEXT_SWITCHES, SWITCHES, 0),
    ]
}

fn recording(flags: AttrFlags, reads: &[Read]) -> Vec<u8> {
    let events = events(flags);
    let layout = SampleLayout::new(&events[0].attr, Endian::Little);
    let mut bytes = Vec::new();
    let file = FileLayout::begin(&events, Endian::Little, &mut bytes);
    let start = bytes.len();
    let id = SampleId { id: Some(LEADER), ..SampleId::default() };
    let comm = Comm { pid: 5, tid: 5, comm: b"demo" };
    write_record(&mut bytes, RecordType::COMM, 0, &layout, &id, |w| comm.encode(w)).unwrap();
    for (at, Read { cpu, tid, values }) in reads.iter().enumerate() {
        let time_ns = 5_000_000_000 + at as u64 * 1_000_000;
        let ids = [LEADER, FAULTS, SWITCHES].map(|id| id + u64::from(*cpu));
        write_record(&mut bytes, RecordType::SAMPLE, misc::USER, &layout, &id, |w| {
            w.u64(ids[0]).u64(0x40_1000).u32(5).u32(*tid).u64(time_ns).u32(*cpu).u32(0).u64(1_000_000).u64(3);
            for (id, value) in ids.iter().zip(values) {
                w.u64(*value).u64(*id).u64(0);
            }
        })
        .unwrap();
    }
    let header = file.header((bytes.len() - start) as u64, &[]);
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&header);
    bytes
}

fn report(bytes: &[u8], options: &Options) -> Report {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    by_prog(&Input::open(file.path()).unwrap(), options).unwrap()
}

fn sums(report: &Report) -> BTreeMap<String, Count> {
    report.events.iter().map(|event| (event.name.clone(), event.samples)).collect()
}

fn expected(sums: &[(&str, u64, u64)]) -> BTreeMap<String, Count> {
    sums.iter().map(|(name, samples, weight)| ((*name).into(), Count { samples: *samples, weight: *weight })).collect()
}

/// Number of lines that perf prints, and the sum of their periods, by event.
fn perf(bytes: &[u8], arguments: &[&str]) -> Option<BTreeMap<String, Count>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let output = Command::new("perf")
        .args(["script", "-F", "event,period", "-i"])
        .arg(file.path())
        .args(arguments)
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(sums_of_lines(&output.stdout))
}

fn sums_of_lines(text: &[u8]) -> BTreeMap<String, Count> {
    let mut sums: BTreeMap<String, Count> = BTreeMap::new();
    for line in str::from_utf8(text).unwrap().lines().filter(|line| !line.starts_with('#')) {
        let (period, event) = line.trim().split_once(' ').unwrap();
        let sum = sums.entry(event.trim().trim_end_matches(':').into()).or_default();
        sum.samples += 1;
        sum.weight += period.parse::<u64>().unwrap();
    }
    sums
}

/// Number of lines of our script, and the sum of their periods, by event.
fn script_sums(bytes: &[u8], options: ScriptOptions) -> (BTreeMap<String, Count>, ScriptSummary) {
    let options = ScriptOptions { fields: Fields::parse("event,period").unwrap(), ..options };
    let mut text = Vec::new();
    let summary = script(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut text).unwrap();
    (sums_of_lines(&text), summary)
}

#[track_caller]
fn assert_as_perf(bytes: &[u8], arguments: &[&str], sums: &BTreeMap<String, Count>) {
    match perf(bytes, arguments) {
        Some(theirs) => assert_eq!(*sums, theirs),
        None => println!("SKIP {}: perf is not installed", thread::current().name().unwrap_or("group_samples")),
    }
}

#[test]
fn each_event_of_a_group_has_what_it_has_grown_by() {
    let bytes = recording(AttrFlags::default(), &READS);
    let expected = expected(&[
        ("cpu-clock", 5, 1_750_000 + 3_000_000),
        ("page-faults", 4, 59 + 100),
        ("context-switches", 3, 5 + 3),
    ]);
    for threads in [1, 4] {
        let report = report(&bytes, &Options { threads: Some(threads), ..Options::default() });
        assert_eq!(sums(&report), expected);
        assert_eq!(report.problems, [""; 0]);
    }
    assert_as_perf(&bytes, &[], &expected);
}

/// Samples outside of a selection still matter: each difference is relative to the previous sample, selected or not.
#[test]
fn selections_are_parts_of_the_same_differences() {
    let bytes = recording(AttrFlags::default(), &READS);
    let one = Options { events: vec!["page-faults".into()], ..Options::default() };
    assert_eq!(sums(&report(&bytes, &one)), expected(&[("page-faults", 4, 159)]));
    let late = Options { time: "5.0015,".parse().unwrap(), ..Options::default() };
    let late = sums(&report(&bytes, &late));
    let differences =
        [("cpu-clock", 3, 750_000 + 1_000_000), ("page-faults", 2, 2 + 50), ("context-switches", 2, 4 + 1)];
    assert_eq!(late, expected(&differences));
    assert_as_perf(&bytes, &["--time", "5.0015,"], &late);
    let cpu = Options { cpus: Some("1".parse().unwrap()), ..Options::default() };
    let cpu = sums(&report(&bytes, &cpu));
    let time = ScriptOptions { time: "5.0015,".parse().unwrap(), ..ScriptOptions::default() };
    assert_eq!(script_sums(&bytes, time).0, late);
    assert_eq!(
        script_sums(&bytes, ScriptOptions { cpus: Some("1".parse().unwrap()), ..ScriptOptions::default() }).0,
        cpu
    );
    assert_eq!(cpu, expected(&[("cpu-clock", 2, 3_000_000), ("page-faults", 1, 100), ("context-switches", 1, 3)]));
}

/// Inherited counters are read under the id of the first counter, and each thread's counters start from 0.
#[test]
fn threads_that_inherit_a_group_have_counters_of_their_own() {
    let reads = [read(0, 5, [100, 10, 1]), read(0, 6, [50, 4, 0]), read(0, 5, [300, 11, 1]), read(0, 6, [60, 9, 2])];
    let bytes = recording(AttrFlags::INHERIT, &reads);
    let report = report(&bytes, &Options::default());
    let expected = expected(&[("cpu-clock", 4, 300 + 60), ("page-faults", 4, 11 + 9), ("context-switches", 2, 1 + 2)]);
    assert_eq!(sums(&report), expected);
    assert_eq!(script_sums(&bytes, ScriptOptions::default()).0, expected);
    assert_eq!(report.problems, [""; 0]);
}

#[test]
fn a_value_that_goes_back_is_said_and_not_counted() {
    let reads = [read(0, 5, [100, 10, 1]), read(0, 5, [200, 9, 2]), read(0, 5, [300, 12, 3])];
    let bytes = recording(AttrFlags::default(), &reads);
    let report = report(&bytes, &Options::default());
    let expected = expected(&[("cpu-clock", 3, 300), ("page-faults", 2, 10 + 3), ("context-switches", 3, 3)]);
    assert_eq!(sums(&report), expected);
    let (sums, summary) = script_sums(&bytes, ScriptOptions::default());
    assert_eq!((sums, summary.unreadable), (expected, 1));
    assert_eq!(report.problems.len(), 1);
    assert!(report.problems[0].contains("value smaller than at the previous reading"), "{:?}", report.problems);
}

/// In a later file of `perf record --switch-output`, the counters continue from their earlier counts. The first sample of a file counts one period of
/// the leader, and nothing of the other events.
#[test]
fn counters_that_began_before_the_file_are_not_charged_to_its_first_samples() {
    let reads = [
        read(0, 5, [901_000_000, 70_000, 500]),
        read(0, 5, [902_000_000, 70_007, 500]),
        read(0, 5, [903_000_000, 70_010, 502]),
    ];
    let bytes = recording(AttrFlags::default(), &reads);
    let expected = expected(&[("cpu-clock", 3, 3_000_000), ("page-faults", 2, 7 + 3), ("context-switches", 1, 2)]);
    assert_eq!(sums(&report(&bytes, &Options::default())), expected);
    // perf counts from 0; `script` prints the same numbers as perf.
    assert_as_perf(&bytes, &[], &script_sums(&bytes, ScriptOptions::default()).0);
}

/// In a file with a selection, each sample has the same difference as in the whole recording. Parts of the time add up to the whole.
#[test]
fn selections_that_are_rewritten_keep_the_differences() {
    let bytes = recording(AttrFlags::default(), &READS);
    let rewritten = |options: RewriteOptions| {
        let mut out = Cursor::new(Vec::new());
        rewrite(&mut Source::from_bytes("test", bytes.clone()), &options, &mut out).unwrap();
        sums(&report(&out.into_inner(), &Options::default()))
    };
    let cpu = Some("1".parse().unwrap());
    let whole = sums(&report(&bytes, &Options { cpus: cpu.clone(), ..Options::default() }));
    assert_eq!(rewritten(RewriteOptions { cpus: cpu, ..RewriteOptions::default() }), whole);
    // Selects the last three samples: CPU 0 counts 500,000 and 250,000 (1,000,000 → 1,500,000 → 1,750,000), CPU 1 counts 1,000,000.
    let late = |time: &str| RewriteOptions { time: time.parse().unwrap(), ..RewriteOptions::default() };
    let differences =
        [("cpu-clock", 3, 750_000 + 1_000_000), ("page-faults", 2, 2 + 50), ("context-switches", 2, 4 + 1)];
    assert_eq!(rewritten(late("@5.0015,")), expected(&differences));
    let early = [("cpu-clock", 2, 1_000_000 + 2_000_000), ("page-faults", 2, 7 + 100), ("context-switches", 1, 3)];
    assert_eq!(rewritten(late(",5.0014")), expected(&early));
}
