//! Names and groups of events.

use super::{SectionContent, read_items};
use crate::layout::meaning::Event;
use crate::layout::{Codec, List, PaddedText, layout};
use crate::{Error, Reader, Result, Writer};

/// EVENT_DESC (since 3.2): `nr u32, attr_size u32`, then the events.
///
/// The section repeats attrs and ids of the header and adds names; its attrs may differ in size from the header's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDesc<'a> {
    /// Bytes of each attr.
    pub attr_size_bytes: u32,
    /// The events, in the order of the attrs section.
    pub events: Vec<DescribedEvent<'a>>,
}

/// An event with its name: the attr, `nr_ids u32`, the name as a text, the ids (u64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedEvent<'a> {
    /// Stored bytes of the attr; [`EventAttr`](crate::EventAttr) reads them.
    pub attr: &'a [u8],
    /// Name as given to the recorder, like `cycles:u`.
    pub name: &'a [u8],
    /// Ids that the event's records carry.
    pub ids: Vec<u64>,
}

impl<'a> SectionContent<'a> for EventDesc<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<EventDesc<'a>> {
        let (count, attr_size_bytes) = (r.u32("EVENT_DESC count")?, r.u32("EVENT_DESC attr size")?);
        let events = read_items(r, u64::from(count), problem, |r| {
            let attr = r.take(attr_size_bytes as usize, "EVENT_DESC attr")?;
            let ids = r.u32("EVENT_DESC id count")?;
            let name = PaddedText::<Event>::get(r, "EVENT_DESC name")?;
            let ids = r.count(u64::from(ids), 8, "EVENT_DESC ids")?;
            let ids = (0..ids).map(|_| r.u64("EVENT_DESC ids")).collect::<Result<_>>()?;
            Ok(DescribedEvent { attr, name, ids })
        });
        Ok(EventDesc { attr_size_bytes, events })
    }

    /// Attrs that are shorter than `attr_size_bytes` are filled up with zeros; longer attrs are cut.
    fn encode(&self, w: &mut Writer<'_>) {
        let attr_size = self.attr_size_bytes as usize;
        w.u32(self.events.len() as u32).u32(self.attr_size_bytes);
        for event in &self.events {
            let attr = event.attr.get(..attr_size).unwrap_or(event.attr);
            w.bytes(attr).zeros(attr_size - attr.len()).u32(event.ids.len() as u32);
            PaddedText::<Event>::put(&event.name, w);
            for id in &event.ids {
                w.u64(*id);
            }
        }
    }
}

layout! {
    /// GROUP_DESC (since 3.9): `nr u32`, then an `EventGroup` for each group. Left out if there are no groups.
    pub struct GroupDesc<'a>(pub Vec<EventGroup<'a>> as List);

    /// Events that are scheduled together.
    #[derive(Copy)]
    pub struct EventGroup<'a> {
        /// Name of the group; `{anon_group}` if it has none.
        pub name: &'a [u8] as PaddedText<Event>,
        /// Index of the first event; the others follow it.
        pub leader_index: u32,
        /// Count of events, the leader included.
        pub members: u32,
    }
}
