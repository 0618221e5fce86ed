//! Output of sources: states and records, encoded and sent to the output thread, or collected for a count.

use std::collections::VecDeque;

use bprec_bpf::ProgSnapshot;
use bprec_format::bprec::journal::Frame;
use bprec_format::bprec::state::{Session, State};
use bprec_format::feature::Feature;
use bprec_format::{Endian, SampleLayout};

use crate::Result;
use crate::events::{OpenEvent, OpenEvents};
use crate::output::{Message, Queue, StateWriter, Summary, pipe, sections};

/// Bytes of states that are sent at once.
const BATCH_BYTES: usize = 64 << 10;

/// BTF that is remembered to have been sent.
const TYPES_MAX: usize = 1000;

/// Output of all sources.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Settings of the recording; complete when all sources have begun.
    pub(crate) session: Session,
    /// Kernel addresses that are to get names.
    pub(crate) addresses: Vec<u64>,
    /// Facts for the closing line that sources know.
    pub(crate) summary: Summary,
    /// States that wait: for the first one of a file, which says when sampling began, or for whoever counts.
    waiting: Option<Vec<State>>,
    /// `None` where nothing is written.
    sender: Option<Sender>,
    /// A round is to end behind what was handed over.
    round_ends: bool,
}

/// The way to the output thread.
#[derive(Debug)]
struct Sender {
    queue: Queue,
    is_file: bool,
    layout: SampleLayout,
    writer: StateWriter,
    /// Encoded, to be sent with the next batch.
    states: Vec<u8>,
    /// BTF that the output has already, the last of it: that it has one twice is no harm.
    types: VecDeque<u32>,
    /// Bytes of records that were sent since the file began.
    sent_bytes: u64,
}

impl Outbox {
    /// Collects states, and drops what only a file needs.
    pub(crate) fn collecting(session: Session) -> Outbox {
        Outbox { session, waiting: Some(Vec::new()), ..Outbox::default() }
    }

    /// Sends to the output thread: into a file, or else a stream.
    pub(crate) fn sending(queue: Queue, is_file: bool, opened: &OpenEvents) -> Outbox {
        let sender = Sender {
            queue,
            is_file,
            layout: SampleLayout::new(&opened.events[0].file.attr, Endian::NATIVE),
            writer: StateWriter::of(opened),
            states: Vec::new(),
            types: VecDeque::new(),
            sent_bytes: 0,
        };
        Outbox { waiting: Some(Vec::new()), sender: Some(sender), ..Outbox::default() }
    }

    /// Takes a state.
    ///
    /// # Errors
    /// When the output has ended; so for all of these.
    pub(crate) fn state(&mut self, state: State) -> Result<()> {
        match (&mut self.waiting, &mut self.sender) {
            (Some(waiting), _) => {
                waiting.push(state);
                Ok(())
            }
            (None, Some(sender)) => sender.state(&state),
            (None, None) => Ok(()),
        }
    }

    /// Takes states.
    pub(crate) fn states(&mut self, states: impl IntoIterator<Item = State>) -> Result<()> {
        states.into_iter().try_for_each(|state| self.state(state))
    }

    /// States that were collected since the last call.
    pub(crate) fn collected(&mut self) -> Vec<State> {
        self.waiting.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Layout of what is common to all records; `None` where no records are written.
    pub(crate) fn layout(&self) -> Option<SampleLayout> {
        self.sender.as_ref().map(|sender| sender.layout.clone())
    }

    /// Takes whole records.
    pub(crate) fn records(&mut self, records: Vec<u8>) -> Result<()> {
        self.sender.as_mut().map_or(Ok(()), |sender| sender.send_records(records, Message::Records))
    }

    /// Has a round end when all sources have had their call: nothing that follows is older than what was sent before.
    pub(crate) fn end_round(&mut self) {
        self.round_ends = true;
    }

    /// True if a round is to end.
    pub(crate) fn takes_round_end(&mut self) -> bool {
        std::mem::take(&mut self.round_ends)
    }

    /// Takes a program, to be kept where it outlives this process.
    pub(crate) fn program(&mut self, snapshot: &ProgSnapshot) -> Result<()> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        if !sender.is_file {
            let (bit, payload) = sections::programs(std::slice::from_ref(&snapshot.info));
            return sender.feature(bit, &payload).map(drop);
        }
        let id = snapshot.info.view().btf_id().unwrap_or(0);
        if let Some(data) = &snapshot.btf {
            sender.journal(&Frame::Btf { id, data })?;
        }
        sender.journal(&Frame::Program(&snapshot.info))
    }

    /// Takes types that the file needs to be read. False when they are too many for a stream.
    pub(crate) fn types(&mut self, btf_id: u32, btf: &[u8]) -> Result<bool> {
        self.sender.as_mut().map_or(Ok(true), |sender| sender.types(btf_id, btf))
    }

    /// Takes types of a map, which become a part of a file at its end. A stream does without.
    pub(crate) fn keep_types(&mut self, btf_id: u32, btf: &[u8]) -> Result<()> {
        let sender = self.sender.as_mut().filter(|sender| sender.is_file);
        sender.map_or(Ok(()), |sender| sender.types(btf_id, btf).map(drop))
    }

    /// Features of the file that are known already.
    pub(crate) fn features(&mut self, sections: &[sections::Section]) -> Result<()> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        for (bit, payload) in sections {
            if sender.is_file {
                sender.journal(&Frame::Feature { bit: *bit, payload })?;
            } else {
                sender.feature(*bit, payload)?;
            }
        }
        Ok(())
    }

    /// Names of the events, which a file has in a feature, and formats of tracepoints.
    pub(crate) fn describe_events(&mut self, events: &[OpenEvent], tracing_data: Option<&[u8]>) -> Result<()> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        let mut records = Vec::new();
        if !sender.is_file {
            events.iter().try_for_each(|event| pipe::event_name(event, &mut records))?;
        }
        match tracing_data {
            Some(payload) if sender.is_file => {
                sender.journal(&Frame::Feature { bit: Feature::TRACING_DATA.0, payload })?;
            }
            Some(payload) => pipe::tracing_data(payload, &mut records)?,
            None => (),
        }
        sender.send_records(records, Message::Plain)
    }

    /// Writes the first state, which is the session, and what waited for it. Rounds of records begin if there are to be any.
    pub(crate) fn begin(&mut self, first: State, has_rounds: bool) -> Result<()> {
        let waiting = self.waiting.take().unwrap_or_default();
        self.state(first)?;
        self.states(waiting)?;
        self.flush()?;
        let sender = self.sender.as_ref().filter(|_| has_rounds);
        sender.map_or(Ok(()), |sender| sender.queue.send(Message::BeginRounds))
    }

    /// All that is handed over from here on is of another file, where states wait for the first one again.
    pub(crate) fn end_file(&mut self) -> Result<()> {
        self.flush()?;
        self.waiting = Some(Vec::new());
        self.round_ends = false;
        self.sender.iter_mut().for_each(|sender| sender.sent_bytes = 0);
        Ok(())
    }

    /// Bytes of records that were sent since the file began: all but what comes from the rings.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sender.as_ref().map_or(0, |sender| sender.sent_bytes)
    }

    /// Sends what was kept for a batch.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.sender.as_mut().map_or(Ok(()), Sender::flush)
    }
}

impl Sender {
    fn state(&mut self, state: &State) -> Result<()> {
        self.writer.encode(state, &mut self.states)?;
        if self.states.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.states.is_empty() {
            return Ok(());
        }
        self.sent_bytes += self.states.len() as u64;
        let states = std::mem::take(&mut self.states);
        self.queue.send(Message::States(states))
    }

    /// Sends records behind what was handed over before.
    fn send_records(&mut self, records: Vec<u8>, message: fn(Vec<u8>) -> Message) -> Result<()> {
        self.flush()?;
        self.sent_bytes += records.len() as u64;
        if records.is_empty() { Ok(()) } else { self.queue.send(message(records)) }
    }

    /// A feature of a stream; false when it does not fit into a record.
    fn feature(&mut self, bit: u8, payload: &[u8]) -> Result<bool> {
        match pipe::feature(bit, payload)? {
            Some(record) => self.send_records(record, Message::Plain).map(|()| true),
            None => Ok(false),
        }
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

    fn journal(&self, frame: &Frame<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes, Endian::NATIVE);
        self.queue.send(Message::Journal(bytes))
    }
}
