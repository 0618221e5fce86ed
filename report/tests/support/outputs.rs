//! Outputs for tests of redaction: the redacted copy of a recording, and all outputs of a recording.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "page.rs"]
mod page;

use std::io::{Cursor, Read};

use bprec_report::{
    AnnotateOptions, Document, ExportFormat, Input, MapsForm, MapsOptions, Options, Payer, Redact, RewriteOptions,
    ScriptOptions, Session, Show, Source, by_prog, counters, diff, header, maps, rewrite, script,
};

/// A redacted copy; `None` if the bytes are not a recording.
pub(crate) fn redacted(bytes: &[u8], what: Redact) -> Option<Vec<u8>> {
    let options = RewriteOptions { redact: Some(what), ..RewriteOptions::default() };
    let mut out = Cursor::new(Vec::new());
    rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).ok()?;
    Some(out.into_inner())
}

/// All outputs of a recording, unpacked.
pub(crate) fn outputs(recording: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let input = Input::from_bytes("recording", recording.to_vec());
    let mut outputs: Vec<(&str, Vec<u8>)> = Vec::new();
    macro_rules! put {
        ($name:literal, $report:expr) => {
            if let Ok(report) = $report {
                let (mut table, mut json, mut csv) = (Vec::new(), Vec::new(), Vec::new());
                report.write_table(&mut table, 200).unwrap();
                report.write_json(&mut json).unwrap();
                report.write_csv(&mut csv).unwrap();
                outputs.extend([
                    (concat!($name, " table"), table),
                    (concat!($name, " JSON"), json),
                    (concat!($name, " CSV"), csv),
                ]);
            }
        };
    }
    let options = Options { all: true, ..Options::default() };
    let session = || Session::open(&input);
    put!("programs", by_prog(&input, &options));
    for by in ["func", "comm", "pid", "cpu", "cgroup", "container", "helper", "owner", "name", "type", "hook"] {
        put!("parts", by_prog(&input, &Options { by: Some(by.parse().unwrap()), ..options.clone() }));
    }
    put!("counters", counters(&input, &options));
    put!("over time", session().and_then(|session| session.over_time(&options, None)));
    put!("lines", session().and_then(|session| session.lines(&options)));
    put!("payers", session().and_then(|session| session.payers(&options, &[Payer::Comm, Payer::Cgroup])));
    put!("bill", session().and_then(|session| session.bill(&options, Some("*"))));
    put!("without", session().and_then(|session| session.without(&options, &["*".to_owned()], &[Payer::Cgroup], None)));
    put!("trees", session().and_then(|session| session.trees(&options, 0.0)));
    put!("advice", session().and_then(|session| session.advice(&options)));
    let side = std::slice::from_ref(&input);
    put!("diff", diff(side, side, &bprec_report::DiffOptions { all: true, ..Default::default() }));
    let query = Options { programs: vec!["*".parse().unwrap()], ..Options::default() };
    let code = AnnotateOptions { query, ..AnnotateOptions::default() };
    put!("code", session().and_then(|session| session.annotate(&code)));
    for form in MapsForm::ALL {
        let mut out = Vec::new();
        if maps(&input, &MapsOptions { form, ..MapsOptions::default() }, &mut out).is_ok() {
            outputs.push(("maps", out));
        }
    }
    outputs.extend(header(&input).map(|header| ("header", header.to_string().into_bytes())));
    let mut out = Vec::new();
    let options = ScriptOptions { show: Show::ALL, ..ScriptOptions::default() };
    script(&mut Source::from_bytes("recording", recording.to_vec()), &options, &mut out).unwrap();
    // A hexadecimal dump breaks words at line ends, so its bytes are checked in the recording itself.
    let is_text = |line: &&[u8]| {
        let start = line.iter().position(|byte| !b" .".contains(byte)).unwrap_or(0);
        let line = line[start..].strip_prefix(b"BPF output: ").unwrap_or(&line[start..]);
        !line.get(..5).is_some_and(|head| head[..4].iter().all(u8::is_ascii_hexdigit) && head[4] == b':')
    };
    let lines: Vec<&[u8]> = out.split(|byte| *byte == b'\n').filter(is_text).collect();
    outputs.push(("script", lines.join(&b'\n')));
    for format in ExportFormat::ALL {
        let mut out = Vec::new();
        if session().and_then(|session| session.export(&Options::default(), format, &mut out)).is_ok() {
            let mut unpacked = Vec::new();
            match format {
                ExportFormat::Html if !out.is_empty() => {
                    unpacked = page::data(&out);
                    unpacked.extend(out);
                }
                _ if out.starts_with(&[0x1f, 0x8b]) => {
                    flate2::read::GzDecoder::new(&out[..]).read_to_end(&mut unpacked).unwrap();
                }
                _ => unpacked = out,
            }
            outputs.push(("export", unpacked));
        }
    }
    outputs
}
