//! `bprec recover`.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bprec_report::{RewriteOptions, RewriteSummary, Source, rewrite};

use crate::{Outcome, say};

/// Make a recording that was cut off or damaged whole again, so that any perf opens it. Any recorder's will do.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it; the recording itself when not given.
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
    let path = args.file.display();
    let target = args.output.clone().unwrap_or_else(|| beside(&args.file));
    let written = create(&target).with_context(|| format!("create {}", target.display()));
    let summary = match written.and_then(|mut out| write(&args.file, &mut out)) {
        Ok(summary) => summary,
        Err(error) => {
            // What is there is no recording.
            drop(fs::remove_file(&target));
            return Err(error);
        }
    };
    let is_whole = summary.problems.is_empty() && summary.dropped.is_empty();
    if args.output.is_none() && is_whole {
        drop(fs::remove_file(&target));
        say(&format!("bprec: {path} is whole; nothing to do"));
        return Ok(Outcome::Done);
    }
    if args.output.is_none() {
        fs::rename(&target, &args.file).with_context(|| format!("rename {} to {path}", target.display()))?;
    }
    summary.problems.iter().for_each(|problem| say(&format!("bprec: {path}: {problem}")));
    for (reason, count) in &summary.dropped {
        say(&format!("bprec: {path}: {count} records left out: {reason}"));
    }
    let result = args.output.as_deref().unwrap_or(&args.file).display();
    say(&format!("bprec: {result} is whole: {} records, {} samples", summary.records, summary.samples));
    Ok(Outcome::Done)
}

fn write(file: &Path, out: &mut File) -> Result<RewriteSummary> {
    let mut source = Source::open(file)?;
    Ok(rewrite(&mut source, &RewriteOptions { repair: true, ..RewriteOptions::default() }, out)?)
}

/// A name in the same directory, so that it can be renamed.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".recovering");
    name.into()
}

/// Recordings tell what a machine does: only their owner may read them.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
