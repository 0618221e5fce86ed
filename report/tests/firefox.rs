//! The Firefox Profiler's format, read as its documentation says, beside the stacks and the ledger of the same recording.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::{FrameKind, Known, Stacks};
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

/// Samples by thread and stack, outermost first.
fn samples_by_stack(document: &Value) -> BTreeMap<Vec<String>, u64> {
    let mut stacks = BTreeMap::new();
    for thread in threads(document) {
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

/// The same of the stacks that the other formats have, without the task that each begins with.
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
            assert_eq!(samples_by_stack(&document), expected(&stacks), "{}", path.display());
            let one = exported(&session, &Options { threads: Some(1), ..Options::default() });
            assert!(one == document, "{}: by threads", path.display());
        }
    }
}

/// Rates times the lengths of their intervals are the runs of the ledger.
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
