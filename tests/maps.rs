//! Maps of a recording: the report prints the values that a program wrote, like bpftool does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::path::Path;
use std::process::Command;

use crate::support::{Scratch, bprec, perf, perf_installed, record, root, skip, succeed};
use bprec_fixtures::{Fixture, Loaded, load};
use serde_json::{Value, json};

/// Loads the fixture, and runs its program, which writes the values.
fn written() -> Loaded {
    let loaded = Fixture::TYPED_MAPS.open().unwrap().for_this_thread().unwrap().start().unwrap();
    load::system_calls(3);
    loaded
}

const MAPS: [&str; 6] =
    ["typed_hash", "typed_per_cpu", "typed_stacks", "typed_ring", "annotated_with_a_long_name", ".bss"];

/// Records and dumps the maps of the fixture.
fn record_maps(path: &Path, loaded: &Loaded, more: &[&str]) -> String {
    let ids: Vec<String> = MAPS.iter().map(|name| loaded.map_id(name).unwrap().to_string()).collect();
    let mut arguments = vec!["-a"];
    for id in &ids {
        arguments.extend(["--dump-map", id]);
    }
    arguments.extend(more);
    arguments.extend(["--", "true"]);
    String::from_utf8(record(path, &arguments).stderr).unwrap()
}

fn report_maps(path: &Path, arguments: &[&str]) -> Value {
    let output = succeed(bprec().args(["report", "--maps", "--json", "-i"]).arg(path).args(arguments));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn map<'r>(report: &'r Value, loaded: &Loaded, name: &str) -> &'r Value {
    let id = loaded.map_id(name).unwrap();
    report["maps"].as_array().unwrap().iter().find(|map| map["id"] == id).unwrap()
}

/// Value that `typed_maps.bpf.c` writes, on a machine of this byte order.
fn typed_value() -> Value {
    let (whole, bytes) =
        if cfg!(target_endian = "little") { (0x2_0000_0001u64, [1, 2, 3, 4]) } else { (0x1_0000_0002, [4, 3, 2, 1]) };
    json!({
        "low": 5, "middle": -2, "high": 2748, "on": true, "colour": "INFRA_RED",
        "both": {"whole": whole, "halves": {"first": 1, "second": 2}},
        "word": 0x0403_0201, "bytes": bytes,
        "grid": [[0, 1, 2], [10, 11, 12]],
        "points": [{"x": -3, "y": -4_000_000_000i64}, {"x": 3, "y": 4_000_000_000i64}],
        "name": "a \"name\"\u{1b}", "binary": [255, 1, 2],
        "since": 1_234_567_890_123u64, "where": "0xdeadbeef", "ratio": 0.25, "negative": -1,
    })
}

#[test]
fn values_are_those_that_the_program_wrote() {
    let test = "values_are_those_that_the_program_wrote";
    if !root(test) {
        return;
    }
    let (loaded, scratch) = (written(), Scratch::new());
    let path = scratch.path("perf.data");
    let said = record_maps(&path, &loaded, &["-q"]);
    assert!(said.contains("(typed_ring): 0 entries; a ring buffer has no entries to look up"), "{said}");
    let report = report_maps(&path, &[]);
    assert_eq!((&report["format"], &report["problems"]), (&json!("bprec maps"), &json!([])));
    let point = json!({"x": -3, "y": -4_000_000_000i64});

    let hash = map(&report, &loaded, "typed_hash");
    assert_eq!(hash["programs"][0]["name"], "write_typed_values");
    assert_eq!(hash["programs"][0]["id"], loaded.id_of("write_typed_values").unwrap());
    assert_eq!((&hash["type"], &hash["max_entries"], &hash["key_bytes"]), (&json!("hash"), &json!(8), &json!(8)));
    assert_eq!((&hash["key_type"], &hash["value_type"]), (&json!("struct typed_key"), &json!("struct typed_value")));
    let types: Vec<_> = hash["types"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(types.contains(&"struct typed_key { __u32 number; enum colour colour; }"), "{types:?}");
    assert!(types.contains(&"enum colour { RED = 1, GREEN = 2, INFRA_RED = 200 }"), "{types:?}");
    assert!(types.contains(&"struct point { __s8 x; __s64 y; }"), "{types:?}");
    let contents = &hash["contents"];
    assert_eq!((&contents["entries"], &contents["cut"]), (&json!(1), &Value::Null));
    assert_eq!(contents["list"], json!([{"key": {"number": 7, "colour": "GREEN"}, "value": typed_value()}]));

    let per_cpu = &map(&report, &loaded, "typed_per_cpu")["contents"]["list"];
    assert_eq!(per_cpu.as_array().unwrap().len(), 2);
    let values = per_cpu[1]["values"].as_array().unwrap();
    assert!(per_cpu[1]["key"] == 1 && values.iter().any(|value| value["value"] == point), "{per_cpu}");
    assert!(
        values.iter().all(|value| value["value"] == point || value["value"] == json!({"x": 0, "y": 0})),
        "{per_cpu}"
    );

    let annotated = map(&report, &loaded, "annotated_with_a_long_name");
    assert_eq!(
        (&annotated["types_annotated"], &annotated["name"]),
        (&json!(true), &json!("annotated_with_a_long_name"))
    );
    assert_eq!((&annotated["key_type"], &annotated["value_type"]), (&json!("enum colour"), &json!("struct point")));
    assert_eq!(annotated["contents"]["list"], json!([{"key": "INFRA_RED", "value": point}]));

    let global = &map(&report, &loaded, ".bss")["contents"]["list"][0]["value"];
    assert_eq!(global["typed_global"], point);
    let stacks = &map(&report, &loaded, "typed_stacks")["contents"]["list"];
    let stack = stacks.as_array().unwrap().iter().find(|stack| stack["key"] == global["typed_stack_id"]).unwrap();
    let names: Vec<_> = stack["value"].as_array().unwrap().iter().map(|frame| frame["symbol"].as_str()).collect();
    assert_eq!(names[0], Some("write_typed_values"), "{stack}");
    // Kernel functions called the program; the recording names them if the kernel shows their symbols.
    let hidden = std::fs::read_to_string("/proc/kallsyms").unwrap().starts_with("0000000000000000 ");
    assert!(hidden || names.len() > 2 && names.iter().all(Option::is_some), "{stack}");

    let ring = &map(&report, &loaded, "typed_ring")["contents"];
    assert_eq!((&ring["entries"], &ring["list"]), (&json!(0), &json!([])));

    // The text output has the same values.
    let id = loaded.map_id("typed_hash").unwrap();
    let output = succeed(bprec().env("COLUMNS", "1000").args(["report", &format!("--maps={id}"), "-i"]).arg(&path));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("    { .number = 7, .colour = GREEN }: ")).expect(&text);
    for part in [
        ".low = 5, .middle = -2, .high = 2748, .on = true, .colour = INFRA_RED, .both = { .whole = ",
        ".grid = { { 0, 1, 2 }, { 10, 11, 12 } }, .points = { { .x = -3, .y = -4000000000 }, { .x = 3, .y = 4000000000 } }",
        r#".name = "a \"name\"\u{1b}", .binary = "\xff\u{1}\u{2}", .since = 1234567890123, .where = 0xdeadbeef"#,
        ".ratio = 0.25, .negative = -1 }",
    ] {
        assert!(line.contains(part), "{part} is not in\n{line}");
    }
    assert_eq!(text.matches("MAP ").count(), 1);

    if perf_installed(test) {
        perf(&["report".as_ref(), "--stdio".as_ref(), "-i".as_ref(), path.as_os_str()]);
        perf(&["script".as_ref(), "-i".as_ref(), path.as_os_str()]);
    }
}

/// Compares bpftool's form of a value with ours, and counts the compared parts. In bpftool's form, bit fields are unsigned and hexadecimal, text is
/// an array, pointers are numbers, and an anonymous struct is a member without a name.
fn compare(theirs: &Value, ours: &Value, compared: &mut usize) {
    match (theirs, ours) {
        (Value::Object(members), _) => {
            for (name, value) in members {
                compare(value, if name.is_empty() { ours } else { &ours[name] }, compared);
            }
            return;
        }
        (Value::Array(items), Value::Array(of)) => {
            assert!(items.len() >= of.len(), "{theirs} {ours}");
            for (n, item) in items.iter().enumerate() {
                // A missing item is 0: for text that is not UTF-8, our form omits the NULs at the end.
                compare(item, of.get(n).unwrap_or(&json!(0)), compared);
            }
            return;
        }
        (Value::Array(bytes), Value::String(text)) => {
            let bytes: Vec<u8> = bytes.iter().map(|byte| byte.as_u64().unwrap() as u8).collect();
            assert_eq!(String::from_utf8_lossy(&bytes).trim_end_matches('\0'), text);
        }
        (Value::String(bits), Value::Number(number)) => {
            let bits = u64::from_str_radix(bits.strip_prefix("0x").unwrap(), 16).unwrap();
            let mask = (bits + 1).next_power_of_two() - 1;
            assert_eq!(number.as_i64().unwrap() as u64 & mask, bits);
        }
        (Value::Number(number), Value::String(pointer)) if pointer.starts_with("0x") => {
            assert_eq!(&format!("{:#x}", number.as_u64().unwrap()), pointer);
        }
        // In bpftool, bytes of text are signed.
        (Value::Number(byte), Value::Number(of)) if byte.as_i64().is_some_and(|b| of.as_i64() == Some(b + 256)) => {}
        // bpftool does not know floating point.
        (Value::Null, Value::Number(_)) => return,
        _ => assert_eq!(theirs, ours),
    }
    *compared += 1;
}

#[test]
fn bpftool_agrees() {
    let test = "bpftool_agrees";
    if !root(test) {
        return;
    }
    if Command::new("bpftool").arg("version").output().is_err() {
        return skip(test, "no bpftool");
    }
    let (loaded, scratch) = (written(), Scratch::new());
    let path = scratch.path("perf.data");
    record_maps(&path, &loaded, &["-q"]);
    let report = report_maps(&path, &[]);
    // `least` is the minimum number of compared members. bpftool's JSON of a value ends at its first floating-point member.
    for (name, least) in [("typed_hash", 2 + 24), ("typed_per_cpu", 2 + 4), (".bss", 3)] {
        let id = loaded.map_id(name).unwrap().to_string();
        let output = succeed(Command::new("bpftool").args(["-j", "map", "dump", "id", &id]));
        let text = String::from_utf8(output.stdout).unwrap().replace("(unsupported-kind", "null");
        let theirs: Value = serde_json::from_str(&text).unwrap();
        let theirs: Vec<&Value> = theirs.as_array().unwrap().iter().map(|entry| &entry["formatted"]).collect();
        if theirs.iter().any(|entry| entry.is_null()) {
            skip(test, "this bpftool does not print values by type");
            continue;
        }
        let ours = map(&report, &loaded, name)["contents"]["list"].as_array().unwrap();
        assert_eq!(theirs.len(), ours.len());
        let mut compared = 0;
        for (theirs, ours) in theirs.iter().zip(ours) {
            match theirs["value"].get(".bss").and_then(Value::as_array) {
                Some(variables) => variables.iter().for_each(|one| compare(one, &ours["value"], &mut compared)),
                None => compare(theirs, ours, &mut compared),
            }
        }
        assert!(compared >= least, "{name}: {compared} values, {theirs:?}");
    }
}

/// The recorder applies and reports a limit, matches names by patterns, and reports missing maps.
#[test]
fn what_is_cut_or_missing_is_said() {
    let test = "what_is_cut_or_missing_is_said";
    if !root(test) {
        return;
    }
    let (loaded, scratch) = (written(), Scratch::new());
    let path = scratch.path("perf.data");
    let id = loaded.map_id("typed_per_cpu").unwrap();
    let output = record(
        &path,
        &["-a", "--dump-map", &id.to_string(), "--dump-entries", "1", "--dump-map", "no_such_map?", "--", "true"],
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("(typed_per_cpu): 1 entry; cut at 1 entry"), "{said}");
    assert!(said.contains("no loaded map matches no_such_map? yet"), "{said}");
    assert!(said.contains("no loaded map matches no_such_map?, so the recording lacks its contents"), "{said}");
    let report = report_maps(&path, &[]);
    let contents = &map(&report, &loaded, "typed_per_cpu")["contents"];
    assert_eq!((&contents["entries"], &contents["cut"]), (&json!(1), &json!("cut at 1 entry")));
    assert_eq!(map(&report, &loaded, "typed_hash")["contents"], Value::Null);
    // With --prog, the report has only the maps of this program.
    let program = loaded.id_of("write_typed_values").unwrap().to_string();
    let of_program = report_maps(&path, &["--prog", &program]);
    assert!(
        of_program["maps"].as_array().unwrap().iter().all(|map| map["programs"][0]["name"] == "write_typed_values")
    );
    let missing = bprec().args(["report", "--maps=no_such_map", "-i"]).arg(&path).output().unwrap();
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(1), 0));

    // A stream has the same values, and also their types.
    let streamed = scratch.path("stream");
    let output = succeed(bprec().args(["record", "-q", "-a", "-o", "-", "--dump-map", &id.to_string(), "--", "true"]));
    std::fs::write(&streamed, output.stdout).unwrap();
    let report = report_maps(&streamed, &[]);
    let per_cpu = map(&report, &loaded, "typed_per_cpu");
    assert_eq!(per_cpu["value_type"], "struct point");
    assert_eq!(per_cpu["contents"]["list"].as_array().unwrap().len(), 2);
    if perf_installed(test) {
        perf(&["script".as_ref(), "-i".as_ref(), streamed.as_os_str()]);
    }
}
