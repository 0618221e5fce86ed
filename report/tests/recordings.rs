//! Reports of perf's recordings of BPF programs in guests, on three architectures, compared with the output of each guest's own perf
//! for the same file. Skipped if the recordings are missing.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use bprec_report::model::{Count, Known, Line, Report, Share};
use bprec_report::{Document, Input, Options, by_prog};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const GUESTS: [&str; 4] = ["amd64-6.1", "arm64-6.12", "arm64-6.12-icount", "s390x-7.3jit-perf6.12"];

fn recordings(test: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    if dir.is_dir() {
        return Some(dir);
    }
    println!("SKIP {test}: no recordings at {}", dir.display());
    None
}

fn report(path: &Path, options: &Options) -> Report {
    by_prog(&Input::open(path).unwrap(), options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Output of perf about one event: samples, weight, and the shares of BPF functions by name, without tags.
struct Printed {
    event: String,
    samples: String,
    weight: u64,
    shares: BTreeMap<String, f64>,
    /// Number of perf's rows that add up to each share. perf rounds each row.
    rows: BTreeMap<String, u32>,
    /// Share of kernel addresses that perf does not name. The addresses belong to programs, but perf takes the whole page for a trampoline or an
    /// unloaded program in the same page.
    unknown: f64,
}

fn printed(text: &str) -> Vec<Printed> {
    let mut events: Vec<Printed> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# Samples: ") {
            let (samples, rest) = rest.split_once("of event '").unwrap();
            events.push(Printed {
                event: rest.trim_end_matches('\'').to_owned(),
                samples: samples.trim().to_owned(),
                weight: 0,
                shares: BTreeMap::new(),
                rows: BTreeMap::new(),
                unknown: 0.0,
            });
        } else if let Some(rest) = line.strip_prefix("# Event count (approx.): ") {
            events.last_mut().unwrap().weight = rest.trim().parse().unwrap();
        } else if let Some((share, rest)) = line.trim().split_once('%')
            && let Some((_, symbol)) = rest.split_once("[k] bpf_prog_")
            && let Ok(share) = share.parse::<f64>()
            // Some kernel functions, too, have names that begin with `bpf_prog_`, but no tag follows.
            && u64::from_str_radix(symbol.get(..16).unwrap_or(""), 16).is_ok()
        {
            let name = symbol.trim().get(17..).unwrap_or("").to_owned();
            let event = events.last_mut().unwrap();
            *event.shares.entry(name.clone()).or_default() += share;
            *event.rows.entry(name).or_default() += 1;
        } else if let Some((share, rest)) = line.trim().split_once('%')
            && rest.contains("[k] 0x")
        {
            // perf rounds to the nearest hundredth, so the share may be 0.005 larger.
            events.last_mut().unwrap().unknown += share.parse::<f64>().unwrap() + 0.005;
        }
    }
    events
}

/// The columns self, helper, entry and inclusive.
fn columns(line: &Line) -> [Count; 4] {
    let columns = line.columns.as_ref().unwrap();
    let count = |share: &Known<Share>| share.value().map(|share| share.count).unwrap_or_default();
    [&columns.own, &columns.helper, &columns.entry, &columns.inclusive].map(count)
}

/// Self shares by function name, summed over programs, as perf sums symbols of one name.
fn shares(report: &Report, event: usize) -> BTreeMap<String, f64> {
    let event = &report.events[event];
    let mut shares = BTreeMap::new();
    for part in event.rows.iter().flat_map(|row| row.parts.iter().flatten()) {
        let share = columns(&part.line)[0].weight as f64 * 100.0 / event.samples.weight as f64;
        *shares.entry(part.name.clone()).or_default() += share;
    }
    shares.retain(|_, share| *share > 0.0);
    shares
}

/// perf shortens counts: `4K`.
fn shortened(samples: u64) -> String {
    if samples < 1000 { samples.to_string() } else { format!("{}K", samples / 1000) }
}

/// Samples, weight and the share of each BPF function are those that the guest's perf printed.
#[test]
fn self_shares_are_those_that_perf_printed() {
    let Some(dir) = recordings("self_shares_are_those_that_perf_printed") else { return };
    let options = Options { by: Some("func".parse().unwrap()), ..Options::default() };
    let mut compared = 0;
    for guest in GUESTS {
        for name in ["hw-a", "hw-a-g", "hw-two", "live", "dwarf", "z", "fentry"] {
            let data = dir.join(guest).join(format!("{name}.data"));
            let text = dir.join(guest).join(format!("{name}.report.txt"));
            let (true, Ok(text)) = (data.is_file(), std::fs::read_to_string(&text)) else { continue };
            if name == "z" && !cfg!(feature = "zstd") {
                continue;
            }
            let report = report(&data, &options);
            assert_eq!(report.problems, [] as [&str; 0], "{guest}/{name}");
            let printed: Vec<Printed> = printed(&text).into_iter().filter(|event| event.event != "dummy:u").collect();
            for expected in printed.iter().filter(|event| event.weight > 0) {
                let at = format!("{guest}/{name} {}", expected.event);
                let event = report.events.iter().position(|event| event.name == expected.event);
                let event = event.unwrap_or_else(|| panic!("{at} is not in the report"));
                let samples = report.events[event].samples;
                assert_eq!(shortened(samples.samples), expected.samples, "{at}: samples");
                assert_eq!(samples.weight, expected.weight, "{at}: weight");
                if name == "fentry" {
                    // If a symbol is in the same page as a trampoline, perf gives it the trampoline's address. So perf shows samples in programs that
                    // have none.
                    continue;
                }
                let mut shares = shares(&report, event);
                let mut unnamed = expected.unknown;
                for (function, share) in &expected.shares {
                    let ours = shares.remove(function).unwrap_or(0.0);
                    let rounding = 0.005 * f64::from(expected.rows[function]) + 1e-9;
                    assert!(ours >= share - rounding, "{at} {function}: {ours} and perf's {share}");
                    unnamed -= (ours - share - rounding).max(0.0);
                    compared += 1;
                }
                // perf leaves out rows below a hundredth of a per cent.
                unnamed -= shares.values().filter(|share| **share >= 0.01).sum::<f64>();
                assert!(
                    unnamed >= -1e-9,
                    "{at}: our shares exceed perf's by {unnamed}, even with its unnamed addresses"
                );
            }
        }
    }
    assert!(compared >= 50, "only {compared} shares compared");
}

/// All rows and lines add up to the total, the parts of a row to the row, and no event has more than its samples.
#[test]
fn sums_are_exact() {
    let Some(dir) = recordings("sums_are_exact") else { return };
    for guest in GUESTS {
        for by in ["func", "comm", "cpu", "cgroup", "helper"] {
            let options = Options { by: Some(by.parse().unwrap()), ..Options::default() };
            for name in ["hw-a-g", "hw-two", "live", "fentry"] {
                let path = dir.join(guest).join(format!("{name}.data"));
                if !path.is_file() {
                    continue;
                }
                for event in &report(&path, &options).events {
                    let at = format!("{guest}/{name} {} by {by}", event.name);
                    for row in &event.rows {
                        let Some(line) = &row.line else { continue };
                        let mut parts = [Count::default(); 3];
                        for part in row.parts.iter().flatten() {
                            let [own, helper, entry, _] = columns(&part.line);
                            parts = [parts[0] + own, parts[1] + helper, parts[2] + entry];
                        }
                        let [own, helper, entry, inclusive] = columns(line);
                        assert_eq!(parts, [own, helper, entry], "{at}");
                        assert_eq!(own + helper + entry, line.count, "{at}");
                        if line.columns.as_ref().unwrap().inclusive.is_value() {
                            assert!(inclusive >= line.count, "{at}");
                        }
                    }
                    assert!(event.total.count <= event.samples, "{at}");
                }
            }
        }
    }
}

/// Outputs have the same bytes with any number of threads, and all outputs have the same sums.
#[test]
fn output_depends_on_nothing_but_the_recording() {
    let Some(dir) = recordings("output_depends_on_nothing_but_the_recording") else { return };
    for guest in GUESTS {
        for name in ["fentry", "hw-a-g"] {
            let path = dir.join(guest).join(format!("{name}.data"));
            if !path.is_file() {
                continue;
            }
            let text = |threads: usize| {
                let by = Some("comm".parse().unwrap());
                let report = report(&path, &Options { by, threads: Some(threads), ..Options::default() });
                let mut out = Vec::new();
                report.write_table(&mut out, 132).unwrap();
                report.write_json(&mut out).unwrap();
                report.write_csv(&mut out).unwrap();
                String::from_utf8(out).unwrap()
            };
            assert_eq!(text(1), text(3), "{guest}/{name}");
        }
    }
}

/// The samples of parts of the time, of the CPUs or of the tasks add up to all samples.
#[test]
fn selections_part_the_samples() {
    let Some(dir) = recordings("selections_part_the_samples") else { return };
    for guest in GUESTS {
        let path = dir.join(guest).join("hw-a-g.data");
        let count = |options: &Options| {
            let event = &report(&path, options).events[0];
            (event.samples, event.total.count)
        };
        let (samples, bpf) = count(&Options::default());
        for parts in [["0%-30%", "30%-100%"], ["10%/1", "10%-100%"]] {
            let [a, b] = parts.map(|time| count(&Options { time: time.parse().unwrap(), ..Options::default() }));
            assert_eq!((a.0 + b.0, a.1 + b.1), (samples, bpf), "{guest} {parts:?}");
        }
        let [a, b] =
            ["0", "1-63"].map(|cpus| count(&Options { cpus: Some(cpus.parse().unwrap()), ..Options::default() }));
        assert_eq!((a.0 + b.0, a.1 + b.1), (samples, bpf), "{guest} by CPU");
        let [a, b] = ["dd", "[!d]*"].map(|comm| count(&Options { comms: vec![comm.into()], ..Options::default() }));
        assert_eq!((a.0 + b.0, a.1 + b.1), (samples, bpf), "{guest} by comm");
    }
}

/// Programs with one name that are loaded and unloaded during a recording have separate rows, with their times.
#[test]
fn programs_that_come_and_go_are_told_apart() {
    let Some(dir) = recordings("programs_that_come_and_go_are_told_apart") else { return };
    for guest in GUESTS {
        let report = report(&dir.join(guest).join("live.data"), &Options::default());
        let heavy: Vec<_> = report.programs.iter().filter(|program| program.name == "heavy_enter").collect();
        let [before, during] = heavy.as_slice() else { panic!("{guest}: {heavy:?}") };
        assert!(before.loaded.is_none() && before.unloaded.is_none(), "{guest}");
        assert!(during.loaded.is_some() && during.unloaded.is_some(), "{guest}");
        assert_eq!(*during.functions, ["heavy_enter", "cb", "mix"], "{guest}");
        let sampled = report.events[0]
            .rows
            .iter()
            .filter(|row| row.line.as_ref().is_some_and(|line| line.count.samples > 0))
            .count();
        assert_eq!(sampled, 2, "{guest}: both ran");
    }
}
