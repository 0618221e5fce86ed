//! The end of a recording, and of each of its files.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use bprec_bpf::Kallsyms;
use bprec_format::Endian;
use bprec_format::feature::Feature;
use bprec_format::journal::Frame;
use bprec_format::state::Cost;

use super::Recording;
use crate::drain::{Closed, Drained};
use crate::output::complete::{Ending, complete};
use crate::output::sections::{self, Section};
use crate::output::{Follower, Leftover, Sink, Summary, Syncer, Tally};
use crate::sources::inventory::ProgramsOfFile;
use crate::{Error, Level, Result, sys};

impl Recording<'_> {
    /// Ends sampling, has everything written, and makes the output whole.
    pub(super) fn finish(mut self, outcome: Result<()>, command: Option<ExitStatus>) -> Result<Summary> {
        let outcome = outcome.and_then(|()| {
            self.sources.disable();
            self.end_ns = sys::monotonic_ns();
            self.sources.finish(&mut self.out)
        });
        let Drained { mut last, outcome: drained } = self.out.finish()?;
        // What ended the drain ended the rest.
        let synced = self.syncer.take().map_or(Ok(()), Syncer::finish);
        let outcome = drained.and(synced).and(outcome);
        if !self.has_begun {
            // Nothing was sampled yet that would be worth keeping.
            last.sink.discard();
        }
        let completed = outcome.and_then(|()| {
            let (programs, addresses) = (self.sources.programs.of_file(), std::mem::take(&mut self.sources.addresses));
            let kallsyms = self.kallsyms.take();
            let sampled_ns = (self.sources.session.start_ns, self.end_ns);
            let follower = self.follower.take();
            self.complete(&mut last, follower, &programs, &addresses, kallsyms.as_ref(), sampled_ns)
        });
        match completed {
            Ok(()) => {
                let is_left = last.sink.leftover().is_some_and(|journal| journal.remove().is_err());
                self.close_last(&mut last);
                // It has another name now.
                self.leftovers.extend(last.sink.leftover().filter(|_| is_left));
                self.leftovers.iter().try_for_each(Leftover::remove)?;
                Ok(Summary { command, ..self.summary(&last) })
            }
            Err(error) => self.give_up(error, last),
        }
    }

    /// Makes a file whole that nothing more is recorded into.
    pub(super) fn complete(
        &mut self,
        closed: &mut Closed,
        follower: Option<Follower>,
        programs: &ProgramsOfFile,
        addresses: &[u64],
        kallsyms: Option<&Kallsyms>,
        sampled_ns: (u64, u64),
    ) -> Result<()> {
        let Closed { sink, tally, account } = closed;
        if let Some(follower) = follower {
            let counted = follower.finish(sink.written_bytes());
            *tally = Some(counted.map_err(|answer| Error::Other(format!("reading back: {answer}")))?);
        }
        let user_functions = tally.as_mut().and_then(Tally::take_user_hits);
        let user_functions = user_functions.map(|hits| self.user_functions.look_up(hits, sampled_ns.0)).transpose()?;
        if let Some((_, done)) = user_functions.as_ref().filter(|(_, done)| !done.cut.is_empty()) {
            let text = format!("some user functions have no names: {}", done.cut);
            (self.options.notify)(Level::Warning, &text);
        }
        let mut sections = self.sections.clone();
        if sink.is_file() {
            sections.extend(self.program_sections(sink, programs));
        }
        let cost = Cost {
            end_ns: sampled_ns.1,
            wakeups: account.wakeups,
            programs: programs.infos.len() as u32 + programs.let_go,
            missed: self.sources.programs.counts().1,
            unheld: Some(self.sources.programs.unheld()),
            longest_gap_ns: Some(u64::try_from(account.longest_gap.as_nanos()).unwrap_or(u64::MAX)),
            overrun_bytes: account.overrun_bytes,
            statistics_ns: self.statistics_ns(),
            ..Cost::default()
        };
        let uncompressed = sink.packed_bytes().and_then(|packed| packed.uncompressed());
        for text in account.loss().into_iter().chain(uncompressed) {
            (self.options.notify)(Level::Warning, &text);
        }
        let used_before = std::mem::replace(&mut self.used_before, sys::usage());
        let called = kallsyms.map(|kallsyms| kallsyms.called_by(&programs.infos)).unwrap_or_default();
        let addresses = &[addresses, &called].concat();
        let ending = Ending { kallsyms, addresses, user_functions, cost, used_before, sections, sampled_ns };
        tally.as_ref().map_or(Ok(()), |tally| complete(sink, tally, self.out.writer(), ending))
    }

    /// CPU time that run statistics have taken since the previous file.
    fn statistics_ns(&mut self) -> Option<u64> {
        let mut summary = Summary::default();
        self.sources.sum_up(&mut summary);
        let taken_ns = summary.statistics_time.and_then(|time| u64::try_from(time.as_nanos()).ok())?;
        Some(taken_ns - std::mem::replace(&mut self.statistics_before_ns, taken_ns))
    }

    /// The programs and their types. Those that are held no longer are in the journal alone.
    fn program_sections(&self, sink: &mut Sink, programs: &ProgramsOfFile) -> Vec<Section> {
        let ProgramsOfFile { infos, btfs, let_go } = programs;
        if *let_go > 0 {
            let mut frames = Vec::new();
            btfs.iter().for_each(|(id, data)| Frame::Btf { id: *id, data }.encode(&mut frames, Endian::NATIVE));
            sink.journal(&frames);
            match sink.journaled() {
                Some(mut sections) => {
                    sections.retain(|(bit, _)| [Feature::BPF_PROG_INFO.0, Feature::BPF_BTF.0].contains(bit));
                    return sections;
                }
                None => {
                    let text = "the journal could not be written: it lacks programs unloaded during the recording";
                    (self.options.notify)(Level::Warning, text);
                }
            }
        }
        vec![sections::programs(infos), sections::btfs(btfs.iter().map(|(id, data)| (*id, &data[..])))]
    }

    fn summary(&self, last: &Closed) -> Summary {
        let usage = sys::usage();
        let mut summary = self.totals.clone();
        add(&mut summary, last);
        summary.bpf_samples = self.options.bpf_sampler.is_some().then_some(summary.bpf_samples.unwrap_or(0));
        summary.path = last.sink.path().map(Path::to_path_buf);
        summary.cpu_time = Duration::from_nanos(usage.user_ns + usage.system_ns);
        self.sources.sum_up(&mut summary);
        summary
    }

    /// What an error leaves behind.
    fn give_up(&self, error: Error, last: Closed) -> Result<Summary> {
        let is_closed_pipe = matches!(&error, Error::File { answer, .. }
            if answer.kind() == std::io::ErrorKind::BrokenPipe && !last.sink.is_file());
        if is_closed_pipe {
            return Ok(Summary { lost: None, reader_ended: true, ..self.summary(&last) });
        }
        let mut sink = last.sink;
        sink.cut();
        Err(match error {
            Error::File { answer, .. } if sink.is_there() => Error::Incomplete {
                path: sink.path().map(Path::to_path_buf).unwrap_or_default(),
                answer,
                kept_bytes: sink.written_bytes(),
            },
            error => error,
        })
    }
}

/// Adds what a file holds.
pub(super) fn add(summary: &mut Summary, Closed { sink, tally, .. }: &Closed) {
    summary.files += 1;
    if let Some(tally) = tally {
        summary.samples += tally.samples;
        *summary.bpf_samples.get_or_insert(0) += tally.bpf_samples;
        summary.of_programs += tally.of_programs;
        *summary.lost.get_or_insert(0) += tally.lost;
        summary.throttled += tally.throttled;
    }
    summary.written_bytes += sink.written_bytes();
}
