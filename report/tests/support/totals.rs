//! Checks that all outputs of a recording have the same totals, for tests and for the fuzzers.

#[path = "page.rs"]
mod page;

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

/// Fields of a protobuf message that hold bytes, each with its field number. Numeric fields are skipped.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => drop(varint(&mut bytes)),
            1 => bytes = &bytes[8..],
            2 => {
                let len = usize::try_from(varint(&mut bytes)).unwrap();
                let (field, rest) = bytes.split_at(len);
                found.push((key >> 3, field));
                bytes = rest;
            }
            other => panic!("the test does not know fields of type {other}"),
        }
    }
    found
}

/// Sums over all samples of a pprof profile: number of samples, and weight.
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

/// Totals of the two profiles in an OTLP message: of weights and of samples.
fn otlp_totals(message: &[u8]) -> Vec<u128> {
    let below = |message, wanted| fields(message).into_iter().filter(move |(number, _)| *number == wanted);
    let profiles =
        below(message, 1).flat_map(|(_, resource)| below(resource, 2)).flat_map(|(_, scope)| below(scope, 2));
    let value = |sample| below(sample, 4).map(|(_, mut values)| u128::from(varint(&mut values))).sum::<u128>();
    profiles.map(|(_, profile)| below(profile, 2).map(|(_, sample)| value(sample)).sum()).collect()
}

/// Asserts that JSON and CSV have the totals of the report, and all exports the totals of the stacks. Returns true if there are samples to compare.
/// The two totals can differ, because the stack of a damaged sample may be unreadable. `stacks.rs` compares them for whole recordings.
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
        // The total is at the limit of its counter, so the sums over outputs may be larger.
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
        // Numbers in pprof are signed, so a weight beyond their range is not compared.
        let in_range = if weight <= i64::MAX as u128 { weight } else { pprof_totals(&pprof).1 };
        assert_eq!(pprof_totals(&pprof), (samples, in_range), "{about}: pprof");
    }
    if let Some(otlp) = export(ExportFormat::Otlp) {
        let totals = otlp_totals(&otlp);
        let in_range = if weight <= i64::MAX as u128 { weight } else { totals[0] };
        assert_eq!(totals, [in_range, samples], "{about}: otlp");
    }
    if let Some(packed) = export(ExportFormat::Firefox) {
        let mut text = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut text).unwrap();
        let document: Value = serde_json::from_slice(&text).unwrap();
        let threads = document["threads"].as_array().unwrap();
        // Tracks of programs repeat the samples of the tasks in which the programs ran.
        let tasks = threads.iter().filter(|thread| thread["processName"] != "BPF programs");
        let shown: u128 = tasks.map(|thread| sum(&thread["samples"]["weight"])).sum();
        assert_eq!(shown, samples, "{about}: firefox");
    }
    if let Some(page) = export(ExportFormat::Html) {
        let data: Value = serde_json::from_slice(&page::data(&page)).unwrap();
        assert_eq!(
            (sum(&data["stacks"]["samples"]), sum(&data["stacks"]["weight"])),
            (samples, weight),
            "{about}: html"
        );
    }
    samples > 0
}
