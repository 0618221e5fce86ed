//! Named queries, and compaction.

use crate::support::{Lake, recording, rows, text, whole_recordings};
use bprec_report::model::Program;
use bprec_report::{Input, Options, by_prog, printable};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs and time of the programs with this name and these attach points, by the report of the recording.
fn runs_of(path: &PathBuf, name: &str, attached: &[String]) -> (u64, u64) {
    let report = by_prog(&Input::open(path).unwrap(), &Options::default()).unwrap();
    let is_one = |program: &&Program| program.name == name && program.identity().attached == attached;
    let found = report.programs.iter().filter(is_one).filter_map(|program| program.runs.value());
    found.fold((0, 0), |(count, time_ns), runs| (count + runs.count, time_ns + runs.time_ns))
}

fn quoted(text: &Value) -> String {
    format!("'{}'", text.as_str().unwrap())
}

/// Four hosts have the same recording on each of fourteen days, and then another recording on each of seven days. Days of one side do not differ, so
/// the ratio is exact.
#[test]
fn changes_on_all_hosts_are_found() {
    let (old, new) = (recording("7.2/ratio.data"), recording("7.2/everything.data"));
    let days: Vec<&Path> = (0..21).map(|day| if day < 14 { &*old } else { &*new }).collect();
    let lake = Lake::of_four_hosts(&days);
    let days =
        lake.sql("SELECT COUNT(DISTINCT date) AS days, MAX(date) AS last, COUNT(*) AS recordings FROM recording");
    assert_eq!(days[0].to_string(), r#"{"days":21,"last":"2026-03-21","recordings":84}"#);
    let found = rows(&lake.query(&["regressed", "--format", "json", "--min-runs", "100"]));
    let mut compared = 0;
    for row in found.iter().filter(|row| !row["ratio"].is_null()) {
        let name = row["name"].as_str().unwrap();
        let key = quoted(&row["prog_key"]);
        let hooks = lake.sql(&format!("SELECT DISTINCT kind, hook FROM attachment WHERE prog_key = {key}"));
        // The hooks of these recordings are functions and tracepoints, which are the same on all hosts.
        let text = |row: &Value| format!("{}:{}", row["kind"].as_str().unwrap(), row["hook"].as_str().unwrap());
        let mut places: Vec<String> = hooks.iter().map(text).collect();
        places.sort();
        let ((old_runs, old_ns), (new_runs, new_ns)) = (runs_of(&old, name, &places), runs_of(&new, name, &places));
        let ratio = (new_ns as f64 / new_runs as f64) / (old_ns as f64 / old_runs as f64);
        for column in ["ratio", "ratio_low", "ratio_high"] {
            // The query rounds the expected time of a host down to nanoseconds.
            assert!((row[column].as_f64().unwrap() / ratio - 1.0).abs() < 1e-4, "{row} {ratio}");
        }
        assert_eq!(row["verdict"], if ratio > 1.0 { "regressed" } else { "improved" }, "{row}");
        assert_eq!([&row["days_old"], &row["days_new"]].map(|it| it.as_u64().unwrap()), [14, 7]);
        let runs = [&row["runs_old"], &row["runs_new"]].map(|it| it.as_u64().unwrap());
        assert_eq!(runs, [14 * 4 * old_runs, 7 * 4 * new_runs]);
        compared += 1;
    }
    assert!(compared >= 2, "{found:?}");
    // Without base days, every program is new.
    let found = rows(&lake.query(&["regressed", "--format", "json", "--since", "2026-03-01", "--until", "2026-03-01"]));
    assert!(!found.is_empty() && found.iter().all(|row| row["verdict"] == "new"), "{found:?}");
}

#[test]
fn days_and_conditions_choose_rows() {
    let lake = Lake::with(&whole_recordings(), &[]);
    let ask = |args: &[&str]| {
        let args: Vec<&str> = [&["hosts", "--format", "json"], args].concat();
        rows(&lake.query(&args))
    };
    let kernels = |rows: &[Value]| {
        let mut kernels: Vec<String> =
            rows.iter().map(|row| row["kernel_release"].as_str().unwrap().to_owned()).collect();
        kernels.sort();
        kernels
    };
    assert_eq!(kernels(&ask(&[])).len(), 4);
    assert_eq!(kernels(&ask(&["--where", "kernel_release LIKE '6.1.%'"])), ["6.1.0-56-cloud-amd64"]);
    assert!(ask(&["--since", "2030-01-01"]).is_empty());
    let dates = lake.sql("SELECT DISTINCT date FROM recording WHERE kernel_release LIKE '6.12%'");
    let date = dates[0]["date"].as_str().unwrap();
    assert!(kernels(&ask(&["--since", date, "--until", date])).contains(&"6.12.107+deb13-cloud-arm64".to_owned()));
    // A condition is a single expression; statements are refused.
    for args in [&["top", "--where", "1 = 1; DROP TABLE run_stats"][..], &["top", "--where", "nothing = 3"][..]] {
        let output = lake.query(args);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains("is not a condition on the columns of run_stats"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_lake_that_was_compacted_has_the_same_rows_in_fewer_files() {
    let files = whole_recordings();
    let lake = Lake::with(&files, &["--batch", "1"]);
    let (before, batches) = (lake.contents(), lake.files("sample").len());
    let compact = |args: &[&str]| {
        crate::support::program().args(["compact", "--lake"]).arg(lake.path()).args(args).output().unwrap()
    };
    let output = compact(&["--batch", "4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lake.contents(), before);
    let days = lake.sql("SELECT DISTINCT date FROM recording").len();
    let output = compact(&[]);
    assert_eq!(lake.files("sample").len(), days, "{}", text(&output.stdout));
    assert!(batches > days);
    assert_eq!(lake.contents(), before);
    let verified = lake.verify();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    // Recordings of merged batches are still recognized.
    assert!(text(&lake.import(&files, &[]).stdout).starts_with("0 recordings imported"));
    // A second compaction changes nothing.
    assert_eq!(text(&compact(&[]).stdout), format!("{days} batches merged into {days}\n"));
}

/// Cells of a line of CSV.
fn csv_cells(line: &str) -> Vec<String> {
    let (mut cells, mut is_quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Two quotes within quotes are one.
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => cells.last_mut().unwrap().push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells
}

/// Every cell of the table and of the CSV has the value of the JSON document; reals of the table have four digits.
#[test]
fn formats_have_the_same_cells() {
    let lake = Lake::of_four_hosts(&[&recording("7.2/everything.data"), &recording("7.2/ratio.data")]);
    let place = tempfile::tempdir().unwrap();
    let sql = place.path().join("all.sql");
    std::fs::write(
        &sql,
        "SELECT 'a, b' AS comma, 'c\"d' AS \"qu\"\"ote\", 'e\nf' AS control, NULL AS unknown, 2 > 1 AS flag, 1e-9 AS small, \
         -3e0 / 7e0 AS fraction, 0e0 AS zero, CAST('12345678901234567890123456789012345678' AS DECIMAL(38,0)) AS long",
    )
    .unwrap();
    let mut cells = 0;
    for query in
        [&["--sql", sql.to_str().unwrap()][..], &["top"], &["versions"], &["hosts"], &["functions"], &["regressed"]]
    {
        let [json, csv, table] = ["json", "csv", "table"].map(|format| {
            let output = lake.query(&[query, &["--format", format]].concat());
            assert!(output.status.success(), "{query:?}: {}", text(&output.stderr));
            text(&output.stdout)
        });
        let document: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&json).unwrap();
        let rows: Vec<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(document["rows"].get()).unwrap();
        let (mut csv, mut table) = (csv.lines(), table.lines());
        let names = csv_cells(csv.next().unwrap());
        assert_eq!(table.next().unwrap().split_whitespace().collect::<Vec<_>>(), names);
        assert_eq!((csv.clone().count(), table.clone().count()), (rows.len(), rows.len()), "{query:?}");
        for ((row, csv), mut table) in rows.iter().zip(csv).zip(table) {
            assert_eq!(row.len(), names.len());
            for (name, csv) in names.iter().zip(csv_cells(csv)) {
                let json = row[name].get();
                let (of_csv, of_table) = match json.strip_prefix('"') {
                    Some(_) => {
                        let text = printable(&serde_json::from_str::<String>(json).unwrap()).into_owned();
                        (text.clone(), text)
                    }
                    None if json == "null" => (String::new(), "n/a".to_owned()),
                    None => (json.to_owned(), json.to_owned()),
                };
                assert_eq!(csv, of_csv, "{query:?} {name}");
                table = table.trim_start();
                if json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && json.contains(['.', 'e']) {
                    let (cell, rest) = table.split_once(' ').unwrap_or((table, ""));
                    let (cell, value): (f64, f64) = (cell.parse().unwrap(), json.parse().unwrap());
                    assert!(
                        (cell - value).abs() <= (value.abs() * 0.006).max(6e-5),
                        "{query:?} {name}: {cell} {value}"
                    );
                    table = rest;
                } else {
                    table =
                        table.strip_prefix(&*of_table).unwrap_or_else(|| panic!("{query:?} {name} {json}: {table}"));
                }
                cells += 1;
            }
            assert_eq!(table.trim(), "");
        }
    }
    assert!(cells > 500, "{cells}");
}
