//! The bill of an agent, compared with the CPU time that its victims and its process take. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::support::{Running, Scratch, measured, report, root, signal};
use bprec_fixtures::agent::{Agent, AgentPart, VICTIM, Victim};
use bprec_fixtures::{Fixture, Loaded, stop_when_signalled};
use serde_json::Value;

/// Operations of each victim.
const OPERATIONS: u64 = 60_000;
/// Pairs of runs, with and without the agent; their results are added.
const PAIRS: usize = 2;
/// Limit on the relative deviation of the bill from the measured difference, beyond chance: the agent also evicts data of its victims from the
/// caches.
const MAX_DEVIATION: f64 = 0.15;

/// An agent in a separate process.
struct AgentProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl AgentProcess {
    fn start() -> AgentProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "bill::agent_serves", "--nocapture", "--test-threads=1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut agent = AgentProcess { child, output };
        agent.line("ready");
        agent
    }

    /// The rest of the next line that starts with `word`.
    fn line(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the agent ended before it printed {word}");
            // The test harness prints lines, too.
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Ends the agent; returns its CPU time since it was ready, ns.
    fn stop(mut self) -> u64 {
        signal(&self.child, "-TERM");
        let served = self.line("served");
        self.child.wait().unwrap();
        served.parse().unwrap()
    }
}

/// An agent that a failed test left running would cost the victims of other tests.
impl Drop for AgentProcess {
    fn drop(&mut self) {
        // After `stop`, the process is gone, and both calls do nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The test that [`AgentProcess`] runs in a separate process.
#[test]
#[ignore = "run by another test"]
fn agent_serves() {
    stop_when_signalled();
    // The parts that every kernel has.
    let agent = Agent::start(&[AgentPart::Uprobe, AgentPart::Tracepoint, AgentPart::Ring], 1).unwrap();
    println!("\nready");
    let (cpu_ns, _) = agent.serve().unwrap();
    println!("\nserved {cpu_ns}");
}

fn victims_ns() -> u64 {
    Victim::OF_AGENT.iter().map(|victim| victim.run(OPERATIONS).unwrap()).sum()
}

/// Resident memory of a process, summed over its mappings.
fn resident_bytes(pid: u32) -> u64 {
    let sums = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = sums.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn weight(value: &Value) -> f64 {
    value["weight"].as_f64().unwrap_or_else(|| panic!("no weight: {value:#}"))
}

/// CPU time that the victims save without the agent, in ns: predicted by the report, and measured. Sums over all pairs of runs.
#[derive(Default)]
struct Predicted {
    predicted_ns: f64,
    margin_ns: f64,
    saved_ns: f64,
}

impl Predicted {
    /// Adds one pair of runs. The victims took `with_ns` while the programs of `owner` were attached, and `without_ns` without them.
    fn add(&mut self, path: &Path, owner: &str, with_ns: f64, without_ns: f64) {
        let report = report(path, &["--without", owner]);
        let payers = report["events"][0]["payers"].as_array().unwrap();
        let victim = payers.iter().find(|payer| payer["payer"][0]["name"] == VICTIM).unwrap();
        let of_victims = |percent: &str| victim[percent].as_f64().unwrap() / 100.0 * with_ns;
        self.predicted_ns += of_victims("tax_percent");
        self.margin_ns += of_victims("tax_margin_percent");
        self.saved_ns += with_ns - without_ns;
    }

    /// Checks that the measured saving is within the margin of the prediction.
    fn check(&self) -> Result<(), String> {
        let Predicted { predicted_ns, margin_ns, saved_ns } = self;
        let message = format!("predicted {predicted_ns} ± {margin_ns} ns for the victims, saved {saved_ns} ns");
        println!("{message}");
        if (predicted_ns - saved_ns).abs() <= *margin_ns { Ok(()) } else { Err(message) }
    }
}

#[test]
fn the_bill_of_an_agent_is_what_its_victims_and_its_process_take() {
    if !root("the_bill_of_an_agent_is_what_its_victims_and_its_process_take") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let record = || Running::record(&path, &["-c", "500000", "-e", "cpu-clock", "--counters", "off"]);
    measured(|| {
        let (mut saved_ns, mut billed_ns, mut samples) = (0.0, 0.0, 0.0);
        let mut predicted = Predicted::default();
        for _ in 0..PAIRS {
            // Both runs are recorded, so the cost of recording cancels out.
            let recording = record();
            let without_ns = victims_ns();
            recording.end();
            let agent = AgentProcess::start();
            let pid = agent.child.id();
            let recording = record();
            let with_ns = victims_ns();
            recording.end();
            let resident_bytes = resident_bytes(pid);
            let agent_ns = agent.stop();
            saved_ns += with_ns as f64 + agent_ns as f64 - without_ns as f64;

            let row = |selection: &[&str]| {
                let mut bill = report(&path, &[&["--bill"], selection].concat());
                let mut owners = bill["events"][0]["owners"].as_array_mut().unwrap().iter_mut();
                let owner = owners.find(|owner| owner["pids"].as_array().unwrap().contains(&pid.into()));
                owner.map(Value::take).ok_or("the bill lacks the agent")
            };
            // The agent's tracepoint also adds cost to all other tasks, which are not measured.
            let (owner, own) = (row(&["--comms", VICTIM])?, row(&[])?["own_tasks"].take());
            billed_ns += weight(&owner) + weight(&own);
            samples += owner["samples"].as_f64().unwrap() + own["samples"].as_f64().unwrap();
            // The process begins to read before the recording and ends after it.
            let own_deviation = weight(&own) / agent_ns as f64 - 1.0;
            assert!(own_deviation.abs() < 0.03, "own tasks {}, CPU clock of the process {agent_ns}", weight(&own));
            predicted.add(&path, owner["name"].as_str().unwrap(), with_ns as f64, without_ns as f64);
            let parts = [&owner["in_others"]["self"], &owner["causes"]["user_probes"], &own];
            assert!(parts.iter().all(|part| weight(part) > 0.0), "{owner:#}");
            let bytes = owner["resident_bytes"].as_f64().unwrap();
            let ratio = bytes / resident_bytes as f64;
            assert!((0.8..1.25).contains(&ratio), "resident memory {bytes}, of /proc {resident_bytes}");
        }
        predicted.check()?;
        let chance = 5.0 / f64::sqrt(samples);
        let deviation = billed_ns / saved_ns - 1.0;
        println!("billed {billed_ns} ns, saved without the agent {saved_ns} ns, by {samples} samples");
        match deviation.abs() <= MAX_DEVIATION + chance {
            true => Ok(()),
            false => Err(format!("the bill is {billed_ns} ns, the difference {saved_ns} ns, by {samples} samples")),
        }
    });
}

/// The victims' system calls are known, and their CPU time is measured by the clock of their process.
#[test]
fn the_saved_time_per_operation_is_that_of_the_known_operations() {
    if !root("the_saved_time_per_operation_is_that_of_the_known_operations") {
        return;
    }
    const CALLS: u64 = 200_000;
    const COUNTED_BY: &str = "raw_syscalls:sys_enter";
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let agent = AgentProcess::start();
    let pid = agent.child.id();
    measured(|| {
        let event = format!("{COUNTED_BY}/period=20/");
        let recording = Running::record(&path, &["-e", "cpu-clock/period=500000/", "-e", &event, "--counters", "off"]);
        let victims_ns = Victim::SystemCalls.run(CALLS).unwrap() as f64;
        recording.end();
        let report = report(&path, &["--without", &format!("*/{pid}"), "--per", COUNTED_BY]);
        assert_eq!(report["operation"], event);
        let clock = report["events"].as_array().unwrap();
        assert_eq!(clock.len(), 1, "the event that counts operations is not shown");
        let payers = clock[0]["payers"].as_array().unwrap();
        let victim = payers.iter().find(|payer| payer["payer"][0]["name"] == VICTIM).unwrap();
        let number = |name: &str| victim["operations"][name].as_f64().unwrap();
        // The thread makes a few more calls when it starts and ends.
        let counted = number("weight") / CALLS as f64;
        assert!((0.99..1.01).contains(&counted), "{} of {CALLS} calls", number("weight"));
        let expected = victim["tax_percent"].as_f64().unwrap() / 100.0 * victims_ns / CALLS as f64;
        let ratio = number("saved") / expected;
        println!("{} ± {} ns, expected {expected} ns", number("saved"), number("margin"));
        assert!(number("margin") < number("saved"));
        if (0.95..1.05).contains(&ratio) { Ok(()) } else { Err(format!("{} ns, expected {expected}", number("saved"))) }
    });
    agent.stop();
}

/// Number of loads of each program.
const LOADS: usize = 1000;
/// Number of loads for which a program stays loaded, so that the recorder can read its facts.
const LOADS_HELD: usize = 200;
/// Limit on the relative deviation of the cost of loads from the CPU time that the loader measures, beyond chance.
const MAX_LOAD_DEVIATION: f64 = 0.15;

/// Measurements of the loads of one program.
#[derive(Debug, Default)]
struct MeasuredLoads {
    cpu: Duration,
    /// CPU time in the verifier. The time in which the thread did not run is subtracted: nearly all of a load is in the verifier.
    verifier: Duration,
    /// Time of each load in the verifier and in the system call, by program id.
    bounds: BTreeMap<u64, (Duration, Duration)>,
}

/// Error of the offset between the clock of load times and the clock of records.
const CLOCKS_APART: Duration = Duration::from_micros(20);

/// Loads programs in turn, [`LOADS`] times each, under the given names.
fn load_in_turn(programs: &[(Loaded, &str, CString)]) -> Vec<MeasuredLoads> {
    let mut measured: Vec<MeasuredLoads> = programs.iter().map(|_| MeasuredLoads::default()).collect();
    let mut held = VecDeque::new();
    for _ in 0..LOADS {
        for ((loaded, program, name), sums) in programs.iter().zip(&mut measured) {
            let load = loaded.load_again(program, name).unwrap();
            sums.cpu += load.cpu;
            sums.verifier += load.verifier.saturating_sub(load.elapsed.saturating_sub(load.cpu));
            sums.bounds.insert(load.id.into(), (load.verifier, load.elapsed));
            held.push_back(load);
        }
        held.drain(..held.len().saturating_sub(LOADS_HELD));
    }
    measured
}

/// Checks that a cost agrees with a measured CPU time.
fn agrees(what: &str, weight: f64, samples: f64, measured: Duration) -> Result<(), String> {
    let deviation = weight / measured.as_nanos() as f64 - 1.0;
    let message =
        format!("{what}: {weight} ns by {samples} samples, measured {measured:?}: {:.1} %", 100.0 * deviation);
    println!("{message}");
    if deviation.abs() <= MAX_LOAD_DEVIATION + 5.0 / samples.sqrt() { Ok(()) } else { Err(message) }
}

/// Two programs are loaded in turn. The bill has the CPU time of each in the system call, as the loader measures it, and in the verifier, which
/// measures its own time.
#[test]
fn loads_cost_the_time_that_their_loader_measures() {
    if !root("loads_cost_the_time_that_their_loader_measures") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    // The verifier walks every iteration. The subprogram of `churn` is compiled inside of the verifier, the other program after it.
    let load = |fixture: Fixture, loops| fixture.open().unwrap().loops(loops).unwrap().load().unwrap();
    let programs = [
        (load(Fixture::churn(0).unwrap(), 10), "churn_000000", c"with_subprogram".to_owned()),
        (load(Fixture::TWIN_A, 30), "same_name_in_two_objects", c"one_function".to_owned()),
    ];
    measured(|| {
        let recording = Running::record(&path, &["-c", "250000", "-e", "cpu-clock", "--counters", "off"]);
        let measured = load_in_turn(&programs);
        recording.end();

        let bill = report(&path, &["--bill"]);
        let owners = bill["events"][0]["owners"].as_array().unwrap();
        let is_loader = |owner: &&Value| owner["pids"].as_array().unwrap().contains(&std::process::id().into());
        let owner = owners.iter().find(is_loader).ok_or("the bill lacks the loader")?;
        let of_owner = &owner["own_tasks"]["loads"];
        let cpu = measured.iter().map(|measured| measured.cpu).sum();
        agrees("loads", weight(of_owner), of_owner["samples"].as_f64().unwrap(), cpu)?;

        let facts = report(&path, &[]);
        for ((.., name), measured) in programs.iter().zip(&measured) {
            let name = name.to_str().unwrap();
            let rows = owner["programs"].as_array().unwrap().iter().filter(|row| row["name"] == name);
            let loads: Vec<&Value> = rows.map(|row| &row["own_tasks"]["loads"]).collect();
            let sum = |part: &str| {
                let parts = loads.iter().map(|loads| loads.pointer(part).unwrap());
                parts.fold((0.0, 0.0), |sum, it| (sum.0 + weight(it), sum.1 + it["samples"].as_f64().unwrap()))
            };
            let [all, verifier, jit] = ["", "/verifier", "/jit"].map(sum);
            agrees(name, all.0, all.1, measured.cpu)?;
            let compiled = if name == "with_subprogram" { jit } else { (0.0, 0.0) };
            agrees("its verifier", verifier.0 + compiled.0, verifier.1 + compiled.1, measured.verifier)?;
            assert!(jit.0 > 0.0, "{name}");

            let found = facts["programs"].as_array().unwrap().iter().filter_map(|program| {
                let (verifier, elapsed) = measured.bounds.get(&program["id"].as_u64()?)?;
                let duration = Duration::from_nanos(program["load_duration_ns"].as_u64()?);
                let is_between = duration + CLOCKS_APART >= *verifier && duration <= *elapsed + CLOCKS_APART;
                assert!(is_between, "{verifier:?} to {elapsed:?}: {program:#}");
                assert!(program["verified_insns"].as_u64() > Some(1000), "{program:#}");
                Some(program)
            });
            let found = found.count();
            assert!(found * 10 > LOADS * 9, "{found} of {LOADS} loads of {name} have a duration");
        }
        Ok(())
    });
}
