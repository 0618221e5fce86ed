//! `bprec`: what each BPF program costs, who pays for it, and why.
//!
//! Each command converts its options into one call of `bprec-record` or `bprec-report`, and the result into an exit code: 0 is success, 1 means
//! that nothing matched or that a condition of `diff` was met, 2 is an error. `record` and `stat` pass on the exit code of the command that they
//! run. A closed pipe on standard output is no error.

mod annotate;
mod args;
mod completions;
mod diff;
#[cfg(all(feature = "record", target_os = "linux"))]
mod doctor;
mod draft;
mod export;
mod opening;
mod pager;
mod perf_options;
mod progress;
mod recover;
mod remedy;
mod report;
mod rewrite;
mod sandbox;
#[cfg(all(feature = "tui", unix))]
mod screen;
mod script;
mod terminal;
mod view;

#[cfg(all(feature = "record", target_os = "linux"))]
mod record;
#[cfg(all(feature = "record", target_os = "linux"))]
mod stat;
#[cfg(all(feature = "record", target_os = "linux"))]
mod top;

use std::error::Error as _;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

pub use perf_options::{Here, PerfOption, perf_options};
use terminal::GlobalArgs;

/// Reports the cost of each BPF program, who pays for it, and why.
#[derive(Parser)]
#[command(name = "bprec", version, max_term_width = 120, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(all(feature = "record", target_os = "linux"))]
    Record(Box<record::Args>),
    #[cfg(all(feature = "record", target_os = "linux"))]
    Stat(Box<stat::Args>),
    #[cfg(all(feature = "record", target_os = "linux"))]
    Top(Box<top::Args>),
    Report(Box<report::Args>),
    Diff(Box<diff::Args>),
    Annotate(Box<annotate::Args>),
    Script(Box<script::Args>),
    Export(Box<export::Args>),
    Rewrite(Box<rewrite::Args>),
    Recover(recover::Args),
    Completions(completions::Args),
    #[cfg(all(feature = "record", target_os = "linux"))]
    Doctor(doctor::Args),
}

/// Result of a command that ended without an error.
enum Outcome {
    Done,
    NothingMatched,
    /// A condition of a comparison was met.
    ConditionMet,
    /// Exit code of the command that `record` or `stat` ran.
    #[cfg(all(feature = "record", target_os = "linux"))]
    Command(u8),
}

/// Returns all subcommands with their options: the source of the help, the manual pages and the shell completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the arguments of the process and returns its exit code.
pub fn main() -> ExitCode {
    let Cli { command, global } = match parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(mut error) => {
            // clap suggests to pass the unknown option on to the recorded command.
            error.remove(ContextKind::Suggested);
            // clap sorts the most similar name last.
            if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
                let best = names.iter().rev().take(1).cloned().collect();
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(best));
            }
            let code = if error.use_stderr() { 2 } else { 0 };
            // Standard error is closed: the exit code alone reports the error.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    global.apply();
    let result = match command {
        #[cfg(all(feature = "record", target_os = "linux"))]
        Command::Record(args) => record::run(*args),
        #[cfg(all(feature = "record", target_os = "linux"))]
        Command::Stat(args) => stat::run(*args),
        #[cfg(all(feature = "record", target_os = "linux"))]
        Command::Top(args) => top::run(*args),
        Command::Report(args) => report::run(*args),
        Command::Diff(args) => diff::run(*args),
        Command::Annotate(args) => annotate::run(*args),
        Command::Script(args) => script::run(*args),
        Command::Export(args) => export::run(*args),
        Command::Rewrite(args) => rewrite::run(*args),
        Command::Recover(args) => recover::run(args),
        Command::Completions(args) => completions::run(&args),
        #[cfg(all(feature = "record", target_os = "linux"))]
        Command::Doctor(args) => doctor::run(args),
    };
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::NothingMatched | Outcome::ConditionMet) => ExitCode::from(1),
        #[cfg(all(feature = "record", target_os = "linux"))]
        Ok(Outcome::Command(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let remedy = remedy::remedy(&error).map(|remedy| format!("; {remedy}")).unwrap_or_default();
            say(&format!("bprec: {}{remedy}", message(&error)));
            ExitCode::from(2)
        }
    }
}

/// Parses arguments. Accepts a compression level directly after `-z`, as perf does (`-z3`); clap alone accepts only `-z=3`. Ignores perf's options
/// that ask for a default of bprec.
///
/// Changes arguments only after clap has refused them, because `-z3` after the recorded command belongs to that command.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut args = with_values(args);
    loop {
        let refused = match Cli::try_parse_from(&args) {
            Err(refused) if refused.use_stderr() => refused,
            parsed => return parsed,
        };
        if let Some((given, option)) = perf_option(&args, &refused) {
            match args.iter().position(|arg| arg.to_str() == Some(&given)) {
                Some(at) if option.here == Here::Always => {
                    args.remove(at);
                    continue;
                }
                _ => return Err(refusal(&args, &given, &option)),
            }
        }
        let levels = args.iter_mut().filter_map(|arg| Some((arg.to_str()?.strip_prefix("-z")?.to_owned(), arg)));
        let is_level = |level: &str| !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
        let mut levels = levels.filter(|(level, _)| is_level(level));
        let Some((level, arg)) = levels.next() else { return Err(without_repetition(refused)) };
        *arg = format!("-z={level}").into();
    }
}

/// Options of views with an optional value: the next argument is either this value or the recording.
const VALUE_OR_RECORDING: [&str; 3] = ["--over-time", "--payers", "--maps"];

/// Joins an option with an optional value and the next argument, unless the argument is an option or a file: `--payers cgroup` becomes
/// `--payers=cgroup`.
fn with_values(args: Vec<OsString>) -> Vec<OsString> {
    if subcommand(&args) != Some("report") {
        return args;
    }
    let mut joined = Vec::<OsString>::with_capacity(args.len());
    for arg in args {
        let is_value = !arg.as_encoded_bytes().starts_with(b"-") && !Path::new(&arg).exists();
        match joined.last_mut().filter(|before| is_value && VALUE_OR_RECORDING.iter().any(|option| *before == option)) {
            Some(option) => {
                option.push("=");
                option.push(arg);
            }
            None => joined.push(arg),
        }
    }
    joined
}

/// Name of the subcommand among the arguments; global options may precede it.
fn subcommand(args: &[OsString]) -> Option<&str> {
    let commands = command();
    args.iter().skip(1).filter_map(|arg| arg.to_str()).find(|arg| commands.find_subcommand(arg).is_some())
}

/// Removes clap's prefix from an error of the reporter, which already names the option and its value.
fn without_repetition(refused: clap::Error) -> clap::Error {
    match refused.source().and_then(|source| source.downcast_ref::<bprec_report::Error>()) {
        Some(error @ bprec_report::Error::Option { .. }) => clap::Error::raw(refused.kind(), format!("{error}\n")),
        _ => refused,
    }
}

/// The refused option as typed, with its row in the table of perf's options; `None` if perf does not have the option.
fn perf_option(args: &[OsString], refused: &clap::Error) -> Option<(String, PerfOption)> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) =
        (refused.kind(), refused.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let option = perf_options::perf_option(subcommand(args)?, given)?;
    // An option that bprec has, too, was refused for another reason.
    (option.here != Here::Same).then(|| (given.clone(), option))
}

/// Error for an option that perf has and bprec does not, with the alternative.
fn refusal(args: &[OsString], given: &str, option: &PerfOption) -> clap::Error {
    let command = subcommand(args).unwrap_or_default();
    let long = option.long.filter(|long| !given.ends_with(long)).map(|long| format!(" (--{long})")).unwrap_or_default();
    let remark = match option.here {
        Here::Always => "this is always done; leave it out",
        _ => option.remark,
    };
    let message = format!(
        "bprec {command} does not have perf's {given}{long}: {remark}; docs/perf.md lists all of perf's options\n"
    );
    clap::Error::raw(ErrorKind::UnknownArgument, message)
}

/// Text of an error and its causes, without causes that the text already contains.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| match &message[..] {
        "" => cause,
        _ if message.contains(&cause) => message,
        _ => format!("{message}: {cause}"),
    })
}

/// Prints lines on standard error and escapes control characters in them. Ignores write errors.
fn say(text: &str) {
    let mut out = io::stderr().lock();
    text.lines().for_each(|line| drop(writeln!(out, "{}", bprec_report::printable(line))));
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(all(test, feature = "record", target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn parsed(line: &str) -> Result<record::Args, String> {
        match parse(line.split(' ').map(OsString::from).collect()) {
            Ok(Cli { command: Command::Record(args), .. }) => Ok(*args),
            Ok(_) => Err("another subcommand".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_level_of_compression_may_follow_at_once() {
        let level = |line: &str| parsed(line).map(|args| args.compression_level);
        for line in [
            "bprec record -z3",
            "bprec record -z=3",
            "bprec record -a -z1 -z3 -- gzip -z9",
            "bprec record -z3 gzip -z9",
        ] {
            assert_eq!(level(line), Ok(Some(3)), "{line}");
        }
        assert_eq!(level("bprec record -z22"), Ok(Some(22)));
        assert_eq!(level("bprec record -z sleep 3"), Ok(Some(1)), "the next word is the command");
        assert_eq!(level("bprec record gzip -z9"), Ok(None), "an option of the command");
        assert!(level("bprec record -z23").unwrap_err().contains("23 is not in 1..=22"));
        assert!(level("bprec record --bad gzip -z9").unwrap_err().contains("'--bad'"));
        assert!(level("bprec record -z3x").is_err() && level("bprec report -z3").is_err());
    }
}
