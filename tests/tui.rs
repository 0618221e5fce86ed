//! `bprec report --tui` in a terminal: its screens have the numbers of `--json` at any size, and the terminal is restored afterwards.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{bprec, skip, succeed, wait_for};
use crate::tmux::{Terminal, cell, tmux_installed};
use serde_json::Value;

fn recording() -> String {
    format!("{}/fixtures/recordings/linux-7.2/everything.data", env!("CARGO_MANIFEST_DIR"))
}

fn json(arguments: &[&str]) -> Value {
    let output = succeed(bprec().args(arguments).args(["-i", &recording(), "--json"]));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn browse(size: (u16, u16)) -> Terminal {
    let terminal = Terminal::start(size, &["report", "--tui", "-i", &recording()]);
    // The bottom line is drawn last.
    terminal.wait_for(&["q quit  h help"]);
    terminal.wait_for(&["PROGRAM"]);
    terminal
}

/// Opens the table of all columns.
fn browse_table(size: (u16, u16)) -> Terminal {
    let terminal = browse(size);
    terminal.keys(&["c"]);
    // The bottom line is drawn last. The first page has a line with TOTAL, too.
    terminal.wait_for(&["q quit", "Enter open  Esc back"]);
    terminal
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "n/a".to_owned(), |percent| format!("{percent:.2}"))
}

/// Finds the header, which begins with the name `first`, and the rows after it.
fn table<'s>(screen: &'s [String], first: &str) -> (&'s str, &'s [String]) {
    let at = screen.iter().position(|line| line.trim_start().starts_with(first)).unwrap();
    (&screen[at], &screen[at + 1..])
}

/// The bill has the owners and shares of the JSON.
#[test]
fn the_bill_has_the_numbers_of_json() {
    if !tmux_installed("the_bill_has_the_numbers_of_json") {
        return;
    }
    let terminal = browse((200, 40));
    terminal.keys(&["b"]);
    let screen = terminal.wait("the bill", |screen| {
        screen[0].contains("bill of each owner") && screen.iter().any(|line| line.starts_with("TOTAL"))
    });
    let (header, rows) = table(&screen, "OWNER");
    let bill = json(&["report", "--bill"]);
    let event = &bill["events"][0];
    let owners = event["owners"].as_array().unwrap();
    assert!(!owners.is_empty());
    for (name, parts) in owners.iter().map(|it| (it["name"].as_str().unwrap(), it)).chain([("TOTAL", &event["total"])])
    {
        let line = rows.iter().find(|line| line.trim_start().starts_with(name)).unwrap();
        let shares = [("%MACHINE", &parts["machine_percent"]), ("OWN%", &parts["own_tasks"]["machine_percent"])];
        for (column, share) in shares {
            assert_eq!(cell(header, line, column).trim_start_matches('≈'), percent(share), "{line}");
        }
    }
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
}

/// Compares the shown table with the JSON report.
fn assert_table(screen: &[String], width: usize) {
    let (header, rows) = table(screen, "ID");
    assert!(screen.iter().all(|line| line.chars().count() <= width), "{screen:?}");
    let report = json(&["report"]);
    let event = &report["events"][0];
    let mut shown = 0;
    for row in event["rows"].as_array().unwrap() {
        let (id, name) = (row["id"].to_string(), row["name"].as_str().unwrap());
        let Some(line) = rows.iter().find(|line| line.split_whitespace().next() == Some(&id)) else { continue };
        shown += 1;
        // Only the share of the machine includes cost that samples cannot see.
        let unsampled = row["unsampled"]["machine_percent"].as_f64();
        if width >= 200 {
            // If a name is too long, its first and last part are shown.
            assert!(line.contains(&name[..name.len().min(8)]), "{line}");
            let bpf = if unsampled.is_some() { "n/a".to_owned() } else { percent(&row["bpf_percent"]) };
            assert_eq!(cell(header, line, "%BPF"), bpf, "{line}");
            assert_eq!(
                cell(header, line, "SAMPLES"),
                row["samples"].as_u64().map_or("n/a".into(), |it| it.to_string())
            );
        }
        let sampled = row["machine_percent"].as_f64().unwrap_or(0.0);
        let machine = match unsampled.map(|unsampled| format!("{:.2}", sampled + unsampled)) {
            Some(machine) if machine == "0.00" => machine,
            Some(machine) => format!("≈{machine}"),
            None => percent(&row["machine_percent"]),
        };
        assert_eq!(cell(header, line, "%MACHINE"), machine, "{line}");
    }
    assert!(shown > 3, "{screen:?}");
    let total = rows.iter().find(|line| line.trim_start().starts_with("TOTAL")).unwrap();
    assert_eq!(cell(header, total, "%MACHINE"), percent(&event["total"]["machine_percent"]));
}

/// Each row of the first page has the share of the machine that JSON has, and each program with a cost has a row.
#[test]
fn the_first_page_holds_the_numbers_of_json_at_any_size() {
    if !tmux_installed("the_first_page_holds_the_numbers_of_json_at_any_size") {
        return;
    }
    let report = json(&["report"]);
    let event = &report["events"][0];
    for (width, height) in [(140, 50), (80, 24), (60, 15)] {
        let terminal = browse((width, height));
        let screen = terminal.wait_for(&["% of this machine"]);
        assert!(screen.iter().all(|line| line.chars().count() <= usize::from(width)), "{screen:?}");
        let total = format!(" {} % of this machine", percent(&event["total"]["machine_percent"]));
        assert!(screen.iter().any(|line| line.starts_with(&total)), "{total}: {screen:?}");
        let (header, rows) = table(&screen, "PROGRAM");
        let mut shown = 0;
        for row in event["rows"].as_array().unwrap() {
            let name = row["name"].as_str().unwrap();
            // Programs with the same name are shown with their ids.
            let (twin, id) = (format!("{name} ("), format!("{name} ({})", row["id"]));
            let is_it = |line: &&String| {
                line.contains(&id) || line.split_whitespace().nth(1) == Some(name) && !line.contains(&twin)
            };
            let line = rows.iter().find(is_it);
            let unsampled = row["unsampled"]["machine_percent"].as_f64().unwrap_or(0.0);
            let machine = row["machine_percent"].as_f64().unwrap_or(0.0) + unsampled;
            if let Some(line) = line {
                let mark = if unsampled > 0.0 { "≈" } else { "" };
                assert_eq!(cell(header, line, "%MACHINE"), format!("{mark}{machine:.2}"), "{line}");
                shown += 1;
            }
            assert!(line.is_some() == (machine >= 0.005) || height < 50, "{name}: {machine} {screen:?}");
        }
        assert!(shown > 3, "{screen:?}");
        terminal.keys(&["q"]);
        assert_eq!(terminal.end(), 0);
    }
}

/// The first page uses the colours that the terminal supports, and no colours if they are switched off.
#[test]
fn colours_are_those_of_the_terminal() {
    if !tmux_installed("colours_are_those_of_the_terminal") {
        return;
    }
    for (variables, expected) in [
        (&[("COLORTERM", "truecolor")][..], "38;2;255;122;107"),
        (&[("COLORTERM", ""), ("TERM", "xterm-256color")], "38;5;209"),
        (&[("COLORTERM", ""), ("TERM", "linux")], "38;5;9m"),
        (&[("NO_COLOR", "1")], ""),
    ] {
        let arguments = ["report", "--tui", "-i", &recording()];
        let terminal = Terminal::run((100, 30), env!("CARGO_BIN_EXE_bprec"), &arguments, variables);
        terminal.wait_for(&["q quit"]);
        terminal.wait_for(&["PROGRAM"]);
        let screen = terminal.screen_with_colors();
        let has_colors = screen.contains("38;") || screen.contains("48;");
        assert_eq!(has_colors, !expected.is_empty(), "{variables:?}: {screen}");
        assert!(screen.contains(expected), "{variables:?}: {screen}");
        terminal.keys(&["q"]);
        assert_eq!(terminal.end(), 0);
    }
}

/// A serial line does not answer requests to the terminal.
#[test]
fn a_terminal_that_does_not_answer_shows_the_page() {
    let size = "stty rows 24 columns 80";
    let command = format!("{size}; exec '{}' report --tui -i '{}'", env!("CARGO_BIN_EXE_bprec"), recording());
    let script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "linux")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut script) = script else {
        return skip("a_terminal_that_does_not_answer_shows_the_page", "needs script");
    };
    std::thread::sleep(Duration::from_secs(3));
    script.stdin.take().unwrap().write_all(b"q").unwrap();
    let output = script.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("\u{1b}[6n") && said.contains("PROGRAM"), "{said}");
}

#[test]
fn the_table_holds_the_numbers_of_json_at_any_size() {
    if !tmux_installed("the_table_holds_the_numbers_of_json_at_any_size") {
        return;
    }
    let terminal = browse_table((100, 30));
    assert_table(&terminal.screen(), 100);
    for (width, height) in [(60, 15), (200, 60), (100, 30)] {
        terminal.resize((width, height));
        // All lines are drawn again; no line keeps the old size.
        let screen = terminal.wait("a screen of that size", |screen| {
            let is_titled = screen[0].starts_with("everything.data · sort cost");
            let is_whole = screen.iter().any(|line| line.trim_start().starts_with("TOTAL  "));
            let keys = screen.iter().position(|line| line.starts_with("q quit  h help"));
            is_titled && is_whole && keys == Some(usize::from(height) - 1)
        });
        assert_table(&screen, width.into());
    }
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
}

/// Opens a program from the table, down to the instructions of a line, and goes back; each screen is compared with `annotate --json`.
#[test]
fn a_program_opens_into_functions_lines_and_instructions() {
    if !tmux_installed("a_program_opens_into_functions_lines_and_instructions") {
        return;
    }
    let annotation = json(&["annotate", "*"]);
    let program = &annotation["programs"][0];
    let id = program["id"].to_string();
    let functions = program["functions"].as_array().unwrap();
    let at = functions.iter().position(|it| it["samples"].as_u64().unwrap() > 1).unwrap();
    let function = &functions[at];
    let terminal = browse_table((140, 50));
    let screen = terminal.screen();
    assert!(table(&screen, "ID").1[0].trim_start().starts_with(&id), "the most expensive program is first");
    terminal.keys(&["Enter"]);
    let screen = terminal.wait_for(&["SAMPLES", "FUNCTION"]);
    let (header, rows) = table(&screen, "SAMPLES");
    for (function, row) in functions.iter().zip(rows) {
        assert!(row.ends_with(function["name"].as_str().unwrap()), "{row}");
        let samples = function["samples"].as_u64().unwrap();
        if samples > 0 {
            assert!(row.trim_start().starts_with(&samples.to_string()), "{row}");
            assert_eq!(cell(header, row, "%COST"), percent(&function["percent"]));
        }
    }
    terminal.keys(&["Home"]);
    terminal.keys(&vec!["Down"; at]);
    terminal.keys(&["Enter"]);
    let screen = terminal.wait_for(&["SAMPLES", "LINE"]);
    let (header, rows) = table(&screen, "SAMPLES");
    let lines = function["lines"].as_array().unwrap();
    for (line, row) in lines.iter().zip(rows) {
        let place = format!(":{}", line["source"]["line"]);
        assert!(row.contains(&place), "{row}: {place}");
        if line["samples"].as_u64().unwrap() > 0 {
            assert_eq!(cell(header, row, "%COST"), percent(&line["percent"]), "{row}");
            assert_eq!(cell(header, row, "%SELF"), percent(&line["self"]["percent"]), "{row}");
        }
    }
    let hot = lines.iter().position(|line| line["samples"].as_u64().unwrap() > 0).unwrap();
    terminal.keys(&["Home"]);
    terminal.keys(&vec!["Down"; hot]);
    terminal.keys(&["Enter"]);
    let screen = terminal.wait_for(&["SAMPLES", "INSTRUCTION"]);
    for insn in lines[hot]["bpf"].as_array().unwrap() {
        let text = format!("{}: {}", insn["slot"], insn["text"].as_str().unwrap());
        assert!(screen.iter().any(|line| line.contains(&text)), "{text} in {screen:?}");
    }
    for back in [&["LINE"][..], &["FUNCTION"], &["PROGRAM", "%MACHINE"]] {
        terminal.keys(&["Escape"]);
        terminal.wait_for(back);
    }
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
}

#[test]
fn rows_are_sorted_and_filtered_as_the_table_by_options() {
    if !tmux_installed("rows_are_sorted_and_filtered_as_the_table_by_options") {
        return;
    }
    let ids = |report: &Value| -> Vec<String> {
        report["events"][0]["rows"].as_array().unwrap().iter().map(|row| row["id"].to_string()).collect()
    };
    let shown = |screen: &[String]| -> Vec<String> {
        let rows = table(screen, "ID").1.iter().map(|row| row.split_whitespace().next().unwrap_or_default().to_owned());
        rows.take_while(|first| first.parse::<u32>().is_ok()).collect()
    };
    let terminal = browse_table((140, 50));
    terminal.keys(&["s", "s"]);
    let by_self = ids(&json(&["report", "--sort", "self"]));
    terminal.wait("sorted by self", |screen| screen[0].contains("sort self") && shown(screen) == by_self);
    terminal.keys(&["S", "S"]);
    terminal.wait_for(&["sort cost"]);
    // A filter takes effect while it is typed.
    terminal.keys(&["f", "tail_call"]);
    let filtered = ids(&json(&["report", "--prog", "*tail_call*"]));
    assert!(filtered.len() > 1, "{filtered:?}");
    terminal.wait("filtered", |screen| screen[0].contains("filter tail_call") && shown(screen) == filtered);
    terminal.keys(&["Escape"]);
    terminal.wait("not filtered", |screen| !screen[0].contains("filter") && shown(screen) != filtered);
    terminal.keys(&["/", "tail_call", "Enter"]);
    terminal.wait("filtered again", |screen| screen[0].contains("filter tail_call") && shown(screen) == filtered);
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
}

/// Boxes of the flame graph are as wide as the counts of `export --to folded`.
#[test]
fn a_flame_graph_has_the_stacks_that_are_exported() {
    const WIDTH: u64 = 120;
    if !tmux_installed("a_flame_graph_has_the_stacks_that_are_exported") {
        return;
    }
    let output = succeed(bprec().args(["export", "--to", "folded", "-i", &recording()]));
    let folded = String::from_utf8(output.stdout).unwrap();
    let stacks: Vec<(&str, u64)> = folded
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(it, count)| (it, count.parse().unwrap()))
        .collect();
    let total: u64 = stacks.iter().map(|(_, count)| count).sum();
    let task = "swapper";
    let of_task = stacks.iter().filter(|(stack, _)| stack.split(';').next() == Some(task));
    let share = of_task.map(|(_, count)| count).sum::<u64>() * WIDTH / total;
    assert!(share > 20, "{share}");
    let terminal = browse((120, 30));
    terminal.wait_for(&["PROGRAM"]);
    terminal.keys(&["G"]);
    let screen = terminal.wait_for(&["|swapper"]);
    let row = screen.iter().find(|line| line.contains("|swapper")).unwrap();
    let from = row[row.find("|swapper").unwrap()..].chars();
    let width = from.skip(1).take_while(|c| *c != '|').count() as u64 + 1;
    assert!(width.abs_diff(share) <= 1 || row.ends_with(task), "{width} columns, {share} expected: {row}");

    // A zoomed box gets all columns; its share still refers to all samples.
    let tasks: Vec<&str> = row.split('|').skip(1).map(str::trim_end).collect();
    assert!(tasks.len() > 1, "{row}");
    terminal.keys(&vec!["Tab"; tasks.iter().position(|it| *it == task).unwrap()]);
    let of_task: u64 = stacks.iter().filter(|it| it.0.split(';').next() == Some(task)).map(|it| it.1).sum();
    let cost = format!("{task} · {:.2} %", of_task as f64 * 100.0 / total as f64);
    terminal.wait_for(&[&cost]);
    terminal.keys(&["Enter"]);
    let below = format!(" samples below {task}");
    let screen = terminal.wait("zoomed", |screen| screen.iter().any(|line| line.ends_with(&below)));
    let row = screen.iter().find(|line| line.contains("|swapper")).unwrap();
    assert_eq!((row.find('|'), row.matches('|').count()), (Some(0), 1), "{row}");
    // Selects a called function, and then its caller again: the displayed cost is always that of the selected box.
    let mut called: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in stacks.iter().filter(|it| it.0.split(';').next() == Some(task)) {
        *called.entry(stack.split(';').nth(1).unwrap()).or_default() += count;
    }
    terminal.keys(&["Down"]);
    let screen = terminal.wait("a box below", |screen| {
        called.iter().any(|(frame, count)| {
            let cost = format!("{frame} · {:.2} %", *count as f64 * 100.0 / total as f64);
            screen.iter().any(|line| line.trim_end() == cost)
        })
    });
    assert!(screen.iter().any(|line| line.ends_with(&below)), "{screen:?}");
    terminal.keys(&["Up"]);
    terminal.wait_for(&[&cost]);
    terminal.keys(&["Escape"]);
    terminal.wait("all tasks again", |screen| screen.iter().any(|line| line.matches('|').count() == tasks.len()));
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
}

#[test]
fn whatever_ends_it_the_terminal_is_whole() {
    if !tmux_installed("whatever_ends_it_the_terminal_is_whole") {
        return;
    }
    for signal in ["-TERM", "-INT", "-HUP"] {
        let terminal = browse((80, 24));
        terminal.wait_for(&["PROGRAM"]);
        terminal.signal(signal);
        assert_eq!(terminal.end(), 0, "{signal}");
    }
    let terminal = browse((80, 24));
    terminal.wait_for(&["PROGRAM"]);
    terminal.keys(&["C-c"]);
    assert_eq!(terminal.end(), 0);
    // A file that cannot be read is reported after the terminal is restored.
    let terminal = Terminal::start((80, 24), &["report", "--tui", "-i", "/dev/null"]);
    assert_eq!(terminal.end(), 2);
    terminal.wait_for(&["bprec: /dev/null"]);
}

/// If the window is closed or the connection breaks, no process is left that reads from the lost terminal.
#[cfg(target_os = "linux")]
#[test]
fn it_ends_with_its_terminal() {
    if !tmux_installed("it_ends_with_its_terminal") {
        return;
    }
    for ignores in ["", "trap '' HUP; "] {
        let terminal = Terminal::run(
            (80, 24),
            "/bin/sh",
            &["-c", &format!("{ignores}exec \"$0\" report --tui -i \"$1\""), env!("CARGO_BIN_EXE_bprec"), &recording()],
            &[],
        );
        terminal.wait_for(&["PROGRAM"]);
        let process = format!("/proc/{}/exe", terminal.pid());
        drop(terminal);
        wait_for("the end of the process", || std::fs::read_link(&process).is_err().then_some(()));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn it_is_confined_as_other_readers_are() {
    let has_filters = std::path::Path::new("/proc/sys/kernel/seccomp/actions_avail").exists();
    if !tmux_installed("it_is_confined_as_other_readers_are") || !has_filters {
        return;
    }
    let terminal = browse((80, 24));
    terminal.wait_for(&["PROGRAM"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", terminal.pid())).unwrap();
    let member = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!((member("Seccomp:"), member("CapEff:")), (Some("2"), Some("0000000000000000")));
    // Keys and changes of the size still work.
    terminal.keys(&["Enter"]);
    terminal.wait_for(&["FUNCTION"]);
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
}

#[test]
fn without_a_terminal_it_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
    let output = command.args(["report", "--tui", "-i", &recording()]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--tui") && said.contains("terminal"), "{said}");
}

/// No page contains tasks or files of the recording, or the name of the recording.
#[test]
fn redacted_pages_hold_no_secret() {
    if !tmux_installed("redacted_pages_hold_no_secret") {
        return;
    }
    let secrets = ["bprec-load", ".bpf.c", "everything"];
    let pages = [
        (&["Enter"][..], "functions"),
        (&["Enter"], "lines"),
        (&["a"], "lines"),
        (&["Left", "Left", "t"], "what it called"),
        (&["Left", "p"], "payers"),
        (&["Left", "P"], "all programs · payers"),
        (&["Left", "g"], "flame graph"),
        (&["Left", "G"], "all programs · flame graph"),
        (&["n"], "all programs · flame graph"),
    ];
    for is_redacted in [false, true] {
        let redact: &[&str] = if is_redacted { &["--redact"] } else { &[] };
        let recording = recording();
        let terminal = Terminal::start((200, 60), &[&["report", "--tui", "-i", &recording], redact].concat());
        // Keys do nothing before the table is read.
        let mut seen = terminal.wait_for(&["PROGRAM"]);
        for (keys, title) in pages {
            terminal.keys(keys);
            // If tmux has received only the first lines of a screen, the last line is still that of the previous page.
            seen.extend(terminal.wait(title, |screen| {
                let is_it = screen[0].contains(title) && screen[0].contains(" · ") && !screen[59].contains("reading");
                is_it && {
                    std::thread::sleep(Duration::from_millis(20));
                    terminal.screen() == screen
                }
            }));
        }
        terminal.keys(&["q"]);
        assert_eq!(terminal.end(), 0);
        let found = secrets.map(|secret| seen.iter().any(|line| line.contains(secret)));
        assert_eq!(found, [!is_redacted; 3], "{seen:#?}");
    }
}
