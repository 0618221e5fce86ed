//! Dense and large recordings of random sizes, each read by one command, for tests and for the fuzzers.

use std::io::sink;

use bprec_generate::HOSTILE_SHAPES;
use bprec_report::{
    AnnotateOptions, DiffOptions, Document, ExportFormat, Input, MapsForm, MapsOptions, Options, Payer, Redact, Result,
    RewriteOptions, ScriptOptions, Session, Show, Source, by_prog, counters, diff, header, maps, rewrite, script,
};

/// Limit on the size of a recording.
const MAX_BYTES: usize = 2 << 20;
/// Number of ways to read a recording.
const VIEWS: u16 = 19;
/// Number of the way that compares the recording with itself.
const COMPARISON: u16 = 8;
/// Largest size of a shape, as an exponent of two. Both sizes of a shape are then reduced until the recording has at most `MAX_BYTES`.
const LARGEST: f64 = 19.0;

/// A recording, and the way to read it.
pub(crate) struct Case {
    /// Description for messages.
    pub(crate) about: String,
    pub(crate) recording: Vec<u8>,
    view: u16,
}

impl Case {
    /// Chooses a case by any four numbers: shape, view, and two sizes. All orders of magnitude of a size are equally likely.
    pub(crate) fn draw([shape, view, n, m]: [u16; 4]) -> Case {
        let size = |number: u16| (f64::from(number) / f64::from(u16::MAX) * LARGEST).exp2() as u64;
        let shape = &HOSTILE_SHAPES[usize::from(shape) % HOSTILE_SHAPES.len()];
        let (n, m) = shape.fitted((size(n), size(m)), MAX_BYTES);
        let view = view % VIEWS;
        let recording = (shape.make)(n, m).recording;
        let about = format!("{} of {n} and {m}, {} bytes, view {view}", shape.name, recording.len());
        Case { about, recording, view }
    }

    /// Number of read bytes: the comparison reads the recording twice.
    pub(crate) fn input_bytes(&self) -> usize {
        self.recording.len() * if self.view == COMPARISON { 2 } else { 1 }
    }

    /// Reads the recording. The output is dropped, and errors are ignored.
    pub(crate) fn read(&self) {
        let _ = read(self.view, &self.recording);
    }
}

fn forms(document: &impl Document) -> Result<()> {
    document.write_table(&mut sink(), 132)?;
    document.write_json(&mut sink())?;
    document.write_csv(&mut sink())
}

fn read(view: u16, bytes: &[u8]) -> Result<()> {
    let source = || Source::from_bytes("shape", bytes.to_vec());
    if view == 16 {
        let options = ScriptOptions { show: Show::ALL, threads: Some(1), ..ScriptOptions::default() };
        return script(&mut source(), &options, &mut sink()).map(drop);
    }
    if view == 18 {
        let redact = (bytes.len().is_multiple_of(2)).then_some(Redact::MachineAndPrograms);
        let options = RewriteOptions { repair: redact.is_none(), redact, ..RewriteOptions::default() };
        let Ok(mut out) = tempfile::tempfile() else { return Ok(()) };
        return rewrite(&mut source(), &options, &mut out).map(drop);
    }
    let input = Input::from_bytes("shape", bytes.to_vec());
    let options = Options { threads: Some(1), ..Options::default() };
    let session = Session::open(&input)?;
    match view {
        0 => forms(&by_prog(&input, &options)?),
        1 => forms(&counters(&input, &options)?),
        2 => forms(&session.lines(&options)?),
        3 => {
            let query = Options { programs: "*".parse().into_iter().collect(), ..options };
            forms(&session.annotate(&AnnotateOptions { query, ..AnnotateOptions::default() })?)
        }
        4 => {
            forms(&session.payers(&options, &[Payer::Comm, Payer::Container])?)?;
            forms(&session.bill(&options, None)?)?;
            forms(&session.without(&options, &["*".to_owned()], &[Payer::Comm, Payer::Container], None)?)
        }
        5 => forms(&session.trees(&options, 0.0)?),
        6 => forms(&session.over_time(&options, None)?),
        7 => forms(&session.advice(&options)?),
        COMPARISON => {
            let side = std::slice::from_ref(&input);
            forms(&diff(side, side, &DiffOptions { all: true, threads: Some(1), ..DiffOptions::default() })?)
        }
        9 => maps(&input, &MapsOptions { form: MapsForm::ALL[bytes.len() % 4], ..MapsOptions::default() }, &mut sink())
            .map(drop),
        10 => header(&input).map(drop),
        view => {
            let format = ExportFormat::ALL[usize::from(view) % ExportFormat::ALL.len()];
            session.export(&options, format, &mut sink()).map(drop)
        }
    }
}
