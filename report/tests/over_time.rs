//! What programs cost from interval to interval adds up to what they cost, and each interval is what a report of that time says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::{Count, OverTime};
use bprec_report::{Input, Options, Session};
use serde_json::Value;
use std::collections::BTreeMap;
use support::fixtures;

#[test]
fn intervals_add_up_to_the_ledger() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let ledger = session.by_prog(&Options::default()).unwrap();
        for interval_ns in [None, Some(1_000_000), Some(7_777_777)] {
            let report = session.over_time(&Options::default(), interval_ns).unwrap();
            for (event, of_ledger) in report.events.iter().zip(&ledger.events) {
                let at = format!("{} {}", path.display(), event.name);
                assert_eq!(event.name, of_ledger.name);
                assert_eq!(event.total, of_ledger.total.count, "{at}");
                let dated: Count = event.intervals.iter().map(|it| it.count).sum();
                let undated: Count = event.rows.iter().map(|row| row.undated).sum();
                assert_eq!(event.total, dated + undated, "{at}");
                for row in &event.rows {
                    assert_eq!(row.total, row.intervals.iter().map(|it| it.count).sum::<Count>() + row.undated, "{at}");
                    assert!(row.intervals.is_sorted_by_key(|it| it.interval));
                    let Some(program) = row.program else { continue };
                    // Programs that count others are one line of the ledger.
                    let Some(known) = of_ledger.rows.iter().find(|known| known.program == program) else { continue };
                    assert_eq!(row.total, known.line.as_ref().unwrap().count, "{at} {}", row.name);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

/// The samples of an interval are those that a report of that time has, which chooses them by itself.
#[test]
fn an_interval_is_what_a_report_of_that_time_has() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let report = session.over_time(&Options::default(), Some(100_000_000)).unwrap();
    let start_ns = session.by_prog(&Options::default()).unwrap().recording.start_ns;
    let event = &report.events[0];
    assert!(event.intervals.len() > 5);
    for interval in &event.intervals {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let (from_ns, to_ns) = (start_ns + interval.from_ns, start_ns + interval.from_ns + 99_999_999);
        let time = format!("{},{}", seconds(from_ns), seconds(to_ns)).parse().unwrap();
        let part = session.by_prog(&Options { time, ..Options::default() }).unwrap();
        let counts: BTreeMap<usize, Count> = event
            .rows
            .iter()
            .filter_map(|row| {
                let here = row.intervals.iter().find(|it| it.interval == interval.interval)?;
                Some((row.program?, here.count))
            })
            .collect();
        let rows = part.events[0].rows.iter().filter_map(|row| Some((row.program, row.line.as_ref()?.count)));
        let rows: BTreeMap<usize, Count> = rows.filter(|(_, count)| count.samples > 0).collect();
        assert_eq!(counts, rows, "interval {}", interval.interval);
    }
}

fn written(report: &OverTime) -> (String, Value, String) {
    let (mut table, mut json, mut csv) = (Vec::new(), Vec::new(), Vec::new());
    report.write_table(&mut table, usize::MAX).unwrap();
    report.write_json(&mut json).unwrap();
    report.write_csv(&mut csv).unwrap();
    let [table, csv] = [table, csv].map(|text| String::from_utf8(text).unwrap());
    (table, serde_json::from_slice(&json).unwrap(), csv)
}

#[test]
fn table_json_and_csv_say_the_same() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/shortlived.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let report = Session::open(&input).unwrap().over_time(&Options::default(), Some(10_000_000)).unwrap();
    let (table, json, csv) = written(&report);
    let event = &report.events[0];
    let sum = |kind: &str| -> u64 {
        let lines = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let lines = lines.filter(|fields| fields[0] == event.name && fields[1].starts_with(kind));
        lines.map(|fields| fields[7].parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum("total"), event.total.weight);
    assert_eq!(sum("program") + sum("other"), event.total.weight);
    assert_eq!(json["events"][0]["total"]["weight"], event.total.weight);
    assert_eq!(json["events"][0]["rows"].as_array().unwrap().len(), event.rows.len());
    let total = table.lines().find(|line| line.trim_start().starts_with("TOTAL")).unwrap();
    assert!(total.contains('█') && total.contains(&event.total.samples.to_string()), "{total}");
    // A program that came later has no bars before it was loaded.
    let later = event.rows.iter().find(|row| row.loaded.is_some_and(|bound| bound.after_ns > 20_000_000)).unwrap();
    let line = table.lines().find(|line| line.contains(&later.id.unwrap().to_string())).unwrap();
    assert!(line.contains('·'), "{line}");
}
