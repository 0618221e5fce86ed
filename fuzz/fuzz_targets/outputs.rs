//! Any bytes as a recording in one of the views or exports, which the first byte chooses: text for people has no control character but the end of
//! a line, CSV neither, and JSON can be parsed.
#![no_main]

use bprec_report::{
    AnnotateOptions, DiffOptions, Document, ExportFormat, Input, MapsOptions, Options, Payer, Session, by_prog, counters, diff, maps,
};
use serde_json::Value;

fn is_text(bytes: Vec<u8>) {
    let text = String::from_utf8(bytes).expect("text is UTF-8");
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}');
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || turns(c)), "{text:?}");
}

fn is_json(bytes: &[u8]) {
    serde_json::from_slice::<Value>(bytes).expect("JSON");
}

fn holds(document: &impl Document) {
    let [mut table, mut json, mut csv] = [const { Vec::new() }; 3];
    document.write_table(&mut table, 100).expect("memory can be written to");
    document.write_json(&mut json).expect("memory can be written to");
    document.write_csv(&mut csv).expect("memory can be written to");
    is_text(table);
    is_json(&json);
    is_text(csv);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use ExportFormat::{Firefox, Folded, Html, Pprof, Speedscope};
    let Some((view, bytes)) = bytes.split_first() else { return };
    let input = Input::from_bytes("fuzz", bytes.to_vec());
    let options = Options { threads: Some(1), ..Options::default() };
    let Ok(session) = Session::open(&input) else { return };
    let export = |format| {
        let mut out = Vec::new();
        session.export(&options, format, &mut out).ok().map(|_| out)
    };
    match view % 15 {
        0 => drop(by_prog(&input, &options).map(|report| holds(&report))),
        1 => drop(counters(&input, &options).map(|report| holds(&report))),
        2 => drop(session.lines(&options).map(|report| holds(&report))),
        3 => {
            let all = Options { programs: "*".parse().into_iter().collect(), ..options.clone() };
            drop(session.annotate(&AnnotateOptions { query: all, ..AnnotateOptions::default() }).map(|report| holds(&report)));
        }
        4 => drop(session.payers(&options, &[Payer::Comm, Payer::Container]).map(|report| holds(&report))),
        5 => drop(session.trees(&options, 0.0).map(|report| holds(&report))),
        6 => drop(session.over_time(&options, None).map(|report| holds(&report))),
        7 => drop(session.advice(&options).map(|report| holds(&report))),
        8 => {
            let side = std::slice::from_ref(&input);
            let options = DiffOptions { all: true, threads: Some(1), ..DiffOptions::default() };
            drop(diff(side, side, &options).map(|report| holds(&report)));
        }
        9 => {
            for json in [false, true] {
                let mut out = Vec::new();
                let written = maps(&input, &MapsOptions { json, ..MapsOptions::default() }, &mut out);
                if written.is_ok() && !out.is_empty() {
                    if json { is_json(&out) } else { is_text(out) }
                }
            }
        }
        10 => drop(export(Folded).map(is_text)),
        11 => drop(export(Speedscope).filter(|out| !out.is_empty()).map(|out| is_json(&out))),
        12 => drop(export(Pprof)),
        13 => drop(export(Firefox)),
        _ => drop(export(Html).map(|page| String::from_utf8(page).expect("a page is UTF-8"))),
    }
});
