//! Sessions: an opened and indexed recording that answers any number of queries.

use crate::index::sections::btf_of;
use crate::index::symbolizer::Symbolizer;
use crate::index::{Index, Wanted};
use crate::input::recording::OpenRecording;
use crate::model::{
    Advice, Annotation, Bill, Count, CountersReport, EventBill, Interval, LinesReport, OverTime, Overview, Page,
    Payers, Profile, Report, Row, Stacks, Trees, Without,
};
use crate::pass::sinks::slowed::correct_runs;
use crate::pass::sinks::stacks::{self, KeptDetails};
use crate::pass::{self, Selection, Sink};
use crate::query::by_prog::lazy::LazyReport;
use crate::query::maps::MapsReport;
use crate::query::{annotate, by_prog, counters, page};
use crate::{
    AnnotateOptions, Error, ExportFormat, Input, MapsOptions, Options, Payer, Result, Sort, Split, TableStyle,
    TimeRange, view,
};
#[cfg(feature = "tui")]
use crate::{TREE_PERCENT_LIMIT, view::tui};
use std::cmp::Reverse;
use std::io::Write;

/// A recording and its index: programs, addresses, tasks, symbols. The side band is read once for all queries.
#[derive(Debug)]
pub struct Session<'a> {
    recording: OpenRecording<'a>,
    index: Index,
}

impl<'a> Session<'a> {
    /// Reads the side band of a recording.
    ///
    /// # Errors
    /// Fails if the recording cannot be read at all. If a part can be read, the reports of the session list the problems ([`Report::problems`]).
    pub fn open(input: &'a Input) -> Result<Session<'a>> {
        Session::with(input, Wanted { tasks: true, user_code: true, ..Wanted::default() })
    }

    /// Reads the side band without mapped files: [`Session::stacks`] and the exports have no names of code in user space.
    ///
    /// # Errors
    /// Same as [`Session::open`].
    pub fn open_without_user_code(input: &'a Input) -> Result<Session<'a>> {
        Session::with(input, Wanted { tasks: true, ..Wanted::default() })
    }

    /// Reads only the parts of the side band that a report by program with these options needs.
    ///
    /// # Errors
    /// Same as [`Session::open`].
    pub fn open_for(input: &'a Input, options: &Options) -> Result<Session<'a>> {
        let is_by_task = matches!(options.split(), Some(Split::Payer(payer)) if payer.needs_tasks());
        let tasks = is_by_task || !options.comms.is_empty();
        Session::with(input, Wanted { tasks, threads: options.threads, ..Wanted::default() })
    }

    fn with(input: &'a Input, wanted: Wanted) -> Result<Session<'a>> {
        let session = OpenRecording::open_with_events(input).and_then(|recording| {
            let mut index = Index::build(&recording, wanted);
            if let Some(file) = index.other_boot {
                let [first, second] = [0, file].map(|file| recording.files()[file].path.to_owned());
                let problem =
                    "recorded after different boots: their boot ids differ or, if an id is missing, their boot times";
                return Err(Error::Files { first, second, problem: problem.to_owned() });
            }
            correct_runs(&recording, &mut index, wanted.threads);
            Ok(Session { recording, index })
        });
        input.checked(session)
    }

    /// Times at which the recorder read run statistics, ns of the recording's clock, ascending. Counts are known for intervals between these times.
    pub fn read_times_ns(&self) -> Vec<u64> {
        self.index.runs.moments_ns().collect()
    }

    /// Reports each program's activity from `from_ns` to `to_ns`, ns of the recording's clock. Both should be in [`Session::read_times_ns`].
    ///
    /// # Errors
    /// Fails if `options` name an event that the recording does not have.
    pub fn interval(&self, options: &Options, from_ns: u64, to_ns: u64) -> Result<Interval> {
        let time = TimeRange::Absolute(Some(from_ns), Some(to_ns));
        let report = self.by_prog(&Options { time, folds_tools: true, ..options.clone() })?;
        Ok(Interval::new(report, from_ns, to_ns))
    }

    /// Reports the runs of an interval, and the samples from `sampled_from_ns` to the end of the interval. A short interval alone has few samples, so
    /// `sampled_from_ns` can be earlier than the start of the interval. With [`Sort::Cpu`], the runs of the interval order the rows.
    ///
    /// # Errors
    /// Same as [`Session::interval`].
    pub fn interval_with_samples(
        &self,
        options: &Options,
        (from_ns, to_ns): (u64, u64),
        sampled_from_ns: u64,
    ) -> Result<Interval> {
        let mut interval = self.interval(options, from_ns, to_ns)?;
        let time = TimeRange::Absolute(Some(sampled_from_ns), Some(to_ns));
        let (longer, overviews) = self.overviews(&Options { time, folds_tools: true, ..options.clone() })?;
        interval.overviews = overviews;
        interval.sampled_ns = longer.recording.elapsed_ns;
        // Rows refer to positions in the list of programs. The list is the same for any selected time.
        let report = &mut interval.report;
        report.events = longer.events;
        if options.sort == Sort::Cpu {
            let time_ns = |row: &Row| report.programs[row.program].runs.value().map(|runs| runs.time_ns);
            report.events.iter_mut().for_each(|event| event.rows.sort_by_key(|row| Reverse(time_ns(row))));
        }
        Ok(interval)
    }

    /// Reports the cost of each program: every sample is charged to the BPF program that it was taken in.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn by_prog(&self, options: &Options) -> Result<Report> {
        self.recording.checked(by_prog::build(&self.recording, &self.index, options))
    }

    /// Reports counts from snapshot to snapshot: run statistics and exact counters of programs, and perf counters of other targets.
    ///
    /// # Errors
    /// Fails if `options` name a time that the recording does not have.
    pub fn counters(&self, options: &Options) -> Result<CountersReport> {
        self.recording.checked(counters::over_time(&self.recording, &self.index, options))
    }

    /// Reports the cost of each program in intervals of `interval_ns`; `None` gives about sixty intervals.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn over_time(&self, options: &Options, interval_ns: Option<u64>) -> Result<OverTime> {
        self.recording.checked(by_prog::over_time::over_time(&self.recording, &self.index, options, interval_ns))
    }

    /// Reports the cost of each program as [`Session::by_prog`] does, but makes the rows of an event when they are written. Tables have a
    /// style.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn by_prog_lazily<'s>(&'s self, options: &'s Options, style: TableStyle) -> Result<LazyReport<'s>> {
        self.recording.checked(LazyReport::new(&self.recording, &self.index, options, style))
    }

    /// Reports the cost of each program, and sums up each event of the report for one screen.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn overviews(&self, options: &Options) -> Result<(Report, Vec<Overview>)> {
        self.recording.checked(page::overviews(&self.recording, &self.index, options))
    }

    /// Returns the advice that fixed rules derive from the report by program.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn advice(&self, options: &Options) -> Result<Advice> {
        self.recording.checked(by_prog::advice::advice(&self.recording, &self.index, options))
    }

    /// Reports the payers: the tasks, CPUs, cgroups or containers in which programs ran. All of `keys` together identify a payer.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn payers(&self, options: &Options, keys: &[Payer]) -> Result<Payers> {
        self.recording.checked(by_prog::payers::payers(&self.recording, &self.index, options, keys))
    }

    /// Reports the CPU time that each owner of programs costs the machine: the programs, the owner's tasks, and the work that the programs cause
    /// elsewhere. `owner` selects owners by a glob pattern of their name.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn bill(&self, options: &Options, owner: Option<&str>) -> Result<Bill> {
        self.recording.checked(by_prog::bill::bill(&self.recording, &self.index, options, owner))
    }

    /// Reports the cost of each program as [`Session::by_prog`] does, and the bills of all owners in each of its events that has samples.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn by_prog_with_bills(&self, options: &Options) -> Result<(Report, Vec<EventBill>)> {
        self.recording.checked(page::report_and_bills(&self.recording, &self.index, options))
    }

    /// Predicts the CPU time of the machine and of each payer without some programs. `patterns` name programs as [`crate::ProgFilter`] does, or
    /// owners of programs as in [`Session::bill`]; all of `keys` together identify a payer. If `per` names an event, the samples of this event count
    /// operations, and the prediction has the CPU time per operation.
    ///
    /// # Errors
    /// Fails if a pattern matches neither a program nor an owner, or if `options` or `per` name an event or a time that the recording does not have.
    pub fn without(
        &self,
        options: &Options,
        patterns: &[String],
        keys: &[Payer],
        per: Option<&str>,
    ) -> Result<Without> {
        self.recording.checked(by_prog::without::without(&self.recording, &self.index, options, patterns, keys, per))
    }

    /// Reports the composition of each program's cost as a tree: the program's functions, their callees, and the callees of these. Nodes with less
    /// than `percent_limit` % of [`crate::model::Tree::total`] are folded.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn trees(&self, options: &Options, percent_limit: f64) -> Result<Trees> {
        self.recording.checked(by_prog::tree::trees(&self.recording, &self.index, options, percent_limit))
    }

    /// Lists the code of programs with the cost of each line and instruction. Uses the first selected event that has samples in one of the programs.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have, or the recording has no sampling event.
    pub fn annotate(&self, options: &AnnotateOptions) -> Result<Annotation> {
        self.recording.checked(annotate::annotate(&self.recording, &self.index, options))
    }

    /// Reports the cost of each source line of programs.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub fn lines(&self, options: &Options) -> Result<LinesReport> {
        self.recording.checked(annotate::lines::lines(&self.recording, &self.index, options))
    }

    /// Computes the model that an interactive screen requested, and returns the answer for the screen.
    #[cfg(feature = "tui")]
    pub fn answer(&self, read: &tui::Read) -> tui::Answer {
        read.answer(self.screen_model(read.kind(), read.query()))
    }

    #[cfg(feature = "tui")]
    fn screen_model(&self, kind: tui::Kind, query: &Options) -> Result<tui::Model> {
        use tui::{Kind, Model};
        Ok(match kind {
            Kind::Programs => {
                let (report, overviews) = self.overviews(query)?;
                Model::Report(report.into(), overviews.into())
            }
            Kind::Code => {
                let options = AnnotateOptions { query: query.clone(), ..AnnotateOptions::default() };
                Model::Annotation(self.annotate(&options)?.into())
            }
            Kind::Tree => Model::Trees(self.trees(query, TREE_PERCENT_LIMIT)?.into()),
            Kind::Stacks => {
                let stacks = self.stacks(query)?;
                Model::Stacks(if query.programs.is_empty() { stacks } else { stacks.in_kernel() }.into())
            }
            Kind::Payers => Model::Payers(self.payers(query, &[Payer::Comm])?.into()),
            Kind::Bill => Model::Bill(self.bill(query, None)?.into()),
        })
    }

    /// Counts the call chains of the first selected event that has samples.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have, or the recording has no sampling event.
    pub fn stacks(&self, options: &Options) -> Result<Stacks> {
        self.recording.checked(stacks::of(&self.recording, &self.index, options))
    }

    /// Returns the samples over time of the first selected event that has samples, with the programs and their runs.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have, or the recording has no sampling event.
    pub fn profile(&self, options: &Options) -> Result<Profile> {
        let kept = KeptDetails { samples: true, addresses: true, ..KeptDetails::default() };
        self.recording.checked(page::profile(&self.recording, &self.index, options, kept))
    }

    /// Returns the data of the HTML page: the models of all views, and the call chains of the first selected event that has samples.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have, or the recording has no sampling event.
    pub fn page(&self, options: &Options) -> Result<Page> {
        self.recording.checked(page::page(&self.recording, &self.index, options))
    }

    /// Writes samples of an event for another viewer, and returns the number of samples. Writes nothing if there are no samples.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have, the recording has no sampling event, or `out` cannot be written.
    pub fn export(&self, options: &Options, format: ExportFormat, out: &mut dyn Write) -> Result<Count> {
        let with_lines = KeptDetails { addresses: true, ..KeptDetails::default() };
        let profile = |kept| self.recording.checked(page::profile(&self.recording, &self.index, options, kept));
        match format {
            ExportFormat::Folded => {
                let stacks = self.stacks(options)?;
                exported(stacks.total, || stacks.write_folded(out))
            }
            ExportFormat::Speedscope => {
                let stacks = self.stacks(options)?;
                exported(stacks.total, || stacks.write_speedscope(out))
            }
            ExportFormat::Pprof => {
                let profile = profile(with_lines)?;
                exported(profile.samples.stacks.total, || profile.write_pprof(out))
            }
            ExportFormat::Otlp => {
                let profile = profile(KeptDetails { containers: true, ..with_lines })?;
                exported(profile.samples.stacks.total, || profile.write_otlp(out))
            }
            ExportFormat::Firefox => {
                let profile = self.profile(options)?;
                exported(profile.samples.stacks.total, || profile.write_firefox(out))
            }
            ExportFormat::Html => {
                let page = self.page(options)?;
                exported(page.stacks.total, || page.write_html(out))
            }
        }
    }

    /// Passes every sample that `query` selects, with its attribution, to `sink`, and returns the sink. Uses [`Options::threads`] threads.
    ///
    /// # Errors
    /// Fails if `query` names an event or a time that the recording does not have.
    pub fn run<S: Sink>(&self, query: &Options, sink: S) -> Result<S> {
        let selection = Selection::new(&self.recording, &self.index, query)?;
        let (sink, _) = pass::run(&self.recording, &self.index, &selection, sink, |_, _| {});
        self.recording.checked(Ok(sink))
    }

    /// Returns a symbolizer for addresses of the kernel and of programs.
    pub fn symbolizer(&self) -> Symbolizer<'_> {
        Symbolizer::new(&self.index)
    }

    /// Name of the program with this number ([`crate::Charge`]); `None` if no program has the number.
    pub fn program_name(&self, program: u32) -> Option<&str> {
        self.index.programs.list.get(program as usize).map(|program| program.name())
    }

    /// Problems in reading the recording, in words: they affect all views and exports.
    pub fn problems(&self) -> &[String] {
        &self.index.problems
    }

    /// Names of the recording's events, in their order in the recording.
    pub fn event_names(&self) -> &[String] {
        &self.recording.names
    }
}

/// Writes an export unless there are no samples. Returns the count of samples.
fn exported<E>(total: Count, write: impl FnOnce() -> std::result::Result<(), E>) -> Result<Count>
where
    Error: From<E>,
{
    if total.samples > 0 {
        write()?;
    }
    Ok(total)
}

/// Counts of the maps and programs that [`maps`] found.
#[derive(Debug, Clone, Copy)]
pub struct MapsSummary {
    /// Number of maps that were written.
    pub written: usize,
    /// Number of maps in the recording.
    pub recorded: usize,
    /// Number of programs in the recording.
    pub programs: usize,
}

/// Writes the maps of a recording, and their recorded contents.
///
/// # Errors
/// Fails if the recording cannot be read at all, or the output cannot be written.
pub fn maps(input: &Input, options: &MapsOptions, out: &mut dyn Write) -> Result<MapsSummary> {
    let Session { recording, index } = Session::with(input, Wanted { contents: true, ..Wanted::default() })?;
    let btf = btf_of(recording.sections(), recording.endian(), |_| true);
    let report = MapsReport::new(&recording, &index, &btf, options);
    recording.checked(view::write_maps(&report, options, out).map_err(Error::from))?;
    Ok(MapsSummary { written: report.ids.len(), recorded: report.recorded, programs: index.programs.list.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::PASSES;
    use std::io;
    use std::path::Path;

    #[test]
    fn each_command_reads_samples_once() {
        for name in ["linux-7.2/ratio.data", "linux-6.18/busy.data", "linux-7.2/cut-off.data"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(name);
            let input = Input::open(&path).unwrap();
            let session = Session::open(&input).unwrap();
            let options = Options { threads: Some(2), ..Options::default() };
            let by_owner = Options { by: Some(crate::Group::Owner.into()), ..options.clone() };
            let by_cpu = Options { by: Some("cpu".parse().unwrap()), ..options.clone() };
            let columns = crate::TableColumns::of(vec!["SPARK".to_owned()]);
            let spark_lines = TableStyle { columns, ..TableStyle::default() };
            let annotated = AnnotateOptions { query: options.clone(), ..AnnotateOptions::default() };
            let export = |format| session.export(&options, format, &mut io::sink()).map(drop);
            let commands: [(&str, &dyn Fn() -> Result<()>); 17] = [
                ("by-prog", &|| session.by_prog(&options).map(drop)),
                ("by owner", &|| session.by_prog(&by_owner).map(drop)),
                ("by cpu", &|| session.by_prog(&by_cpu).map(drop)),
                ("over time", &|| session.over_time(&options, None).map(drop)),
                ("spark lines", &|| session.by_prog_lazily(&options, spark_lines.clone()).map(drop)),
                ("advice", &|| session.advice(&options).map(drop)),
                ("payers", &|| session.payers(&options, &[Payer::Comm, Payer::Cpu]).map(drop)),
                ("bill", &|| session.bill(&options, None).map(drop)),
                ("without", &|| session.without(&options, &["*".to_owned()], &[], None).map(drop)),
                ("trees", &|| session.trees(&options, 0.5).map(drop)),
                ("annotate", &|| session.annotate(&annotated).map(drop)),
                ("lines", &|| session.lines(&options).map(drop)),
                ("folded", &|| export(ExportFormat::Folded)),
                ("pprof", &|| export(ExportFormat::Pprof)),
                ("firefox", &|| export(ExportFormat::Firefox)),
                ("otlp", &|| export(ExportFormat::Otlp)),
                ("html", &|| export(ExportFormat::Html)),
            ];
            for (command, run) in commands {
                PASSES.set(0);
                run().unwrap();
                assert_eq!(PASSES.get(), 1, "{command} of {name}");
            }
        }
    }
}
