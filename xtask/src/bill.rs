//! Compares the bill of an agent with the CPU time that the machine saves without the agent. An agent is a process with BPF programs. Victims are
//! loads that run these programs.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{command, target_directory};

/// Operations that each victim does in a run, such as system calls.
const OPERATIONS: u64 = 500_000;
/// Sampling period in ns of CPU time.
const PERIOD_NS: &str = "1000000";
/// Agents, each with its parts: a program on a user probe, a program on a tracepoint, and the ring buffer that both write to. The first agent has all
/// parts; the other agents show the cost of single parts.
const AGENTS: [&str; 4] = ["uprobe,tracepoint,ring", "uprobe", "tracepoint", "tracepoint,ring"];
/// Task name of the victims.
const VICTIM: &str = "victim";
/// Largest deviation of a bill from the measured difference, in per cent.
const MAX_DEVIATION: f64 = 10.0;

/// Paths of the executables `bprec` and `bprec-load`.
pub(crate) struct Programs<'p> {
    pub(crate) bprec: &'p str,
    pub(crate) load: &'p str,
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

/// Runs `pairs` pairs of recordings for each agent, one with and one without the agent, and prints a table.
pub(crate) fn run(bprec: &str, load: &str, pairs: &str) -> Result<()> {
    let pairs: usize = pairs.parse().with_context(|| format!("{pairs} is not a number of pairs"))?;
    let programs = Programs { bprec, load };
    println!(
        "| agent | pair | measured, ms | billed, ms | deviation, % | in others, ms | own tasks, ms | causes, ms |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for parts in AGENTS {
        let mut near = 0;
        for pair in 1..=pairs {
            // The order of the two runs alternates, so that a drift of the machine cancels out.
            let (with, without) = match pair % 2 {
                0 => (programs.run(Some(parts))?, programs.run(None)?),
                _ => {
                    let without = programs.run(None)?;
                    (programs.run(Some(parts))?, without)
                }
            };
            let measured_ns = with.measured_ns as f64 - without.measured_ns as f64;
            let deviation = (with.billed.sum_ns as f64 / measured_ns - 1.0) * 100.0;
            near += usize::from(deviation.abs() <= MAX_DEVIATION);
            let ms = |ns: f64| format!("{:.1}", ns / 1e6);
            let cells = [
                parts.to_owned(),
                pair.to_string(),
                ms(measured_ns),
                ms(with.billed.sum_ns as f64),
                format!("{deviation:+.1}"),
                ms(with.billed.in_others_ns as f64),
                ms(with.billed.own_ns as f64),
                ms(with.billed.causes_ns as f64),
            ];
            println!("| {} |", cells.join(" | "));
        }
        println!("| {parts} | within {MAX_DEVIATION} %: {near} of {pairs} | | | | | | |");
    }
    Ok(())
}

impl Programs<'_> {
    /// Records the victims, beside an agent with these parts or alone.
    fn run(&self, parts: Option<&str>) -> Result<Run> {
        let agent = parts.map(|parts| Agent::start(self.load, parts, 1)).transpose()?;
        let count = OPERATIONS.to_string();
        let (victims_ns, (agent_ns, billed)) =
            self.victims(&["--counters", "off"], &["--count", &count], |path| match agent {
                None => Ok((0, Billed::default())),
                Some(agent) => {
                    let pid = agent.pid();
                    // The report must not run beside the agent, which would count its system calls.
                    Ok((agent.stop()?, self.bill(path, pid)?))
                }
            })?;
        Ok(Run { measured_ns: victims_ns + agent_ns, billed })
    }

    /// Records the victims; returns their CPU time in ns and the result of `read` for the recording. Runs with and without an agent are recorded, so
    /// that the cost of recording cancels out.
    pub(crate) fn victims<T>(
        &self,
        options: &[&str],
        victims: &[&str],
        read: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<(u64, T)> {
        let path = target_directory().join(format!("victims-{}.data", std::process::id()));
        let mut record = Command::new(self.bprec);
        record.args(["record", "-q", "-a", "-e", "cpu-clock", "-c", PERIOD_NS]).args(options).arg("-o").arg(&path);
        record.args(["--", self.load, "victims"]).args(victims);
        let victims_ns = field(&command::output(&mut record)?, "done", "cpu_ns")?;
        let read = read(&path)?;
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        Ok((victims_ns, read))
    }

    /// Returns the JSON of `bprec report` with these arguments.
    pub(crate) fn report(&self, path: &Path, arguments: &[&str]) -> Result<Value> {
        let mut report = Command::new(self.bprec);
        report.args(["report", "--json"]).args(arguments).arg("-i").arg(path);
        serde_json::from_str(&command::output(&mut report)?).context("read the report")
    }

    /// Returns the bill of the process `pid`: the cost in the victims, and the time of its own tasks.
    fn bill(&self, path: &Path, pid: u32) -> Result<Billed> {
        // The tracepoint also costs all other tasks, which are not measured.
        let in_victims = self.owner(path, pid, &["--comms", VICTIM])?;
        let weight = |value: &Value| value["weight"].as_u64().context("the bill has no weight");
        let own_ns = weight(&self.owner(path, pid, &[])?["own_tasks"])?;
        Ok(Billed {
            sum_ns: weight(&in_victims)? + own_ns,
            in_others_ns: weight(&in_victims["in_others"])?,
            own_ns,
            causes_ns: weight(&in_victims["causes"])?,
        })
    }

    /// Returns the row of the owner that has the process `pid`.
    fn owner(&self, path: &Path, pid: u32, selection: &[&str]) -> Result<Value> {
        let mut bill = self.report(path, &[&["--bill"], selection].concat())?;
        let owners = bill["events"][0]["owners"].as_array_mut().context("the bill has no owners")?;
        let is_agent = |owner: &&mut Value| owner["pids"].as_array().is_some_and(|pids| pids.contains(&pid.into()));
        let owner = owners.iter_mut().find(is_agent);
        Ok(owner.with_context(|| format!("the bill has no owner with process {pid}"))?.take())
    }
}

/// A running agent.
pub(crate) struct Agent {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Agent {
    /// Starts an agent with these parts. Each run of its programs does `loops` rounds of work.
    pub(crate) fn start(load: &str, parts: &str, loops: u64) -> Result<Agent> {
        let mut command = Command::new(load);
        command.args(["agent", "--parts", parts, "--loops", &loops.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("run {command:?}"))?;
        let mut output = BufReader::new(child.stdout.take().context("the agent has no output")?);
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                bail!("the agent ended: {}", child.wait()?);
            }
        }
        Ok(Agent { child, output })
    }

    /// Process of the agent.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the agent; returns the CPU time of the agent since it was ready, ns.
    pub(crate) fn stop(mut self) -> Result<u64> {
        command::run(Command::new("kill").arg(self.child.id().to_string()))?;
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).context("read the agent's output")?;
        self.child.wait().context("wait for the agent")?;
        field(&rest, "done", "cpu_ns")
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

/// Returns the number `name=` in the line that starts with `word`.
fn field(output: &str, word: &str, name: &str) -> Result<u64> {
    let line = output.lines().find(|line| line.split(' ').next() == Some(word));
    let value = line.and_then(|line| line.split(' ').find_map(|it| it.strip_prefix(name)?.strip_prefix('=')));
    value.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} of {word} in {output:?}"))
}
