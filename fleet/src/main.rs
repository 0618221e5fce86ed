//! Recordings of many hosts in one lake of Parquet files, and queries over all of them.
//!
//! Path of the data: `rows` (a recording, through the reporter's model), sent in one file if a host makes a `summary` → `lake` (files,
//! committed in batches) in a `store` (directory or bucket) → `engine` (DataFusion or Spark over the committed files) → `query`, `regressed` →
//! `answer` → `print`, `page`. `schema` has the tables, `identity` the key and the hooks of a program, `change` the statistics of `regressed`. All
//! numbers come from the reporter; all sums from the engine.

mod answer;
mod change;
mod compact;
mod engine;
mod identity;
mod import;
mod lake;
mod page;
mod parallel;
mod print;
mod query;
mod regressed;
mod rows;
mod schema;
mod store;
mod summary;
mod verify;

use anyhow::{Context, Result, ensure};
use bprec_report::printable;
use chrono::{TimeDelta, Utc};
use clap::{Args, Parser};
use fs_err::File;
use import::{ImportOptions, Imported, ReadOptions};
use lake::Lake;
use print::Format;
use query::{Question, Scope};
use std::io::{self, BufRead, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verify::Findings;

/// Imports recordings of many hosts into a lake of Parquet files, and queries all of them.
#[derive(Debug, Parser)]
#[command(name = "bprec-fleet", version)]
enum Verb {
    /// Imports recordings and summaries into a lake; recordings that the lake has are skipped.
    Import {
        /// Directory of the lake, or `s3://BUCKET/PREFIX`; created if missing.
        #[arg(long, value_name = "LAKE")]
        out: PathBuf,
        #[command(flatten)]
        files: FilesArgs,
        #[command(flatten)]
        options: ImportOptions,
    },
    /// Writes the rows of recordings to one small file, which `import` takes instead of the recordings.
    Summarize {
        /// File of the summary.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        files: FilesArgs,
        #[command(flatten)]
        options: ReadOptions,
    },
    /// Runs a query on a lake.
    Query(QueryArgs),
    /// Runs all named queries on a lake and writes one HTML page.
    Page {
        /// File of the page; `-` writes to standard output.
        #[arg(short, long, value_name = "FILE", default_value = "fleet.html")]
        output: PathBuf,
        /// Limit on the rows of each answer.
        #[arg(long, value_name = "N", default_value_t = 500)]
        limit: usize,
        #[command(flatten)]
        scope: Scope,
    },
    /// Reads a lake completely and prints its faults.
    Verify(LakeArgs),
    /// Merges the batches of each day into fewer and larger files.
    Compact {
        #[command(flatten)]
        lake: LakeArgs,
        /// Limit on the recordings of a merged batch.
        #[arg(long, value_name = "N", default_value_t = 2000)]
        batch: u64,
    },
    /// Removes all rows of a host from a lake.
    Erase {
        #[command(flatten)]
        lake: LakeArgs,
        /// Id of the host: `host_id` of the tables.
        #[arg(long, value_name = "ID")]
        host: String,
    },
    /// Removes old days from a lake.
    Expire {
        #[command(flatten)]
        lake: LakeArgs,
        /// Days to keep, today (UTC) included, such as `90d`.
        #[arg(long, value_name = "DAYS", value_parser = days)]
        keep: TimeDelta,
    },
}

#[derive(Debug, Args)]
struct FilesArgs {
    /// Recordings; `-` reads their names from standard input, one per line.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl FilesArgs {
    fn names(&self) -> Box<dyn Iterator<Item = Result<PathBuf>> + '_> {
        match &self.files[..] {
            [name] if name == Path::new("-") => {
                let lines = io::stdin().lock().lines();
                Box::new(lines.map(|line| Ok(PathBuf::from(line.context("read names from standard input")?))))
            }
            names => Box::new(names.iter().cloned().map(Ok)),
        }
    }
}

#[derive(Debug, Args)]
struct LakeArgs {
    /// Directory of the lake, or `s3://BUCKET/PREFIX`.
    #[arg(long, value_name = "LAKE")]
    lake: PathBuf,
}

#[derive(Debug, Args)]
struct QueryArgs {
    /// Named query.
    #[arg(required_unless_present = "sql")]
    question: Option<Question>,
    /// File with an SQL query over the tables of docs/fleet.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["question", "condition", "labels"])]
    sql: Option<PathBuf>,
    /// Select rows of the queried table by an SQL condition, such as `"kernel_release LIKE '6.12%'"`.
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,
    /// Limit on the rows of the answer.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    scope: Scope,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Parses a number of days, such as `90d`.
fn days(text: &str) -> Result<TimeDelta, &'static str> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u16>().ok());
    days.filter(|days| *days > 0).map(|days| TimeDelta::days(days.into())).ok_or("expected days, such as 90d")
}

fn main() -> ExitCode {
    let done = match Verb::parse() {
        Verb::Import { out, files, options } => import(&out, &files, &options),
        Verb::Summarize { output, files, options } => summarize(&output, &files, &options),
        Verb::Query(args) => query(args),
        Verb::Page { output, limit, scope } => page(&output, &Scope { limit, ..scope }),
        Verb::Verify(args) => verify(&args.lake),
        Verb::Compact { lake, batch } => compact(&lake.lake, batch),
        Verb::Erase { lake, host } => erase(&lake.lake, &host),
        Verb::Expire { lake, keep } => expire(&lake.lake, keep),
    };
    match done {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn import(lake: &Path, files: &FilesArgs, options: &ImportOptions) -> Result<ExitCode> {
    let is_terminal = io::stderr().is_terminal();
    let refuse = |error: &anyhow::Error| complain(&format!("{error:#}"));
    let progress = |done: &Imported| {
        if is_terminal {
            complain(&counts(done));
        }
    };
    let done = import::import(lake, files.names(), options, refuse, progress)?;
    writeln!(io::stdout(), "{}", counts(&done))?;
    Ok(if done.refused > 0 { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn summarize(output: &Path, files: &FilesArgs, options: &ReadOptions) -> Result<ExitCode> {
    let mut refused = 0;
    let recordings = summary::summarize(output, files.names(), options, |error| {
        refused += 1;
        complain(&format!("{error:#}"));
    })?;
    writeln!(io::stdout(), "{recordings} recordings summarized, {refused} refused")?;
    Ok(if refused > 0 { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn counts(done: &Imported) -> String {
    let Imported { recordings, already_there, refused, batches } = done;
    format!(
        "{recordings} recordings imported in {batches} batches, {already_there} already in the lake, {refused} refused"
    )
}

fn query(args: QueryArgs) -> Result<ExitCode> {
    let scope = Scope { condition: args.condition, limit: args.limit, ..args.scope };
    let (name, answer) = match (args.question, args.sql) {
        (Some(question), _) => (question.name(), query::ask(question, &scope)?),
        (None, file) => {
            ("sql".to_owned(), query::ask_file(&file.context("a named query or --sql is needed")?, &scope)?)
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    print::write(&answer, &name, args.format, &mut out)?;
    out.flush()?;
    Ok(if answer.rows.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn page(output: &Path, scope: &Scope) -> Result<ExitCode> {
    let page = page::page(scope)?;
    let out: Box<dyn Write> = match output == Path::new("-") {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create(output)?),
    };
    let mut out = BufWriter::new(out);
    page.write(&mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn verify(lake: &Path) -> Result<ExitCode> {
    let found = verify::verify(lake)?;
    found.faults.iter().chain(&found.remarks).for_each(|text| complain(text));
    let Findings { batches, recordings, rows, faults, .. } = found;
    writeln!(io::stdout(), "{recordings} recordings in {batches} batches, {rows} rows: {} faults", faults.len())?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn compact(lake: &Path, batch: u64) -> Result<ExitCode> {
    let (before, after) = compact::compact(lake, batch)?;
    writeln!(io::stdout(), "{before} batches merged into {after}")?;
    Ok(ExitCode::SUCCESS)
}

fn erase(lake: &Path, host: &str) -> Result<ExitCode> {
    let batches = compact::erase(lake, host)?;
    ensure!(batches > 0, "{}: has no host with the id {host}", lake.display());
    writeln!(io::stdout(), "{batches} batches rewritten without the host {host}")?;
    Ok(ExitCode::SUCCESS)
}

fn expire(lake: &Path, keep: TimeDelta) -> Result<ExitCode> {
    let (mut lake, _lock) = Lake::open_to_change(lake)?;
    let first = Utc::now().date_naive() - (keep - TimeDelta::days(1));
    let expired = lake.expire(first)?;
    writeln!(io::stdout(), "{} days removed, all before {first}", expired.len())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a message to standard error, without control characters.
fn complain(text: &str) {
    // A failed write to standard error cannot be reported.
    let _ = writeln!(io::stderr(), "bprec-fleet: {}", printable(text));
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut errors = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    errors.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
