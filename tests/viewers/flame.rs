//! Flame graphs of the page: the widths of boxes are the sums of folded stacks, also for a selected part of the time.

use super::{bprec, repository, succeed, texts};
use serde_json::Value;
use std::collections::BTreeMap;

/// Stacks, outermost frame first, with their weights.
type Folded<'f> = Vec<(Vec<&'f str>, f64)>;

/// Depth, name and share of a box. Boxes of less than half a pixel are not drawn, so small shares are left out.
type Shares = Vec<(usize, String, f64)>;

fn stacks(folded: &str) -> Folded<'_> {
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(frames, weight)| (frames.split(';').collect(), weight.parse().unwrap())).collect()
}

fn sorted(mut shares: Shares) -> Shares {
    shares.retain(|(depth, _, share)| *depth > 0 && *share > 0.001);
    shares.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)).then(a.2.total_cmp(&b.2)));
    shares
}

/// Shares of the frames of these stacks, whose first frame has the depth 1.
fn shares<'f>(paths: impl Iterator<Item = (Vec<&'f str>, f64)>) -> Shares {
    let (mut sums, mut whole) = (BTreeMap::<Vec<&str>, f64>::new(), 0.0);
    for (path, weight) in paths {
        (1..=path.len()).for_each(|end| *sums.entry(path[..end].to_vec()).or_default() += weight);
        whole += weight;
    }
    let shares = sums.into_iter().map(|(path, weight)| (path.len(), path[path.len() - 1].to_owned(), weight / whole));
    sorted(shares.collect())
}

/// Shares of drawn boxes; `depth` converts a row. Names in folded stacks have a colon in place of a semicolon.
fn drawn(boxes: &Value, depth: impl Fn(usize) -> Option<usize>) -> Shares {
    let boxes = boxes.as_array().unwrap().iter().filter_map(|it| {
        let row = depth(it["row"].as_u64().unwrap() as usize)?;
        Some((row, it["name"].as_str().unwrap().replace(';', ":"), it["share"].as_f64().unwrap()))
    });
    sorted(boxes.collect())
}

fn assert_same(drawn: &Shares, expected: &Shares, recording: &str) {
    assert_eq!(drawn.len(), expected.len(), "{recording}");
    for (a, b) in drawn.iter().zip(expected) {
        assert!((a.0, &a.1) == (b.0, &b.1) && (a.2 - b.2).abs() < 1e-6, "{recording}: {a:?} {b:?}");
    }
}

/// Asserts that the widths of boxes equal the sums of folded stacks, also in the graph that shows one function between its callers and callees.
pub(super) fn graph(seen: &Value, folded: &str, recording: &str) {
    let stacks = stacks(folded);
    assert_same(&drawn(&seen["boxes"], Some), &shares(stacks.iter().cloned()), recording);
    assert_eq!(seen["not_painted"], Value::Array(Vec::new()), "{recording}");

    let function = seen["sandwich_hash"].as_str().unwrap();
    assert!(seen["focused_below"].as_str().unwrap().starts_with(&format!("{function}: ")), "{recording}");
    let with = || {
        stacks.iter().filter_map(|(path, weight)| Some((path, path.iter().position(|it| *it == function)?, *weight)))
    };
    let boxes = seen["sandwich"].as_array().unwrap();
    let middle = boxes.iter().find(|it| it["name"] == function && it["share"] == 1).unwrap();
    let middle = middle["row"].as_u64().unwrap() as usize;
    let callees = shares(with().map(|(path, at, weight)| (path[at..].to_vec(), weight)));
    assert_same(&drawn(&seen["sandwich"], |row| (row + 1).checked_sub(middle)), &callees, recording);
    let callers = shares(with().map(|(path, at, weight)| (path[..=at].iter().rev().copied().collect(), weight)));
    assert_same(&drawn(&seen["sandwich"], |row| (middle + 1).checked_sub(row)), &callers, recording);
}

/// Asserts that both flame graphs of a selected part of the time have the samples that `--time` selects.
pub(super) fn of_time(chosen: &Value, recording: &str) {
    let [from, to] = [0, 1].map(|at| chosen["time"][at].as_f64().unwrap());
    // The end of an interval is not a part of it, but `--time` includes both ends.
    let time = format!("{from:.9},{:.9}", to - 1e-9);
    let asked = |arguments: &[&str]| {
        let output = succeed(bprec().args(arguments).args(["--time", &time, "-i"]).arg(repository().join(recording)));
        String::from_utf8(output.stdout).unwrap()
    };
    let folded = asked(&["export", "--to", "folded"]);
    let stacks = stacks(&folded);
    assert!(stacks.len() > 10, "{recording}: {} stacks from {time} s", stacks.len());
    assert_same(&drawn(&chosen["boxes"], Some), &shares(stacks.into_iter()), recording);

    // The page and `report --payers` show the same tax of each payer, as a share of the payer's own samples.
    let payers: Value = serde_json::from_str(&asked(&["report", "--payers", "--json"])).unwrap();
    let payers = payers["events"][0]["payers"].as_array().unwrap();
    let rows = chosen["pays"].as_array().unwrap().iter().map(texts).filter(|cells| !cells[3].is_empty());
    let mut compared = 0;
    for cells in rows.filter(|cells| !cells[0].contains(" more")) {
        let is_it = |payer: &&Value| cells[0].starts_with(payer["payer"][0]["name"].as_str().unwrap());
        let Some(payer) = payers.iter().find(is_it) else { continue };
        assert_eq!(cells[3], format!("{:.1} %", payer["payer_percent"].as_f64().unwrap()), "{recording}: {cells:?}");
        compared += 1;
    }
    assert!(compared > 0, "{recording}: {payers:?}");

    // The graph of the costliest program. A node whose name begins with `…` stands for several small nodes.
    let inward = texts(&chosen["inward"]);
    let (name, _) = inward[0].rsplit_once(": ").unwrap();
    let trees: Value = serde_json::from_str(&asked(&["report", "--tree", "--percent-limit", "0", "--json"])).unwrap();
    let mut trees = trees["events"][0]["trees"].as_array().unwrap().iter();
    let tree = trees.find(|tree| name.starts_with(tree["name"].as_str().unwrap())).unwrap();
    let nodes = tree["nodes"].as_array().unwrap();
    assert!(inward.len() > 1, "{recording}: {inward:?}");
    for title in &inward[1..] {
        let is_it = |node: &Value| {
            let (name, percent) = (node["name"].as_str().unwrap(), node["program_percent"].as_f64().unwrap());
            // The page names this part as the legend of the costs does.
            let name = if name == "(entry)" { "what runs it" } else { name };
            *title == format!("{name}: {percent:.2} % of the program")
        };
        assert!(nodes.iter().any(is_it) || title.starts_with('…'), "{recording}: {title}: {nodes:?}");
    }
}
