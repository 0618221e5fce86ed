//! Exact counters compared with independent numbers: plain perf events around many runs, readings that the program itself takes, and the machine
//! instructions of the JIT. Needs trampolines, and counters that always give the same number for the same work.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use crate::support::{Scratch, end, measured, program, recording, report, root, skip};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Counter, Fixture, HardwareEvent, Loaded};
use serde_json::Value;

/// Number of instructions in the loop of each program, which is also in its name.
const LOOPS: [(&str, u64); 3] = [("loop_of_100", 100), ("loop_of_1000", 1000), ("loop_of_10000", 10_000)];
/// Runs of each program during its recording; the shortest program has fewer.
const RUNS: u64 = 1000;
/// Runs of the shortest program: few, because one interrupt in a few thousand runs would be more than 1 % of all their instructions.
const RUNS_OF_THE_SHORTEST: u64 = 200;

/// True if the counters of this machine are repeatable; prints a skip message if not.
fn counters_repeat(test: &str) -> bool {
    if !root(test) {
        return false;
    }
    let loaded = load(&Fixture::COUNTED);
    for event in [HardwareEvent::Instructions, HardwareEvent::Cycles] {
        let times = || plain(&loaded, "loop_of_1000", event).map_err(|error| error.to_string());
        let (one, other) = match (times(), times()) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(why), _) | (_, Err(why)) => {
                skip(test, &why);
                return false;
            }
        };
        if (one - other).abs() > 0.003 * one {
            skip(
                test,
                &format!("the same work has different {event:?} on this machine: {one:.0} and {other:.0} per run"),
            );
            return false;
        }
    }
    true
}

fn load(fixture: &Fixture) -> Loaded {
    fixture.open().unwrap().load().unwrap()
}

/// Count that one more run adds to a counter of this thread; the fixed cost of a call cancels out. Returns the median of several measurements.
fn plain(loaded: &Loaded, name: &str, event: HardwareEvent) -> anyhow::Result<f64> {
    const TIMES: u32 = 200;
    let counter = Counter::of_this_thread(event)?;
    let of = |times: u32| -> anyhow::Result<f64> {
        let before = counter.value()?;
        loaded.run(name, times)?;
        Ok((counter.value()? - before) as f64)
    };
    let mut found = Vec::new();
    for _ in 0..9 {
        found.push((of(2 * TIMES)? - of(TIMES)?) / f64::from(TIMES));
    }
    found.sort_by(f64::total_cmp);
    Ok(found[found.len() / 2])
}

/// Count of a run, minus the count of a run of an empty program.
fn beyond_nothing(loaded: &Loaded, name: &str, event: HardwareEvent) -> f64 {
    plain(loaded, name, event).unwrap() - plain(loaded, "does_nothing", event).unwrap()
}

/// Options for sampling by time with almost no samples: a sample during a run would add to the counts of the run.
const BY_TIME: [&str; 4] = ["-e", "cpu-clock", "-F", "1"];
/// Options for sampling by cycles with almost no samples.
const BY_CYCLES: [&str; 4] = ["-e", "cycles", "-c", "1000000000"];

/// Records while `load` runs; returns the report.
fn recorded(scratch: &Scratch, samples: [&str; 4], pattern: &str, load: impl FnOnce()) -> Value {
    let path = scratch.path("perf.data");
    let pattern = format!("exact={pattern}");
    let more = [&samples[..], &["--counters", &pattern, "--budget", "100"]].concat();
    let child = recording(&path, "3", &more);
    load();
    end(child);
    report(&path, &[])
}

fn exact(report: &Value, id: u32) -> Result<&Value, String> {
    let program = program(report, id);
    match &program["exact"] {
        Value::Null => Err(program["exact_unknown"].to_string()),
        exact => Ok(exact),
    }
}

/// Count of an event per run.
fn per_run(exact: &Value, event: &str) -> Result<f64, String> {
    let events = exact["events"].as_array().ok_or("no events")?;
    let found = events.iter().find(|it| it["name"] == event).ok_or_else(|| format!("no {event} in {exact:#}"))?;
    found["per_run"]["value"].as_f64().ok_or_else(|| found["unknown"].to_string())
}

/// Number of runs of a program.
fn runs(name: &str) -> u32 {
    if name == LOOPS[0].0 { RUNS_OF_THE_SHORTEST as u32 } else { RUNS as u32 }
}

fn within(part: f64, what: &str, found: f64, expected: f64) -> Result<(), String> {
    println!("{what}: {found:.1}, expected {expected:.1} ({:+.2} %)", (found / expected - 1.0) * 100.0);
    match (found - expected).abs() <= part * expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:.1}, expected {expected:.1}")),
    }
}

#[test]
fn events_per_run_are_what_plain_counters_say() {
    if !counters_repeat("events_per_run_are_what_plain_counters_say") {
        return;
    }
    let loaded = load(&Fixture::COUNTED);
    let scratch = Scratch::new();
    measured(|| {
        let names = LOOPS.map(|(name, _)| name).into_iter().chain(["call_a_subprogram"]);
        let expected: Vec<(&str, f64, f64)> = names
            .map(|name| {
                let of = |event| beyond_nothing(&loaded, name, event);
                (name, of(HardwareEvent::Instructions), of(HardwareEvent::Cycles))
            })
            .collect();
        let before: Vec<u64> = expected.iter().map(|(name, ..)| loaded.entered(name).unwrap()).collect();
        let report = recorded(&scratch, BY_TIME, "loop_of_*,call_a_subprogram,run_inside_itself", || {
            expected.iter().for_each(|(name, ..)| loaded.run(name, runs(name)).unwrap());
        });
        for ((name, instructions, cycles), before) in expected.iter().zip(before) {
            let exact = exact(&report, loaded.id_of(name).unwrap())?;
            assert_eq!(exact["runs"].as_u64(), Some(loaded.entered(name).unwrap() - before), "{name}");
            assert_eq!(exact["measured"], exact["runs"], "{name}");
            let (found_instructions, found_cycles) = (per_run(exact, "instructions")?, per_run(exact, "cycles")?);
            within(0.01, &format!("{name} instructions"), found_instructions, *instructions)?;
            within(0.03, &format!("{name} cycles"), found_cycles, *cycles)?;
            let ipc = exact["ipc"].as_f64().ok_or("no IPC")?;
            within(0.001, &format!("{name} IPC"), ipc, found_instructions / found_cycles)?;
        }
        // For a program that did not run, only the number 0 of runs is known.
        let idle = exact(&report, loaded.id_of("run_inside_itself").unwrap())?;
        assert_eq!(idle["runs"], 0);
        for event in idle["events"].as_array().unwrap() {
            assert!(event["per_run"].is_null() && event["unknown"] == "no run was measured", "{event:#}");
        }
        Ok(())
    });
}

/// Sampling by cycles does not change the counted cycles, although the sampling event uses a counter of the PMU, too.
#[test]
fn what_is_sampled_is_nothing_to_what_is_counted() {
    if !counters_repeat("what_is_sampled_is_nothing_to_what_is_counted") {
        return;
    }
    let loaded = load(&Fixture::COUNTED);
    let scratch = Scratch::new();
    measured(|| {
        let expected = LOOPS.map(|(name, _)| beyond_nothing(&loaded, name, HardwareEvent::Cycles));
        let report = recorded(&scratch, BY_CYCLES, "loop_of_*", || {
            LOOPS.iter().for_each(|(name, _)| loaded.run(name, runs(name)).unwrap());
        });
        for ((name, _), expected) in LOOPS.iter().zip(expected) {
            let found = per_run(exact(&report, loaded.id_of(name).unwrap())?, "cycles")?;
            within(0.03, &format!("{name} cycles, sampled by cycles"), found, expected)?;
        }
        Ok(())
    });
}

/// Arm's instructions have four bytes each, and the programs have one loop: the instructions of a run can be counted by hand.
#[cfg(target_arch = "aarch64")]
#[test]
fn instructions_per_run_are_those_of_the_machine_code() {
    let test = "instructions_per_run_are_those_of_the_machine_code";
    if !counters_repeat(test) {
        return;
    }
    let loaded = load(&Fixture::COUNTED);
    let scratch = Scratch::new();
    let code = |name: &str| {
        let bytes = loaded.machine_code(name).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
    };
    // Number of instructions up to the only `ret`. The JIT puts code for trampolines after it.
    let body = |code: &[u32]| code.iter().position(|word| *word == 0xd65f_03c0).unwrap() as u64 + 1;
    measured(|| {
        let report = recorded(&scratch, BY_TIME, "loop_of_*", || {
            LOOPS.iter().for_each(|(name, _)| loaded.run(name, runs(name)).unwrap());
        });
        for (name, in_loop) in LOOPS {
            let code_of_it = code(name);
            // Number of instructions from the target of the backward branch to the branch, which is one round of the loop.
            let back = code_of_it.iter().find_map(|word| {
                let offset = (word << 8) as i32 >> 13;
                (word >> 24 == 0x54 && offset < 0).then_some(u64::from(offset.unsigned_abs()) + 1)
            });
            let round = back.unwrap();
            let expected = body(&code_of_it) + round * (in_loop / 2 - 1) - body(&code("does_nothing"));
            let found = per_run(exact(&report, loaded.id_of(name).unwrap())?, "instructions")?;
            within(0.01, &format!("{name} instructions by its machine code"), found, expected as f64)?;
        }
        Ok(())
    });
}

#[test]
fn cycles_per_run_are_what_a_program_reads_itself() {
    if !counters_repeat("cycles_per_run_are_what_a_program_reads_itself") {
        return;
    }
    let scratch = Scratch::new();
    measured(|| {
        let mut loaded = Fixture::MEASURED.open().unwrap().for_this_thread().unwrap().load().unwrap();
        loaded.read_event(HardwareEvent::Cycles).unwrap();
        loaded.attach().unwrap();
        system_calls(RUNS);
        let read = ["read_around_a_loop", "read_around_nothing"].map(|name| {
            let unread = loaded.variable("unread").unwrap();
            assert_eq!((loaded.ran(name).unwrap(), unread), (RUNS, 0), "{name}");
            loaded.variable(&format!("{name}_events")).unwrap() as f64 / RUNS as f64
        });
        // Exact counters need a second recording: their two programs around the function would add to the program's own reading.
        let report = recorded(&scratch, BY_TIME, "read_around_a_loop:*", || system_calls(RUNS));
        let program = program(&report, loaded.id_of("read_around_a_loop").unwrap());
        let functions = program["exact_functions"].as_array().unwrap();
        let function =
            functions.iter().find(|it| it["name"] == "loop_of_10000").ok_or("the function is not counted")?;
        assert_eq!(function["measured"], RUNS);
        within(0.03, "cycles of a function between two readings", per_run(function, "cycles")?, read[0] - read[1])
    });
}

#[test]
fn one_run_in_a_thousand_is_in_the_percentile_beyond() {
    if !counters_repeat("one_run_in_a_thousand_is_in_the_percentile_beyond") {
        return;
    }
    let name = "rarely_a_hundred_times_longer";
    let scratch = Scratch::new();
    measured(|| {
        let loaded = Fixture::COUNTED.open().unwrap().set("rarely", 1000).unwrap().load().unwrap();
        let report = recorded(&scratch, BY_TIME, name, || loaded.run(name, 5000).unwrap());
        assert_eq!(loaded.ran(name).unwrap(), 5);
        let exact = exact(&report, loaded.id_of(name).unwrap())?;
        let upto = |percent: f64| {
            let all = exact["percentiles"].as_array().unwrap();
            let found = all.iter().find(|it| it["percent"] == percent).unwrap();
            (found["from_ns"].as_f64().unwrap(), found["to_ns"].as_f64().unwrap())
        };
        let long = load(&Fixture::COUNTED);
        // Loops of 200 and of 20,000 instructions; the expected time follows from another program's loops of 1,000 and 10,000.
        let of = |name| beyond_nothing(&long, name, HardwareEvent::Cycles);
        let per_instruction = (of("loop_of_10000") - of("loop_of_1000")) / 9000.0;
        let (p50, p99, p999) = (upto(50.0), upto(99.0), upto(99.9));
        println!("p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, {per_instruction:.3} cycles per instruction of a loop");
        assert!(p99.1 < 10.0 * p50.1, "the shortest 99 % of the runs have similar times: {exact:#}");
        // Allows the width of a bucket, which is a quarter of the power of two that contains the time.
        let ghz = 1.0;
        let expected = 20_000.0 * per_instruction / ghz;
        match (p999.0 / 1.25..=p999.1 * 1.25).contains(&expected) {
            true => Ok(()),
            false => Err(format!("p99.9 is {p999:?} ns, a long run takes {expected:.0} ns: {exact:#}")),
        }
    });
}
