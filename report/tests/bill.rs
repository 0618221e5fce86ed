//! Bills of owners add up to the samples and to the report by program, in every output and for every recording.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "support/page.rs"]
mod page;
mod support;

use crate::text;
use bprec_report::model::{BillParts, Count, EventBill, EventReport};
use bprec_report::{Document, ExportFormat, Input, Options, Session};
use serde_json::Value;
use support::fixtures;

/// Parts of a bill that do not overlap.
fn parts(of: &BillParts) -> Vec<Count> {
    let (others, own, causes) = (&of.in_others, &of.own_tasks, &of.causes);
    [
        others.own,
        others.helper,
        others.entry,
        own.sum,
        causes.wakeups,
        causes.user_probes,
        causes.kernel_hooks,
        causes.frees,
    ]
    .map(|share| share.count)
    .to_vec()
}

fn lines(event: &EventBill) -> impl Iterator<Item = &BillParts> {
    event
        .owners
        .iter()
        .map(|owner| &owner.parts)
        .chain(event.others.iter().map(|others| &others.parts))
        .chain([&event.unattributed])
}

fn check(event: &EventBill, ledger: &EventReport, at: &str) {
    let sum = |of: fn(&BillParts) -> Count| lines(event).map(of).sum::<Count>();
    assert_eq!(event.total.count, sum(|it| it.count), "{at}");
    for line in lines(event).chain([&event.total]) {
        assert_eq!(line.count, parts(line).into_iter().sum(), "{at}");
        assert!(
            line.own_tasks.bpf_calls.count.samples + line.own_tasks.programs.count.samples
                <= line.own_tasks.sum.count.samples
        );
        let loads = &line.own_tasks.loads;
        let stages = loads.verifier.count.samples + loads.jit.count.samples;
        assert!(stages <= loads.sum.count.samples, "{at}");
        assert!(loads.sum.count.samples <= line.own_tasks.bpf_calls.count.samples, "{at}");
        assert!(line.shared.count.weight <= line.count.weight, "{at}");
        assert_eq!(line.margin_percent.is_some(), line.machine_percent.is_some(), "{at}");
    }
    // Time that samples cannot show adds up in the same way, and is at most that of the report by program.
    let unsampled = |of: &BillParts| of.unsampled.map_or(0, |unsampled| unsampled.time_ns);
    assert_eq!(unsampled(&event.total), lines(event).map(unsampled).sum::<u64>(), "{at}");
    assert!(unsampled(&event.total) <= ledger.unsampled.map_or(0, |unsampled| unsampled.time_ns), "{at}");
    for owner in event.owners.iter().filter(|owner| owner.programs_without_row == 0) {
        let of_programs: u64 = owner.programs.iter().map(|program| unsampled(&program.parts)).sum();
        assert_eq!(unsampled(&owner.parts), of_programs, "{at}: {}", owner.name);
    }
    for (nth, total) in parts(&event.total).into_iter().enumerate() {
        assert_eq!(total, lines(event).map(|line| parts(line)[nth]).sum(), "{at}: part {nth}");
    }
    assert!(event.total.count.samples <= event.samples.samples, "{at}");
    // The costs of programs, in tasks of their owners and in tasks of others, add up to the total of the report by program.
    let of_programs = event.total.in_others.sum.count + event.total.own_tasks.programs.count;
    assert_eq!(of_programs, ledger.total.count, "{at}");
    for owner in &event.owners {
        let programs: Count = owner.programs.iter().map(|program| program.parts.count).sum();
        assert!(programs.weight <= owner.parts.count.weight, "{at}: {}", owner.name);
        let in_others: Count = owner.programs.iter().map(|program| program.parts.in_others.sum.count).sum();
        assert!(in_others.weight <= owner.parts.in_others.sum.count.weight, "{at}: {}", owner.name);
        // An owner without samples has a bill of 0 with a margin.
        if owner.parts.count == Count::default() && event.machine.value().is_some() && event.samples.samples > 0 {
            assert_eq!(owner.parts.machine_percent, Some(0.0), "{at}: {}", owner.name);
            assert!(owner.parts.margin_percent.unwrap() > 0.0, "{at}: {}", owner.name);
        }
    }
}

#[test]
fn bills_add_up_to_the_total() {
    let (mut owners, mut idle, mut own) = (0, 0, 0);
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let ledger = session.by_prog(&Options::default()).unwrap();
        for (options, owner) in [
            (Options::default(), None),
            (Options { limit: Some(1), ..Options::default() }, None),
            (Options::default(), Some("bprec-load*")),
            (Options::default(), Some("nobody")),
        ] {
            let bill = session.bill(&options, owner).unwrap();
            assert_eq!(bill.events.len(), ledger.events.len());
            for (event, of_ledger) in bill.events.iter().zip(&ledger.events) {
                let at = format!("{} {} {owner:?}", path.display(), event.name);
                check(event, of_ledger, &at);
                owners += event.owners.len();
                idle += event.owners.iter().filter(|owner| owner.parts.count == Count::default()).count();
                own += event.total.own_tasks.sum.count.samples;
                assert!(owner != Some("nobody") || event.owners.is_empty(), "{at}");
            }
        }
    }
    assert!(
        owners > 50 && idle > 10 && own > 500,
        "{owners} owners, {idle} without cost, {own} samples in their tasks"
    );
}

#[test]
fn outputs_of_a_bill_say_the_same() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let [one, three] = [1, 3].map(|threads| {
            let options = Options { threads: Some(threads), ..Options::default() };
            session.bill(&options, None).unwrap()
        });
        assert_eq!(one, three, "{}", path.display());
        let csv = text(|out| one.write_csv(out).unwrap());
        let json: Value = serde_json::from_str(&text(|out| one.write_json(out).unwrap())).unwrap();
        let table = text(|out| one.write_table(out, usize::MAX).unwrap());
        let markdown = text(|out| one.write_markdown(out, false).unwrap());
        let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<&str>>());
        let head = rows.next().unwrap();
        let column = |name: &str| head.iter().position(|it| *it == name).unwrap();
        let totals: Vec<Vec<&str>> = rows.filter(|row| row[column("kind")] == "total").collect();
        assert_eq!(totals.len(), one.events.len(), "{}", path.display());
        for ((event, total), of_json) in one.events.iter().zip(totals).zip(json["events"].as_array().unwrap()) {
            let weight = event.total.count.weight.to_string();
            assert_eq!(total[column("weight")], weight, "{}", path.display());
            assert_eq!(of_json["total"]["weight"].to_string(), weight, "{}", path.display());
            for part in ["self", "helper", "entry"] {
                let of_csv = total[column(&format!("{part}_weight"))];
                assert_eq!(of_json["total"]["in_others"][part]["weight"].to_string(), of_csv);
            }
            for (part, name) in
                [("wakeups", "wakeups"), ("user_probes", "user_probes"), ("kernel_hooks", "kernel_hooks")]
            {
                let of_csv = total[column(&format!("{name}_weight"))];
                assert_eq!(of_json["total"]["causes"][part]["weight"].to_string(), of_csv);
            }
            for owner in &event.owners {
                let begin: String = owner.name.chars().take(8).collect();
                assert!(table.lines().any(|line| line.starts_with(&begin)), "{}: {table}", owner.name);
            }
            compared += 1;
        }
        assert_eq!(table.matches("\nTOTAL ").count(), one.events.len(), "{table}");
        assert_eq!(markdown.matches("\n| TOTAL |").count(), one.events.len(), "{markdown}");
    }
    assert!(compared > 10, "{compared}");
}

/// The page and the interactive screen have the cells of the table, and the report with bills has the same bills.
#[test]
fn the_page_and_the_screen_have_the_rows_of_the_bill() {
    let (mut compared, mut shown) = (0, 0);
    for path in fixtures() {
        let at = path.display();
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let options = Options::default();
        let bill = session.bill(&options, None).unwrap();
        let (report, bills) = session.by_prog_with_bills(&options).unwrap();
        assert_eq!(bills, bill.events, "{at}");
        assert_eq!(report, session.by_prog(&options).unwrap(), "{at}");
        let mut html = Vec::new();
        if session.export(&options, ExportFormat::Html, &mut html).is_err() || html.is_empty() {
            continue;
        }
        let data: Value = serde_json::from_slice(&page::data(&html)).unwrap();
        let event = &bill.events[0];
        let markdown = text(|out| bill.write_markdown(out, false).unwrap());
        let table = markdown.lines().filter(|line| line.starts_with('|') && !line.starts_with("| --"));
        let cells = |line: &str| {
            let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().replace('\\', "").replace("**", ""));
            cells.collect::<Vec<String>>()
        };
        let texts = |cells: &Value| {
            let cells = cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap().to_owned());
            cells.collect::<Vec<String>>()
        };
        let sheet = &data["owners"];
        let rows = sheet["rows"].as_array().unwrap().iter().chain(sheet["totals"].as_array().unwrap());
        let of_page: Vec<Vec<String>> = rows.map(texts).collect();
        let names: Vec<String> =
            sheet["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap().into()).collect();
        let expected: Vec<Vec<String>> = table.map(cells).take(of_page.len() + 1).collect();
        assert_eq!(expected[0], names, "{at}: {markdown}");
        assert_eq!(expected[1..], of_page, "{at}: {markdown}");
        assert_eq!(of_page.len(), lines(event).count() + 1, "{at}");
        let screen = bill.listing(usize::MAX);
        assert_eq!(screen.header.split_whitespace().next(), Some("OWNER"), "{at}");
        assert_eq!((screen.rows.len(), screen.totals.len()), (lines(event).count(), 1), "{at}");
        for (row, cells) in screen.rows.iter().map(|row| &row.text).chain(&screen.totals).zip(&of_page) {
            let shown: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
            assert_eq!(shown, cells, "{at}");
        }
        let first = data["first"]["owners"].as_array().unwrap();
        let costs = lines(event).filter(|it| it.machine_percent.is_some_and(|percent| percent >= 0.005)).count();
        assert!(first.len() <= costs && (costs == 0) == first.is_empty(), "{at}: {first:?}");
        let percents = &names.iter().position(|name| name == "%MACHINE");
        for owner in first {
            let row = of_page.iter().find(|row| row[0] == owner["name"]).unwrap();
            assert_eq!(row[percents.unwrap()], owner["text"].as_str().unwrap(), "{at}");
            shown += 1;
        }
        compared += 1;
    }
    assert!(compared > 10 && shown > 10, "{compared} {shown}");
}
