//! Two programs on one tracepoint, with known runs in each second. The share of each program in their common entry code follows from these
//! numbers.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_generate::{Shape, SharedHook, generate_bytes};
use bprec_report::model::{Known, Reason, Row};
use bprec_report::{Document, Input, Options, Payer, Session};

/// Period of a sample, ns.
const PERIOD_NS: u64 = 250_000;

/// Three seconds. The runs of the two programs are 1 : 9 in the first second and 9 : 1 in the second; no runs are counted in the third.
const SECONDS: [SharedHook; 3] = [
    SharedHook { samples: 100, runs: [1_000, 9_000] },
    SharedHook { samples: 300, runs: [9_000, 1_000] },
    SharedHook { samples: 40, runs: [0, 0] },
];

fn recording(seconds: &[SharedHook]) -> Input {
    let shape = Shape { record_bytes: 0, programs: 2, shared_hook: seconds.to_vec(), ..Shape::default() };
    Input::from_bytes("generated", generate_bytes(&shape).unwrap().0)
}

/// Samples in entry code, by program.
fn entries(session: &Session<'_>, options: &Options) -> Vec<(String, u64)> {
    let report = session.by_prog(options).unwrap();
    let of_row = |row: &Row| {
        let columns = row.line.as_ref().unwrap().columns.as_ref().unwrap();
        let (entry, shared) = (columns.entry.value().unwrap().count, columns.entry_shared.value().unwrap().count);
        assert_eq!(entry, shared, "all entry samples are shared");
        assert_eq!(entry.weight, entry.samples * PERIOD_NS);
        (row.name.clone(), entry.samples)
    };
    let mut entries: Vec<(String, u64)> = report.events[0].rows.iter().map(of_row).collect();
    entries.sort();
    entries
}

fn two(first: u64, second: u64) -> Vec<(String, u64)> {
    let name = |number: u32| format!("generated_program_{number:05}");
    vec![(name(0), first), (name(1), second)]
}

#[test]
fn a_hook_is_shared_by_the_runs_of_each_interval() {
    let input = recording(&SECONDS);
    let session = Session::open(&input).unwrap();
    // The first second gives 10 and 90 samples, the second 270 and 30. No runs are counted in the third second, so its 40 samples are divided by the
    // total runs, which are 10,000 for each program: 20 and 20 samples.
    assert_eq!(entries(&session, &Options::default()), two(10 + 270 + 20, 90 + 30 + 20));
    let part = |time: &str| entries(&session, &Options { time: time.parse().unwrap(), ..Options::default() });
    assert_eq!(part("1000,1001"), two(10, 90));
    assert_eq!(part("1001,1002"), two(270, 30));
}

/// The trampoline of a function runs two programs: the first is attached to this function alone, the second by a `tracing_multi` link (Linux 7.3) to
/// many functions. The file has the function of the first program only as a number, the function of the second only as a name.
#[test]
fn a_trampoline_is_shared_with_a_program_of_a_multi_link() {
    let shape = Shape { record_bytes: 0, programs: 2, shared_hook: SECONDS.to_vec(), ..Shape::default() };
    let bytes = generate_bytes(&Shape { has_multi_link: true, ..shape }).unwrap().0;
    let input = Input::from_bytes("generated", bytes.clone());
    assert_eq!(entries(&Session::open(&input).unwrap(), &Options::default()), two(10 + 270 + 20, 90 + 30 + 20));
    // Attached to another function, the second program runs elsewhere.
    let (function, other) = (b"fentry_multi\x08\0vfs_read", b"fentry_multi\x08\0vfs_open");
    let at = (0..bytes.len()).find(|at| bytes[*at..].starts_with(function)).unwrap();
    let elsewhere = [&bytes[..at], other, &bytes[at + other.len()..]].concat();
    let input = Input::from_bytes("generated", elsewhere);
    let report = Session::open(&input).unwrap().by_prog(&Options::default()).unwrap();
    let entry = |row: &Row| row.line.as_ref()?.columns.as_ref()?.entry.value().map(|it| it.count.samples);
    let entries: Vec<(u32, u64)> =
        report.events[0].rows.iter().filter_map(|row| Some((row.id?, entry(row).unwrap_or(0)))).collect();
    assert!(
        entries.contains(&(100, 440)) && entries.iter().map(|(_, samples)| samples).sum::<u64>() == 440,
        "{entries:?}"
    );
}

/// The cost of one program to a payer is an estimate, because programs share the hook. The sum of a payer is exact: the hook has one payer.
#[test]
fn shares_of_the_hook_are_marked_beside_payers() {
    let input = recording(&SECONDS);
    let report = Session::open(&input).unwrap().payers(&Options::default(), &[Payer::Cpu]).unwrap();
    let event = report.events.first().unwrap();
    assert!(event.rows.len() > 1 && event.rows.iter().all(|row| row.is_estimate), "{event:?}");
    let mut table = Vec::new();
    report.write_table(&mut table, 200).unwrap();
    let table = String::from_utf8(table).unwrap();
    let shares = |line: &str| (line.matches('≈').count(), line.contains("generated_program"));
    let lines = table.lines().filter(|line| !line.starts_with(['#', '-']));
    for (marked, is_pair) in lines.map(shares) {
        // Missing ticks of the timer are another reason for a mark: `%MACHINE` is then marked in each line.
        assert!(if is_pair { marked >= 3 } else { marked <= 1 }, "{table}");
    }
}

#[test]
fn intervals_of_time_have_what_the_hook_cost_in_them() {
    let input = recording(&SECONDS);
    let session = Session::open(&input).unwrap();
    let report = session.over_time(&Options::default(), Some(1_000_000_000)).unwrap();
    let mut rows: Vec<(String, Vec<u64>)> = report.events[0]
        .rows
        .iter()
        .map(|row| (row.name.clone(), row.intervals.iter().map(|it| it.count.samples).collect()))
        .collect();
    rows.sort();
    assert_eq!(rows.iter().map(|(_, samples)| samples.as_slice()).collect::<Vec<_>>(), [[10, 270, 20], [90, 30, 20]]);
}

/// Fewer samples than programs in each second: rounding does not favour a program.
#[test]
fn a_few_samples_of_each_of_many_seconds_add_up() {
    let input = recording(&[SharedHook { samples: 1, runs: [9, 1] }; 50]);
    let session = Session::open(&input).unwrap();
    assert_eq!(entries(&session, &Options::default()), two(45, 5));
    // The recording has more readings of runs than the limit, so the reader keeps every second reading.
    let seconds = [SharedHook { samples: 2, runs: [30, 10] }, SharedHook { samples: 2, runs: [10, 30] }];
    let seconds: Vec<SharedHook> = (0..400).map(|at| seconds[usize::from(at >= 200)]).collect();
    let input = recording(&seconds);
    let session = Session::open(&input).unwrap();
    assert_eq!(entries(&session, &Options::default()), two(300 + 100, 100 + 300));
}

/// The kernel inlines `tcx_run` and `netkit_run`: if they have no samples, their cost is unknown, not 0.
#[test]
fn what_runs_a_program_is_unknown_where_the_kernel_inlines_it() {
    let shape = Shape { record_bytes: 1 << 18, programs: 2, shared_hook: SECONDS.to_vec(), ..Shape::default() };
    let mut bytes = generate_bytes(&shape).unwrap().0;
    let (kind, inlined) = (b"tracepoint", b"tcx_egress");
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(kind)).collect();
    assert!(places.len() >= 2);
    places.iter().for_each(|at| bytes[*at..][..kind.len()].copy_from_slice(inlined));
    let input = Input::from_bytes("generated", bytes);
    let session = Session::open(&input).unwrap();
    let report = session.by_prog(&Options { all: true, ..Options::default() }).unwrap();
    // The cost of entry code is unknown for both programs.
    let lines: Vec<_> = report.events[0].rows.iter().filter_map(|row| row.line.as_ref()).collect();
    assert!(!lines.is_empty());
    for columns in lines.iter().map(|line| line.columns.as_ref().unwrap()) {
        assert_eq!(columns.entry, Known::Unknown(Reason::EntryInlined));
        assert!(columns.own.value().is_some() && columns.inclusive.value().is_some());
    }
}
