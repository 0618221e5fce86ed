//! Sums over a lake are the sums of the reports of its recordings.

use crate::support::{Lake, big_endian_recordings, corpus, recordings, text, whole_recordings};
use bprec_report::model::{Count, Report};
use bprec_report::{Input, Options, Redact, RewriteOptions, Session, Source, by_prog, rewrite};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

/// Returns the reports of readable recordings.
fn reports(files: &[PathBuf]) -> Vec<Report> {
    let options = Options { all: true, ..Options::default() };
    files.iter().filter_map(|path| by_prog(&Input::open(path).unwrap(), &options).ok()).collect()
}

type Sums = BTreeMap<Vec<String>, Vec<u64>>;

fn add(sums: &mut Sums, key: &[&str], values: &[u64]) {
    let key = key.iter().map(|text| (*text).to_owned()).collect();
    let sums = sums.entry(key).or_insert_with(|| vec![0; values.len()]);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// Returns the rows of a query: text columns, then numbers.
fn found(rows: &[Value], keys: &[&str], values: &[&str]) -> Sums {
    let mut sums = Sums::new();
    for row in rows {
        let key: Vec<&str> = keys.iter().map(|key| row[key].as_str().unwrap_or("")).collect();
        let values: Vec<u64> = values.iter().map(|value| row[value].as_u64().unwrap()).collect();
        add(&mut sums, &key, &values);
    }
    sums
}

#[test]
fn sums_of_a_lake_are_the_sums_of_the_reports() {
    let big_endian = big_endian_recordings();
    if big_endian.is_empty() {
        println!("SKIP recordings of s390x: not there");
    }
    let files: Vec<PathBuf> = recordings().into_iter().chain(corpus()).chain(big_endian).collect();
    let reports = reports(&files);
    assert!(reports.len() > 30, "{}", reports.len());
    let lake = Lake::new();
    let output = lake.import(&files, &["--date", "2026-01-02", "--unfinished", "--batch", "7"]);
    let refused = files.len() - reports.len();
    let said = format!("{} recordings imported", reports.len());
    assert!(text(&output.stdout).starts_with(&said), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with(&format!("{refused} refused\n")), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(if refused > 0 { 2 } else { 0 }));

    let (mut runs, mut events, mut charged) = (Sums::new(), Sums::new(), Sums::new());
    for report in &reports {
        for program in report.programs.iter() {
            let Some(ran) = program.runs.value() else { continue };
            let prog_type = program.prog_type.map_or_else(String::new, |prog_type| prog_type.to_string());
            let values = [1, ran.count, ran.time_ns, ran.misses.unwrap_or(0)];
            add(&mut runs, &[&program.label(), &prog_type], &values);
        }
        for event in &report.events {
            let (all, bpf) = (event.samples, event.total.count);
            add(&mut events, &[&event.name], &[1, all.samples, all.weight, bpf.samples, bpf.weight]);
            let mut charge = |name: &str, count: Count| {
                if count != Count::default() {
                    add(&mut charged, &[&event.name, name], &[count.samples, count.weight]);
                }
            };
            for row in &event.rows {
                if let Some(line) = &row.line {
                    charge(&report.programs[row.program].label(), line.count);
                }
            }
            for line in [&event.entry_unattributed, &event.interpreted] {
                charge("", line.value().map(|line| line.count).unwrap_or_default());
            }
        }
    }
    let query = "SELECT name, prog_type, COUNT(*) AS programs, SUM(run_cnt) AS runs, SUM(run_time_ns) AS ns, \
                 COALESCE(SUM(recursion_misses), 0) AS misses FROM run_stats GROUP BY name, prog_type";
    assert_eq!(found(&lake.sql(query), &["name", "prog_type"], &["programs", "runs", "ns", "misses"]), runs);
    let query = "SELECT event, COUNT(*) AS events, SUM(samples) AS samples, SUM(weight) AS weight, \
                 SUM(bpf_samples) AS bpf_samples, SUM(bpf_weight) AS bpf_weight FROM event GROUP BY event";
    let values = ["events", "samples", "weight", "bpf_samples", "bpf_weight"];
    assert_eq!(found(&lake.sql(query), &["event"], &values), events);
    let query = "SELECT event, name, SUM(samples) AS samples, SUM(weight) AS weight FROM sample GROUP BY event, name";
    assert_eq!(found(&lake.sql(query), &["event", "name"], &["samples", "weight"]), charged);
    // The query `top` has the same sums, without the programs that count other programs.
    let top = crate::support::rows(&lake.query(&["top", "--format", "json", "--limit", "100000"]));
    let sum = |column: &str| top.iter().map(|row| row[column].as_u64().unwrap()).sum::<u64>();
    let own = reports.iter().flat_map(|report| report.programs.iter()).filter(|program| !program.counts_others);
    let own: Vec<_> = own.filter_map(|program| program.runs.value()).collect();
    assert_eq!(sum("runs"), own.iter().map(|ran| ran.count).sum::<u64>());
    assert_eq!(sum("cpu_ns"), own.iter().map(|ran| ran.time_ns).sum::<u64>());
    let verified = lake.verify();
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}

/// Weights of the owners' rows add up to the totals of the bills, and so do their parts; owners of one name on several hosts are one row of `owners`.
#[test]
fn bills_of_a_lake_are_the_bills_of_the_recordings() {
    let files = whole_recordings();
    let lake = Lake::with(&files, &[]);
    let (mut totals, mut with_cost) = (Sums::new(), 0);
    for path in &files {
        let input = Input::open(path).unwrap();
        let bill = Session::open(&input).unwrap().bill(&Options::default(), None).unwrap();
        for event in &bill.events {
            let total = &event.total;
            let parts = [total.in_others.sum, total.own_tasks.sum, total.causes.sum].map(|share| share.count.weight);
            let unsampled = total.unsampled.map_or(0, |unsampled| unsampled.time_ns);
            let [others, own, causes] = parts;
            add(
                &mut totals,
                &[&event.name],
                &[total.count.samples, total.count.weight, others, own, causes, unsampled],
            );
            with_cost += event.owners.iter().filter(|owner| owner.parts.count.weight > 0).count();
        }
    }
    assert!(with_cost > 3, "{with_cost} owners");
    let columns = ["samples", "weight", "others_weight", "own_weight", "causes_weight", "unsampled_ns"];
    let sums: Vec<String> = columns.iter().map(|column| format!("COALESCE(SUM({column}), 0) AS {column}")).collect();
    let query = format!("SELECT event, {} FROM bill GROUP BY event", sums.join(", "));
    assert_eq!(found(&lake.sql(&query), &["event"], &columns), totals);
    let owners = crate::support::rows(&lake.query(&["owners", "--format", "json", "--limit", "100000"]));
    let mut by_event = Sums::new();
    for row in &owners {
        let name = row["owner"].as_str().unwrap_or_default();
        assert!(!name.contains('/') || row["owner_kind"] != "process", "{name} has a process id");
        add(&mut by_event, &[row["event"].as_str().unwrap()], &[row["weight"].as_u64().unwrap()]);
    }
    let weights = totals.into_iter().map(|(event, sums)| (event, vec![sums[1]])).collect::<Sums>();
    assert_eq!(by_event, weights);
}

/// In a lake with recordings of several kernels and architectures, each row has the kernel and architecture of its own
/// recording.
#[test]
fn recordings_of_different_machines_stand_side_by_side() {
    let lake = Lake::with(&recordings(), &["--date", "2026-01-02", "--unfinished"]);
    let kernels = lake.sql("SELECT DISTINCT kernel_release FROM recording ORDER BY kernel_release");
    let kernels: Vec<&str> = kernels.iter().filter_map(|row| row["kernel_release"].as_str()).collect();
    let of_fixtures =
        ["6.1.0-56-cloud-amd64", "6.12.107+deb13-cloud-arm64", "6.18.44-fc-v657", "7.2.12+deb13-cloud-amd64"];
    assert_eq!(kernels, of_fixtures);
    let arches = lake.sql("SELECT DISTINCT arch FROM recording ORDER BY arch");
    assert_eq!(arches.iter().map(|row| row["arch"].as_str().unwrap()).collect::<Vec<_>>(), ["aarch64", "x86_64"]);
    // Linux 6.18 changed the hash of tags.
    let algos = lake.sql("SELECT DISTINCT kernel_release, tag_algo FROM prog WHERE tag IS NOT NULL ORDER BY 1, 2");
    let algos: Vec<&str> = algos.iter().map(|row| row["tag_algo"].as_str().unwrap()).collect();
    assert_eq!(algos, ["sha1", "sha1", "sha256", "sha256"]);
}

/// Redacted recordings give the same numbers under other names.
#[test]
fn redacted_recordings_have_the_same_sums_and_no_names() {
    let place = tempfile::tempdir().unwrap();
    let files = whole_recordings();
    let redacted: Vec<PathBuf> = files
        .iter()
        .enumerate()
        .map(|(at, path)| {
            let to = place.path().join(format!("{at}.data"));
            let options = RewriteOptions { redact: Some(Redact::Machine), ..RewriteOptions::default() };
            rewrite(&mut Source::open(path).unwrap(), &options, &mut File::create_new(&to).unwrap()).unwrap();
            to
        })
        .collect();
    let (plain, redacted) = (Lake::with(&files, &[]), Lake::with(&redacted, &[]));
    for query in [
        "SELECT name, COUNT(*) AS programs, SUM(run_cnt) AS runs, SUM(run_time_ns) AS ns FROM run_stats GROUP BY name ORDER BY name",
        "SELECT event, SUM(samples) AS samples, SUM(weight) AS weight, SUM(bpf_weight) AS bpf FROM event GROUP BY event ORDER BY event",
        "SELECT name, func, SUM(weight) AS weight FROM sample GROUP BY name, func ORDER BY name, func",
        "SELECT event, SUM(value) AS value FROM counter GROUP BY event ORDER BY event",
    ] {
        let expected = plain.sql(query);
        assert!(!expected.is_empty());
        assert_eq!(redacted.sql(query), expected, "{query}");
    }
    let names = |lake: &Lake| {
        lake.sql("SELECT recording.host_name, owner_comm FROM recording JOIN prog ON recording.host_id = prog.host_id")
            .iter()
            .filter(|row| row["host_name"] == "vm" || row["owner_comm"] == "bprec-load")
            .count()
    };
    assert!(names(&plain) > 0);
    assert_eq!(names(&redacted), 0);
}
