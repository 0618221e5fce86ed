//! Compares what reports say about the cost of agents with the CPU time that a machine saves without them. An agent is a process with BPF programs.
//! Victims are loads of fixed work that run these programs. Needs root and an idle machine.
//!
//! `cargo bench --bench bill -- BPREC BPREC-LOAD pairs|traced|others|mixes [COUNT [OPERATIONS]]`:
//! - `pairs`: the bill of a fixture agent, and of agents with only some of its parts, in 20 pairs of runs with and without the agent;
//! - `traced`: the same for agents with kprobes and fentry programs, on kernels that have these;
//! - `others`: the bill of bpftrace and of tools of libbpf-tools, in 5 pairs each;
//! - `mixes`: predictions of `--without` in 60 random mixes of agents and victims.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout, reason = "a bench")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Operations that each victim does in a run, such as system calls, if no other number is given.
const OPERATIONS: u64 = 50_000;
/// Sampling period in ns of CPU time for each 1,000 operations: runs with fewer operations have as many samples. The period is no multiple of the
/// kernel's tick, which an emulated CPU keeps to the instruction.
const PERIOD_NS_PER_1000_OPERATIONS: u64 = 9_973;
/// Difference of the period between two pairs, and the number of different periods: with one period, samples can keep step with operations that repeat
/// to the instruction.
const PERIOD_STEPS: (u64, usize) = (103, 20);
/// Names of the victims' tasks, and of the programs that they start.
const VICTIM_TASKS: &str = "victim,true";
/// Victims that run the programs of the fixture agent.
const VICTIMS: [&str; 3] = ["system_calls", "packets", "switches"];
/// Agents, each with its parts: a program on a user probe, a program on a tracepoint, and the ring buffer that both write to. The first agent has all
/// parts; the other agents show the cost of single parts.
const AGENTS: [&str; 4] = ["uprobe,tracepoint,ring", "uprobe", "tracepoint", "tracepoint,ring"];
/// Rounds of work in each run of an agent's program, if the agent has only one part: with a single round, the victims alone vary by more than it costs.
const LOOPS_OF_ONE_PART: u64 = 20;
/// Agents of `traced`.
const TRACED_AGENTS: [&str; 5] =
    ["uprobe,tracepoint,kprobe,fentry,ring", "kprobe,ring", "kprobe", "fentry", "fentry,ring"];
/// Agents of the random mixes.
const MIXED_AGENTS: [&str; 6] =
    ["uprobe", "tracepoint", "uprobe,tracepoint", "uprobe,ring", "tracepoint,ring", "uprobe,tracepoint,ring"];
/// Tools of others: command, and victims that run its programs.
const OTHERS: [(&[&str], &str); 9] = [
    (&["opensnoop"], "opens"),
    (&["execsnoop"], "programs"),
    (&["exitsnoop"], "programs"),
    (&["syscount"], "system_calls"),
    (&["runqlat"], "switches"),
    (&["cpudist"], "switches"),
    (&["wakeuptime", "60"], "switches"),
    (&["softirqs"], "packets"),
    (&["bpftrace", "-e", "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"], "system_calls,packets"),
];
/// Largest deviations of a bill from the measured difference, in per cent: on a machine and in a guest.
const MAX_DEVIATIONS: [f64; 2] = [10.0, 15.0];
/// Seed of the random mixes: each run has the same mixes.
const SEED: u64 = 29;

/// Paths of the executables `bprec` and `bprec-load`, and the operations that each victim does in a run.
struct Programs {
    bprec: String,
    load: String,
    operations: u64,
}

/// CPU time of one run, ns.
struct Run {
    /// CPU time of victims and agent together, by the CPU clocks of their processes.
    measured_ns: u64,
    /// Bill of the agent; 0 without an agent.
    billed: Billed,
}

/// Bill of the agent, ns.
#[derive(Default)]
struct Billed {
    sum_ns: u64,
    in_others_ns: u64,
    own_ns: u64,
    causes_ns: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [bprec, load, experiment, rest @ ..] = arguments.as_slice() else {
        panic!("expected BPREC BPREC-LOAD pairs|traced|others|mixes [COUNT [OPERATIONS]]")
    };
    let number = |at: usize, default| rest.get(at).map_or(default, |text| text.parse().expect("a number"));
    let programs = Programs { bprec: bprec.clone(), load: load.clone(), operations: number(1, OPERATIONS) };
    let count = |default| number(0, default) as usize;
    match experiment.as_str() {
        "pairs" | "traced" => {
            let agents = if experiment == "pairs" { &AGENTS[..] } else { &TRACED_AGENTS };
            let agents = agents.iter().map(|parts| {
                let loops = if parts.contains(',') { 1 } else { LOOPS_OF_ONE_PART };
                ((*parts).to_owned(), VICTIMS.join(","), Kind::Fixture { parts, loops })
            });
            let agents: Vec<_> = agents.collect();
            programs.compare(&agents, count(20));
        }
        "others" => {
            let agents = OTHERS.map(|(command, victims)| {
                (format!("`{}`", command.join(" ")), victims.to_owned(), Kind::Other { command })
            });
            programs.compare(&agents, count(5));
        }
        "mixes" => programs.predict_mixes(count(60)),
        _ => panic!("{experiment} is none of pairs, traced, others, mixes"),
    }
}

impl Programs {
    /// Runs pairs of recordings for each agent (its name, its victims and how to start it), one with and one without the agent, and prints a table.
    fn compare(&self, agents: &[(String, String, Kind)], pairs: usize) {
        println!(
            "| agent | pair | measured, ms | billed, ms | deviation, % | in others, ms | own tasks, ms | causes, ms |"
        );
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (name, victims, kind) in agents {
            let mut deviations = Vec::new();
            for pair in 1..=pairs {
                let run = |kind| self.run(kind, victims, pair);
                // The order of the two runs alternates, so that a drift of the machine cancels out.
                let (with, without) = match pair % 2 {
                    0 => (run(Some(*kind)), run(None)),
                    _ => {
                        let without = run(None);
                        (run(Some(*kind)), without)
                    }
                };
                let measured_ns = with.measured_ns as f64 - without.measured_ns as f64;
                let deviation = (with.billed.sum_ns as f64 / measured_ns - 1.0) * 100.0;
                deviations.push(deviation);
                println!(
                    "| {name} | {pair} | {} | {} | {deviation:+.1} | {} | {} | {} |",
                    ms(measured_ns),
                    ms(with.billed.sum_ns as f64),
                    ms(with.billed.in_others_ns as f64),
                    ms(with.billed.own_ns as f64),
                    ms(with.billed.causes_ns as f64),
                );
            }
            let near = |most: f64| deviations.iter().filter(|deviation| deviation.abs() <= most).count();
            let [here, guest] = MAX_DEVIATIONS.map(|most| format!("within {most} %: {} of {pairs}", near(most)));
            let median = median(deviations);
            println!("| {name} | {here}, {guest} | | | median {median:+.1} | | | |");
        }
    }

    /// Sampling period of a pair of runs.
    fn period_ns(&self, pair: usize) -> String {
        let (step, steps) = PERIOD_STEPS;
        (self.operations * (PERIOD_NS_PER_1000_OPERATIONS - step * (pair % steps) as u64) / 1000).to_string()
    }

    /// Records the victims, beside an agent or alone, in one of the two runs of a pair.
    fn run(&self, kind: Option<Kind>, victims: &str, pair: usize) -> Run {
        let agent = kind.map(|kind| Agent::start(&self.load, kind));
        let path = recording();
        // Both runs of a pair are recorded, so that the cost of recording cancels out.
        let mut record = Command::new(&self.bprec);
        record
            .args(["record", "-q", "-a", "--counters", "off", "-e", "cpu-clock", "-c", &self.period_ns(pair), "-o"])
            .arg(&path);
        record.args(["--", &self.load, "victims", "--count", &self.operations.to_string(), "--of", victims]);
        let victims_ns = field(&output(&mut record), "done", "cpu_ns");
        let run = match agent {
            None => Run { measured_ns: victims_ns, billed: Billed::default() },
            Some(agent) => {
                let pid = agent.child.id();
                Run { measured_ns: victims_ns + agent.stop(), billed: self.bill(&path, pid) }
            }
        };
        fs::remove_file(&path).unwrap();
        run
    }

    /// Returns the bill of the process `pid`: the cost in the victims, and the time of its own tasks.
    fn bill(&self, path: &PathBuf, pid: u32) -> Billed {
        // The programs also cost other tasks, which are not measured.
        let in_victims = self.owner(path, pid, &["--comms", VICTIM_TASKS]);
        let weight = |value: &Value| value["weight"].as_u64().expect("a weight");
        let own_ns = weight(&self.owner(path, pid, &[])["own_tasks"]);
        Billed {
            sum_ns: weight(&in_victims) + own_ns,
            in_others_ns: weight(&in_victims["in_others"]),
            own_ns,
            causes_ns: weight(&in_victims["causes"]),
        }
    }

    /// Returns the row of the owner that has the process `pid`.
    fn owner(&self, path: &PathBuf, pid: u32, selection: &[&str]) -> Value {
        let mut bill = self.report(path, &[&["--bill"], selection].concat());
        let mut owners = bill["events"][0]["owners"].as_array_mut().expect("owners").iter_mut();
        let owner = owners.find(|owner| owner["pids"].as_array().is_some_and(|pids| pids.contains(&pid.into())));
        owner.unwrap_or_else(|| panic!("the bill has no owner with process {pid}")).take()
    }

    fn report(&self, path: &PathBuf, options: &[&str]) -> Value {
        let mut report = Command::new(&self.bprec);
        report.args(["report", "--json"]).args(options).arg("-i").arg(path);
        serde_json::from_str(&output(&mut report)).unwrap()
    }

    /// Compares predictions of `--without` with the CPU time that victims take without the agent, and prints a table.
    fn predict_mixes(&self, mixes: usize) {
        let mut random = Random(SEED);
        let (mut inside, mut errors) = (0, Vec::new());
        println!(
            "| agent | loops | victims | operations | loops of an agent that stays | CPU time, ms | measured, ns/operation | predicted, ns/operation | ± | inside |"
        );
        println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
        for number in 0..mixes {
            let mix = Mix::draw(&mut random, self.operations);
            // A run without the agent before and one after it, so that a drift of the machine cancels out.
            let (before_ns, _) = self.measure(&mix, number, false);
            let (with_ns, prediction) = self.measure(&mix, number, true);
            let (after_ns, _) = self.measure(&mix, number, false);
            let (tax, margin) = prediction.expect("a prediction, because the agent ran");
            let operations = (mix.operations * mix.victims.split(',').count() as u64) as f64;
            let measured = (with_ns as f64 - (before_ns + after_ns) as f64 / 2.0) / operations;
            // The prediction is a fraction, not ns: the CPU clock of the victims also counts time that a busy hypervisor took from the virtual CPU, in
            // which the recorder takes no samples.
            let [predicted, margin] = [tax, margin].map(|part| part * with_ns as f64 / operations);
            let is_inside = (predicted - measured).abs() <= margin;
            inside += usize::from(is_inside);
            errors.push((predicted / measured - 1.0).abs() * 100.0);
            println!(
                "| {} | {} | {} | {} | {} | {} | {measured:.1} | {predicted:.1} | {margin:.1} | {} |",
                mix.agent,
                mix.loops,
                mix.victims,
                mix.operations,
                mix.beside.map(|loops| loops.to_string()).unwrap_or_default(),
                ms(with_ns as f64),
                if is_inside { "yes" } else { "no" },
            );
        }
        println!("| inside: {inside} of {mixes}, median error {:.1} % | | | | | | | | | |", median(errors));
    }

    /// Records the victims of a mix; returns their CPU time in ns and, with the agent, the predicted share that it takes and half of the share's
    /// interval.
    fn measure(&self, mix: &Mix, number: usize, has_agent: bool) -> (u64, Option<(f64, f64)>) {
        let start = |parts, loops| Agent::start(&self.load, Kind::Fixture { parts, loops });
        let beside = mix.beside.map(|loops| start("tracepoint", loops));
        let agent = has_agent.then(|| start(mix.agent, mix.loops));
        let path = recording();
        // All runs are recorded, so that the cost of recording cancels out.
        let mut record = Command::new(&self.bprec);
        record.args(["record", "-q", "-a", "-e", "cpu-clock", "-c", &self.period_ns(number), "-o"]).arg(&path);
        record.args(["--", &self.load, "victims", "--count", &mix.operations.to_string(), "--of", &mix.victims]);
        let victims_ns = field(&output(&mut record), "done", "cpu_ns");
        let prediction = agent.as_ref().map(|agent| {
            let report = self.report(&path, &["--without", &format!("*/{}", agent.child.id())]);
            let payers = report["events"][0]["payers"].as_array().expect("payers");
            let victim = payers.iter().find(|payer| payer["payer"][0]["name"] == "victim").expect("the victim pays");
            let part = |name: &str| victim[name].as_f64().expect("a number") / 100.0;
            (part("tax_percent"), part("tax_margin_percent"))
        });
        for agent in [agent, beside].into_iter().flatten() {
            agent.stop();
        }
        fs::remove_file(&path).unwrap();
        (victims_ns, prediction)
    }
}

/// An agent that can be started.
#[derive(Clone, Copy)]
enum Kind {
    /// The fixture agent, with some of its parts. Each run of its programs does `loops` rounds of work.
    Fixture { parts: &'static str, loops: u64 },
    /// A tool of others.
    Other { command: &'static [&'static str] },
}

/// A running agent.
struct Agent {
    child: Child,
    /// Output of a fixture agent.
    output: Option<BufReader<ChildStdout>>,
    /// CPU time of the process when its programs were attached, ns.
    ready_ns: u64,
}

impl Agent {
    fn start(load: &str, kind: Kind) -> Agent {
        match kind {
            Kind::Fixture { parts, loops } => {
                let mut command = Command::new(load);
                command.args(["agent", "--parts", parts, "--loops", &loops.to_string()]).stdout(Stdio::piped());
                let mut child = command.spawn().unwrap();
                let mut output = BufReader::new(child.stdout.take().unwrap());
                let mut line = String::new();
                while line.trim() != "ready" {
                    line.clear();
                    assert!(output.read_line(&mut line).unwrap() > 0, "the agent ended: {:?}", child.wait());
                }
                Agent { child, output: Some(output), ready_ns: 0 }
            }
            Kind::Other { command } => {
                let mut child = Command::new(command[0]);
                let child = child.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut agent = Agent { child: child.spawn().unwrap(), output: None, ready_ns: 0 };
                // A tool says in no common way that its programs are attached: it holds programs, and has nothing left to do.
                let mut idle = 0;
                while idle < 3 {
                    assert!(agent.child.try_wait().unwrap().is_none(), "{command:?} has ended");
                    thread::sleep(Duration::from_millis(300));
                    let now_ns = agent.cpu_ns();
                    idle = if now_ns - agent.ready_ns < 1_000_000 && agent.holds_programs() { idle + 1 } else { 0 };
                    agent.ready_ns = now_ns;
                }
                agent
            }
        }
    }

    /// CPU time of the threads of the process, ns.
    fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().map_while(Result::ok);
        let times = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
        times.map(|times| times.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn holds_programs(&self) -> bool {
        let files = fs::read_dir(format!("/proc/{}/fdinfo", self.child.id())).unwrap().map_while(Result::ok);
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|text| text.contains("prog_id:"))
    }

    /// Ends the agent; returns the CPU time of the agent since it was ready, ns.
    fn stop(mut self) -> u64 {
        let cpu_ns = self.output.is_none().then(|| self.cpu_ns() - self.ready_ns);
        let status = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success(), "kill: {status}");
        let mut rest = String::new();
        if let Some(output) = &mut self.output {
            output.read_to_string(&mut rest).unwrap();
        }
        self.child.wait().unwrap();
        cpu_ns.unwrap_or_else(|| field(&rest, "done", "cpu_ns"))
    }
}

/// An agent that is left running would cost the victims of all later runs.
impl Drop for Agent {
    fn drop(&mut self) {
        // After `stop`, the process is gone, and both calls do nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Pseudo-random numbers below a bound.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// An agent, its victims, and in half of the mixes a second agent that runs with and without the first.
struct Mix {
    agent: &'static str,
    loops: u64,
    victims: String,
    operations: u64,
    /// Rounds of work in each run of the second agent's program, which is on a tracepoint; `None` without a second agent.
    beside: Option<u64>,
}

impl Mix {
    /// Draws a mix with `least` to five times as many operations.
    fn draw(random: &mut Random, least: u64) -> Mix {
        let chosen = 1 + random.below((1 << VICTIMS.len()) - 1);
        let victims = VICTIMS.iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0);
        Mix {
            agent: MIXED_AGENTS[random.below(MIXED_AGENTS.len() as u64) as usize],
            loops: 1 + random.below(100),
            victims: victims.map(|(_, name)| *name).collect::<Vec<_>>().join(","),
            operations: least + random.below(4 * least),
            beside: (random.below(2) == 0).then(|| 1 + random.below(100)),
        }
    }
}

fn recording() -> PathBuf {
    std::env::temp_dir().join(format!("bill-{}.data", std::process::id()))
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number `name=` in the line that starts with `word`.
fn field(output: &str, word: &str, name: &str) -> u64 {
    let line = output.lines().find(|line| line.split(' ').next() == Some(word));
    let value = line.and_then(|line| line.split(' ').find_map(|it| it.strip_prefix(name)?.strip_prefix('=')));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} of {word} in {output:?}"))
}

fn ms(ns: f64) -> String {
    format!("{:.1}", ns / 1e6)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
