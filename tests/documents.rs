//! What README and docs show is so: each command line is one that `bprec` takes, what is shown of a recording of the fixtures is what comes
//! out, and links lead somewhere.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::error::ErrorKind;

fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// README and docs, each with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let of_docs = fs::read_dir(sources().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = of_docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    paths.extend(["README.md", "SECURITY.md"].map(|name| sources().join(name)));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The fenced blocks of a document: their kind and lines.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            blocks.push((kind, lines.by_ref().take_while(|line| *line != "```").collect()));
        }
    }
    blocks
}

/// The commands in blocks, and those between backticks in the text.
fn commands(text: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    for (kind, lines) in blocks(text) {
        let prompt: &[&str] = if kind == "console" { &["$ ", "# "] } else { &[""] };
        let typed = lines.into_iter().filter_map(|line| prompt.iter().find_map(|prompt| line.strip_prefix(prompt)));
        commands.extend(typed.filter(|line| line.starts_with("bprec ")));
    }
    // Every other piece is between backticks; blocks have three in a row, so that they come out even.
    let inline = text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
    commands.extend(inline.filter(|code| code.starts_with("bprec ") && !code.contains(['…', '|'])));
    commands
}

/// The words that a shell makes of a command.
fn words(command: &str) -> Vec<String> {
    let script = format!("bprec() {{ printf '%s\\n' bprec \"$@\"; }}\n{command}");
    let output = Command::new("/bin/sh").args(["-fc", &script]).env("PATH", "").output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Whether a word stands for what a user puts there: `FORMAT`.
fn is_a_stand_in(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[test]
fn every_command_that_is_shown_is_one() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        for command in commands(&text) {
            let words = words(command);
            if words.len() < 2 {
                continue;
            }
            tried += 1;
            let Err(error) = bprec::command().try_get_matches_from(&words) else { continue };
            let is_fine = match error.kind() {
                // Named without all that it needs.
                ErrorKind::MissingRequiredArgument => true,
                ErrorKind::InvalidValue => error.to_string().contains("none was supplied"),
                ErrorKind::ValueValidation => words.iter().any(|word| is_a_stand_in(word)),
                _ => !error.use_stderr(),
            };
            if !is_fine {
                wrong.push(format!("{}: {command}: {error}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    assert!(tried > 60, "{tried}");
}

#[test]
fn what_is_shown_of_fixtures_is_what_comes_out() {
    let mut shown = 0;
    for (path, text) in documents() {
        for (_, lines) in blocks(&text).into_iter().filter(|(kind, _)| *kind == "console") {
            let is_command = |line: &&&str| line.starts_with("$ ") && line.contains("bprec ");
            let Some(command) = lines.first().filter(is_command).filter(|line| line.contains("fixtures/recordings/"))
            else {
                continue;
            };
            let bprec = Path::new(env!("CARGO_BIN_EXE_bprec")).parent().unwrap();
            let path_variable = format!("{}:{}", bprec.display(), std::env::var("PATH").unwrap());
            let output = Command::new("/bin/sh")
                .args(["-c", &command[2..]])
                .env("PATH", path_variable)
                .env_remove("COLUMNS")
                .current_dir(sources())
                .output()
                .unwrap();
            let expected = lines[1..].join("\n") + "\n";
            let printed = String::from_utf8(output.stdout).unwrap();
            assert!(printed == expected, "{}: {command} prints now:\n{printed}", path.display());
            shown += 1;
        }
    }
    assert!(shown > 0);
}

#[test]
fn links_lead_to_files() {
    for (path, text) in documents() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !link.starts_with("http") && !file.is_empty() {
                assert!(path.parent().unwrap().join(file).exists(), "{}: {link}", path.display());
            }
        }
    }
}
