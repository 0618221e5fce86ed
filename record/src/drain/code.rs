//! Rings of the records about loads and unloads of kernel code, mostly BPF programs. One ring per CPU.
//!
//! Two threads read these rings: the load watcher at each load, and the drain before it ends a round, so that no record
//! follows the end of its round. The thread that reads first copies the records to the output and for the watcher.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bprec_format::{Endian, EventAttr, Records, SampleLayout};

use super::ring::Ring;
use super::rings::map_ring;
use crate::events::{Abilities, EventFd, OpenEvents};
use crate::output::{Message, Queue, fix_sample_id_trailer};
use crate::{Error, Level, Result, sys};

/// Bytes of each ring: enough for about 200 loads between two reads.
const RING_BYTES: usize = 128 << 10;

/// Rings of the records about loads and unloads of kernel code, shared by the drain and the load watcher.
#[derive(Debug)]
pub(crate) struct CodeRings {
    attr: EventAttr,
    trailer_bytes: usize,
    /// Event id in the file for events of CPUs that come online later; `None` if nothing is written.
    id: Option<u64>,
    state: Mutex<CodeRingsState>,
}

#[derive(Debug, Default)]
struct CodeRingsState {
    /// Rings by CPU.
    rings: BTreeMap<u32, CodeRing>,
    /// Records that the watcher has not read yet, while there is a watcher.
    unseen: Vec<u8>,
    is_watched: bool,
    /// Bytes that could not be read from the rings.
    overrun_bytes: u64,
}

#[derive(Debug)]
struct CodeRing {
    event: Arc<OwnedFd>,
    ring: Ring,
    /// Id to put into the records in place of the event's own id, which is not in the file. `None` keeps the event's own id.
    id: Option<u64>,
}

impl CodeRings {
    /// Maps the rings of a recording. The rings own the descriptors `fds` of the code event from then on; an event of a
    /// CPU that went offline is closed with its ring. Returns `None` if the recording has no separate code event: the side
    /// band covers the targets only, or the kernel does not announce BPF programs.
    ///
    /// # Errors
    /// Fails if not even a small ring can be mapped.
    pub(super) fn of(opened: &OpenEvents, fds: Vec<EventFd>, notify: fn(Level, &str)) -> Result<Option<CodeRings>> {
        let Some(event) = opened.code else { return Ok(None) };
        let file = &opened.events[event].file;
        let rings = CodeRings::new(&file.attr, file.ids.first().copied());
        let mut least_bytes = RING_BYTES;
        for event_fd in fds {
            let Ok(cpu) = u32::try_from(event_fd.cpu) else { continue };
            least_bytes = least_bytes.min(rings.insert(cpu, event_fd.fd, None)?);
        }
        if least_bytes < RING_BYTES {
            let text = format!(
                "the limit of locked memory shrinks each ring for loads of BPF programs to {} KiB, from {} KiB: if many \
                 programs load at once, bprec may miss some. Raise the limit (ulimit -l), use smaller rings for samples \
                 (-m), or run bprec with CAP_IPC_LOCK",
                least_bytes / 1024,
                RING_BYTES / 1024
            );
            notify(Level::Warning, &text);
        }
        Ok(Some(rings))
    }

    /// Opens events and rings for a watcher alone: their records are not written.
    ///
    /// # Errors
    /// Fails if the kernel refuses the events or the rings.
    pub(crate) fn unwritten(abilities: Abilities, cpus: &[u32]) -> Result<CodeRings> {
        let rings = CodeRings::new(&abilities.code(), None);
        cpus.iter().try_for_each(|cpu| rings.open(*cpu))?;
        Ok(rings)
    }

    fn new(attr: &EventAttr, id: Option<u64>) -> CodeRings {
        let trailer_bytes = SampleLayout::new(attr, Endian::NATIVE).trailer_bytes();
        CodeRings { attr: attr.clone(), trailer_bytes, id, state: Mutex::default() }
    }

    /// Opens the event and its ring on a CPU that has come online.
    ///
    /// # Errors
    /// Fails if the kernel refuses the event or its ring.
    pub(crate) fn open(&self, cpu: u32) -> Result<()> {
        let event = sys::perf_event_open(&self.attr, -1, cpu as i32)
            .map_err(Error::refused("perf_event_open", format!("loads on cpu {cpu}")))?;
        self.insert(cpu, Arc::new(event), self.id).map(drop)
    }

    /// Maps the ring of an event and returns the bytes of the ring.
    fn insert(&self, cpu: u32, event: Arc<OwnedFd>, id: Option<u64>) -> Result<usize> {
        let mut bytes = RING_BYTES;
        let ring = map_ring(&event, cpu, &mut bytes, Ring::map)?;
        self.state().rings.insert(cpu, CodeRing { event, ring, id });
        Ok(bytes)
    }

    /// Switches the events off: loads from now on belong to no recording.
    pub(crate) fn disable(&self) {
        for ring in self.state().rings.values() {
            // An event that cannot be switched off ends when its descriptor is closed.
            drop(sys::disable(ring.event.as_fd()));
        }
    }

    /// Drops the ring of a CPU that went offline. The caller must have read its last records with [`CodeRings::take`].
    pub(crate) fn remove(&self, cpu: u32) {
        self.state().rings.remove(&cpu);
    }

    /// Layout of the sample id trailer of the records.
    pub(crate) fn layout(&self) -> SampleLayout {
        SampleLayout::new(&self.attr, Endian::NATIVE)
    }

    /// Returns the events, which the watcher polls. From now on records are kept for the watcher.
    pub(crate) fn watch(&self) -> Vec<Arc<OwnedFd>> {
        let mut state = self.state();
        state.is_watched = true;
        state.rings.values().map(|ring| Arc::clone(&ring.event)).collect()
    }

    /// Ends the watch: records are no longer kept for the watcher.
    pub(crate) fn unwatch(&self) {
        let mut state = self.state();
        state.is_watched = false;
        state.unseen = Vec::new();
    }

    /// Copies the records in the rings to the output and for the watcher, and fixes their trailers. The records are
    /// sent while the lock is held, so that they precede the end of the current round.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(crate) fn take(&self, queue: Option<&Queue>) -> Result<()> {
        let CodeRingsState { rings, unseen, is_watched, overrun_bytes } = &mut *self.state();
        let start = unseen.len();
        for CodeRing { ring, id, .. } in rings.values_mut() {
            let unread = ring.unread();
            if unread.len() == 0 && unread.overrun_bytes == 0 {
                continue;
            }
            let from = unseen.len();
            unseen.extend_from_slice(unread.first);
            unseen.extend_from_slice(unread.second);
            *overrun_bytes = overrun_bytes.saturating_add(unread.overrun_bytes);
            let head = unread.head();
            ring.consume(head);
            fix_sample_id_trailer(&mut unseen[from..], self.trailer_bytes);
            id.iter().for_each(|id| set_ids(&mut unseen[from..], *id));
        }
        let new = unseen[start..].to_vec();
        if !*is_watched {
            unseen.clear();
        }
        match queue {
            Some(queue) if !new.is_empty() => queue.push(Message::Records(new)),
            _ => Ok(()),
        }
    }

    /// Takes the records that the watcher has not read yet.
    pub(crate) fn unseen(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().unseen)
    }

    /// Takes the number of bytes that could not be read from the rings since the last call.
    pub(crate) fn take_overrun(&self) -> u64 {
        std::mem::take(&mut self.state().overrun_bytes)
    }

    fn state(&self) -> MutexGuard<'_, CodeRingsState> {
        // A panic leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes an id into the trailers of records. The id is the last word of each record.
fn set_ids(bytes: &mut [u8], id: u64) {
    let ends: Vec<usize> = Records::new(bytes, 0, Endian::NATIVE)
        .map_while(Result::ok)
        .map(|it| it.offset as usize + it.bytes.len())
        .collect();
    for end in ends {
        bytes[end - size_of::<u64>()..end].copy_from_slice(&id.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// The kernel sends no wakeup for an event of an offline CPU, so the descriptor of the event must be dropped with the ring. Needs a real kernel
    /// and root.
    #[test]
    fn the_event_of_a_cpu_goes_with_its_ring() {
        let Some(rings) = Abilities::probe().ok().and_then(|abilities| CodeRings::unwritten(abilities, &[0]).ok())
        else {
            println!("SKIP the_event_of_a_cpu_goes_with_its_ring: no events of loads here");
            return;
        };
        let event = Arc::downgrade(&rings.watch()[0]);
        assert!(event.upgrade().is_some());
        rings.remove(0);
        assert!(event.upgrade().is_none() && rings.watch().is_empty());
    }
}
