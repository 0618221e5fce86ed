//! Shares of payers add up to the cost of programs, by every key, and each payer's share equals a report of that payer
//! alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use bprec_report::model::{Count, Payers};
use bprec_report::{By, Document, Input, Options, Payer, Session, Split};
use serde_json::Value;
use std::collections::BTreeMap;
use support::fixtures;

const EACH: [Payer; 5] = [Payer::Comm, Payer::Pid, Payer::Cgroup, Payer::Container, Payer::Cpu];

/// Returns all keys of payers, single and combined.
fn keys() -> Vec<Vec<Payer>> {
    let mut keys: Vec<Vec<Payer>> = EACH.iter().map(|key| vec![*key]).collect();
    keys.push(vec![Payer::Comm, Payer::Cgroup]);
    keys.push(EACH.into());
    keys
}

#[test]
fn payers_add_up_to_the_ledger() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let ledger = session.by_prog(&Options::default()).unwrap();
        for keys in keys() {
            for options in [Options::default(), Options { limit: Some(1), ..Options::default() }] {
                let report = session.payers(&options, &keys).unwrap();
                assert_eq!(report.events.len(), ledger.events.len());
                for (event, of_ledger) in report.events.iter().zip(&ledger.events) {
                    let at = format!("{} {} {keys:?}", path.display(), event.name);
                    assert_eq!(event.total.count, of_ledger.total.count, "{at}");
                    assert_eq!(event.samples, of_ledger.samples, "{at}");
                    let pairs: Count = event.rows.iter().map(|row| row.count).sum();
                    assert_eq!(event.total.count, pairs + event.others.total.count, "{at}");
                    assert_eq!(event.total.count, event.payers.iter().map(|row| row.count).sum(), "{at}");
                    // All payers together have at most the samples of the machine.
                    let all: Count = event.payers.iter().map(|row| row.all).sum();
                    assert!(all.samples <= event.samples.samples, "{at}");
                    if options.limit.is_some() {
                        continue;
                    }
                    assert_eq!((event.others.pairs, event.others.total.count), (0, Count::default()));
                    let mut programs: BTreeMap<Option<usize>, Count> = BTreeMap::new();
                    let mut payers = vec![Count::default(); event.payers.len()];
                    for row in &event.rows {
                        assert_eq!(row.payer_percent.is_some(), event.payers[row.payer].all.weight > 0);
                        let sum = programs.entry(row.program).or_default();
                        *sum = *sum + row.count;
                        payers[row.payer] = payers[row.payer] + row.count;
                    }
                    assert_eq!(payers, event.payers.iter().map(|row| row.count).collect::<Vec<_>>(), "{at}");
                    for (program, count) in programs {
                        let Some(program) = program else { continue };
                        let Some(known) = of_ledger.rows.iter().find(|known| known.program == program) else {
                            continue;
                        };
                        assert_eq!(count, known.line.as_ref().unwrap().count, "{at}");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

/// With `--by comm` or another payer key, the parts of a program equal the program's rows in `--payers`, and add up to the program's row.
#[test]
fn parts_of_programs_are_what_payers_pay() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        for (split, payer) in EACH.into_iter().map(|payer| (Split::Payer(payer), payer)) {
            let options = Options { by: Some(By::Split(split)), ..Options::default() };
            let ledger = session.by_prog(&options).unwrap();
            let report = session.payers(&Options::default(), &[payer]).unwrap();
            for (event, of_ledger) in report.events.iter().zip(&ledger.events) {
                let at = format!("{} {} {split}", path.display(), event.name);
                for row in &of_ledger.rows {
                    let mut parts: Vec<(String, Count)> =
                        row.parts.iter().flatten().map(|part| (part.name.clone(), part.line.count)).collect();
                    assert_eq!(
                        row.line.as_ref().map_or(Count::default(), |line| line.count),
                        parts.iter().map(|part| part.1).sum()
                    );
                    // A program that only called another one has no charges.
                    parts.retain(|(_, count)| *count != Count::default());
                    parts.sort();
                    let pairs = event.rows.iter().filter(|pair| pair.program == Some(row.program));
                    let mut pairs: Vec<(String, Count)> =
                        pairs.map(|pair| (event.payers[pair.payer].payer[0].label(), pair.count)).collect();
                    pairs.sort();
                    assert_eq!(parts, pairs, "{at} {}", row.name);
                    compared += parts.len();
                }
            }
        }
    }
    assert!(compared > 400, "{compared}");
}

/// A payer's share equals a report of only its tasks, or its CPU.
#[test]
fn a_payer_is_what_a_report_of_it_has() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        for key in [Payer::Comm, Payer::Cpu] {
            let report = session.payers(&Options::default(), &[key]).unwrap();
            for (nth, event) in report.events.iter().enumerate() {
                for row in &event.payers {
                    let name = row.payer[0].label();
                    let options = match key {
                        // A thread without a name, or with a pattern as name, cannot be selected.
                        Payer::Comm if name.contains([':', '*', '?', '[', '\\']) || name.is_empty() => continue,
                        Payer::Comm => Options { comms: vec![name.clone()], ..Options::default() },
                        _ => Options {
                            cpus: Some(name.trim_start_matches("cpu ").parse().unwrap()),
                            ..Options::default()
                        },
                    };
                    let alone = session.by_prog(&options).unwrap();
                    let at = format!("{} {} {name}", path.display(), event.name);
                    assert_eq!(alone.events[nth].total.count, row.count, "{at}");
                    assert_eq!(alone.events[nth].samples, row.all, "{at}");
                    assert_eq!(alone.events[nth].total.shares.samples, row.payer_percent, "{at}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 40, "{compared}");
}

/// Splits a line into fields; fields that contain a comma are quoted.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

fn written(report: &Payers, width: usize) -> (String, Value, String) {
    let (mut table, mut json, mut csv) = (Vec::new(), Vec::new(), Vec::new());
    report.write_table(&mut table, width).unwrap();
    report.write_json(&mut json).unwrap();
    report.write_csv(&mut csv).unwrap();
    let [table, csv] = [table, csv].map(|text| String::from_utf8(text).unwrap());
    (table, serde_json::from_slice(&json).unwrap(), csv)
}

#[test]
fn table_json_and_csv_say_the_same() {
    let mut compared = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let report = Session::open(&input).unwrap().payers(&Options::default(), &[Payer::Comm, Payer::Cpu]).unwrap();
        let (table, json, csv) = written(&report, usize::MAX);
        let mut csv = csv.lines().skip(1).map(fields);
        let mut table =
            table.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("--"));
        let percent = |value: &Value| value.as_f64().map_or("n/a".into(), |percent| format!("{percent:.2}"));
        for (event, of_model) in json["events"].as_array().unwrap().iter().zip(&report.events) {
            let payers = event["payers"].as_array().unwrap();
            let names = |payer: &Value| [0, 1].map(|key| payer["payer"][key]["name"].as_str().unwrap().to_owned());
            assert!(table.next().unwrap().starts_with("COMM "));
            for row in payers {
                let line = csv.next().unwrap();
                assert_eq!(line[1], "payer");
                assert_eq!(line[4..6], names(row));
                assert_eq!(line[6..8], ["samples", "weight"].map(|name| row[name].to_string()));
                assert_eq!(line[11], row["all"]["weight"].to_string());
                let shown = table.next().unwrap();
                let samples = shown.split_whitespace().rev().find(|cell| cell.replace(',', "") == line[6]);
                assert!(shown.starts_with(&names(row)[0]) && samples.is_some(), "{shown}");
                compared += 1;
            }
            assert!(table.next().unwrap().starts_with("TOTAL"));
            assert!(table.next().unwrap().trim_start().starts_with("ID "));
            for (row, of_model) in event["rows"].as_array().unwrap().iter().zip(&of_model.rows) {
                let line = csv.next().unwrap();
                assert_eq!(line[2], row["id"].as_u64().map_or(String::new(), |id| id.to_string()));
                assert_eq!(line[3], row["name"].as_str().unwrap());
                let payer = &payers[row["payer"].as_u64().unwrap() as usize];
                assert_eq!(line[4..6], names(payer));
                assert_eq!(line[6..8], ["samples", "weight"].map(|name| row[name].to_string()));
                let shown = table.next().unwrap();
                assert!(shown.contains(&names(payer)[0]), "{shown}");
                for share in ["program_percent", "payer_percent"] {
                    let percent = percent(&row[share]);
                    let mark =
                        if of_model.is_estimate && percent != "0.00" && percent != "100.00" { "≈" } else { "" };
                    let cell = format!("{mark}{percent}");
                    assert!(shown.split_whitespace().any(|shown| shown == cell), "{share} {shown}");
                }
                compared += 1;
            }
            assert_eq!(csv.next().unwrap()[1], "others");
            assert_eq!(csv.next().unwrap()[6], event["total"]["samples"].to_string());
            assert!(table.next().unwrap().trim_start().starts_with("TOTAL"));
        }
        assert_eq!(csv.next(), None);
    }
    assert!(compared > 100, "{compared}");
}

/// At usual widths, no line is too long, and all payers with their shares are shown.
#[test]
fn tables_fit_a_terminal() {
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        for keys in [vec![Payer::Comm], vec![Payer::Comm, Payer::Container]] {
            let report = session.payers(&Options::default(), &keys).unwrap();
            for width in [80, 120, 200] {
                let (table, ..) = written(&report, width);
                for line in table.lines() {
                    assert!(line.chars().count() <= width, "{}: {line}", path.display());
                }
                let headers = table.lines().filter(|line| !line.starts_with('#') && line.contains("%PROGRAM ")).count();
                assert_eq!(headers, report.events.len());
            }
        }
    }
}
