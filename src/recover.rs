//! `bprec recover`.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bprec_report::{RewriteOptions, rewrite};

use crate::Outcome;
use crate::draft::{Draft, Older};
use crate::opening::open_source;
use crate::progress::with_progress_of;
use crate::rewrite::print_problems;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};
use crate::terminal::notice;

/// Repair a recording that was cut off or damaged, so that any perf opens it. Also accepts perf's files.
///
/// Writes all intact records to a new file, FILE.recovered; FILE stays unchanged. Finds the records after a damaged one, and
/// reports what it had to skip.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File to write. An existing file is kept as NAME.old [default: FILE.recovered].
    #[arg(short, long, value_name = "FILE", conflicts_with = "in_place")]
    output: Option<PathBuf>,

    /// Repair FILE itself. If only the end of a bprec recording is missing, writes the end without a copy. Otherwise keeps the
    /// original as FILE.old, which must not exist yet.
    #[arg(long)]
    in_place: bool,

    /// Recording to repair.
    file: PathBuf,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    if args.file == Path::new("-") && args.output.is_none() {
        bail!("recovering standard input needs -o FILE");
    }
    let file = &resolved(&args.file);
    let (target, older) = match args.output {
        Some(ref output) => (output.clone(), Older::Replaced),
        None if args.in_place => (file.clone(), Older::Refused),
        None => (file.with_added_extension("recovered"), Older::Replaced),
    };
    let purpose = if args.in_place { Purpose::Mend(&target) } else { Purpose::Write(&target) };
    let mut sandbox = Some(Sandbox::enter(&args.sandbox, purpose));
    // Fails while a recorder writes the file, and keeps other recorders away until the end.
    let _lock = if args.in_place { Some(lock(file)?) } else { None };
    if args.in_place {
        // Seals the sandbox before the repair: `mend` and `Draft` open files only in the directory of the target, which stays allowed.
        sandbox.take().into_iter().for_each(|sandbox| sandbox.seal(true));
    }
    #[cfg(all(feature = "record", target_os = "linux"))]
    if args.in_place && file.is_file() && crate::record::mend(file)? {
        return Ok(Outcome::Done);
    }
    let mut source = open_source(file)?;
    let progress = Arc::clone(source.progress());
    let mut draft = Draft::create(&target)?;
    sandbox.into_iter().for_each(|sandbox| sandbox.seal(true));
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let summary = with_progress_of(&[(file, &progress)], || rewrite(&mut source, &options, &mut draft.file))?;
    if args.output.is_none() && summary.problems.is_empty() && summary.dropped.is_empty() {
        notice(&format!("bprec: {} is complete; nothing to do", file.display()));
        return Ok(Outcome::Done);
    }
    if args.output.is_some() || args.in_place || !draft.equals_target()? {
        draft.persist(older)?;
    }
    print_problems(file, &summary);
    let before = match older {
        Older::Refused => format!("; the original is {}", file.with_added_extension("old").display()),
        Older::Replaced => String::new(),
    };
    let (records, samples) = (summary.records, summary.samples);
    let (lost, announced) = (summary.missing_bytes, summary.announced_bytes);
    let there = match lost {
        0 => "is complete".to_owned(),
        _ => format!(
            "is incomplete: {lost} of {announced} bytes of records ({:.1} %), and all data after them, are missing",
            lost as f64 * 100.0 / announced as f64
        ),
    };
    notice(&format!("bprec: {} {there}: {records} records, {samples} samples{before}", target.display()));
    Ok(Outcome::Done)
}

/// Resolves a symbolic link: the journal lies beside the file that the link points to.
fn resolved(path: &Path) -> PathBuf {
    let is_link = fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
    is_link.then(|| fs::canonicalize(path).ok()).flatten().unwrap_or_else(|| path.to_owned())
}

/// Locks a file. Fails if a recorder or another `recover` has locked the file.
fn lock(path: &Path) -> Result<File> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            bail!("a recorder, or another recover, is still writing {}: --in-place would damage it", path.display())
        }
        // Some file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}
