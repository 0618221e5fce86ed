//! Recordings with samples that were counted in the kernel: nothing is lost or counted twice, even if tables or rings are full; shares equal the
//! shares of ordinary sampling; the report shows the time that the sampler cannot see. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::support::{self, Scratch, alone, end, measured, perf, perf_installed, record, recording, report, root};
use bprec_fixtures::load::{Packets, system_calls};
use bprec_fixtures::{Fixture, Loaded};
use bprec_format::bprec::state::{Aggregation, OVERFLOW_PID, State};
use bprec_format::{Endian, Events, File, RECORD_HEADER_BYTES, RecordType, SampleType};
use serde_json::Value;

/// Sums over the records of the first event, and the last state that the recorder wrote about the event.
#[derive(Debug, Default)]
struct Sums {
    records: u64,
    samples: u64,
    period: u64,
    overflow_samples: u64,
    overflow_period: u64,
    account: Aggregation,
}

fn sums(path: &Path) -> Sums {
    let bytes = fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    assert!(file.problems().is_empty(), "{:?}", file.problems());
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let mut sums = Sums::default();
    for record in file.records().map(Result::unwrap).filter(|record| record.kind == RecordType::SAMPLE) {
        let event = events.index_of(&record).unwrap();
        let layout = &events.all()[event].layout;
        let sample = layout.sample(record.body(), record.offset + RECORD_HEADER_BYTES as u64).unwrap();
        let fields = sample.decode().unwrap();
        if event == 0 {
            assert!(layout.sample_type().contains(SampleType::WEIGHT));
            let (samples, period) = (fields.weight.unwrap(), fields.period.unwrap());
            sums.records += 1;
            sums.samples += samples;
            sums.period += period;
            if fields.pid_tid == Some((OVERFLOW_PID, OVERFLOW_PID)) {
                sums.overflow_samples += samples;
                sums.overflow_period += period;
            }
        } else if let Some(raw) = fields.raw
            && let Ok(State::Aggregation(account)) = State::decode(raw, 0, Endian::NATIVE)
        {
            sums.account = account;
        }
    }
    sums
}

/// With period 1, each first access to a page is one event. A command's page faults are counted three times: by the event, by the state of the
/// program attached to it, and by the samples in the file. All three counts are equal, also with drains in between and with a table of only three
/// entries.
#[test]
fn every_page_fault_is_in_the_file_once() {
    if !root("every_page_fault_is_in_the_file_once") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    // Each short process touches about a hundred new pages; together, the processes run for many intervals.
    let faults = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); /bin/true; done";
    for (entries, is_full) in [("65536", false), ("3", true)] {
        let aggregate =
            ["-q", "--aggregate", "--aggregate-entries", entries, "-I", "20", "-e", "page-faults", "-c", "1", "-g"];
        record(&path, &[&aggregate[..], &["--", "sh", "-c", faults]].concat());
        let sums = sums(&path);
        let account = sums.account;
        assert!(sums.samples > 10_000, "{sums:?}");
        assert_eq!(account.counted, Some(sums.period), "the sum of the periods is the count of the event: {sums:?}");
        assert_eq!(
            (account.samples, account.period),
            (sums.samples, sums.period),
            "the recording has all samples that the program saw: {sums:?}"
        );
        let overflow = (sums.overflow_samples, sums.overflow_period);
        assert_eq!((account.overflow_samples, account.overflow_period), overflow, "{sums:?}");
        assert_eq!(sums.overflow_samples > 0, is_full, "{sums:?}");

        let report = report(&path, &[]);
        let event = &report["events"][0];
        let pair = |value: &Value| (value["samples"].as_u64().unwrap(), value["weight"].as_u64().unwrap());
        assert_eq!(pair(&event["samples"]), (sums.samples, sums.period));
        assert_eq!(pair(&event["aggregated"]["overflow"]), overflow);
        assert_eq!(pair(&event["aggregated"]["blind_spot"]), (0, 0));
        if perf_installed("every_page_fault_is_in_the_file_once") {
            let input =
                ["report", "--stdio", "--no-children", "-g", "none", "--sort", "comm", "-F", "period,comm", "-t", ","];
            let text = perf(&[&input[..], &["-i", path.to_str().unwrap()]].concat());
            // Keeps the output for page faults only: perf prints the other event, `bprec:state`, after it.
            let text = text.split("bprec:state").next().unwrap();
            let rows =
                text.lines().filter_map(|line| line.split_once(',').map(|(n, comm)| (n.trim().parse::<u64>(), comm)));
            let rows: Vec<(u64, &str)> = rows.filter_map(|(n, comm)| Some((n.ok()?, comm.trim()))).collect();
            assert_eq!(rows.iter().map(|(period, _)| period).sum::<u64>(), sums.period, "{text}");
            let overflowed: u64 = rows.iter().filter(|(_, comm)| *comm == "[overflow]").map(|(period, _)| period).sum();
            assert_eq!(overflowed, sums.overflow_period, "{text}");
        }
    }
}

/// Makes calls and sends packets for this time. Pauses of varying length keep the load out of step with the sampling timer.
fn load_for(time: Duration) {
    let until = Instant::now() + time;
    let packets = Packets::new().unwrap();
    let mut random = 1u64;
    while Instant::now() < until {
        system_calls(1);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if random >> 61 == 0 {
            packets.send(1).unwrap();
        }
        for _ in 0..random >> 54 {
            std::hint::spin_loop();
        }
    }
}

fn row(report: &Value, id: u32) -> &Value {
    let rows = report["events"][0]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row for program {id}: {rows:#?}"))
}

fn on_this_thread(fixture: Fixture, loops: u32) -> Loaded {
    fixture.open().unwrap().for_this_thread().unwrap().loops(loops).unwrap().start().unwrap()
}

/// Two recordings cover the same time, one with a program on its event and one without. Every program that the first event can see, and the load
/// itself, have the same share in both, within three standard deviations.
#[test]
fn shares_are_those_of_plain_sampling() {
    if !root("shares_are_those_of_plain_sampling") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let (plain_path, counted_path) = (scratch.path("plain"), scratch.path("counted"));
    let (a, b) = (on_this_thread(Fixture::TWIN_A, 400), on_this_thread(Fixture::TWIN_B, 200));
    let tail = on_this_thread(Fixture::TAIL_CALL, 200);
    let start = |path: &Path, more: &[&str]| -> Child {
        recording(path, "5", &[&["-e", "cpu-clock", "-c", "250000", "-I", "500"], more].concat())
    };
    let programs = [
        (&a, "same_name_in_two_objects"),
        (&b, "same_name_in_two_objects"),
        (&tail, "tail_call_first"),
        (&tail, "tail_call_second"),
        (&tail, "tail_call_third"),
    ];
    measured(|| {
        let children = [start(&plain_path, &[]), start(&counted_path, &["--aggregate"])];
        load_for(Duration::from_millis(4_500));
        children.into_iter().for_each(end);

        let (plain, counted) = (report(&plain_path, &[]), report(&counted_path, &[]));
        let total = |report: &Value| report["events"][0]["samples"]["samples"].as_u64().unwrap() as f64;
        let (of_plain, of_counted) = (total(&plain), total(&counted));
        programs.into_iter().try_for_each(|(loaded, name)| {
            let id = loaded.id_of(name).unwrap();
            let samples = |report| row(report, id)["samples"].as_u64().unwrap() as f64;
            let (n, m) = (samples(&plain), samples(&counted));
            if n <= 50.0 {
                return Err(format!("{name}: only {n} samples"));
            }
            let deviation = (n / of_plain.powi(2) + m / of_counted.powi(2)).sqrt();
            let difference = (n / of_plain - m / of_counted).abs();
            match difference < 3.0 * deviation {
                true => Ok(()),
                false => Err(format!(
                    "{name}: {n} of {of_plain} and {m} of {of_counted}: the difference is {difference}, more than 3 × {deviation}"
                )),
            }
        })
    });
    // Each sample has the weight of one period; a merged sample has the sum.
    let sums = sums(&counted_path);
    assert_eq!(sums.period, sums.samples * 250_000, "{sums:?}");
    assert!(sums.account.counted.unwrap() >= sums.period, "{sums:?}");
    assert!(sums.records < sums.samples, "{sums:?}");
}

/// Programs of two kinds are loaded, run and unloaded in turn, the first kind four times as long as the second, at a few addresses that the kernel
/// reuses. Their samples are in the ratio of their times, for every interval. If reused addresses mixed up the programs, both kinds would have
/// equally many samples.
#[test]
fn addresses_that_are_used_again_do_not_mix_programs() {
    const NAME: &str = "loop_200";
    if !root("addresses_that_are_used_again_do_not_mix_programs") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    for interval in [&[][..], &["-I", "5000"]] {
        measured(|| {
            let options = ["-e", "cpu-clock", "-F", "4000", "--aggregate"];
            let child = recording(&path, "7", &[&options[..], interval].concat());
            let until = Instant::now() + Duration::from_secs(6);
            let (mut ids, mut times) = ([Vec::new(), Vec::new()], [Duration::ZERO; 2]);
            for round in 0.. {
                if Instant::now() > until {
                    break;
                }
                let kind = round % 2;
                let loaded = Fixture::IDLE.open().unwrap().load().unwrap();
                // Each turn is short, so that both kinds run at about the same speed: on a busy machine, the speed changes within seconds.
                let began = Instant::now();
                loaded.run(NAME, [320_000, 80_000][kind]).unwrap();
                times[kind] += began.elapsed();
                ids[kind].push(u64::from(loaded.id_of(NAME).unwrap()));
            }
            end(child);
            let report = report(&path, &["--all"]);
            let rows = report["events"][0]["rows"].as_array().unwrap();
            let samples = ids.map(|ids| {
                let own = rows.iter().filter(|row| row["id"].as_u64().is_some_and(|id| ids.contains(&id)));
                own.map(|row| row["samples"].as_u64().unwrap_or(0)).sum::<u64>() as f64
            });
            let all: f64 = samples.iter().sum();
            if all < 1_500.0 {
                return Err(format!("only {all} samples"));
            }
            let wrong = rows
                .iter()
                .find(|row| row["blind"]["text"].as_str().is_some_and(|why| why.contains("interrupts are off")));
            assert!(wrong.is_none(), "{wrong:#?}");
            let (expected, share) = (times[0].div_duration_f64(times[0] + times[1]), samples[0] / all);
            // Five standard deviations of a binomial distribution, and 2 % for the system call around the runs.
            let most = 5.0 * (expected * (1.0 - expected) / all).sqrt() + 0.02;
            match (share - expected).abs() < most {
                true => Ok(()),
                false => Err(format!("{interval:?}: {samples:?}, expected {expected} within {most}")),
            }
        });
    }
}

/// A tracepoint program that takes much CPU time is n/a in the table instead of 0, and its time is in the blind spot.
#[test]
fn the_blind_spot_is_told() {
    if !root("the_blind_spot_is_told") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let (plain_path, counted_path) = (scratch.path("plain"), scratch.path("counted"));
    let tp = on_this_thread(Fixture::TP, 200);
    let children = [
        recording(&plain_path, "4", &["-e", "cpu-clock", "-F", "4000"]),
        recording(&counted_path, "4", &["-e", "cpu-clock", "-F", "4000", "--aggregate"]),
    ];
    load_for(Duration::from_millis(3_500));
    children.into_iter().for_each(end);
    let (plain, counted) = (report(&plain_path, &[]), report(&counted_path, &[]));
    let mut seen = 0;
    for name in ["account_syscall_enter", "account_syscall_exit"] {
        let id = tp.id_of(name).unwrap();
        seen += row(&plain, id)["weight"].as_u64().unwrap();
        let blind = row(&counted, id);
        assert!(blind["blind"]["text"].as_str().is_some_and(|why| why.contains("tracepoint")), "{blind:#}");
        assert!(blind["self"].is_null() || blind["self"]["samples"].is_null(), "unknown, not 0: {blind:#}");
    }
    assert!(seen > 200_000_000, "the programs took only {seen} ns");
    let spot = counted["events"][0]["aggregated"]["blind_spot"]["weight"].as_u64().unwrap();
    // The two recordings do not begin and end at exactly the same time.
    assert!(spot as f64 > 0.8 * seen as f64, "{spot} ns in the blind spot, of which {seen} ns are the programs'");
    let text = support::succeed(support::bprec().args(["report", "--stdio", "-i"]).arg(&counted_path)).stdout;
    assert!(String::from_utf8_lossy(&text).contains("[blind spot]"));
}

/// The recording of a killed recorder has all intervals except the last, and perf can read it; a recording in a pipe has all intervals.
#[test]
fn a_killed_recorder_leaves_its_intervals() {
    if !root("a_killed_recorder_leaves_its_intervals") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut child = support::bprec()
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "999", "--aggregate", "-I", "100", "-o"])
        .arg(&path)
        .spawn()
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while !fs::read(&path).is_ok_and(|bytes| File::parse(&bytes).is_ok_and(|_| sums_so_far(&path) > 3)) {
        assert!(Instant::now() < patience, "no samples after 20 s");
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let report = report(&path, &[]);
    let event = &report["events"][0];
    assert!(event["samples"]["samples"].as_u64().unwrap() > 3, "{event:#}");
    // Samples and blind spot cover the same time, up to the last written interval, so their sum is at most the time of the CPUs.
    let unseen_ns = event["aggregated"]["blind_spot"]["weight"].as_u64().unwrap();
    let recording = &report["recording"];
    let cpu_ns = recording["elapsed_ns"].as_u64().unwrap() * recording["cpus"].as_u64().unwrap();
    let sampled_ns = event["samples"]["weight"].as_u64().unwrap();
    assert!(sampled_ns + unseen_ns <= cpu_ns + cpu_ns / 10, "{sampled_ns} + {unseen_ns} of {cpu_ns}: {event:#}");
}

/// Sum of the weighted samples up to the last checkpoint.
fn sums_so_far(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    let Ok(file) = File::parse(&bytes) else { return 0 };
    let Ok(events) = Events::new(file.attrs(), file.endian()) else { return 0 };
    let records = file.records().map_while(Result::ok);
    records.filter(|record| record.kind == RecordType::SAMPLE && events.index_of(record) == Some(0)).count() as u64
}
