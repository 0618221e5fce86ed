//! `bprec`: what each BPF program costs, who pays for it, and why.
//!
//! Options become one call of `bprec-record` or `bprec-report`, and its result becomes an exit code: 0 done, 1 nothing
//! matched, 2 error; `record` and `stat` with a command have the command's. A reader that closes its end of a pipe early is no error.

mod draft;
mod export;
mod recover;
mod report;
mod rewrite;
mod sandbox;
mod script;

#[cfg(all(feature = "record", target_os = "linux"))]
mod record;
#[cfg(all(feature = "record", target_os = "linux"))]
mod stat;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

/// What each BPF program costs, who pays for it, and why.
#[derive(Parser)]
#[command(name = "bprec", version, max_term_width = 120, disable_help_subcommand = true)]
enum Command {
    #[cfg(all(feature = "record", target_os = "linux"))]
    Record(Box<record::Args>),
    #[cfg(all(feature = "record", target_os = "linux"))]
    Stat(Box<stat::Args>),
    Report(Box<report::Args>),
    Script(Box<script::Args>),
    Export(Box<export::Args>),
    Rewrite(Box<rewrite::Args>),
    Recover(recover::Args),
}

/// How a command ended, other than by an error.
enum Outcome {
    Done,
    NothingMatched,
    /// A command was run, and its exit code is ours.
    #[cfg(all(feature = "record", target_os = "linux"))]
    Command(u8),
}

fn main() -> ExitCode {
    let command = match parse(std::env::args_os().collect()) {
        Ok(command) => command,
        Err(mut error) => {
            // clap proposes to hand an option that it does not know to the command.
            error.remove(clap::error::ContextKind::Suggested);
            let code = if error.use_stderr() { 2 } else { 0 };
            // Nothing better can be done when even this cannot be printed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let result = match command {
        #[cfg(all(feature = "record", target_os = "linux"))]
        Command::Record(args) => record::run(*args),
        #[cfg(all(feature = "record", target_os = "linux"))]
        Command::Stat(args) => stat::run(*args),
        Command::Report(args) => report::run(*args),
        Command::Script(args) => script::run(*args),
        Command::Export(args) => export::run(*args),
        Command::Rewrite(args) => rewrite::run(*args),
        Command::Recover(args) => recover::run(args),
    };
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::NothingMatched) => ExitCode::from(1),
        #[cfg(all(feature = "record", target_os = "linux"))]
        Ok(Outcome::Command(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bprec: {}", message(&error)));
            ExitCode::from(2)
        }
    }
}

/// Parses arguments. A level of compression may follow `-z` as with perf (`-z3`), which clap takes only behind a `=`.
///
/// Only what is refused otherwise is read so: `-z3` behind a command is the command's.
fn parse(mut args: Vec<OsString>) -> Result<Command, clap::Error> {
    loop {
        let refused = match Command::try_parse_from(&args) {
            Err(refused) if refused.use_stderr() => refused,
            parsed => return parsed,
        };
        let levels = args.iter_mut().filter_map(|arg| Some((arg.to_str()?.strip_prefix("-z")?.to_owned(), arg)));
        let is_level = |level: &str| !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
        let mut levels = levels.filter(|(level, _)| is_level(level));
        let Some((level, arg)) = levels.next() else { return Err(refused) };
        *arg = format!("-z={level}").into();
    }
}

/// The error and what caused it, without causes that the error's own words tell already.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| match &message[..] {
        "" => cause,
        _ if message.contains(&cause) => message,
        _ => format!("{message}: {cause}"),
    })
}

/// A line on standard error, or several. That it cannot be written is nothing to fail for. Names of a recording may be in it.
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
            Ok(Command::Record(args)) => Ok(*args),
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
