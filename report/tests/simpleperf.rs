//! Functions that simpleperf looked up, against tables that were read from its files by hand.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};

use bprec_report::{Fields, Input, Options, ScriptOptions, Source, by_prog, script};

/// A function: address, length, name.
type Function = (u64, u64, &'static str);

/// The kernel functions in the FILE section of `perf_with_tracepoint_event.data`.
const KERNEL: [Function; 11] = [
    (0xffffff8088e9de00, 64, "__clean_dcache_area_pou"),
    (0xffffff8088ead59c, 1028, "__do_softirq"),
    (0xffffff8088f82510, 412, "perf_event_exec"),
    (0xffffff8088f935e8, 2016, "generic_file_read_iter"),
    (0xffffff8088f93dc8, 1320, "filemap_fault"),
    (0xffffff8089189380, 384, "memcpy"),
    (0xffffff808a0373c0, 2700, "__schedule"),
    (0xffffff808a038764, 496, "__wait_on_bit_lock"),
    (0xffffff808a03b1f8, 260, "schedule_timeout"),
    (0xffffff808a03c084, 68, "_raw_spin_unlock_irqrestore"),
    (0xffffff808a03c0c8, 68, "_raw_spin_unlock_irq"),
];

fn tracepoint_event() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/corpus/perf_with_tracepoint_event.data")
}

fn printed(path: &Path) -> String {
    let options = ScriptOptions {
        fields: Fields::parse("ip,sym,symoff,dso").unwrap(),
        hide_call_chains: true,
        ..ScriptOptions::default()
    };
    let mut text = Vec::new();
    script(&mut Source::open(path).unwrap(), &options, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// What a line should be for a sample at `ip`, whose file counts addresses `bias` further on.
fn expected(ip: u64, bias: u64, functions: &[Function], dso: &str) -> String {
    let vaddr = ip.wrapping_add(bias);
    let function = functions.iter().find(|(start, len, _)| (*start..start + len).contains(&vaddr));
    let (start, _, name) = function.unwrap_or_else(|| panic!("{ip:x} is in none of the functions"));
    format!("{ip:x} {name}+{:#x} ({dso})", vaddr - start)
}

#[test]
fn kernel_functions_are_those_of_the_file_section() {
    let text = printed(&tracepoint_event());
    let mut samples = 0;
    for line in text.lines() {
        let ip = u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap();
        assert_eq!(line.trim(), expected(ip, 0, &KERNEL, "[kernel.kallsyms]"));
        samples += 1;
    }
    assert_eq!(samples, 45, "the index of the corpus has as many");
}

/// The report counts by function: as many samples as have their address in it.
#[test]
fn reports_count_functions() {
    let report = by_prog(&Input::open(tracepoint_event()).unwrap(), &Options::default()).unwrap();
    let text = printed(&tracepoint_event());
    let addresses: Vec<u64> =
        text.lines().map(|line| u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap()).collect();
    for (start, len, name) in KERNEL {
        let inside = addresses.iter().filter(|ip| (start..start + len).contains(ip)).count() as u64;
        let hot = report.events.iter().flat_map(|event| &event.hot).filter(|hot| hot.name == name);
        assert_eq!(hot.map(|hot| hot.share.count.samples).sum::<u64>(), inside, "{name}");
    }
}

/// A program that is mapped away from its own addresses: FILE2 says that its first executable segment, at 0x4000 of the
/// file, has address 0x4000, and that `main` is at 0x40b4, 64 bytes long; the map of that segment starts at 0x5928784000.
#[test]
fn functions_of_a_file_are_found_through_its_map() {
    const NAME: &str = "runtest_two_functions_arm64_inlined.data";
    let Some(file) = common::corpus_files().into_iter().find(|file| file.name.ends_with(NAME)) else {
        eprintln!("SKIP functions_of_a_file_are_found_through_its_map: {NAME} is not in the corpus");
        return;
    };
    let program = "/data/local/tmp/simpleperf_runtest_two_functions_arm64_inlined";
    let text = printed(&common::corpus_dir().join(&file.name));
    let mut hits = 0;
    for line in text.lines().filter(|line| line.ends_with(&format!("({program})"))) {
        let ip = u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap();
        assert_eq!(line.trim(), expected(ip, 0x4000u64.wrapping_sub(0x5928784000), &[(0x40b4, 64, "main")], program));
        hits += 1;
    }
    assert!(hits > 300, "{hits} samples in the program");
}
