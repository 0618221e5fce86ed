//! Recordings that are large enough for several threads, whose samples the generator has counted.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_generate::{Container, Made, Shape, generate_bytes};
use bprec_report::{By, Group, Input, Options, ScriptOptions, Session, Show, Source, Split, by_prog, counters, script};

/// Samples are handed to threads in parts of a mebibyte: this is a dozen of them.
const RECORD_BYTES: u64 = 12 << 20;

fn generated(container: Container) -> (Vec<u8>, Made) {
    let shape = Shape { record_bytes: RECORD_BYTES, programs: 20, churned_programs: 30, container, ..Shape::default() };
    generate_bytes(&shape).unwrap()
}

/// Everything that is printed of a recording, with this many threads.
fn printed(input: &Input, threads: usize, by: Option<By>) -> String {
    let report = by_prog(input, &Options { by, threads: Some(threads), ..Options::default() }).unwrap();
    let mut out = Vec::new();
    report.write_table(&mut out, 132).unwrap();
    report.write_json(&mut out).unwrap();
    report.write_csv(&mut out).unwrap();
    let counters = counters(input, &Options { threads: Some(threads), ..Options::default() }).unwrap();
    counters.write_csv(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn any_number_of_threads_prints_the_same() {
    for container in [Container::File, Container::ZstdFile(1)] {
        let (bytes, _) = generated(container);
        prints_the_same(&Input::from_bytes("generated", bytes));
    }
}

fn prints_the_same(input: &Input) {
    let by = [Split::Func.into(), Split::Comm.into(), Split::Helper.into(), Group::Type.into()].map(Some);
    for by in by.into_iter().chain([None]) {
        let one = printed(input, 1, by);
        for threads in [2, 3, 16] {
            assert!(printed(input, threads, by) == one, "{by:?} with {threads} threads");
        }
    }
}

#[test]
fn any_number_of_threads_prints_the_same_lines() {
    let show = Show::ALL;
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let (mut bytes, _) = generated(container);
        // Something in the middle that cannot be read is told in its place, by whoever is there.
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0xff);
        let printed = |threads| {
            let options = ScriptOptions { show, threads: Some(threads), ..ScriptOptions::default() };
            let mut text = Vec::new();
            let summary = script(&mut Source::from_bytes("generated", bytes.clone()), &options, &mut text).unwrap();
            (text, summary)
        };
        let one = printed(1);
        for threads in [2, 3, 16] {
            assert!(printed(threads) == one, "{container:?} with {threads} threads");
        }
    }
}

/// More than is kept in memory between the passes: it is unpacked for each of them.
#[test]
fn what_is_too_large_to_keep_is_unpacked_again() {
    let shape = Shape { record_bytes: 44 << 20, container: Container::ZstdFile(1), ..Shape::default() };
    let (bytes, made) = generate_bytes(&shape).unwrap();
    let input = Input::from_bytes("generated", bytes);
    let session = Session::open(&input).unwrap();
    for _ in 0..2 {
        let report = session.by_prog(&Options::default()).unwrap();
        let event = &report.events[0];
        assert_eq!((event.samples.samples, event.samples.weight), (made.samples, made.weight));
        assert_eq!(event.total.count.samples, made.bpf_samples);
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[test]
fn every_container_has_the_samples_that_were_generated() {
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let (bytes, made) = generated(container);
        let report = by_prog(&Input::from_bytes("generated", bytes.clone()), &Options::default()).unwrap();
        let event = &report.events[0];
        assert_eq!((event.samples.samples, event.samples.weight), (made.samples, made.weight), "{container:?}");
        assert_eq!(event.total.count.samples, made.bpf_samples, "{container:?}");

        let mut source = Source::from_bytes("generated", bytes);
        let summary = script(&mut source, &ScriptOptions::default(), &mut std::io::sink()).unwrap();
        // The rest are samples of `bprec:state`.
        assert!(summary.samples > made.samples, "{container:?}");
        assert_eq!((summary.late, summary.unknown, summary.unreadable), (0, 0, 0), "{container:?}");
        assert!(summary.problems.is_empty(), "{container:?}: {:?}", summary.problems);
    }
}
