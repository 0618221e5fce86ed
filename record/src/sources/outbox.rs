//! Output of sources. A recording encodes states and records and sends them to the output thread; a count collects the states.

use std::collections::VecDeque;

use bprec_bpf::ProgSnapshot;
use bprec_format::bprec::journal::Frame;
use bprec_format::bprec::state::{Session, State};
use bprec_format::feature::Feature;
use bprec_format::{Endian, SampleLayout};

use crate::Result;
use crate::events::{OpenEvent, OpenEvents};
use crate::output::{Message, Queue, StateWriter, Summary, pipe, sections};

/// Bytes of a batch of states. A full batch is sent to the output thread.
const BATCH_BYTES: usize = 64 << 10;

/// Limit on BTF ids in the list of BTF already sent; the oldest id beyond the limit is removed.
const TYPES_MAX: usize = 1000;

/// Output of all sources.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Settings of the recording; complete after all sources have begun.
    pub(crate) session: Session,
    /// Kernel addresses to name.
    pub(crate) addresses: Vec<u64>,
    /// Facts from sources for the closing line of the recorder.
    pub(crate) summary: Summary,
    /// States that wait for the first state of a file (the session), or for a count to collect them. `None` if states are sent at once.
    waiting: Option<Vec<State>>,
    /// Connection to the output thread; `None` if the recorder writes no output.
    sender: Option<Sender>,
    /// True to end the round after the records sent so far.
    round_ends: bool,
}

/// Connection to the output thread.
#[derive(Debug)]
struct Sender {
    queue: Queue,
    is_file: bool,
    layout: SampleLayout,
    writer: StateWriter,
    /// Encoded states of the next batch.
    states: Vec<u8>,
    /// Ids of BTF already sent, newest first. Only the newest ids are kept, because sending BTF twice is harmless.
    types: VecDeque<u32>,
    /// Bytes sent since the file began.
    sent_bytes: u64,
}

impl Outbox {
    /// Creates an outbox that collects states, and drops all other data.
    pub(crate) fn collecting(session: Session) -> Outbox {
        Outbox { session, waiting: Some(Vec::new()), ..Outbox::default() }
    }

    /// Creates an outbox that sends to the output thread, for a file if `is_file`, else for a stream.
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

    /// Sends a state, or holds it back until the file begins.
    ///
    /// # Errors
    /// Fails if the output thread has ended. The same holds for the other methods.
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

    /// Sends several states as [`Outbox::state`] does.
    pub(crate) fn states(&mut self, states: impl IntoIterator<Item = State>) -> Result<()> {
        states.into_iter().try_for_each(|state| self.state(state))
    }

    /// Returns the states collected since the last call.
    pub(crate) fn collected(&mut self) -> Vec<State> {
        self.waiting.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the layout of the fields that all records share; `None` if the recorder writes no records.
    pub(crate) fn layout(&self) -> Option<SampleLayout> {
        self.sender.as_ref().map(|sender| sender.layout.clone())
    }

    /// Sends complete records.
    pub(crate) fn records(&mut self, records: Vec<u8>) -> Result<()> {
        self.sender.as_mut().map_or(Ok(()), |sender| sender.send_records(records, Message::Records))
    }

    /// Requests that the round ends after the calls to all sources. Later records must not be older than the records
    /// sent before.
    pub(crate) fn end_round(&mut self) {
        self.round_ends = true;
    }

    /// Returns true if the round must end, and resets the request.
    pub(crate) fn takes_round_end(&mut self) -> bool {
        std::mem::take(&mut self.round_ends)
    }

    /// Sends a program: to the journal of a file, which survives a crash of the recorder, or into the stream.
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

    /// Sends BTF that readers need. Returns false if the BTF is too large for a stream.
    pub(crate) fn types(&mut self, btf_id: u32, btf: &[u8]) -> Result<bool> {
        self.sender.as_mut().map_or(Ok(true), |sender| sender.types(btf_id, btf))
    }

    /// Sends BTF of a map to a file, which stores BTF in a section at its end. A stream does not get this BTF.
    pub(crate) fn keep_types(&mut self, btf_id: u32, btf: &[u8]) -> Result<()> {
        let sender = self.sender.as_mut().filter(|sender| sender.is_file);
        sender.map_or(Ok(()), |sender| sender.types(btf_id, btf).map(drop))
    }

    /// Sends features that are known before the file ends.
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

    /// Sends the formats of tracepoints, and to a stream also the names of events; a file holds the names in a feature.
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

    /// Sends the first state (the session) and then the states held back. With `has_rounds`, rounds of records begin.
    pub(crate) fn begin(&mut self, first: State, has_rounds: bool) -> Result<()> {
        let waiting = self.waiting.take().unwrap_or_default();
        self.state(first)?;
        self.states(waiting)?;
        self.flush()?;
        let sender = self.sender.as_ref().filter(|_| has_rounds);
        sender.map_or(Ok(()), |sender| sender.queue.send(Message::BeginRounds))
    }

    /// Ends the file. Later states belong to the next file, and are held back until [`Outbox::begin`].
    pub(crate) fn end_file(&mut self) -> Result<()> {
        self.flush()?;
        self.waiting = Some(Vec::new());
        self.round_ends = false;
        self.sender.iter_mut().for_each(|sender| sender.sent_bytes = 0);
        Ok(())
    }

    /// Returns the bytes sent since the file began, without records from the rings.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sender.as_ref().map_or(0, |sender| sender.sent_bytes)
    }

    /// Sends the current batch of states.
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

    /// Sends records after all states and records sent before.
    fn send_records(&mut self, records: Vec<u8>, message: fn(Vec<u8>) -> Message) -> Result<()> {
        self.flush()?;
        self.sent_bytes += records.len() as u64;
        if records.is_empty() { Ok(()) } else { self.queue.send(message(records)) }
    }

    /// Sends a feature into a stream. Returns false if the feature does not fit into a record.
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
            // A file stores BTF in a separate section.
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
