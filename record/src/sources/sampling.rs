//! Sampling events and their lost samples.

use std::sync::Arc;
use std::time::Instant;

use bprec_format::bprec::state::{Attachment, EventLoss, Loss, State};
use bprec_format::records::{LostSamples, write_record};
use bprec_format::{Endian, RecordType, SampleId, SampleLayout, event_type};

use super::{Context, Event, Source, Tick};
use crate::events::OpenEvents;
use crate::{Error, Level, Result, sys};

/// Sampling events of a recording.
#[derive(Debug)]
pub(crate) struct Sampling {
    opened: Arc<OpenEvents>,
    /// True if the kernel counts lost samples per event.
    counts_losses: bool,
    /// True while sampling is on.
    is_on: bool,
    /// Lost samples of each descriptor before the file began.
    before: Vec<u64>,
}

impl Sampling {
    pub(crate) fn new(opened: Arc<OpenEvents>, counts_losses: bool) -> Sampling {
        Sampling { before: Vec::new(), opened, counts_losses, is_on: false }
    }
}

impl Source for Sampling {
    /// Warns about tracepoints with BPF programs: the kernel drops a sample there if a program returns 0.
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        if !is_first {
            return Ok(());
        }
        for event in self.opened.events.iter().filter(|event| event.file.attr.kind == event_type::TRACEPOINT) {
            let is_on = |attachment: &&Attachment| {
                let target = String::from_utf8_lossy(attachment.target.text());
                attachment.kind == "tracepoint" && event.name.split(':').take(2).eq(target.split(':'))
            };
            let ids: Vec<String> =
                context.programs.attachments().filter(is_on).map(|it| it.prog_id.to_string()).collect();
            if !ids.is_empty() {
                let text = format!(
                    "{}: other tools attached BPF programs to this event (id {}): the kernel drops each sample for which a \
                     program returns 0",
                    event.name,
                    ids.join(", ")
                );
                (context.notify)(Level::Warning, &text);
            }
        }
        Ok(())
    }

    /// Enables the events of CPUs that came online again.
    fn tick(&mut self, _tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        for event in context.events.iter().filter(|_| self.is_on) {
            if let Event::CpuReopened(reopened) = event {
                self.opened.enable_on(reopened.cpu, true)?;
            }
        }
        Ok(None)
    }

    fn switch(&mut self, is_on: bool) -> Result<()> {
        self.is_on = is_on;
        if is_on {
            return self.opened.enable();
        }
        self.opened.disable();
        Ok(())
    }

    /// Writes a LOST_SAMPLES record for each event and CPU that lost samples since the file began, and a state with the same counts.
    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        if !self.counts_losses {
            return context.out.state(State::Loss(Loss { events: Vec::new(), not_counted: true }));
        }
        let time_ns = sys::monotonic_ns();
        let mut events = Vec::new();
        let mut records = Vec::new();
        let fds = self.opened.fds();
        self.before.resize(fds.len(), 0);
        for (event_fd, before) in fds.iter().zip(&mut self.before) {
            if event_fd.event == self.opened.state {
                continue;
            }
            let Ok((_, Some(now))) = event_fd.counts() else { continue };
            let lost = now.saturating_sub(std::mem::replace(before, now));
            if lost == 0 {
                continue;
            }
            events.push(EventLoss { event_id: event_fd.id, cpu: event_fd.cpu, lost });
            let layout = SampleLayout::new(&self.opened.events[event_fd.event].file.attr, Endian::NATIVE);
            let id = SampleId {
                pid_tid: Some((0, 0)),
                time_ns: Some(time_ns),
                id: Some(event_fd.id),
                stream_id: None,
                cpu: u32::try_from(event_fd.cpu).ok(),
            };
            write_record(&mut records, RecordType::LOST_SAMPLES, 0, &layout, &id, |w| {
                LostSamples { lost, by_bpf: false }.encode(w);
            })
            .map_err(|error| Error::Other(error.to_string()))?;
        }
        *context.out.summary.lost.get_or_insert(0) += events.iter().map(|event| event.lost).sum::<u64>();
        context.out.state(State::Loss(Loss { events, not_counted: false }))?;
        context.out.records(records)
    }
}
