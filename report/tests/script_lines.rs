//! What the lines of `script` hold: fields by event, the kernel's words for tracepoints, stacks that the processor kept, records
//! that cannot be read. The installed perf is asked where it can read the same file.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use bprec_format::feature::tracing::{TracingData, TracingSystem};
use bprec_format::feature::{Feature, Payload};
use bprec_format::records::{Comm, write_record};
use bprec_format::{
    AttrFlags, Container as Kind, Endian, EventAttr, FILE_HEADER_BYTES, FileAttr, FileLayout, RecordType, SampleId,
    SampleLayout, SampleType, Writer, context, event_type, misc,
};
use bprec_generate::{Shape, generate_bytes};
use bprec_report::{
    Fields, Input, Options, RewriteOptions, ScriptOptions, ScriptSummary, Show, Source, by_prog, header, rewrite,
    script,
};

fn printed(source: &mut Source, options: &ScriptOptions) -> (String, ScriptSummary) {
    let mut text = Vec::new();
    let summary = script(source, options, &mut text).unwrap();
    (String::from_utf8(text).unwrap(), summary)
}

fn corpus(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/corpus").join(name)
}

/// State 130 is 2 and 128, which the format's own line calls D and K.
#[test]
fn tracepoints_are_printed_in_the_kernels_words() {
    let mut source = Source::open(corpus("perf_with_tracepoint_event.data")).unwrap();
    let (text, _) = printed(&mut source, &ScriptOptions::default());
    let line = text.lines().find(|line| line.contains("sched_switch")).unwrap();
    assert_eq!(
        line,
        "           sleep    9896 [005] 536732.415855: sched:sched_switch: prev_comm=sleep prev_pid=9896 \
         prev_prio=120 prev_state=D|K ==> next_comm=swapper/5 next_pid=0 next_prio=120"
    );
}

/// What perf 7.2 prints of a recording that a guest's perf made.
#[test]
fn switches_are_printed_as_perf_prints_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings/amd64-6.1/tp.data");
    if !path.is_file() {
        eprintln!("SKIP switches_are_printed_as_perf_prints_them: no recording at {}", path.display());
        return;
    }
    let (text, _) = printed(&mut Source::open(path).unwrap(), &ScriptOptions::default());
    let perf = [
        "            perf     687 [000]    25.243632: sched:sched_switch: prev_comm=perf prev_pid=687 prev_prio=120 \
         prev_state=R+ ==> next_comm=migration/0 next_pid=16 next_prio=0",
        "     migration/0      16 [000]    25.243972: sched:sched_switch: prev_comm=migration/0 prev_pid=16 prev_prio=0 \
         prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
        "            perf     687 [001]    25.256559: sched:sched_switch: prev_comm=perf prev_pid=687 prev_prio=120 \
         prev_state=S ==> next_comm=dd next_pid=716 next_prio=120",
    ];
    let ours: Vec<&str> = text.lines().map(str::trim_end).take(perf.len()).collect();
    assert_eq!(ours, perf);
}

#[test]
fn tracepoints_of_simpleperf_have_their_names() {
    let text = header(&Input::open(corpus("perf_with_tracepoint_event.data")).unwrap()).unwrap();
    assert!(text.contains("event : name = sched:sched_switch,"), "{text}");
    assert!(!text.contains("unknown tracepoint"), "{text}");
}

/// A file with one event whose samples are these bodies, and nothing else.
fn file_of(attr: EventAttr, bodies: &[Vec<u8>]) -> Vec<u8> {
    file_with(attr, bodies, &[])
}

/// The same with feature sections.
fn file_with(attr: EventAttr, bodies: &[Vec<u8>], features: &[(u8, Vec<u8>)]) -> Vec<u8> {
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
    file.features(data_bytes, features, &mut bytes);
    let bits: Vec<u8> = features.iter().map(|(bit, _)| *bit).collect();
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&file.header(data_bytes, &bits));
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

/// What the installed perf prints, without the widths of its columns; `None` where there is none.
fn perf(bytes: &[u8], arguments: &[&str]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let output = Command::new("perf").arg("script").args(arguments).arg("-i").arg(file.path()).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(trimmed(&String::from_utf8(output.stdout).unwrap()))
}

/// What the formats of kernels differ in: the mask of states with their names, and whether preemption is shown.
const STATES_OF_2_6: &str = r#"REC->prev_state ? __print_flags(REC->prev_state, "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" },
 { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "W" }) : "R""#;
const STATES_BEFORE_4_14: &str = r#"REC->prev_state & (2048-1) ? __print_flags(REC->prev_state & (2048-1), "|", { 1, "S"} , { 2, "D" },
 { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, { 512, "P" }, { 1024, "N" }) : "R",
 REC->prev_state & 2048 ? "+" : """#;
const STATES_SINCE_4_14: &str = r#"(REC->prev_state & ((((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) - 1)) ?
 __print_flags(REC->prev_state & ((((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) - 1), "|",
 { 0x0001, "S" }, { 0x0002, "D" }, { 0x0004, "T" }, { 0x0008, "t" }, { 0x0010, "X" }, { 0x0020, "Z" }, { 0x0040, "P" }, { 0x0080, "I" }) : "R",
 REC->prev_state & (((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) ? "+" : """#;
/// What perf wants to read first.
const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
const SWITCH_ID: u64 = 316;

/// A format of `sched:sched_switch` with the text of its states.
fn switch_format(states: &str) -> String {
    let field = |text: &str, offset, size, signed| {
        format!("\tfield:{text};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    let common = [field("unsigned short common_type", 0, 2, 0), field("int common_pid", 4, 4, 1)].concat();
    let own = [
        field("char prev_comm[16]", 8, 16, 0),
        field("pid_t prev_pid", 24, 4, 1),
        field("int prev_prio", 28, 4, 1),
        field("long prev_state", 32, 8, 1),
        field("char next_comm[16]", 40, 16, 0),
        field("pid_t next_pid", 56, 4, 1),
        field("int next_prio", 60, 4, 1),
    ]
    .concat();
    let conversions = if states.contains("\"+\"") { "%s%s" } else { "%s" };
    format!(
        "name: sched_switch\nID: {SWITCH_ID}\nformat:\n{common}\n{own}\nprint fmt: \"prev_comm=%s prev_pid=%d prev_prio=%d \
         prev_state={conversions} ==> next_comm=%s next_pid=%d next_prio=%d\", REC->prev_comm, REC->prev_pid, REC->prev_prio, \
         {}, REC->next_comm, REC->next_pid, REC->next_prio\n",
        states.replace('\n', "")
    )
}

/// The raw data of a switch away from a task in a state, as a sample has it: its size first, padded.
fn switch(state: u64) -> Vec<u8> {
    let mut raw = vec![0; 68];
    raw[..2].copy_from_slice(&(SWITCH_ID as u16).to_le_bytes());
    raw[4..8].copy_from_slice(&42u32.to_le_bytes());
    raw[8..12].copy_from_slice(b"demo");
    raw[24..28].copy_from_slice(&42u32.to_le_bytes());
    raw[28..32].copy_from_slice(&120u32.to_le_bytes());
    raw[32..40].copy_from_slice(&state.to_le_bytes());
    raw[40..49].copy_from_slice(b"swapper/0");
    raw[60..64].copy_from_slice(&120u32.to_le_bytes());
    [(raw.len() as u32).to_le_bytes().as_slice(), &raw].concat()
}

/// Kernels have states that others do not have, and numbers of their own for some. What is expected is what perf 6.1 prints.
#[test]
fn states_of_older_and_newer_kernels_are_printed_as_perf_prints_them() {
    let of_2_6 = [
        (0, "R"),
        (1, "S"),
        (32, "X"),
        (33, "S|X"),
        (40, "t|X"),
        (64, "x"),
        (128, "W"),
        (256, "0x100"),
        (257, "S|0x100"),
        (512, "0x200"),
        (1024, "0x400"),
        (2048, "0x800"),
        (1 << 63, "0x8000000000000000"),
    ];
    let before_4_14 = [
        (0, "R"),
        (1, "S"),
        (2, "D"),
        (4, "T"),
        (8, "t"),
        (16, "Z"),
        (32, "X"),
        (33, "S|X"),
        (40, "t|X"),
        (64, "x"),
        (128, "K"),
        (129, "S|K"),
        (130, "D|K"),
        (256, "W"),
        (257, "S|W"),
        (512, "P"),
        (1024, "N"),
        (1026, "D|N"),
        (2048, "R+"),
        (2049, "S+"),
        (4096, "R"),
        (6144, "R+"),
    ];
    let since_4_14 = [
        (0, "R"),
        (1, "S"),
        (2, "D"),
        (4, "T"),
        (8, "t"),
        (16, "X"),
        (32, "Z"),
        (33, "S|Z"),
        (40, "t|Z"),
        (64, "P"),
        (128, "I"),
        (129, "S|I"),
        (130, "D|I"),
        (256, "R+"),
        (257, "S+"),
        (512, "R"),
        (1024, "R"),
        (1026, "D"),
        (2048, "R"),
        (2049, "S"),
        (4096, "R"),
        (6144, "R"),
    ];
    let sample_type = [SampleType::TIME, SampleType::CPU, SampleType::RAW];
    let attr = EventAttr {
        kind: event_type::TRACEPOINT,
        config: SWITCH_ID,
        sample_period: 1,
        sample_type: sample_type.into_iter().fold(SampleType::TID, SampleType::with),
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..EventAttr::default()
    };
    for (states, expected) in
        [(STATES_OF_2_6, &of_2_6[..]), (STATES_BEFORE_4_14, &before_4_14[..]), (STATES_SINCE_4_14, &since_4_14[..])]
    {
        let format = switch_format(states);
        let formats = TracingData {
            endian: Endian::Little,
            long_bytes: 8,
            page_size_bytes: 4096,
            header_page: HEADER_PAGE.as_bytes(),
            header_event: b"\n",
            ftrace: Vec::new(),
            systems: vec![TracingSystem { name: b"sched", formats: vec![format.as_bytes()] }],
            kallsyms: &[],
            printk_formats: &[],
            saved_cmdlines: &[],
        };
        let mut section = Vec::new();
        formats.encode(&mut Writer::new(&mut section, Endian::Little));
        let bodies: Vec<Vec<u8>> =
            expected.iter().map(|(state, _)| [words(&[TASK, TIME_NS, 0]), switch(*state)].concat()).collect();
        let bytes = file_with(attr.clone(), &bodies, &[(Feature::TRACING_DATA.0, section)]);
        let name = "states_of_older_and_newer_kernels_are_printed_as_perf_prints_them";
        let text = same_as_perf(name, bytes, &[], &ScriptOptions::default());
        let shown: Vec<&str> =
            text.lines().map(|line| line.split_once("prev_state=").unwrap().1.split_once(" ==> ").unwrap().0).collect();
        assert_eq!(shown, expected.iter().map(|(_, name)| *name).collect::<Vec<_>>());
    }
}

/// Versions of perf differ in the width of the thread's number.
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
fn memory_events_show_address_access_and_weight() {
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
    // A load that hit the first level, and the last two words: how long it took, and what it was.
    let body = words(&[0x40_1000, TASK, TIME_NS, 0x7f00_1234, 100, 37, 0x6810_0142]);
    let options = ScriptOptions::default();
    let text = same_as_perf("memory_events_show_address_access_and_weight", file_of(attr, &[body]), &[], &options);
    assert!(text.contains(" 7f001234 "), "{text}");
    assert!(text.contains("|OP LOAD|LVL L1 hit|SNP None|"), "{text}");
}

#[test]
fn stacks_that_the_processor_kept_replace_walked_ones() {
    let fields = [SampleType::TID, SampleType::TIME, SampleType::CALLCHAIN, SampleType::BRANCH_STACK];
    let attr = EventAttr {
        kind: event_type::HARDWARE,
        sample_period: 100,
        sample_type: fields.into_iter().fold(SampleType::IP, SampleType::with),
        // Any call in user mode, as a stack.
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
    // The length of a call chain in the middle.
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
fn percentages_select_what_they_select_in_reports() {
    let (bytes, _) = generate_bytes(&Shape { record_bytes: 200_000, ..Shape::default() }).unwrap();
    for range in ["10%-20%", "50%/1", "0%-100%"] {
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
        assert_eq!(shown, report.events[0].samples.samples, "{range}");
    }
}

#[test]
fn rewriting_counts_samples_as_reports_do() {
    let (bytes, made) = generate_bytes(&Shape { record_bytes: 200_000, ..Shape::default() }).unwrap();
    let mut out = Cursor::new(Vec::new());
    let mut source = Source::from_bytes("test", bytes);
    let summary = rewrite(&mut source, &RewriteOptions::default(), &mut out).unwrap();
    assert_eq!(summary.samples, made.samples);
}

/// A stream without features becomes a file without features, of which nothing is missing.
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
    assert_eq!(error.to_string(), "offset 0x0: file: this is no perf.data: it starts with \"# not a \"");
}
