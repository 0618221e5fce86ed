//! Redaction of records and samples.

use bprec_format::bprec::state::{self, State};
use bprec_format::records::user::{EventUpdate, Update};
use bprec_format::records::{Payload, UserPayload, write_record};
use bprec_format::{
    Endian, Event, Record, RecordType, SampleFields, SampleId, SampleLayout, Secret, Secrets as _, Writer,
    bprec::sampler, misc,
};

use super::Redactor;
use super::names::{SecretKind, is_identifier};
use crate::input::event_kind::EventKind;

/// Reason for leaving out a record with arbitrary contents.
pub(super) const REMOVED: &str = "bprec cannot redact records with arbitrary contents";
/// Reason for leaving out a record that cannot be parsed.
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
        let is_sample = record.kind == RecordType::SAMPLE;
        let is_of_kernel = matches!(record.misc & misc::CPUMODE_MASK, misc::KERNEL | misc::GUEST_KERNEL);
        (self.is_of_kernel, self.is_output) = (is_of_kernel && !is_sample, false);
        if is_sample {
            return self.sample(record, event, kind, layout, out);
        }
        let (mut payload, id) = Payload::decode(record, &event.layout).map_err(|_| UNREADABLE)?;
        match &mut payload {
            Payload::Mmap(map) => map.pgoff = self.page_offset(map.pgoff, map.filename),
            Payload::Mmap2(map) => map.pgoff = self.page_offset(map.pgoff, map.filename),
            Payload::User(user) => return self.user(user, layout, out),
            Payload::Comm(_)
            | Payload::Cgroup(_)
            | Payload::Ksymbol(_)
            | Payload::BpfEvent(_)
            | Payload::CallchainDeferred(_)
            | Payload::Namespaces(_)
            | Payload::Fork(_)
            | Payload::Exit(_)
            | Payload::Switch(_)
            | Payload::Lost(_)
            | Payload::LostSamples(_)
            | Payload::Throttle(_)
            | Payload::Unthrottle(_)
            | Payload::Read(_) => {}
            // Kernel code, hardware traces and unknown kinds.
            _ => return Err(REMOVED),
        }
        write_record(out, record.kind, record.misc, layout, &id, |w| payload.encode(&mut w.redacting(self)))
            .map_err(|_| UNREADABLE)
    }

    /// Redacts the file offset of a mapping. For kernel code and anonymous memory, the offset is an address.
    fn page_offset(&self, offset: u64, name: &[u8]) -> u64 {
        let is_memory = name.starts_with(b"[") || name == b"//anon";
        if is_memory { self.shift.of(offset) } else { self.shift.of_kernel(offset) }
    }

    /// Redacts a record that a tool wrote.
    fn user(
        &mut self,
        payload: &UserPayload<'_>,
        layout: &SampleLayout,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        match payload {
            UserPayload::EventUpdate(EventUpdate { update: Update::Other { .. }, .. }) => return Err(REMOVED),
            UserPayload::EventUpdate(update) => self.is_output = self.outputs.contains(&update.id),
            UserPayload::ThreadMap(_)
            | UserPayload::FinishedRound
            | UserPayload::FinishedInit
            | UserPayload::IdIndex(_)
            | UserPayload::CpuMap(_)
            | UserPayload::StatConfig(_)
            | UserPayload::Stat(_)
            | UserPayload::StatRound(_)
            | UserPayload::TimeConv(_)
            | UserPayload::SchedstatCpu(_) => {}
            _ => return Err(REMOVED),
        }
        let id = SampleId::default();
        write_record(out, payload.kind(), 0, layout, &id, |w| payload.encode_body(&mut w.redacting(self)))
            .map_err(|_| UNREADABLE)
    }

    /// Redacts an event name.
    pub(super) fn event(&mut self, name: &str) -> String {
        if let Some((event, program)) = name.strip_suffix(')').and_then(|name| name.rsplit_once(" ("))
            && is_identifier(program)
        {
            // A program of the user runs on the event: its name follows in parentheses.
            let program = self.text(Secret::Program, program.as_bytes());
            return format!("{} ({})", self.names.event(event, &self.shift), String::from_utf8_lossy(&program));
        }
        self.names.event(name, &self.shift)
    }

    /// Redacts an event name. If a program writes to the event, the name is that of a map.
    pub(super) fn event_name(&mut self, name: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(name);
        if self.is_output && self.programs && ![state::EVENT_NAME, sampler::EVENT_NAME].contains(&&*text) {
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
        let raw = match kind {
            EventKind::State => {
                let state = State::decode(fields.raw.unwrap_or_default(), record.offset, endian);
                let state = self.state(state.map_err(|_| UNREADABLE)?)?;
                let mut raw = Vec::new();
                state.put(&mut Writer::new(&mut raw, endian).redacting(self));
                raw
            }
            EventKind::BpfSampler => self.sampled(fields.raw.unwrap_or_default(), endian)?,
            // Raw data of other events may hold anything, so all of it is removed.
            EventKind::Pmu | EventKind::Other => Vec::new(),
        };
        let fields = SampleFields { raw: Some(&raw), ..fields };
        // The trailer of a sample is part of the sample's fields, so the trailer given here is empty.
        let written = write_record(out, record.kind, record.misc, layout, &SampleId::default(), |w| {
            fields.encode(layout, &mut w.redacting(self));
        });
        written.map_err(|_| UNREADABLE)
    }

    /// Redacts a sample of the recorder's sampling program. Registers are removed: they hold data of the task.
    fn sampled(&mut self, raw: &[u8], endian: Endian) -> Result<Vec<u8>, &'static str> {
        let payload = sampler::SamplerPayload::parse(raw, 0, endian).map_err(|_| UNREADABLE)?;
        let missing = match payload.registers {
            Some(_) => payload.missing.with(sampler::Parts::REGISTERS),
            None => payload.missing,
        };
        let payload = sampler::SamplerPayload { missing, registers: None, ..payload };
        let mut raw = Vec::new();
        payload.put(&mut Writer::new(&mut raw, endian).redacting(self));
        Ok(raw)
    }
}
