//! Verdicts on programs: change of the time per run since the base days, and its cost.
//!
//! The query returns the median over hosts for each program and day. Without a canary, the median over programs is the move of the fleet, and a
//! program is judged by its difference to this move. With a canary, hosts of the new version are compared with hosts of the old version on the
//! same days. Hosts with a kernel upgrade form a cohort of their own.

use crate::answer::{Answer, Value};
use crate::change::{Change, DayValue, median, quantiles};
use crate::engine::quoted;
use crate::rows::{Date, date};
use anyhow::{Context, Result};
use bprec_report::{Confidence, StudentQuantiles};
use std::collections::{BTreeMap, BTreeSet};

/// Options of the comparison.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RegressedOptions {
    /// `regressed`: first base day; by default, there are 28 base days.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
    pub(crate) base_since: Option<Date>,
    /// `regressed`: last base day; the default is the day before `--since`.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
    pub(crate) base_until: Option<Date>,
    /// `regressed`: compare hosts with version label NEW to hosts with version label OLD, on the same days.
    #[arg(long, value_name = "OLD..NEW", value_parser = canary)]
    pub(crate) canary: Option<Canary>,
    /// `regressed`: minimum of runs of a program on a host and day; days with fewer runs are not compared.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) min_runs: u64,
    /// `regressed`: smallest change that can have a verdict.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub(crate) min_effect: f64,
    /// `regressed`: confidence level of all verdicts together.
    #[arg(long, value_name = "PERCENT", default_value_t)]
    pub(crate) confidence: Confidence,
}

/// Versions `OLD..NEW`: version labels, or tags of programs without a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Canary {
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Parses two versions, `OLD..NEW`.
fn canary(text: &str) -> std::result::Result<Canary, &'static str> {
    let versions = text.split_once("..").filter(|(old, new)| !old.is_empty() && !new.is_empty() && old != new);
    let canary = |(old, new): (&str, &str)| Canary { old: old.to_owned(), new: new.to_owned() };
    versions.map(canary).ok_or("expected two version labels, OLD..NEW")
}

/// Parses a change in per cent, 0 or more.
fn percent(text: &str) -> std::result::Result<f64, &'static str> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    percent.ok().filter(|percent| (0.0..1e4).contains(percent)).ok_or("expected per cent, 0 or more")
}

impl RegressedOptions {
    /// SQL expression for the number of a host's cohort. With a canary, null leaves the host out: its version or kernel changed, or it has a third
    /// version.
    pub(crate) fn cohort(&self) -> String {
        let Some(Canary { old, new }) = &self.canary else {
            return format!("CASE WHEN kernel_first = kernel_last THEN 0 ELSE {KERNEL_CHANGED} END");
        };
        format!(
            "CASE WHEN kernel_first <> kernel_last OR version_first <> version_last THEN NULL \
             WHEN version_last = {} THEN {CANARY} WHEN version_last = {} THEN 0 END",
            quoted(new),
            quoted(old)
        )
    }
}

/// Minimum of programs for the move of the fleet. With fewer programs, the move would follow a single program.
const LEAST_PROGRAMS: usize = 5;
/// Minimum of hosts for the median of a day. With fewer hosts, a single host would decide.
const LEAST_HOSTS: i128 = 3;
const S_PER_DAY: f64 = 86_400.0;

/// Number, in the query without a canary, of the cohort of hosts with a kernel upgrade; other hosts have 0.
const KERNEL_CHANGED: i128 = 1;
/// Number, in the query with a canary, of the cohort of hosts with the new version; hosts with the old version have 0.
const CANARY: i128 = 1;

/// Name of a column, and its value in a row.
type Column = (&'static str, fn(&Row<'_>) -> Value);

/// First columns of the answer. The columns of both sides follow, and the key of the program.
const COLUMNS: [Column; 9] = [
    ("verdict", |row| Value::Text(VERDICTS[row.verdict as usize].into())),
    ("name", |row| row.judged.key[1].clone()),
    ("prog_type", |row| row.judged.key[2].clone()),
    ("ratio", |row| row.ratio(0.0)),
    ("ratio_low", |row| row.ratio(-1.0)),
    ("ratio_high", |row| row.ratio(1.0)),
    ("detectable_percent", |row| row.detectable_percent()),
    ("delta_core_s_per_day", |row| row.judged.delta_core_s_per_day().into()),
    ("fleet_ratio", |row| row.judged.fleet.map(f64::exp).into()),
];

/// Name of a column of a side without `_old` or `_new`, and its value.
type SideColumn = (&'static str, fn(&Side) -> Value);

/// Columns of a side; their names end in `_old` or `_new`.
const SIDE_COLUMNS: [SideColumn; 8] = [
    ("version", |side| side.version.clone()),
    ("days", |side| Value::Integer(side.days)),
    ("hosts", |side| Value::Integer(side.hosts)),
    ("runs", |side| Value::Integer(side.runs)),
    ("cpu_ns", |side| Value::Integer(side.cpu_ns)),
    ("ns_per_run", |side| ratio(side.cpu_ns, side.runs).into()),
    ("runs_per_s_of_host", |side| side.observed_ns.and_then(|ns| Some(ratio(side.runs, ns)? * 1e9)).into()),
    ("capacity_percent", |side| side.capacity_ns.and_then(|ns| Some(ratio(side.cpu_ns, ns)? * 100.0)).into()),
];

/// Verdict on a program; the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Regressed,
    KernelChanged,
    FleetMoved,
    Undecided,
    Improved,
    New,
    Gone,
}

/// Names of the verdicts, in their order.
const VERDICTS: [&str; 7] = ["regressed", "kernel changed", "the fleet moved", "undecided", "improved", "new", "gone"];

/// Sums of a program over all hosts and days of one side of the comparison: old or new.
#[derive(Debug, Clone, Default)]
struct Side {
    days: i128,
    /// Highest count of hosts on a day.
    hosts: i128,
    runs: i128,
    cpu_ns: i128,
    /// Time that the compared runs would take at the time per run of the base days.
    expected_ns: i128,
    /// Observed time of all hosts; `None` if the time of one recording is unknown.
    observed_ns: Option<i128>,
    capacity_ns: Option<i128>,
    /// Version of the last day, if it is known.
    version: Value,
}

impl Side {
    fn plus(self, day: Side) -> Side {
        let sum = |a: Option<i128>, b: Option<i128>| a?.checked_add(b?);
        Side {
            days: self.days + day.days,
            hosts: self.hosts.max(day.hosts),
            runs: self.runs + day.runs,
            cpu_ns: self.cpu_ns + day.cpu_ns,
            expected_ns: self.expected_ns + day.expected_ns,
            observed_ns: sum(self.observed_ns, day.observed_ns),
            capacity_ns: sum(self.capacity_ns, day.capacity_ns),
            version: day.version,
        }
    }
}

/// A day of a program on the hosts of a cohort, with the sums of this day.
#[derive(Debug, Clone)]
struct Day {
    value: DayValue,
    sums: Side,
}

/// A program on the hosts of a cohort.
#[derive(Debug)]
struct Program {
    /// `prog_key`, `name`, `prog_type`.
    key: [Value; 3],
    cohort: i128,
    days: Vec<Day>,
}

/// A program, or the whole fleet, with its change.
#[derive(Default)]
struct Judged {
    key: [Value; 3],
    /// Verdict if the change is significant; `None` for the direction of the change.
    shown: Option<Verdict>,
    old: Side,
    new: Side,
    change: Option<Change>,
    /// Change of the program itself, from which the move of the fleet is not subtracted.
    raw: Option<Change>,
    /// Move of the fleet, as a logarithm.
    fleet: Option<f64>,
}

/// Judges the programs in the rows of the query. Returns a row per program, sorted by verdict, then by cost of the change.
///
/// # Errors
/// Fails if the rows lack a column.
pub(crate) fn judge(days: &Answer, options: &RegressedOptions, limit: usize) -> Result<Answer> {
    let programs = programs(days)?;
    let judged = match options.canary {
        Some(_) => canaries(programs),
        None => before_and_after(programs),
    };
    let least = (options.min_effect / 100.0).ln_1p();
    let changes: Vec<Change> = judged.iter().filter_map(|it| it.change).collect();
    let quantiles = quantiles(&changes, least, (100.0 - options.confidence.percent()) / 100.0);
    let row = |judged| Row { judged, verdict: judged.verdict(least, &quantiles), least, quantiles: &quantiles };
    let mut rows: Vec<Row<'_>> = judged.iter().map(row).collect();
    // The sort is stable: ties stay in the order of the keys.
    let cost = |row: &Row<'_>| row.judged.delta_core_s_per_day().unwrap_or(0.0).abs();
    rows.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(cost(b).total_cmp(&cost(a))));
    rows.truncate(limit);
    let sides = SIDE_COLUMNS.iter().flat_map(|(name, _)| ["old", "new"].map(|side| format!("{name}_{side}")));
    let columns = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).chain(sides).chain(["prog_key".to_owned()]);
    let row = |row: &Row<'_>| {
        let Judged { old, new, key, .. } = row.judged;
        let sides = SIDE_COLUMNS.iter().flat_map(|(_, value)| [value(old), value(new)]);
        COLUMNS.iter().map(|(_, value)| value(row)).chain(sides).chain([key[0].clone()]).collect()
    };
    Ok(Answer { columns: columns.collect(), rows: rows.iter().map(row).collect() })
}

fn programs(answer: &Answer) -> Result<Vec<Program>> {
    let mut programs: Vec<Program> = Vec::new();
    for row in &answer.rows {
        let cell = |name: &str| {
            let at = answer.columns.iter().position(|column| column == name);
            at.map(|at| &row[at]).with_context(|| format!("the query has no column {name}"))
        };
        let integer = |name| cell(name).map(Value::integer);
        let count = |name| integer(name).map(Option::unwrap_or_default);
        let key = [cell("prog_key")?.clone(), cell("name")?.clone(), cell("prog_type")?.clone()];
        let cohort = integer("cohort")?.context("a row without a cohort")?;
        let date = date(cell("date")?.text().context("a row without a date")?)?;
        let has_hosts = count("compared_hosts")? >= LEAST_HOSTS;
        let ratio = cell("ratio")?.real().filter(|ratio| *ratio > 0.0 && has_hosts);
        let value = DayValue {
            day: date.to_epoch_days().into(),
            is_new: integer("is_new")? == Some(1),
            log_ratio: ratio.map(f64::ln),
        };
        let sums = Side {
            days: 1,
            version: cell("version")?.clone(),
            hosts: count("hosts")?,
            runs: count("runs")?,
            cpu_ns: count("cpu_ns")?,
            expected_ns: count("expected_ns")?,
            observed_ns: integer("observed_ns")?,
            capacity_ns: integer("capacity_ns")?,
        };
        let day = Day { value, sums };
        match programs.last_mut().filter(|program| program.key == key && program.cohort == cohort) {
            Some(program) => program.days.push(day),
            None => programs.push(Program { key, cohort, days: vec![day] }),
        }
    }
    Ok(programs)
}

/// Returns the programs of each cohort with their change relative to the move of the fleet, and an entry for the move of each cohort.
fn before_and_after(programs: Vec<Program>) -> Vec<Judged> {
    let mut judged = Vec::new();
    let cohorts: BTreeSet<i128> = programs.iter().map(|program| program.cohort).collect();
    for cohort in cohorts {
        let of_cohort = || programs.iter().filter(|program| program.cohort == cohort);
        let fleet = fleet_days(of_cohort());
        let values: BTreeMap<i64, f64> = fleet.iter().filter_map(|day| Some((day.day, day.log_ratio?))).collect();
        let moved = Change::of(&fleet);
        for Program { key, days, .. } in of_cohort() {
            let to_fleet = |day: &Day| DayValue {
                log_ratio: day.value.log_ratio.map(|value| value - values.get(&day.value.day).unwrap_or(&0.0)),
                ..day.value
            };
            judged.push(Judged {
                key: key.clone(),
                shown: (cohort == KERNEL_CHANGED).then_some(Verdict::KernelChanged),
                old: side(days, false),
                new: side(days, true),
                change: Change::of(&days.iter().map(to_fleet).collect::<Vec<_>>()),
                raw: Change::of(&days.iter().map(|day| day.value).collect::<Vec<_>>()),
                fleet: moved.map(|moved| moved.mean),
            });
        }
        if let Some(moved) = moved {
            let name = if cohort == KERNEL_CHANGED { "(all programs, kernel changed)" } else { "(all programs)" };
            judged.push(Judged {
                key: [Value::Null, Value::Text(name.into()), Value::Null],
                shown: Some(Verdict::FleetMoved),
                old: side_of_all(of_cohort(), false),
                new: side_of_all(of_cohort(), true),
                change: Some(moved),
                ..Judged::default()
            });
        }
    }
    judged
}

/// Returns the move of the fleet for each day, the median over programs; empty with too few programs.
fn fleet_days<'p>(programs: impl Iterator<Item = &'p Program>) -> Vec<DayValue> {
    let mut days: BTreeMap<(i64, bool), Vec<f64>> = BTreeMap::new();
    for day in programs.flat_map(|program| &program.days) {
        days.entry((day.value.day, day.value.is_new)).or_default().extend(day.value.log_ratio);
    }
    if days.values().map(Vec::len).max().unwrap_or(0) < LEAST_PROGRAMS {
        return Vec::new();
    }
    let value = |((day, is_new), values): ((i64, bool), Vec<f64>)| {
        let log_ratio = if values.len() < LEAST_PROGRAMS { None } else { median(values) };
        DayValue { day, is_new, log_ratio }
    };
    days.into_iter().map(value).collect()
}

/// Returns the programs with hosts of both versions, with the difference between the two groups of hosts.
fn canaries(programs: Vec<Program>) -> Vec<Judged> {
    let mut by_key: BTreeMap<String, [Option<Program>; 2]> = BTreeMap::new();
    for program in programs {
        let key = program.key[0].text().unwrap_or_default().to_owned();
        let at = usize::from(program.cohort == CANARY);
        by_key.entry(key).or_default()[at] = Some(program);
    }
    let judged = |[old, new]: [Option<Program>; 2]| {
        let (old, new) = (old?, new?);
        let of_old: BTreeMap<i64, &Day> = old.days.iter().map(|day| (day.value.day, day)).collect();
        let difference = |day: &Day| {
            let of_old = of_old.get(&day.value.day).and_then(|old| old.value.log_ratio);
            DayValue { log_ratio: day.value.log_ratio.zip(of_old).map(|(new, old)| new - old), ..day.value }
        };
        let change = Change::of(&new.days.iter().map(difference).collect::<Vec<_>>());
        Some(Judged {
            old: side(&old.days, true),
            new: side(&new.days, true),
            key: new.key,
            change,
            ..Judged::default()
        })
    };
    by_key.into_values().filter_map(judged).collect()
}

fn side(days: &[Day], is_new: bool) -> Side {
    let of_side = days.iter().filter(|day| day.value.is_new == is_new);
    of_side.map(|day| day.sums.clone()).reduce(Side::plus).unwrap_or_default()
}

fn side_of_all<'p>(programs: impl Iterator<Item = &'p Program>, is_new: bool) -> Side {
    let sides = programs.map(|program| side(&program.days, is_new));
    let all = sides.reduce(|a, b| Side { days: a.days.max(b.days), ..a.plus(b) }).unwrap_or_default();
    Side { observed_ns: None, capacity_ns: None, version: Value::Null, ..all }
}

impl Judged {
    fn verdict(&self, least: f64, quantiles: &StudentQuantiles) -> Verdict {
        let by_direction = |change: Change| if change.mean > 0.0 { Verdict::Regressed } else { Verdict::Improved };
        match self.change.filter(|change| change.exceeds(least, quantiles)) {
            _ if self.old.days == 0 => Verdict::New,
            _ if self.new.days == 0 => Verdict::Gone,
            Some(change) => self.shown.unwrap_or(by_direction(change)),
            _ if self.fleet.and(self.raw).is_some_and(|raw| raw.exceeds(least, quantiles)) => Verdict::FleetMoved,
            _ => Verdict::Undecided,
        }
    }

    /// Change of the CPU seconds of all hosts in a day.
    fn delta_core_s_per_day(&self) -> Option<f64> {
        // CPU seconds of all hosts in a whole day, at the time per run of the base days.
        let expected_s = ratio(self.new.expected_ns, self.new.observed_ns?)? * self.new.hosts as f64 * S_PER_DAY;
        Some(self.change?.mean.exp_m1() * expected_s)
    }
}

/// Row of the answer.
struct Row<'j> {
    judged: &'j Judged,
    verdict: Verdict,
    /// Smallest change that can have a verdict, as a logarithm.
    least: f64,
    quantiles: &'j StudentQuantiles,
}

impl Row<'_> {
    /// Ratio of the change, moved by the margin of its confidence interval times `margins`.
    fn ratio(&self, margins: f64) -> Value {
        self.judged.change.map(|change| (change.mean + margins * change.margin(self.quantiles)).exp()).into()
    }

    fn detectable_percent(&self) -> Value {
        self.judged.change.map(|change| (self.least + change.margin(self.quantiles)).exp_m1() * 100.0).into()
    }
}

fn ratio(part: i128, whole: i128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
