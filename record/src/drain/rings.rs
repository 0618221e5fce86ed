//! The rings of a recording: one ring per CPU for all events, and one ring per CPU for loads and unloads of kernel code.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::code::CodeRings;
use super::file_ids::FileIds;
use super::ring::{BackwardRing, Ring, Unread};
use crate::events::{EventFd, OpenEvents, ReopenedCpu};
use crate::output::Queue;
use crate::sys::Waker;
use crate::{Error, Level, Options, Result, sys};

/// All rings of a recording.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    cpus: Vec<CpuRings>,
    /// Index of the CPU that is read next.
    at: usize,
    /// Rings for loads and unloads of kernel code. They are separate, so that samples cannot push these records out. `None` if
    /// the recording has no separate code event.
    code: Option<Arc<CodeRings>>,
}

/// The rings of a CPU.
#[derive(Debug)]
pub(crate) struct CpuRings {
    cpu: u32,
    /// Ring of the CPU's events, except events with a ring of their own: the code event, and the sampling events if `newest` has their ring.
    main: Option<EventRing<Ring>>,
    /// Ring of the sampling events, if the newest samples overwrite the oldest.
    newest: Option<EventRing<BackwardRing>>,
    ids: FileIds,
}

/// A ring and the events that write into it.
#[derive(Debug)]
struct EventRing<R> {
    ring: R,
    /// Events that write into the ring, and can be polled. The first one owns the ring.
    writers: Vec<Arc<OwnedFd>>,
    /// Index of the writer that is polled.
    polled: usize,
}

impl Rings {
    /// Gives each CPU a ring, owned by the first event of that CPU, and redirects the other events into it.
    ///
    /// # Errors
    /// Fails if not even a small ring can be mapped, or an event cannot be redirected.
    pub(crate) fn map(opened: &OpenEvents, options: &Options) -> Result<Rings> {
        let is_code = |event_fd: &mut EventFd| opened.code == Some(event_fd.event);
        let code_fds = opened.fds().extract_if(.., is_code).collect();
        let mut cpus: BTreeMap<u32, Vec<EventFd>> = BTreeMap::new();
        for event_fd in opened.fds().iter() {
            let Ok(cpu) = u32::try_from(event_fd.cpu) else { continue };
            cpus.entry(cpu).or_default().push(event_fd.clone());
        }
        let mut bytes = options.ring.bytes();
        let of_cpu = |(cpu, fds): (&u32, &Vec<EventFd>)| CpuRings::of(*cpu, fds, opened, options, &mut bytes);
        let cpus = cpus.iter().map(of_cpu).collect::<Result<_>>()?;
        warn_of_small(bytes, options);
        let code = CodeRings::of(opened, code_fds, options.notify)?.map(Arc::new);
        Ok(Rings { cpus, at: 0, code })
    }

    /// Rings for loads and unloads of kernel code, if the recording has them.
    pub(crate) fn code(&self) -> Option<&Arc<CodeRings>> {
        self.code.as_ref()
    }

    /// Adds the rings of a CPU. Returns the rings that the CPU had before.
    pub(super) fn replace(&mut self, rings: CpuRings) -> Option<CpuRings> {
        if let Some(before) = self.cpus.iter_mut().find(|before| before.cpu == rings.cpu) {
            return Some(std::mem::replace(before, rings));
        }
        self.cpus.push(rings);
        None
    }

    /// Waits until a ring has records, `waker` is woken or the time has passed.
    ///
    /// # Errors
    /// Fails if the kernel cannot poll the events.
    pub(super) fn wait(&mut self, waker: &Waker, time: Duration) -> Result<()> {
        let main = self.cpus.iter().filter_map(|rings| rings.main.as_ref());
        let of_ring = |ring: &EventRing<Ring>| ring.writers.get(ring.polled).cloned();
        let writers: Vec<_> = main.map(of_ring).collect();
        let mut fds = vec![sys::poll_in(waker)];
        fds.extend(writers.iter().map(|writer| writer.as_ref().map_or(sys::poll_in(waker), sys::poll_in)));
        sys::poll(&mut fds, Some(time)).map_err(Error::refused("poll", "rings"))?;
        // An event hangs up when its task ends or its CPU goes offline. From then on the next event that writes to the
        // same ring is polled.
        for (ring, fd) in self.cpus.iter_mut().filter_map(|rings| rings.main.as_mut()).zip(&fds[1..]) {
            ring.polled += usize::from(sys::is_hung_up(fd));
        }
        Ok(())
    }

    /// Passes the data of each ring to `take`, and gives the space back to the kernel if `take` returns true. If `take`
    /// returns false, this ring is read first at the next call, and the function returns false.
    ///
    /// # Errors
    /// Returns the error of `take`.
    pub(super) fn take_main(&mut self, mut take: impl FnMut(&Unread<'_>, &FileIds) -> Result<bool>) -> Result<bool> {
        for _ in 0..self.cpus.len() {
            let CpuRings { main, ids, .. } = &mut self.cpus[self.at];
            if let Some(EventRing { ring, .. }) = main {
                let unread = ring.unread();
                let head = unread.head();
                if unread.len() > 0 || unread.overrun_bytes > 0 {
                    if !take(&unread, ids)? {
                        return Ok(false);
                    }
                    ring.consume(head);
                }
            }
            self.at = (self.at + 1) % self.cpus.len();
        }
        Ok(true)
    }

    /// Sends the records about loads and unloads of kernel code. Returns the number of bytes that could not be read.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(super) fn take_code(&self, queue: &Queue) -> Result<u64> {
        let Some(code) = &self.code else { return Ok(0) };
        code.take(Some(queue))?;
        Ok(code.take_overrun())
    }

    /// Appends the records of the overwritten rings that were not taken before, ring by ring. Samples during this time
    /// are not recorded. Returns the number of bytes that were skipped because they are not records.
    ///
    /// # Errors
    /// Fails if the kernel cannot pause the output into a ring.
    pub(super) fn take_newest(&mut self, records: &mut Vec<u8>) -> Result<u64> {
        self.cpus.iter_mut().map(|rings| rings.take_newest(records)).sum()
    }
}

impl CpuRings {
    /// Maps the rings of a CPU after its events were opened again.
    ///
    /// # Errors
    /// Fails if not even a small ring can be mapped, or an event cannot be redirected.
    pub(crate) fn map(reopened: &ReopenedCpu, opened: &OpenEvents, options: &Options) -> Result<CpuRings> {
        let fds: Vec<EventFd> = reopened.fds.iter().map(|(_, event_fd)| event_fd.clone()).collect();
        let mut bytes = options.ring.bytes();
        let rings = CpuRings::of(reopened.cpu, &fds, opened, options, &mut bytes)?;
        warn_of_small(bytes, options);
        Ok(CpuRings { ids: FileIds::new(reopened.ids.clone()), ..rings })
    }

    /// Maps the rings of a CPU with `bytes`, or with fewer, as [`map_ring`] does.
    fn of(cpu: u32, fds: &[EventFd], opened: &OpenEvents, options: &Options, bytes: &mut usize) -> Result<CpuRings> {
        let mut rings = CpuRings { cpu, main: None, newest: None, ids: FileIds::default() };
        for event_fd in fds {
            let name = &opened.events[event_fd.event].name;
            match options.overwrite && opened.is_sampling(event_fd.event) {
                true => EventRing::join(&mut rings.newest, event_fd, name, cpu, bytes, BackwardRing::map)?,
                false => EventRing::join(&mut rings.main, event_fd, name, cpu, bytes, Ring::map)?,
            }
        }
        Ok(rings)
    }

    /// Appends the records of the overwritten ring, as [`Rings::take_newest`] does.
    pub(super) fn take_newest(&mut self, records: &mut Vec<u8>) -> Result<u64> {
        let CpuRings { cpu, newest: Some(EventRing { ring, writers, .. }), ids, .. } = self else { return Ok(0) };
        let pause = |is_paused| {
            let paused = sys::pause_output(writers[0].as_fd(), is_paused);
            paused.map_err(Error::refused("ioctl(PERF_EVENT_IOC_PAUSE_OUTPUT)", format!("ring of cpu {cpu}")))
        };
        let start = records.len();
        pause(true)?;
        let passed_over_bytes = ring.read(records);
        pause(false)?;
        ids.put_into(&mut records[start..]);
        Ok(passed_over_bytes)
    }
}

impl<R> EventRing<R> {
    /// Redirects an event into the ring, or makes it the owner of a new ring.
    fn join(
        ring: &mut Option<EventRing<R>>,
        event_fd: &EventFd,
        name: &str,
        cpu: u32,
        bytes: &mut usize,
        map: impl Fn(BorrowedFd<'_>, usize) -> io::Result<R>,
    ) -> Result<()> {
        let fd = Arc::clone(&event_fd.fd);
        match ring {
            Some(ring) => {
                let redirected = sys::set_output(fd.as_fd(), ring.writers[0].as_fd());
                let object = format!("{name} on cpu {cpu}");
                redirected.map_err(Error::refused("ioctl(PERF_EVENT_IOC_SET_OUTPUT)", object))?;
                ring.writers.push(fd);
            }
            None => *ring = Some(EventRing { ring: map_ring(&fd, cpu, bytes, map)?, writers: vec![fd], polled: 0 }),
        }
        Ok(())
    }
}

/// Warns of rings that are smaller than the options request.
fn warn_of_small(bytes: usize, options: &Options) {
    let asked = options.ring.bytes();
    if bytes < asked {
        let text = format!(
            "the limit of locked memory (kernel.perf_event_mlock_kb) shrinks each ring buffer to {} KiB, from {} KiB: a busy \
             machine loses more samples",
            bytes / 1024,
            asked / 1024
        );
        (options.notify)(Level::Warning, &text);
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
                    object: format!("ring buffer of CPU {cpu}, {bytes} bytes"),
                    answer,
                    remedy: "-m PAGES sets a smaller ring buffer, which needs less locked memory".to_owned(),
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
        let rings_of_cpu = |(ring, cpu)| {
            let main = Some(EventRing { ring, writers: vec![Arc::clone(&owner)], polled: 0 });
            CpuRings { cpu, main, newest: None, ids: FileIds::default() }
        };
        let cpus = rings.into_iter().zip(0..).map(rings_of_cpu).collect();
        let mut rings = Rings { cpus, ..Rings::default() };
        let mut taken = Vec::new();
        let mut account = DrainAccount::default();
        assert_eq!(account.loss(), None);
        for _ in 0..2 {
            let all = rings.take_main(|unread, _| {
                account.add_overrun(unread.overrun_bytes);
                taken.push((unread.overrun_bytes, [unread.first, unread.second].concat()));
                Ok(true)
            });
            all.map_err(|error| error.to_string()).unwrap();
        }
        let said = account.loss().unwrap_or_default();
        assert!(
            said.starts_with(&format!(
                "{} bytes in the ring buffers are lost, because they could not be read",
                3 * page
            )),
            "{said}"
        );
        assert_eq!(taken, [(3 * page as u64, Vec::new()), (0, record(40, 1))]);
    }
}
