//! Each share has one base. The heading names the base in the same way in all views. `docs/table.md` lists the headings.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::History;
use bprec_report::{
    AnnotateOptions, By, Detail, DiffOptions, Document, Group, Input, Listing, Options, Payer, Session, Split, diff,
};
use std::collections::BTreeSet;
use std::path::Path;
use support::fixtures;

/// Splits a line into headings. Two or more blanks separate headings.
fn headings(line: &str) -> impl Iterator<Item = &str> {
    line.split("  ").map(str::trim).filter(|heading| !heading.is_empty())
}

/// Headings of shares in the lines of a view: names in capitals with a `%` and without a digit.
fn shares(view: &str) -> BTreeSet<BTreeSet<String>> {
    let is_heading = |line: &&str| {
        !line.starts_with('#')
            && line.contains('%')
            && headings(line)
                .all(|it| !it.contains(|c: char| c.is_lowercase() || c.is_ascii_digit() && !it.starts_with('P')))
    };
    let named = |line: &str| headings(line).filter(|it| it.contains('%')).map(str::to_owned).collect();
    view.lines().filter(is_heading).map(named).collect()
}

fn printed(document: &dyn Fn(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    document(&mut out);
    String::from_utf8(out).unwrap()
}

fn lines(listing: Listing) -> String {
    listing.header
}

/// Every view of a recording.
fn views(input: &Input) -> Vec<String> {
    let session = Session::open(input).unwrap();
    let options = Options::default();
    let mut views = Vec::new();
    for by in [None, Some(By::Group(Group::Owner)), Some(By::Split(Split::Func))] {
        let report = session.by_prog(&Options { by, all: true, ..Options::default() }).unwrap();
        views.push(printed(&|out| report.write_table(out, usize::MAX).unwrap()));
        views.extend((0..report.events.len()).map(|event| lines(report.listing(event, usize::MAX))));
    }
    let payers = session.payers(&options, &[Payer::Comm]).unwrap();
    views.push(printed(&|out| payers.write_table(out, usize::MAX).unwrap()));
    let trees = session.trees(&options, 0.5).unwrap();
    views.push(printed(&|out| trees.write_table(out, usize::MAX).unwrap()));
    let over_time = session.over_time(&options, None).unwrap();
    views.push(printed(&|out| over_time.write_table(out, usize::MAX).unwrap()));
    let counters = session.counters(&options).unwrap();
    views.push(printed(&|out| counters.write_table(out, usize::MAX).unwrap()));
    let hot = session.lines(&options).unwrap();
    views.push(printed(&|out| hot.write_table(out, usize::MAX).unwrap()));
    let annotated =
        session.annotate(&AnnotateOptions { query: options.clone(), ..AnnotateOptions::default() }).unwrap();
    views.push(printed(&|out| annotated.write_table(out, usize::MAX).unwrap()));
    views.extend((0..annotated.programs.len()).flat_map(|program| {
        [
            lines(annotated.functions_listing(program, usize::MAX)),
            lines(annotated.code_listing(program, 0, Detail::Lines, usize::MAX)),
        ]
    }));
    let read = session.read_times_ns();
    if let (Some(first), Some(last)) = (read.first(), read.last()) {
        let interval = session.interval(&options, *first, *last).unwrap();
        views.push(printed(&|out| interval.write_table(out, usize::MAX).unwrap()));
        let mut history = History::default();
        (0..2).for_each(|_| history.push(&interval));
        views.push(lines(interval.listing(0, &history, usize::MAX)));
    }
    views
}

/// Headings that `docs/table.md` has in the first column of its table of shares.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/table.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("Shares\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn a_share_is_of_the_machine_unless_its_heading_says_otherwise() {
    let mut seen = BTreeSet::new();
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let compared = diff(&[Input::open(&path).unwrap()], &[Input::open(&path).unwrap()], &DiffOptions::default());
        let compared = compared.map(|it| printed(&|out| it.write_table(out, usize::MAX).unwrap()));
        for line in views(&input).iter().chain(&compared).flat_map(|view| shares(view)) {
            // Shares of one CPU and of the machine are never in one table.
            let bases = ["MACHINE", "ONE-CPU"].map(|base| line.iter().any(|it| it.ends_with(base)));
            assert_ne!(bases, [true, true], "{line:?}");
            seen.extend(line);
        }
    }
    let mut documented = documented();
    // In these recordings, no sample is charged in an interrupt, so this column is missing.
    assert!(documented.remove("%ROW IN IRQ"));
    assert_eq!(seen, documented);
}
