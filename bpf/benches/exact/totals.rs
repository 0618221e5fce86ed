//! Share of impossible totals (negative, more than the time of all CPUs, or not the sum of the intervals) in short measurements of a program that
//! always runs on every CPU. `bprec record`, `bprec stat` and `perf stat -b` measure in turns.

use std::path::Path;
use std::process::Command;

use bprec_fixtures::online_cpus;
use serde_json::Value;

use crate::Result;
use crate::load::Load;

const PROGRAM: &str = "loop_of_1000";

/// Count of the clock event in one measurement: total, sum over the intervals if there are intervals, and duration.
struct Said {
    total_ns: f64,
    intervals_ns: Option<f64>,
    elapsed_ns: f64,
}

/// Measures and prints the table.
pub(crate) fn bench(perf: &Path, bprec: &Path, tries: u32) -> Result<()> {
    let cpus = online_cpus()?.len();
    let load = Load::start(PROGRAM, cpus, None)?;
    let id = load.loaded.id_of(PROGRAM)?;
    let mut all: [(&str, Vec<Said>); 4] =
        ["bprec record", "bprec stat", "bprec stat -I 100", "perf stat -b"].map(|name| (name, Vec::new()));
    for number in 0..tries {
        let ms = 300 + 700 * number / tries;
        all[0].1.push(record(bprec, id, ms)?);
        all[1].1.push(stat(bprec, id, ms, None)?);
        all[2].1.push(stat(bprec, id, ms, Some(100))?);
        all[3].1.push(perf_stat(perf, id, ms)?);
    }
    println!(
        "| {tries} counts of 0.3 to 1 s | impossible | of these, above all CPUs' time | negative | intervals that do not add up \
         | cpu-clock, share of all CPUs' time |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, said) in &all {
        let shares: Vec<f64> = said.iter().map(|said| said.total_ns / (said.elapsed_ns * cpus as f64)).collect();
        let too_much = shares.iter().filter(|share| **share > 1.0).count();
        let negative = shares.iter().filter(|share| **share < 0.0).count();
        let differs = |said: &&Said| {
            said.intervals_ns.is_some_and(|sum| (sum - said.total_ns).abs() > 1e-9 * said.total_ns.abs())
        };
        let apart = said.iter().filter(differs).count();
        let has_intervals = said.iter().any(|said| said.intervals_ns.is_some());
        let (least, most) =
            shares.iter().fold((f64::MAX, f64::MIN), |(least, most), share| (least.min(*share), most.max(*share)));
        println!(
            "| {name} | {} | {too_much} | {negative} | {} | {:.1} % to {:.1} % |",
            too_much + negative + apart,
            if has_intervals { apart.to_string() } else { String::new() },
            least * 100.0,
            most * 100.0,
        );
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(String, String)> {
    let output = command.env("LC_ALL", "C").output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(format!("{command:?}: {}, {}", output.status, text(&output.stderr)).into());
    }
    Ok((text(&output.stdout), text(&output.stderr)))
}

fn record(bprec: &Path, id: u32, ms: u32) -> Result<Said> {
    let file = std::env::temp_dir().join(format!("bench-{}.data", std::process::id()));
    let (counters, seconds) = (format!("exact={id}"), format!("{}", f64::from(ms) / 1e3));
    let options = ["record", "-q", "-a", "-F", "50", "-I", "100", "--budget", "100", "--counter-event", "cpu-clock"];
    run(Command::new(bprec).args(options).args(["--counters", &counters, "--duration", &seconds, "-o"]).arg(&file))?;
    let (text, _) = run(Command::new(bprec).args(["report", "--counters", "--json", "-i"]).arg(&file))?;
    std::fs::remove_file(&file)?;
    let report: Value = serde_json::from_str(&text)?;
    let exact = |item: &&Value| item["source"] == "exact" && item["id"] == id;
    let of =
        |list: &str| -> Vec<Value> { report[list].as_array().into_iter().flatten().filter(exact).cloned().collect() };
    let (total, intervals) = (of("totals"), of("intervals"));
    let total = total.first().ok_or("the report has no total of the program")?;
    let clock = |item: &Value| item["counts"]["readings"][0]["value"].as_f64();
    Ok(Said {
        total_ns: clock(total).ok_or_else(|| format!("no reading: {total}"))?,
        intervals_ns: Some(intervals.iter().filter_map(clock).sum()),
        elapsed_ns: total["to_ns"].as_f64().unwrap_or(0.0) - total["from_ns"].as_f64().unwrap_or(0.0),
    })
}

fn stat(bprec: &Path, id: u32, ms: u32, interval_ms: Option<u32>) -> Result<Said> {
    let ms = ms.to_string();
    let mut command = Command::new(bprec);
    command.args([
        "stat",
        "-q",
        "-j",
        "--budget",
        "100",
        "-e",
        "cpu-clock",
        "-b",
        &id.to_string(),
        "--timeout",
        &ms,
        "-o",
        "-",
    ]);
    if let Some(interval_ms) = interval_ms {
        command.args(["-I", &interval_ms.to_string()]);
    }
    let (text, _) = run(&mut command)?;
    let rows = text.lines().map(serde_json::from_str::<Value>).collect::<std::result::Result<Vec<_>, _>>()?;
    let of = |kind: &'static str| rows.iter().filter(move |row| row["row"] == kind && row["id"] == id);
    let clock = |row: &Value| row["exact"]["readings"][0]["value"].as_f64();
    let total = of("total").next().ok_or("the output has no total of the program")?;
    Ok(Said {
        total_ns: clock(total).ok_or_else(|| format!("no reading: {total}"))?,
        intervals_ns: interval_ms.map(|_| of("interval").filter_map(clock).sum()),
        elapsed_ns: total["to_ns"].as_f64().unwrap_or(0.0) - total["from_ns"].as_f64().unwrap_or(0.0),
    })
}

/// Runs `perf stat` without -x, because only this output has the duration of counting.
fn perf_stat(perf: &Path, id: u32, ms: u32) -> Result<Said> {
    let (_, text) =
        run(Command::new(perf).args(["stat", "-b", &id.to_string(), "-e", "cpu-clock", "--timeout", &ms.to_string()]))?;
    let number = |mark: &str| -> Result<f64> {
        let line = text.lines().find(|line| line.contains(mark)).ok_or_else(|| format!("no {mark} in {text}"))?;
        Ok(line.split_whitespace().next().unwrap_or_default().replace(',', "").parse()?)
    };
    Ok(Said {
        total_ns: number("cpu-clock")? * 1e6,
        intervals_ns: None,
        elapsed_ns: number("seconds time elapsed")? * 1e9,
    })
}
