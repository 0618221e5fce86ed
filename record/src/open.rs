//! From targets and events to open descriptors: one ring per CPU, everything on that CPU redirected into it.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use bprec_bpf::Attached;
use bprec_format::{AttrFlags, EventAttr, FileAttr, SampleType};

use crate::machine::{self, Abilities};
use crate::ring::Ring;
use crate::sampler::{self, Binding, Sampler};
use crate::tally::Counted;
use crate::user_programs::UserPrograms;
use crate::{Error, Level, Options, Result, RingSize, Target, sys};

/// Bytes of each ring for code that comes and goes: some 200 loads between two looks.
const CODE_RING_BYTES: usize = 128 << 10;

/// Everything that is open for one recording.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The events of the file, in its order: those that sample, those of programs, the side band, `bprec:state`.
    pub(crate) events: Vec<OpenEvent>,
    /// One descriptor per event and place.
    pub(crate) instances: Vec<Instance>,
    /// One ring per CPU, for all events but one.
    pub(crate) rings: Vec<CpuRing>,
    /// One ring per CPU for code that comes and goes: no flood of samples can push it out, and its records are looked
    /// at before they are written (see `grown`). Empty where the side band covers the targets only.
    pub(crate) code_rings: Vec<CpuRing>,
    /// How many events sample; those of programs follow.
    pub(crate) samplers: usize,
    /// Index of the first event that is not switched on and off with the samplers: the side band.
    pub(crate) side_band: usize,
    /// Index of the event whose records go into `code_rings`.
    code: Option<usize>,
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

/// An open event at one place.
#[derive(Debug)]
pub(crate) struct Instance {
    /// A program on it; goes before the event does.
    pub(crate) program: Option<Attached>,
    pub(crate) fd: OwnedFd,
    /// Index of its event.
    pub(crate) event: usize,
    pub(crate) id: u64,
    /// −1 when it follows a task anywhere.
    pub(crate) cpu: i32,
}

/// A ring and where it belongs.
#[derive(Debug)]
pub(crate) struct CpuRing {
    pub(crate) cpu: u32,
    pub(crate) ring: Ring,
    /// Index of the instance that owns it: the one to poll and to redirect to.
    pub(crate) owner: usize,
}

/// Where events are opened: tasks (−1 for all) and CPUs.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Tasks, or just −1.
    pub(crate) tasks: Vec<i32>,
    /// CPUs to sample.
    pub(crate) cpus: Vec<u32>,
    /// How that shows in the attrs.
    pub(crate) binding: Binding,
}

impl Places {
    /// The places of a target. `command` is the command's process, if there is one.
    ///
    /// # Errors
    /// When a target does not exist.
    pub(crate) fn of(options: &Options, online: &[u32], command: Option<i32>) -> Result<Places> {
        let everyone = Binding { tasks: false, inherit: false, enable_on_exec: false };
        let bound = Binding { tasks: true, inherit: true, enable_on_exec: false };
        Ok(match &options.target {
            Target::System => Places { tasks: vec![-1], cpus: online.to_vec(), binding: everyone },
            Target::Cpus(asked) => {
                if let Some(cpu) = asked.iter().find(|cpu| !online.contains(cpu)) {
                    return Err(Error::Other(format!("cpu {cpu} is not online (online are {online:?})")));
                }
                let mut cpus = asked.clone();
                cpus.sort_unstable();
                cpus.dedup();
                Places { tasks: vec![-1], cpus, binding: everyone }
            }
            Target::Processes(pids) => {
                let mut tasks = Vec::new();
                for pid in pids {
                    tasks.extend(threads(*pid)?);
                }
                tasks.sort_unstable();
                tasks.dedup();
                Places { tasks, cpus: online.to_vec(), binding: bound }
            }
            Target::Threads(tids) => {
                let tasks = tids.iter().map(|tid| task_number(*tid)).collect::<Result<_>>()?;
                Places { tasks, cpus: online.to_vec(), binding: Binding { inherit: false, ..bound } }
            }
            Target::Command => {
                let Some(pid) = command else {
                    return Err(Error::Other("no command to record; give one, or -a".to_owned()));
                };
                let binding = Binding { enable_on_exec: options.delay.is_none(), ..bound };
                Places { tasks: vec![pid], cpus: online.to_vec(), binding }
            }
        })
    }

    /// The processes of the tasks; `None` when everyone is meant.
    pub(crate) fn processes(&self) -> Option<Vec<u32>> {
        if !self.binding.tasks {
            return None;
        }
        let mut processes: Vec<u32> = self.tasks.iter().filter_map(|task| process_of(*task)).collect();
        processes.sort_unstable();
        processes.dedup();
        Some(processes)
    }
}

/// The process of a thread.
fn process_of(thread: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

pub(crate) fn task_number(pid: u32) -> Result<i32> {
    i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(|| Error::Other(format!("{pid} is not a process id")))
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>> {
    let path = format!("/proc/{}/task", task_number(pid)?);
    let entries = fs::read_dir(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Other(format!("no process with pid {pid}")),
        _ => Error::file(&path, error),
    })?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Opens everything. Side-band records arrive from here on; samples once [`Opened::enable`] is called.
///
/// # Errors
/// When an event cannot be opened at all.
pub(crate) fn open(
    options: &Options,
    abilities: Abilities,
    samplers: &mut [Sampler],
    places: &Places,
    online: &[u32],
    programs: &mut UserPrograms,
) -> Result<Opened> {
    for sampler in samplers.iter_mut() {
        let cpus = cpus_of(sampler, &places.cpus);
        let (Some(task), Some(cpu)) = (places.tasks.first(), cpus.first()) else {
            let problem = format!("its PMU counts on none of the CPUs {:?}", places.cpus);
            return Err(Error::Event { event: sampler.spec.name.clone(), problem });
        };
        // The first thread may be gone already; any other will do.
        let mut settled = sampler.settle(options, places.binding, *task, *cpu as i32);
        for task in places.tasks.iter().skip(1) {
            if !settled.as_ref().is_err_and(is_gone) {
                break;
            }
            settled = sampler.settle(options, places.binding, *task, *cpu as i32);
        }
        settled?;
    }

    let mut opened = Opened {
        events: Vec::new(),
        instances: Vec::new(),
        rings: Vec::new(),
        code_rings: Vec::new(),
        samplers: samplers.len(),
        side_band: 0,
        code: None,
        state: 0,
        sampler_output: None,
        side_band_everywhere: true,
    };
    for (event, sampler) in samplers.iter().enumerate() {
        opened.open_more(sampler, places)?;
        if options.aggregate.is_some() {
            // What the kernel would write has no such field; what is written instead of it has.
            let attr = &mut opened.events[event].file.attr;
            attr.sample_type = attr.sample_type.with(SampleType::WEIGHT);
        }
    }
    programs.open(&mut opened, options, abilities, samplers, places)?;
    opened.side_band = opened.events.len();
    opened.open_side_band(options, abilities, places, online)?;
    let attr = abilities.state();
    let fd = sys::perf_event_open(&attr, 0, -1).map_err(|e| sampler::refused("bpf-output", 0, -1, e))?;
    opened.state = opened.events.len();
    opened.events.push(OpenEvent::new(bprec_format::state::EVENT_NAME.to_owned(), attr));
    opened.add(fd, opened.state, -1)?;
    if options.bpf_sampler.is_some() {
        opened.open_sampler_output(abilities, places)?;
    }
    opened.map_rings(options)?;
    Ok(opened)
}

/// An error that says nothing but that the task has ended.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Syscall { answer, .. } if answer.raw_os_error() == Some(libc::ESRCH))
}

/// The CPUs of `cpus` that a sampler's PMU counts on.
fn cpus_of(sampler: &Sampler, cpus: &[u32]) -> Vec<u32> {
    match &sampler.spec.cpus {
        None => cpus.to_vec(),
        Some(own) => cpus.iter().copied().filter(|cpu| own.contains(cpu)).collect(),
    }
}

impl Opened {
    /// Takes an opened event in. Returns the index of its instance.
    pub(crate) fn add(&mut self, fd: OwnedFd, event: usize, cpu: i32) -> Result<usize> {
        let id = sys::event_id(fd.as_fd()).map_err(|answer| Error::Syscall {
            call: "ioctl(PERF_EVENT_IOC_ID)",
            object: self.events[event].name.clone(),
            answer,
            remedy: String::new(),
        })?;
        self.events[event].file.ids.push(id);
        self.instances.push(Instance { program: None, fd, event, id, cpu });
        Ok(self.instances.len() - 1)
    }

    /// The side band: on every CPU for everyone, or, where that is not allowed, on the targets.
    fn open_side_band(
        &mut self,
        options: &Options,
        abilities: Abilities,
        places: &Places,
        online: &[u32],
    ) -> Result<()> {
        let mut attr = abilities.side_band();
        attr.flags = attr.flags.with(AttrFlags::WATERMARK);
        attr.wakeup = u32::try_from(ring_bytes(options) / 4).unwrap_or(u32::MAX);
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
            if !places.binding.tasks {
                cpus = &places.cpus;
            }
            tasks = &places.tasks;
            if places.binding.inherit {
                attr.flags = attr.flags.with(AttrFlags::INHERIT);
            }
            attr.flags = attr.flags.with(abilities.code().flags);
            if abilities.bpf {
                let text = "BPF programs that others load meanwhile are not seen: watching all CPUs needs root, CAP_PERFMON, \
                            or kernel.perf_event_paranoid <= 0";
                (options.notify)(Level::Warning, text);
            }
        }
        self.events.push(OpenEvent::new("dummy:u".to_owned(), attr.clone()));
        for cpu in cpus {
            for task in tasks {
                match sys::perf_event_open(&attr, *task, *cpu as i32) {
                    Ok(fd) => self.add(fd, self.side_band, *cpu as i32).map(drop)?,
                    Err(error) if skippable(&error) => (),
                    Err(error) => return Err(sampler::refused("dummy (side band)", *task, *cpu as i32, error)),
                }
            }
        }
        if everywhere && abilities.bpf { self.open_code(abilities, online) } else { Ok(()) }
    }

    fn open_code(&mut self, abilities: Abilities, online: &[u32]) -> Result<()> {
        let mut attr = abilities.code();
        attr.flags = attr.flags.with(AttrFlags::WATERMARK);
        attr.wakeup = CODE_RING_BYTES as u32 / 4;
        let index = self.events.len();
        self.code = Some(index);
        self.events.push(OpenEvent::new("dummy:u".to_owned(), attr.clone()));
        for cpu in online {
            match sys::perf_event_open(&attr, -1, *cpu as i32) {
                Ok(fd) => self.add(fd, index, *cpu as i32).map(drop)?,
                Err(error) if skippable(&error) => (),
                Err(error) => return Err(sampler::refused("dummy (code)", -1, *cpu as i32, error)),
            }
        }
        Ok(())
    }

    /// Opens one more event at all places. The indices of its instances.
    pub(crate) fn open_more(&mut self, sampler: &Sampler, places: &Places) -> Result<Range<usize>> {
        let event = self.events.len();
        self.events.push(OpenEvent::new(sampler.spec.name.clone(), sampler.attr.clone()));
        let before = self.instances.len();
        for (cpu, fd) in everywhere(sampler, places)? {
            self.add(fd, event, cpu as i32)?;
        }
        Ok(before..self.instances.len())
    }

    /// The event that our sampling program writes to, on each CPU that is sampled, whoever runs there.
    fn open_sampler_output(&mut self, abilities: Abilities, places: &Places) -> Result<()> {
        let attr = abilities.output();
        let index = self.events.len();
        self.sampler_output = Some(index);
        self.events.push(OpenEvent::new(bprec_format::sampler::EVENT_NAME.to_owned(), attr.clone()));
        for cpu in &places.cpus {
            match sys::perf_event_open(&attr, -1, *cpu as i32) {
                Ok(fd) => self.add(fd, index, *cpu as i32).map(drop)?,
                Err(error) if skippable(&error) => (),
                Err(error) => return Err(sampler::refused("bpf-output", -1, *cpu as i32, error)),
            }
        }
        Ok(())
    }

    /// Gives each CPU a ring, owned by the first event there, and redirects the others into it.
    fn map_rings(&mut self, options: &Options) -> Result<()> {
        let asked = ring_bytes(options);
        let mut bytes = asked;
        for index in 0..self.instances.len() {
            let instance = &self.instances[index];
            let Ok(cpu) = u32::try_from(instance.cpu) else { continue };
            if self.code == Some(instance.event) {
                let mut code_bytes = CODE_RING_BYTES;
                let ring = map_ring(instance, cpu, &mut code_bytes)?;
                self.code_rings.push(CpuRing { cpu, ring, owner: index });
                continue;
            }
            if let Some(ring) = self.rings.iter().find(|ring| ring.cpu == cpu) {
                let owner = self.instances[ring.owner].fd.as_fd();
                sys::set_output(instance.fd.as_fd(), owner).map_err(|answer| Error::Syscall {
                    call: "ioctl(PERF_EVENT_IOC_SET_OUTPUT)",
                    object: format!("{} on cpu {cpu}", self.events[instance.event].name),
                    answer,
                    remedy: String::new(),
                })?;
                continue;
            }
            let ring = map_ring(instance, cpu, &mut bytes)?;
            self.rings.push(CpuRing { cpu, ring, owner: index });
        }
        if bytes < asked {
            let text = format!(
                "rings of {} KiB instead of {} KiB: the limit of locked memory (kernel.perf_event_mlock_kb)",
                bytes / 1024,
                asked / 1024
            );
            (options.notify)(Level::Warning, &text);
        }
        Ok(())
    }

    /// By event: as what its samples count.
    pub(crate) fn counted(&self) -> Vec<Counted> {
        let counted = |index| match index {
            _ if index < self.samplers => Counted::Sample,
            _ if index < self.side_band => Counted::UserProgram,
            _ if Some(index) == self.sampler_output => Counted::OurProgram,
            _ => Counted::Nothing,
        };
        (0..self.events.len()).map(counted).collect()
    }

    /// Switches sampling on.
    pub(crate) fn enable(&self) -> Result<()> {
        self.sampling().try_for_each(|instance| {
            sys::enable(instance.fd.as_fd()).map_err(|answer| Error::Syscall {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                object: self.events[instance.event].name.clone(),
                answer,
                remedy: String::new(),
            })
        })
    }

    /// Switches sampling off, then the side band. An event that cannot be switched off ends with its descriptor.
    pub(crate) fn disable(&self) {
        let side_band = self.instances.iter().filter(|it| it.event >= self.side_band);
        for instance in self.sampling().chain(side_band) {
            drop(sys::disable(instance.fd.as_fd()));
        }
    }

    fn sampling(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| instance.event < self.side_band)
    }
}

/// Opens an event at all of its places: CPU and descriptor of each. A place that went away is left out.
///
/// # Errors
/// When no place is left, or one is refused.
pub(crate) fn everywhere(sampler: &Sampler, places: &Places) -> Result<Vec<(u32, OwnedFd)>> {
    let mut last = None;
    let mut opened = Vec::new();
    for cpu in cpus_of(sampler, &places.cpus) {
        for task in &places.tasks {
            match sys::perf_event_open(&sampler.attr, *task, cpu as i32) {
                Ok(fd) => opened.push((cpu, fd)),
                Err(error) if skippable(&error) => last = Some((*task, cpu, error)),
                Err(error) => return Err(sampler::refused(&sampler.spec.name, *task, cpu as i32, error)),
            }
        }
    }
    match last {
        Some((task, cpu, error)) if opened.is_empty() => {
            Err(sampler::refused(&sampler.spec.name, task, cpu as i32, error))
        }
        _ => Ok(opened),
    }
}

/// Maps the ring of an event: with `bytes`, or as many as the kernel lets us lock.
fn map_ring(instance: &Instance, cpu: u32, bytes: &mut usize) -> Result<Ring> {
    loop {
        match Ring::map(instance.fd.as_fd(), *bytes) {
            Ok(ring) => return Ok(ring),
            // More than may be locked: a smaller ring is better than none.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && *bytes > sys::page_bytes() => *bytes /= 2,
            Err(answer) => {
                return Err(Error::Syscall {
                    call: "mmap",
                    object: format!("ring of cpu {cpu}, {bytes} bytes"),
                    answer,
                    remedy: "a smaller one needs less locked memory: -m PAGES".to_owned(),
                });
            }
        }
    }
}

/// The place went away, or never could: not a reason to give up the others.
fn skippable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}

/// Bytes of a ring's data, within reason.
fn ring_bytes(options: &Options) -> usize {
    let page = sys::page_bytes();
    let wanted = match options.ring {
        RingSize::Pages(pages) => usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(page),
        RingSize::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        RingSize::Default => {
            let locked = machine::kernel_sysctl("perf_event_mlock_kb").and_then(|kb| usize::try_from(kb).ok());
            let usable = locked.unwrap_or(516).saturating_mul(1024).saturating_sub(page).max(page);
            // The largest power of two within it.
            1 << usable.ilog2()
        }
    };
    wanted.clamp(page, 1 << 30).next_power_of_two()
}
