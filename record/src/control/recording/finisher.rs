//! The thread that completes closed files: adds function names and feature sections, writes the file to the disk, and
//! deletes the oldest file. The drain never waits for this thread; the recording waits only if another closed file is
//! already queued.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bprec_bpf::{Kallsyms, KernelNames};
use bprec_format::Endian;
use bprec_format::bprec::journal::Frame;
use bprec_format::bprec::state::{Cost, KernelSymbol};
use bprec_format::feature::Feature;

use crate::control::rotation::Rotation;
use crate::output::complete::{Ending, complete};
use crate::output::sections::{self, Section};
use crate::output::{Closed, ClosedFiles, Leftover, Origin, Sink, StateWriter, Summary};
use crate::sources::inventory::ProgramsOfFile;
use crate::synth::UserFunctions;
use crate::sys::{self, Usage, Waker};
use crate::{Error, Level, Result};

/// Number of closed files that may wait for completion. With more, the recording waits.
const WAITING_MAX: usize = 1;

/// Data for the completion of a closed file.
pub(super) struct Facts {
    pub(super) programs: ProgramsOfFile,
    /// Kernel addresses to name in addition to the addresses that samples hit.
    pub(super) addresses: Vec<u64>,
    /// Kernel symbols as of the start, if they were read.
    pub(super) kallsyms: Option<Arc<Kallsyms>>,
    /// Monotonic times at which sampling began and ended, in nanoseconds.
    pub(super) sampled_ns: (u64, u64),
    /// Feature sections that are already complete.
    pub(super) sections: Vec<Section>,
    /// Cost of the recording.
    pub(super) cost: Cost,
}

/// Job of the thread: a closed file to complete.
struct Job {
    /// Delivers the file when everything is written to it.
    closed: Receiver<Closed>,
    /// Name that the rotation has given to the closed file.
    path: PathBuf,
    /// The next file of the recording. The next file is removed if the closed file must get its old name back.
    next: Origin,
    facts: Facts,
}

/// Handle of the thread that completes files.
#[derive(Debug)]
pub(super) struct Finisher {
    jobs: SyncSender<Job>,
    thread: JoinHandle<(Completer, Result<()>)>,
}

/// Completes one file after the other.
#[derive(Debug)]
pub(super) struct Completer {
    writer: StateWriter,
    closed_files: Option<ClosedFiles>,
    user_functions: UserFunctions,
    /// Kernel symbols as of the previous file.
    kallsyms: Option<Arc<Kallsyms>>,
    /// Journals of completed files that could not be deleted yet.
    leftovers: Vec<Leftover>,
    /// Sum of the figures of all completed files.
    totals: Summary,
    /// Resources that the recorder had used when the file began.
    used_before: Usage,
    notify: fn(Level, &str),
}

impl Finisher {
    /// Starts the thread; it wakes `failed` when a file cannot be completed.
    ///
    /// # Errors
    /// Fails if no thread can be created.
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

    /// Queues a file for completion. The name of the file is `path` from now on.
    ///
    /// # Errors
    /// Fails if an earlier file could not be completed.
    pub(super) fn take(&self, closed: Receiver<Closed>, path: PathBuf, next: Origin, facts: Facts) -> Result<()> {
        let job = Job { closed, path, next, facts };
        self.jobs
            .send(job)
            .map_err(|_| Error::Other("an earlier file of this recording could not be completed".to_owned()))
    }

    /// Waits until all queued files are complete. Returns the completer for the last file, and the first error.
    ///
    /// # Errors
    /// Fails if the thread panicked.
    pub(super) fn end(self) -> Result<(Completer, Result<()>)> {
        drop(self.jobs);
        self.thread
            .join()
            .map_err(|_| Error::Other("bprec's thread that completes recording files ended with a panic".to_owned()))
    }
}

impl Completer {
    /// Creates a completer; `writer` writes the states of the recording.
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

    /// Completes a file that is not the last one of the recording.
    fn finish(&mut self, Job { closed, path, next, facts }: Job) -> Result<()> {
        let Ok(mut closed) = closed.recv() else {
            // The output ended with an error before the next file began; the output thread reports this error.
            next.give_way(&path, self.notify);
            return Ok(());
        };
        closed.sink.moved_to(&path);
        if let Some(closed_files) = &self.closed_files {
            closed_files.free();
        }
        if let Err(error) = self.complete(&mut closed, facts) {
            return Err(closed.sink.give_up(error));
        }
        add(&mut self.totals, &closed);
        self.leftovers.extend(closed.sink.leftover());
        // If a journal cannot be deleted, the deletion is tried again after each file. The last failure is reported at the end.
        self.leftovers.retain(|journal| journal.remove().is_err());
        self.is_whole(path);
        drop(closed);
        // Completing a file takes much memory for a short time. The memory is returned to the kernel, because a recording
        // may run for days.
        sys::release_free_memory();
        Ok(())
    }

    /// Adds a complete file, under its final name, to the closed files.
    fn is_whole(&self, path: PathBuf) {
        self.closed_files.iter().for_each(|closed_files| closed_files.push(path.clone()));
    }

    /// Deletes the journal of the last file. In a rotation the last file also gets the name of a closed file.
    ///
    /// # Errors
    /// Fails if a journal cannot be deleted.
    pub(super) fn close_last(&mut self, last: &mut Closed, rotation: Option<&Rotation>) -> Result<()> {
        let is_left = last.sink.leftover().is_some_and(|journal| journal.remove().is_err());
        match rotation.map(Rotation::vacate) {
            Some(Ok(path)) => {
                last.sink.moved_to(&path);
                if let Err(error) = Sink::sync_name(&path) {
                    (self.notify)(
                        Level::Warning,
                        &format!(
                            "the directory could not be synced, so a power failure may undo the renaming of the last file: \
                             {error}"
                        ),
                    );
                }
                self.is_whole(path);
            }
            Some(Err(error)) => (self.notify)(Level::Warning, &format!("the last file could not be renamed: {error}")),
            None => (),
        }
        // The path is read again, because the journal may have been renamed together with its file.
        self.leftovers.extend(last.sink.leftover().filter(|_| is_left));
        self.leftovers.iter().try_for_each(Leftover::remove)
    }

    /// Summary of all files, including the file `last`.
    pub(super) fn totals(&self, last: &Closed) -> Summary {
        let mut summary = self.totals.clone();
        add(&mut summary, last);
        summary.path = last.sink.path().map(Path::to_path_buf);
        summary
    }

    /// Completes a file that gets no more records.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
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
        let addresses: Vec<u64> = tally.addresses().iter().chain(&addresses).copied().collect();
        let kernel_functions = self.kernel_functions(kallsyms, &addresses, &programs);
        let ending = Ending { kernel_functions, user_functions, cost, used_before, sections, sampled_ns };
        complete(sink, tally, &mut self.writer, ending)
    }

    /// Kernel functions that contain the addresses or that programs call. If the table of symbols was not read at the start, the kernel looks the
    /// addresses up; the table is read if the kernel cannot.
    fn kernel_functions(
        &mut self,
        first: Option<Arc<Kallsyms>>,
        addresses: &[u64],
        programs: &ProgramsOfFile,
    ) -> Option<Vec<KernelSymbol>> {
        let known = self.kallsyms.take().or(first);
        if known.is_none()
            && let Ok(Some(functions)) =
                KernelNames::load().and_then(|names| names.functions_at(addresses, &programs.infos))
        {
            return Some(functions);
        }
        // The table is as of the previous file or the start. It is read again if the set of modules has changed.
        let kallsyms = match known {
            Some(kallsyms) if kallsyms.has_current_modules() => kallsyms,
            known => Kallsyms::read_without_bpf().ok().map(Arc::new).or(known)?,
        };
        let addresses = [addresses, &kallsyms.called_by(&programs.infos)].concat();
        let functions = kallsyms.functions_at(&addresses);
        self.kallsyms = Some(kallsyms);
        Some(functions)
    }

    /// Feature sections of the programs and their BTF. Programs that the recorder no longer holds are only in the
    /// journal.
    fn program_sections(&self, sink: &mut Sink, programs: &ProgramsOfFile) -> Vec<Section> {
        let ProgramsOfFile { infos, btfs, let_go } = programs;
        if *let_go > 0 {
            let mut frames = Vec::new();
            btfs.iter().for_each(|(id, data)| Frame::Btf { id: *id, data }.encode(&mut frames, Endian::NATIVE));
            sink.journal(&frames);
            if sink.has_full_journal() {
                let text = "the journal became full: the recording lacks programs that were loaded and unloaded after that \
                            time, and may lack types (BTF) of other programs; --switch-output gives each file its own journal";
                (self.notify)(Level::Warning, text);
            }
            match sink.journaled() {
                Some(mut sections) => {
                    sections.retain(|(bit, _)| [Feature::BPF_PROG_INFO.0, Feature::BPF_BTF.0].contains(bit));
                    return sections;
                }
                None => {
                    let text = "the journal could not be written: the recording lacks programs that were unloaded before \
                                its end";
                    (self.notify)(Level::Warning, text);
                }
            }
        }
        vec![sections::programs(infos), sections::btfs(btfs.iter().map(|(id, data)| (*id, &data[..])))]
    }
}

/// Adds the figures of a file.
fn add(summary: &mut Summary, Closed { sink, tally, .. }: &Closed) {
    summary.files += 1;
    summary.samples += tally.samples;
    *summary.bpf_samples.get_or_insert(0) += tally.bpf_samples;
    summary.of_programs += tally.of_programs;
    *summary.lost.get_or_insert(0) += tally.lost;
    summary.throttled += tally.throttled;
    summary.written_bytes += sink.written_bytes();
}
