//! The table by program at several widths: columns that are kept or cut, and the notes below. The full table of the same recording is the reference
//! for narrower tables.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const RECORDINGS: [&str; 4] = ["linux-7.2/everything", "linux-7.2/ratio", "linux-6.12-arm64/exact", "linux-6.1/ratio"];

fn path(recording: &str) -> String {
    format!("{}/fixtures/recordings/{recording}.data", env!("CARGO_MANIFEST_DIR"))
}

fn table(recording: &str, columns: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bprec"))
        .args(["report", "-i", &path(recording)])
        .args(arguments)
        .env("COLUMNS", columns)
        .output()
        .unwrap();
    assert!(output.status.success(), "{recording} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Lines with the column names and the rows, up to the line of dashes.
fn rows(table: &str) -> Vec<&str> {
    let lines = table.lines().skip_while(|line| line.starts_with('#'));
    lines.take_while(|line| !line.starts_with("---")).collect()
}

#[test]
fn who_costs_most_stays_at_any_width() {
    for recording in RECORDINGS {
        let wide = table(recording, "80", &["--wide"]);
        // If the machine's maximum is unknown, another column shows the most expensive program.
        let share = if rows(&wide)[0].contains("%MACHINE") { "%MACHINE" } else { "TOTAL%" };
        for (width, columns) in [
            (80, &["PROGRAM", "TYPE", "NS/RUN", share][..]),
            (120, &["TYPE", "NS/RUN", "RUNS", share]),
            (200, &["%BPF", "OWNER", share]),
        ] {
            let narrow = table(recording, &width.to_string(), &[]);
            let (rows, all) = (rows(&narrow), rows(&wide));
            assert_eq!(rows.len(), all.len(), "{recording}: every program has its row");
            // The owner of a program stays beside its cost.
            let owner = all[0].contains("OWNER").then_some(&"OWNER");
            // A table with exact counts (IPC) may have no room for RUNS.
            let columns = columns.iter().filter(|name| **name != "RUNS" || !rows[0].contains("IPC"));
            for name in columns.chain(owner) {
                assert!(rows[0].contains(name), "{recording}, {width} columns: no {name}: {}", rows[0]);
            }
            for line in narrow.lines().filter(|line| !line.starts_with('#')) {
                assert!(line.chars().count() <= width, "{recording}: {line}");
            }
            // Ids are flush right, and are the first word of a row.
            let first = |row: &&str| row.split_whitespace().next().map(str::to_owned);
            assert_eq!(rows.iter().map(first).collect::<Vec<_>>(), all.iter().map(first).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_cut_keeps_both_ends() {
    let narrow = table("linux-7.2/everything", "46", &["--columns", "program,attached to"]);
    let cut: Vec<&str> = narrow.lines().flat_map(str::split_whitespace).filter(|cell| cell.contains('…')).collect();
    assert!(cut.iter().any(|cell| cell.starts_with("raw_sys") && cell.ends_with("sys_enter")), "{cut:?}");
    assert!(cut.iter().any(|cell| cell.starts_with("raw_sys") && cell.ends_with("sys_exit")), "{cut:?}");
}

#[test]
fn lines_off_a_terminal_have_at_most_160_columns() {
    for recording in RECORDINGS {
        for view in ["--by-prog", "--counters", "--over-time", "--lines", "--payers", "--tree", "--by=hook"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
            let output = command.args(["report", view, "-i", &path(recording)]).env_remove("COLUMNS").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(longest.chars().count() <= 160, "{recording} {view}: {longest}");
        }
    }
}

#[test]
fn five_notes_stand_below_a_table_unless_all_are_asked_for() {
    let notes = |arguments: &[&str]| {
        let table = table("linux-6.12-arm64/exact", "100000", arguments);
        let below = table.lines().rev().take_while(|line| *line != "#").map(str::to_owned);
        below.collect::<Vec<_>>()
    };
    let (few, all) = (notes(&[]), notes(&["--notes"]));
    let more = all.len() - 5;
    assert_eq!(few[0], format!("# {more} more notes (--notes shows all)"), "{few:#?}");
    assert_eq!(few[1..], all[more..], "the most important notes are the same");
}

#[test]
fn a_line_of_source_keeps_its_place() {
    let narrow = table("linux-7.2/everything", "90", &["--lines"]);
    let rows: Vec<&str> = rows(&narrow).into_iter().skip(1).filter(|row| row.contains('…')).collect();
    assert!(!rows.is_empty() && rows.iter().any(|row| row.contains("tp.bpf.c:48:2")), "{narrow}");
}

#[test]
fn columns_are_chosen_by_name() {
    let chosen = table("linux-7.2/ratio", "80", &["--columns", "ns/run,PROGRAM,%busy"]);
    let header: Vec<&str> = rows(&chosen)[0].split_whitespace().collect();
    assert_eq!(header, ["NS/RUN", "PROGRAM", "%BUSY"]);
    let wide = table("linux-7.2/ratio", "80", &["--wide"]);
    assert!(wide.contains("TOTAL%") && !table("linux-7.2/ratio", "200", &["--no-children"]).contains("TOTAL%"));
    let output = Command::new(env!("CARGO_BIN_EXE_bprec"))
        .args(["report", "-i", &path("linux-7.2/ratio"), "--columns", "nosuch"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{said}");
    assert!(said.contains("nosuch") && said.contains("PROGRAM, TYPE, %MACHINE"), "{said}");
}

const LEVELS: &str = " ▁▂▃▄▅▆▇█";

/// Weights of the intervals in the JSON of `--over-time`, added up by bar: the expected heights of bars in a row.
fn sums_per_bar(intervals: &Value, intervals_per_bar: u64) -> BTreeMap<u64, u64> {
    let mut sums = BTreeMap::new();
    for interval in intervals.as_array().unwrap() {
        let bar = interval["interval"].as_u64().unwrap() / intervals_per_bar;
        *sums.entry(bar).or_insert(0) += interval["weight"].as_u64().unwrap();
    }
    sums
}

/// Asserts that the heights of bars are in proportion to these sums.
fn assert_bars(line: &str, sums: &BTreeMap<u64, u64>, may_be_absent: bool, at: &str) {
    let most = sums.values().copied().max().unwrap_or(1);
    for (bar, shown) in (0..).zip(line.chars()) {
        let sum = sums.get(&bar).copied().unwrap_or(0);
        let level = LEVELS.chars().nth((sum as f64 * 8.0 / most as f64).ceil() as usize).unwrap();
        assert!(shown == level || (sum == 0 && shown == '·' && may_be_absent), "{at}, bar {bar}: {line:?} {sums:?}");
    }
    let drawn = line.chars().count() as u64;
    assert!(sums.keys().all(|bar| *bar < drawn), "{at}: {line:?} ends before {sums:?}");
}

/// Length of a bar, ns, from the line that contains `before`.
fn bar_ns(table: &str, before: &str) -> u64 {
    let line = table.lines().find(|line| line.contains(before) && line.contains(" per bar")).unwrap();
    let length = line.split(before).nth(1).unwrap().split(" per bar").next().unwrap();
    let (number, unit) = length.split_once(' ').unwrap();
    let unit_ns = [("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    number.parse::<u64>().unwrap() * unit_ns.iter().find(|(name, _)| *name == unit).unwrap().1
}

/// The text of the last column of a line.
fn last_cell<'l>(line: &'l str, header: &str, column: &str) -> &'l str {
    let at = header[..header.find(column).unwrap()].chars().count();
    line.char_indices().nth(at).map_or("", |(at, _)| &line[at..])
}

#[test]
fn spark_lines_are_what_the_report_over_time_has() {
    let mut compared = 0;
    for recording in RECORDINGS.into_iter().chain(["linux-7.2/shortlived", "linux-7.2/loaded-during"]) {
        let over_time: Value = serde_json::from_str(&table(recording, "80", &["--over-time", "--json"])).unwrap();
        let interval_ns = over_time["interval_ns"].as_u64().unwrap();
        let event = &over_time["events"][0];
        for (width, arguments) in [
            ("80", &["--columns", "+spark"][..]),
            ("200", &["--columns", "program,spark,id", "--columns", "samples"]),
            ("80", &["--columns", "ID,PROGRAM,SAMPLES,Spark", "--wide"]),
            ("120", &["--columns", "+spark", "--limit", "2"]),
        ] {
            let at = format!("{recording}, {width} columns, {arguments:?}");
            let spark = table(recording, width, arguments);
            let intervals_per_bar = bar_ns(&spark, "SPARK: samples over time, ") / interval_ns;
            if arguments.contains(&"program,spark,id") {
                let header: Vec<&str> = rows(&spark)[0].split_whitespace().collect();
                assert_eq!(header, ["PROGRAM", "SPARK", "ID", "SAMPLES"]);
                continue;
            }
            let (rows, header) = (rows(&spark), rows(&spark)[0]);
            let mut sum_of_rows = BTreeMap::new();
            for row in event["rows"].as_array().unwrap() {
                let sums = sums_per_bar(&row["intervals"], intervals_per_bar);
                let is_it = |line: &&&str| {
                    let mut words = line.split_whitespace();
                    match row["id"].as_u64() {
                        Some(id) => words.next() == Some(&id.to_string()),
                        None => line.trim_start().starts_with(row["name"].as_str().unwrap()),
                    }
                };
                let Some(line) = rows.iter().skip(1).find(is_it) else { continue };
                let may_be_absent = !row["loaded"].is_null() || !row["unloaded"].is_null();
                assert_bars(last_cell(line, header, "SPARK"), &sums, may_be_absent, &format!("{at}: {line}"));
                sums.into_iter().for_each(|(bar, sum)| *sum_of_rows.entry(bar).or_insert(0) += sum);
                compared += 1;
            }
            let totals = sums_per_bar(&event["intervals"], intervals_per_bar);
            let total = spark.lines().find(|line| line.trim_start().starts_with("TOTAL ")).unwrap();
            assert_bars(last_cell(total, header, "SPARK"), &totals, false, &at);
            // Samples that are in the total, but in no row of a single program, are in a row for several programs; the JSON document does not divide
            // them among these programs.
            let mut rest = totals;
            sum_of_rows.iter().for_each(|(bar, sum)| *rest.get_mut(bar).unwrap() -= sum);
            rest.retain(|_, sum| *sum > 0);
            let is_several = |row: &&&str| row.contains(" other program") || row.contains("(counting, ");
            match rows.iter().filter(is_several).collect::<Vec<_>>()[..] {
                [] => assert!(rest.is_empty(), "{at}: {rest:?}"),
                [several] => assert_bars(last_cell(several, header, "SPARK"), &rest, false, &at),
                _ => {}
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

/// Columns added by the user are shown beside the columns that fit, and replace other columns.
#[test]
fn columns_are_added() {
    let narrow = table("linux-7.2/everything", "80", &["--columns", "+samples"]);
    let without = table("linux-7.2/everything", "80", &[]);
    assert!(rows(&narrow)[0].contains("SAMPLES") && rows(&narrow)[0].contains("PROGRAM"), "{narrow}");
    assert!(!rows(&without)[0].contains("SAMPLES") && rows(&narrow).iter().all(|row| row.chars().count() <= 80));
    let added = table("linux-7.2/everything", "80", &["--columns", "+spark"]);
    assert!(rows(&added)[0].contains("%MACHINE") && rows(&added)[0].ends_with("SPARK"), "{added}");
    assert!(rows(&added).iter().all(|row| row.chars().count() <= 80), "{added}");
}

/// Bars fill the width of the screen, and do not exceed it.
#[test]
fn bars_over_time_fit_into_the_screen() {
    for recording in RECORDINGS {
        let document = table(recording, "80", &["--over-time=1ms", "--json"]);
        let event = serde_json::from_str::<Value>(&document).unwrap()["events"][0].take();
        let mut before = u64::MAX;
        for width in [60, 80, 120, 250] {
            let at = format!("{recording}, {width} columns");
            let shown = table(recording, &width.to_string(), &["--over-time=1ms"]);
            let (header, bar_ns) = (rows(&shown)[0], bar_ns(&shown, " · "));
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{at}: {shown}");
            assert!(
                bar_ns < before,
                "{at}: a bar covers {bar_ns} ns, expected less than {before} ns, as on a narrower screen"
            );
            before = bar_ns;
            let sums = sums_per_bar(&event["intervals"], bar_ns / 1_000_000);
            let total = shown.lines().find(|line| line.trim_start().starts_with("TOTAL ")).unwrap();
            assert_bars(last_cell(total, header, "OVER TIME"), &sums, false, &at);
        }
    }
}

/// Legend lines, which begin with the name of a column.
fn explained(table: &str) -> Vec<&str> {
    let legend: Vec<&str> = table.lines().filter(|line| line.starts_with('#')).collect();
    let names = ["%MACHINE", "%BUSY", "%BPF", "SELF%", "HELPER%", "ENTRY%", "TOTAL%", "STATS%"];
    names.into_iter().filter(|name| legend.iter().any(|line| line.contains(&format!(" {name}: ")))).collect()
}

#[test]
fn the_legend_is_of_the_columns_that_are_there() {
    for width in ["80", "120", "200"] {
        let with = table("linux-7.2/ratio", width, &["--legend"]);
        let header: Vec<&str> = rows(&with)[0].split_whitespace().collect();
        let explained = explained(&with);
        assert!(
            !explained.is_empty() && explained.iter().all(|name| header.contains(name)),
            "{explained:?}: {header:?}"
        );
    }
    assert!(explained(&table("linux-7.2/ratio", "200", &[])).is_empty(), "the legend is printed without --legend");
}

#[test]
fn a_terminal_gets_the_legend() {
    let command =
        format!("stty cols 100; NO_COLOR=1 {} report -i {}", env!("CARGO_BIN_EXE_bprec"), path("linux-7.2/ratio"));
    let output = match Command::new("script").args(["-qec", &command, "/dev/null"]).output() {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap().replace('\r', ""),
        _ => {
            println!("SKIP a_terminal_gets_the_legend: script(1) is not installed");
            return;
        }
    };
    assert!(!explained(&output).is_empty(), "{output}");
    assert!(rows(&output).iter().all(|row| row.chars().count() <= 100), "{output}");
}

/// Output on a terminal with a locale; `None` without script(1).
fn on_a_terminal(locale: &str, arguments: &str) -> Option<String> {
    let report = format!("{} report -i {} {arguments}", env!("CARGO_BIN_EXE_bprec"), path("linux-7.2/ratio"));
    let command = format!("stty cols 150; LC_ALL={locale} {report}");
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

/// In ASCII, the bars have the same number and heights: the highest bar of each row, and the empty bars, are at the same positions as in UTF-8.
#[test]
fn a_terminal_without_utf_8_gets_ascii() {
    let [Some(utf_8), Some(ascii)] = ["C.UTF-8", "C"].map(|locale| on_a_terminal(locale, "--over-time")) else {
        println!("SKIP a_terminal_without_utf_8_gets_ascii: script(1) is not installed");
        return;
    };
    assert!(ascii.is_ascii() && utf_8.contains('█'), "{ascii}");
    assert_eq!(ascii.lines().count(), utf_8.lines().count());
    for (ascii, utf_8) in ascii.lines().zip(utf_8.lines()) {
        assert_eq!(ascii.chars().count(), utf_8.chars().count(), "{ascii}\n{utf_8}");
        for (a, u) in ascii.chars().zip(utf_8.chars()) {
            assert_eq!((a == '@', a == ' '), (u == '█', u == ' '), "{ascii}\n{utf_8}");
        }
    }
}
