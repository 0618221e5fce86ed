//! A recording that was opened and indexed, for as many queries as there are.

use crate::index::sections::btf_of;
use crate::index::symbolizer::Symbolizer;
use crate::index::{Index, Wanted};
use crate::input::recording::Recording;
use crate::input::window::Window;
use crate::maps::MapsReport;
use crate::model::{CountersReport, OverTime, Report, Stacks};
use crate::pass::{self, Selection, Sink};
use crate::sinks::stacks;
use crate::{Error, Input, MapsOptions, Options, Result, Split, by_prog, counters, render};
use std::io::Write;

/// A recording and its index: programs, addresses, tasks, symbols. The side band is read once, whatever is asked afterwards.
#[derive(Debug)]
pub struct Session<'a> {
    recording: Recording<'a>,
    index: Index,
}

impl<'a> Session<'a> {
    /// Reads the side band of a recording.
    ///
    /// # Errors
    /// When the recording cannot be read at all. One that can be read in part gives a session whose reports say so
    /// ([`Report::problems`]).
    pub fn open(input: &'a Input) -> Result<Session<'a>> {
        Session::with(input, Wanted { tasks: true, ..Wanted::default() })
    }

    /// The same for one query, without what that does not need.
    pub(crate) fn open_for(input: &'a Input, options: &Options) -> Result<Session<'a>> {
        let tasks = options.split() == Some(Split::Comm) || !options.comms.is_empty();
        Session::with(input, Wanted { tasks, threads: options.threads, ..Wanted::default() })
    }

    fn with(input: &'a Input, wanted: Wanted) -> Result<Session<'a>> {
        let session = Recording::open_with_events(input).map(|recording| {
            let index = Index::build(&recording, wanted);
            Session { recording, index }
        });
        input.checked(session)
    }

    /// Charges every sample to the BPF program that it was taken in.
    ///
    /// # Errors
    /// When `options` name an event or a time that the recording does not have.
    pub fn by_prog(&self, options: &Options) -> Result<Report> {
        self.recording.checked(by_prog::build(&self.recording, &self.index, options))
    }

    /// What counters counted from snapshot to snapshot: run statistics, exact and shared counters.
    ///
    /// # Errors
    /// When `options` name a time that the recording does not have.
    pub fn counters(&self, options: &Options) -> Result<CountersReport> {
        self.recording.checked(counters::over_time(&self.recording, &self.index, options))
    }

    /// What each program cost in intervals of this length; `None`: of one that makes some sixty of them.
    ///
    /// # Errors
    /// When `options` name an event or a time that the recording does not have.
    pub fn over_time(&self, options: &Options, interval_ns: Option<u64>) -> Result<OverTime> {
        self.recording.checked(by_prog::over_time::over_time(&self.recording, &self.index, options, interval_ns))
    }

    /// Counts the call chains of an event: of the first that is asked for and has samples.
    ///
    /// # Errors
    /// When `options` name an event or a time that the recording does not have, or it has no event that samples.
    pub fn stacks(&self, options: &Options) -> Result<Stacks> {
        self.recording.checked(stacks::of(&self.recording, &self.index, options))
    }

    /// Hands every sample that `query` asks for to a sink, attributed to the program that it was taken in; by
    /// [`Options::threads`] threads at once.
    ///
    /// # Errors
    /// When `query` names an event or a time that the recording does not have.
    pub fn run<S: Sink>(&self, query: &Options, sink: S) -> Result<S> {
        let window = Window::of(&query.time, &self.recording, self.index.start_ns())?;
        let selection = Selection::new(&self.recording, &self.index, &window, query)?;
        let (sink, _) = pass::run(&self.recording, &self.index, &selection, sink, |_, _| {});
        self.recording.checked(Ok(sink))
    }

    /// Looks up addresses of the kernel and of programs.
    pub fn symbolizer(&self) -> Symbolizer<'_> {
        Symbolizer::new(&self.index)
    }

    /// Name of a program by its number, which [`crate::Charge`] has.
    pub fn program_name(&self, program: u32) -> Option<&str> {
        self.index.programs.list.get(program as usize).map(|program| program.name())
    }

    /// Names of the events, by position.
    pub fn event_names(&self) -> &[String] {
        &self.recording.names
    }
}

/// Writes the maps of a recording, and what it has of their contents. How many were written.
///
/// # Errors
/// When the recording cannot be read at all, or the output cannot be written.
pub fn maps(input: &Input, options: &MapsOptions, out: &mut dyn Write) -> Result<usize> {
    let Session { recording, index } = Session::with(input, Wanted { contents: true, ..Wanted::default() })?;
    let btf = btf_of(recording.sections(), recording.endian());
    let report = MapsReport::new(&recording, &index, &btf, options);
    let written =
        if options.json { render::write_maps_json(&report, out) } else { render::write_maps_text(&report, out) };
    recording.checked(written.map_err(Error::from))?;
    Ok(report.maps.len())
}
