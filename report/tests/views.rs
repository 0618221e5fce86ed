//! Counters and maps: the table, JSON and CSV of every committed recording have the same numbers. Cost of programs: Markdown, the page and the
//! screen have each cell of the table; `model.rs` compares the table with JSON and CSV.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "support/page.rs"]
mod page;
mod support;

use bprec_report::{
    Document, ExportFormat, Input, MapsForm, MapsOptions, Options, Report, Session, TimeRange, by_prog, counters, maps,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use support::fixtures;

/// Cells of a line of a table. Two or more blanks separate cells.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Fields of a CSV line by column; the fields must not contain commas.
fn by_column<'l>(header: &[&'l str], line: &'l str) -> BTreeMap<&'l str, &'l str> {
    let fields: Vec<&str> = line.split(',').collect();
    assert_eq!(fields.len(), header.len(), "{line}");
    header.iter().copied().zip(fields).collect()
}

/// Asserts that CSV has the value of a member of JSON. Numbers are compared as numbers, because they can be written in several ways.
#[track_caller]
fn assert_same(field: &str, member: &Value) {
    match member {
        Value::Null => assert_eq!(field, ""),
        Value::Number(number) => {
            let (ours, theirs) = (field.parse::<f64>().unwrap(), number.as_f64().unwrap());
            assert!((ours - theirs).abs() <= 1e-12 * theirs.abs(), "{field} {theirs}");
        }
        Value::Bool(value) => assert_eq!(field, value.to_string()),
        other => assert_eq!(field, other.as_str().unwrap()),
    }
}

fn number(cell: &str) -> Option<u64> {
    cell.replace(',', "").parse().ok()
}

#[test]
fn counters_are_the_same_in_table_json_and_csv() {
    let (mut compared, mut events_compared) = (0, 0);
    for path in fixtures() {
        let at = path.display();
        let report = counters(&Input::open(&path).unwrap(), &Options::default()).unwrap();
        let (mut table, mut json, mut csv) = (Vec::new(), Vec::new(), Vec::new());
        report.write_table(&mut table, usize::MAX).unwrap();
        report.write_json(&mut json).unwrap();
        report.write_csv(&mut csv).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let (table, csv) = (String::from_utf8(table).unwrap(), String::from_utf8(csv).unwrap());
        let rows = ["intervals", "totals"].map(|kind| json[kind].as_array().unwrap().clone()).concat();
        let mut csv = csv.lines();
        let header: Vec<&str> = csv.next().unwrap().split(',').collect();
        let mut table = table.lines().filter(|line| !line.starts_with('#') && !line.starts_with("--"));
        let columns = cells(table.next().unwrap_or_default());
        let shown = |row: &&Value| row["source"] != "shared";
        for row in &rows {
            let line = by_column(&header, csv.next().unwrap());
            for member in ["source", "kind", "id", "load_time_ns", "function", "name", "from_ns", "to_ns"] {
                assert_same(line[member], &row[member]);
            }
            let counts = &row["counts"];
            if !shown(&row) || !counts.is_object() {
                continue;
            }
            for member in ["runs", "misses", "nesting_overflow", "discarded", "measured_ns", "cpu_percent", "ipc"] {
                assert_same(line[member], &counts[member]);
                compared += 1;
            }
            assert_same(line["measured_runs"], &counts["measured"]);
            assert_same(line["ns_per_run"], &counts["ns_per_run"]["value"]);
            assert_same(line["ns_per_run_error"], &counts["ns_per_run"]["error"]);
            for (percentile, name) in counts["percentiles"].as_array().unwrap().iter().zip(["p50", "p99", "p999"]) {
                for edge in ["from_ns", "to_ns"] {
                    assert_same(line[format!("{name}_{edge}").as_str()], &percentile[edge]);
                }
            }
            let names = json["exact"]["events"].as_array().map_or(&[][..], Vec::as_slice);
            for (event, reading) in names.iter().zip(counts["readings"].as_array().unwrap()) {
                let event = event["name"].as_str().unwrap();
                assert_same(line[event], &reading["value"]);
                assert_same(line[format!("{event}_enabled_ns").as_str()], &reading["enabled_ns"]);
                events_compared += 1;
            }
        }
        assert_eq!(csv.next(), None, "{at}");
        for row in rows.iter().filter(shown) {
            let line = table.next().unwrap();
            let cells: BTreeMap<&str, &str> = columns.iter().copied().zip(cells(line)).collect();
            assert_eq!(number(cells["ID"]), row["id"].as_u64(), "{at}: {line}");
            assert_eq!(cells["SOURCE"], row["source"], "{at}: {line}");
            let counts = &row["counts"];
            if counts.is_object() {
                assert_eq!(number(cells["RUNS"]), counts["runs"].as_u64(), "{at}: {line}");
                assert_eq!(number(cells["MISSES"]), counts["misses"].as_u64(), "{at}: {line}");
                let percent = counts["cpu_percent"].as_f64().map_or("n/a".into(), |percent| format!("{percent:.3}"));
                assert_eq!(cells["%ONE-CPU"], percent, "{at}: {line}");
                compared += 3;
            }
        }
    }
    assert!(compared > 500 && events_compared > 0, "{compared} {events_compared}");
}

#[test]
fn maps_are_the_same_in_each_form() {
    let (mut compared, mut entries_compared) = (0, 0);
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let write = |form| {
            let mut out = Vec::new();
            maps(&input, &MapsOptions { form, ..MapsOptions::default() }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let [text, json, csv, markdown] = MapsForm::ALL.map(write);
        let json: Value = serde_json::from_str(&json).unwrap();
        let text = format!("\n{text}");
        let mut blocks = text.split("\nMAP ").skip(1);
        let mut lines_of_csv = csv.lines().skip(1);
        let rows = markdown.lines().skip_while(|line| !line.starts_with("| ---:")).skip(1);
        let mut rows = rows.take_while(|line| line.starts_with('|'));
        for map in json["maps"].as_array().unwrap() {
            let block = blocks.next().unwrap();
            let at = format!("{}: {block}", path.display());
            let mut lines = block.lines();
            let name = map["name"].as_str().unwrap_or_default();
            assert_eq!(lines.next().unwrap().trim_end(), format!("{} {name}", map["id"]).trim_end(), "{at}");
            let facts = lines.next().unwrap().trim();
            if map["type"].is_null() {
                assert_eq!(facts, "the recording has only the map's id");
            } else {
                let plain = facts.replace(',', "");
                let memory = map["memory_bytes"].as_u64().map_or("n/a".into(), |bytes| bytes.to_string());
                let mut expected = format!(
                    "{} key {} bytes value {} bytes at most {} entries memory {memory} bytes",
                    map["type"].as_str().unwrap(),
                    map["key_bytes"],
                    map["value_bytes"],
                    map["max_entries"],
                );
                let flags: Vec<&str> = map["flags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                if !flags.is_empty() {
                    expected += &format!(" flags {}", flags.join(" "));
                }
                if map["frozen"] == true {
                    expected += " frozen";
                }
                assert_eq!(plain, expected, "{at}");
            }
            let users: Vec<String> = map["programs"].as_array().unwrap().iter().map(user).collect();
            if users.is_empty() {
                assert!(block.contains("used by no program"), "{at}");
            } else {
                assert!(block.contains(&format!("  used by {}\n", users.join(", "))), "{at}");
            }
            let field = |value: &Value| value.as_u64().map_or(String::new(), |number| number.to_string());
            let users = if users.len() > 1 { format!("\"{}\"", users.join(", ")) } else { users.join(", ") };
            let flags = map["flags"].as_array().unwrap().iter().filter_map(Value::as_str);
            let flags: Vec<&str> = flags.chain((map["frozen"] == true).then_some("frozen")).collect();
            let entries = map["contents"]["list"].as_array().map_or(String::new(), |list| list.len().to_string());
            let facts = ["key_bytes", "value_bytes", "max_entries", "memory_bytes"].map(|name| field(&map[name]));
            let map_type = map["type"].as_str().unwrap_or_default();
            let expected = [map["id"].to_string(), name.to_owned(), map_type.to_owned()].into_iter().chain(facts);
            let expected: Vec<String> = expected.chain([flags.join(" "), entries, users]).collect();
            assert_eq!(lines_of_csv.next().unwrap(), expected.join(","), "{at}");
            assert!(rows.next().unwrap().starts_with(&format!("| {} |", map["id"])), "{at}");
            if let Some(contents) = map["contents"].as_object() {
                let shown = block.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     ")).count();
                assert_eq!(shown, contents["list"].as_array().unwrap().len(), "{at}");
                entries_compared += shown;
            }
            compared += 1;
        }
        assert_eq!((blocks.next(), lines_of_csv.next(), rows.next()), (None, None, None));
    }
    assert!(compared > 100, "{compared} maps, {entries_compared} entries");
}

fn user(program: &Value) -> String {
    format!("{} {}", program["id"], program["name"].as_str().unwrap())
}

fn printed(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// Markdown tables: cells by line, without the lines that define the alignment of columns.
fn markdown_tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = vec![Vec::new()];
    for line in text.lines() {
        match line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) {
            Some(line) if line.chars().all(|c| "-:| ".contains(c)) => {}
            Some(line) => {
                let cells = line.split(" | ").map(|cell| cell.replace('\\', "").trim().to_owned());
                tables.last_mut().unwrap().push(cells.collect());
            }
            None => tables.push(Vec::new()),
        }
    }
    tables.retain(|table| !table.is_empty());
    tables
}

/// Words of a line. Empty cells leave no words.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn markdown_page_and_screen_have_each_cell_of_the_table() {
    let (mut compared, mut first) = (0, 0);
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let options = Options { all: true, ..Options::default() };
        let report = by_prog(&input, &options).unwrap();
        let shown = 0..report.events.len();
        if report.programs.is_empty() || shown.is_empty() {
            continue;
        }
        let name = path.display();
        let text = printed(|out| report.write_table(out, usize::MAX).unwrap());
        let markdown = markdown_tables(&printed(|out| report.write_markdown(out, false).unwrap()));
        let is_first = |line: &[String]| line[..2] == ["ID", "PROGRAM"] && !line.contains(&"EXACT RUNS".to_owned());
        let of_events: Vec<_> = markdown.iter().filter(|table| is_first(&table[0])).collect();
        assert_eq!(of_events.len(), shown.len(), "{name}");
        let mut lines =
            text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("---") && !line.is_empty());
        for table in &markdown {
            for cells in table {
                assert_eq!(words(lines.next().unwrap()), words(&cells.join(" ")), "{name}");
                compared += cells.len();
            }
        }
        assert_eq!(lines.next(), None, "{name}");
        for (event, table) in shown.zip(&of_events) {
            let listing = report.listing(event, usize::MAX);
            let rows = listing.rows.iter().map(|row| &row.text);
            let lines = [&listing.header].into_iter().chain(rows).chain(&listing.totals);
            let lines: Vec<Vec<String>> = lines.map(|line| words(line)).collect();
            let expected: Vec<Vec<String>> = table.iter().map(|cells| words(&cells.join(" "))).collect();
            assert_eq!(lines, expected, "{name}");
        }
        let page = printed(|out| {
            Session::open(&input).unwrap().export(&options, ExportFormat::Html, out).unwrap();
        });
        let data: Value = serde_json::from_slice(&page::data(page.as_bytes())).unwrap();
        let texts = |cells: &Value| -> Vec<String> {
            cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap().trim().to_owned()).collect()
        };
        first += first_screens_agree(&Session::open(&input).unwrap(), &report, &data["first"], &options);
        let table = &data["table"];
        let head = table["columns"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
        let rows = [&table["rows"], &table["totals"]].into_iter().flat_map(|rows| rows.as_array().unwrap());
        let of_page: Vec<Vec<String>> = [head.collect()].into_iter().chain(rows.map(texts)).collect();
        assert!(of_events.iter().any(|table| **table == of_page), "{name}: {of_page:?}");
    }
    assert!(compared > 1000 && first > 50, "{compared} {first}");
}

/// Compares the first screen of a terminal with the report and with the first screen of the page; returns the number of compared rows.
fn first_screens_agree(session: &Session<'_>, report: &Report, page: &Value, options: &Options) -> usize {
    let (of_screen, overviews) = session.overviews(options).unwrap();
    assert_eq!((&of_screen.programs, overviews.len()), (&report.programs, report.events.len()));
    let mut compared = 0;
    for (at, (event, overview)) in report.events.iter().zip(&overviews).enumerate() {
        assert_eq!(of_screen.events[at], *event);
        let screen = of_screen.first_screen(at, overview);
        let total = event.total.shares.machine.or(event.total.shares.samples).unwrap_or(0.0);
        let sum: f64 = overview.programs.iter().filter_map(|slice| slice.slice.percent).sum();
        assert!((sum - total).abs() < 1e-6, "{sum} {total}");
        for row in screen.programs.iter().filter(|row| row.program.is_some()) {
            let of_report = event.rows.iter().find(|it| Some(it.program) == row.program).unwrap();
            let line = of_report.line.as_ref();
            let sampled = line.map_or(0.0, |line| line.shares.machine.or(line.shares.samples).unwrap_or(0.0));
            let unsampled = of_report.unsampled.and_then(|it| it.machine_percent).unwrap_or(0.0);
            let text = row.text.trim_start_matches('≈');
            assert_eq!(text, format!("{:.2}", sampled + unsampled), "{row:?}");
            assert_ne!(text, "0.00");
            assert!(row.columns.iter().sum::<f64>() <= row.percent + 1e-6, "{row:?}");
            assert!(row.payers.iter().map(|payer| payer.percent).sum::<f64>() <= row.percent + 1e-6, "{row:?}");
            assert!(row.parts.iter().all(|part| part.percent <= 100.0 + 1e-6), "{row:?}");
            compared += 1;
        }
        // The page shows the first event that has samples.
        if page["percent"] == screen.percent.as_str() {
            for row in page["programs"].as_array().unwrap() {
                let same = screen.programs.iter().find(|it| row["name"] == it.name.as_str());
                assert!(
                    same.is_none_or(|it| it.program.is_none() || row["percent"].as_f64() <= Some(it.percent + 1e-9))
                );
            }
        }
    }
    compared
}

/// A part of the time has the same share of BPF in the page, where it is selected in the picture, and in the report with `--time`. Ticks are
/// missing in all of the recording's time; most parts have too few samples in programs to show this by themselves.
#[test]
fn a_part_of_the_time_has_one_share_if_ticks_are_missing() {
    let input = fixtures().into_iter().find(|path| path.ends_with("linux-7.2/ratio.data")).unwrap();
    let input = Input::open(&input).unwrap();
    let session = Session::open(&input).unwrap();
    let page = printed(|out| {
        session.export(&Options::default(), ExportFormat::Html, out).unwrap();
    });
    let data: Value = serde_json::from_slice(&page::data(page.as_bytes())).unwrap();
    let first = &data["first"];
    let interval_ns = (first["interval_s"].as_f64().unwrap() * 1e9).round() as u64;
    let intervals = (first["elapsed_s"].as_f64().unwrap() * 1e9) as u64 / interval_ns;
    let sum = |costs: &Value, from: u64, to: u64| -> f64 {
        let costs = costs.as_array().unwrap().iter();
        costs.filter(|it| (from..to).contains(&it[0].as_u64().unwrap())).map(|it| it[1].as_f64().unwrap()).sum()
    };
    let mut few = 0;
    for part in 0..8 {
        let (from, to) = (part * intervals / 8, (part + 1) * intervals / 8);
        let costs: f64 = first["flows"].as_array().unwrap().iter().map(|flow| sum(&flow[3], from, to)).sum();
        let of_page = costs * 100.0 / sum(&first["samples"], from, to);
        let time = TimeRange::Plain(Some(from * interval_ns), Some(to * interval_ns - 1));
        let report = by_prog(&input, &Options { time, ..Options::default() }).unwrap();
        let event = &report.events[0];
        let of_report = event.total.shares.machine.unwrap();
        assert!((of_page - of_report).abs() < 0.05, "{from}..{to}: {of_page} in the page, {of_report} in the report");
        // Here, the samples stand for all of the time: the share of the machine is the share of the samples.
        let (bpf, all) = (event.total.count.weight as f64, event.samples.weight as f64);
        assert!((of_report - bpf * 100.0 / all).abs() < 1e-9, "{from}..{to}: {of_report}");
        few += u32::from(event.total.count.samples < 30);
    }
    assert!(few > 0);
}

/// The page of a part of the time shows that part from its start: each sample of the part is in an interval, and the costs of all programs over time
/// add up to the cost of BPF.
#[test]
fn a_page_of_a_part_of_the_time_begins_with_that_part() {
    let input = fixtures().into_iter().find(|path| path.ends_with("linux-6.18/busy.data")).unwrap();
    let input = Input::open(&input).unwrap();
    for time in ["0%-50%", "50%-100%", "20%-40%,60%-80%"] {
        let options = Options { time: time.parse().unwrap(), ..Options::default() };
        let page = printed(|out| {
            Session::open(&input).unwrap().export(&options, ExportFormat::Html, out).unwrap();
        });
        let data: Value = serde_json::from_slice(&page::data(page.as_bytes())).unwrap();
        let (first, times) = (&data["first"], &data["times"]);
        let [elapsed_s, interval_s] = ["elapsed_s", "interval_s"].map(|name| first[name].as_f64().unwrap());
        let (mut sum, mut cost) = (0.0, 0.0);
        for program in first["programs"].as_array().unwrap() {
            cost += program["percent"].as_f64().unwrap();
            for interval in program["intervals"].as_array().unwrap() {
                let at = interval[0].as_f64().unwrap();
                assert!(at * interval_s < elapsed_s, "{time}: {program}");
                sum += interval[1].as_f64().unwrap() * interval_s.min(elapsed_s - at * interval_s) / elapsed_s;
            }
        }
        assert!(cost > 1.0 && (sum - cost).abs() < 0.01 * cost, "{time}: {sum} of {cost} %");
        let samples: u64 = times["samples"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).sum();
        let last = times["intervals"].as_u64().unwrap() - 1;
        let positions = times["at"].as_array().unwrap().iter().scan(0, |before, at| {
            *before += at.as_u64().unwrap();
            Some(*before % (last + 1))
        });
        let distinct: BTreeSet<u64> = positions.collect();
        assert!(samples > 100 && distinct.len() as u64 > last / 2, "{time}: {samples} in {distinct:?}");
    }
}
