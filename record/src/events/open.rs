//! Opening of events on targets: from event specifications to descriptors.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bprec_format::{AttrFlags, EventAttr, FileAttr, SampleType};

use super::abilities::Abilities;
use super::counters::cpus_of;
use super::sampling::{self, Sampler};
use super::targets::CpuThreadTargets;
use crate::limits::Limit;
use crate::{Error, Level, Options, Result, sys};

/// The open events of one recording. The drain owns the rings into which they write.
#[derive(Debug)]
pub(crate) struct OpenEvents {
    /// Events in the order of the file: sampling events, events for the user's BPF programs, side band, `bprec:state`,
    /// `bprec:sampler`.
    pub(crate) events: Vec<OpenEvent>,
    /// One descriptor per event, task and CPU. Descriptors change when a CPU comes back online.
    fds: Mutex<Vec<EventFd>>,
    /// Targets of the sampling events.
    targets: CpuThreadTargets,
    /// Number of events in `events` that sample without a BPF program of the user; the events of the user's programs follow.
    samplers: usize,
    /// Index of the first side-band event. The events before it are sampling events.
    side_band: usize,
    /// Index of the event for loads and unloads of kernel code, if that event has its own rings.
    pub(crate) code: Option<usize>,
    /// Index of `bprec:state`.
    pub(crate) state: usize,
    /// Index of `bprec:sampler`, if there is one.
    pub(crate) sampler_output: Option<usize>,
    /// True if the side band covers the whole machine, false if it covers the targets only.
    pub(crate) side_band_everywhere: bool,
}

/// An event of the file.
#[derive(Debug, Clone)]
pub(crate) struct OpenEvent {
    /// Name of the event.
    pub(crate) name: String,
    /// Attributes and ids of the event.
    pub(crate) file: FileAttr,
    /// True if the event is open on the targets of the recording, false if it is open on whole CPUs.
    follows_targets: bool,
    /// CPUs of the event's PMU; `None` if the event can be opened on every CPU.
    cpus: Option<Vec<u32>>,
}

impl OpenEvent {
    /// Creates an event that has no ids yet.
    pub(crate) fn new(name: String, attr: EventAttr) -> OpenEvent {
        OpenEvent { name, file: FileAttr { attr, ids: Vec::new() }, follows_targets: false, cpus: None }
    }
}

/// Descriptor of an event for one task and CPU.
#[derive(Debug, Clone)]
pub(crate) struct EventFd {
    pub(crate) fd: Arc<OwnedFd>,
    /// Index of the event in [`OpenEvents::events`].
    pub(crate) event: usize,
    /// Id of the event in the file. A descriptor opened when its CPU came online has a different id in the kernel, which the
    /// file does not have.
    pub(crate) id: u64,
    /// CPU of the descriptor; −1 if it follows a task on all CPUs.
    pub(crate) cpu: i32,
    /// Totals of the descriptors that this descriptor replaces: value of the event, and count of lost samples.
    replaced: (u64, u64),
}

/// Events of a CPU that were opened again, still disabled.
#[derive(Debug)]
pub(crate) struct ReopenedCpu {
    pub(crate) cpu: u32,
    /// Descriptors of the CPU, with their indices in [`OpenEvents::fds`].
    pub(crate) fds: Vec<(usize, EventFd)>,
    /// Pairs: the id that the kernel gave a descriptor, and the id of its event in the file.
    pub(crate) ids: Vec<(u64, u64)>,
}

impl EventFd {
    /// Value of the event, and its lost samples if the kernel counts them.
    ///
    /// # Errors
    /// Fails if the kernel refuses to read the event.
    pub(crate) fn counts(&self) -> io::Result<(u64, Option<u64>)> {
        let (value, lost) = sys::read_counter(self.fd.as_fd())?;
        Ok((value + self.replaced.0, lost.map(|lost| lost + self.replaced.1)))
    }
}

/// Origin of the samples that an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleRole {
    /// Samples of the events to sample (`-e`, or the default event).
    Main,
    /// Samples of the recorder's own sampling program.
    BpfSampler,
    /// Samples of the user's BPF programs.
    UserProgram,
    /// No samples to count: side band and `bprec:state`.
    Other,
}

impl OpenEvents {
    /// Opens the sampling events, disabled. An event that the machine does not offer is replaced in `samplers`.
    ///
    /// # Errors
    /// Fails if an event cannot be opened and has no replacement.
    pub(crate) fn open(options: &Options, samplers: &mut [Sampler], targets: &CpuThreadTargets) -> Result<OpenEvents> {
        for sampler in samplers.iter_mut() {
            let cpus = cpus_of(&sampler.spec, &targets.cpus);
            let places = targets.places();
            let (Some(place), Some(cpu)) = (places.first(), cpus.first()) else {
                let problem = format!("the event's PMU cannot count on any of the selected CPUs {:?}", targets.cpus);
                return Err(Error::Event { event: sampler.spec.name.clone(), problem });
            };
            // The first thread may have ended already; any other thread serves as well.
            let mut settled = sampler.settle(options, targets, *place, *cpu as i32);
            for place in places.iter().skip(1) {
                if !settled.as_ref().is_err_and(is_gone) {
                    break;
                }
                settled = sampler.settle(options, targets, *place, *cpu as i32);
            }
            settled?;
        }

        let mut opened = OpenEvents {
            events: Vec::new(),
            fds: Mutex::default(),
            targets: targets.clone(),
            samplers: samplers.len(),
            side_band: 0,
            code: None,
            state: 0,
            sampler_output: None,
            side_band_everywhere: true,
        };
        for (event, sampler) in samplers.iter().enumerate() {
            opened.open_more(sampler, targets)?;
            if options.aggregate.is_some() {
                // Kernel samples have no weight; the aggregated samples that replace them do.
                let attr = &mut opened.events[event].file.attr;
                attr.sample_type = attr.sample_type.with(SampleType::WEIGHT);
            }
        }
        Ok(opened)
    }

    /// Opens all events that do not sample. Side-band records arrive from here on; samples arrive after
    /// [`OpenEvents::enable`].
    pub(crate) fn open_side_band(
        &mut self,
        options: &Options,
        abilities: Abilities,
        targets: &CpuThreadTargets,
        online: &[u32],
    ) -> Result<()> {
        self.side_band = self.events.len();
        self.open_tasks_and_maps(options, abilities, targets, online)?;
        let attr = abilities.state();
        let fd = sys::perf_event_open(&attr, 0, -1).map_err(|e| sampling::refused("bpf-output", 0, -1, e))?;
        self.state = self.events.len();
        self.events.push(OpenEvent::new(bprec_format::bprec::state::EVENT_NAME.to_owned(), attr));
        self.add(fd, self.state, -1)?;
        if options.bpf_sampler.is_some() {
            let name = bprec_format::bprec::sampler::EVENT_NAME;
            // The sampling program writes into the event of its CPU, whatever the task.
            self.sampler_output = Some(self.open_on_cpus(name, abilities.output(), &[-1], &targets.cpus)?);
        }
        Ok(())
    }
}

/// Returns true if the error only means that the task has ended.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Syscall { answer, .. } if answer.raw_os_error() == Some(libc::ESRCH))
}

impl OpenEvents {
    /// Adds a descriptor of an event and returns the index of the descriptor.
    pub(crate) fn add(&mut self, fd: OwnedFd, event: usize, cpu: i32) -> Result<usize> {
        let id = self.id_of(&fd, event)?;
        self.events[event].file.ids.push(id);
        let mut fds = self.fds();
        fds.push(EventFd { fd: Arc::new(fd), event, id, cpu, replaced: (0, 0) });
        Ok(fds.len() - 1)
    }

    /// Id that the kernel gave a descriptor of an event.
    fn id_of(&self, fd: &OwnedFd, event: usize) -> Result<u64> {
        sys::event_id(fd.as_fd()).map_err(Error::refused("ioctl(PERF_EVENT_IOC_ID)", &self.events[event].name))
    }

    /// Descriptors of all events.
    pub(crate) fn fds(&self) -> MutexGuard<'_, Vec<EventFd>> {
        // A panic leaves the list consistent: each change is complete before the next can fail.
        self.fds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the events of a CPU again after it came online; the new descriptors are disabled. Events that follow the
    /// targets are opened only if `samples` is true. Events bound to tasks outlive the CPU and stay open. `drain::code`
    /// reopens its own event.
    ///
    /// # Errors
    /// Fails if the kernel refuses an event; the descriptors are unchanged then.
    pub(crate) fn reopen(&self, cpu: u32, samples: bool) -> Result<ReopenedCpu> {
        let mut fds = self.fds();
        let mut next = fds.len();
        let mut reopened = ReopenedCpu { cpu, fds: Vec::new(), ids: Vec::new() };
        for (event, OpenEvent { name, file, follows_targets, cpus }) in self.events.iter().enumerate() {
            let place = match follows_targets {
                true if self.targets.binding.tasks || !samples => continue,
                true => self.targets.places().first().copied().unwrap_or(-1),
                false if Some(event) == self.code || event == self.state => continue,
                false if event == self.side_band && !self.side_band_everywhere => continue,
                false => -1,
            };
            let before = fds.iter().enumerate().find(|(_, it)| (it.event, it.cpu) == (event, cpu as i32));
            if before.is_none() && cpus.as_ref().is_some_and(|cpus| !cpus.contains(&cpu)) {
                continue;
            }
            let attr = EventAttr { flags: file.attr.flags.with(AttrFlags::DISABLED), ..file.attr.clone() };
            let fd = match follows_targets {
                true => self.targets.open_event(&attr, place, cpu as i32),
                false => sys::perf_event_open(&attr, place, cpu as i32),
            };
            let fd = fd.map_err(|error| sampling::refused(name, place, cpu as i32, error))?;
            let own_id = self.id_of(&fd, event)?;
            let (index, id, replaced) = match before {
                Some((index, before)) => {
                    let counts = before.counts().map(|(value, lost)| (value, lost.unwrap_or(0)));
                    (index, before.id, counts.unwrap_or(before.replaced))
                }
                None => {
                    next += 1;
                    (next - 1, file.ids.first().copied().unwrap_or(0), (0, 0))
                }
            };
            reopened.ids.push((own_id, id));
            reopened.fds.push((index, EventFd { fd: Arc::new(fd), event, id, cpu: cpu as i32, replaced }));
        }
        for (index, event_fd) in &reopened.fds {
            match fds.get_mut(*index) {
                Some(before) => *before = event_fd.clone(),
                None => fds.push(event_fd.clone()),
            }
        }
        Ok(reopened)
    }

    /// Opens the side band on every CPU for all tasks, or, if the kernel refuses that, on the targets.
    fn open_tasks_and_maps(
        &mut self,
        options: &Options,
        abilities: Abilities,
        targets: &CpuThreadTargets,
        online: &[u32],
    ) -> Result<()> {
        let mut attr = abilities.side_band();
        attr.flags = attr.flags.with(AttrFlags::WATERMARK);
        attr.wakeup = u32::try_from(options.ring.bytes() / 4).unwrap_or(u32::MAX);
        let namespaces = EventAttr { flags: attr.flags.with(AttrFlags::NAMESPACES), ..attr.clone() };
        let first_cpu = online.first().map_or(0, |cpu| *cpu as i32);
        let everywhere = match sys::perf_event_open(&namespaces, -1, first_cpu) {
            Ok(_) => {
                attr = namespaces;
                true
            }
            Err(_) => sys::perf_event_open(&attr, -1, first_cpu).is_ok(),
        };
        self.side_band_everywhere = everywhere;
        let mut cpus = online;
        let mut tasks = &[-1][..];
        if !everywhere {
            if !targets.binding.tasks {
                cpus = &targets.cpus;
            }
            tasks = &targets.tasks;
            if targets.binding.inherit {
                attr.flags = attr.flags.with(AttrFlags::INHERIT);
            }
            attr.flags = attr.flags.with(abilities.code().flags);
            if abilities.bpf {
                let text = format!(
                    "{}: watching all CPUs needs root, CAP_PERFMON, or {}",
                    Limit::LoadsOfOthers.cost(),
                    Limit::LoadsOfOthers.remedy()
                );
                (options.notify)(Level::Warning, &text);
            }
        }
        self.open_on_cpus("dummy:u", attr, tasks, cpus)?;
        if everywhere && abilities.bpf {
            self.code = Some(self.open_on_cpus("dummy:u", abilities.code(), &[-1], online)?);
        }
        Ok(())
    }

    /// Opens one more event for tasks on CPUs and returns its index. Tasks that have ended and CPUs that went offline are
    /// left out.
    fn open_on_cpus(&mut self, name: &str, attr: EventAttr, tasks: &[i32], cpus: &[u32]) -> Result<usize> {
        let event = self.events.len();
        self.events.push(OpenEvent::new(name.to_owned(), attr.clone()));
        for (cpu, task) in cpus.iter().flat_map(|cpu| tasks.iter().map(move |task| (*cpu as i32, *task))) {
            match sys::perf_event_open(&attr, task, cpu) {
                Ok(fd) => self.add(fd, event, cpu).map(drop)?,
                Err(error) if skippable(&error) => (),
                Err(error) => return Err(sampling::refused(name, task, cpu, error)),
            }
        }
        Ok(event)
    }

    /// Opens one more event on all targets and returns the indices of its descriptors.
    pub(crate) fn open_more(&mut self, sampler: &Sampler, targets: &CpuThreadTargets) -> Result<Range<usize>> {
        let event = self.events.len();
        let opened = OpenEvent::new(sampler.spec.name.clone(), sampler.attr.clone());
        self.events.push(OpenEvent { follows_targets: true, cpus: sampler.spec.cpus.clone(), ..opened });
        let before = self.fds().len();
        for (cpu, fd) in everywhere(sampler, targets)? {
            self.add(fd, event, cpu as i32)?;
        }
        Ok(before..self.fds().len())
    }

    /// Returns true if an event samples, for the recorder or for a user's program.
    pub(crate) fn is_sampling(&self, event: usize) -> bool {
        event < self.side_band
    }

    /// Origin of the samples of each event, by index.
    pub(crate) fn roles(&self) -> Vec<SampleRole> {
        let role = |index| match index {
            _ if index < self.samplers => SampleRole::Main,
            _ if index < self.side_band => SampleRole::UserProgram,
            _ if Some(index) == self.sampler_output => SampleRole::BpfSampler,
            _ => SampleRole::Other,
        };
        (0..self.events.len()).map(role).collect()
    }

    /// Enables the sampling events.
    pub(crate) fn enable(&self) -> Result<()> {
        self.enable_those(|event_fd| self.is_sampling(event_fd.event))
    }

    /// Enables events of a CPU: the events that follow the targets if `on_targets` is true, the events of whole CPUs if it is
    /// false.
    pub(crate) fn enable_on(&self, cpu: u32, on_targets: bool) -> Result<()> {
        self.enable_those(|it| it.cpu == cpu as i32 && self.events[it.event].follows_targets == on_targets)
    }

    fn enable_those(&self, is_meant: impl Fn(&EventFd) -> bool) -> Result<()> {
        self.fds().iter().filter(|event_fd| is_meant(event_fd)).try_for_each(|event_fd| {
            sys::enable(event_fd.fd.as_fd())
                .map_err(Error::refused("ioctl(PERF_EVENT_IOC_ENABLE)", &self.events[event_fd.event].name))
        })
    }

    /// Disables the sampling events, then the side band. An event that cannot be disabled ends when its descriptor is
    /// closed.
    pub(crate) fn disable(&self) {
        let fds = self.fds();
        let (sampling, side_band): (Vec<_>, Vec<_>) = fds.iter().partition(|it| self.is_sampling(it.event));
        for event_fd in sampling.into_iter().chain(side_band) {
            drop(sys::disable(event_fd.fd.as_fd()));
        }
    }
}

/// Opens an event on all of its targets and returns the CPU and descriptor of each. Tasks that have ended and CPUs that
/// went offline are left out.
///
/// # Errors
/// Fails if no target is left, or the kernel refuses a target for another reason.
pub(crate) fn everywhere(sampler: &Sampler, targets: &CpuThreadTargets) -> Result<Vec<(u32, OwnedFd)>> {
    let places = targets.places();
    let mut last = None;
    let mut opened = Vec::new();
    for cpu in cpus_of(&sampler.spec, &targets.cpus) {
        for place in &places {
            match targets.open_event(&sampler.attr, *place, cpu as i32) {
                Ok(fd) => opened.push((cpu, fd)),
                Err(error) if skippable(&error) => last = Some((*place, cpu, error)),
                Err(error) => return Err(sampling::refused(&sampler.spec.name, *place, cpu as i32, error)),
            }
        }
    }
    match last {
        Some((place, cpu, error)) if opened.is_empty() => {
            Err(sampling::refused(&sampler.spec.name, place, cpu as i32, error))
        }
        _ => Ok(opened),
    }
}

/// Returns true if the task has ended or the CPU is offline. The event can still be opened on the other targets.
fn skippable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}
