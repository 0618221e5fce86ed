//! The help: one screen for those who ask with -h, everything with --help, and the same with `bprec help`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

/// Width of a terminal that shows a screen of it.
const COLUMNS: usize = 100;
const LINES: usize = 40;

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_short_help_of_record_is_one_screen() {
    let mut command = bprec::command().term_width(COLUMNS);
    command.build();
    let record = command.find_subcommand_mut("record").unwrap();
    let short = record.render_help().to_string();
    assert!(short.lines().count() <= LINES, "{} lines:\n{short}", short.lines().count());
    assert!(short.lines().all(|line| line.chars().count() <= COLUMNS), "{short}");
}

#[test]
fn the_long_help_has_every_option() {
    let mut command = bprec::command();
    command.build();
    for subcommand in command.get_subcommands_mut().filter(|it| it.get_name() != "help") {
        let name = subcommand.get_name().to_owned();
        let long = subcommand.render_long_help().to_string();
        for argument in subcommand.get_arguments().filter(|it| !it.is_hide_set()) {
            if let Some(option) = argument.get_long() {
                assert!(long.contains(&format!("--{option}")), "bprec {name} --help lacks --{option}");
            }
            assert!(argument.get_help().is_some(), "bprec {name}: {argument} has no help");
        }
    }
}

#[test]
fn help_is_a_command_too() {
    for name in ["report", "recover", "script"] {
        assert_eq!(printed(&["help", name]), printed(&[name, "--help"]));
    }
    assert_eq!(printed(&["help"]), printed(&["--help"]));
    let output = Command::new(env!("CARGO_BIN_EXE_bprec")).args(["help", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
