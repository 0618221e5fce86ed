//! Examples in README and docs: blocks, and command lines in blocks and in the text. `documents.rs` or `documented_live.rs` runs each of them, or
//! lists the test that checks it instead.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::error::ErrorKind;

pub(crate) fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// README, SECURITY and docs: the path from the repository's root, and the text.
pub(crate) fn documents() -> Vec<(String, String)> {
    let of_docs = fs::read_dir(sources().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let of_docs = of_docs.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".md"));
    let mut paths: Vec<_> = of_docs.map(|name| format!("docs/{name}")).collect();
    paths.extend(["README.md", "SECURITY.md"].map(str::to_owned));
    paths.sort();
    paths
        .into_iter()
        .map(|path| (fs::read_to_string(sources().join(&path)).unwrap(), path))
        .map(|(a, b)| (b, a))
        .collect()
}

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) document: String,
    pub(crate) kind: String,
    pub(crate) lines: Vec<String>,
}

impl Block {
    pub(crate) fn first(&self) -> &str {
        &self.lines[0]
    }

    /// True if the command reads a recording of the fixtures, so that its whole output can be compared.
    pub(crate) fn reads_a_fixture(&self) -> bool {
        self.kind == "console" && self.first().starts_with("$ ") && self.first().contains("fixtures/recordings/")
    }

    /// True if all lines are command lines of `bprec`.
    pub(crate) fn is_of_commands(&self) -> bool {
        self.kind == "sh" && self.lines.iter().all(|line| line.starts_with("bprec "))
    }
}

/// The fenced blocks of a document.
pub(crate) fn blocks(document: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let lines = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect();
            blocks.push(Block { document: document.to_owned(), kind: kind.to_owned(), lines });
        }
    }
    blocks
}

/// The blocks of all documents.
pub(crate) fn all_blocks() -> Vec<Block> {
    documents().iter().flat_map(|(document, text)| blocks(document, text)).collect()
}

/// The command lines of `bprec` in blocks, and those between backticks in the text.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in blocks("", text) {
        let prompt: &[&str] = if block.kind == "console" { &["$ ", "# "] } else { &[""] };
        let typed = block.lines.iter().filter_map(|line| prompt.iter().find_map(|prompt| line.strip_prefix(prompt)));
        commands.extend(typed.filter(|line| line.starts_with("bprec ")).map(str::to_owned));
    }
    // Every second piece is between backticks; the three backticks of a block do not change this order.
    let inline = text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
    commands.extend(inline.filter(|code| code.starts_with("bprec ") && !code.contains(['…', '|'])).map(str::to_owned));
    commands
}

/// The words into which a shell splits a command.
pub(crate) fn words(command: &str) -> Vec<String> {
    let script = format!("bprec() {{ printf '%s\\n' bprec \"$@\"; }}\n{command}");
    let output = Command::new("/bin/sh").args(["-fc", &script]).env("PATH", "").output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns true for clap's error about a command line that lacks a required value.
pub(crate) fn lacks_a_value(error: &clap::Error) -> bool {
    match error.kind() {
        ErrorKind::MissingRequiredArgument => true,
        ErrorKind::InvalidValue => error.to_string().contains("none was supplied"),
        _ => false,
    }
}

/// All complete command lines of the documents with a chosen subcommand, without duplicates.
pub(crate) fn complete_commands(is_chosen: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let commands = documents().into_iter().flat_map(|(_, text)| commands(&text));
    let commands = commands.map(|line| line.split(" # ").next().unwrap().trim_end().to_owned());
    let is_complete = |line: &String| {
        let words = words(line);
        let parsed = bprec::command().try_get_matches_from(&words);
        let lacks = parsed.err().is_some_and(|error| lacks_a_value(&error));
        words.len() > 1 && is_chosen(&words[1]) && !lacks
    };
    commands.filter(is_complete).collect()
}

/// A directory in which the tests run the commands of the documents.
pub(crate) struct Desk(tempfile::TempDir);

impl Desk {
    pub(crate) fn new() -> Desk {
        let desk = Desk(tempfile::tempdir().unwrap());
        fs::create_dir(desk.path("bin")).unwrap();
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a shell script as a command, in front of the search path.
    pub(crate) fn add_program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A shell that runs this command line in the directory of the desk.
    pub(crate) fn shell(&self, command: &str) -> Command {
        let mut shell = self.shell_in(self.0.path(), command);
        shell.stdin(Stdio::null());
        shell
    }

    /// A shell that runs this command line in another directory.
    pub(crate) fn shell_in(&self, directory: &Path, command: &str) -> Command {
        let bprec = Path::new(env!("CARGO_BIN_EXE_bprec")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).env_remove("COLUMNS").current_dir(directory);
        shell.env("PATH", format!("{}:{}:{path}", self.path("bin").display(), bprec.display()));
        shell
    }
}
