//! `bprec export`.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Result, bail};
use bprec_report::{CpuList, Input, Options, ProgFilter, Session, StacksFormat, TimeRange};

use crate::draft::{Draft, Older};
use crate::sandbox::{Sandbox, SandboxArgs};
use crate::{Outcome, say};

/// Write call chains for other viewers.
///
/// Each stack once, with its weight: periods of its samples, as reports add them up (ns for clocks). Programs are frames `bpf:NAME (ID)`,
/// their subprograms `bpf:NAME (ID):FUNCTION`; of a file whose functions the recording does not name, the frame is `[FILE]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// folded (a line for each stack, for flame graphs), pprof, speedscope.
    #[arg(long, value_name = "FORMAT")]
    to: StacksFormat,

    /// The recording; `-` is standard input. May be compressed with gzip.
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,

    /// Where to write it; standard output when not given. An existing file is kept as NAME.old.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only stacks that go through these programs: a name (with * and ?), an id or a tag.
    #[arg(long, value_name = "PROG", value_delimiter = ',')]
    prog: Vec<ProgFilter>,

    /// Only this part: START,STOP in seconds from the start (or of the recording's clock), or 10%-20%.
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    time: Option<TimeRange>,

    /// Only these CPUs: 0,2-5.
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<CpuList>,

    /// Only tasks of these names (with * and ?).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,

    /// This event; the first that has samples when not given.
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let format = args.to;
    if format.is_binary() && args.output.is_none() && io::stdout().is_terminal() {
        bail!("what is written is not for a terminal; -o FILE writes it into a file");
    }
    let sandbox = Sandbox::enter(&args.sandbox, args.output.as_deref());
    let input = Input::open(&args.input)?;
    sandbox.seal(args.output.is_some());
    let options = Options {
        programs: args.prog,
        time: args.time.unwrap_or_default(),
        cpus: args.cpu,
        comms: args.comm,
        events: args.event.into_iter().collect(),
        ..Options::default()
    };
    let session = Session::open(&input)?;
    let stacks = session.stacks(&options)?;
    if stacks.total.samples == 0 {
        say("bprec: the recording has no sample that is asked for: nothing is written");
        return Ok(Outcome::NothingMatched);
    }
    match &args.output {
        Some(path) => {
            let mut draft = Draft::create(path)?;
            let mut out = BufWriter::new(&mut draft.file);
            stacks.write(format, &mut out)?;
            out.flush()?;
            drop(out);
            draft.take_over(Older::Replaced)?;
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            stacks.write(format, &mut out)?;
            out.flush()?;
        }
    }
    Ok(Outcome::Done)
}
