//! Trees: in every committed recording, parts add up to sums, and functions have the samples that perf counts in them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::collections::BTreeMap;

use bprec_report::model::{Count, NodeKind, Tree, TreeNode};
use bprec_report::{Document, Input, Options, Session, Trees};
use serde_json::Value;
use support::fixtures;

/// Asserts that the samples of a node are its own samples plus those of its direct children.
fn assert_sums(at: &str, tree: &Tree) {
    let own: Count = tree.nodes.iter().map(|node| node.own).sum();
    assert_eq!(own, tree.count, "{at} {}", tree.name);
    for (nth, node) in tree.nodes.iter().enumerate() {
        let below = tree.nodes[nth + 1..].iter().take_while(|below| below.depth > node.depth);
        let children: Count = below.filter(|below| below.depth == node.depth + 1).map(|below| below.inclusive).sum();
        assert_eq!(node.inclusive, node.own + if node.kind == NodeKind::Folded { Count::default() } else { children });
    }
    let top =
        |count: fn(&TreeNode) -> Count| tree.nodes.iter().filter(|node| node.depth == 1).map(count).sum::<Count>();
    assert_eq!(top(|node| node.inclusive), tree.count, "{at} {}", tree.name);
    assert_eq!(top(|node| node.total), tree.total, "{at} {}", tree.name);
}

#[test]
fn trees_add_up_to_the_ledger() {
    let (mut compared, mut folded) = (0, 0);
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        for (limit, percent_limit) in [(None, 0.5), (None, 0.0), (Some(2), 20.0)] {
            let options = Options { limit, threads: Some(1), ..Options::default() };
            let report = session.trees(&options, percent_limit).unwrap();
            let ledger = session.by_prog(&options).unwrap();
            for (event, of_ledger) in report.events.iter().zip(&ledger.events) {
                let at = format!("{} {}", path.display(), event.name);
                let trees: Count = event.trees.iter().map(|tree| tree.count).sum();
                assert_eq!(trees + event.others + event.entry_unattributed + event.interpreted, event.total, "{at}");
                assert_eq!(event.total, of_ledger.total.count, "{at}");
                for tree in &event.trees {
                    let row = of_ledger.rows.iter().find(|row| row.program == tree.program).unwrap();
                    assert_eq!(tree.count, row.line.as_ref().map_or(Count::default(), |line| line.count), "{at}");
                    let total = row.line.as_ref().and_then(|line| line.columns.as_ref()?.inclusive.value());
                    assert_eq!(tree.total, total.map_or(tree.count, |total| total.count), "{at} {}", tree.name);
                    assert_sums(&at, tree);
                    let is_folded = |kind| kind == NodeKind::Folded;
                    folded += tree.nodes.iter().filter(|node| is_folded(node.kind)).count();
                    assert!(percent_limit > 0.0 || !tree.nodes.iter().any(|node| is_folded(node.kind)), "{at}");
                    compared += tree.nodes.len();
                }
            }
            let threads = Options { threads: Some(3), ..options };
            assert_eq!(session.trees(&threads, percent_limit).unwrap(), report, "{}", path.display());
        }
    }
    assert!(compared > 300 && folded > 10, "{compared} {folded}");
}

/// Samples in each function of programs, as perf counted them in the same recording.
fn of_perf(text: &str) -> BTreeMap<String, u64> {
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(symbol) = words.iter().find_map(|word| word.strip_prefix("bpf_prog_")) else { continue };
        let (Some(samples), Some((_, name))) = (words[1].parse::<u64>().ok(), symbol.split_once('_')) else { continue };
        *functions.entry(name.to_owned()).or_default() += samples;
    }
    functions
}

/// The own samples of functions equal those of perf.
#[test]
fn functions_have_what_perf_finds_in_them() {
    let mut compared = 0;
    for name in ["ratio", "twins", "tailcalls", "xdp"] {
        let path = fixtures().into_iter().find(|path| path.ends_with(format!("linux-7.2/{name}.data"))).unwrap();
        let input = Input::open(&path).unwrap();
        let report = Session::open(&input).unwrap().trees(&Options::default(), 0.0).unwrap();
        let mut ours: BTreeMap<String, u64> = BTreeMap::new();
        let nodes = report.events[0].trees.iter().flat_map(|tree| &tree.nodes);
        for node in nodes.filter(|node| node.kind == NodeKind::Function && node.own.samples > 0) {
            *ours.entry(node.name.clone()).or_default() += node.own.samples;
        }
        let expected = of_perf(&std::fs::read_to_string(path.with_extension("perf.txt")).unwrap());
        assert!(!expected.is_empty());
        assert_eq!(ours, expected, "{name}");
        compared += ours.len();
    }
    assert!(compared >= 8, "{compared}");
}

/// The chain of a program on a hook has the costs of the programs that it reaches by tail calls. The costs equal perf's counts. The recording names
/// the program array.
#[test]
fn chains_of_tail_calls_have_what_all_their_programs_have() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/tailcalls.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let report = Session::open(&input).unwrap().trees(&Options::default(), 0.0).unwrap();
    let samples = of_perf(&std::fs::read_to_string(path.with_extension("perf.txt")).unwrap());
    let tree = |name: &str| report.events[0].trees.iter().find(|tree| tree.name == name).unwrap();
    let entry = tree("tail_call_entry");
    let chain = entry.chain.as_ref().unwrap();
    // Samples charged to a program outside its functions, so that perf does not find them: in its entry code, and in code that interrupted it.
    let not_in_functions = |name: &str| {
        let nodes = tree(name).nodes.iter().filter(|node| node.kind != NodeKind::Function);
        nodes.map(|node| node.own.samples).sum::<u64>()
    };
    let mut expected = 0;
    for name in ["tail_call_third", "tail_call_second", "tail_call_first"] {
        let reached = chain.reached.iter().find(|reached| reached.program.name == name).unwrap();
        assert_eq!(reached.count, tree(name).count, "{name}: only one program tail-calls it");
        let [from] = &tree(name).tail_called_from[..] else { panic!("{:?}", tree(name).tail_called_from) };
        assert_eq!(from.program.as_ref().unwrap().name, "tail_call_entry");
        expected += samples[name] + not_in_functions(name);
    }
    expected += samples.get("tail_call_entry").copied().unwrap_or(0) + not_in_functions("tail_call_entry");
    assert_eq!(chain.count.samples, expected);
    assert!(tree("tail_call_first").chain.is_none() && entry.tail_called_from.is_empty());
    let (table, _, csv) = written(&report);
    let line = table.lines().find(|line| line.contains("chain: with tail_call_")).unwrap();
    assert_eq!(line.split_whitespace().next().unwrap().replace(',', ""), chain.count.samples.to_string());
    let record = csv.iter().find(|record| record[1] == "chain").unwrap();
    assert_eq!(record[8], chain.count.samples.to_string());
}

fn written(report: &Trees) -> (String, Value, Vec<Vec<String>>) {
    let (mut table, mut json, mut csv) = (Vec::new(), Vec::new(), Vec::new());
    report.write_table(&mut table, usize::MAX).unwrap();
    report.write_json(&mut json).unwrap();
    report.write_csv(&mut csv).unwrap();
    let [table, csv] = [table, csv].map(|text| String::from_utf8(text).unwrap());
    let csv = csv.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
    (table, serde_json::from_slice(&json).unwrap(), csv)
}

#[test]
fn table_json_and_csv_say_the_same() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let report = Session::open(&input).unwrap().trees(&Options::default(), 0.5).unwrap();
    let (table, json, csv) = written(&report);
    let event = &json["events"][0];
    let mut lines = table.lines().skip_while(|line| !line.contains("%PROGRAM")).skip(1);
    let mut records = csv.iter().skip(1);
    let mut compared = 0;
    for tree in event["trees"].as_array().unwrap() {
        let (line, record) = (lines.next().unwrap(), records.next().unwrap());
        assert!(line.ends_with(&format!("{} ({})", tree["name"].as_str().unwrap(), tree["id"])), "{line}");
        assert_eq!((record[1].as_str(), &record[9]), ("program", &tree["weight"].to_string()));
        for node in tree["nodes"].as_array().unwrap() {
            let (line, record) = (lines.next().unwrap(), records.next().unwrap());
            let cells: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(cells[0].replace(',', ""), node["inclusive"]["samples"].to_string(), "{line}");
            assert_eq!(cells[1], format!("{:.2}", node["program_percent"].as_f64().unwrap()), "{line}");
            assert_eq!(cells[2], format!("{:.2}", node["self_percent"].as_f64().unwrap()), "{line}");
            assert!(line.ends_with(node["name"].as_str().unwrap()));
            assert_eq!(record[1], node["kind"].as_str().unwrap());
            assert_eq!((&record[4], &record[5]), (&node["depth"].to_string(), &node["name"].as_str().unwrap().into()));
            assert_eq!(record[7], node["self"]["weight"].to_string());
            assert_eq!(record[9], node["inclusive"]["weight"].to_string());
            compared += 1;
        }
    }
    let last = csv.last().unwrap();
    assert_eq!((last[1].as_str(), &last[9]), ("total", &event["total"]["weight"].to_string()));
    assert!(compared > 10, "{compared}");
}
