//! Recordings that are large enough for several threads. The generator counts their samples, so the expected numbers are known.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_generate::{Container, Host, Made, Shape, SharedHook, generate_bytes};
use bprec_report::model::{
    Columns, Count, DiffMetric, Known, Line, LineRow, MetricDiff, MetricValue, Row, RowOverTime, Share,
};
use bprec_report::{
    AnnotateOptions, By, DiffOptions, Document, ExportFormat, Group, Input, Options, Payer, ScriptOptions, Session,
    Show, Source, Split, by_prog, counters, diff, script,
};
use std::sync::Arc;

/// Twelve parts: each thread gets samples in parts of one mebibyte.
const RECORD_BYTES: u64 = 12 << 20;

fn generated(container: Container) -> (Vec<u8>, Made) {
    let shape = Shape { record_bytes: RECORD_BYTES, programs: 20, churned_programs: 30, container, ..Shape::default() };
    generate_bytes(&shape).unwrap()
}

/// Prints all outputs of a recording, computed with this number of threads.
fn printed(input: &Input, threads: usize, by: Option<By>) -> String {
    let report = by_prog(input, &Options { by, threads: Some(threads), ..Options::default() }).unwrap();
    let mut out = Vec::new();
    report.write_table(&mut out, 132).unwrap();
    report.write_json(&mut out).unwrap();
    report.write_csv(&mut out).unwrap();
    let counters = counters(input, &Options { threads: Some(threads), ..Options::default() }).unwrap();
    counters.write_csv(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn any_number_of_threads_prints_the_same() {
    for container in [Container::File, Container::ZstdFile(1)] {
        let (bytes, _) = generated(container);
        prints_the_same(&Input::from_bytes("generated", bytes));
    }
}

fn prints_the_same(input: &Input) {
    let by = [Split::Func.into(), Split::Payer(Payer::Comm).into(), Split::Helper.into(), Group::Type.into()].map(Some);
    for by in by.into_iter().chain([None]) {
        let one = printed(input, 1, by);
        for threads in [2, 3, 16] {
            assert!(printed(input, threads, by) == one, "{by:?} with {threads} threads");
        }
    }
}

#[test]
fn any_number_of_threads_prints_the_same_lines() {
    let show = Show::ALL;
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let (mut bytes, _) = generated(container);
        // Damage in the middle of the file is reported in order, no matter which thread finds it.
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0xff);
        let printed = |threads| {
            let options = ScriptOptions { show, threads: Some(threads), ..ScriptOptions::default() };
            let mut text = Vec::new();
            let summary = script(&mut Source::from_bytes("generated", bytes.clone()), &options, &mut text).unwrap();
            (text, summary)
        };
        let one = printed(1);
        for threads in [2, 3, 16] {
            assert!(printed(threads) == one, "{container:?} with {threads} threads");
        }
    }
}

/// The unpacked records exceed the memory limit for keeping them, so each pass unpacks the recording again.
#[test]
fn what_is_too_large_to_keep_is_unpacked_again() {
    let shape = Shape { record_bytes: 44 << 20, container: Container::ZstdFile(1), ..Shape::default() };
    let (bytes, made) = generate_bytes(&shape).unwrap();
    let input = Input::from_bytes("generated", bytes);
    let session = Session::open(&input).unwrap();
    for _ in 0..2 {
        let report = session.by_prog(&Options::default()).unwrap();
        let event = &report.events[0];
        assert_eq!((event.samples.samples, event.samples.weight), (made.samples, made.weight));
        assert_eq!(event.total.count.samples, made.bpf_samples);
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[test]
fn every_container_has_the_samples_that_were_generated() {
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let (bytes, made) = generated(container);
        let report = by_prog(&Input::from_bytes("generated", bytes.clone()), &Options::default()).unwrap();
        let event = &report.events[0];
        assert_eq!((event.samples.samples, event.samples.weight), (made.samples, made.weight), "{container:?}");
        assert_eq!(event.total.count.samples, made.bpf_samples, "{container:?}");

        let mut source = Source::from_bytes("generated", bytes);
        let summary = script(&mut source, &ScriptOptions::default(), &mut std::io::sink()).unwrap();
        // The recording also has samples of `bprec:state`.
        assert!(summary.samples > made.samples, "{container:?}");
        assert_eq!((summary.late, summary.unknown, summary.unreadable), (0, 0, 0), "{container:?}");
        assert!(summary.problems.is_empty(), "{container:?}: {:?}", summary.problems);
    }
}

/// The total of every view of a recording equals the number of samples that the generator put into programs.
#[test]
fn every_view_comes_to_the_same_total() {
    let mut random = 7u64;
    let mut below = |bound: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32 % bound
    };
    for seed in 0..8 {
        let shape = Shape {
            record_bytes: 1 << 18,
            programs: 1 + below(30),
            churned_programs: below(20),
            kernel_frames: 2 + below(12),
            user_frames: below(4),
            bpf_percent: 1 + below(99),
            tasks_per_1000_samples: below(20),
            cpus: 1 + below(8),
            seed,
            shared_hook: (0..below(4))
                .map(|_| SharedHook { samples: below(50), runs: [0; 2].map(|_| below(9).into()) })
                .collect(),
            ..Shape::default()
        };
        let (bytes, made) = generate_bytes(&shape).unwrap();
        every_view_comes_to(made.bpf_samples, &Input::from_bytes("generated", bytes), &format!("{shape:?}"));
    }
}

fn every_view_comes_to(bpf_samples: u64, input: &Input, at: &str) {
    let session = Session::open(input).unwrap();
    let options = Options { threads: Some(2), ..Options::default() };
    let report = session.by_prog(&options).unwrap();
    let [event] = &report.events[..] else { panic!("{at}: {} events", report.events.len()) };
    let total = event.total.count;
    assert_eq!(total.samples, bpf_samples, "{at}");
    let of_line = |line: &Known<Arc<Line>>| line.value().map_or(Count::default(), |line| line.count);
    let rest = of_line(&event.entry_unattributed) + of_line(&event.interpreted);
    let of_row = |row: &Row| row.line.as_ref().map_or(Count::default(), |line| line.count);
    let others = event.others.line.count + event.counting_programs.line.count;
    assert_eq!(event.rows.iter().map(of_row).sum::<Count>() + others + rest, total, "{at}");
    let splits = Split::NAMES.iter().map(|(split, _)| By::from(*split));
    for by in splits {
        let split = session.by_prog(&Options { by: Some(by), ..options.clone() }).unwrap();
        let event = &split.events[0];
        assert_eq!(event.total.count, total, "{by:?} {at}");
        for row in &event.rows {
            let parts: Count = row.parts.iter().flatten().map(|part| part.line.count).sum();
            assert_eq!(parts, of_row(row), "{by:?} {} {at}", row.name);
        }
    }
    for by in [Group::Owner, Group::Name, Group::Type, Group::Hook] {
        let grouped = &session.by_prog(&Options { by: Some(by.into()), ..options.clone() }).unwrap().events[0];
        let in_groups: Count =
            grouped.groups.iter().filter_map(|group| group.line.as_ref()).map(|line| line.count).sum();
        let others = grouped.others.line.count + grouped.counting_programs.line.count;
        assert_eq!((grouped.total.count, in_groups + others + rest), (total, total), "{by:?} {at}");
    }
    let trees = &session.trees(&options, 0.5).unwrap().events[0];
    let in_trees: Count = trees.trees.iter().flat_map(|tree| &tree.nodes).map(|node| node.own).sum();
    assert_eq!(in_trees + trees.others + rest, total, "trees, {at}");
    for key in [Payer::Comm, Payer::Pid, Payer::Cpu, Payer::Cgroup, Payer::Container] {
        let payers = &session.payers(&options, &[key]).unwrap().events[0];
        assert_eq!(payers.payers.iter().map(|payer| payer.count).sum::<Count>(), total, "{key:?} {at}");
        let pairs: Count = payers.rows.iter().map(|pair| pair.count).sum();
        assert_eq!(pairs + payers.others.total.count, total, "{key:?} {at}");
    }
    let over_time = &session.over_time(&options, None).unwrap().events[0];
    assert_eq!(over_time.rows.iter().map(|row| row.total).sum::<Count>(), total, "over time, {at}");
    let in_intervals = |row: &RowOverTime| row.intervals.iter().map(|it| it.count).sum::<Count>() + row.undated;
    assert_eq!(over_time.rows.iter().map(in_intervals).sum::<Count>(), total, "over time, {at}");
    let annotation =
        session.annotate(&AnnotateOptions { query: options.clone(), ..AnnotateOptions::default() }).unwrap();
    let annotated: Count = annotation.programs.iter().map(|program| program.charged.unwrap_or_default()).sum();
    assert_eq!(annotated + rest, total, "annotate, {at}");
    let lines = &session.lines(&options).unwrap().events[0];
    let column = |value: fn(&Columns) -> &Known<Share>| {
        let columns = event.rows.iter().filter_map(|row| row.line.as_ref()?.columns.as_ref());
        columns.filter_map(|columns| value(columns).value()).map(|share| share.count).sum::<Count>()
    };
    assert_eq!(lines.own, column(|columns| &columns.own), "lines, {at}");
    assert_eq!(lines.helper.unwrap_or_default(), column(|columns| &columns.helper), "lines, {at}");
    let in_lines = |count: fn(&LineRow) -> Count| lines.rows.iter().map(count).sum::<Count>();
    assert_eq!(in_lines(|row| row.own) + lines.others.own, lines.own, "lines, {at}");
    assert_eq!(in_lines(|row| row.helper.unwrap_or_default()), lines.helper.unwrap_or_default(), "lines, {at}");
    let (this, all) =
        (std::slice::from_ref(input), DiffOptions { all: true, threads: Some(2), ..DiffOptions::default() });
    let compared = diff(this, this, &all).unwrap();
    let of_side = |side: fn(&MetricDiff) -> &MetricValue| {
        let metrics = compared.programs.iter().flat_map(|program| &program.metrics);
        let samples = metrics.filter(|metric| metric.metric == DiffMetric::Samples);
        samples.map(|metric| side(metric).estimate.value().unwrap().value).sum::<f64>()
    };
    assert_eq!(of_side(|metric| &metric.base) + rest.samples as f64, total.samples as f64, "diff, {at}");
    assert_eq!(of_side(|metric| &metric.new) + rest.samples as f64, total.samples as f64, "diff, {at}");
}

/// The profile has an attribute `host.id` with the id of the machine. The bytes are those of the protobuf messages `KeyValue` (key and value) and
/// `AnyValue` (`string_value`).
#[test]
fn the_host_of_a_profile_is_the_machine() {
    let machine_id = "0123456789abcdef0123456789abcdef";
    let attribute = [b"\x0a\x07host.id\x12\x22\x0a\x20", machine_id.as_bytes()].concat();
    for machine_id in [machine_id, ""] {
        let host = Host { machine_id: machine_id.to_owned(), ..Host::default() };
        let (bytes, _) = generate_bytes(&Shape { record_bytes: 1 << 16, host, ..Shape::default() }).unwrap();
        let input = Input::from_bytes("generated", bytes);
        let mut profile = Vec::new();
        Session::open(&input).unwrap().export(&Options::default(), ExportFormat::Otlp, &mut profile).unwrap();
        let has = |part: &[u8]| profile.windows(part.len()).any(|window| window == part);
        assert_eq!([has(&attribute), has(b"host.id")], [!machine_id.is_empty(); 2]);
    }
}
