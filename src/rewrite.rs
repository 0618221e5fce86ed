//! `bprec rewrite`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use bprec_report::{RewriteOptions, RewriteSummary, rewrite};

use crate::args::{InputArgs, PartArgs, ProgArgs};
use crate::draft::{Draft, Older};
use crate::opening::{RedactArgs, open_source};
use crate::progress::with_progress_of;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};
use crate::terminal::notice;
use crate::{Outcome, found, say};

/// Convert a recording, or selected samples of it, to one ordinary perf.data file.
///
/// Reads files of either byte order, pipes, directories and compressed recordings. Writes a plain, seekable, uncompressed file
/// with the same contents. Options leave samples out: --prog keeps samples in the selected programs, in code that they
/// called, and in code that runs them. Facts about the machine and its programs stay, so that reports of the
/// remaining samples are complete.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// Write to FILE. An existing file is kept as NAME.old.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    select: ProgArgs,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    redact: RedactArgs,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let options = RewriteOptions {
        repair: false,
        cpus: args.part.cpu,
        time: args.part.time.unwrap_or_default(),
        comms: args.part.comms,
        programs: args.select.prog,
        redact: args.redact.redact,
    };
    let sandbox = Sandbox::enter(&args.sandbox, Purpose::Write(&args.output));
    let path = args.input.path();
    let mut source = open_source(path)?;
    let mut draft = Draft::create(&args.output)?;
    sandbox.seal(true);
    let progress = Arc::clone(source.progress());
    let summary = with_progress_of(&[(path, &progress)], || rewrite(&mut source, &options, &mut draft.file))?;
    print_problems(path, &summary);
    if summary.samples == 0 && summary.filtered > 0 {
        let missing = format!("bprec: {}: no sample matches the options: nothing is written", path.display());
        return Ok(found(false, &missing));
    }
    draft.persist(Older::Replaced)?;
    let left_out = match summary.filtered {
        0 => String::new(),
        filtered => format!(", {filtered} left out"),
    };
    let RewriteSummary { records, samples, .. } = summary;
    notice(&format!("bprec: {records} records, {samples} samples{left_out} -> {}", args.output.display()));
    Ok(Outcome::Done)
}

/// Prints the problems of the input, and the counts of dropped records, on standard error.
pub(crate) fn print_problems(input: &Path, summary: &RewriteSummary) {
    let input = input.display();
    summary.problems.iter().for_each(|problem| say(&format!("bprec: {input}: {problem}")));
    for (reason, count) in &summary.dropped {
        say(&format!("bprec: {input}: {count} records left out: {reason}"));
    }
}
