//! Writes any bytes as a recording in a view or export, chosen by the first byte. Text output and CSV have no control characters except line
//! ends, JSON can be parsed, and all outputs have the same totals.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;
#[path = "../../report/tests/support/totals.rs"]
mod totals;

use bprec_report::{
    AnnotateOptions, DiffOptions, Document, ExportFormat, Input, MapsForm, MapsOptions, Options, Payer, Result,
    ScriptOptions, Session, Show, Source, by_prog, counters, diff, header, maps, script,
};
use limits::within_limits;
use serde_json::Value;
use totals::totals_agree;

/// Output by format; each format has its own rules.
enum Written {
    Text(Vec<u8>),
    Json(Vec<u8>),
    Page(Vec<u8>),
    Packed,
}

/// Returns true for characters that a terminal interprets or does not show: control characters, and characters that change the direction
/// of text or have no width.
fn is_steering(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    c.is_control()
        || is_mark
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}

impl Written {
    fn check(self) {
        match self {
            Written::Text(bytes) => {
                let text = String::from_utf8(bytes).expect("text is UTF-8");
                // Continuation lines of records and of the header start with tabs, as in perf.
                let content = |line: &'_ str| line.trim_start_matches('\t').trim_start_matches("# \t").to_owned();
                let mut lines = text.split('\n').map(content);
                assert!(!lines.any(|line| line.chars().any(is_steering)), "{text:?}");
            }
            Written::Json(bytes) => drop(serde_json::from_slice::<Value>(&bytes).expect("JSON")),
            Written::Page(bytes) => drop(String::from_utf8(bytes).expect("a page is UTF-8")),
            Written::Packed => {}
        }
    }
}

fn forms(document: &impl Document) -> Vec<Written> {
    let [mut table, mut json, mut csv] = [const { Vec::new() }; 3];
    document.write_table(&mut table, 100).expect("writing to memory does not fail");
    document.write_json(&mut json).expect("writing to memory does not fail");
    document.write_csv(&mut csv).expect("writing to memory does not fail");
    vec![Written::Text(table), Written::Json(json), Written::Text(csv)]
}

/// Writes one of the views or exports of a recording.
fn write(view: u8, bytes: &[u8]) -> Result<Vec<Written>> {
    use ExportFormat::{Firefox, Folded, Html, Otlp, Pprof, Speedscope};
    if view == 14 {
        return write_records(bytes);
    }
    let input = Input::from_bytes("fuzz", bytes.to_vec());
    let options = Options { threads: Some(1), ..Options::default() };
    let session = Session::open(&input)?;
    let export = |format| {
        let mut out = Vec::new();
        session.export(&options, format, &mut out).map(|_| out)
    };
    Ok(match view {
        0 => forms(&by_prog(&input, &options)?),
        1 => forms(&counters(&input, &options)?),
        2 => forms(&session.lines(&options)?),
        3 => {
            let all = Options { programs: "*".parse().into_iter().collect(), ..options.clone() };
            forms(&session.annotate(&AnnotateOptions { query: all, ..AnnotateOptions::default() })?)
        }
        4 => forms(&session.payers(&options, &[Payer::Comm, Payer::Container])?),
        5 => forms(&session.trees(&options, 0.0)?),
        6 => forms(&session.over_time(&options, None)?),
        7 => forms(&session.advice(&options)?),
        8 => {
            let side = std::slice::from_ref(&input);
            let options = DiffOptions { all: true, threads: Some(1), ..DiffOptions::default() };
            forms(&diff(side, side, &options)?)
        }
        9 => {
            let [mut text, mut json] = [const { Vec::new() }; 2];
            maps(&input, &MapsOptions::default(), &mut text)?;
            maps(&input, &MapsOptions { form: MapsForm::Json, ..MapsOptions::default() }, &mut json)?;
            let json = (!json.is_empty()).then_some(Written::Json(json));
            [Written::Text(text)].into_iter().chain(json).collect()
        }
        10 => vec![Written::Text(export(Folded)?)],
        11 => {
            let out = export(Speedscope)?;
            (!out.is_empty()).then_some(Written::Json(out)).into_iter().collect()
        }
        12 => export(Pprof).and(export(Firefox)).and(export(Otlp)).map(|_| vec![Written::Packed])?,
        _ => vec![Written::Page(export(Html)?)],
    })
}

/// Writes every record as a line, and the header.
fn write_records(bytes: &[u8]) -> Result<Vec<Written>> {
    let mut text = Vec::new();
    let options = ScriptOptions { show: Show::ALL, threads: Some(1), ..ScriptOptions::default() };
    // On an error, the text before it is still checked.
    let _ = script(&mut Source::from_bytes("fuzz", bytes.to_vec()), &options, &mut text);
    let header = header(&Input::from_bytes("fuzz", bytes.to_vec()))?.to_string().into_bytes();
    Ok(vec![Written::Text(text), Written::Text(header)])
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((view, bytes)) = bytes.split_first() else { return };
    match view % 16 {
        15 => drop(totals_agree("fuzz", &Input::from_bytes("fuzz", bytes.to_vec()))),
        view => {
            let written = within_limits("fuzz", bytes.len(), || write(view, bytes));
            written.into_iter().flatten().for_each(Written::check);
        }
    }
});
