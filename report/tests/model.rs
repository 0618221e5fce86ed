//! The model and its outputs: the table, JSON and CSV of every committed recording have the same numbers, and JSON conforms to its
//! schema.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use crate::text;
use bprec_report::model::{self, Report};
use bprec_report::{
    AnnotateOptions, By, DiffOptions, Document, Group, Input, Options, Payer, Session, Split, by_prog, diff,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn fixtures() -> Vec<PathBuf> {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut files: Vec<PathBuf> = std::fs::read_dir(recordings)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .flat_map(|place| std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "data"))
        .collect();
    files.sort();
    assert!(files.len() > 10, "{files:?}");
    files
}

/// The count of hidden programs is the number of rows that `--all` adds, the recorder's own program included.
#[test]
fn the_count_of_hidden_programs_is_the_number_of_rows_that_all_adds() {
    let path = fixtures().into_iter().find(|path| path.ends_with("linux-6.18/busy.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let report = by_prog(&input, &Options::default()).unwrap();
    let all = by_prog(&input, &Options { all: true, ..Options::default() }).unwrap();
    assert!(report.programs.iter().any(|program| program.name == "bprec_gauge"));
    assert_eq!(report.events[0].quiet_programs, all.events[0].rows.len() - report.events[0].rows.len());
}

/// Cells of a line of the table, found by the positions of the column names.
fn cells(header: &str, line: &str) -> Vec<(String, String)> {
    let (header, line): (Vec<char>, Vec<char>) = (header.chars().collect(), line.chars().collect());
    let mut names: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < header.len() {
        if header[at] == ' ' {
            at += 1;
            continue;
        }
        let start = at;
        // Two blanks separate columns; one blank can be in a name.
        while at < header.len() && !(header[at] == ' ' && header.get(at + 1).is_none_or(|next| *next == ' ')) {
            at += 1;
        }
        names.push((start, at));
    }
    let is_left = |name: &str| ["PROGRAM", "TYPE", "ATTACHED TO", "OWNER", "NAME", "HOOK"].contains(&name);
    let name = |(start, end): (usize, usize)| header[start..end].iter().collect::<String>();
    let cell = |at: usize| {
        let (from, to) = if is_left(&name(names[at])) {
            // A left-aligned cell extends to the name of the next column.
            (names[at].0, names.get(at + 1).map_or(line.len(), |next| next.0))
        } else {
            let from = match at.checked_sub(1).map(|before| names[before]) {
                Some(before) if is_left(&name(before)) => names[at].0,
                Some(before) => before.1,
                None => 0,
            };
            (from, names[at].1)
        };
        line.get(from.min(line.len())..to.min(line.len())).unwrap_or_default().iter().collect::<String>()
    };
    (0..names.len()).map(|at| (name(names[at]), cell(at).trim().to_owned())).collect()
}

fn csv(text: &str) -> Vec<Vec<String>> {
    let fields = |line: &str| {
        let (mut fields, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => fields.last_mut().unwrap().push(c),
            }
        }
        fields
    };
    text.lines().map(fields).collect()
}

/// Formats a percentage with the rounding of the table.
fn percent(value: &Value) -> String {
    value.as_f64().map_or("n/a".into(), |percent| format!("{percent:.2}"))
}

fn number(value: &Value) -> String {
    value.as_u64().map_or("n/a".into(), |number| number.to_string())
}

/// Compares a row of the table with its JSON; returns the number of cells.
fn compare(at: &str, cells: &[(String, String)], line: &Value, event: &Value) -> usize {
    let is_shared =
        ["samples", "weight"].iter().any(|unit| line["entry_shared"][unit].as_u64().is_some_and(|it| it > 0));
    // The base of shares: the machine, or all samples if its maximum is not known.
    let whole = event["machine"].as_f64().unwrap_or_else(|| event["samples"]["weight"].as_f64().unwrap());
    let is_scaled = event["late_ticks"]["missing"] == "all";
    let part =
        |column: &str| match line[column]["weight"].as_f64().map(|weight| format!("{:.2}", weight * 100.0 / whole)) {
            None => "n/a".to_owned(),
            Some(part) if is_scaled && part != "0.00" => format!("≈{part}"),
            Some(part) => part,
        };
    let entry = part("entry");
    // Only the share of the machine includes cost that samples cannot see.
    let unsampled = line["unsampled"]["machine_percent"].as_f64();
    let machine = match unsampled {
        Some(unsampled) => format!("{:.2}", line["machine_percent"].as_f64().unwrap_or(0.0) + unsampled),
        None => percent(&line["machine_percent"]),
    };
    let is_estimate = unsampled.is_some() || is_scaled;
    let is_marked = is_estimate && !["n/a", "0.00"].contains(&machine.as_str());
    let of_seen = |share: &str| if unsampled.is_some() { "n/a".to_owned() } else { percent(&line[share]) };
    let expected = [
        ("%MACHINE", if is_marked { format!("≈{machine}") } else { machine }),
        ("%BUSY", of_seen("busy_percent")),
        ("%BPF", of_seen("bpf_percent")),
        ("SAMPLES", number(&line["samples"])),
        ("SELF%", part("self")),
        ("HELPER%", part("helper")),
        ("ENTRY%", if is_shared && !entry.starts_with('≈') { format!("≈{entry}") } else { entry }),
        ("TOTAL%", part("inclusive")),
    ];
    let mut compared = 0;
    for (name, expected) in expected {
        if let Some((_, cell)) = cells.iter().find(|(column, _)| column == name)
            && !cell.is_empty()
        {
            assert_eq!(cell.replace(',', ""), expected, "{at} {name}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn table_json_and_csv_say_the_same() {
    let mut compared = 0;
    for path in fixtures() {
        for options in [Options::default(), Options { all: true, ..Options::default() }] {
            let name = path.file_name().unwrap().to_str().unwrap();
            let report: Report = by_prog(&Input::open(&path).unwrap(), &options).unwrap();
            if report.programs.is_empty() {
                continue;
            }
            let table = text(|out| report.write_table(out, usize::MAX).unwrap());
            let json: Value = serde_json::from_str(&text(|out| report.write_json(out).unwrap())).unwrap();
            let csv = csv(&text(|out| report.write_csv(out).unwrap()));
            let column = |name: &str| csv[0].iter().position(|column| column == name).unwrap();
            let mut lines = table.lines();
            for event in json["events"].as_array().unwrap() {
                let header = lines.by_ref().find(|line| line.trim_start().starts_with("ID  PROGRAM")).unwrap();
                let of_event = csv.iter().filter(|line| line[column("event")] == event["name"].as_str().unwrap());
                let mut programs = of_event.clone().filter(|line| line[column("kind")] == "program");
                for row in event["rows"].as_array().unwrap() {
                    let program = &json["programs"][row["program"].as_u64().unwrap() as usize];
                    let line = lines.next().unwrap();
                    let cells = cells(header, line);
                    let cell =
                        |name: &str| cells.iter().find(|(column, _)| column == name).map(|(_, cell)| cell.as_str());
                    let at = format!("{name} {}: {line}", row["name"]);
                    compared += compare(&at, &cells, row, event);
                    assert_eq!(cell("ID").unwrap(), number(&row["id"]), "{at}");
                    let csv = programs.next().unwrap();
                    let plain = |name: &str| csv[column(name)].as_str();
                    let same = |name: &str, value: &Value| {
                        let value = match value {
                            Value::Null => String::new(),
                            Value::String(text) => text.clone(),
                            value => value.to_string(),
                        };
                        // The parser of serde_json may be off by the last bit.
                        let near = match (plain(name).parse::<f64>(), value.parse::<f64>()) {
                            (Ok(ours), Ok(theirs)) => (ours - theirs).abs() <= 1e-12 * theirs.abs(),
                            _ => false,
                        };
                        assert!(plain(name) == value || near, "{at} {name}: {} {value}", plain(name));
                    };
                    same("id", &row["id"]);
                    same("load_time_ns", &program["load_time_ns"]);
                    for (name, member) in [("samples", "samples"), ("weight", "weight")] {
                        same(name, &row[member]);
                    }
                    for share in ["machine_percent", "busy_percent", "bpf_percent", "samples_percent"] {
                        same(share, &row[share]);
                    }
                    for part in ["self", "helper", "entry", "inclusive"] {
                        same(&format!("{part}_samples"), &row[part]["samples"]);
                        same(&format!("{part}_weight"), &row[part]["weight"]);
                    }
                    same("runs", &program["runs"]["count"]);
                    same("misses", &program["runs"]["misses"]);
                    if json["counting"].is_null()
                        && let Some(runs) = cell("RUNS")
                    {
                        assert_eq!(runs.replace(',', ""), number(&program["runs"]["count"]), "{at}");
                        compared += 1;
                    }
                }
                assert!(programs.next().is_none());
                let total = lines.by_ref().find(|line| line.trim_start().starts_with("TOTAL")).unwrap();
                compared += compare(&format!("{name}: {total}"), &cells(header, total), &event["total"], event);
                let total = of_event.clone().find(|line| line[column("kind")] == "total").unwrap();
                assert_eq!(total[column("weight")], event["total"]["weight"].to_string());
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn shares_are_of_what_they_say() {
    for path in fixtures() {
        let report = by_prog(&Input::open(&path).unwrap(), &Options::default()).unwrap();
        for event in &report.events {
            let (weight, total) = (event.samples.weight, &event.total);
            let share = (weight > 0).then(|| total.count.weight as f64 * 100.0 / weight as f64);
            assert_eq!(total.shares.samples, share);
            for row in &event.rows {
                assert!(row.line.is_some() || row.blind.is_some(), "{}: {}", path.display(), row.name);
            }
        }
    }
}

/// Name of a program's group, from the program's JSON: the distinct names, or the text that stands for an absent name.
fn group_of(program: &Value, by: Group) -> String {
    let named = |value: &Value| value.as_str().map(str::to_owned);
    let many = |names: Vec<String>, none: &str| match names.into_iter().collect::<BTreeSet<_>>() {
        names if names.is_empty() => none.to_owned(),
        names => names.into_iter().collect::<Vec<_>>().join(", "),
    };
    match by {
        Group::Name => match program["name"].as_str().unwrap() {
            "" => named(&program["tag"]).map_or("[no name]".into(), |tag| format!("[{tag}]")),
            name => name.to_owned(),
        },
        Group::Type => named(&program["type"]).unwrap_or("(unknown)".into()),
        Group::Owner if program["name"].as_str().unwrap().starts_with("bprec_") => "(bprec)".to_owned(),
        Group::Owner => {
            let owners = program["owners"].as_array().unwrap();
            let none = if program["captured"] == true { "(no process)" } else { "(unknown)" };
            many(owners.iter().map(|owner| named(&owner["comm"]).unwrap()).collect(), none)
        }
        Group::Hook => {
            many(program["attached"].as_array().unwrap().iter().filter_map(named).collect(), "(not attached)")
        }
    }
}

/// Compares names of groups. Other tools do not record the owners of programs, so their owners are unknown, not absent.
fn is_group(name: &str, expected: &str, is_ours: bool) -> bool {
    name == expected || !is_ours && name == "(unknown)" && ["(no process)", "(not attached)"].contains(&expected)
}

/// Groups of programs have the sums of the rows of those programs, and everything adds up to the total.
#[test]
fn groups_are_sums_of_their_programs() {
    let mut compared = 0;
    for path in fixtures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let input = Input::open(&path).unwrap();
        let all = by_prog(&input, &Options { all: true, ..Options::default() }).unwrap();
        let all: Value = serde_json::from_str(&text(|out| all.write_json(out).unwrap())).unwrap();
        for (by, by_name) in Group::NAMES {
            let options = Options { by: Some((*by).into()), all: true, ..Options::default() };
            let report = by_prog(&input, &options).unwrap();
            if report.programs.is_empty() {
                continue;
            }
            let json: Value = serde_json::from_str(&text(|out| report.write_json(out).unwrap())).unwrap();
            let csv = csv(&text(|out| report.write_csv(out).unwrap()));
            let column = |name: &str| csv[0].iter().position(|column| column == name).unwrap();
            let is_ours = json["recording"]["target"].is_string();
            let table = text(|out| report.write_table(out, usize::MAX).unwrap());
            let mut lines = table.lines();
            for (event, rows) in json["events"].as_array().unwrap().iter().zip(all["events"].as_array().unwrap()) {
                assert_eq!(event["rows"].as_array().unwrap().len(), 0);
                assert_eq!(event["total"], rows["total"]);
                let header = lines.by_ref().find(|line| line.trim_start().starts_with("PROGRAMS  ")).unwrap();
                let rows = rows["rows"].as_array().unwrap();
                let mut of_event = csv
                    .iter()
                    .filter(|line| line[column("event")] == event["name"].as_str().unwrap())
                    .filter(|line| line[column("kind")] == "group");
                let mut programs = 0;
                let mut weight = ["entry_unattributed", "interpreted", "others", "counting_programs"]
                    .map(|line| event[line]["weight"].as_u64().unwrap_or(0))
                    .iter()
                    .sum::<u64>();
                for group in event["groups"].as_array().unwrap() {
                    let line = lines.next().unwrap();
                    let at = format!("{name} --by {by_name}: {line}");
                    let members: Vec<&Value> = rows
                        .iter()
                        .filter(|row| {
                            let program = &all["programs"][row["program"].as_u64().unwrap() as usize];
                            is_group(group["name"].as_str().unwrap(), &group_of(program, *by), is_ours)
                        })
                        .collect();
                    let positions: BTreeSet<u64> = members.iter().map(|row| row["program"].as_u64().unwrap()).collect();
                    let listed = group["programs"].as_array().unwrap();
                    assert_eq!(positions, listed.iter().map(|at| at.as_u64().unwrap()).collect(), "{at}");
                    programs += listed.len();
                    let sum =
                        |of: &dyn Fn(&Value) -> Option<u64>| members.iter().filter_map(|row| of(row)).sum::<u64>();
                    if !group["samples"].is_null() {
                        for member in ["samples", "weight"] {
                            assert_eq!(group[member], sum(&|row| row[member].as_u64()), "{at}");
                            for column in ["self", "helper", "entry"] {
                                let own = |row: &Value| row[column][member].as_u64();
                                assert_eq!(own(group).unwrap_or(0), sum(&own), "{at} {column}");
                            }
                            let inclusive = |row: &Value| row["inclusive"][member].as_u64();
                            let largest = members.iter().filter_map(|row| inclusive(row)).max().unwrap_or(0);
                            let ours = inclusive(group).unwrap_or(0);
                            assert!((largest..=sum(&inclusive)).contains(&ours), "{at}");
                        }
                        weight += group["weight"].as_u64().unwrap();
                    }
                    let runs = |row: &Value| &all["programs"][row["program"].as_u64().unwrap() as usize]["runs"];
                    let known = members.iter().filter(|row| !runs(row).is_null()).count();
                    assert_eq!(group["programs_with_runs"], known, "{at}");
                    assert_eq!(group["runs"].is_null(), known == 0, "{at}");
                    let cells = cells(header, line);
                    let cell =
                        |name: &str| cells.iter().find(|(column, _)| column == name).map(|(_, cell)| cell.as_str());
                    compared += compare(&at, &cells, group, event);
                    assert_eq!(cell("PROGRAMS").unwrap(), listed.len().to_string(), "{at}");
                    let csv = of_event.next().unwrap();
                    assert_eq!(csv[column("name")], group["name"].as_str().unwrap(), "{at}");
                    assert_eq!(csv[column("programs")], listed.len().to_string(), "{at}");
                    let plain = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
                    for member in ["samples", "weight"] {
                        assert_eq!(csv[column(member)], plain(&group[member]), "{at}");
                    }
                    for (in_csv, member) in [("runs", "count"), ("run_time_ns", "time_ns"), ("misses", "misses")] {
                        assert_eq!(csv[column(in_csv)], plain(&group["runs"][member]), "{at} {in_csv}");
                        if known > 0 && !group["runs"][member].is_null() {
                            assert_eq!(group["runs"][member], sum(&|row| runs(row)[member].as_u64()), "{at} {member}");
                        }
                    }
                    if let Some(runs) = cell("RUNS") {
                        let bare = runs.replace([',', '≥', '≈'], "");
                        let bare = bare.split('±').next().unwrap();
                        assert_eq!(bare, number(&group["runs"]["count"]), "{at}");
                        assert_eq!(runs.starts_with('≥'), known > 0 && known < listed.len(), "{at}");
                        compared += 1;
                    }
                }
                assert!(of_event.next().is_none());
                assert_eq!(programs, rows.len(), "{name}");
                assert_eq!(event["total"]["weight"], weight, "{name} --by {by_name}");
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// A schema as JSON.
fn schema_of<T: schemars::JsonSchema>() -> Value {
    serde_json::to_value(model::schema_of::<T>()).unwrap()
}

/// Every document conforms to the schema of its model.
#[test]
fn json_is_what_its_schema_says() {
    let schema = schema_of::<Report>();
    let annotation_schema = schema_of::<model::Annotation>();
    let lines_schema = schema_of::<model::LinesReport>();
    let bill_schema = schema_of::<model::Bill>();
    let without_schema = schema_of::<model::Without>();
    for path in fixtures() {
        let at = path.display().to_string();
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        for by in [None, Some(By::Split(Split::Func)), Some(By::Group(Group::Owner))] {
            let report = session.by_prog(&Options { by, ..Options::default() }).unwrap();
            validate(&schema, &schema, &serde_json::to_value(&report).unwrap(), &at);
        }
        let query = Options { programs: vec!["*".parse().unwrap()], limit: Some(3), ..Options::default() };
        let annotation = session.annotate(&AnnotateOptions { query, ..AnnotateOptions::default() }).unwrap();
        validate(&annotation_schema, &annotation_schema, &serde_json::to_value(&annotation).unwrap(), &at);
        let lines = session.lines(&Options::default()).unwrap();
        validate(&lines_schema, &lines_schema, &serde_json::to_value(&lines).unwrap(), &at);
        let bill = session.bill(&Options::default(), None).unwrap();
        validate(&bill_schema, &bill_schema, &serde_json::to_value(&bill).unwrap(), &at);
        let keys = [Payer::Comm, Payer::Pid, Payer::Cgroup, Payer::Container, Payer::Cpu];
        // A recording without programs has none that could be removed.
        if let Ok(without) = session.without(&Options::default(), &["*".to_owned()], &keys, None) {
            validate(&without_schema, &without_schema, &serde_json::to_value(&without).unwrap(), &at);
        }
    }
}

/// Comparisons of each recording with the next one conform to their schema.
#[test]
fn comparisons_are_what_their_schema_says() {
    let schema = schema_of::<model::Diff>();
    let inputs: Vec<Input> = fixtures().iter().map(|path| Input::open(path).unwrap()).collect();
    let conditions = vec!["prog:* time/run +5%".parse().unwrap(), "type:* cycles/run > 1k".parse().unwrap()];
    let options = DiffOptions { conditions, ..DiffOptions::default() };
    for pair in inputs.windows(2) {
        let compared = diff(&pair[..1], &pair[1..], &options).unwrap();
        let document = serde_json::to_value(&compared).unwrap();
        validate(&schema, &schema, &document, &pair[0].path().display().to_string());
        // The table fits and has a line for each program; CSV has a line for each number, and JSON the same numbers.
        for width in [80, 120, 200] {
            let table = text(|out| compared.write_table(out, width).unwrap());
            let long: Vec<&str> = table.lines().filter(|line| line.chars().count() > width).collect();
            assert!(long.iter().all(|line| line.starts_with('#')), "{width}: {long:#?}");
            for program in &compared.programs {
                let name: String = program.label().chars().take(8).collect();
                assert!(table.lines().any(|line| line.starts_with(&name)), "{name}: {table}");
            }
        }
        let csv = text(|out| compared.write_csv(out).unwrap());
        let numbers: usize = compared.programs.iter().map(|program| program.metrics.len()).sum();
        let lines = 1 + numbers + compared.total.len() + compared.gate.len();
        assert_eq!(csv.lines().count(), lines);
    }
}

/// Validates a document by the parts of JSON Schema that our schemas use.
fn validate(root: &Value, schema: &Value, value: &Value, at: &str) {
    if let Err(why) = check(root, schema, value) {
        panic!("{at}: {why}");
    }
}

fn check(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Value::Object(members) = schema else { return Ok(()) };
    for (keyword, of) in members {
        match keyword.as_str() {
            "$ref" => {
                let target = root.pointer(of.as_str().unwrap().trim_start_matches('#')).unwrap();
                check(root, target, value)?;
            }
            "type" => {
                let is = |name: &str| match name {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    other => panic!("type {other}"),
                };
                let fits = match of {
                    Value::String(name) => is(name),
                    Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
                    other => panic!("type {other}"),
                };
                if !fits {
                    return Err(format!("{value} is no {of}"));
                }
            }
            "properties" => {
                for (name, schema) in of.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        check(root, schema, value).map_err(|why| format!("{name}: {why}"))?;
                    }
                }
            }
            "required" if value.is_object() => {
                for name in of.as_array().unwrap() {
                    if value.get(name.as_str().unwrap()).is_none() {
                        return Err(format!("{name} is not in {value}"));
                    }
                }
            }
            "items" => {
                for (at, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, of, value).map_err(|why| format!("[{at}] {why}"))?;
                }
            }
            "anyOf" | "oneOf" => {
                let tries: Vec<_> = of.as_array().unwrap().iter().map(|of| check(root, of, value)).collect();
                if tries.iter().all(Result::is_err) {
                    return Err(format!("{value} is none of these: {tries:?}"));
                }
            }
            "allOf" => of.as_array().unwrap().iter().try_for_each(|of| check(root, of, value))?,
            "enum" if !of.as_array().unwrap().contains(value) => return Err(format!("{value} is none of {of}")),
            "const" if of != value => return Err(format!("{value} is not {of}")),
            "minimum" if value.is_number() && value.as_f64() < of.as_f64() => {
                return Err(format!("{value} is below {of}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// In a recording with exact counts, cycles per run by samples equal the counted cycles within the margin of chance. Samples also
/// see the cost of counting; `gross` includes a part of that cost.
#[test]
fn what_samples_say_of_a_run_is_what_was_counted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-6.12-arm64/exact.data");
    let report: Report = by_prog(&Input::open(&path).unwrap(), &Options::default()).unwrap();
    let json: Value = serde_json::from_str(&text(|out| report.write_json(out).unwrap())).unwrap();
    let mut compared = 0;
    for row in json["events"][0]["rows"].as_array().unwrap() {
        let exact = &json["programs"][row["program"].as_u64().unwrap() as usize]["exact"];
        let counted =
            exact["events"].as_array().and_then(|events| events.iter().find(|event| event["name"] == "cycles"));
        let sampled = &row["sampled_per_run"];
        let (Some(counted), false) = (counted, sampled.is_null()) else { continue };
        let number = |value: &Value| value.as_f64().unwrap();
        // Four standard deviations: among many programs, one can differ by two.
        let allowed = number(&sampled["margin"]) / 1.96 * 4.0;
        let off = number(&sampled["value"]) - number(&counted["per_run"]["gross"]);
        assert!(off.abs() < allowed, "{}: {sampled} sampled, {counted} counted", row["name"]);
        compared += 1;
    }
    assert!(compared >= 6, "{compared} programs");
}
