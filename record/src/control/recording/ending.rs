//! The end of a recording, and of each of its files.

use std::process::ExitStatus;
use std::time::Duration;

use bprec_format::bprec::state::Cost;

use super::Recording;
use super::finisher::{Completer, Facts};
use crate::output::{Closed, Summary, Syncer};
use crate::sources::inventory::ProgramsOfFile;
use crate::{Error, Result, sys};

impl Recording<'_> {
    /// Ends sampling, waits until everything is written, and completes the output.
    pub(super) fn finish(mut self, outcome: Result<()>, command: Option<ExitStatus>) -> Result<Summary> {
        let outcome = outcome.and_then(|()| {
            self.sources.switch(false)?;
            self.end_ns = sys::monotonic_ns();
            self.sources.end_file(true)
        });
        let (mut last, written) = self.end_output()?;
        let (mut completer, finished) = self.finisher.take().ok_or(Error::OutputEnded)?.end()?;
        // An error that ended the output also ended the syncer; the error of the output is reported first.
        let synced = self.syncer.take().map_or(Ok(()), Syncer::finish);
        if !self.has_begun {
            // No sample was taken, so the file is not kept.
            last.sink.discard();
        }
        if let Err(error) = finished {
            // `error` is about an earlier file, and names that file. The last file is cut after its last whole record.
            last.sink.cut();
            return Err(error);
        }
        let completed = written.and(synced).and(outcome).and_then(|()| {
            let (programs, addresses) = (self.sources.programs.of_file(), self.sources.out.addresses.clone());
            let sampled_ns = (self.sources.out.session.start_ns, self.end_ns);
            let statistics_ns = self.statistics_ns();
            let facts = self.facts(programs, addresses, sampled_ns, statistics_ns);
            completer.complete(&mut last, facts)
        });
        match completed {
            Ok(()) => {
                completer.close_last(&mut last, self.rotation.as_ref())?;
                Ok(Summary { command, ..self.summary(&completer, &last) })
            }
            Err(error) => self.give_up(error, &completer, last),
        }
    }

    /// Ends draining and waits until everything is written. Returns the last file, and the error of the output or of
    /// the drain, if there was one.
    fn end_output(&mut self) -> Result<(Closed, Result<()>)> {
        // This flush fails only if the drain or the output has ended with an error, which is returned below.
        drop(self.sources.out.flush());
        let (account, drained) = self.drain.finish()?;
        let (last, written) = self.output.finish(account)?;
        // An error that ended the output also ended draining; the error of the output is reported first.
        Ok((last, written.and(drained)))
    }

    /// Facts with which the finisher completes the file that ends.
    pub(super) fn facts(
        &self,
        programs: ProgramsOfFile,
        addresses: Vec<u64>,
        sampled_ns: (u64, u64),
        statistics_ns: Option<u64>,
    ) -> Facts {
        let cost = Cost {
            missed: self.sources.programs.counts().1,
            unheld: Some(self.sources.programs.unheld()),
            statistics_ns,
            ..Cost::default()
        };
        Facts {
            programs,
            addresses,
            kallsyms: self.sources.programs.kallsyms.clone(),
            sampled_ns,
            sections: self.sections.clone(),
            cost,
        }
    }

    /// CPU time that run statistics have cost since the end of the previous file, in nanoseconds.
    pub(super) fn statistics_ns(&mut self) -> Option<u64> {
        let taken = self.sources.out.summary.statistics_time?;
        let new = taken.saturating_sub(std::mem::replace(&mut self.statistics_before, taken));
        u64::try_from(new.as_nanos()).ok()
    }

    fn summary(&self, completer: &Completer, last: &Closed) -> Summary {
        let usage = sys::usage();
        let mut summary = completer.totals(last);
        summary.bpf_samples = self.options.bpf_sampler.is_some().then_some(summary.bpf_samples.unwrap_or(0));
        summary.cpu_time = Duration::from_nanos(usage.user_ns + usage.system_ns);
        self.sources.sum_up(&mut summary);
        summary
    }

    /// Closes the recording after an error and reports the part that is kept.
    fn give_up(&self, error: Error, completer: &Completer, mut last: Closed) -> Result<Summary> {
        let is_closed_pipe = matches!(&error, Error::File { answer, .. }
            if answer.kind() == std::io::ErrorKind::BrokenPipe && !last.sink.is_file());
        if is_closed_pipe {
            return Ok(Summary { lost: None, reader_ended: true, ..self.summary(completer, &last) });
        }
        Err(last.sink.give_up(error))
    }
}
