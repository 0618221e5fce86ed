//! Finds the event that a record belongs to.

use crate::trailer::{oversized_trailer_behind, payload_bytes};
use crate::{Endian, Error, EventAttr, FileAttr, Record, RecordType, Result, SampleLayout};
use std::collections::HashMap;

/// An event with the layout of its records.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// Attr of the event.
    pub attr: EventAttr,
    /// Ids of the event.
    pub ids: Vec<u64>,
    /// Layout of the event's records.
    pub layout: SampleLayout,
}

/// Limit on the slots of the direct-mapped table of ids.
const QUICK_MAX: usize = 1 << 12;

/// The events of an input, found by the id that their records carry.
#[derive(Debug, Clone)]
pub struct Events {
    events: Vec<Event>,
    endian: Endian,
    /// Index of the event of each id; the first event, if several events have the same id.
    ids: HashMap<u64, u32>,
    /// Direct-mapped table of ids, indexed by their lowest bits. The kernel assigns ids in sequence, so nearly every id
    /// has its own slot.
    quick: Vec<(u64, u32)>,
    /// Distinct lengths of trailers, in bytes.
    trailers_bytes: Vec<usize>,
    id_offset: Option<usize>,
    id_offset_from_end: Option<usize>,
}

impl Events {
    /// The events of `attrs`.
    ///
    /// # Errors
    /// Fails if records do not identify their event: ids are missing or at different offsets.
    pub fn new(attrs: &[FileAttr], endian: Endian) -> Result<Events> {
        let mut events = Events::none(endian);
        events.events.reserve_exact(attrs.len());
        for attr in attrs {
            events.push(attr)?;
        }
        Ok(events)
    }

    /// Returns an empty set of events, for a stream in this byte order.
    pub fn none(endian: Endian) -> Events {
        Events {
            events: Vec::new(),
            endian,
            ids: HashMap::new(),
            quick: Vec::new(),
            trailers_bytes: Vec::new(),
            id_offset: None,
            id_offset_from_end: None,
        }
    }

    /// Adds an event that became known later.
    ///
    /// # Errors
    /// Fails if records do not identify their event, see [`Events::new`].
    pub fn push(&mut self, attr: &FileAttr) -> Result<()> {
        let layout = SampleLayout::new(&attr.attr, self.endian);
        let index = self.events.len() as u32;
        if index == 0 {
            self.id_offset = layout.id_offset();
            self.id_offset_from_end = layout.id_offset_from_end();
        } else {
            let first = &self.events[0].layout;
            if layout.id_offset().is_none() || layout.id_offset() != first.id_offset() {
                return Err(Error::other(
                    0,
                    "sample_type",
                    "the file has several events, but their samples do not all have an event id at the same position",
                ));
            }
            if layout.id_offset_from_end() != first.id_offset_from_end() {
                return Err(Error::other(
                    0,
                    "sample_type",
                    "the file has several events, but the trailers of their records do not all have an event id at the same \
                     position",
                ));
            }
        }
        if !self.trailers_bytes.contains(&layout.trailer_bytes()) {
            self.trailers_bytes.push(layout.trailer_bytes());
        }
        for id in &attr.ids {
            self.ids.entry(*id).or_insert(index);
        }
        self.events.push(Event { attr: attr.attr.clone(), ids: attr.ids.clone(), layout });
        self.place_ids(&attr.ids);
        Ok(())
    }

    /// Enters new ids into the table. The table has at least two slots per id, up to the limit. If it grows, all ids are entered again.
    fn place_ids(&mut self, new: &[u64]) {
        let places = (self.ids.len() * 2).next_power_of_two().min(QUICK_MAX);
        if places > self.quick.len() {
            // Free slots have the id 0, which no event has.
            self.quick.clear();
            self.quick.resize(places, (0, 0));
            for (id, index) in &self.ids {
                self.quick[*id as usize & (places - 1)] = (*id, *index);
            }
        } else {
            for id in new {
                self.quick[*id as usize & (places - 1)] = (*id, self.ids[id]);
            }
        }
    }

    /// All events, in the order of the input.
    pub fn all(&self) -> &[Event] {
        &self.events
    }

    /// The byte order of the records.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Index of the event with this id.
    #[inline]
    pub fn index_of_id(&self, id: u64) -> Option<usize> {
        match self.quick.get(id as usize & self.quick.len().wrapping_sub(1)) {
            Some((known, index)) if *known == id && id != 0 => Some(*index as usize),
            _ => self.ids.get(&id).map(|index| *index as usize),
        }
    }

    /// Index of the event that wrote `record`, found by the id in a sample or in the trailer of any other record. `None` for an unknown id.
    ///
    /// Returns the first event if the input has no other event. A record other than a sample also belongs to the first event if a tool wrote the
    /// record, or if its trailer has no id or the id 0 (synthesized records).
    #[inline(always)]
    pub fn index_of(&self, record: &Record<'_>) -> Option<usize> {
        if self.events.len() == 1 {
            return Some(0);
        }
        let body = record.body();
        if record.kind == RecordType::SAMPLE {
            return self.index_of_id(self.endian.u64_at(body, self.id_offset?)?);
        }
        let Some(from_end) = self.id_offset_from_end.filter(|_| record.kind.is_kernel()) else {
            return Some(0);
        };
        if matches!(record.kind, RecordType::KSYMBOL | RecordType::BPF_EVENT | RecordType::TEXT_POKE) {
            if let Some(index) = self.index_of_oversized(record, from_end) {
                return Some(index);
            }
        }
        match self.endian.u64_at(body, body.len().checked_sub(from_end)?)? {
            0 => Some(0),
            id => self.index_of_id(id),
        }
    }

    /// Index of the event of a record that the kernel made too long. The id of such a record is in the trailer directly
    /// after the payload, not at the end of the record.
    fn index_of_oversized(&self, record: &Record<'_>, from_end: usize) -> Option<usize> {
        let payload_bytes = payload_bytes(record, self.endian)?;
        self.trailers_bytes.iter().find_map(|trailer_bytes| {
            let trailer = oversized_trailer_behind(record, payload_bytes, *trailer_bytes)?;
            let id_at = (trailer + trailer_bytes).checked_sub(from_end)?;
            let index = self.index_of_id(self.endian.u64_at(record.body(), id_at)?)?;
            (self.events[index].layout.trailer_bytes() == *trailer_bytes).then_some(index)
        })
    }
}
