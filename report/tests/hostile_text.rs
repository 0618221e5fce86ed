//! Names, reasons and all other texts of a recording may contain any characters. On a terminal, no output has a control character, an invisible
//! character, or a character that changes the direction of text; JSON and CSV stay valid.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;
#[path = "support/page.rs"]
mod page;

use bprec_format::Container;
use bprec_report::{
    By, Document, ExportFormat, Fields, Group, Input, MapsForm, MapsOptions, Options, Payer, ScriptOptions, Session,
    Show, Source, Split, by_prog, counters, header, maps, printable, script,
};
use flate2::read::GzDecoder;
use std::io::Read;

/// Texts that no output may contain, each with the code point of its first character in hexadecimal. The escape `\u{…}` of each of these characters
/// must occur in some output.
const HOSTILE: [(&str, &str); 8] = [
    ("\u{1b}[2J", "1b"),
    ("\u{7}\r\n", "7"),
    ("\u{7f}\u{8}", "7f"),
    ("\u{9b}1m", "9b"),
    ("\u{202e}", "202e"),
    ("\u{2066}", "2066"),
    ("\u{61c}\u{200f}", "61c"),
    ("\u{2028}", "2028"),
];

/// A generator of numbers that are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % bound.max(1) as u64) as usize
    }
}

/// Overwrites some parts that look like text with hostile text.
fn spoil(bytes: &mut [u8], numbers: &mut Numbers) {
    const TEXT_MIN_BYTES: usize = 5;
    let is_text = |byte: &u8| (b' '..=b'~').contains(byte);
    // After the magic of the file.
    let mut at = 8;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|byte| is_text(byte)).count();
        if len >= TEXT_MIN_BYTES && numbers.below(3) == 0 {
            let (hostile, _) = HOSTILE[numbers.below(HOSTILE.len())];
            let from = at + numbers.below(len - TEXT_MIN_BYTES + 1);
            if hostile.len() <= len {
                let from = from.min(at + len - hostile.len());
                bytes[from..from + hostile.len()].copy_from_slice(hostile.as_bytes());
            }
        }
        at += len + 1;
    }
}

/// Asserts that an output has no special characters except newlines, and tabs before a frame or a part.
fn is_harmless(what: &str, text: &[u8], found: &mut String) {
    let text = std::str::from_utf8(text).unwrap_or_else(|error| panic!("{what}: {error}"));
    for line in text.split('\n') {
        let hostile = line.trim_start_matches('\t').trim_start_matches("# \t").chars().find(|c| {
            let c = u32::from(*c);
            c < 0x20
                || (0x7f..=0x9f).contains(&c)
                || [0x61c, 0x200e, 0x200f, 0x2028, 0x2029, 0xfeff].contains(&c)
                || (0x202a..=0x202e).contains(&c)
                || (0x2066..=0x2069).contains(&c)
        });
        assert_eq!(hostile, None, "{what}: {line:?}");
    }
    found.push_str(text);
}

/// Number of values in a line of CSV, by RFC 4180.
fn values(line: &str) -> usize {
    let mut quoted = false;
    1 + line
        .chars()
        .filter(|c| {
            quoted ^= *c == '"';
            *c == ',' && !quoted
        })
        .count()
}

fn is_csv(what: &str, text: &[u8], found: &mut String) {
    is_harmless(what, text, found);
    let text = std::str::from_utf8(text).unwrap();
    let columns = values(text.lines().next().unwrap_or_default());
    text.lines().for_each(|line| assert_eq!(values(line), columns, "{what}: {line}"));
}

fn is_json(what: &str, text: &[u8], found: &mut String) {
    is_harmless(what, text, found);
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(text);
    assert!(parsed.is_ok(), "{what}: {parsed:?}");
}

/// Prints all outputs of a recording.
fn print(what: &str, bytes: &[u8], numbers: &mut Numbers, found: &mut String) {
    let input = Input::from_bytes("test", bytes.to_vec());
    let splits = Split::NAMES.iter().map(|(split, _)| By::from(*split));
    let groups = Group::NAMES.iter().map(|(group, _)| By::from(*group));
    let by: Vec<Option<By>> = std::iter::once(None).chain(splits.chain(groups).map(Some)).collect();
    let options = Options { by: by[numbers.below(by.len())], all: true, threads: Some(1), ..Options::default() };
    let mut out = Vec::new();
    if let Ok(report) = by_prog(&input, &options) {
        report.write_table(&mut out, [60, 132, usize::MAX][numbers.below(3)]).unwrap();
        is_harmless(what, &out, found);
        out.clear();
        report.write_json(&mut out).unwrap();
        is_json(what, &out, found);
        out.clear();
        report.write_csv(&mut out).unwrap();
        is_csv(what, &out, found);
    }
    if let Ok(report) = counters(&input, &options) {
        out.clear();
        report.write_table(&mut out, usize::MAX).unwrap();
        is_harmless(what, &out, found);
        out.clear();
        report.write_json(&mut out).unwrap();
        is_json(what, &out, found);
        out.clear();
        report.write_csv(&mut out).unwrap();
        is_csv(what, &out, found);
    }
    for form in MapsForm::ALL {
        out.clear();
        if maps(&input, &MapsOptions { form, ..MapsOptions::default() }, &mut out).is_ok() {
            let is_right = match form {
                MapsForm::Json => is_json,
                MapsForm::Csv => is_csv,
                MapsForm::Text | MapsForm::Markdown => is_harmless,
            };
            is_right(what, &out, found);
        }
    }
    let all = Options { threads: Some(1), ..Options::default() };
    if let Ok(advice) = Session::open(&input).and_then(|session| session.advice(&all)) {
        out.clear();
        advice.write_table(&mut out, 80).unwrap();
        is_harmless(what, &out, found);
        out.clear();
        advice.write_json(&mut out).unwrap();
        is_json(what, &out, found);
        out.clear();
        advice.write_csv(&mut out).unwrap();
        is_harmless(what, &out, found);
    }
    let keys = [Payer::Comm, Payer::Cgroup, Payer::Container];
    if let Ok(report) = Session::open(&input).and_then(|session| session.trees(&all, 0.0)) {
        out.clear();
        report.write_table(&mut out, [80, usize::MAX][numbers.below(2)]).unwrap();
        is_harmless(what, &out, found);
        out.clear();
        report.write_json(&mut out).unwrap();
        is_json(what, &out, found);
        out.clear();
        report.write_csv(&mut out).unwrap();
        is_csv(what, &out, found);
    }
    if let Ok(report) = Session::open(&input).and_then(|session| session.payers(&all, &keys)) {
        out.clear();
        report.write_table(&mut out, [80, usize::MAX][numbers.below(2)]).unwrap();
        is_harmless(what, &out, found);
        out.clear();
        report.write_json(&mut out).unwrap();
        is_json(what, &out, found);
        out.clear();
        report.write_csv(&mut out).unwrap();
        is_csv(what, &out, found);
    }
    if let Ok(stacks) = Session::open(&input).and_then(|session| session.stacks(&all)) {
        out.clear();
        stacks.write_folded(&mut out).unwrap();
        is_harmless(what, &out, found);
        out.clear();
        stacks.write_speedscope(&mut out).unwrap();
        is_json(what, &out, found);
    }
    let mut packed = Vec::new();
    let exported = Session::open(&input).and_then(|session| session.export(&all, ExportFormat::Firefox, &mut packed));
    if exported.is_ok() && !packed.is_empty() {
        out.clear();
        GzDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
        is_json(what, &out, found);
    }
    out.clear();
    let is_page = numbers.below(4) == 0;
    if is_page && Session::open(&input).and_then(|session| session.export(&all, ExportFormat::Html, &mut out)).is_ok() {
        is_harmless(what, &out, found);
        // The page has exactly two script elements: the data and the code.
        let ends = String::from_utf8_lossy(&out).matches("</script").count();
        assert!(out.is_empty() || ends == 2, "{what}: {ends}");
        if !out.is_empty() {
            is_json(what, &page::data(&out), found);
        }
    }
    if let Ok(header) = header(&input) {
        is_harmless(what, header.to_string().as_bytes(), found);
    }
    out.clear();
    let fields = Fields::parse(["+state,+trace,+cgroup,+bpf-output", "+addr,+period"][numbers.below(2)]).unwrap();
    let options = ScriptOptions { show: Show::ALL, fields, threads: Some(1), ..ScriptOptions::default() };
    // An error can occur after printed lines.
    let printed = script(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out);
    is_harmless(what, &out, found);
    for said in printed.map(|summary| summary.problems).unwrap_or_else(|error| vec![error.to_string()]) {
        is_harmless(what, printable(&said).as_bytes(), found);
    }
}

#[test]
fn no_text_of_a_recording_steers_a_terminal() {
    const ROUNDS: u64 = 8;
    let recordings: Vec<(String, Vec<u8>)> = common::recordings().into_iter().chain(common::fixtures()).collect();
    let recordings = recordings.iter().filter(|(_, bytes)| Container::detect(bytes).is_ok() && bytes.len() < 400_000);
    let mut found = String::new();
    for (name, bytes) in recordings {
        for round in 0..ROUNDS {
            let mut numbers = Numbers(round);
            let mut spoilt = bytes.clone();
            spoil(&mut spoilt, &mut numbers);
            let before = found.len();
            print(&format!("{name}, round {round}"), &spoilt, &mut numbers, &mut found);
            // `found` keeps each escape once, instead of all outputs.
            let said = found.split_off(before);
            for (_, stands_for) in HOSTILE {
                if said.contains(&format!("\\u{{{stands_for}}}")) && !found.contains(&format!("\\u{{{stands_for}}}")) {
                    found.push_str(&format!("\\u{{{stands_for}}}"));
                }
            }
        }
    }
    for (_, stands_for) in HOSTILE {
        assert!(found.contains(&format!("\\u{{{stands_for}}}")), "no printed text has the escape of {stands_for}");
    }
}
