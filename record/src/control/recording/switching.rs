//! From one file of a recording to the next.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use bprec_bpf::Kallsyms;
use bprec_format::feature::Feature;
use bprec_format::state::State;

use super::ending::add;
use super::{Recording, tally_of_file};
use crate::drain::Closed;
use crate::output::Sink;
use crate::{Error, Level, Result, synth, sys};

impl Recording<'_> {
    /// Ends the file and goes on in another one.
    pub(super) fn switch_output(&mut self) -> Result<()> {
        let (processes, came) = self.processes();
        let Some(rotation) = &self.rotation else { return Ok(()) };
        let kallsyms = sys::spawn("bprec-kallsyms", Kallsyms::read)?;
        // Tasks that end between the switch and the look at those that are there have samples in the file that follows, too.
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
            let tally = tally_of_file(&self.opened, self.options).map(|tally| tally.with(came));
            let follower = tally.and_then(|tally| sink.follower(tally)).inspect_err(|_| sink.discard())?;
            let written = sink.written().inspect_err(|_| sink.discard())?;
            Ok((sink, follower, written))
        });
        let (sink, follower, written) = match next {
            Ok(next) => next,
            Err(error) => {
                rotation.take_back(&path);
                self.go_on_in_same_file(&error);
                return Ok(());
            }
        };
        self.sources.end_file(&mut self.out)?;
        let sampled_ns = (self.sources.session.start_ns, sys::monotonic_ns());
        let mut closed = self.out.switch(sink)?;
        let followed = std::mem::replace(&mut self.follower, follower);
        if let (Some(syncer), Some(written)) = (&self.syncer, written) {
            syncer.follow(written);
        }
        closed.sink.moved_to(&path);

        let session = &mut self.sources.session;
        session.part += 1;
        session.start_ns = sampled_ns.1;
        session.realtime_ns = sys::realtime_unix_ns();
        session.to_boottime_ns = sys::to_boottime_ns();
        let first = State::Session(session.clone());
        // What was announced before the switch and captured since is of the file before.
        self.sources.poll(Instant::now(), &mut self.out)?;
        let (programs, addresses) = (self.sources.programs.of_file(), self.sources.addresses.clone());
        let named_by = self.kallsyms.take();
        self.named.clear();
        let tracing_data = self.sections.iter().find(|(bit, _)| *bit == Feature::TRACING_DATA.0).cloned();
        self.send_machine(tracing_data.as_ref().map(|(_, payload)| &payload[..]))?;
        self.sources.begin_file(&mut self.out)?;
        self.send_tasks(before)?;
        self.send_images(kallsyms)?;
        self.out.begin(first, self.has_rounds())?;
        if let Some(rotation) = &mut self.rotation {
            rotation.begin(Instant::now(), self.out.sent_bytes());
        }

        self.complete(&mut closed, followed, &programs, &addresses, named_by.as_ref(), sampled_ns)?;
        add(&mut self.totals, &closed);
        self.leftovers.extend(closed.sink.leftover());
        // What stays now is tried again when the next file is complete, and told at the end.
        self.leftovers.retain(|journal| journal.remove().is_err());
        if let Some(rotation) = &self.rotation {
            rotation.closed(path);
        }
        drop((closed, programs, named_by));
        // A recording may go on for days, and what a file ends with is large for a moment.
        sys::release_free_memory();
        Ok(())
    }

    /// Processes that are recorded, `None` for all there are; and those of them that came while it was recorded. What inherits the
    /// events are descendants of the targets, also those that have lost their parents since.
    pub(super) fn processes(&mut self) -> (Option<Vec<u32>>, BTreeSet<u32>) {
        let mut came = BTreeSet::new();
        if let Some(follower) = &mut self.follower {
            // What it does not find now, it finds the next time.
            let _ = follower.follow();
            came.clone_from(follower.processes());
        }
        let targets = self.targets.processes();
        let inherit = self.targets.binding.inherit;
        let all = |targets: Vec<u32>| match inherit {
            true => bprec_host::with_descendants(targets.into_iter().chain(came.iter().copied())),
            false => targets,
        };
        (targets.map(all), came)
    }

    fn go_on_in_same_file(&mut self, error: &Error) {
        (self.options.notify)(Level::Warning, &format!("the recording continues in the same file: {error}"));
        if let Some(rotation) = &mut self.rotation {
            rotation.go_on(Instant::now(), self.out.drain().written_bytes());
        }
    }

    /// The last file is complete, too.
    pub(super) fn close_last(&mut self, last: &mut Closed) {
        let Some(rotation) = &self.rotation else { return };
        match rotation.vacate() {
            Ok(path) => {
                last.sink.moved_to(&path);
                if let Err(error) = Sink::sync_name(&path) {
                    (self.options.notify)(Level::Warning, &format!("its name may not be on the disk: {error}"));
                }
                rotation.closed(path);
            }
            Err(error) => (self.options.notify)(Level::Warning, &format!("the last file keeps its name: {error}")),
        }
    }
}
