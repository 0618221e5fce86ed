//! Redaction of records and samples.

use bprec_format::bprec::state::{self, State};
use bprec_format::records::user::{EventUpdate, ThreadMap, ThreadMapEntry, Update};
use bprec_format::records::{Payload, UserPayload, write_record};
use bprec_format::{
    CONTEXT_MAX, Endian, Event, Record, RecordType, SampleFields, SampleId, SampleLayout, Words, bprec::sampler,
    context, misc,
};

use super::Redactor;
use super::names::{SecretKind, is_identifier};
use crate::input::event_kind::EventKind;

/// Reason for leaving out a record.
pub(super) const REMOVED: &str = "bprec cannot redact records with arbitrary contents";
const UNREADABLE: &str = "bprec cannot redact records that it cannot read";

impl Redactor {
    /// Appends a redacted record. `event` is the event of the record, `layout` the layout of the event's redacted samples.
    ///
    /// # Errors
    /// Returns the reason for leaving out the record.
    pub(crate) fn record(
        &mut self,
        record: &Record<'_>,
        event: &Event,
        kind: EventKind,
        layout: &SampleLayout,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        if record.kind == RecordType::SAMPLE {
            return self.sample(record, event, kind, layout, out);
        }
        let (payload, id) = Payload::decode(record, &event.layout).map_err(|_| UNREADABLE)?;
        let endian = layout.endian();
        let in_kernel = matches!(record.misc & misc::CPUMODE_MASK, misc::KERNEL | misc::GUEST_KERNEL);
        let mut write = |payload: &Payload<'_>| {
            write_record(out, record.kind, record.misc, layout, &id, |w| payload.encode(w)).map_err(|_| UNREADABLE)
        };
        match payload {
            Payload::Mmap(mut map) => {
                let name = self.mapping(map.filename, in_kernel);
                map.pgoff = self.page_offset(map.pgoff, map.filename);
                (map.addr, map.filename) = (self.shift.of(map.addr), &name);
                write(&Payload::Mmap(map))
            }
            Payload::Mmap2(mut map) => {
                let name = self.mapping(map.filename, in_kernel);
                map.pgoff = self.page_offset(map.pgoff, map.filename);
                (map.addr, map.filename) = (self.shift.of(map.addr), &name);
                if !in_kernel {
                    map.file = self.names.file(&map.file);
                }
                write(&Payload::Mmap2(map))
            }
            Payload::Comm(mut comm) => {
                let name = self.names.comm(comm.comm);
                comm.comm = &name;
                write(&Payload::Comm(comm))
            }
            Payload::Cgroup(mut cgroup) => {
                let path = self.names.cgroup(cgroup.path);
                cgroup.path = &path;
                write(&Payload::Cgroup(cgroup))
            }
            Payload::Ksymbol(mut symbol) => {
                let name = self.symbol(symbol.name);
                (symbol.addr, symbol.name) = (self.shift.of(symbol.addr), &name);
                write(&Payload::Ksymbol(symbol))
            }
            Payload::BpfEvent(mut event) => {
                if self.programs {
                    event.tag = self.names.tag(event.tag);
                }
                write(&Payload::BpfEvent(event))
            }
            Payload::CallchainDeferred(mut chain) => {
                let words = self.chain(&chain.ips, endian);
                chain.ips = Words::new(&words, endian);
                write(&Payload::CallchainDeferred(chain))
            }
            Payload::Namespaces(mut namespaces) => {
                for link in &mut namespaces.links {
                    link.ino = self.names.namespace(link.ino);
                }
                write(&Payload::Namespaces(namespaces))
            }
            Payload::Fork(_)
            | Payload::Exit(_)
            | Payload::Switch(_)
            | Payload::Lost(_)
            | Payload::LostSamples(_)
            | Payload::Throttle(_)
            | Payload::Unthrottle(_)
            | Payload::Read(_) => write(&payload),
            Payload::User(user) => self.user(user, endian, out),
            // Kernel code, hardware traces and unknown kinds.
            _ => Err(REMOVED),
        }
    }

    fn mapping(&mut self, name: &[u8], in_kernel: bool) -> Vec<u8> {
        if in_kernel { self.names.kernel_mapping(name) } else { self.names.mapping(name) }
    }

    /// Redacts the file offset of a mapping. For kernel code and anonymous memory, the offset is an address.
    fn page_offset(&self, offset: u64, name: &[u8]) -> u64 {
        let is_memory = name.starts_with(b"[") || name == b"//anon";
        if is_memory { self.shift.of(offset) } else { self.shift.of_kernel(offset) }
    }

    /// Redacts a record that a tool wrote.
    fn user(&mut self, payload: UserPayload<'_>, endian: Endian, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let mut write = |payload: &UserPayload<'_>| payload.encode(endian, out).map_err(|_| UNREADABLE);
        match payload {
            UserPayload::ThreadMap(tasks) => {
                let tasks = tasks.entries.iter();
                let entries =
                    tasks.map(|task| ThreadMapEntry { tid: task.tid, comm: self.names.comm(&task.comm) }).collect();
                write(&UserPayload::ThreadMap(ThreadMap { entries }))
            }
            UserPayload::EventUpdate(EventUpdate { id, update: Update::Name(name) }) => {
                let name = self.event_name(name, self.outputs.contains(&id));
                write(&UserPayload::EventUpdate(EventUpdate { id, update: Update::Name(&name) }))
            }
            UserPayload::EventUpdate(EventUpdate { update: Update::Other { .. }, .. }) => Err(REMOVED),
            UserPayload::EventUpdate(_)
            | UserPayload::FinishedRound
            | UserPayload::FinishedInit
            | UserPayload::IdIndex(_)
            | UserPayload::CpuMap(_)
            | UserPayload::StatConfig(_)
            | UserPayload::Stat(_)
            | UserPayload::StatRound(_)
            | UserPayload::TimeConv(_)
            | UserPayload::SchedstatCpu(_) => write(&payload),
            _ => Err(REMOVED),
        }
    }

    /// Redacts an event name.
    pub(super) fn event(&mut self, name: &str) -> String {
        if let Some((event, program)) = name.strip_suffix(')').and_then(|name| name.rsplit_once(" ("))
            && is_identifier(program)
        {
            // The event carries a program of the user: its name follows in parentheses.
            let program = if self.programs { self.program_name(program) } else { program.to_owned() };
            return format!("{} ({program})", self.names.event(event, &self.shift));
        }
        self.names.event(name, &self.shift)
    }

    /// Redacts an event name. With `is_output`, a program writes to the event, and its name is that of a map.
    pub(super) fn event_name(&mut self, name: &[u8], is_output: bool) -> Vec<u8> {
        let text = String::from_utf8_lossy(name);
        if is_output && self.programs && ![state::EVENT_NAME, sampler::EVENT_NAME].contains(&&*text) {
            return self.names.replace(SecretKind::Map, name);
        }
        self.event(&text).into_bytes()
    }

    fn sample(
        &mut self,
        record: &Record<'_>,
        event: &Event,
        kind: EventKind,
        layout: &SampleLayout,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let endian = layout.endian();
        let sample = event.layout.sample(record.body(), record.offset);
        let fields = sample.and_then(|sample| sample.decode()).map_err(|_| UNREADABLE)?;
        let chain = fields.callchain.map(|chain| self.chain(&chain, endian));
        let raw = match kind {
            EventKind::State => {
                let state = State::decode(fields.raw.unwrap_or_default(), record.offset, endian);
                let mut raw = Vec::new();
                self.state(state.map_err(|_| UNREADABLE)?)?.encode(&mut raw, endian);
                raw
            }
            EventKind::BpfSampler => self.sampled(fields.raw.unwrap_or_default(), endian)?,
            // Raw data of other events may hold anything, so all of it is removed.
            EventKind::Pmu | EventKind::Other => Vec::new(),
        };
        let branches = fields.branches.map(|branches| {
            let moved = |(place, word)| if place % 3 == 2 { word } else { self.shift.of(word) };
            (branches, bytes(branches.words().iter().enumerate().map(moved), endian))
        });
        let fields = SampleFields {
            ip: fields.ip.map(|ip| self.shift.of(ip)),
            addr: fields.addr.map(|addr| self.shift.of(addr)),
            callchain: chain.as_ref().map(|chain| Words::new(chain, endian)),
            raw: Some(&raw),
            branches: branches.as_ref().map(|(branches, words)| branches.with_words(Words::new(words, endian))),
            ..fields
        };
        // The trailer of a sample is part of the sample's fields, so the trailer given here is empty.
        let written =
            write_record(out, record.kind, record.misc, layout, &SampleId::default(), |w| fields.encode(layout, w));
        written.map_err(|_| UNREADABLE)
    }

    /// Redacts a sample of the recorder's sampling program. Registers are removed: they hold data of the task.
    fn sampled(&mut self, raw: &[u8], endian: Endian) -> Result<Vec<u8>, &'static str> {
        let payload = sampler::SamplerPayload::parse(raw, 0, endian).map_err(|_| UNREADABLE)?;
        let comm = payload.comm.map(|comm| self.names.comm(comm));
        let chain = payload.callchain.map(|chain| self.chain(&chain, endian));
        let missing = match payload.registers {
            Some(_) => payload.missing.with(sampler::Parts::REGISTERS),
            None => payload.missing,
        };
        let payload = sampler::SamplerPayload {
            missing,
            ip: payload.ip.map(|ip| self.shift.of(ip)),
            addr: payload.addr.map(|addr| self.shift.of(addr)),
            comm: comm.as_deref(),
            registers: None,
            callchain: chain.as_ref().map(|chain| Words::new(chain, endian)),
            ..payload
        };
        let mut raw = Vec::new();
        payload.encode(&mut raw, endian);
        Ok(raw)
    }

    /// Redacts a call chain. The word after the marker of a deferred chain is a cookie, not an address.
    fn chain(&self, words: &Words<'_>, endian: Endian) -> Vec<u8> {
        let mut before = 0;
        let moved = words.iter().map(|word| {
            let is_address = word < CONTEXT_MAX && before != context::USER_DEFERRED;
            before = word;
            if is_address { self.shift.of(word) } else { word }
        });
        bytes(moved, endian)
    }
}

/// Encodes words in the recording's byte order.
fn bytes(words: impl Iterator<Item = u64>, endian: Endian) -> Vec<u8> {
    words.flat_map(|word| endian.bytes_u64(word)).collect()
}
