//! Commands that write data from recordings or counters: the output is complete, or the files stay as before the command. On standard output, the
//! output is complete up to the failed step.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bprec_format::File;

use super::power::lose_power_everywhere;
use super::{Case, Judge, Tried, scratch, with_older};
use crate::support::{bprec, root, succeed};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-6.1").join(name)
}

/// Copies a recording that was cut off, and its journal, into the directory.
fn cut_off(directory: &Path) {
    for suffix in ["", ".journal"] {
        fs::copy(fixture(&format!("cut-off.data{suffix}")), directory.join(format!("perf.data{suffix}"))).unwrap();
    }
}

/// Makes a recording in which the size of one record is 0.
fn damaged(directory: &Path) {
    let mut bytes = fs::read(fixture("ratio.data")).unwrap();
    let at = File::parse(&bytes).unwrap().records().nth(20).unwrap().unwrap().offset as usize;
    bytes[at + 6..at + 8].fill(0);
    fs::write(directory.join("perf.data"), bytes).unwrap();
}

/// A command that reads a recording, and the file that it writes.
#[derive(Clone, Copy)]
struct Reader {
    arguments: &'static [&'static str],
    input: Option<&'static str>,
    prepare: fn(&Path),
    output: &'static str,
    kind: Kind,
}

/// Way in which an output is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The output gets its name when it is complete.
    Named,
    /// The output is the repaired file itself.
    InPlace,
    /// The output is a redirection of standard output.
    Redirected,
}

const EXPORT: Reader = Reader {
    arguments: &["export", "--to", "folded", "-o"],
    input: Some("ratio.data"),
    prepare: with_older,
    output: "perf.data",
    kind: Kind::Named,
};

/// A command with several blocks of output.
const PRINT: Reader = Reader {
    arguments: &["script"],
    input: Some("ratio.data"),
    prepare: |_| {},
    output: "text",
    kind: Kind::Redirected,
};

const READERS: [Reader; 14] = [
    Reader { arguments: &["rewrite", "-o"], ..EXPORT },
    EXPORT,
    Reader { arguments: &["export", "--to", "pprof", "-o"], ..EXPORT },
    Reader { arguments: &["export", "--to", "firefox", "-o"], ..EXPORT },
    Reader { arguments: &["export", "--to", "speedscope", "-o"], ..EXPORT },
    Reader { arguments: &["export", "--to", "otlp", "-o"], ..EXPORT },
    Reader { arguments: &["export", "--to", "html", "-o"], ..EXPORT },
    PRINT,
    Reader { arguments: &["report", "--json"], ..PRINT },
    Reader { arguments: &["export", "--to", "pprof"], ..PRINT },
    Reader { arguments: &["annotate", "*", "--csv"], ..PRINT },
    Reader { arguments: &["recover"], input: None, prepare: cut_off, output: "perf.data.recovered", kind: Kind::Named },
    Reader {
        arguments: &["recover", "--in-place"],
        input: None,
        prepare: damaged,
        output: "perf.data",
        kind: Kind::Named,
    },
    Reader {
        arguments: &["recover", "--in-place"],
        input: None,
        prepare: cut_off,
        output: "perf.data",
        kind: Kind::InPlace,
    },
];

impl Reader {
    fn command(&self, directory: &Path) -> Command {
        let mut command = bprec();
        if self.kind == Kind::Redirected {
            let program = command.get_program().to_owned();
            command = Command::new("sh");
            command.args(["-c", "exec \"$@\" >\"$0\""]).arg(directory.join(self.output)).arg(program);
        }
        command.args(self.arguments);
        if self.kind != Kind::Redirected {
            command.arg(directory.join("perf.data"));
        }
        if let Some(input) = self.input {
            command.arg("-i").arg(fixture(input));
        }
        command
    }

    /// Returns the contents that the command writes, and files that must stay unchanged.
    fn expected(&self) -> (Vec<u8>, Vec<Vec<u8>>) {
        let directory = scratch();
        (self.prepare)(directory.path());
        let before = fs::read(directory.path().join("perf.data"));
        succeed(&mut self.command(directory.path()));
        let kept = if self.kind == Kind::Named { vec![before.unwrap()] } else { Vec::new() };
        (fs::read(directory.path().join(self.output)).unwrap(), kept)
    }

    /// True if the output of a command that failed may have these bytes.
    fn is_allowed(&self, bytes: &[u8], expected: &[u8], kept: &[Vec<u8>]) -> bool {
        match self.kind {
            Kind::Redirected => expected.starts_with(bytes),
            Kind::Named | Kind::InPlace => bytes == expected || kept.iter().any(|kept| kept == bytes),
        }
    }
}

/// The output of each reading command is complete, or the files stay as before the command; an interrupted repair in place can be repeated.
#[test]
fn a_reader_survives_a_disk_that_fails_at_any_step() {
    const NAME: &str = "a_reader_survives_a_disk_that_fails_at_any_step";
    if !root(NAME) {
        return;
    }
    let mut judge = Judge::default();
    let (mut steps, mut runs, mut wrong) = (0, 0, Vec::new());
    for reader in &READERS {
        let (expected, kept) = reader.expected();
        let is_written = |directory: &Path| match fs::read(directory.join(reader.output)) {
            Ok(bytes) if bytes == expected => Ok(()),
            other => Err(format!(
                "{} is neither absent, unchanged nor complete: {:?} bytes",
                reader.output,
                other.map(|bytes| bytes.len())
            )),
        };
        let at_last = |directory: &Path| match fs::read(directory.join(reader.output)) {
            _ if reader.kind == Kind::InPlace => {
                bprec_record::recover(&directory.join("perf.data")).map_err(|error| error.to_string())?;
                is_written(directory)
            }
            Ok(bytes) if !reader.is_allowed(&bytes, &expected, &kept) => is_written(directory),
            _ => Ok(()),
        };
        let case = Case {
            name: reader.arguments[0],
            prepare: &reader.prepare,
            program: &|directory| reader.command(directory),
            kept: kept.clone(),
            succeeded: &is_written,
            at_last: &at_last,
        };
        let (of_one, runs_of_one, wrong_of_one) = case.fail_everywhere(Tried::All, &mut judge);
        (steps, runs) = (steps + of_one, runs + runs_of_one);
        wrong.extend(wrong_of_one);
    }
    eprintln!("{steps} steps of {} commands, {runs} runs", READERS.len());
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_reader_survives_a_loss_of_power_at_any_step() {
    const NAME: &str = "a_reader_survives_a_loss_of_power_at_any_step";
    if !root(NAME) {
        return;
    }
    let (mut steps, mut states, mut wrong) = (0, 0, Vec::new());
    for reader in &READERS {
        let (expected, kept) = reader.expected();
        let (of_one, states_of_one) =
            lose_power_everywhere(&reader.prepare, &|it| reader.command(it), |about, _, left| {
                let about = format!("{:?}, {about}", reader.arguments);
                if kept.iter().any(|kept| !left.values().any(|bytes| bytes == kept)) {
                    wrong.push(format!("{about}: an earlier file is gone: {:?}", left.keys()));
                }
                let is_right = match (reader.kind, left.get(reader.output)) {
                    (Kind::InPlace, Some(_)) => {
                        let directory = scratch();
                        left.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
                        let path = directory.path().join(reader.output);
                        bprec_record::recover(&path).is_ok() && fs::read(&path).unwrap() == expected
                    }
                    (_, Some(bytes)) => reader.is_allowed(bytes, &expected, &kept),
                    (kind, None) => kind != Kind::InPlace,
                };
                if !is_right {
                    wrong.push(format!("{about}: {} is neither complete nor unchanged", reader.output));
                }
            });
        (steps, states) = (steps + of_one, states + states_of_one);
    }
    eprintln!("{steps} steps of {} commands, {states} states", READERS.len());
    assert!(wrong.is_empty(), "{} of {states}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Options of an output format of `stat`, and a check that a text in this format is complete.
type Format<'a> = (&'a [&'a str], &'a dyn Fn(&str) -> bool);

/// If counts cannot be written, the command fails.
#[test]
fn a_count_survives_a_disk_that_fails_at_any_step() {
    const NAME: &str = "a_count_survives_a_disk_that_fails_at_any_step";
    if !root(NAME) {
        return;
    }
    let is_json = |text: &str| text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
    let is_csv = |text: &str| text.lines().all(|line| line.split(',').any(|cell| cell == "page-faults"));
    let is_table = |text: &str| {
        text.contains("  page-faults ")
            && text.contains(" s elapsed\n")
            && text.contains(" s system time of the command\n")
    };
    let formats: [Format; 3] = [(&["-j"], &is_json), (&["-x,"], &is_csv), (&[], &is_table)];
    for (options, is_whole) in formats {
        let program = |directory: &Path| {
            let mut command = bprec();
            command
                .args(["stat", "--bpf-counters", "-e", "page-faults"])
                .args(options)
                .arg("-o")
                .arg(directory.join("counts"));
            command.args(["--", "true"]);
            command
        };
        let is_written = |directory: &Path| {
            let text = fs::read_to_string(directory.join("counts")).map_err(|error| error.to_string())?;
            let is_whole = text.ends_with('\n') && is_whole(&text);
            if is_whole { Ok(()) } else { Err(format!("counts are {text:?}")) }
        };
        let case = Case {
            name: "stat",
            prepare: &|_| {},
            program: &program,
            kept: Vec::new(),
            succeeded: &is_written,
            at_last: &|_| Ok(()),
        };
        let (steps, runs, wrong) = case.fail_everywhere(Tried::All, &mut Judge::default());
        eprintln!("{options:?}: {steps} steps, {runs} runs");
        assert!(wrong.is_empty(), "{options:?}, {} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
    }
}
