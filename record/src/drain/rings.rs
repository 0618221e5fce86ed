//! The rings of a recording: one per CPU for all events, and the rings of code.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::code::CodeRings;
use super::ring::{BackwardRing, Ring, Unread};
use crate::events::OpenEvents;
use crate::output::Queue;
use crate::{Error, Level, Options, Result, sys};

/// All rings of a recording.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    /// One ring per CPU, for all events except the code event.
    main: RingSet,
    /// Rings of code that is loaded and unloaded: samples cannot push its records out. `None` if the side-band events
    /// cover the targets only.
    code: Option<Arc<CodeRings>>,
    /// One ring per CPU for the sampling events, if the newest samples overwrite the oldest.
    newest: Vec<CpuBackwardRing>,
}

/// Rings that are read in turn.
#[derive(Debug, Default)]
struct RingSet {
    rings: Vec<CpuRing>,
    /// Index of the ring that is read next.
    at: usize,
}

/// An overwritten ring and its CPU.
#[derive(Debug)]
struct CpuBackwardRing {
    cpu: u32,
    ring: BackwardRing,
    /// Event that owns the ring, as in [`CpuRing`].
    owner: Arc<OwnedFd>,
}

/// A ring and its CPU.
#[derive(Debug)]
struct CpuRing {
    cpu: u32,
    ring: Ring,
    /// Event that owns the ring: it is polled, and the other events of the CPU write into its ring.
    owner: Arc<OwnedFd>,
}

impl Rings {
    /// Gives each CPU a ring, owned by the first event of that CPU, and redirects the other events into it.
    ///
    /// # Errors
    /// Fails if not even a small ring can be mapped, or an event cannot be redirected.
    pub(crate) fn map(opened: &mut OpenEvents, options: &Options) -> Result<Rings> {
        let code_fds = opened.fds.extract_if(.., |event_fd| opened.code == Some(event_fd.event)).collect();
        let mut rings = Rings::default();
        let asked = options.ring.bytes();
        let mut bytes = asked;
        for event_fd in &opened.fds {
            let Ok(cpu) = u32::try_from(event_fd.cpu) else { continue };
            let is_overwritten = options.overwrite && opened.is_sampling(event_fd.event);
            let owner = match is_overwritten {
                true => rings.newest.iter().find(|ring| ring.cpu == cpu).map(|ring| &ring.owner),
                false => rings.main.rings.iter().find(|ring| ring.cpu == cpu).map(|ring| &ring.owner),
            };
            if let Some(owner) = owner {
                sys::set_output(event_fd.fd.as_fd(), owner.as_fd()).map_err(|answer| Error::Syscall {
                    call: "ioctl(PERF_EVENT_IOC_SET_OUTPUT)",
                    object: format!("{} on cpu {cpu}", opened.events[event_fd.event].name),
                    answer,
                    remedy: String::new(),
                })?;
                continue;
            }
            if is_overwritten {
                let ring = map_ring(&event_fd.fd, cpu, &mut bytes, BackwardRing::map)?;
                rings.newest.push(CpuBackwardRing { cpu, ring, owner: Arc::clone(&event_fd.fd) });
                continue;
            }
            let ring = map_ring(&event_fd.fd, cpu, &mut bytes, Ring::map)?;
            rings.main.rings.push(CpuRing { cpu, ring, owner: Arc::clone(&event_fd.fd) });
        }
        if bytes < asked {
            let text = format!(
                "each ring has {} KiB instead of {} KiB, by the limit of locked memory (kernel.perf_event_mlock_kb)",
                bytes / 1024,
                asked / 1024
            );
            (options.notify)(Level::Warning, &text);
        }
        rings.code = CodeRings::of(opened, code_fds, options.notify)?.map(Arc::new);
        Ok(rings)
    }

    /// Rings of code, if there are any.
    pub(crate) fn code(&self) -> Option<&Arc<CodeRings>> {
        self.code.as_ref()
    }

    /// Events that write to each ring, the owner first. Each event can be polled.
    pub(super) fn writers(&self, opened: &OpenEvents) -> Vec<Vec<Arc<OwnedFd>>> {
        let mut by_cpu: BTreeMap<i32, Vec<Arc<OwnedFd>>> = BTreeMap::new();
        for event_fd in &opened.fds {
            by_cpu.entry(event_fd.cpu).or_default().push(Arc::clone(&event_fd.fd));
        }
        let of_ring = |ring: &CpuRing| {
            let mut writers = by_cpu.remove(&(ring.cpu as i32)).unwrap_or_default();
            writers.retain(|fd| !Arc::ptr_eq(fd, &ring.owner));
            writers.insert(0, Arc::clone(&ring.owner));
            writers
        };
        self.main.rings.iter().map(of_ring).collect()
    }

    /// Passes the data of each ring to `take`, and gives the space back to the kernel if `take` returns true. If `take`
    /// returns false, this ring is read first at the next call, and the function returns false.
    ///
    /// # Errors
    /// Returns the error of `take`.
    pub(super) fn take_main(&mut self, take: impl FnMut(&Unread<'_>) -> Result<bool>) -> Result<bool> {
        self.main.take(take)
    }

    /// Sends the records in the rings of code. Returns the number of bytes that could not be read.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(super) fn take_code(&self, queue: &Queue) -> Result<u64> {
        let Some(code) = &self.code else { return Ok(0) };
        code.take(Some(queue))?;
        Ok(code.take_overrun())
    }

    /// Appends the records of the overwritten rings that were not taken before, ring by ring. Samples during this time
    /// are not recorded. Returns the number of bytes that are passed over because they are not records.
    ///
    /// # Errors
    /// Fails if the kernel cannot pause the output into a ring.
    pub(super) fn take_newest(&mut self, records: &mut Vec<u8>) -> Result<u64> {
        let mut passed_over_bytes = 0;
        for CpuBackwardRing { cpu, ring, owner } in &mut self.newest {
            let pause = |is_paused| {
                sys::pause_output(owner.as_fd(), is_paused).map_err(|answer| Error::Syscall {
                    call: "ioctl(PERF_EVENT_IOC_PAUSE_OUTPUT)",
                    object: format!("ring of cpu {cpu}"),
                    answer,
                    remedy: "needs Linux 4.7".to_owned(),
                })
            };
            pause(true)?;
            passed_over_bytes += ring.read(records);
            pause(false)?;
        }
        Ok(passed_over_bytes)
    }
}

impl RingSet {
    fn take(&mut self, mut take: impl FnMut(&Unread<'_>) -> Result<bool>) -> Result<bool> {
        for _ in 0..self.rings.len() {
            let CpuRing { ring, .. } = &mut self.rings[self.at];
            let unread = ring.unread();
            let head = unread.head();
            if unread.len() > 0 || unread.overrun_bytes > 0 {
                if !take(&unread)? {
                    return Ok(false);
                }
                ring.consume(head);
            }
            self.at = (self.at + 1) % self.rings.len();
        }
        Ok(true)
    }
}

/// Maps the ring of an event with `bytes`, or with fewer if the limit of locked memory requires it; `bytes` is lowered
/// then.
pub(super) fn map_ring<R>(
    event: &impl AsFd,
    cpu: u32,
    bytes: &mut usize,
    map: impl Fn(BorrowedFd<'_>, usize) -> io::Result<R>,
) -> Result<R> {
    loop {
        match map(event.as_fd(), *bytes) {
            Ok(ring) => return Ok(ring),
            // The ring exceeds the limit of locked memory: a smaller ring is better than no ring.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && *bytes > sys::page_bytes() => *bytes /= 2,
            Err(answer) => {
                return Err(Error::Syscall {
                    call: "mmap",
                    object: format!("ring of cpu {cpu}, {bytes} bytes"),
                    answer,
                    remedy: "a smaller ring needs less locked memory: -m PAGES".to_owned(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::in_memory::record;
    use super::*;
    use crate::output::DrainAccount;

    #[test]
    fn a_ring_whose_place_is_lost_is_said_once_and_the_others_are_read() {
        let page = sys::page_bytes();
        let rings = [Ring::in_memory(page), Ring::in_memory(page)];
        rings[0].set_head(3 * page as u64);
        rings[1].write(0, &record(40, 1));
        rings[1].set_head(40);
        let owner = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let ring_of_cpu = |(ring, cpu)| CpuRing { cpu, ring, owner: Arc::clone(&owner) };
        let rings = rings.into_iter().zip(0..).map(ring_of_cpu).collect();
        let mut rings = RingSet { rings, at: 0 };
        let mut taken = Vec::new();
        let mut account = DrainAccount::default();
        assert_eq!(account.loss(), None);
        for _ in 0..2 {
            let all = rings.take(|unread| {
                account.add_overrun(unread.overrun_bytes);
                taken.push((unread.overrun_bytes, [unread.first, unread.second].concat()));
                Ok(true)
            });
            all.map_err(|error| error.to_string()).unwrap();
        }
        let said = account.loss().unwrap_or_default();
        assert!(said.starts_with(&format!("{} bytes in the rings could not be read", 3 * page)), "{said}");
        assert_eq!(taken, [(3 * page as u64, Vec::new()), (0, record(40, 1))]);
    }
}
