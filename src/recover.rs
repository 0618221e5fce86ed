//! `bprec recover`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bprec_report::{RewriteOptions, Source, rewrite};

use crate::draft::Draft;
use crate::rewrite::tell;
use crate::{Outcome, say};

/// Make a recording that was cut off or damaged whole again, so that any perf opens it. Any recorder's will do.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it; the recording itself when not given. An existing file is kept as NAME.old.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The recording.
    file: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    #[cfg(all(feature = "record", target_os = "linux"))]
    if args.output.is_none() && crate::record::mend(&args.file)? {
        return Ok(Outcome::Done);
    }
    let file: &Path = &args.file;
    let mut source = Source::open(file)?;
    let mut draft = Draft::create(args.output.as_deref().unwrap_or(file))?;
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let summary = rewrite(&mut source, &options, &mut draft.file)?;
    let is_whole = summary.problems.is_empty() && summary.dropped.is_empty();
    match &args.output {
        None if is_whole => {
            say(&format!("bprec: {} is whole; nothing to do", file.display()));
            return Ok(Outcome::Done);
        }
        None => draft.replace()?,
        Some(_) => draft.take_over()?,
    }
    tell(file, &summary);
    let result = args.output.as_deref().unwrap_or(file).display();
    say(&format!("bprec: {result} is whole: {} records, {} samples", summary.records, summary.samples));
    Ok(Outcome::Done)
}
