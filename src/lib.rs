//! `bprec`: what each BPF program costs, who pays for it, and why.
//!
//! Each command converts its options into calls of `bprec-record` or `bprec-report`, and the result into an exit code. 0 is success and 2 is an
//! error; `Outcome` lists the reasons for 1. `record` and `stat` pass on the exit code of the command that they run. A closed pipe on standard output
//! is no error.

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
mod report;
mod rewrite;
mod sandbox;
#[cfg(all(feature = "tui", unix))]
mod screen;
mod script;
mod terminal;
mod values;
mod view;

#[cfg(all(feature = "record", target_os = "linux"))]
mod record;
#[cfg(all(feature = "record", target_os = "linux"))]
mod stat;
#[cfg(all(test, feature = "record", target_os = "linux"))]
mod tests;
#[cfg(all(feature = "record", target_os = "linux"))]
mod top;

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
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
    /// Exit code 1: nothing matched the options, or `doctor` found that this machine cannot record.
    NothingMatched,
    /// Exit code 1: a condition of `diff --fail-if` failed, or was undecided with `--strict`.
    ConditionMet,
    /// Exit code of the command that `record` or `stat` ran.
    #[cfg(all(feature = "record", target_os = "linux"))]
    Command(u8),
}

/// Converts a finding into the outcome; prints `missing` if nothing was found.
fn found(is_found: bool, missing: &str) -> Outcome {
    if is_found {
        return Outcome::Done;
    }
    say(missing);
    Outcome::NothingMatched
}

/// Returns all subcommands with their options: the source of the help, the manual pages and the shell completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs `bprec` with the arguments of the process and returns its exit code.
pub fn main() -> ExitCode {
    let Cli { command, global } = match parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(mut error) => {
            // Removes clap's advice to pass an unknown option on to the recorded command.
            error.remove(ContextKind::Suggested);
            // Keeps only the most similar name: clap sorts the names by similarity, the most similar last.
            if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
                let best = names.iter().rev().take(1).cloned().collect();
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(best));
            }
            let code = if error.use_stderr() { 2 } else { 0 };
            // Ignores write errors: if standard error is closed, the exit code alone reports the error.
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
        Err(error) if cause::<io::Error>(&error).is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let remedy = remedy(&error).map(|remedy| format!("; {remedy}")).unwrap_or_default();
            say(&format!("bprec: {}{remedy}", message(&error)));
            let is_no_match = cause(&error).is_some_and(bprec_report::Error::is_no_match);
            ExitCode::from(if is_no_match { 1 } else { 2 })
        }
    }
}

/// Parses arguments. Like perf, accepts optional values without `=`, and a compression level directly after `-z` (`-z3`); clap alone accepts only
/// `-z=3`. Ignores perf's options for behavior that bprec always has.
///
/// Changes `-z3` to `-z=3` only if clap has refused the arguments: among the arguments of the recorded command, `-z3` is an option of that command.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut args = with_values(args);
    loop {
        let refused = match Cli::try_parse_from(&args) {
            Err(refused) if refused.use_stderr() => refused,
            parsed => match parsed.as_ref().map_or(Ok(None), |cli| option_before_value(&args, cli))? {
                Some(at) => {
                    let value = args.remove(at + 1);
                    args[at].push("=");
                    args[at].push(value);
                    continue;
                }
                None => return parsed,
            },
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

/// Joins an option with an optional value and the next argument if [`is_value`] accepts that argument: `--payers cgroup` becomes
/// `--payers=cgroup`. Does not change the arguments of `record` and `stat`.
fn with_values(args: Vec<OsString>) -> Vec<OsString> {
    if matches!(subcommand(&args), Some("record" | "stat")) {
        return args;
    }
    let mut joined = Vec::<OsString>::with_capacity(args.len());
    for arg in args {
        match joined.last_mut().filter(|option| is_value(option, &arg)) {
            Some(option) => {
                option.push("=");
                option.push(arg);
            }
            None => joined.push(arg),
        }
    }
    joined
}

/// Returns true if `arg` is the value of `option`, false if it is the next argument, such as a recording. `arg` is a value if it has the form of a
/// value, or if it is neither an option nor the name of a file.
fn is_value(option: &OsStr, arg: &OsStr) -> bool {
    let text = arg.to_string_lossy();
    match option.to_str() {
        Some("--redact") => text.starts_with('+'),
        Some("--payers") if text.split(',').all(|key| key.parse::<bprec_report::Payer>().is_ok()) => true,
        Some("--over-time") if values::time_with_unit(&text).is_ok() => true,
        Some("--over-time" | "--payers" | "--bill" | "--maps") => !text.starts_with('-') && !Path::new(arg).exists(),
        _ => false,
    }
}

/// Position of the last option before the command of `record`, if its value was taken for the first word of the command: `--switch-output 100M true`.
/// `None` if that word is not a value of the option, and for other subcommands. Fails if the word can be both a value and a command.
#[cfg_attr(not(all(feature = "record", target_os = "linux")), allow(unused_variables, reason = "no command to run"))]
fn option_before_value(args: &[OsString], cli: &Cli) -> Result<Option<usize>, clap::Error> {
    #[cfg(all(feature = "record", target_os = "linux"))]
    if let Command::Record(record) = &cli.command
        && let Some(at) = record.command_at(args.len()).and_then(|at| at.checked_sub(1))
        && let Some([option, word, ..]) = args.get(at..)
        && let (Some(option), Some(word)) = (option.to_str(), word.to_str())
    {
        return record::is_value(option, word).map(|is_value| is_value.then_some(at));
    }
    Ok(None)
}

/// Name of the subcommand among the arguments; global options may precede it.
fn subcommand(args: &[OsString]) -> Option<&str> {
    let commands = command();
    args.iter().skip(1).filter_map(|arg| arg.to_str()).find(|arg| commands.find_subcommand(arg).is_some())
}

/// Removes the option and its value from the reporter's part of an error, because clap's part already names both.
fn without_repetition(refused: clap::Error) -> clap::Error {
    match refused.source().and_then(|source| source.downcast_ref::<bprec_report::Error>()) {
        Some(error @ bprec_report::Error::Option { problem, .. }) => {
            let text = refused.to_string().replace(&error.to_string(), problem);
            clap::Error::raw(refused.kind(), text.trim_start_matches("error: "))
        }
        _ => refused,
    }
}

/// Option that clap refused, as typed, with its row in docs/perf.md. `None` if the error is not about an unknown option, if the table does not have
/// the option, or if bprec has the option with the same meaning.
fn perf_option(args: &[OsString], refused: &clap::Error) -> Option<(String, PerfOption)> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) =
        (refused.kind(), refused.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let option = perf_options::perf_option(subcommand(args)?, given)?;
    // bprec has the option, too: clap refused the option for another reason.
    (option.here != Here::Same).then(|| (given.clone(), option))
}

/// Error for an option that perf has and bprec lacks. The text names the alternative.
fn refusal(args: &[OsString], given: &str, option: &PerfOption) -> clap::Error {
    let command = subcommand(args).unwrap_or_default();
    let long = option.long.filter(|long| !given.ends_with(long)).map(|long| format!(" (--{long})")).unwrap_or_default();
    let remark = match option.here {
        Here::Always => "bprec always does this; omit the option",
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

/// Remedy for an error, as a clause that follows its message.
fn remedy(error: &anyhow::Error) -> Option<String> {
    let of_reading = cause::<bprec_report::Error>(error).and_then(bprec_report::Error::remedy);
    #[cfg(all(feature = "record", target_os = "linux"))]
    let of_reading = of_reading.or_else(|| cause::<bprec_record::Error>(error)?.remedy().map(str::to_owned));
    let answer = cause::<io::Error>(error);
    #[cfg(all(feature = "record", target_os = "linux"))]
    let answer = answer.or_else(|| cause::<bprec_record::Error>(error)?.file_answer());
    of_reading.or_else(|| match answer?.kind() {
        io::ErrorKind::NotFound => Some("check the path: its directory must exist".to_owned()),
        io::ErrorKind::PermissionDenied => Some("choose a directory that you can write to".to_owned()),
        io::ErrorKind::StorageFull => Some("free space on the disk, or write to another disk".to_owned()),
        _ => None,
    })
}

/// First error of type `E` in the chain of an error and its causes.
fn cause<E: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&E> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// Prints lines on standard error and escapes control characters in them. Ignores write errors.
fn say(text: &str) {
    let mut out = io::stderr().lock();
    text.lines().for_each(|line| drop(writeln!(out, "{}", bprec_report::printable(line))));
}
