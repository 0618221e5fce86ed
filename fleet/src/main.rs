//! Recordings of many hosts in one lake of Parquet files, and questions about all of them.
//!
//! The way of the data: `rows` (a recording, through the reporter's model) → `lake` (files, of which each batch counts as a whole or not at
//! all) → `engine` (DataFusion or Spark over the files that count) → `query`, `regressed` → `answer` → `print`, `page` (compute nothing). `schema` has the
//! tables. No query engine of our own, and no numbers but those of the reporter.

mod answer;
mod compact;
mod engine;
mod import;
mod lake;
mod page;
mod print;
mod query;
mod regressed;
mod rows;
mod schema;
mod verify;

use anyhow::{Context, Result, bail};
use bprec_report::{Confidence, printable};
use clap::{Args, Parser, Subcommand};
use compact::Compacted;
use engine::{EngineChoice, Spark};
use import::{Event, ImportOptions, Imported};
use print::Format;
use query::{Query, Question, Scope};
use regressed::RegressedOptions;
use rows::{Date, Said};
use std::fs::File;
use std::io::{self, BufRead, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use verify::Findings;

/// Puts recordings of BPF programs of many hosts into one lake of Parquet files, and answers questions about all of them.
#[derive(Debug, Parser)]
#[command(name = "bprec-fleet", version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Puts recordings into a lake; what is there already is left as it is.
    Import(ImportArgs),
    /// Asks a lake.
    Query(QueryArgs),
    /// Asks a lake everything, and writes the answers as one page of HTML.
    Report(ReportArgs),
    /// Reads all of a lake, and says what is wrong with it.
    Verify(LakeArgs),
    /// Puts the batches of each day together, so that there are fewer and larger files. Not while other engines read the lake.
    Compact(CompactArgs),
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// Directory of the lake; made where there is none.
    #[arg(long, value_name = "LAKE")]
    out: PathBuf,
    /// Recordings; `-`: their names are read from standard input, one per line.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Host that all of these are of, instead of the name that each recording has.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// A label of these recordings, like `role=edge`; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Day (UTC) of recordings that do not say when they were made.
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<Date>,
    /// Take recordings without an end, too. With its end, such a recording is refused from then on: it is there.
    #[arg(long)]
    unfinished: bool,
    /// Most recordings of a batch: the files of a batch count together or not at all.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Threads that read recordings; as many as there are CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

#[derive(Debug, Args)]
struct LakeArgs {
    /// Directory of the lake.
    #[arg(long, value_name = "LAKE")]
    lake: PathBuf,
}

#[derive(Debug, Args)]
struct CompactArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// Most recordings of a batch.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    batch: u64,
}

#[derive(Debug, Args)]
struct QueryArgs {
    /// Question to ask.
    #[arg(required_unless_present = "sql", conflicts_with = "sql")]
    question: Option<Question>,
    /// A query of your own over the tables of docs/fleet.md.
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
    /// Directory of the lake.
    #[arg(long, value_name = "LAKE")]
    lake: PathBuf,
    /// Only rows for which this holds, an SQL expression over the table that is asked: `"kernel_release LIKE '6.12%'"`.
    #[arg(long = "where", value_name = "EXPR", conflicts_with = "sql")]
    condition: Option<String>,
    /// Most rows of the answer.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Format of the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// File of the page; `-`: standard output.
    #[arg(short, long, value_name = "FILE", default_value = "fleet.html")]
    output: PathBuf,
    /// Directory of the lake.
    #[arg(long, value_name = "LAKE")]
    lake: PathBuf,
    /// Most rows of each answer.
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
    #[command(flatten)]
    scope: ScopeArgs,
}

/// Days, what is compared with what, and who computes it.
#[derive(Debug, Args)]
struct ScopeArgs {
    /// First day (UTC).
    #[arg(long, value_name = "YYYY-MM-DD")]
    since: Option<Date>,
    /// Last day.
    #[arg(long, value_name = "YYYY-MM-DD")]
    until: Option<Date>,
    /// `regressed`: first day of those that are compared with; as many as are asked for.
    #[arg(long, value_name = "YYYY-MM-DD")]
    base_since: Option<Date>,
    /// `regressed`: last day of those; the day before the first that is asked for.
    #[arg(long, value_name = "YYYY-MM-DD")]
    base_until: Option<Date>,
    /// `regressed`: a host is compared where a program ran at least so often before and after.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    min_runs: u64,
    /// `regressed`: how sure all of the verdicts together are.
    #[arg(long, value_name = "PERCENT", default_value_t)]
    confidence: Confidence,
    /// Engine that runs the query.
    #[arg(long, value_enum, default_value_t)]
    engine: EngineName,
    /// `spark`: the cluster, like `spark://HOST:7077`, `yarn` or `local[4]`.
    #[arg(long, value_name = "URL", required_if_eq("engine", "spark"))]
    master: Option<String>,
    /// `spark`: give up when the cluster has run no task for so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    start_timeout: u64,
}

impl ScopeArgs {
    fn scope(&self, condition: Option<String>, limit: usize) -> Scope {
        Scope {
            since: self.since,
            until: self.until,
            condition,
            limit,
            regressed: RegressedOptions {
                base_since: self.base_since,
                base_until: self.base_until,
                min_runs: self.min_runs,
                confidence: self.confidence,
            },
        }
    }

    fn engine(&self) -> Result<EngineChoice> {
        Ok(match (self.engine, &self.master) {
            (EngineName::Datafusion, None) => EngineChoice::DataFusion,
            (EngineName::Datafusion, Some(_)) => bail!("--master is for --engine spark"),
            (EngineName::Spark, master) => {
                let master = master.clone().context("--engine spark needs --master")?;
                EngineChoice::Spark(Spark::find(master, Duration::from_secs(self.start_timeout))?)
            }
        })
    }
}

/// Options of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum EngineName {
    /// This program.
    #[default]
    Datafusion,
    /// A Spark cluster; `SPARK_HOME`, or `spark-submit` on `PATH`, is the way to it.
    Spark,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn main() -> ExitCode {
    let done = match Command::parse().verb {
        Verb::Import(args) => import(args),
        Verb::Query(args) => query(args),
        Verb::Report(args) => report(&args),
        Verb::Verify(args) => verify(&args.lake),
        Verb::Compact(args) => compact(&args),
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

fn import(args: ImportArgs) -> Result<ExitCode> {
    let threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        |threads| threads as usize,
    );
    let options = ImportOptions {
        said: Said {
            host: args.host,
            labels: args.labels.into_iter().collect(),
            date: args.date,
            unfinished: args.unfinished,
        },
        batch: args.batch as usize,
        threads,
    };
    let names: Box<dyn Iterator<Item = Result<PathBuf>>> = match &args.files[..] {
        [name] if name == Path::new("-") => {
            let lines = io::stdin().lock().lines();
            Box::new(lines.map(|line| Ok(PathBuf::from(line.context("read names from standard input")?))))
        }
        names => Box::new(names.iter().cloned().map(Ok)),
    };
    let is_terminal = io::stderr().is_terminal();
    let done = import::import(&args.out, names, &options, |event| match event {
        Event::Refused(error) => complain(&format!("{error:#}")),
        Event::OtherForm(path) => complain(&format!(
            "{}: a recording of this host that began in the same microsecond is there: this is it in another form",
            path.display()
        )),
        Event::Foreign(path) => complain(&format!("{}: is not of bprec-fleet, and is left alone", path.display())),
        Event::Progress(done) if is_terminal => complain(&summary(done)),
        Event::Progress(_) => {}
    })?;
    writeln!(io::stdout(), "{}", summary(&done))?;
    Ok(if done.refused > 0 { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn summary(done: &Imported) -> String {
    let Imported { recordings, already_there, refused, batches } = done;
    format!(
        "{recordings} recordings imported in {batches} batches, {already_there} were there already, {refused} refused"
    )
}

fn query(args: QueryArgs) -> Result<ExitCode> {
    let query = match (args.question, args.sql) {
        (_, Some(file)) => Query::Sql(file),
        (question, None) => Query::Known(question.context("a question or --sql is needed")?),
    };
    let scope = args.scope.scope(args.condition, args.limit);
    let engine = args.scope.engine()?;
    let (name, answer) = query::ask(&args.lake, &engine, &query, &scope)?;
    let mut out = BufWriter::new(io::stdout().lock());
    print::write(&answer, name, args.format, &mut out)?;
    out.flush()?;
    Ok(if answer.rows.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn report(args: &ReportArgs) -> Result<ExitCode> {
    let page = page::page(&args.lake, &args.scope.engine()?, &args.scope.scope(None, args.limit))?;
    if args.output == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        page.write(&mut out)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let at = || format!("write {}", args.output.display());
    let mut out = BufWriter::new(File::create(&args.output).with_context(at)?);
    page.write(&mut out).and_then(|()| out.flush()).with_context(at)?;
    Ok(ExitCode::SUCCESS)
}

fn verify(lake: &Path) -> Result<ExitCode> {
    let found = verify::verify(lake)?;
    found.faults.iter().chain(&found.remarks).for_each(|text| complain(text));
    let Findings { batches, recordings, rows, faults, .. } = found;
    writeln!(io::stdout(), "{recordings} recordings in {batches} batches, {rows} rows: {} faults", faults.len())?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn compact(args: &CompactArgs) -> Result<ExitCode> {
    let Compacted { before, after } = compact::compact(&args.lake.lake, args.batch)?;
    writeln!(io::stdout(), "{before} batches became {after}")?;
    Ok(ExitCode::SUCCESS)
}

/// Says something on standard error, where nothing of a recording's text is obeyed.
fn complain(text: &str) {
    // Nobody is left to be told of an error here.
    let _ = writeln!(io::stderr(), "bprec-fleet: {}", printable(text));
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.into_iter().any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
