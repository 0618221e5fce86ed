//! Reads any bytes as a recording, and writes lines of all records, all records in hexadecimal, and reports of programs, counters and maps in every
//! output format.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_report::{
    AnnotateOptions, Document, Input, MapsForm, MapsOptions, Options, ScriptOptions, Session, Show, Source, by_prog,
    counters, header, maps, script,
};
use limits::within_limits;

fn check(bytes: &[u8]) {
    let show = Show {
        task: true,
        mmap: true,
        switch: true,
        namespace: true,
        cgroup: true,
        lost: true,
        throttle: true,
        bpf: true,
    };
    let options = ScriptOptions { show, ..ScriptOptions::default() };
    let _ = script(&mut Source::from_bytes("fuzz", bytes.to_vec()), &options, &mut std::io::sink());
    let input = Input::from_bytes("fuzz", bytes.to_vec());
    let _ = header(&input);
    if let Ok(report) = by_prog(&input, &Options { threads: Some(1), ..Options::default() }) {
        let _ = report.write_table(&mut std::io::sink(), 200);
        let _ = report.write_json(&mut std::io::sink());
        let _ = report.write_csv(&mut std::io::sink());
    }
    if let Ok(report) = counters(&input, &Options::default()) {
        let _ = report.write_table(&mut std::io::sink(), 132);
        let _ = report.write_json(&mut std::io::sink());
        let _ = report.write_csv(&mut std::io::sink());
    }
    if let Ok(session) = Session::open(&input) {
        let query = Options { threads: Some(1), ..Options::default() };
        if let Ok(lines) = session.lines(&query) {
            let _ = lines.write_table(&mut std::io::sink(), 132);
            let _ = lines.write_json(&mut std::io::sink());
            let _ = lines.write_csv(&mut std::io::sink());
        }
        if let Ok(annotation) = session.annotate(&AnnotateOptions { query, ..AnnotateOptions::default() }) {
            let _ = annotation.write_table(&mut std::io::sink(), 132);
            let _ = annotation.write_json(&mut std::io::sink());
            let _ = annotation.write_csv(&mut std::io::sink());
        }
    }
    for form in MapsForm::ALL {
        let _ = maps(&input, &MapsOptions { form, ..MapsOptions::default() }, &mut std::io::sink());
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
