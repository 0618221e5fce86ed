//! The rings of kernel code that comes and goes: BPF programs above all, one ring per CPU.
//!
//! Two threads read them, each when it has a reason to: the load watcher at each load, the drain before it ends a round, so that no
//! record comes behind the end of its round. Whoever comes first copies the records once, into the output and to the watcher.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bprec_format::{Endian, EventAttr, Records, SampleLayout};

use super::ring::Ring;
use super::rings::map_ring;
use crate::events::{Abilities, EventFd, OpenEvents};
use crate::output::{Message, Queue, fix_sample_id_trailer};
use crate::{Error, Level, Result, sys};

/// Bytes of each ring: some 200 loads between two looks.
const RING_BYTES: usize = 128 << 10;

/// The rings.
#[derive(Debug)]
pub(crate) struct CodeRings {
    attr: EventAttr,
    trailer_bytes: usize,
    /// Id that the file has for events of CPUs that come later; `None` where nothing is written.
    id: Option<u64>,
    state: Mutex<CodeRingsState>,
}

#[derive(Debug, Default)]
struct CodeRingsState {
    /// By CPU.
    rings: BTreeMap<u32, CodeRing>,
    /// Records that the watcher has not looked at, while there is a watcher.
    unseen: Vec<u8>,
    is_watched: bool,
    /// Bytes in rings that could not be read.
    overrun_bytes: u64,
}

#[derive(Debug)]
struct CodeRing {
    event: Arc<OwnedFd>,
    ring: Ring,
    /// Id that its records get instead of the event's own, which the file does not have.
    id: Option<u64>,
}

impl CodeRings {
    /// Maps the rings of a recording, which own `fds` of its event from then on: one of a CPU that has gone is of no use, and goes with
    /// its ring. `None` where the side band is that of the targets.
    ///
    /// # Errors
    /// When not even a small ring can be mapped.
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
                "rings for loads of BPF programs of {} KiB instead of {} KiB: the limit of locked memory; many loads at once may be \
                 missed. Raise it (ulimit -l), give smaller rings (-m), or CAP_IPC_LOCK",
                least_bytes / 1024,
                RING_BYTES / 1024
            );
            notify(Level::Warning, &text);
        }
        Ok(Some(rings))
    }

    /// Opens events and rings for a watcher alone: nothing is written.
    ///
    /// # Errors
    /// When the events or the rings are refused.
    pub(crate) fn unwritten(abilities: Abilities, cpus: &[u32]) -> Result<CodeRings> {
        let rings = CodeRings::new(&abilities.code(), None);
        cpus.iter().try_for_each(|cpu| rings.open(*cpu))?;
        Ok(rings)
    }

    fn new(attr: &EventAttr, id: Option<u64>) -> CodeRings {
        let trailer_bytes = SampleLayout::new(attr, Endian::NATIVE).trailer_bytes();
        CodeRings { attr: attr.clone(), trailer_bytes, id, state: Mutex::default() }
    }

    /// Opens an event on a CPU that has come online.
    ///
    /// # Errors
    /// When the event or its ring is refused.
    pub(crate) fn open(&self, cpu: u32) -> Result<()> {
        let event = sys::perf_event_open(&self.attr, -1, cpu as i32).map_err(|answer| Error::Syscall {
            call: "perf_event_open",
            object: format!("loads on cpu {cpu}"),
            answer,
            remedy: String::new(),
        })?;
        self.insert(cpu, Arc::new(event), self.id).map(drop)
    }

    /// Maps the ring of an event; returns its bytes.
    fn insert(&self, cpu: u32, event: Arc<OwnedFd>, id: Option<u64>) -> Result<usize> {
        let mut bytes = RING_BYTES;
        let ring = map_ring(&event, cpu, &mut bytes, Ring::map)?;
        self.state().rings.insert(cpu, CodeRing { event, ring, id });
        Ok(bytes)
    }

    /// Switches the events off: what goes on here from now on is of no recording.
    pub(crate) fn disable(&self) {
        for ring in self.state().rings.values() {
            // One that cannot be switched off ends with its descriptor.
            drop(sys::disable(ring.event.as_fd()));
        }
    }

    /// Gives up the ring of a CPU that has gone, which has nothing unread any more ([`CodeRings::take`]).
    pub(crate) fn remove(&self, cpu: u32) {
        self.state().rings.remove(&cpu);
    }

    /// Layout of what is common to the records.
    pub(crate) fn layout(&self) -> SampleLayout {
        SampleLayout::new(&self.attr, Endian::NATIVE)
    }

    /// The events, to wait for. From now on there is a watcher that looks at the records.
    pub(crate) fn watch(&self) -> Vec<Arc<OwnedFd>> {
        let mut state = self.state();
        state.is_watched = true;
        state.rings.values().map(|ring| Arc::clone(&ring.event)).collect()
    }

    /// There is no watcher any more.
    pub(crate) fn unwatch(&self) {
        let mut state = self.state();
        state.is_watched = false;
        state.unseen = Vec::new();
    }

    /// Copies what is in the rings, with trailers set right, to the output and for the watcher. It is sent before anyone else can read
    /// on, so that records are in the output when a round ends that began behind them.
    ///
    /// # Errors
    /// When the output has ended.
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

    /// Records that the watcher has not looked at yet.
    pub(crate) fn unseen(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().unseen)
    }

    /// Bytes in rings that could not be read since the last call.
    pub(crate) fn take_overrun(&self) -> u64 {
        std::mem::take(&mut self.state().overrun_bytes)
    }

    fn state(&self) -> MutexGuard<'_, CodeRingsState> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts an id into the trailers of records, which end with it.
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

    /// The kernel wakes nobody for an event of a CPU that has gone: whoever holds it holds it for nothing. Real kernel, root.
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
