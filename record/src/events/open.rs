//! Opening of events on targets: from event specifications to descriptors.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bprec_format::{AttrFlags, EventAttr, FileAttr, SampleType};

use super::abilities::Abilities;
use super::sampling::{self, Sampler};
use super::syntax::groups::cpus_of;
use super::targets::CpuThreadTargets;
use crate::limits::Limit;
use crate::{Error, Level, Options, Result, sys};

/// The open events of one recording. The drain owns the rings into which they write.
#[derive(Debug)]
pub(crate) struct OpenEvents {
    /// Events in the order of the file: sampling events, events of user programs, side band, `bprec:state`,
    /// `bprec:sampler`.
    pub(crate) events: Vec<OpenEvent>,
    /// One descriptor per event, task and CPU.
    pub(crate) fds: Vec<EventFd>,
    /// Number of the main sampling events; the events of user programs follow.
    samplers: usize,
    /// Index of the first side-band event. The events before it are the ones that sample.
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
}

impl OpenEvent {
    /// Creates an event that has no ids yet.
    pub(crate) fn new(name: String, attr: EventAttr) -> OpenEvent {
        OpenEvent { name, file: FileAttr { attr, ids: Vec::new() } }
    }
}

/// Descriptor of an event for one task and CPU.
#[derive(Debug)]
pub(crate) struct EventFd {
    pub(crate) fd: Arc<OwnedFd>,
    /// Index of the event in [`OpenEvents::events`].
    pub(crate) event: usize,
    pub(crate) id: u64,
    /// CPU of the descriptor; −1 if it follows a task on all CPUs.
    pub(crate) cpu: i32,
}

/// Origin of the samples that an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleRole {
    /// The main samples of the recording.
    Main,
    /// Samples of the recorder's own sampling program.
    BpfSampler,
    /// Samples of the user's BPF programs.
    UserProgram,
    /// No samples that are counted.
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
                let problem = format!("the PMU of the event counts on none of the CPUs {:?}", targets.cpus);
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
            fds: Vec::new(),
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
            self.open_sampler_output(abilities, targets)?;
        }
        Ok(())
    }
}

/// Returns true if the error only means that the task has ended.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Syscall { answer, .. } if answer.raw_os_error() == Some(libc::ESRCH))
}

impl OpenEvents {
    /// Adds an opened event and returns the index of its descriptor.
    pub(crate) fn add(&mut self, fd: OwnedFd, event: usize, cpu: i32) -> Result<usize> {
        let id = sys::event_id(fd.as_fd()).map_err(|answer| Error::Syscall {
            call: "ioctl(PERF_EVENT_IOC_ID)",
            object: self.events[event].name.clone(),
            answer,
            remedy: String::new(),
        })?;
        self.events[event].file.ids.push(id);
        self.fds.push(EventFd { fd: Arc::new(fd), event, id, cpu });
        Ok(self.fds.len() - 1)
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
        self.events.push(OpenEvent::new("dummy:u".to_owned(), attr.clone()));
        for cpu in cpus {
            for task in tasks {
                match sys::perf_event_open(&attr, *task, *cpu as i32) {
                    Ok(fd) => self.add(fd, self.side_band, *cpu as i32).map(drop)?,
                    Err(error) if skippable(&error) => (),
                    Err(error) => return Err(sampling::refused("dummy (side band)", *task, *cpu as i32, error)),
                }
            }
        }
        if everywhere && abilities.bpf { self.open_code(abilities, online) } else { Ok(()) }
    }

    fn open_code(&mut self, abilities: Abilities, online: &[u32]) -> Result<()> {
        let attr = abilities.code();
        let index = self.events.len();
        self.code = Some(index);
        self.events.push(OpenEvent::new("dummy:u".to_owned(), attr.clone()));
        for cpu in online {
            match sys::perf_event_open(&attr, -1, *cpu as i32) {
                Ok(fd) => self.add(fd, index, *cpu as i32).map(drop)?,
                Err(error) if skippable(&error) => (),
                Err(error) => return Err(sampling::refused("dummy (code)", -1, *cpu as i32, error)),
            }
        }
        Ok(())
    }

    /// Opens one more event on all targets and returns the indices of its descriptors.
    pub(crate) fn open_more(&mut self, sampler: &Sampler, targets: &CpuThreadTargets) -> Result<Range<usize>> {
        let event = self.events.len();
        self.events.push(OpenEvent::new(sampler.spec.name.clone(), sampler.attr.clone()));
        let before = self.fds.len();
        for (cpu, fd) in everywhere(sampler, targets)? {
            self.add(fd, event, cpu as i32)?;
        }
        Ok(before..self.fds.len())
    }

    /// Opens the event into which the recorder's sampling program writes, on each sampled CPU for all tasks.
    fn open_sampler_output(&mut self, abilities: Abilities, targets: &CpuThreadTargets) -> Result<()> {
        let attr = abilities.output();
        let index = self.events.len();
        self.sampler_output = Some(index);
        self.events.push(OpenEvent::new(bprec_format::bprec::sampler::EVENT_NAME.to_owned(), attr.clone()));
        for cpu in &targets.cpus {
            match sys::perf_event_open(&attr, -1, *cpu as i32) {
                Ok(fd) => self.add(fd, index, *cpu as i32).map(drop)?,
                Err(error) if skippable(&error) => (),
                Err(error) => return Err(sampling::refused("bpf-output", -1, *cpu as i32, error)),
            }
        }
        Ok(())
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
        self.sampling().try_for_each(|event_fd| {
            sys::enable(event_fd.fd.as_fd()).map_err(|answer| Error::Syscall {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                object: self.events[event_fd.event].name.clone(),
                answer,
                remedy: String::new(),
            })
        })
    }

    /// Disables the sampling events, then the side band. An event that cannot be disabled ends when its descriptor is
    /// closed.
    pub(crate) fn disable(&self) {
        let side_band = self.fds.iter().filter(|it| it.event >= self.side_band);
        for event_fd in self.sampling().chain(side_band) {
            drop(sys::disable(event_fd.fd.as_fd()));
        }
    }

    fn sampling(&self) -> impl Iterator<Item = &EventFd> {
        self.fds.iter().filter(|event_fd| self.is_sampling(event_fd.event))
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

/// Returns true if the task has ended or the CPU cannot have the event, which is no reason to give up the other
/// targets.
fn skippable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}
