//! Programs that take longer per run than before, and the part of chance in that.
//!
//! A host is a pair: its time per run before and after. Of the ratios, in logarithms, the mean has a confidence interval by Student's
//! distribution, over as many hosts as there are: what differs between hosts, their load and their processors, is no part of it. As many
//! programs are compared, each gets its share of the error that is allowed (Bonferroni), so that all of the verdicts together are as sure as
//! was asked for.

use crate::answer::{Answer, Value};
use crate::rows::Date;
use anyhow::{Context, Result};
use bprec_report::{Confidence, StudentQuantiles};
use std::cmp::Ordering;

/// Options of the comparison, and the limits of a verdict.
#[derive(Debug, Clone)]
pub(crate) struct RegressedOptions {
    pub(crate) base_since: Option<Date>,
    pub(crate) base_until: Option<Date>,
    /// A host is compared with itself where a program ran at least so often on either side.
    pub(crate) min_runs: u64,
    /// Rate over all verdicts together.
    pub(crate) confidence: Confidence,
}

/// Fewer hosts say nothing of how hosts differ.
const MIN_PAIRS: usize = 3;

const COLUMNS: [&str; 22] = [
    "verdict",
    "name",
    "prog_type",
    "kernel_release",
    "pairs",
    "ratio",
    "ratio_low",
    "ratio_high",
    "hosts_old",
    "hosts_new",
    "runs_old",
    "runs_new",
    "cpu_ns_old",
    "cpu_ns_new",
    "ns_per_run_old",
    "ns_per_run_new",
    "runs_per_s_of_host_old",
    "runs_per_s_of_host_new",
    "capacity_percent_old",
    "capacity_percent_new",
    "min_runs",
    "prog_key",
];

/// Verdict on a program; the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Slower,
    Unclear,
    TooFewHosts,
    Faster,
    New,
    Gone,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Slower => "slower",
            Verdict::Unclear => "unclear",
            Verdict::TooFewHosts => "too few hosts",
            Verdict::Faster => "faster",
            Verdict::New => "new",
            Verdict::Gone => "gone",
        }
    }
}

/// One side of a program, over all hosts.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    hosts: i128,
    runs: i128,
    cpu_ns: i128,
    /// `None` where it is not known of every recording.
    observed_ns: Option<i128>,
    capacity_ns: Option<i128>,
}

impl Side {
    fn new() -> Side {
        Side { observed_ns: Some(0), capacity_ns: Some(0), ..Side::default() }
    }

    fn add(&mut self, host: &HostSide) {
        if host.recordings == 0 {
            return;
        }
        let sum = |a: Option<i128>, b: Option<i128>| a?.checked_add(b?);
        self.hosts += 1;
        self.runs += host.runs;
        self.cpu_ns += host.cpu_ns;
        self.observed_ns = sum(self.observed_ns, host.observed_ns);
        self.capacity_ns = sum(self.capacity_ns, host.capacity_ns);
    }

    fn ns_per_run(&self) -> Option<f64> {
        ratio(self.cpu_ns, self.runs)
    }

    fn runs_per_s_of_host(&self) -> Option<f64> {
        Some(ratio(self.runs, self.observed_ns?)? * 1e9)
    }

    fn capacity_percent(&self) -> Option<f64> {
        Some(ratio(self.cpu_ns, self.capacity_ns?)? * 100.0)
    }
}

/// One side of a program on a host.
#[derive(Debug, Clone, Copy)]
struct HostSide {
    recordings: i128,
    runs: i128,
    cpu_ns: i128,
    observed_ns: Option<i128>,
    capacity_ns: Option<i128>,
}

#[derive(Debug)]
struct Program {
    /// `prog_key`, `name`, `prog_type`, `kernel_release`.
    key: [Value; 4],
    old: Side,
    new: Side,
    /// Logarithms of the ratios of hosts.
    pairs: Vec<f64>,
}

/// Verdicts from pairs of hosts: a row per program and kernel, the most urgent first.
///
/// # Errors
/// When `pairs` lacks a column.
pub(crate) fn judge(pairs: &Answer, options: &RegressedOptions, limit: usize) -> Result<Answer> {
    let programs = programs(pairs, options)?;
    let compared = programs.iter().filter(|program| program.pairs.len() >= MIN_PAIRS).count();
    let error = (100.0 - options.confidence.percent()) / 100.0;
    let quantiles = StudentQuantiles::new(error / 2.0 / compared.max(1) as f64);
    let mut rows: Vec<(Verdict, f64, Vec<Value>)> = programs
        .into_iter()
        .map(|program| {
            let interval = interval(&program.pairs, &quantiles);
            let verdict = verdict(&program, interval);
            let size = interval.map_or(0.0, |(_, low, high)| match verdict {
                Verdict::Faster => -high,
                _ => low,
            });
            (verdict, size, row(&program, verdict, interval, options))
        })
        .collect();
    // Programs come in the order of their keys, which stays where nothing else decides.
    rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal)));
    rows.truncate(limit);
    Ok(Answer { columns: COLUMNS.map(str::to_owned).into(), rows: rows.into_iter().map(|(_, _, row)| row).collect() })
}

fn programs(pairs: &Answer, options: &RegressedOptions) -> Result<Vec<Program>> {
    let column = |name: &str| {
        let at = pairs.columns.iter().position(|column| column == name);
        at.with_context(|| format!("the query has no column {name}"))
    };
    let keys = [column("prog_key")?, column("name")?, column("prog_type")?, column("kernel_release")?];
    let side = |of: &str| -> Result<[usize; 5]> {
        let named = |name: &str| column(&format!("{name}_{of}"));
        Ok([named("recordings")?, named("runs")?, named("cpu_ns")?, named("observed_ns")?, named("capacity_ns")?])
    };
    let (old, new) = (side("old")?, side("new")?);
    let mut programs: Vec<Program> = Vec::new();
    for row in &pairs.rows {
        let key = keys.map(|at| row[at].clone());
        if programs.last().is_none_or(|program| program.key != key) {
            programs.push(Program { key, old: Side::new(), new: Side::new(), pairs: Vec::new() });
        }
        let Some(program) = programs.last_mut() else { continue };
        let (old, new) = (host_side(row, old), host_side(row, new));
        program.old.add(&old);
        program.new.add(&new);
        let has_enough = |side: &HostSide| side.runs >= i128::from(options.min_runs.max(1)) && side.cpu_ns > 0;
        if has_enough(&old) && has_enough(&new) {
            let per_run = |side: HostSide| side.cpu_ns as f64 / side.runs as f64;
            program.pairs.push((per_run(new) / per_run(old)).ln());
        }
    }
    Ok(programs)
}

fn host_side(row: &[Value], at: [usize; 5]) -> HostSide {
    let [recordings, runs, cpu_ns, observed_ns, capacity_ns] = at.map(|at| row[at].integer());
    HostSide {
        recordings: recordings.unwrap_or(0),
        runs: runs.unwrap_or(0),
        cpu_ns: cpu_ns.unwrap_or(0),
        observed_ns,
        capacity_ns,
    }
}

/// Mean of the logarithms, and the ends of its confidence interval; `None` where there are too few.
fn interval(pairs: &[f64], quantiles: &StudentQuantiles) -> Option<(f64, f64, f64)> {
    if pairs.len() < MIN_PAIRS {
        return None;
    }
    let count = pairs.len() as f64;
    let mean = pairs.iter().sum::<f64>() / count;
    let variance = pairs.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let margin = quantiles.of(count - 1.0)? * (variance / count).sqrt();
    Some((mean, mean - margin, mean + margin))
}

fn verdict(program: &Program, interval: Option<(f64, f64, f64)>) -> Verdict {
    match interval {
        _ if program.old.hosts == 0 => Verdict::New,
        _ if program.new.hosts == 0 => Verdict::Gone,
        None => Verdict::TooFewHosts,
        Some((_, low, _)) if low > 0.0 => Verdict::Slower,
        Some((_, _, high)) if high < 0.0 => Verdict::Faster,
        Some(_) => Verdict::Unclear,
    }
}

fn row(
    program: &Program,
    verdict: Verdict,
    interval: Option<(f64, f64, f64)>,
    options: &RegressedOptions,
) -> Vec<Value> {
    let Program { key: [key, name, prog_type, kernel], old, new, pairs } = program;
    let known = |side: &Side, value: fn(&Side) -> Option<f64>| Value::from(value(side));
    vec![
        Value::Text(verdict.name().into()),
        name.clone(),
        prog_type.clone(),
        kernel.clone(),
        Value::Integer(pairs.len() as i128),
        interval.map(|(mean, _, _)| mean.exp()).into(),
        interval.map(|(_, low, _)| low.exp()).into(),
        interval.map(|(_, _, high)| high.exp()).into(),
        Value::Integer(old.hosts),
        Value::Integer(new.hosts),
        Value::Integer(old.runs),
        Value::Integer(new.runs),
        Value::Integer(old.cpu_ns),
        Value::Integer(new.cpu_ns),
        known(old, Side::ns_per_run),
        known(new, Side::ns_per_run),
        known(old, Side::runs_per_s_of_host),
        known(new, Side::runs_per_s_of_host),
        known(old, Side::capacity_percent),
        known(new, Side::capacity_percent),
        Value::Integer(options.min_runs.into()),
        key.clone(),
    ]
}

fn ratio(part: i128, whole: i128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Hosts of a program, each with runs and time before and after.
    fn pairs(programs: &[(&str, &[[i128; 4]])]) -> Answer {
        let sides = ["old", "new"].into_iter().flat_map(|side| {
            ["recordings", "runs", "cpu_ns", "observed_ns", "capacity_ns"].map(|name| format!("{name}_{side}"))
        });
        let keys = ["prog_key", "name", "prog_type", "kernel_release"].map(str::to_owned);
        let rows = programs.iter().flat_map(|(name, hosts)| {
            hosts.iter().map(|[runs_old, ns_old, runs_new, ns_new]| {
                let mut row: Vec<Value> = ["key", name, "xdp", "6.12"].map(|text| Value::Text(text.into())).into();
                for (runs, ns) in [(*runs_old, *ns_old), (*runs_new, *ns_new)] {
                    let was_there = i128::from(runs > 0);
                    row.extend(
                        [was_there, runs, ns, was_there * 1_000_000_000, was_there * 4_000_000_000].map(Value::Integer),
                    );
                }
                row
            })
        });
        Answer { rows: rows.collect(), columns: keys.into_iter().chain(sides).collect() }
    }

    fn judged(pairs: &Answer, confidence: &str) -> Vec<BTreeMap<String, Value>> {
        let confidence = confidence.parse().unwrap();
        let options = RegressedOptions { base_since: None, base_until: None, min_runs: 1000, confidence };
        let answer = judge(pairs, &options, 100).unwrap();
        answer.rows.into_iter().map(|row| answer.columns.iter().cloned().zip(row).collect()).collect()
    }

    fn real(row: &BTreeMap<String, Value>, column: &str) -> f64 {
        let Value::Real(number) = row[column] else { panic!("{column}: {:?}", row[column]) };
        number
    }

    /// Three hosts with ratios of 1.1, 1.2 and 1.3: mean of the logarithms 0.1799987, standard error 0.0482384. Student's t of two degrees is
    /// 4.303 for a tail of 0.025, and 6.205 for half of that (published tables).
    #[test]
    fn intervals_are_those_of_student_and_shared_by_the_programs_compared() {
        let hosts: &[[i128; 4]] =
            &[[1000, 100_000, 2000, 220_000], [1000, 200_000, 1000, 240_000], [5000, 500_000, 1000, 130_000]];
        for (programs, t) in [(&[("a", hosts)][..], 4.303), (&[("a", hosts), ("b", hosts)][..], 6.205)] {
            let rows = judged(&pairs(programs), "95");
            assert_eq!(rows.len(), programs.len());
            let row = &rows[0];
            assert_eq!(row["verdict"], Value::Text("unclear".into()));
            let expected = [0.179_998_7, 0.179_998_7 - t * 0.048_238_4, 0.179_998_7 + t * 0.048_238_4].map(f64::exp);
            for (column, expected) in ["ratio", "ratio_low", "ratio_high"].iter().zip(expected) {
                assert!((real(row, column) / expected - 1.0).abs() < 2e-4, "{column} {row:?} {expected}");
            }
            // 800 µs in 7000 runs before, 590 µs in 4000 after; of three hosts a second each with four CPUs.
            assert!((real(row, "ns_per_run_old") - 800.0 / 7.0).abs() < 1e-9);
            assert!((real(row, "ns_per_run_new") - 147.5).abs() < 1e-9);
            assert!((real(row, "runs_per_s_of_host_new") - 4000.0 / 3.0).abs() < 1e-9);
            assert!((real(row, "capacity_percent_old") - 100.0 * 800_000.0 / 12e9).abs() < 1e-12);
        }
    }

    #[test]
    fn verdicts_need_hosts_and_runs() {
        let slower: &[[i128; 4]] =
            &[[1000, 100_000, 1000, 200_000], [1000, 100_000, 1000, 201_000], [1000, 100_000, 1000, 199_000]];
        let faster: Vec<[i128; 4]> = slower.iter().map(|[a, b, c, d]| [*c, *d, *a, *b]).collect();
        let few_runs: Vec<[i128; 4]> = slower.iter().map(|[a, b, _, d]| [*a, *b, 999, *d]).collect();
        let programs: [(&str, &[[i128; 4]]); 6] = [
            ("faster", &faster),
            ("few hosts", &slower[..2]),
            ("few runs", &few_runs),
            ("gone", &[[1000, 1000, 0, 0]]),
            ("new", &[[0, 0, 1000, 1000]]),
            ("slower", slower),
        ];
        let rows = judged(&pairs(&programs), "99.9");
        let text = |row: &BTreeMap<String, Value>, column: &str| match &row[column] {
            Value::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let found: Vec<(String, String)> = rows.iter().map(|row| (text(row, "name"), text(row, "verdict"))).collect();
        let expected = [
            ("slower", "slower"),
            ("few hosts", "too few hosts"),
            ("few runs", "too few hosts"),
            ("faster", "faster"),
            ("new", "new"),
            ("gone", "gone"),
        ];
        assert_eq!(found, expected.map(|(name, verdict)| (name.to_owned(), verdict.to_owned())));
        assert!(
            rows.iter().filter(|row| text(row, "verdict") == "too few hosts").all(|row| row["ratio"] == Value::Null)
        );
    }
}
