//! True if all outputs of a recording have the same totals, for tests and for the fuzzers.

use std::io::Read;

use bprec_report::model::Count;
use bprec_report::{Document, ExportFormat, Input, Options, Session, by_prog};
use flate2::read::GzDecoder;
use serde_json::Value;

fn sum(values: &Value) -> u128 {
    values.as_array().unwrap().iter().map(|value| u128::from(value.as_u64().unwrap())).sum()
}

/// Reads a varint.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Fields of a message in protobuf's format that hold bytes: each number and what it holds. Numbers are passed over.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => drop(varint(&mut bytes)),
            2 => {
                let len = usize::try_from(varint(&mut bytes)).unwrap();
                let (field, rest) = bytes.split_at(len);
                found.push((key >> 3, field));
                bytes = rest;
            }
            other => panic!("a field of type {other}"),
        }
    }
    found
}

/// Sums over all samples of a profile, whose values are samples and weight.
fn pprof_totals(packed: &[u8]) -> (u128, u128) {
    let mut profile = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut profile).unwrap();
    let mut totals = (0, 0);
    for (_, sample) in fields(&profile).into_iter().filter(|(number, _)| *number == 2) {
        for (_, mut values) in fields(sample).into_iter().filter(|(number, _)| *number == 2) {
            totals.0 += u128::from(varint(&mut values));
            totals.1 += u128::from(varint(&mut values));
            assert!(values.is_empty());
        }
    }
    totals
}

/// JSON and CSV have the totals that the report has, and all exports those of the stacks; whether there was something to compare. That both
/// totals are one is another test's (`stacks.rs`): of a damaged sample, a stack may be what cannot be read.
pub(crate) fn totals_agree(about: &str, input: &Input) -> bool {
    let options = Options { threads: Some(1), ..Options::default() };
    let Ok(report) = by_prog(input, &options) else { return false };
    let (mut json, mut csv) = (Vec::new(), Vec::new());
    report.write_json(&mut json).unwrap();
    report.write_csv(&mut csv).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let lines: Vec<&str> = csv.lines().filter(|line| line.contains(",samples,,,,,,,")).collect();
    let events = json["events"].as_array().unwrap();
    assert_eq!(events.len(), report.events.len(), "{about}");
    for (event, of_json) in report.events.iter().zip(events) {
        let Count { samples, weight } = event.samples;
        assert_eq!((&of_json["samples"]["samples"], &of_json["samples"]["weight"]), (&samples.into(), &weight.into()));
        let line = format!(",samples,,,,,,,{samples},{weight},");
        assert!(lines.iter().any(|it| it.contains(&line)), "{about}: {line} is not in the CSV\n{csv}");
    }
    let session = Session::open(input).unwrap();
    let Ok(stacks) = session.stacks(&options) else { return false };
    let (samples, weight) = (u128::from(stacks.total.samples), u128::from(stacks.total.weight));
    let mut text = Vec::new();
    stacks.write_folded(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let of_line = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u128>().unwrap();
    if weight == u128::from(u64::MAX) {
        // More than can be counted.
        return samples > 0;
    }
    assert_eq!(text.lines().map(of_line).sum::<u128>(), weight, "{about}: folded");
    let export = |format: ExportFormat| {
        let mut out = Vec::new();
        session.export(&options, format, &mut out).ok().filter(|_| !out.is_empty()).map(|_| out)
    };
    if let Some(speedscope) = export(ExportFormat::Speedscope) {
        let speedscope: Value = serde_json::from_slice(&speedscope).unwrap();
        assert_eq!(sum(&speedscope["profiles"][0]["weights"]), weight, "{about}: speedscope");
    }
    if let Some(pprof) = export(ExportFormat::Pprof) {
        // Its numbers have a sign.
        let in_range = if weight <= i64::MAX as u128 { weight } else { pprof_totals(&pprof).1 };
        assert_eq!(pprof_totals(&pprof), (samples, in_range), "{about}: pprof");
    }
    if let Some(packed) = export(ExportFormat::Firefox) {
        let mut text = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut text).unwrap();
        let document: Value = serde_json::from_slice(&text).unwrap();
        let threads = document["threads"].as_array().unwrap();
        // Tracks of programs repeat the samples of the tasks that they ran in.
        let tasks = threads.iter().filter(|thread| thread["processName"] != "BPF programs");
        let shown: u128 = tasks.map(|thread| sum(&thread["samples"]["weight"])).sum();
        assert_eq!(shown, samples, "{about}: firefox");
    }
    if let Some(page) = export(ExportFormat::Html) {
        let page = String::from_utf8(page).unwrap();
        let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script").unwrap().0;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(
            (sum(&data["stacks"]["samples"]), sum(&data["stacks"]["weight"])),
            (samples, weight),
            "{about}: html"
        );
    }
    samples > 0
}
