//! Names and groups of events.

use super::{Payload, read_items, read_text, write_text};
use crate::{Error, Reader, Result, Writer};

/// EVENT_DESC (since 3.2): `nr u32, attr_size u32`, then the events.
///
/// It repeats attrs and ids of the header and adds names; the attrs may have another size here than there.
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
    /// The attr as it is stored, [`EventAttr`](crate::EventAttr) reads it.
    pub attr: &'a [u8],
    /// Its name as it was given to the recorder, like `cycles:u`.
    pub name: &'a [u8],
    /// The ids that its records carry.
    pub ids: Vec<u64>,
}

impl<'a> Payload<'a> for EventDesc<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<EventDesc<'a>> {
        let (count, attr_size_bytes) = (r.u32("EVENT_DESC count")?, r.u32("EVENT_DESC attr size")?);
        let events = read_items(r, u64::from(count), problem, |r| {
            let attr = r.take(attr_size_bytes as usize, "EVENT_DESC attr")?;
            let ids = r.u32("EVENT_DESC id count")?;
            let name = read_text(r, "EVENT_DESC name")?;
            let ids = r.count(u64::from(ids), 8, "EVENT_DESC ids")?;
            let ids = (0..ids).map(|_| r.u64("EVENT_DESC ids")).collect::<Result<_>>()?;
            Ok(DescribedEvent { attr, name, ids })
        });
        Ok(EventDesc { attr_size_bytes, events })
    }

    /// Attrs that are shorter than `attr_size_bytes` are filled up with zeros, longer ones are cut.
    fn encode(&self, w: &mut Writer<'_>) {
        let attr_size = self.attr_size_bytes as usize;
        w.u32(self.events.len() as u32).u32(self.attr_size_bytes);
        for event in &self.events {
            let attr = event.attr.get(..attr_size).unwrap_or(event.attr);
            w.bytes(attr).zeros(attr_size - attr.len()).u32(event.ids.len() as u32);
            write_text(w, event.name);
            for id in &event.ids {
                w.u64(*id);
            }
        }
    }
}

/// GROUP_DESC (since 3.9): `nr u32`, then the groups by their leaders. Left out when there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDesc<'a>(pub Vec<EventGroup<'a>>);

/// Events that are scheduled together: the name as a text, `leader_idx u32, nr_members u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventGroup<'a> {
    /// Its name, `{anon_group}` when it was given none.
    pub name: &'a [u8],
    /// Index of the first event; the others follow it.
    pub leader_index: u32,
    /// Number of events, the leader included.
    pub members: u32,
}

impl<'a> Payload<'a> for GroupDesc<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<GroupDesc<'a>> {
        let count = r.u32("GROUP_DESC count")?;
        Ok(GroupDesc(read_items(r, u64::from(count), problem, |r| {
            Ok(EventGroup {
                name: read_text(r, "GROUP_DESC name")?,
                leader_index: r.u32("GROUP_DESC leader")?,
                members: r.u32("GROUP_DESC members")?,
            })
        })))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.0.len() as u32);
        for group in &self.0 {
            write_text(w, group.name);
            w.u32(group.leader_index).u32(group.members);
        }
    }
}
