//! Recordings of known loads: shares, sums, runs. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    Running, Scratch, alone, bprec, end, kernel_is, measured, program, recording, report, report_of_this_thread, root,
    skip, succeed,
};
use bprec_fixtures::load::{HELPER_FUNCTION, SYSTEM_CALL_FUNCTIONS, system_calls};
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

/// The first event's row of the program with this id.
fn row(report: &Value, id: u32) -> &Value {
    let rows = report["events"][0]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row for program {id}: {rows:#?}"))
}

/// Frequency of the sampling timer, in Hz.
const FREQUENCY: &str = "4000";
/// Period of the sampling timer.
const PERIOD_NS: u64 = 250_000;

/// Makes calls for this time, with a pause of up to one timer period after each call, because evenly spaced calls would run in step with the timer. A
/// call takes much less than a period: otherwise taking a sample could cause a second sample in the same call, and the program that runs last in the
/// call would get more than its share.
fn calls_for(time: Duration) {
    let until = Instant::now() + time;
    let mut random = 1u64;
    while Instant::now() < until {
        system_calls(1);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pause = Instant::now() + Duration::from_nanos(((random >> 32) * PERIOD_NS) >> 32);
        while Instant::now() < pause {
            std::hint::spin_loop();
        }
    }
}

/// Checks that `heavy` is `factor` times `light`, within three standard deviations of two Poisson counts.
fn in_proportion(name: &str, heavy: u64, light: u64, factor: f64) -> Result<(), String> {
    let (heavy, light) = (heavy as f64, light as f64);
    // On a busy machine, the load gets less CPU time. With too few samples, the test proves nothing.
    if light <= 50.0 {
        return Err(format!("{name}: only {light} samples"));
    }
    let deviation = (heavy + factor * factor * light).sqrt();
    match (heavy - factor * light).abs() < 3.0 * deviation {
        true => Ok(()),
        false => Err(format!("{name}: {heavy} : {light}, expected {factor} : 1 within 3 × {deviation}")),
    }
}

fn tp(loops: u32) -> Loaded {
    Fixture::TP.open().unwrap().for_this_thread().unwrap().loops(loops).unwrap().start().unwrap()
}

/// The costs of two copies of a tracepoint program with loops of 1 : 3 are 1 : 3, within three standard deviations.
#[test]
fn loops_of_one_to_three_cost_one_to_three() {
    if !root("loops_of_one_to_three_cost_one_to_three") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    // The loop is so long that the time before and after it is negligible.
    let (one, three) = (tp(100), tp(300));
    measured(|| {
        let child = recording(&path, "4", &["-F", FREQUENCY, "-e", "cpu-clock"]);
        calls_for(Duration::from_millis(3_500));
        end(child);
        let report = report(&path, &["--by", "func"]);
        ["account_syscall_enter", "account_syscall_exit"].into_iter().try_for_each(|name| {
            let samples = |loaded: &Loaded| row(&report, loaded.id_of(name).unwrap())["samples"].as_u64().unwrap();
            in_proportion(name, samples(&three), samples(&one), 3.0)
        })
    });
}

/// `top` shows the ratio 1 : 3, too, while two such copies run.
#[test]
fn top_shows_them_as_one_to_three() {
    if !root("top_shows_them_as_one_to_three") {
        return;
    }
    alone();
    let (one, three) = (tp(100), tp(300));
    measured(|| {
        let arguments = ["top", "--json", "-F", FREQUENCY, "-d", "0.5", "-n", "10"];
        let top = bprec().args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        calls_for(Duration::from_millis(5_500));
        let output = top.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        let intervals: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(intervals.len(), 10);
        ["account_syscall_enter", "account_syscall_exit"].into_iter().try_for_each(|name| {
            let of = |interval: &Value, id: u32| {
                let rows = interval["report"]["events"][0]["rows"].as_array().unwrap();
                // A program without runs and samples has no row.
                let row = rows.iter().find(|row| row["id"] == id);
                row.and_then(|row| row["self"]["samples"].as_u64()).unwrap_or(0)
            };
            // Only samples in the programs' own code count, because the kernel's part of a run is the same for both.
            let samples = |loaded: &Loaded| {
                let id = loaded.id_of(name).unwrap();
                intervals.iter().map(|interval| of(interval, id)).sum()
            };
            in_proportion(name, samples(&three), samples(&one), 3.0)
        })
    });
}

/// Every sample of the file is in exactly one row, and every row is in the total.
#[test]
fn rows_add_up_to_the_file() {
    if !root("rows_add_up_to_the_file") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let _programs = [
        tp(200),
        tp(200),
        Fixture::TAIL_CALL.open().unwrap().for_this_thread().unwrap().loops(100).unwrap().start().unwrap(),
    ];
    let child = recording(&path, "2", &["-F", "5000", "-e", "cpu-clock", "-g"]);
    calls_for(Duration::from_millis(1_800));
    end(child);

    let whole = report(&path, &[]);
    let event = &whole["events"][0];
    let field = |value: &Value, name: &str| value[name].as_u64().unwrap();
    // A program that the event cannot see, which another user may have loaded, has no charges.
    let charged = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
    for unit in ["samples", "weight"] {
        let rows: u64 = event["rows"].as_array().unwrap().iter().map(|row| charged(row, unit)).sum();
        let lines = ["entry_unattributed", "interpreted", "others", "counting_programs"];
        let rest: u64 = lines.iter().map(|line| event[line][unit].as_u64().unwrap_or(0)).sum();
        assert_eq!(rows + rest, field(&event["total"], unit), "{unit}");
    }
    assert_eq!(event["unknown_kernel_code"]["samples"], 0, "{:#}", event["unknown_kernel_code"]);
    assert!(field(&event["total"], "samples") > 300);

    // A split by CPU or task neither adds nor loses samples.
    for split in ["cpu", "comm", "func", "helper", "cgroup"] {
        let split_report = report(&path, &["--by", split]);
        for (row, split_row) in
            event["rows"].as_array().unwrap().iter().zip(split_report["events"][0]["rows"].as_array().unwrap())
        {
            let parts = split_row["parts"].as_array().unwrap();
            for unit in ["samples", "weight"] {
                let sum: u64 = parts.iter().map(|part| charged(part, unit)).sum();
                assert_eq!(sum, charged(row, unit), "--by {split} {unit}: {split_row:#}");
            }
        }
    }
    // Parts of the time add up to the whole.
    let parts = ["0%-37%", "37%-100%"];
    let samples: u64 =
        parts.iter().map(|part| field(&report(&path, &["--time", part])["events"][0]["samples"], "samples")).sum();
    assert_eq!(samples, field(&event["samples"], "samples"));
}

/// Two programs with the same name stay separate. The cost of a tail call chain is divided among its programs by their work.
#[test]
fn equal_names_and_tail_calls_are_told_apart() {
    if !root("equal_names_and_tail_calls_are_told_apart") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let start = |fixture: Fixture, loops| {
        fixture.open().unwrap().for_this_thread().unwrap().loops(loops).unwrap().start().unwrap()
    };
    let (a, b, tail) = (start(Fixture::TWIN_A, 100), start(Fixture::TWIN_B, 400), start(Fixture::TAIL_CALL, 100));
    measured(|| {
        let child = recording(&path, "4", &["-F", FREQUENCY, "-e", "cpu-clock"]);
        calls_for(Duration::from_millis(3_500));
        end(child);
        // System calls of other tasks run the programs on the hook, too.
        let report = report_of_this_thread(&path, &[]);
        let samples =
            |loaded: &Loaded, name: &str| row(&report, loaded.id_of(name).unwrap())["samples"].as_u64().unwrap();
        // Arguments after the name: samples of the heavier and of the lighter program, and their ratio, which is from the sources of the programs.
        let twin = "same_name_in_two_objects";
        let first = samples(&tail, "tail_call_first");
        in_proportion(twin, samples(&b, twin), samples(&a, twin), 4.0)?;
        in_proportion("tail_call_second", samples(&tail, "tail_call_second"), first, 2.0)?;
        in_proportion("tail_call_third", samples(&tail, "tail_call_third"), first, 4.0)?;
        // The cost of the whole chain belongs to the program on the hook; each program of the chain has a part according to its work.
        let trees = report_of_this_thread(&path, &["--tree"]);
        let tree = |name: &str| {
            let id = tail.id_of(name).unwrap();
            let found = trees["events"][0]["trees"].as_array().unwrap().iter().find(|tree| tree["id"] == id);
            found.unwrap_or_else(|| panic!("no tree of {name}: {trees:#}")).clone()
        };
        let chain = tree("tail_call_entry")["chain"].clone();
        let in_chain = |name: &str| {
            let tree = tree(name);
            let from = tree["tail_called_from"].as_array().unwrap();
            assert_eq!(from.len(), 1, "{name}: {from:?}");
            assert_eq!(from[0]["program"]["id"], tail.id_of("tail_call_entry").unwrap(), "{name}");
            assert_eq!(from[0]["samples"], tree["samples"], "{name}");
            tree["samples"].as_u64().unwrap()
        };
        let works = [("tail_call_first", 1.0), ("tail_call_second", 2.0), ("tail_call_third", 4.0)];
        let worked: u64 = works.iter().map(|(name, _)| in_chain(name)).sum();
        // The remaining samples are in the first program and its entry code.
        assert_eq!(chain["samples"], worked + tree("tail_call_entry")["samples"].as_u64().unwrap());
        for (name, work) in works {
            let (share, expected) = (in_chain(name) as f64 / worked as f64, work / 7.0);
            // Three percentage points are more than three standard deviations of 3,000 samples.
            if (share - expected).abs() > 0.03 {
                return Err(format!("{name} has {share} of {worked} samples, expected {expected} within three points"));
            }
        }
        Ok(())
    });
}

/// Number of hits that bpftool says a link's kprobe missed.
fn missed_by_bpftool(link_id: u32) -> u64 {
    // With an id, bpftool 7.5 prints the link and then ends with an error.
    let output = Command::new("bpftool").args(["-j", "link", "show", "id", &link_id.to_string()]).output().unwrap();
    let link: Value = serde_json::from_slice(&output.stdout).unwrap();
    link["missed"].as_u64().unwrap_or_else(|| panic!("bpftool shows no missed hits: {link}"))
}

/// The program of one kprobe calls a helper, and the helper has a kprobe, too. The kernel skips the helper's kprobe each time: a missed hit, which is
/// not a run that the recursion guard prevented.
#[test]
fn hits_that_a_kprobe_missed_are_counted_from_start_to_end() {
    let test = "hits_that_a_kprobe_missed_are_counted_from_start_to_end";
    if !root(test) {
        return;
    }
    if !kernel_is(6, 7) {
        return skip(test, "before Linux 6.7, links do not show missed hits");
    }
    let (outer, inner) = ("call_a_helper_in_a_kprobe", "run_at_the_helper");
    let mut loaded = Fixture::KPROBES.open().unwrap().load().unwrap();
    let attached = loaded
        .attach_to_kernel_function(inner, &[HELPER_FUNCTION])
        .and_then(|()| loaded.attach_to_kernel_function(outer, &SYSTEM_CALL_FUNCTIONS));
    if let Err(why) = attached {
        return skip(test, &format!("{why:#}"));
    }
    let inner_link = loaded.link_ids().unwrap()[0];
    // Hits before the recording, which it must not count.
    system_calls(70);
    let entered = || loaded.entered(outer).unwrap();
    let (first, missed) = (entered(), missed_by_bpftool(inner_link));
    assert!(missed >= 70, "{missed}");

    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let running = Running::record(&path, &[]);
    let begun = entered();
    system_calls(500);
    let ended = entered();
    running.end();
    let last = entered();
    assert_eq!(missed_by_bpftool(inner_link) - missed, last - first, "each call of the helper is missed");
    let whole = report(&path, &[]);
    let of = |name| program(&whole, loaded.id_of(name).unwrap());
    let hits = of(inner)["probe_misses"].as_u64().unwrap();
    // Shells call getppid, too, also the shell that starts during the recording. So the count is within bounds read before and after.
    assert!(
        ended - begun >= 500 && (ended - begun..=last - first).contains(&hits),
        "{first} {begun} {hits} {ended} {last}"
    );
    assert_eq!((&of(inner)["runs"]["misses"], &of(outer)["probe_misses"]), (&0.into(), &0.into()));
    let output = succeed(bprec().args(["report", "--wide", "--notes", "-i"]).arg(&path));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("PROBE MISSES"), "{table}");
    assert!(table.contains(&format!("{hits} hits of {inner} (")), "{table}");
}
