//! Call chains as exported for other viewers, compared with the report by program of the same samples.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::{Count, FrameKind, Known, Stacks};
use bprec_report::{Input, Options, Session};
use serde_json::Value;
use support::fixtures;

/// Counts of the stacks whose innermost BPF frame belongs to the program `wanted`: first stacks with this frame as leaf, then all others.
fn charged(stacks: &Stacks, wanted: Option<u32>) -> (Count, Count) {
    let (mut own, mut helper) = (Count::default(), Count::default());
    for stack in &stacks.stacks {
        let kinds = stack.frames.iter().rev().map(|frame| &stacks.frames[*frame as usize].kind);
        // Time in a trampoline belongs to the entry code of the program that is attached there, not to the traced program.
        let of_program = |kind: &&FrameKind| matches!(kind, FrameKind::Program { .. } | FrameKind::Image);
        match kinds.enumerate().find(|(_, kind)| of_program(kind)) {
            Some((0, FrameKind::Program { id, .. })) if *id == wanted => own = own + stack.count,
            Some((_, FrameKind::Program { id, .. })) if *id == wanted => helper = helper + stack.count,
            _ => {}
        }
    }
    (own, helper)
}

#[test]
fn stacks_are_those_of_the_ledger() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let report = session.by_prog(&Options::default()).unwrap();
        for event in report.events.iter().filter(|event| event.samples.samples > 0) {
            let of_event = Options { events: vec![event.name.clone()], ..Options::default() };
            let stacks = session.stacks(&of_event).unwrap();
            assert_eq!((stacks.total, stacks.unit), (event.samples, event.unit), "{}", path.display());
            let one = session.stacks(&Options { threads: Some(1), ..of_event }).unwrap();
            assert_eq!(one, stacks, "{}", path.display());
            for row in &event.rows {
                let Some(columns) = row.line.as_ref().and_then(|line| line.columns.as_ref()) else { continue };
                let (Known::Value(own), Known::Value(helper)) = (&columns.own, &columns.helper) else { continue };
                // Two programs with the same id at different times are not distinguished here.
                if report.programs.iter().filter(|program| program.id == row.id).count() == 1 {
                    let at = format!("{}: {}", path.display(), row.name);
                    assert_eq!(charged(&stacks, row.id), (own.count, helper.count), "{at}");
                    compared += u32::from(own.count.samples > 0);
                }
            }
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn only_stacks_through_a_program_are_left() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let report = session.by_prog(&Options::default()).unwrap();
    let row = report.events[0].rows.first().unwrap();
    let columns = row.line.as_ref().unwrap().columns.as_ref().unwrap();
    // Programs of one hook share the cost of entry code. The stacks of this cost belong to no program, so a selection of one program leaves them out.
    let shared = columns.entry_shared.value().unwrap().count;
    assert_ne!(shared, Count::default());
    let inclusive = columns.inclusive.value().unwrap().count;
    let options = Options { programs: vec![row.id.unwrap().to_string().parse().unwrap()], ..Options::default() };
    assert_eq!(session.stacks(&options).unwrap().total + shared, inclusive);
    let nobody = Options { programs: vec!["nobody".parse().unwrap()], ..Options::default() };
    assert_eq!(session.stacks(&nobody).unwrap().total, Count::default());
}

/// The folded form has a line for each stack; speedscope has the same frames and weights.
#[test]
fn formats_have_the_same_stacks() {
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let stacks = Session::open(&input).unwrap().stacks(&Options::default()).unwrap();
        let (mut folded, mut speedscope) = (Vec::new(), Vec::new());
        stacks.write_folded(&mut folded).unwrap();
        stacks.write_speedscope(&mut speedscope).unwrap();
        let folded = String::from_utf8(folded).unwrap();
        assert!(folded.chars().all(|c| c == '\n' || !c.is_control()));
        let speedscope: Value = serde_json::from_slice(&speedscope).unwrap();
        let (frames, profile) = (&speedscope["shared"]["frames"], &speedscope["profiles"][0]);
        // The viewer begins with a view by time, and shows this name above it.
        let name = format!("{} (stacks are summed: Time Order has no meaning)", stacks.event);
        assert_eq!(profile["name"], name, "{}", path.display());
        let samples = profile["samples"].as_array().unwrap().iter().zip(profile["weights"].as_array().unwrap());
        let lines: Vec<String> = samples
            .map(|(sample, weight)| {
                // The folded form separates frames by `;`, so names have `:` instead.
                let name = |frame: &Value| {
                    frames[frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().replace(';', ":")
                };
                let names: Vec<String> = sample.as_array().unwrap().iter().map(name).collect();
                format!("{} {weight}", names.join(";"))
            })
            .collect();
        assert_eq!(folded.lines().collect::<Vec<_>>(), lines, "{}", path.display());
        let total: u64 = profile["weights"].as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!((total, &profile["endValue"]), (stacks.total.weight, &Value::from(stacks.total.weight)));
    }
}

/// Trees of any limited size contain all samples.
#[test]
fn trees_fold_what_is_light() {
    let mut folded = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let stacks = Session::open(&input).unwrap().stacks(&Options::default()).unwrap();
        for max_nodes in [4, 40, 1 << 20] {
            let tree = stacks.tree(max_nodes);
            let at = format!("{}, {max_nodes}", path.display());
            assert_eq!(tree.weight.iter().sum::<u64>(), stacks.total.weight, "{at}");
            assert_eq!(tree.samples.iter().sum::<u64>(), stacks.total.samples, "{at}");
            assert!(tree.parent.len() <= max_nodes + 2, "{at}: {}", tree.parent.len());
            assert!(tree.parent.iter().enumerate().skip(1).all(|(at, parent)| *parent < at as i64), "{at}");
            let is_fold = |frame: &&i64| **frame == stacks.frames.len() as i64;
            let folds = tree.frame.iter().filter(is_fold).count();
            assert!(folds == 0 || max_nodes < 1 << 20, "{at}");
            folded += folds;
        }
    }
    assert!(folded > 100, "{folded}");
}
