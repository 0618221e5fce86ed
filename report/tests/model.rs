//! The model, and what is printed of it: the table, JSON and CSV of every committed recording say the same, and JSON is what its schema
//! says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use bprec_report::model::{self, Report};
use bprec_report::{Input, Options, by_prog};
use serde_json::Value;
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

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// Cells of a line of the table, by where the names of the columns end or begin.
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
        // Two blanks part columns, one is in a name.
        while at < header.len() && !(header[at] == ' ' && header.get(at + 1).is_none_or(|next| *next == ' ')) {
            at += 1;
        }
        names.push((start, at));
    }
    let is_left = |name: &str| ["PROGRAM", "TYPE", "ATTACHED TO", "OWNER"].contains(&name);
    let name = |(start, end): (usize, usize)| header[start..end].iter().collect::<String>();
    let cell = |at: usize| {
        let (from, to) = if is_left(&name(names[at])) {
            // Up to where the cell of the next column begins: that ends where its name ends.
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

/// A share as the table rounds it.
fn percent(value: &Value) -> String {
    value.as_f64().map_or("n/a".into(), |percent| format!("{percent:.2}"))
}

fn number(value: &Value) -> String {
    value.as_u64().map_or("n/a".into(), |number| number.to_string())
}

/// Compares a row of the table with its JSON; how many cells there were.
fn compare(at: &str, cells: &[(String, String)], line: &Value) -> usize {
    let expected = [
        ("%MACHINE", percent(&line["machine_percent"])),
        ("%BUSY", percent(&line["busy_percent"])),
        ("%BPF", percent(&line["bpf_percent"])),
        ("SAMPLES", number(&line["samples"])),
        ("SELF%", percent(&line["self"]["percent"])),
        ("HELPER%", percent(&line["helper"]["percent"])),
        ("ENTRY%", percent(&line["entry"]["percent"])),
        ("TOTAL%", percent(&line["inclusive"]["percent"])),
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
                    compared += compare(&at, &cells, row);
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
                compared += compare(&format!("{name}: {total}"), &cells(header, total), &event["total"]);
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

/// The schema that is committed is that of the model, and every document is what it says.
#[test]
fn json_is_what_its_schema_says() {
    let schema = serde_json::to_value(model::schema()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.schema.json");
    if std::env::var_os("BPREC_UPDATE").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
    }
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(committed, schema, "docs/json.schema.json: BPREC_UPDATE=1 takes it over");
    for path in fixtures() {
        for by in [None, Some("func".parse().unwrap())] {
            let report = by_prog(&Input::open(&path).unwrap(), &Options { by, ..Options::default() }).unwrap();
            let document = serde_json::to_value(&report).unwrap();
            validate(&schema, &schema, &document, &path.display().to_string());
        }
    }
}

/// Holds a document against as much of JSON Schema as ours uses.
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
