//! Compares predictions of `bprec report --without` with the CPU time that victims take without the agent, in random mixes of agents and victims.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bill::{Agent, Programs};

/// Agents (processes with BPF programs), each with its parts: a program on a user probe, a program on a tracepoint, and the ring buffer of both.
const AGENTS: [&str; 6] =
    ["uprobe", "tracepoint", "uprobe,tracepoint", "uprobe,ring", "tracepoint,ring", "uprobe,tracepoint,ring"];
/// Victims: loads that run the programs of the agents.
const VICTIMS: [&str; 3] = ["system_calls", "packets", "switches"];
/// Name of the victims' tasks.
const VICTIM: &str = "victim";
/// Seed of the random numbers: each run has the same mixes.
const SEED: u64 = 29;

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
    /// Rounds of work in each run of the second agent's program, which is on a tracepoint; `None` without a second
    /// agent.
    beside: Option<u64>,
}

impl Mix {
    fn draw(random: &mut Random) -> Mix {
        let chosen = 1 + random.below((1 << VICTIMS.len()) - 1);
        let victims = VICTIMS.iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0);
        Mix {
            agent: AGENTS[random.below(AGENTS.len() as u64) as usize],
            loops: 1 + random.below(100),
            victims: victims.map(|(_, name)| *name).collect::<Vec<_>>().join(","),
            operations: 50_000 + random.below(200_000),
            beside: (random.below(2) == 0).then(|| 1 + random.below(100)),
        }
    }
}

/// Predicted CPU time that the agent costs the victims, as a fraction of their CPU time.
struct Prediction {
    tax: f64,
    margin: f64,
}

/// Runs `mixes` random mixes, and prints a table.
pub(crate) fn run(bprec: &str, load: &str, mixes: &str) -> Result<()> {
    let mixes: usize = mixes.parse().with_context(|| format!("{mixes} is not a number of mixes"))?;
    let programs = Programs { bprec, load };
    let mut random = Random(SEED);
    let mut inside = 0;
    println!(
        "| agent | loops | victims | operations | loops of an agent that stays | CPU time, ms | measured, ms | predicted, ms | ±, ms | inside |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
    for _ in 0..mixes {
        let mix = Mix::draw(&mut random);
        // A run without the agent before and one after it, so that a drift of the machine cancels out.
        let (before_ns, _) = mix.measure(&programs, false)?;
        let (with_ns, prediction) = mix.measure(&programs, true)?;
        let (after_ns, _) = mix.measure(&programs, false)?;
        let prediction = prediction.context("there is no prediction, although the agent ran")?;
        let measured_ns = with_ns as f64 - (before_ns + after_ns) as f64 / 2.0;
        // The prediction is a fraction, not ns: the CPU clock of the victims also counts time that a busy hypervisor
        // took from the virtual CPU, in which the recorder takes no samples.
        let [saved_ns, margin_ns] = [prediction.tax, prediction.margin].map(|part| part * with_ns as f64);
        let is_inside = (saved_ns - measured_ns).abs() <= margin_ns;
        inside += usize::from(is_inside);
        let ms = |ns: f64| format!("{:.1}", ns / 1e6);
        let cells = [
            mix.agent.to_owned(),
            mix.loops.to_string(),
            mix.victims.clone(),
            mix.operations.to_string(),
            mix.beside.map(|loops| loops.to_string()).unwrap_or_default(),
            ms(with_ns as f64),
            ms(measured_ns),
            ms(saved_ns),
            ms(margin_ns),
            if is_inside { "yes" } else { "no" }.to_owned(),
        ];
        println!("| {} |", cells.join(" | "));
    }
    println!("| inside: {inside} of {mixes} | | | | | | | | | |");
    Ok(())
}

impl Mix {
    /// Records the victims; returns their CPU time in ns and, with the agent, the prediction without it.
    fn measure(&self, programs: &Programs<'_>, has_agent: bool) -> Result<(u64, Option<Prediction>)> {
        let beside = self.beside.map(|loops| Agent::start(programs.load, "tracepoint", loops)).transpose()?;
        let agent = has_agent.then(|| Agent::start(programs.load, self.agent, self.loops)).transpose()?;
        let operations = self.operations.to_string();
        let measured = programs.victims(&[], &["--count", &operations, "--of", &self.victims], |path| {
            agent.as_ref().map(|agent| predict(programs, path, agent.pid())).transpose()
        })?;
        for agent in [agent, beside].into_iter().flatten() {
            agent.stop()?;
        }
        Ok(measured)
    }
}

/// Predicts the CPU time that the agent of process `pid` costs the victims.
fn predict(programs: &Programs<'_>, path: &Path, pid: u32) -> Result<Prediction> {
    let report = programs.report(path, &["--without", &format!("*/{pid}")])?;
    let payers = report["events"][0]["payers"].as_array().context("the prediction has no payers")?;
    let is_victim = |payer: &&Value| payer["payer"][0]["name"] == VICTIM;
    let victim = payers.iter().find(is_victim).context("the victims do not pay for the agent")?;
    let part =
        |name: &str| victim[name].as_f64().map(|percent| percent / 100.0).context("the prediction lacks a number");
    Ok(Prediction { tax: part("tax_percent")?, margin: part("tax_margin_percent")? })
}
