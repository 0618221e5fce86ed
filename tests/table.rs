//! The table by program at the widths of screens: what stays, what is cut, and what is said below it. The whole table of the same recording
//! is what narrower ones are held against.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

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

/// The names of columns and the rows, up to the rule.
fn rows(table: &str) -> Vec<&str> {
    let lines = table.lines().skip_while(|line| line.starts_with('#'));
    lines.take_while(|line| !line.starts_with("---")).collect()
}

#[test]
fn who_costs_most_stays_at_any_width() {
    for recording in RECORDINGS {
        let wide = table(recording, "80", &["--wide"]);
        // Where it is not known what the machine could do, another share says who costs most.
        let share = if rows(&wide)[0].contains("%MACHINE") { "%MACHINE" } else { "TOTAL%" };
        for (width, columns) in [
            (80, &["PROGRAM", "TYPE", "NS/RUN", share][..]),
            (120, &["TYPE", "NS/RUN", "RUNS", share]),
            (200, &["%BPF", "OWNER", share]),
        ] {
            let narrow = table(recording, &width.to_string(), &[]);
            let (rows, all) = (rows(&narrow), rows(&wide));
            assert_eq!(rows.len(), all.len(), "{recording}: every program has its row");
            for name in columns {
                assert!(rows[0].contains(name), "{recording}, {width} columns: no {name}: {}", rows[0]);
            }
            for line in narrow.lines().filter(|line| !line.starts_with('#')) {
                assert!(line.chars().count() <= width, "{recording}: {line}");
            }
            // Ids are flush right: the first word of a row.
            let first = |row: &&str| row.split_whitespace().next().map(str::to_owned);
            assert_eq!(rows.iter().map(first).collect::<Vec<_>>(), all.iter().map(first).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_cut_keeps_both_ends() {
    let narrow = table("linux-7.2/everything", "120", &[]);
    let cut: Vec<&str> = narrow.lines().flat_map(str::split_whitespace).filter(|cell| cell.contains('…')).collect();
    assert!(cut.iter().any(|cell| cell.starts_with("tracepoint") && cell.ends_with("sys_enter")), "{cut:?}");
    assert!(cut.iter().any(|cell| cell.starts_with("tracepoint") && cell.ends_with("sys_exit")), "{cut:?}");
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

/// What explains columns: lines that begin with the name of one.
fn explained(table: &str) -> Vec<&str> {
    let legend: Vec<&str> = table.lines().filter(|line| line.starts_with('#')).collect();
    let names = ["%MACHINE", "%BUSY", "%BPF", "SELF%", "HELPER%", "ENTRY%", "TOTAL%", "CPU%"];
    names.into_iter().filter(|name| legend.iter().any(|line| line.contains(&format!(" {name}: ")))).collect()
}

#[test]
fn the_legend_is_of_the_columns_that_are_there() {
    for width in ["80", "120", "200"] {
        let with = table("linux-7.2/ratio", width, &["--legend"]);
        let header: Vec<&str> = rows(&with)[0].split_whitespace().collect();
        let explained = explained(&with);
        assert!(explained.len() > 1 && explained.iter().all(|name| header.contains(name)), "{explained:?}: {header:?}");
    }
    assert!(explained(&table("linux-7.2/ratio", "200", &[])).is_empty(), "nobody asked for it");
}

#[test]
fn a_terminal_gets_the_legend() {
    let command = format!("stty cols 100; {} report -i {}", env!("CARGO_BIN_EXE_bprec"), path("linux-7.2/ratio"));
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

/// What a terminal of a locale gets; nothing without script(1).
fn on_a_terminal(locale: &str, arguments: &str) -> Option<String> {
    let report = format!("{} report -i {} {arguments}", env!("CARGO_BIN_EXE_bprec"), path("linux-7.2/ratio"));
    let command = format!("stty cols 150; LC_ALL={locale} {report}");
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

/// Bars are as many and as high in ASCII: the highest of each row, and the empty ones, are where they are in UTF-8.
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
