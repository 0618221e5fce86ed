//! Output that is longer than the terminal goes to a pager, started before the command confines itself. Shorter output, or output that is not to a
//! terminal, does not go to a pager.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, bprec, skip, succeed, wait_for};
use crate::tmux::{Terminal, tmux_installed};

/// Size of a terminal that is higher than the table.
const HIGH: (u16, u16) = (120, 60);
/// Size of a terminal that is lower than the table.
const LOW: (u16, u16) = (120, 8);

fn recording() -> String {
    format!("{}/fixtures/recordings/linux-7.2/ratio.data", env!("CARGO_MANIFEST_DIR"))
}

fn run(size: (u16, u16), arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
    let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("RECORDING", &recording())).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let none = [("BPREC_PAGER", ""), ("PAGER", ""), ("LESS", "")];
    let unset: Vec<&str> = none.iter().map(|(name, _)| *name).filter(|name| is_not_in(variables, name)).collect();
    let unset: Vec<&str> = unset.iter().flat_map(|name| ["-u", name]).collect();
    Terminal::run(size, "env", &[&unset[..], &[env!("CARGO_BIN_EXE_bprec")], &arguments].concat(), variables)
}

fn is_not_in(variables: &[(&str, &str)], name: &str) -> bool {
    variables.iter().all(|(there, _)| *there != name)
}

/// Makes a pager that writes its pid and its environment to files, and then runs `what`.
fn named(what: &str) -> String {
    format!("echo $$ > pager.pid; env > environment; {what}")
}

/// Contents of a file in the directory of the terminal.
fn text(terminal: &Terminal, name: &str) -> String {
    fs::read_to_string(terminal.path(name)).unwrap_or_default()
}

fn is_gone(pid: &str) -> bool {
    !PathBuf::from(format!("/proc/{}", pid.trim())).exists()
}

/// Children of a process.
fn children(pid: u32) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

fn has_less(test: &str) -> bool {
    let has = Command::new("less").arg("--version").output().is_ok();
    if !has {
        skip(test, "needs less");
    }
    has
}

#[test]
fn less_shows_what_is_longer_than_the_screen() {
    let name = "less_shows_what_is_longer_than_the_screen";
    if !tmux_installed(name) || !has_less(name) {
        return;
    }
    let terminal = run(LOW, &["report", "--verbose", "-i", "RECORDING"], &[]);
    let first = terminal.wait("the prompt of less", |screen| screen.last().is_some_and(|line| line == ":"));
    assert!(first.iter().any(|line| line.starts_with("# cpu-clock")), "{first:?}");
    assert!(terminal.screen_with_colors().contains("\u{1b}["), "colours are kept");
    let pager = children(terminal.pid());
    assert_eq!(pager.len(), 1, "{pager:?}");
    let command = fs::read_to_string(format!("/proc/{}/comm", pager[0])).unwrap();
    assert_eq!(command.trim(), "less");
    terminal.keys(&["G"]);
    terminal.wait("the end", |screen| screen.iter().any(|line| line.contains("101,416 bytes")));
    terminal.keys(&["q"]);
    assert_eq!(terminal.end(), 0);
    assert!(is_gone(&pager[0]));
}

/// Like git, bprec always starts less, which ends by itself if the table fits on the screen.
#[test]
fn less_ends_by_itself_below_a_table_that_fits() {
    let name = "less_ends_by_itself_below_a_table_that_fits";
    if !tmux_installed(name) || !has_less(name) {
        return;
    }
    let terminal = run(HIGH, &["report", "-i", "RECORDING"], &[]);
    assert_eq!(terminal.end(), 0);
    let screen = terminal.screen().join("\n");
    assert!(screen.contains("101,416 bytes"), "{screen}");
}

#[test]
fn there_is_no_pager_for_who_wants_none() {
    if !tmux_installed("there_is_no_pager_for_who_wants_none") {
        return;
    }
    let pager = named("exec cat");
    let arguments = ["report", "-i", "RECORDING"];
    for (arguments, variables) in [
        (&["report", "--no-pager", "-i", "RECORDING"][..], &[("BPREC_PAGER", &pager[..])][..]),
        (&arguments, &[("PAGER", &pager), ("BPREC_PAGER", "")]),
        (&arguments, &[("PAGER", &pager), ("BPREC_PAGER", "cat")]),
        (&arguments, &[("PAGER", &pager), ("TERM", "dumb")]),
    ] {
        let terminal = run(LOW, arguments, variables);
        assert_eq!(terminal.end(), 0);
        let screen = terminal.screen().join("\n");
        assert!(screen.contains("101,416 bytes"), "{variables:?}: {screen}");
        assert_eq!(text(&terminal, "pager.pid"), "", "{variables:?}");
    }
    let piped = succeed(bprec().args(["report", "-i", &recording()]).env("BPREC_PAGER", "touch never"));
    assert!(String::from_utf8(piped.stdout).unwrap().contains("101,416 bytes") && !Path::new("never").exists());
}

/// A pager gets the whole text and the colours of every command with tables.
#[test]
fn a_pager_gets_all_that_is_printed() {
    if !tmux_installed("a_pager_gets_all_that_is_printed") {
        return;
    }
    let pager = named("cat > shown");
    for arguments in [
        &["report", "-i", "RECORDING"][..],
        &["report", "--header", "--tree", "-i", "RECORDING"],
        &["report", "--maps", "-i", "RECORDING"],
        &["report", "--json", "-i", "RECORDING"],
        &["annotate", "account_syscall_enter", "-i", "RECORDING"],
        &["diff", "RECORDING", "RECORDING"],
        // This output is larger than the buffer of a pipe.
        &["script", "-i", "RECORDING"],
    ] {
        let terminal = run(LOW, arguments, &[("BPREC_PAGER", "exit 3"), ("PAGER", "touch shown")]);
        assert_eq!(
            (terminal.end(), text(&terminal, "shown")),
            (0, String::new()),
            "{arguments:?}: the pager exits immediately"
        );

        let terminal = run(LOW, arguments, &[("PAGER", &pager)]);
        assert_eq!(terminal.end(), 0, "{arguments:?}");
        let shown = text(&terminal, "shown");
        let arguments: Vec<String> = arguments.iter().map(|it| it.replace("RECORDING", &recording())).collect();
        let mut printed = bprec();
        printed.args(&arguments).env("COLUMNS", LOW.0.to_string());
        if !matches!(&arguments[0][..], "script") && !arguments.contains(&"--json".to_owned()) {
            printed.args(["--color", "always"]);
        }
        if arguments[0] == "report" && arguments.len() == 3 {
            printed.arg("--legend");
        }
        let printed = String::from_utf8(succeed(&mut printed).stdout).unwrap();
        assert_eq!(shown, printed, "{arguments:?}");
        assert!(text(&terminal, "environment").lines().any(|line| line == "LESS=FRX"));
    }
}

#[test]
fn the_exit_code_stays_when_the_pager_is_left() {
    if !tmux_installed("the_exit_code_stays_when_the_pager_is_left") {
        return;
    }
    let pager = named("head -n 1 > shown");
    let gate = ["diff", "--strict", "--fail-if", "prog:account_* time/run -99%", "RECORDING", "RECORDING"];
    for (arguments, code) in [
        (&gate[..], 1),
        (&["report", "-i", "RECORDING"], 0),
        (&["script", "-i", "RECORDING"], 0),
        (&["report", "--tree", "--header", "--prog", "nothing", "-i", "RECORDING"], 1),
    ] {
        let terminal = run(LOW, arguments, &[("BPREC_PAGER", &pager)]);
        assert_eq!(terminal.end(), code, "{arguments:?}: {:?}", terminal.screen());
        assert_eq!(text(&terminal, "shown").lines().count(), 1, "{arguments:?}");
        assert!(is_gone(&text(&terminal, "pager.pid")));
    }
}

#[test]
fn without_its_pager_a_table_is_printed() {
    if !tmux_installed("without_its_pager_a_table_is_printed") {
        return;
    }
    for pager in ["there-is-no-such-program", "there-is-no-such-program -R", "/dev/null"] {
        for arguments in [&["report", "-i", "RECORDING"][..], &["script", "-i", "RECORDING"]] {
            let terminal = run(LOW, arguments, &[("BPREC_PAGER", pager)]);
            assert_eq!(terminal.end(), 0, "{pager}");
            let arguments: Vec<String> = arguments.iter().map(|it| it.replace("RECORDING", &recording())).collect();
            let printed = succeed(bprec().args(&arguments).env("COLUMNS", LOW.0.to_string()));
            let printed = String::from_utf8(printed.stdout).unwrap();
            let last = printed.lines().last().unwrap();
            let is_there = |screen: &[String]| screen.iter().any(|line| line.contains(last.trim_end()));
            terminal.wait("the last line", is_there);
        }
    }
}

/// Once the pager shows output, only the pager handles an interrupt. The pager ends with its command.
#[test]
fn an_interrupt_leaves_nothing() {
    if !tmux_installed("an_interrupt_leaves_nothing") {
        return;
    }
    let pager = named("cat > shown; while [ ! -e go ]; do sleep 0.05; done");
    let terminal = run(LOW, &["report", "-i", "RECORDING"], &[("BPREC_PAGER", &pager)]);
    let pid = wait_for("the pager", || Some(text(&terminal, "pager.pid")).filter(|pid| pid.ends_with('\n')));
    wait_for("all of the table", || text(&terminal, "shown").contains("101,416 bytes").then_some(()));
    terminal.signal("-INT");
    fs::write(terminal.path("go"), "").unwrap();
    assert_eq!(terminal.end(), 0);
    assert!(is_gone(&pid));

    let fifo = support::Scratch::new();
    let path = fifo.path("fifo");
    succeed(Command::new("mkfifo").arg(&path));
    let terminal = run(LOW, &["report", "-i", path.to_str().unwrap()], &[("BPREC_PAGER", &named("cat"))]);
    let pid = wait_for("the pager", || Some(text(&terminal, "pager.pid")).filter(|pid| pid.ends_with('\n')));
    terminal.signal("-KILL");
    assert_eq!(terminal.end(), 137);
    wait_for("the end of the pager", || is_gone(&pid).then_some(()));
}

/// If sudo allows a user to run only bprec as another user, less must not start other programs.
#[test]
fn less_is_confined_when_another_user_asks() {
    if !tmux_installed("less_is_confined_when_another_user_asks") {
        return;
    }
    let pager = named("cat > shown");
    let own = succeed(Command::new("id").arg("-u"));
    let own = String::from_utf8(own.stdout).unwrap();
    for (variable, is_secure) in [
        (("SUDO_UID", "4242"), true),
        (("PKEXEC_UID", "4242"), true),
        (("DOAS_USER", "somebody"), true),
        (("SUDO_UID", own.trim()), false),
        (("LESS", "R"), false),
    ] {
        let terminal = run(LOW, &["report", "-i", "RECORDING"], &[("BPREC_PAGER", &pager), variable]);
        assert_eq!(terminal.end(), 0);
        let environment = text(&terminal, "environment");
        let has = |line: &str| environment.lines().any(|there| there == line);
        assert_eq!(has("LESSSECURE=1"), is_secure, "{variable:?}");
        assert_eq!(has("LESS=R"), variable.0 == "LESS", "{variable:?}");
    }
}
