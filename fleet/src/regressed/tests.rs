//! Rates of false and missed verdicts, on generated fleets. The hosts of a fleet share weekdays, load and releases.

use super::{RegressedOptions, canary, judge};
use crate::answer::{Answer, Value};
use crate::engine::EngineChoice;
use crate::lake::Lake;
use crate::query::{Question, Scope, ask};
use crate::rows::Date;
use crate::schema::{
    HostColumns, ProgramColumns, RecordedRows, RecordingColumns, RecordingRow, RunStatsRow, SCHEMA_VERSION, Text, Time,
    columns_of, hour_of_week,
};
use bprec_generate::{CanaryShape, Fleet, HostDay, Regression};
use bprec_report::Confidence;
use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

const WEEKS: u32 = 5;
/// First of the seven days that are compared with the days before.
const CHANGED_FROM: u32 = 7 * (WEEKS - 1);
const SLOWER: u32 = 2;

/// A kind of fleet, and the change of one program in it.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    hosts: u32,
    programs: u32,
    /// Percent of hosts with the new version.
    canary: Option<u32>,
    slower_percent: u32,
}

const UNCHANGED: Scenario =
    Scenario { name: "no change, before and after", hosts: 300, programs: 12, canary: None, slower_percent: 0 };
const CHANGED: Scenario = Scenario { name: "+10 %, before and after", slower_percent: 10, ..UNCHANGED };
const UNCHANGED_CANARY: Scenario =
    Scenario { name: "no change, canary", hosts: 2000, programs: 3, canary: Some(40), slower_percent: 0 };
const CHANGED_CANARY: Scenario = Scenario { name: "+3 %, canary", slower_percent: 3, ..UNCHANGED_CANARY };

impl Scenario {
    fn fleet(&self, seed: u64) -> Fleet {
        let slower = Regression { program: SLOWER, from: CHANGED_FROM, percent: self.slower_percent };
        Fleet {
            hosts: self.hosts,
            days: 7 * WEEKS,
            programs: self.programs,
            record_bytes: 1,
            seed,
            canary: self.canary.map(|percent| CanaryShape { from: CHANGED_FROM, percent }),
            upgraded_from: Some(CHANGED_FROM + 2),
            regressions: (self.slower_percent > 0).then_some(slower).into_iter().collect(),
        }
    }
}

/// Writes the lake of these days of a fleet, one batch a day.
fn lake_of(fleet: &Fleet, days: Range<u32>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (mut lake, _lock) = Lake::open_to_write(directory.path()).unwrap();
    let mut by_date: BTreeMap<Date, (Vec<RecordingRow>, Vec<RunStatsRow>)> = BTreeMap::new();
    let names: Vec<Text> = (0..fleet.programs).map(|program| Fleet::program_name(program).into()).collect();
    for day in days {
        for host in 0..fleet.hosts {
            let HostDay { name, kernel_release, version, start_unix_ns, .. } = fleet.host_day(host, day);
            let host_id: Text = name.into();
            let start = Time::from_timestamp_nanos(start_unix_ns as i64);
            let (recordings, run_stats) = by_date.entry(start.date_naive()).or_default();
            let columns = HostColumns {
                host_id: Some(host_id.clone()),
                host_name: Some(host_id),
                boot_id: None,
                kernel_release: Some(kernel_release.into()),
            };
            recordings.push(RecordingRow {
                host: columns.clone(),
                schema_version: SCHEMA_VERSION,
                recording_id: format!("{:016x}{host:08x}{day:08x}", fleet.seed).into(),
                arch: None,
                cpu_model: None,
                cpu_count: Some(4),
                labels: None,
                start_time: Some(start),
                duration_ns: None,
                cpu_time_ns: None,
                target: None,
                run_stats_source: None,
                lost_records: 0,
                problems: None,
                source_uri: "generated".into(),
                source_bytes: 0,
                writer: "generated".into(),
                ingested_at: None,
            });
            let recording = RecordingColumns { host: columns, window_start: Some(start), labels: None };
            for (program, name) in (0..).zip(&names) {
                let ran = fleet.ran(program, host, day);
                run_stats.push(RunStatsRow {
                    recording: recording.clone(),
                    program: ProgramColumns {
                        prog_id: Some(program as i32),
                        load_time_ns: Some(1),
                        prog_key: format!("{program:016x}").into(),
                        tag: None,
                        name: name.clone(),
                        prog_type: Some("xdp".into()),
                        version_label: Some(format!("v{version}").into()),
                    },
                    counts_others: false,
                    cpu_count: Some(4),
                    observed_ns: Some(60_000_000_000),
                    run_cnt: ran.count as i64,
                    run_time_ns: ran.time_ns as i64,
                    recursion_misses: None,
                    is_estimate: false,
                    is_partial: false,
                    time_margin_ns: None,
                    hour_of_week: Some(hour_of_week(start)),
                });
            }
        }
    }
    for (date, (recordings, run_stats)) in by_date {
        let rows = RecordedRows { recording: recordings, run_stats, ..RecordedRows::new(date).unwrap() };
        lake.commit(date, &[columns_of(&[rows]).unwrap()]).unwrap();
    }
    directory
}

/// Recordings of a host, and its cohort in the query.
struct SimulatedHost {
    /// For each program, its recordings: (days since the start of the fleet, hour of the week, runs, time in ns).
    recordings: Vec<Vec<(i64, i32, u64, u64)>>,
    cohort: Option<i128>,
}

fn simulated(fleet: &Fleet, host: u32) -> SimulatedHost {
    let first = Time::from_timestamp_nanos(fleet.host_day(0, 0).start_unix_ns as i64).date_naive();
    let days: Vec<HostDay> = (0..fleet.days).map(|day| fleet.host_day(host, day)).collect();
    let times: Vec<Time> = days.iter().map(|day| Time::from_timestamp_nanos(day.start_unix_ns as i64)).collect();
    let day_of = |time: Time| (time.date_naive() - first).num_days();
    let of_day = |program, day: u32| {
        let (ran, time) = (fleet.ran(program, host, day), times[day as usize]);
        (day_of(time), hour_of_week(time), ran.count, ran.time_ns)
    };
    let has_new_kernel = days.iter().any(|day| day.kernel_release != days[0].kernel_release);
    let is_new = |time: &Time| (0..7).contains(&(day_of(*time) - i64::from(CHANGED_FROM)));
    let new_days = days.iter().zip(&times).filter(|(_, time)| is_new(time));
    let versions: BTreeSet<u32> = new_days.map(|(day, _)| day.version).collect();
    SimulatedHost {
        recordings: (0..fleet.programs)
            .map(|program| (0..fleet.days).map(|day| of_day(program, day)).collect())
            .collect(),
        cohort: match fleet.canary {
            None => Some(i128::from(has_new_kernel)),
            Some(_) if has_new_kernel || versions.len() > 1 => None,
            Some(_) => versions.first().map(|version| i128::from(*version)),
        },
    }
}

/// Computes the expected answer of the query from its definition, without the engine.
fn expected_answer(fleet: &Fleet) -> Answer {
    let columns = [
        "prog_key",
        "name",
        "prog_type",
        "cohort",
        "date",
        "is_new",
        "version",
        "hosts",
        "compared_hosts",
        "ratio",
        "runs",
    ];
    let more = ["cpu_ns", "expected_ns", "observed_ns", "capacity_ns"];
    let mut answer =
        Answer { columns: columns.iter().chain(&more).map(|name| (*name).to_owned()).collect(), rows: Vec::new() };
    let first = Time::from_timestamp_nanos(fleet.host_day(0, 0).start_unix_ns as i64).date_naive();
    let last = i64::from(CHANGED_FROM) + 7;
    let hosts: Vec<SimulatedHost> = (0..fleet.hosts).map(|host| simulated(fleet, host)).collect();
    for program in 0..fleet.programs as usize {
        let mut days: BTreeMap<(i128, i64), (i128, Vec<f64>)> = BTreeMap::new();
        for host in &hosts {
            let Some(cohort) = host.cohort else { continue };
            let mut of_host: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            let recordings = &host.recordings[program];
            for (day, hour, runs, time_ns) in recordings.iter().filter(|it| it.0 < last) {
                let is_base =
                    |it: &&(i64, i32, u64, u64)| it.1 == *hour && it.0 != *day && it.0 < i64::from(CHANGED_FROM);
                let base = recordings.iter().filter(is_base).fold((0, 0), |sum, it| (sum.0 + it.2, sum.1 + it.3));
                let of_day = of_host.entry(*day).or_default();
                if base.0 > 0 {
                    of_day.0 += time_ns;
                    of_day.1 += (*runs as f64 * base.1 as f64 / base.0 as f64) as u64;
                }
            }
            for (day, (time_ns, expected_ns)) in of_host {
                let of_day = days.entry((cohort, day)).or_default();
                of_day.0 += 1;
                if expected_ns > 0 {
                    of_day.1.push(time_ns as f64 / expected_ns as f64);
                }
            }
        }
        for ((cohort, day), (hosts, mut ratios)) in days {
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios.get(ratios.len().saturating_sub(1) / 2).copied();
            let text = |text: String| Value::Text(text);
            let is_new = i128::from(day >= i64::from(CHANGED_FROM));
            let key = [text(format!("{program:016x}")), text(Fleet::program_name(program as u32)), text("xdp".into())];
            let date = [
                Value::Integer(cohort),
                text((first + TimeDelta::days(day)).to_string()),
                Value::Integer(is_new),
                Value::Null,
            ];
            let counts = [Value::Integer(hosts), Value::Integer(ratios.len() as i128), ratio.into()];
            let unused = std::iter::repeat_n(Value::Null, 1 + more.len());
            answer.rows.push(key.into_iter().chain(date).chain(counts).chain(unused).collect());
        }
    }
    answer
}

fn options(scenario: &Scenario) -> RegressedOptions {
    RegressedOptions {
        base_since: None,
        base_until: None,
        canary: scenario.canary.map(|_| canary("v0..v1").unwrap()),
        min_runs: 1000,
        min_effect: "2".parse().unwrap(),
        confidence: Confidence::default(),
    }
}

/// Programs by verdict.
type Verdicts = BTreeMap<String, BTreeSet<String>>;

fn by_verdict(answer: &Answer) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for row in &answer.rows {
        let [verdict, name] = [0, 1].map(|at| row[at].text().unwrap().to_owned());
        verdicts.entry(verdict).or_default().insert(name);
    }
    verdicts
}

fn simulated_verdicts(fleet: &Fleet, scenario: &Scenario) -> Verdicts {
    by_verdict(&judge(&expected_answer(fleet), &options(scenario), 100_000).unwrap())
}

/// Returns the verdicts of another build of this program.
fn verdicts_of(program: &Path, lake: &Path) -> Verdicts {
    let output = Command::new(program)
        .args(["query", "regressed", "--format", "csv", "--limit", "100000", "--lake"])
        .arg(lake)
        .output()
        .unwrap();
    let mut verdicts = Verdicts::new();
    for line in String::from_utf8(output.stdout).unwrap().lines().skip(1) {
        let mut cells = line.split(',').map(str::to_owned);
        let (verdict, name) = (cells.next().unwrap(), cells.next().unwrap());
        verdicts.entry(verdict).or_default().insert(name);
    }
    verdicts
}

/// Counts of fleets and of false verdicts in a scenario.
#[derive(Debug, Default)]
struct Rates {
    fleets: usize,
    /// Fleets in which the slower program is found.
    found: usize,
    /// Fleets with a false verdict.
    with_false: usize,
    /// False verdicts in all fleets.
    false_verdicts: usize,
}

impl Rates {
    fn add(&mut self, verdicts: &Verdicts, scenario: &Scenario) {
        let slower = verdicts.get("regressed").or_else(|| verdicts.get("slower")).cloned().unwrap_or_default();
        let planted = Fleet::program_name(SLOWER);
        let is_found = scenario.slower_percent > 0 && slower.contains(&planted);
        let others = slower.len() - usize::from(is_found);
        self.fleets += 1;
        self.found += usize::from(is_found);
        self.with_false += usize::from(others > 0);
        self.false_verdicts += others;
    }
}

/// Ratios and verdicts of the query equal those computed from the definition.
#[test]
fn the_query_computes_the_ratios_of_its_definition() {
    for scenario in [
        Scenario { hosts: 40, programs: 5, ..CHANGED },
        Scenario { hosts: 60, programs: 2, slower_percent: 20, ..CHANGED_CANARY },
    ] {
        let fleet = scenario.fleet(7);
        let lake = lake_of(&fleet, 0..fleet.days);
        let scope = Scope {
            lake: lake.path().to_owned(),
            since: None,
            until: None,
            labels: Vec::new(),
            regressed: options(&scenario),
            choice: EngineChoice::default(),
            condition: None,
            limit: 1000,
        };
        let answer = ask(Question::Regressed, &scope).unwrap();
        let expected = judge(&expected_answer(&fleet), &options(&scenario), 1000).unwrap();
        assert!(answer.rows.len() >= fleet.programs as usize);
        let summary = |answer: &Answer| {
            let row = |row: &Vec<Value>| (row[1].text().unwrap().to_owned(), row[0].clone(), row[3..6].to_vec());
            let mut rows: Vec<_> = answer.rows.iter().map(row).collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0).then(format!("{:?}", a.2).cmp(&format!("{:?}", b.2))));
            rows
        };
        assert_eq!(summary(&answer), summary(&expected));
    }
}

/// A smaller version of `rates_of_a_hundred_fleets`.
#[test]
fn common_changes_are_not_regressions_and_regressions_are_found() {
    for scenario in [
        Scenario { hosts: 60, ..UNCHANGED },
        Scenario { hosts: 60, ..CHANGED },
        Scenario { hosts: 400, slower_percent: 8, ..CHANGED_CANARY },
    ] {
        let mut rates = Rates::default();
        for seed in 0..10 {
            rates.add(&simulated_verdicts(&scenario.fleet(seed), &scenario), &scenario);
        }
        let expected = if scenario.slower_percent > 0 { 10 } else { 0 };
        assert_eq!((rates.found, rates.with_false), (expected, 0), "{}: {rates:?}", scenario.name);
    }
}

/// Prints the rates of 100 fleets of each scenario. `BPREC_FLEET_EARLIER` names another build of the program, which compares the last day of the
/// same fleets with the day before.
#[test]
#[ignore = "takes minutes"]
fn rates_of_a_hundred_fleets() {
    let fleets = std::env::var("BPREC_FLEETS").map_or(100, |number| number.parse().unwrap());
    let earlier = std::env::var_os("BPREC_FLEET_EARLIER").map(PathBuf::from);
    for scenario in [UNCHANGED, CHANGED, UNCHANGED_CANARY, CHANGED_CANARY] {
        let (mut rates, mut of_earlier) = (Rates::default(), Rates::default());
        for seed in 0..fleets {
            let fleet = scenario.fleet(1000 + seed);
            match &earlier {
                None => rates.add(&simulated_verdicts(&fleet, &scenario), &scenario),
                Some(earlier) => {
                    // The first day of the change and the day before.
                    let lake = lake_of(&fleet, CHANGED_FROM - 1..CHANGED_FROM + 1);
                    of_earlier.add(&verdicts_of(earlier, lake.path()), &scenario);
                }
            }
        }
        println!("{}: {rates:?}; earlier: {of_earlier:?}", scenario.name);
        if earlier.is_none() && scenario.slower_percent == 0 {
            assert!(rates.with_false * 100 <= rates.fleets, "{rates:?}");
        } else if earlier.is_none() {
            assert!(rates.found * 100 >= rates.fleets * 95, "{rates:?}");
        }
    }
}
