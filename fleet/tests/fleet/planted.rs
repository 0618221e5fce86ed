//! Recordings of generated fleets in which a known program became slower.

use crate::support::{Lake, fleet_of, recordings_of, rows};
use bprec_generate::{Fleet, Regression};

/// A program that is 20 % slower in the third week is found, and no other program is said to be slower or faster.
#[test]
fn a_slower_program_is_found_among_changes_of_the_whole_fleet() {
    let slower = Regression { program: 2, from: 14, percent: 20 };
    let fleet = Fleet { regressions: vec![slower], ..fleet_of(20, 21, 6) };
    let place = tempfile::tempdir().unwrap();
    let lake = Lake::with(&recordings_of(&fleet, place.path()), &[]);
    let found = rows(&lake.query(&["regressed", "--format", "json"]));
    let text = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let changed: Vec<_> = found
        .iter()
        .filter(|row| ["regressed", "improved"].contains(&&*text(row, "verdict")))
        .map(|row| (text(row, "name"), text(row, "verdict")))
        .collect();
    assert_eq!(changed, [(Fleet::program_name(slower.program), "regressed".to_owned())], "{found:?}");
    let row = &found[0];
    assert_eq!([&row["days_old"], &row["days_new"], &row["hosts_new"]].map(|it| it.as_u64().unwrap()), [14, 7, 20]);
    let ratio = row["ratio"].as_f64().unwrap();
    assert!((ratio / 1.2 - 1.0).abs() < 0.04, "{row}");
    assert!(row["delta_core_s_per_day"].as_f64().unwrap() > 0.0, "{row}");
    // Too few days give no verdict.
    let found =
        rows(&lake.query(&["regressed", "--format", "json", "--since", "2026-03-21", "--base-since", "2026-03-14"]));
    let row = found.iter().find(|row| text(row, "name") == Fleet::program_name(slower.program)).unwrap();
    assert_eq!(row["verdict"], "undecided", "{row}");
}
