//! The switch from one file of a recording to the next.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use bprec_format::bprec::state::State;
use bprec_format::feature::Feature;

use super::Recording;
use crate::output::{Closed, DrainAccount, Next, Sink};
use crate::sources::Tick;
use crate::{Error, Level, Result, synth, sys};

impl Recording<'_> {
    /// Ends the file and continues in a new one.
    pub(super) fn switch_output(&mut self) -> Result<()> {
        let processes = self.processes();
        let Some(rotation) = &self.rotation else { return Ok(()) };
        // Reads the tasks before the switch, too: a task may have samples in the new file and end before the tasks are read
        // for that file.
        let mut before = HashMap::new();
        synth::each_process(&self.layout(), processes.as_deref(), |pid, records| {
            before.insert(pid, records.to_vec());
            Ok(())
        })?;
        let path = match rotation.vacate() {
            Ok(path) => path,
            Err(error) => {
                self.go_on_in_same_file(&error);
                return Ok(());
            }
        };
        let next = Sink::next(rotation.path(), &self.opened.events, rotation.closed_files()).and_then(|mut sink| {
            let level = self.options.compression_level;
            level.map_or(Ok(()), |level| sink.compress(level)).inspect_err(|_| sink.discard())?;
            let written = sink.written().inspect_err(|_| sink.discard())?;
            Ok((sink.origin(), sink, written))
        });
        let (begun, sink, written) = match next {
            Ok(next) => next,
            Err(error) => {
                rotation.take_back(&path);
                self.go_on_in_same_file(&error);
                return Ok(());
            }
        };
        let ended = self.sources.end_file(false);
        let sampled_ns = (self.sources.out.session.start_ns, sys::monotonic_ns());
        // `statistics_ns` is read after `end_file`, which read the last counts of this file.
        let statistics_ns = self.statistics_ns();
        // On an error, the new file, which is empty, is removed, and the previous file gets its name back.
        let closed = ended.and_then(|()| self.end_in(sink)).inspect_err(|_| {
            begun.iter().for_each(|begun| begun.give_way(&path, self.options.notify));
        })?;
        if let (Some(syncer), Some(written)) = (&self.syncer, written) {
            syncer.follow(written);
        }

        let session = &mut self.sources.out.session;
        session.part += 1;
        session.start_ns = sampled_ns.1;
        session.realtime_ns = sys::realtime_unix_ns();
        session.to_boottime_ns = sys::to_boottime_ns();
        let first = State::Session(session.clone());
        // This tick adds programs that were announced before the switch and captured only now: they belong to the closed file.
        self.sources.tick(Tick { now: Instant::now(), is_reading: false })?;
        let (programs, addresses) = (self.sources.programs.of_file(), self.sources.out.addresses.clone());
        self.named.clear();
        let tracing_data = self.sections.iter().find(|(bit, _)| *bit == Feature::TRACING_DATA.0).cloned();
        self.send_machine(tracing_data.as_ref().map(|(_, payload)| &payload[..]))?;
        self.sources.begin_file(false)?;
        self.send_tasks(before)?;
        self.send_images()?;
        self.begin_file(first)?;
        let facts = self.facts(programs, addresses, sampled_ns, statistics_ns);
        let finisher = self.finisher.as_ref().zip(begun);
        finisher.map_or(Ok(()), |(finisher, begun)| finisher.take(closed, path, begun, facts))
    }

    /// Writes everything that is sent from here on into another file. The receiver delivers the closed file when it is
    /// written.
    fn end_in(&mut self, next: Sink) -> Result<Receiver<Closed>> {
        self.sources.out.end_file()?;
        let (closed, receive) = sync_channel(1);
        self.drain.switch(Next { sink: next, account: DrainAccount::default(), closed })?;
        Ok(receive)
    }

    /// Ids of the recorded processes, or `None` if all processes are recorded. If events are inherited, the list includes the descendants of the
    /// targets, even descendants whose parent has ended and that now have another parent.
    pub(super) fn processes(&self) -> Option<Vec<u32>> {
        let targets = self.targets.processes();
        let inherit = self.targets.binding.inherit;
        targets.map(|targets| match inherit {
            true => {
                let came = self.output.tally().processes().clone();
                bprec_host::with_descendants(targets.into_iter().chain(came))
            }
            false => targets,
        })
    }

    fn go_on_in_same_file(&mut self, error: &Error) {
        (self.options.notify)(
            Level::Warning,
            &format!("no new file could be started, so the recording continues in the same file: {error}"),
        );
        if let Some(rotation) = &mut self.rotation {
            rotation.go_on(Instant::now(), self.output.written_bytes());
        }
    }
}
