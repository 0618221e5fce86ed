//! The Firefox Profiler's format, read according to its documentation, compared with the stacks and the report by program of the same recording.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::{FrameKind, Known, Row, Share, Stacks, TimeBound};
use bprec_report::{ExportFormat, Input, Options, Session};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use support::fixtures;

fn exported(session: &Session<'_>, options: &Options) -> Value {
    let mut packed = Vec::new();
    session.export(options, ExportFormat::Firefox, &mut packed).unwrap();
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    assert!(!text.contains(|c: char| c.is_control()), "control characters");
    serde_json::from_str(&text).unwrap()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn threads(document: &Value) -> impl Iterator<Item = &Value> {
    document["threads"].as_array().unwrap().iter()
}

/// Name of the process that has the tracks of programs.
const PROGRAMS: &str = "BPF programs";

/// Samples by stack, outermost frame first, of the selected threads.
fn samples_by_stack(document: &Value, is_asked: impl Fn(&Value) -> bool) -> BTreeMap<Vec<String>, u64> {
    let mut stacks = BTreeMap::new();
    for thread in threads(document).filter(|thread| is_asked(thread)) {
        let name = |function: usize| {
            let text = number(&thread["funcTable"]["name"][function]);
            thread["stringArray"][text].as_str().unwrap().to_owned()
        };
        let frames = |stack: &Value| {
            let mut frames = Vec::new();
            let mut next = stack.as_u64();
            while let Some(at) = next {
                let at = usize::try_from(at).unwrap();
                let frame = number(&thread["stackTable"]["frame"][at]);
                frames.push(name(number(&thread["frameTable"]["func"][frame])));
                next = thread["stackTable"]["prefix"][at].as_u64();
            }
            frames.reverse();
            frames
        };
        let samples = &thread["samples"];
        for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(samples["weight"].as_array().unwrap()) {
            *stacks.entry(frames(stack)).or_default() += weight.as_u64().unwrap();
        }
    }
    stacks
}

/// The same sums from the stacks of the other formats, without their first frame, the task.
fn expected(stacks: &Stacks) -> BTreeMap<Vec<String>, u64> {
    let mut expected = BTreeMap::new();
    for stack in &stacks.stacks {
        let frames = stack.frames.iter().map(|frame| &stacks.frames[*frame as usize]);
        let frames = frames.filter(|frame| frame.kind != FrameKind::Task).map(|frame| frame.label());
        *expected.entry(frames.collect()).or_default() += stack.count.samples;
    }
    expected
}

#[test]
fn it_has_the_stacks_of_the_other_formats() {
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let stacks = session.stacks(&Options::default()).unwrap();
        if stacks.total.samples > 0 {
            let document = exported(&session, &Options::default());
            let tasks = samples_by_stack(&document, |thread| thread["processName"] != PROGRAMS);
            assert_eq!(tasks, expected(&stacks), "{}", path.display());
            let one = exported(&session, &Options { threads: Some(1), ..Options::default() });
            assert!(one == document, "{}: by threads", path.display());
        }
    }
}

/// Rate times length, added up over all intervals of a program, gives the program's runs in the report.
#[test]
fn runs_over_time_add_up() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let report = session.by_prog(&Options::default()).unwrap();
        let document = exported(&session, &Options::default());
        let mut runs: BTreeMap<String, f64> = BTreeMap::new();
        for thread in threads(&document) {
            let markers = &thread["markers"];
            for (at, data) in markers["data"].as_array().unwrap().iter().enumerate() {
                if let Some(rate) = data["runsPerSecond"].as_f64() {
                    let time = |column: &str| markers[column][at].as_f64().unwrap();
                    let name = thread["name"].as_str().unwrap().to_owned();
                    *runs.entry(name).or_default() += rate * (time("endTime") - time("startTime")) / 1e3;
                }
            }
        }
        for row in report.events.iter().take(1).flat_map(|event| &event.rows) {
            let program = &report.programs[row.program];
            let label = program.label_with_id();
            let twins = report.programs.iter().filter(|other| other.id == program.id).count();
            let (Known::Value(counted), Some(sum)) = (&program.runs, runs.get(&label)) else { continue };
            if twins == 1 && counted.estimate.is_none() {
                let difference = (sum - counted.count as f64).abs();
                assert!(difference < 0.01 + 1e-6 * sum, "{}: {label}: {sum} {}", path.display(), counted.count);
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared}");
}

/// A program's life reaches from its load to its unload. A missing load or unload is the start or the end of the recording.
#[test]
fn lives_have_both_ends() {
    let (mut whole, mut loaded) = (0, 0);
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let report = session.by_prog(&Options::default()).unwrap();
        if report.events.iter().all(|event| event.samples.samples == 0) {
            continue;
        }
        let document = exported(&session, &Options::default());
        let end_ms = report.recording.elapsed_ns.unwrap() as f64 / 1e6;
        for thread in threads(&document).filter(|thread| thread["processName"] == PROGRAMS) {
            let markers = &thread["markers"];
            for (at, data) in markers["data"].as_array().unwrap().iter().enumerate() {
                if data["type"] != "BPF program" {
                    continue;
                }
                let text = |value: &Value| thread["stringArray"][number(value)].as_str().unwrap().to_owned();
                let label = text(&markers["name"][at]);
                let same = report.programs.iter().filter(|program| program.label_with_id() == label);
                let &[program] = &same.collect::<Vec<_>>()[..] else { continue };
                let ms = |column: &str| markers[column][at].as_f64().unwrap();
                let bound =
                    |bound: &Option<TimeBound>, or: f64| bound.map_or(or, |it| it.before_ns.max(0) as f64 / 1e6);
                let (from, to) = (bound(&program.loaded, 0.0), bound(&program.unloaded, end_ms));
                let is_near = |a: f64, b: f64| (a - b).abs() < 1e-3;
                assert!(is_near(ms("startTime"), from) && is_near(ms("endTime"), to), "{}: {label}", path.display());
                whole += u32::from(program.loaded.is_none() && program.unloaded.is_none());
                loaded += u32::from(program.loaded.is_some());
            }
        }
    }
    assert!(whole > 20 && loaded > 5, "{whole} {loaded}");
}

/// The viewer opens with the most expensive program, whose track has the samples in the program and in its callees.
#[test]
fn it_opens_on_the_costliest_program() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let document = exported(&session, &Options::default());
    let report = session.by_prog(&Options::default()).unwrap();
    let event = &report.events[0];
    let inside = |row: &Row| {
        let samples = |share: &Known<Share>| share.value().map_or(0, |share| share.count.samples);
        let columns = row.line.as_ref().unwrap().columns.as_ref().unwrap();
        samples(&columns.inclusive) - samples(&columns.entry)
    };
    let costliest = event.rows.iter().max_by_key(|row| inside(row)).unwrap();
    let selected = number(&document["meta"]["initialSelectedThreads"][0]);
    let thread = &document["threads"][selected];
    assert_eq!(thread["name"], report.programs[costliest.program].label_with_id());
    for row in event.rows.iter().filter(|row| inside(row) > 0) {
        let label = report.programs[row.program].label_with_id();
        let stacks = samples_by_stack(&document, |thread| thread["name"] == label.as_str());
        assert_eq!(stacks.values().sum::<u64>(), inside(row), "{label}");
        assert!(stacks.keys().all(|frames| frames[0].starts_with(&format!("bpf:{label}"))), "{label}: {stacks:?}");
    }
    let visible = document["meta"]["initialVisibleThreads"].as_array().unwrap();
    let with_programs = visible.iter().filter(|at| document["threads"][number(at)]["processName"] == PROGRAMS);
    assert!(visible.len() < 24 && with_programs.count() > 4, "{visible:?}");
}
