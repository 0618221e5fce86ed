//! Lines of `script`: fields by event, fields of tracepoints, branch stacks of the processor, records
//! that cannot be read. Compared with the installed perf, if it can read the same file.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use bprec_format::records::{Comm, write_record};
use bprec_format::{
    AttrFlags, Container as Kind, Endian, EventAttr, FILE_HEADER_BYTES, FileAttr, FileLayout, RecordType, SampleId,
    SampleLayout, SampleType, Writer, context, event_type, misc,
};
use bprec_generate::{Shape, generate_bytes};
use bprec_report::{
    Fields, Input, Options, RewriteOptions, ScriptOptions, ScriptSummary, Show, Source, by_prog, rewrite, script,
};

fn printed(source: &mut Source, options: &ScriptOptions) -> (String, ScriptSummary) {
    let mut text = Vec::new();
    let summary = script(source, options, &mut text).unwrap();
    (String::from_utf8(text).unwrap(), summary)
}

fn corpus(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/corpus").join(name)
}

/// perf prints the state as `D|K` (2 and 128), `script` as the number 130.
#[test]
fn tracepoints_are_printed_field_by_field() {
    let mut source = Source::open(corpus("perf_with_tracepoint_event.data")).unwrap();
    let (text, _) = printed(&mut source, &ScriptOptions::default());
    let line = text.lines().find(|line| line.contains("sched_switch")).unwrap();
    assert_eq!(
        line,
        "           sleep    9896 [005] 536732.415855: sched:sched_switch: prev_comm=\"sleep\" prev_pid=9896 \
         prev_prio=120 prev_state=130 next_comm=\"swapper/5\" next_pid=0 next_prio=120"
    );
}

/// The values must be those that perf 7.2 prints for a recording made by a guest's perf. States are numbers here: 256 for R+, 1 for S.
#[test]
fn switches_have_the_values_that_perf_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings/amd64-6.1/tp.data");
    if !path.is_file() {
        eprintln!("SKIP switches_have_the_values_that_perf_prints: no recording at {}", path.display());
        return;
    }
    let (text, _) = printed(&mut Source::open(path).unwrap(), &ScriptOptions::default());
    let perf = [
        "            perf     687 [000]    25.243632: sched:sched_switch: prev_comm=\"perf\" prev_pid=687 prev_prio=120 \
         prev_state=256 next_comm=\"migration/0\" next_pid=16 next_prio=0",
        "     migration/0      16 [000]    25.243972: sched:sched_switch: prev_comm=\"migration/0\" prev_pid=16 prev_prio=0 \
         prev_state=1 next_comm=\"swapper/0\" next_pid=0 next_prio=120",
        "            perf     687 [001]    25.256559: sched:sched_switch: prev_comm=\"perf\" prev_pid=687 prev_prio=120 \
         prev_state=1 next_comm=\"dd\" next_pid=716 next_prio=120",
    ];
    let ours: Vec<&str> = text.lines().map(str::trim_end).take(perf.len()).collect();
    assert_eq!(ours, perf);
}

/// Builds a file with one event and samples with these bodies.
fn file_of(attr: EventAttr, bodies: &[Vec<u8>]) -> Vec<u8> {
    let event = FileAttr { attr, ids: vec![7] };
    let layout = SampleLayout::new(&event.attr, Endian::Little);
    let mut bytes = Vec::new();
    let file = FileLayout::begin(&[event], Endian::Little, &mut bytes);
    let start = bytes.len();
    let comm = Comm { pid: 42, tid: 42, comm: b"demo" };
    let id = SampleId { id: Some(7), ..SampleId::default() };
    write_record(&mut bytes, RecordType::COMM, 0, &layout, &id, |w| comm.encode(w)).unwrap();
    for body in bodies {
        write_record(&mut bytes, RecordType::SAMPLE, misc::USER, &layout, &id, |w| {
            w.bytes(body);
        })
        .unwrap();
    }
    let data_bytes = (bytes.len() - start) as u64;
    file.features(data_bytes, &[], &mut bytes);
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&file.header(data_bytes, &[]));
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out, Endian::Little);
    words.iter().for_each(|word| {
        w.u64(*word);
    });
    out
}

const TASK: u64 = 42 << 32 | 42;
const TIME_NS: u64 = 5_000_000_000;

/// Output of the installed perf, without the widths of its columns; `None` if perf is not installed.
fn perf(bytes: &[u8], arguments: &[&str]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let output = Command::new("perf").arg("script").args(arguments).arg("-i").arg(file.path()).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(trimmed(&String::from_utf8(output.stdout).unwrap()))
}

/// Removes the column widths, because versions of perf differ in the width of the thread id.
fn trimmed(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(|line| format!("{}\n", words(line))).collect()
}

fn same_as_perf(test: &str, bytes: Vec<u8>, arguments: &[&str], options: &ScriptOptions) -> String {
    let (ours, _) = printed(&mut Source::from_bytes("test", bytes.clone()), options);
    match perf(&bytes, arguments) {
        Some(theirs) => assert_eq!(trimmed(&ours), theirs),
        None => eprintln!("SKIP {test}: no perf to ask"),
    }
    ours
}

#[test]
fn memory_events_show_address_and_weight() {
    const TEST: &str = "memory_events_show_address_and_weight";
    let fields = [SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::ADDR, SampleType::WEIGHT];
    let sample_type = fields.into_iter().fold(SampleType::DATA_SRC.with(SampleType::PERIOD), SampleType::with);
    let attr = EventAttr {
        kind: event_type::RAW,
        config: 0x1cd,
        sample_period: 100,
        sample_type,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    };
    // A load that hit the first-level cache; the last two words are its latency and its data source.
    let body = words(&[0x40_1000, TASK, TIME_NS, 0x7f00_1234, 100, 37, 0x6810_0142]);
    let options = ScriptOptions::default();
    let text = same_as_perf(TEST, file_of(attr, &[body]), &["-F", "-data_src"], &options);
    assert!(text.contains(" 7f001234 "), "{text}");
}

#[test]
fn stacks_that_the_processor_kept_replace_walked_ones() {
    let fields = [SampleType::TID, SampleType::TIME, SampleType::CALLCHAIN, SampleType::BRANCH_STACK];
    let attr = EventAttr {
        kind: event_type::HARDWARE,
        sample_period: 100,
        sample_type: fields.into_iter().fold(SampleType::IP, SampleType::with),
        // PERF_SAMPLE_BRANCH_CALL_STACK in user mode.
        branch_sample_type: 1 << 11 | 1,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    };
    let kernel = 0xffff_ffff_8100_1000;
    let chain = [4, context::KERNEL, kernel, context::USER, 0x40_1000];
    let branches = [2, 0x40_2010, 0x40_1000, 0, 0x40_3020, 0x40_2000, 0];
    let body = words(&[[kernel, TASK, TIME_NS].as_slice(), &chain, &branches].concat());
    let options = ScriptOptions { fields: Fields::parse("tid,ip").unwrap(), ..ScriptOptions::default() };
    let name = "stacks_that_the_processor_kept_replace_walked_ones";
    let text = same_as_perf(name, file_of(attr, &[body]), &["-F", "tid,ip"], &options);
    let frames: Vec<&str> = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(frames, ["ffffffff81001000", "401000", "402010", "403020"]);
}

#[test]
fn records_that_cannot_be_read_are_named_where_they_are() {
    let (mut bytes, made) = generate_bytes(&Shape { record_bytes: 100_000, ..Shape::default() }).unwrap();
    // Damages the length of a call chain in the middle of the recording.
    let file = bprec_format::File::parse(&bytes).unwrap();
    let samples = file.records().flatten().filter(|record| record.kind == RecordType::SAMPLE);
    let damaged = samples.skip(made.samples as usize / 2).find(|sample| sample.bytes.len() < 250).unwrap();
    let record = damaged.offset..damaged.offset + damaged.bytes.len() as u64;
    let nr_at = damaged.offset as usize + 8 + 6 * 8;
    bytes[nr_at..nr_at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let (text, summary) = printed(&mut Source::from_bytes("test", bytes), &ScriptOptions::default());
    assert_eq!(summary.unreadable, 1);
    let error = summary.first_unreadable.unwrap();
    assert!(record.contains(&error.offset), "{error}");
    let line = format!("# {:#x}: PERF_RECORD_SAMPLE cannot be read: {error}\n", record.start);
    assert!(text.contains(&line), "{error}");
}

#[test]
fn other_records_count_where_there_are_no_samples() {
    let options = ScriptOptions { show: Show::ALL, ..ScriptOptions::default() };
    let (text, summary) = printed(&mut Source::open(corpus("perf_etm.data")).unwrap(), &options);
    assert_eq!(summary.samples, 0);
    assert_eq!(summary.others, text.lines().filter(|line| line.contains("PERF_RECORD_")).count() as u64);
    assert!(summary.others > 0);
}

#[test]
fn parts_of_the_time_are_the_same_in_script_rewrite_and_report() {
    let (bytes, _) = generate_bytes(&Shape { record_bytes: 200_000, ..Shape::default() }).unwrap();
    let whole = by_prog(&Input::from_bytes("test", bytes.clone()), &Options::default()).unwrap();
    let first_s = whole.recording.start_ns / 1_000_000_000;
    let clock = format!("@{}.000000000,{}.050000000", first_s, first_s + 1);
    let mut parts = 0;
    for range in ["10%-20%", "50%/1", "0%-100%", "0.01,0.05", ",0.02", &clock] {
        let options = ScriptOptions {
            time: range.parse().unwrap(),
            fields: Fields::parse("event").unwrap(),
            hide_call_chains: true,
            ..ScriptOptions::default()
        };
        let report = Options { time: range.parse().unwrap(), ..Options::default() };
        let report = by_prog(&Input::from_bytes("test", bytes.clone()), &report).unwrap();
        let (text, _) = printed(&mut Source::from_bytes("test", bytes.clone()), &options);
        let shown = text.lines().filter(|line| line.contains("cpu-clock")).count() as u64;
        let selected = report.events[0].samples.samples;
        parts += u32::from((1..whole.events[0].samples.samples).contains(&selected));
        assert_eq!(shown, selected, "{range}");
        let mut out = Cursor::new(Vec::new());
        let options = RewriteOptions { time: range.parse().unwrap(), ..RewriteOptions::default() };
        rewrite(&mut Source::from_bytes("test", bytes.clone()), &options, &mut out).unwrap();
        let rewritten = by_prog(&Input::from_bytes("test", out.into_inner()), &Options::default()).unwrap();
        assert_eq!(rewritten.events[0].samples.samples, selected, "{range}");
    }
    assert!(parts >= 4, "only {parts} ranges select a part of the samples");
}

#[test]
fn names_of_tasks_are_patterns_in_script_as_in_report() {
    let bytes = std::fs::read(corpus("../recordings/linux-6.18/busy.data")).unwrap();
    let script = |comms: &[String]| {
        let fields = Fields::parse("comm,event").unwrap();
        let options =
            ScriptOptions { fields, comms: comms.to_vec(), hide_call_chains: true, ..ScriptOptions::default() };
        let (text, _) = printed(&mut Source::from_bytes("test", bytes.clone()), &options);
        text.lines().filter(|line| line.contains("cpu-clock:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = script(&[]);
    let comm = whole[0].split_whitespace().next().unwrap();
    let pattern = vec![format!("?{}*", &comm[1..3])];
    let report = Options { comms: pattern.clone(), ..Options::default() };
    let report = by_prog(&Input::from_bytes("test", bytes.clone()), &report).unwrap();
    let shown = script(&pattern).len();
    assert!((1..=whole.len()).contains(&shown), "{pattern:?}");
    assert_eq!(shown as u64, report.events[0].samples.samples, "{pattern:?}");
    assert!(script(&["no-such-task*".to_owned()]).is_empty());
}

#[test]
fn rewriting_counts_samples_as_reports_do() {
    let (bytes, made) = generate_bytes(&Shape { record_bytes: 200_000, ..Shape::default() }).unwrap();
    let mut out = Cursor::new(Vec::new());
    let mut source = Source::from_bytes("test", bytes);
    let summary = rewrite(&mut source, &RewriteOptions::default(), &mut out).unwrap();
    assert_eq!(summary.samples, made.samples);
}

/// A stream without features becomes a complete file without features.
#[test]
fn a_whole_file_without_features_was_not_cut_off() {
    let mut out = Cursor::new(Vec::new());
    let mut source = Source::open(corpus("perf.data.piped.lost_samples-4.4")).unwrap();
    rewrite(&mut source, &RewriteOptions::default(), &mut out).unwrap();
    let mut file = out.into_inner();
    assert!(bprec_format::File::parse(&file).unwrap().features().is_empty());
    let problems = |file: &[u8]| printed(&mut Source::from_bytes("test", file.to_vec()), &ScriptOptions::default()).1;
    assert_eq!(problems(&file).problems, [""; 0]);
    file.truncate(file.len() - 100);
    assert!(problems(&file).problems.iter().any(|problem| problem.contains("cut off")));
}

#[test]
fn a_file_of_another_kind_is_called_so() {
    let error = Kind::detect(b"# not a recording\n").unwrap_err();
    assert_eq!(error.to_string(), "offset 0x0: file: it starts with \"# not a \", not with \"PERFILE2\"");
}
