//! From targets and events to open descriptors.

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

/// The events of one recording, open. The rings that they write to are the drain's.
#[derive(Debug)]
pub(crate) struct OpenEvents {
    /// The events of the file, in its order: those that sample, those of programs, the side band, `bprec:state`.
    pub(crate) events: Vec<OpenEvent>,
    /// One descriptor per event and place.
    pub(crate) fds: Vec<EventFd>,
    /// Number of events that sample; those of programs follow.
    samplers: usize,
    /// Index of the first event that is not switched on and off with the samplers: the side band.
    side_band: usize,
    /// Index of the event that tells of code which comes and goes, where it has rings of its own.
    pub(crate) code: Option<usize>,
    /// Index of `bprec:state`.
    pub(crate) state: usize,
    /// Index of `bprec:sampler`, if there is one.
    pub(crate) sampler_output: Option<usize>,
    /// The side band covers everything that happens, not only the targets.
    pub(crate) side_band_everywhere: bool,
}

/// An event of the file.
#[derive(Debug, Clone)]
pub(crate) struct OpenEvent {
    /// Its name.
    pub(crate) name: String,
    /// Its attr and ids.
    pub(crate) file: FileAttr,
}

impl OpenEvent {
    /// An event without ids so far.
    pub(crate) fn new(name: String, attr: EventAttr) -> OpenEvent {
        OpenEvent { name, file: FileAttr { attr, ids: Vec::new() } }
    }
}

/// The descriptor of an event at one place.
#[derive(Debug)]
pub(crate) struct EventFd {
    pub(crate) fd: Arc<OwnedFd>,
    /// Index of its event.
    pub(crate) event: usize,
    pub(crate) id: u64,
    /// −1 when it follows a task anywhere.
    pub(crate) cpu: i32,
}

/// Maker of the samples that an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleRole {
    /// The recording's main samples.
    Main,
    /// Samples of our sampling program.
    BpfSampler,
    /// Samples of the user's programs.
    UserProgram,
    /// No samples that count.
    Other,
}

impl OpenEvents {
    /// Opens the events that sample, switched off. What of them the machine lacks is replaced in `samplers`.
    ///
    /// # Errors
    /// When an event cannot be opened at all.
    pub(crate) fn open(options: &Options, samplers: &mut [Sampler], targets: &CpuThreadTargets) -> Result<OpenEvents> {
        for sampler in samplers.iter_mut() {
            let cpus = cpus_of(&sampler.spec, &targets.cpus);
            let places = targets.places();
            let (Some(place), Some(cpu)) = (places.first(), cpus.first()) else {
                let problem = format!("its PMU counts on none of the CPUs {:?}", targets.cpus);
                return Err(Error::Event { event: sampler.spec.name.clone(), problem });
            };
            // The first thread may be gone already; any other will do.
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
                // Kernel samples have no such field; the aggregated samples written instead of them have it.
                let attr = &mut opened.events[event].file.attr;
                attr.sample_type = attr.sample_type.with(SampleType::WEIGHT);
            }
        }
        Ok(opened)
    }

    /// Opens everything but what samples. Records of the side band arrive from here on; samples once
    /// [`OpenEvents::enable`] is called.
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

/// An error that says nothing but that the task has ended.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Syscall { answer, .. } if answer.raw_os_error() == Some(libc::ESRCH))
}

impl OpenEvents {
    /// Takes an opened event in. Returns the index of its descriptor.
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

    /// The side band: on every CPU for everyone, or, where that is not allowed, on the targets.
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

    /// Opens one more event at all targets. The indices of its descriptors.
    pub(crate) fn open_more(&mut self, sampler: &Sampler, targets: &CpuThreadTargets) -> Result<Range<usize>> {
        let event = self.events.len();
        self.events.push(OpenEvent::new(sampler.spec.name.clone(), sampler.attr.clone()));
        let before = self.fds.len();
        for (cpu, fd) in everywhere(sampler, targets)? {
            self.add(fd, event, cpu as i32)?;
        }
        Ok(before..self.fds.len())
    }

    /// The event that our sampling program writes to, on each CPU that is sampled, whoever runs there.
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

    /// True if an event is one of those that sample, ours or the user's.
    pub(crate) fn is_sampling(&self, event: usize) -> bool {
        event < self.side_band
    }

    /// By event: whose samples it carries.
    pub(crate) fn roles(&self) -> Vec<SampleRole> {
        let role = |index| match index {
            _ if index < self.samplers => SampleRole::Main,
            _ if index < self.side_band => SampleRole::UserProgram,
            _ if Some(index) == self.sampler_output => SampleRole::BpfSampler,
            _ => SampleRole::Other,
        };
        (0..self.events.len()).map(role).collect()
    }

    /// Switches sampling on.
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

    /// Switches sampling off, then the side band. An event that cannot be switched off ends with its descriptor.
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

/// Opens an event at all of its targets: CPU and descriptor of each. A place that went away is left out.
///
/// # Errors
/// When no place is left, or one is refused.
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

/// The place went away, or never could: not a reason to give up the others.
fn skippable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}
