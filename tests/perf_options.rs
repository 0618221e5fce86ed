//! Tables of perf's options in docs/perf.md: they list every option of perf, and what they say about bprec's options is true. The tests compare them
//! with perf's help and with the definitions of bprec's options.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use bprec::{Here, PerfOption, perf_options};
use serde_json::Value;

/// Releases of perf in the tables, with their options, one per line: `record -a --all-cpus`.
const RELEASES: [(&str, &str); 2] =
    [("6.1", include_str!("perf_options/perf-6.1")), ("7.3", include_str!("perf_options/perf-7.3"))];
const COMMANDS: [&str; 7] = ["record", "report", "script", "annotate", "diff", "stat", "top"];

/// Output of perf; `None` if it is not installed.
fn perf(arguments: &[&str]) -> Option<String> {
    let output = Command::new("perf").args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Options in the help of the installed perf: `-a --all-cpus`.
fn listed_by_perf(command: &str) -> BTreeSet<String> {
    let help = perf(&[command, "-h"]).unwrap();
    let options = help.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let option = line.trim_start();
        // The description of an option is on a separate line, further to the right.
        let is_option = option.starts_with('-') && line.len() - option.len() <= 4;
        is_option.then(|| {
            option.split(['<', '[', ' ']).take_while(|word| word.starts_with('-')).collect::<Vec<_>>().join(" ")
        })
    });
    options.map(|option| option.replace(',', "")).collect()
}

/// Options of a command in the list of a release.
fn listed(list: &str, command: &str) -> BTreeSet<String> {
    list.lines().filter_map(|line| Some(line.strip_prefix(command)?.strip_prefix(' ')?.to_owned())).collect()
}

fn name(option: &PerfOption) -> String {
    let short = option.short.map(|short| format!("-{short}"));
    let long = option.long.map(|long| format!("--{long}"));
    short.into_iter().chain(long).collect::<Vec<_>>().join(" ")
}

/// Checks each option as the newest perf release with this option lists it: a release may add a short form to an existing option.
#[test]
fn every_option_of_perf_is_in_the_tables() {
    for command in COMMANDS {
        let mut by_long = BTreeMap::new();
        for option in RELEASES.iter().flat_map(|(_, list)| listed(list, command)) {
            by_long.insert(option.split("--").last().unwrap().to_owned(), option);
        }
        let listed: BTreeSet<String> = by_long.into_values().collect();
        assert!(listed.len() > 15, "{command}: {listed:?}");
        let ours = perf_options(command);
        let names: BTreeSet<String> = ours.iter().map(name).collect();
        assert_eq!(names.len(), ours.len(), "{command}: an option is listed twice");
        let missing: Vec<_> = listed.difference(&names).collect();
        let unknown: Vec<_> = names.difference(&listed).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "{command}: docs/perf.md lacks {missing:?}, perf lacks {unknown:?}"
        );
    }
}

#[test]
fn the_lists_are_what_perf_prints() {
    let version = perf(&["--version"]).unwrap_or_default();
    let is_of = |release: &str| version.starts_with(&format!("perf version {release}."));
    let Some((release, list)) = RELEASES.into_iter().find(|(release, _)| is_of(release)) else {
        println!("SKIP the_lists_are_what_perf_prints: no perf of a release that has a list");
        return;
    };
    for command in COMMANDS {
        assert_eq!(listed(list, command), listed_by_perf(command), "perf {release} {command}");
    }
}

#[test]
fn what_the_tables_say_of_ours_is_so() {
    let mut bprec = bprec::command();
    bprec.build();
    for command in COMMANDS {
        let subcommand = bprec.find_subcommand(command).unwrap();
        let has_long = |long: &str| {
            let is = |name: &str| name == long || name.strip_prefix("no-") == Some(long);
            let all = |argument: &clap::Arg| argument.get_long_and_visible_aliases().into_iter().flatten().any(is);
            let hidden = |argument: &clap::Arg| argument.get_aliases().into_iter().flatten().any(is);
            subcommand.get_arguments().any(|argument| all(argument) || hidden(argument))
        };
        let has_short = |short: char| {
            subcommand
                .get_arguments()
                .any(|it| it.get_short_and_visible_aliases().is_some_and(|all| all.contains(&short)))
        };
        for option in perf_options(command) {
            let of = format!("{command} {}", name(&option));
            let has = [option.long.is_none_or(has_long), option.short.is_none_or(has_short)];
            match option.here {
                Here::Same => assert_eq!(has, [true, true], "{of}"),
                Here::Other => assert!(!option.remark.is_empty(), "{of}: no remark"),
                Here::Always => assert!(!option.long.is_some_and(has_long), "bprec has the option {of}"),
                Here::No => {
                    assert!(!option.remark.is_empty(), "{of}: no remark");
                    let has = option.long.is_some_and(has_long) || option.short.is_some_and(has_short);
                    assert!(!has, "bprec has the option {of}");
                }
            }
        }
    }
}

#[test]
fn an_option_that_only_perf_has_is_answered_with_the_way_to_go() {
    for command in COMMANDS {
        for option in perf_options(command).into_iter().filter(|option| option.here != Here::Same) {
            let Some(long) = option.long else { continue };
            let is_ours = |it: &clap::Arg| it.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long));
            let mut definitions = bprec::command();
            definitions.build();
            if definitions.find_subcommand(command).unwrap().get_arguments().any(is_ours) {
                continue;
            }
            // If the option is accepted, the unknown option after it causes the error.
            let last = format!("--{long}");
            let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args([command, &last, "--nosuch"]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command} {last}: {said}");
            match option.here {
                Here::Always => assert!(said.contains("'--nosuch'"), "{command} {last}: {said}"),
                _ => assert!(said.contains(&last) && said.contains(option.remark), "{command} {last}: {said}"),
            }
        }
    }
}

#[test]
fn letters_in_one_word_are_known_too() {
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["record", "-ab"]).contains("-b (--branch-any)"));
    assert!(said(&["record", "-aT"]).contains("omit the option"));
    assert!(said(&["report", "--nosuch"]).contains("unexpected argument '--nosuch'"));
}

#[test]
fn what_users_of_perf_type_is_understood() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/recordings/linux-7.2/ratio.data");
    let report = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bprec")).arg("report").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let with = |arguments: &[&str]| report(&[&["-i", recording], arguments].concat());
    let table = with(&[]);
    assert_eq!(report(&[recording]), table);
    assert_eq!(report(&["--stdio", "-f", recording]), table);
    assert_eq!(with(&["-s", "overhead"]), table);
    assert_eq!(with(&["-s", "overhead_children"]), with(&["--sort", "total"]));
    let comms = with(&["-c", "bprec-load"]);
    assert_eq!(with(&["--comms", "bprec-load"]), comms);
    // Former name of the option.
    assert_eq!(with(&["--comm", "bprec-load"]), comms);
    assert_ne!(comms, table);

    let json =
        |arguments: &[&str]| -> Value { serde_json::from_str(&with(&[arguments, &["--json"]].concat())).unwrap() };
    let whole = json(&[]);
    let share = |row: &Value| {
        let weight = |part: &str| row[part]["weight"].as_u64().unwrap() as f64;
        let charged: f64 = ["self", "helper", "entry"].map(weight).iter().sum();
        charged / whole["events"][0]["samples"]["weight"].as_u64().unwrap() as f64
    };
    let ids = |report: &Value, least: f64| -> Vec<u64> {
        let rows = report["events"][0]["rows"].as_array().unwrap().iter();
        rows.filter(|row| share(row) >= least).map(|row| row["id"].as_u64().unwrap()).collect()
    };
    let limited = json(&["--percent-limit", "10"]);
    assert_eq!(ids(&limited, 0.0), ids(&whole, 0.1));
    assert!(ids(&limited, 0.0).len() < ids(&whole, 0.0).len());
    assert_eq!(
        limited["events"][0]["total"], whole["events"][0]["total"],
        "the total includes samples that are not shown"
    );
}
