//! `bprec export`.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use bprec_report::{ExportFormat, Options, Session};

use crate::args::{OUTPUT, PartArgs, ProgArgs, SELECTION};
use crate::draft::{Draft, Older};
use crate::opening::ReadArgs;
use crate::progress::with_progress;
use crate::sandbox::Purpose;
use crate::{Outcome, found, say};

/// Convert a recording for other viewers.
///
/// firefox has samples over time, program loads and unloads, and runs per second. folded, pprof, speedscope and otlp have each
/// stack once; its weight is the sum of its samples' periods (ns for clocks). Programs are frames `bpf:NAME (ID)`, their subprograms
/// `bpf:NAME (ID):FUNCTION`; functions that the recording does not name are `[FILE]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// html (one page for any browser), folded (one line per stack, for flame graphs), pprof, speedscope, firefox, otlp (profiles
    /// of OpenTelemetry, experimental). pprof and firefox are gzipped.
    #[arg(long, value_name = "FORMAT")]
    to: ExportFormat,

    /// Write to FILE instead of standard output (-). An existing file is kept as NAME.old.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    select: ProgArgs,

    #[command(flatten)]
    part: PartArgs,

    /// Event to export [default: the first that has samples].
    #[arg(short, long, value_name = "NAME", help_heading = SELECTION)]
    event: Option<String>,

    /// Do not demangle names of user functions (Rust, C++).
    #[arg(long, help_heading = OUTPUT)]
    no_demangle: bool,

    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let format = args.to;
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    if format.is_binary() && output.is_none() && io::stdout().is_terminal() {
        bail!("this format is binary and standard output is a terminal; redirect it, or give -o FILE");
    }
    let (input, time, redacted) = args.read.open(output.map_or(Purpose::Print, Purpose::Write))?;
    redacted.print();
    let options = Options {
        programs: args.select.prog,
        events: args.event.into_iter().collect(),
        keep_mangled: args.no_demangle,
        ..args.part.within(time).into()
    };
    let inputs = [&input];
    let session = with_progress(&inputs, || Session::open(&input))?;
    let export = |out: &mut dyn Write| {
        let mut out = BufWriter::new(out);
        let exported = session.export(&options, format, &mut out)?;
        out.flush()?;
        anyhow::Ok(exported)
    };
    let exported = match output {
        Some(path) => {
            let mut draft = Draft::create(path)?;
            let exported = with_progress(&inputs, || export(&mut draft.file))?;
            if exported.samples > 0 {
                draft.persist(Older::Replaced)?;
            }
            exported
        }
        None => export(&mut io::stdout().lock())?,
    };
    session.problems().iter().for_each(|problem| say(&format!("bprec: {problem}")));
    Ok(found(exported.samples > 0, "bprec: no sample in the recording matches the options: nothing is written"))
}
