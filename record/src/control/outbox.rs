//! Output of sources: states and records, encoded and sent to the output thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use bprec_bpf::ProgSnapshot;
use bprec_format::feature::Feature;
use bprec_format::journal::Frame;
use bprec_format::state::State;
use bprec_format::{Endian, SampleLayout};

use crate::Result;
use crate::drain::{Drain, Rings};
use crate::events::{OpenEvent, OpenEvents};
use crate::output::{Closed, DrainAccount, Message, Next, OutputThread, Sink, StateWriter, Tally, pipe, sections};
use crate::sources::Outlet;
use crate::sys::Waker;

/// Bytes of states that are sent at once.
const BATCH_BYTES: usize = 64 << 10;

/// BTF that is remembered to have been sent.
const TYPES_MAX: usize = 1000;

/// The drain and the output thread, and the way to both.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Ends before the output does.
    drain: Drain,
    output: OutputThread,
    ended: Waker,
    is_file: bool,
    layout: SampleLayout,
    writer: StateWriter,
    /// Encoded, to be sent with the next batch.
    states: Vec<u8>,
    /// States that wait for the first one, which says when sampling began.
    held_back: Option<Vec<State>>,
    /// BTF that the output has already, the last of it: that it has one twice is no harm.
    types: VecDeque<u32>,
    /// Bytes of records that were sent since the file began.
    sent_bytes: u64,
}

impl Outbox {
    /// Begins to drain the rings into `sink`.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn start(opened: &Arc<OpenEvents>, rings: Rings, sink: Sink, tally: Tally) -> Result<Outbox> {
        let (waker, ended) = (Waker::new()?, Waker::new()?);
        let is_file = sink.is_file();
        let output = OutputThread::start(sink, tally, waker.clone(), ended.clone())?;
        let drain = Drain::start(Arc::clone(opened), rings, output.queue().clone(), waker, ended.clone())?;
        Ok(Outbox {
            drain,
            output,
            ended,
            is_file,
            layout: SampleLayout::new(&opened.events[0].file.attr, Endian::NATIVE),
            writer: StateWriter::of(opened),
            states: Vec::new(),
            held_back: Some(Vec::new()),
            types: VecDeque::new(),
            sent_bytes: 0,
        })
    }

    /// The thread that writes what is sent.
    pub(crate) fn output(&self) -> &OutputThread {
        &self.output
    }

    /// Readable when one of the threads has ended by itself, which is an error.
    pub(crate) fn ended(&self) -> &Waker {
        &self.ended
    }

    /// Features of the file that are known already.
    ///
    /// # Errors
    /// When the output has ended; so for all of these.
    pub(crate) fn features(&mut self, sections: &[sections::Section]) -> Result<()> {
        for (bit, payload) in sections {
            if self.is_file {
                self.journal(&Frame::Feature { bit: *bit, payload })?;
            } else {
                self.feature(*bit, payload)?;
            }
        }
        Ok(())
    }

    /// Names of the events, which a file has in a feature.
    pub(crate) fn event_names(&mut self, events: &[OpenEvent]) -> Result<()> {
        if self.is_file {
            return Ok(());
        }
        let mut records = Vec::new();
        events.iter().try_for_each(|event| pipe::event_name(event, &mut records))?;
        self.plain(records)
    }

    /// Formats of tracepoints.
    pub(crate) fn tracing_data(&mut self, payload: &[u8]) -> Result<()> {
        if self.is_file {
            return self.journal(&Frame::Feature { bit: Feature::TRACING_DATA.0, payload });
        }
        let mut records = Vec::new();
        pipe::tracing_data(payload, &mut records)?;
        self.plain(records)
    }

    /// Writes the first state, and what waited for it. Rounds of records begin if there are to be any.
    pub(crate) fn begin(&mut self, first: State, has_rounds: bool) -> Result<()> {
        let waiting = self.held_back.take().unwrap_or_default();
        self.state(first)?;
        self.states(waiting)?;
        self.flush()?;
        if has_rounds { self.send(Message::BeginRounds) } else { Ok(()) }
    }

    /// Has all that is handed over from here on written into another file, where states wait for the first one again. The file
    /// before it comes when it has everything.
    pub(crate) fn switch(&mut self, sink: Sink) -> Result<Receiver<Closed>> {
        self.flush()?;
        self.held_back = Some(Vec::new());
        self.sent_bytes = 0;
        let (closed, receive) = sync_channel(1);
        self.drain.switch(Next { sink, account: DrainAccount::default(), closed })?;
        Ok(receive)
    }

    /// Bytes of records that were sent since the file began: all but what comes from the rings.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Sends what was kept for a batch.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.states.is_empty() {
            return Ok(());
        }
        self.sent_bytes += self.states.len() as u64;
        let states = std::mem::take(&mut self.states);
        self.send(Message::States(states))
    }

    /// Ends draining, and has everything written. Returns the last output, and what went wrong with either.
    ///
    /// # Errors
    /// When a thread has left nothing behind.
    pub(crate) fn finish(&mut self) -> Result<(Closed, Result<()>)> {
        // An error is told by what the threads leave behind.
        drop(self.flush());
        let (account, drained) = self.drain.finish()?;
        let (last, written) = self.output.finish(account)?;
        // The error that ended the output ended draining.
        Ok((last, written.and(drained)))
    }

    fn send(&self, message: Message) -> Result<()> {
        self.output.queue().send(message)
    }

    /// Records for the reader of a stream.
    fn plain(&mut self, records: Vec<u8>) -> Result<()> {
        self.flush()?;
        self.sent_bytes += records.len() as u64;
        self.send(Message::Plain(records))
    }

    /// A feature of a stream; false when it does not fit into a record.
    fn feature(&mut self, bit: u8, payload: &[u8]) -> Result<bool> {
        match pipe::feature(bit, payload)? {
            Some(record) => self.plain(record).map(|()| true),
            None => Ok(false),
        }
    }

    fn journal(&mut self, frame: &Frame<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes, Endian::NATIVE);
        self.send(Message::Journal(bytes))
    }
}

impl Outlet for Outbox {
    fn state(&mut self, state: State) -> Result<()> {
        if let Some(held_back) = &mut self.held_back {
            held_back.push(state);
            return Ok(());
        }
        self.writer.encode(&state, &mut self.states)?;
        if self.states.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn layout(&self) -> Option<SampleLayout> {
        Some(self.layout.clone())
    }

    fn records(&mut self, records: Vec<u8>) -> Result<()> {
        // States handed over earlier are sent first.
        self.flush()?;
        self.sent_bytes += records.len() as u64;
        if records.is_empty() { Ok(()) } else { self.send(Message::Records(records)) }
    }

    fn end_round(&mut self) -> Result<()> {
        self.flush()?;
        self.drain.end_round()
    }

    fn program(&mut self, snapshot: &ProgSnapshot) -> Result<()> {
        if !self.is_file {
            let (bit, payload) = sections::programs(std::slice::from_ref(&snapshot.info));
            return self.feature(bit, &payload).map(drop);
        }
        let id = snapshot.info.view().btf_id().unwrap_or(0);
        if let Some(data) = &snapshot.btf {
            self.journal(&Frame::Btf { id, data })?;
        }
        self.journal(&Frame::Program(&snapshot.info))
    }

    fn types(&mut self, btf_id: u32, btf: &[u8]) -> Result<bool> {
        if self.types.contains(&btf_id) {
            return Ok(true);
        }
        self.types.truncate(TYPES_MAX);
        self.types.push_front(btf_id);
        if self.is_file {
            // It gets them in a section of its own.
            return self.journal(&Frame::Btf { id: btf_id, data: btf }).map(|()| true);
        }
        let (bit, payload) = sections::btfs([(btf_id, btf)].into_iter());
        self.feature(bit, &payload)
    }

    fn keep_types(&mut self, btf_id: u32, btf: &[u8]) -> Result<()> {
        if self.is_file { self.types(btf_id, btf).map(drop) } else { Ok(()) }
    }
}
