//! A recording in the other byte order gives the same report and the same text. The converter of the byte order
//! shares no code with the reader.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;
mod turning;

use std::io::Cursor;

use bprec_format::{Container, Endian, RecordType};
use bprec_report::{
    By, Document, Fields, Input, Options, RewriteOptions, ScriptOptions, Show, Source, Split, by_prog, header, rewrite,
    script,
};

fn text(bytes: &[u8]) -> String {
    let show = Show::ALL;
    let fields = Fields::parse("comm,pid,tid,cpu,time,period,event,addr,ip,sym,dso,trace,cgroup").unwrap();
    let mut out = Vec::new();
    let options = ScriptOptions { show, fields, ..ScriptOptions::default() };
    let summary = script(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).unwrap();
    format!("{summary:?}\n{}", String::from_utf8(out).unwrap())
}

/// Prints the report as table, JSON and CSV, and with the cost of each program split in every way.
fn reports(bytes: &[u8]) -> String {
    let input = Input::from_bytes("test", bytes.to_vec());
    let mut out = Vec::new();
    let splits = Split::NAMES.iter().map(|(split, _)| Some(By::from(*split)));
    for by in [None].into_iter().chain(splits) {
        let options = Options { by, all: true, ..Options::default() };
        match by_prog(&input, &options) {
            Ok(report) => {
                report.write_table(&mut out, usize::MAX).unwrap();
                report.write_json(&mut out).unwrap();
                report.write_csv(&mut out).unwrap();
            }
            Err(error) => out.extend(error.to_string().into_bytes()),
        }
    }
    String::from_utf8(out).unwrap()
}

/// Returns the recording without compression, because the converter cannot unpack records.
fn uncompressed(bytes: Vec<u8>) -> Vec<u8> {
    let is_compressed = |kind| common::walk(&bytes).is_ok_and(|walk| walk.counts.contains_key(&kind));
    if !is_compressed(RecordType::COMPRESSED) && !is_compressed(RecordType::COMPRESSED2) {
        return bytes;
    }
    let mut out = Cursor::new(Vec::new());
    match rewrite(&mut Source::from_bytes("test", bytes.clone()), &RewriteOptions::default(), &mut out) {
        Ok(_) => out.into_inner(),
        Err(_) => bytes,
    }
}

fn assert_same(name: &str, what: &str, little: &str, big: &str) {
    let differs = little.lines().zip(big.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{name}: {what}");
    assert_eq!(little.len(), big.len(), "{name}: {what}");
}

#[test]
fn the_opposite_byte_order_prints_and_reports_the_same() {
    let (mut compared, mut fixtures) = (0, 0);
    let inputs = common::corpus_files().into_iter().map(|f| (f.name, f.bytes)).chain(common::recordings());
    for (name, bytes) in common::fixtures().into_iter().chain(inputs) {
        if bytes.len() >= 2_000_000 {
            continue;
        }
        let bytes = uncompressed(bytes);
        let (little, big) = match Container::detect(&bytes) {
            Ok(Container::File(Endian::Little)) if bytes.starts_with(b"PERFILE2") && bytes[8] == 104 => {
                let little = turning::without_unknown_features(&bytes);
                let big = turning::turned_file(&little);
                (little, big)
            }
            Ok(Container::Pipe(Endian::Little)) => {
                let big = turning::turned_stream(&bytes);
                (bytes, big)
            }
            _ => continue,
        };
        let big = match big {
            Ok(big) => big,
            Err(unknown) => {
                eprintln!("{name}: not compared, because it contains {unknown}");
                continue;
            }
        };
        assert!(matches!(Container::detect(&big), Ok(Container::File(Endian::Big) | Container::Pipe(Endian::Big))));
        assert_same(&name, "script", &text(&little), &text(&big));
        assert_same(&name, "report", &reports(&little), &reports(&big));
        let headers = [&little, &big].map(|bytes| header(&Input::from_bytes("test", bytes.clone())));
        if let [Ok(little), Ok(big)] = headers {
            assert_same(&name, "header", &little.to_string(), &big.to_string());
        }
        compared += 1;
        fixtures += u32::from(name.starts_with("linux-") || name.starts_with("perf-6.12-"));
    }
    assert!(fixtures >= 5 && compared >= 12, "only {compared} files, {fixtures} of our own programs");
    eprintln!("{compared} recordings print the same in both byte orders");
}
