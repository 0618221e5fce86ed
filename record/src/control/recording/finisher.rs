//! The thread that makes closed files whole: names of functions, the feature sections, onto the disk, and the oldest file goes. Neither the
//! recording nor the drain waits for that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bprec_bpf::Kallsyms;
use bprec_format::Endian;
use bprec_format::bprec::journal::Frame;
use bprec_format::bprec::state::Cost;
use bprec_format::feature::Feature;

use crate::control::rotation::Rotation;
use crate::output::complete::{Ending, complete};
use crate::output::sections::{self, Section};
use crate::output::{Closed, ClosedFiles, Leftover, Origin, Sink, StateWriter, Summary};
use crate::sources::inventory::ProgramsOfFile;
use crate::synth::UserFunctions;
use crate::sys::{self, Usage, Waker};
use crate::{Error, Level, Result};

/// Files that may wait; with more the recording waits.
const WAITING_MAX: usize = 1;

/// Facts of a file that ends, beside its contents.
pub(super) struct Facts {
    pub(super) programs: ProgramsOfFile,
    /// Kernel addresses that get names beside those that samples hit.
    pub(super) addresses: Vec<u64>,
    /// Symbols of the kernel as they were at the start, if they can be read.
    pub(super) kallsyms: Option<Arc<Kallsyms>>,
    /// When sampling began and ended.
    pub(super) sampled_ns: (u64, u64),
    /// Feature sections that are known already.
    pub(super) sections: Vec<Section>,
    /// Cost of the recording.
    pub(super) cost: Cost,
}

/// A file that another one follows.
struct Job {
    /// It comes when it has everything.
    closed: Receiver<Closed>,
    /// Its name from now on.
    path: PathBuf,
    /// The file that follows.
    next: Origin,
    facts: Facts,
}

/// The thread, and the way to it.
#[derive(Debug)]
pub(super) struct Finisher {
    jobs: SyncSender<Job>,
    thread: JoinHandle<(Completer, Result<()>)>,
}

/// Makes one file after the other whole.
#[derive(Debug)]
pub(super) struct Completer {
    writer: StateWriter,
    closed_files: Option<ClosedFiles>,
    user_functions: UserFunctions,
    /// Symbols of the kernel as of the previous file.
    kallsyms: Option<Arc<Kallsyms>>,
    /// Journals of files that are whole.
    leftovers: Vec<Leftover>,
    /// Sum over the files that are whole.
    totals: Summary,
    /// Resources used by the recorder when the file began.
    used_before: Usage,
    notify: fn(Level, &str),
}

impl Finisher {
    /// Starts it; `failed` is woken when a file cannot be made whole.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn start(mut completer: Completer, failed: Waker) -> Result<Finisher> {
        let (jobs, received) = sync_channel::<Job>(WAITING_MAX);
        let thread = sys::spawn("bprec-finish", move || {
            let outcome = received.iter().try_for_each(|job| completer.finish(job));
            drop(received);
            if outcome.is_err() {
                failed.wake();
            }
            (completer, outcome)
        })?;
        Ok(Finisher { jobs, thread })
    }

    /// Has a file made whole that goes by `path` from now on.
    ///
    /// # Errors
    /// When one before it could not be.
    pub(super) fn take(&self, closed: Receiver<Closed>, path: PathBuf, next: Origin, facts: Facts) -> Result<()> {
        let job = Job { closed, path, next, facts };
        self.jobs.send(job).map_err(|_| Error::Other("a file before could not be completed".to_owned()))
    }

    /// Waits until all files are whole. Returns what makes the last one so, and what went wrong.
    ///
    /// # Errors
    /// When the thread has failed in a way that left nothing behind.
    pub(super) fn end(self) -> Result<(Completer, Result<()>)> {
        drop(self.jobs);
        self.thread.join().map_err(|_| Error::Other("the thread that completes files failed".to_owned()))
    }
}

impl Completer {
    /// `writer` is for the states of the recording.
    pub(super) fn new(writer: StateWriter, closed_files: Option<ClosedFiles>, notify: fn(Level, &str)) -> Completer {
        Completer {
            writer,
            closed_files,
            user_functions: UserFunctions::default(),
            kallsyms: None,
            leftovers: Vec::new(),
            totals: Summary::default(),
            used_before: Usage::default(),
            notify,
        }
    }

    /// Makes a file whole that another one follows.
    fn finish(&mut self, Job { closed, path, next, facts }: Job) -> Result<()> {
        let Ok(mut closed) = closed.recv() else {
            // The output has ended before the file that follows began, which is told elsewhere.
            next.give_way(&path, self.notify);
            return Ok(());
        };
        closed.sink.moved_to(&path);
        self.closed_files.iter().for_each(ClosedFiles::free);
        if let Err(error) = self.complete(&mut closed, facts) {
            return Err(closed.sink.give_up(error));
        }
        add(&mut self.totals, &closed);
        self.leftovers.extend(closed.sink.leftover());
        // A file that cannot be deleted is tried again when the next one is whole, and named at the end.
        self.leftovers.retain(|journal| journal.remove().is_err());
        self.is_whole(path);
        drop(closed);
        // A recording may go on for days, and what a file ends with is large for a moment.
        sys::release_free_memory();
        Ok(())
    }

    /// A file is whole, and has its name.
    fn is_whole(&self, path: PathBuf) {
        self.closed_files.iter().for_each(|closed_files| closed_files.push(path.clone()));
    }

    /// The last file is whole, and gets a name where the ones before it have one.
    ///
    /// # Errors
    /// When a journal cannot be removed.
    pub(super) fn close_last(&mut self, last: &mut Closed, rotation: Option<&Rotation>) -> Result<()> {
        let is_left = last.sink.leftover().is_some_and(|journal| journal.remove().is_err());
        match rotation.map(Rotation::vacate) {
            Some(Ok(path)) => {
                last.sink.moved_to(&path);
                if let Err(error) = Sink::sync_name(&path) {
                    (self.notify)(Level::Warning, &format!("its name may not be on the disk: {error}"));
                }
                self.is_whole(path);
            }
            Some(Err(error)) => (self.notify)(Level::Warning, &format!("the last file keeps its name: {error}")),
            None => (),
        }
        // It has another name now.
        self.leftovers.extend(last.sink.leftover().filter(|_| is_left));
        self.leftovers.iter().try_for_each(Leftover::remove)
    }

    /// Sum over all files, the last one included.
    pub(super) fn totals(&self, last: &Closed) -> Summary {
        let mut summary = self.totals.clone();
        add(&mut summary, last);
        summary.path = last.sink.path().map(Path::to_path_buf);
        summary
    }

    /// Makes a file whole that nothing more is recorded into.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn complete(&mut self, closed: &mut Closed, facts: Facts) -> Result<()> {
        let Closed { sink, tally, account } = closed;
        let Facts { programs, addresses, kallsyms, sampled_ns, mut sections, cost } = facts;
        let user_functions =
            tally.take_user_hits().map(|hits| self.user_functions.look_up(hits, sampled_ns.0)).transpose()?;
        if let Some((_, done)) = user_functions.as_ref().filter(|(_, done)| !done.cut.is_empty()) {
            (self.notify)(Level::Warning, &format!("some user functions have no names: {}", done.cut));
        }
        if sink.is_file() {
            sections.extend(self.program_sections(sink, &programs));
        }
        let cost = Cost {
            end_ns: sampled_ns.1,
            wakeups: account.wakeups,
            programs: programs.infos.len() as u32 + programs.let_go,
            longest_gap_ns: Some(u64::try_from(account.longest_gap.as_nanos()).unwrap_or(u64::MAX)),
            overrun_bytes: account.overrun_bytes,
            ..cost
        };
        let uncompressed = sink.packed_bytes().and_then(|packed| packed.uncompressed());
        for text in account.loss().into_iter().chain(uncompressed) {
            (self.notify)(Level::Warning, &text);
        }
        let used_before = std::mem::replace(&mut self.used_before, sys::usage());
        let kallsyms = self.kallsyms(kallsyms);
        let kallsyms = kallsyms.as_deref();
        let called = kallsyms.map(|kallsyms| kallsyms.called_by(&programs.infos)).unwrap_or_default();
        let addresses = &[addresses, called].concat();
        let ending = Ending { kallsyms, addresses, user_functions, cost, used_before, sections, sampled_ns };
        complete(sink, tally, &mut self.writer, ending)
    }

    /// Symbols of the kernel: those of the start, or read again when other modules have been loaded since.
    fn kallsyms(&mut self, first: Option<Arc<Kallsyms>>) -> Option<Arc<Kallsyms>> {
        let mut kallsyms = self.kallsyms.take().or(first)?;
        if !kallsyms.has_current_modules() {
            kallsyms = Kallsyms::read_without_bpf().map_or(kallsyms, Arc::new);
        }
        self.kallsyms = Some(Arc::clone(&kallsyms));
        Some(kallsyms)
    }

    /// The programs and their types. Those that are held no longer are in the journal alone.
    fn program_sections(&self, sink: &mut Sink, programs: &ProgramsOfFile) -> Vec<Section> {
        let ProgramsOfFile { infos, btfs, let_go } = programs;
        if *let_go > 0 {
            let mut frames = Vec::new();
            btfs.iter().for_each(|(id, data)| Frame::Btf { id: *id, data }.encode(&mut frames, Endian::NATIVE));
            sink.journal(&frames);
            if sink.has_full_journal() {
                let text = "the journal is full: programs that were loaded after that and unloaded are not in the recording, as may be the \
                            types of others; --switch-output gives each file a journal of its own";
                (self.notify)(Level::Warning, text);
            }
            match sink.journaled() {
                Some(mut sections) => {
                    sections.retain(|(bit, _)| [Feature::BPF_PROG_INFO.0, Feature::BPF_BTF.0].contains(bit));
                    return sections;
                }
                None => {
                    let text = "the journal could not be written: it lacks programs unloaded during the recording";
                    (self.notify)(Level::Warning, text);
                }
            }
        }
        vec![sections::programs(infos), sections::btfs(btfs.iter().map(|(id, data)| (*id, &data[..])))]
    }
}

/// Adds what a file holds.
fn add(summary: &mut Summary, Closed { sink, tally, .. }: &Closed) {
    summary.files += 1;
    summary.samples += tally.samples;
    *summary.bpf_samples.get_or_insert(0) += tally.bpf_samples;
    summary.of_programs += tally.of_programs;
    *summary.lost.get_or_insert(0) += tally.lost;
    summary.throttled += tally.throttled;
    summary.written_bytes += sink.written_bytes();
}
