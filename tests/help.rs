//! The help: one screen with -h, the complete text with --help, and the same with `bprec help`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

/// Columns of a terminal that shows the complete short help.
const COLUMNS: usize = 100;
/// Lines of a terminal that shows the complete short help.
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

/// Options of all commands have one definition, and can precede or follow the name of the command.
#[test]
fn quiet_verbose_and_color_are_options_of_every_command() {
    let mut command = bprec::command();
    command.build();
    let definition = |command: &clap::Command, long: &str| {
        let argument = command.get_arguments().find(|it| it.get_long() == Some(long));
        argument
            .map(|it| (it.get_short(), it.get_help().unwrap().to_string(), it.get_help_heading().map(str::to_owned)))
    };
    for long in ["quiet", "verbose", "color"] {
        let all = definition(&command, long);
        assert!(all.is_some(), "--{long}");
        for subcommand in command.get_subcommands().filter(|it| it.get_name() != "help") {
            assert_eq!(definition(subcommand, long), all, "{} --{long}", subcommand.get_name());
        }
    }

    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/recordings/linux-7.2/ratio.data");
    let directory = tempfile::tempdir().unwrap();
    let written = directory.path().join("out.data");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
        let output = command.args(arguments).env_remove("NO_COLOR").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    fn around<'a>(command: &[&'a str], options: &[&'a str]) -> [Vec<&'a str>; 2] {
        [[options, command].concat(), [command, options].concat()]
    }
    let rewrite = ["rewrite", "-i", recording, "-o", written.to_str().unwrap()];
    let report = ["report", "-i", recording];
    assert!(run(&rewrite).2.contains("records"));
    for arguments in around(&rewrite, &["-q"]) {
        assert_eq!(run(&arguments), (0, String::new(), String::new()), "{arguments:?}");
    }
    let plain = run(&report);
    assert_eq!((plain.0, &plain.2[..], plain.1.contains('\u{1b}')), (0, "", false));
    for arguments in around(&report, &["-v"]).into_iter().chain(around(&report, &["-vv"])) {
        let (code, shown, said) = run(&arguments);
        assert!(code == 0 && shown == plain.1 && said.starts_with("bprec: sandbox: "), "{arguments:?}: {said}");
    }
    for arguments in around(&report, &["--color", "always"]) {
        assert!(run(&arguments).1.contains('\u{1b}'), "{arguments:?}");
    }
    // After these options, an option with an optional `=` still gets its value.
    assert_eq!(run(&["--color", "never", "report", "--payers", "comm", "-i", recording]).0, 0);
    for arguments in around(&report, &["-q", "-v"]) {
        assert_eq!(run(&arguments).0, 2, "{arguments:?}");
    }
    assert!(run(&["-q", "report", "--itrace"]).2.contains("bprec report does not have perf's --itrace"));
}
