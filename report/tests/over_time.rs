//! Costs of programs by interval add up to their total cost, and each interval equals a report of that time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::{Count, OverTime};
use bprec_report::{Document, Input, Options, Session};
use serde_json::Value;
use std::collections::BTreeMap;
use support::fixtures;

#[test]
fn intervals_add_up_to_the_ledger() {
    let (mut compared, mut counted_rows) = (0, 0);
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
                    // bprec's programs that count other programs share one line of the report by program, so they have no row there.
                    let Some(known) = of_ledger.rows.iter().find(|known| known.program == program) else { continue };
                    assert_eq!(row.total, known.line.as_ref().unwrap().count, "{at} {}", row.name);
                    let program = &ledger.programs[program];
                    let runs = program.exact_throughout().map(|exact| exact.runs);
                    let runs = runs.or(program.runs.value().map(|runs| runs.count));
                    let counted = row.counted.value();
                    // Estimates are not compared: run statistics were on only in windows.
                    if program.runs.value().is_none_or(|runs| runs.estimate.is_none()) {
                        assert_eq!(counted.map(|counted| counted.runs), runs, "{at} {}: {:?}", row.name, row.counted);
                    }
                    if let Some(counted) = counted {
                        let sum: u64 = counted.intervals.iter().map(|it| it.runs).sum();
                        assert_eq!(sum, counted.runs, "{at} {}", row.name);
                        assert!(counted.intervals.is_sorted_by_key(|it| it.interval));
                        let time: f64 =
                            counted.intervals.iter().map(|it| it.runs as f64 * it.ns_per_run.unwrap()).sum();
                        let all = counted.runs as f64 * counted.ns_per_run.unwrap_or(0.0);
                        assert!((time - all).abs() <= all * 1e-9, "{at} {}: {time} {all}", row.name);
                        counted_rows += 1;
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100 && counted_rows > 100, "{compared} {counted_rows}");
}

/// With one interval for the whole recording, the time per run equals that of the report by program.
#[test]
fn one_interval_is_the_whole() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let ledger = session.by_prog(&Options::default()).unwrap();
        let report = session.over_time(&Options::default(), Some(1_000_000_000_000)).unwrap();
        for row in report.events.iter().flat_map(|event| &event.rows) {
            let (Some(counted), Some(program)) = (row.counted.value(), row.program) else { continue };
            let program = &ledger.programs[program];
            let [interval] = &counted.intervals[..] else { continue };
            assert_eq!(interval.ns_per_run, counted.ns_per_run);
            let (expected, is_estimate) = match (program.exact_throughout(), program.runs.value()) {
                (Some(exact), _) => (exact.time.value().unwrap().value, exact.is_estimate),
                (None, runs) => (runs.unwrap().ns_per_run.unwrap(), runs.unwrap().estimate.is_some()),
            };
            // The average over intervals is weighted by estimated runs, so it is less exact.
            let tolerance = if is_estimate { 0.05 } else { 1e-9 };
            let found = interval.ns_per_run.unwrap();
            assert!(
                (found - expected).abs() <= expected * tolerance,
                "{} {}: {found} {expected}",
                path.display(),
                row.name
            );
            assert_eq!(interval.is_estimate, is_estimate, "{} {}", path.display(), row.name);
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

/// An interval has the same samples as a report of that time. The report selects its samples independently.
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
        let rows: BTreeMap<usize, Count> = rows.filter(|(_, count)| *count != Count::default()).collect();
        assert_eq!(counts.values().copied().sum::<Count>(), rows.values().copied().sum());
        assert!(counts.keys().eq(rows.keys()), "interval {}: {counts:?} {rows:?}", interval.interval);
        // One report divides a shared cost by the runs of the whole time, the other by the runs of this part.
        for (of_interval, of_part) in counts.values().zip(rows.values()) {
            let at = format!("interval {}: {of_interval:?} {of_part:?}", interval.interval);
            assert!(of_interval.samples.abs_diff(of_part.samples) <= 1, "{at}");
            assert!(of_interval.weight.abs_diff(of_part.weight) <= 2 + of_part.weight / 1000, "{at}");
        }
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
    // A name may contain a comma, so columns are counted from the end.
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let behind = |column: &str| header.len() - header.iter().position(|name| *name == column).unwrap();
    let sum_of = |kind: &str, column: &str| -> u64 {
        let lines = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let lines = lines.filter(|fields| fields[0] == event.name && fields[1].starts_with(kind));
        lines.map(|fields| fields[fields.len() - behind(column)].parse::<u64>().unwrap_or(0)).sum()
    };
    let sum = |kind: &str| sum_of(kind, "weight");
    let runs = event.rows.iter().filter_map(|row| Some(row.counted.value()?.runs));
    assert_eq!(sum_of("program", "runs"), runs.sum::<u64>());
    let in_json = json["events"][0]["rows"].as_array().unwrap().iter();
    assert_eq!(sum_of("program", "runs"), in_json.filter_map(|row| row["counted"]["runs"].as_u64()).sum::<u64>());
    assert_eq!(sum("total"), event.total.weight);
    assert_eq!(sum("program") + sum("other"), event.total.weight);
    assert_eq!(json["events"][0]["total"]["weight"], event.total.weight);
    assert_eq!(json["events"][0]["rows"].as_array().unwrap().len(), event.rows.len());
    let total = table.lines().find(|line| line.trim_start().starts_with("TOTAL")).unwrap();
    assert!(total.contains('█') && total.contains(&event.total.samples.to_string()), "{total}");
    // A program that was loaded later has no bars before its load.
    let later = event.rows.iter().find(|row| row.loaded.is_some_and(|bound| bound.after_ns > 20_000_000)).unwrap();
    let line = table.lines().find(|line| line.contains(&later.id.unwrap().to_string())).unwrap();
    assert!(line.contains('·'), "{line}");
}
