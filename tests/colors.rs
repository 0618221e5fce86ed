//! Colours: off by default, and the text is the same with and without colours. The test strips only the escape sequences of colours (ECMA-48, SGR).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::process::{Command, Output};

use crate::tmux::{Terminal, cell, tmux_installed};

const ESC: char = '\u{1b}';
const RECORDINGS: [&str; 4] = ["linux-7.2/everything", "linux-7.2/none", "linux-6.12-arm64/exact", "linux-6.1/ratio"];

fn path(recording: &str) -> String {
    format!("{}/fixtures/recordings/{recording}.data", env!("CARGO_MANIFEST_DIR"))
}

fn bprec(arguments: &[String], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
    command.args(arguments).env("COLUMNS", "100").env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Output of a command, which must succeed and print something. For the recording without BPF programs, it may also fail with exit code 1.
fn printed(arguments: &[String], variables: &[(&str, &str)]) -> String {
    let output = bprec(arguments, variables);
    let is_empty = arguments.iter().any(|it| it.ends_with("/none.data"));
    let is_found = output.status.success() && !output.stdout.is_empty();
    assert!(is_found || is_empty && output.status.code() == Some(1), "{arguments:?}: {output:?}");
    assert!(!output.stderr.contains(&(ESC as u8)), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The text without sequences of the form ESC [ digits m.
fn stripped(text: &str) -> String {
    let mut parts = text.split(ESC);
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        let (sequence, rest) = part.split_once('m').unwrap_or_else(|| panic!("no end: {part}"));
        let digits = sequence.strip_prefix('[').unwrap_or_else(|| panic!("no SGR: {part}"));
        assert!(!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()), "{part}");
        plain.push_str(rest);
    }
    plain
}

/// All commands that read a recording and print tables.
fn commands() -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut commands = Vec::new();
    for recording in RECORDINGS.map(path) {
        for view in [
            "--wide",
            "--all",
            "--by=func",
            "--by=owner",
            "--counters",
            "--over-time",
            "--lines",
            "--payers",
            "--advise",
            "--tree",
            "--maps",
            "--legend",
            "--notes",
        ] {
            commands.push(words(&["report", "-i", &recording, view]));
        }
        commands.push(words(&["annotate", "-i", &recording, "*"]));
        let condition = "--fail-if=prog:* cost +1%";
        commands.push(words(&["diff", &path(RECORDINGS[0]), &recording, condition]));
    }
    commands
}

fn with(command: &[String], option: &str) -> Vec<String> {
    let mut words = command.to_vec();
    words.insert(1, option.to_owned());
    words
}

#[test]
fn colours_change_no_character_of_the_text() {
    let mut colored = 0;
    for command in commands() {
        let plain = printed(&command, &[]);
        assert!(!plain.contains(ESC), "{command:?}: to a pipe:\n{plain}");
        assert_eq!(printed(&with(&command, "--color=never"), &[]), plain, "{command:?}");
        // Requested colours are printed in every environment.
        for variables in [&[][..], &[("NO_COLOR", "1"), ("TERM", "dumb")]] {
            let always = printed(&with(&command, "--color=always"), variables);
            assert_eq!(stripped(&always), plain, "{command:?}");
            colored += usize::from(always.contains(ESC));
        }
    }
    assert!(colored >= 100, "{colored}");
}

#[test]
fn documents_for_programs_have_no_colours() {
    for form in ["--json", "--csv"] {
        let report = ["report", "-i", &path(RECORDINGS[0]), "--color=always", form].map(str::to_owned);
        assert!(!printed(&report, &[]).contains(ESC));
    }
}

/// The limits are those of perf: red from 5 %, yellow from 0.5 %.
#[test]
fn shares_have_perfs_colours() {
    let report = ["report", "-i", &path("linux-7.2/ratio"), "--color=always"].map(str::to_owned);
    let text = printed(&report, &[]);
    let header = text.lines().find(|line| line.contains("%MACHINE")).unwrap();
    assert!(header.starts_with("\u{1b}[1m") && header.ends_with("\u{1b}[0m"), "{header}");
    let rows = text.lines().skip_while(|line| *line != header).skip(1).take_while(|line| !line.starts_with('-'));
    let mut seen = [0; 3];
    for row in rows {
        let plain = stripped(row);
        let share = cell(&stripped(header), &plain, "%MACHINE");
        let (kind, expected) = match share.trim_start_matches('≈').parse::<f64>().unwrap() {
            5.0.. => (0, format!(" \u{1b}[31m{share}\u{1b}[0m ")),
            0.5.. => (1, format!(" \u{1b}[33m{share}\u{1b}[0m ")),
            _ => (2, format!(" {share} ")),
        };
        assert!(row.contains(&expected), "{row}");
        seen[kind] += 1;
    }
    assert!(seen.iter().all(|rows| *rows > 0), "{text}");
    let total = text.lines().find(|line| line.contains("TOTAL ")).unwrap();
    assert!(!total.contains(ESC), "{total}");
}

#[test]
fn a_terminal_has_colours_unless_the_environment_says_no() {
    if !tmux_installed("a_terminal_has_colours_unless_the_environment_says_no") {
        return;
    }
    let recording = path("linux-7.2/ratio");
    // https://no-color.org: NO_COLOR has an effect if it is set and not empty.
    for (variables, option, has_colors) in [
        (&[][..], None, true),
        (&[("NO_COLOR", "")], None, true),
        (&[("NO_COLOR", "1")], None, false),
        (&[("TERM", "dumb")], None, false),
        (&[("NO_COLOR", "1")], Some("--color=always"), true),
        (&[], Some("--color=never"), false),
    ] {
        let arguments: Vec<&str> = ["report", "-i", &recording].into_iter().chain(option).collect();
        let terminal = Terminal::run((100, 40), env!("CARGO_BIN_EXE_bprec"), &arguments, variables);
        assert_eq!(terminal.end(), 0);
        let screen = terminal.screen_with_colors();
        assert!(screen.contains("account_syscall_enter"), "{screen}");
        assert_eq!(screen.contains("\u{1b}[31m"), has_colors, "{variables:?} {option:?}: {screen}");
    }
}
