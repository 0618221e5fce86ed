//! BPF programs of the user, attached to separate events. They are never attached to the sampling events, because the kernel drops
//! samples inside other BPF programs if the event has a program.

use std::os::fd::AsFd;
use std::time::Instant;

use bprec_bpf::{AttachMethod, Attached, UserObject};
use bprec_format::Secret;
use bprec_format::bprec::state::{AttachTarget, Attachment};
use bprec_format::{AttrFlags, event_type};

use super::{Context, Event, Source, Tick};
use crate::events::{Abilities, CpuThreadTargets, EventFd, OpenEvent, OpenEvents, Sampler, refused};
use crate::{Error, Level, Options, Result, sys};

/// Loaded BPF objects of the user, and the attachments of their programs.
#[derive(Debug, Default)]
pub(crate) struct UserObjects {
    /// Attachments of programs, each with the index of its descriptor; dropped before the programs are unloaded.
    attached: Vec<(usize, Attached)>,
    objects: Vec<UserObject>,
    /// Events of the objects.
    events: Vec<ObjectEvent>,
    /// Description of the attachments, one for each pair of program and event.
    attachments: Vec<Attachment>,
}

/// Event of a program, or of a map for output.
#[derive(Debug)]
struct ObjectEvent {
    /// Index of the event.
    event: usize,
    /// Index of the object.
    object: usize,
    purpose: ObjectEventPurpose,
}

#[derive(Debug)]
enum ObjectEventPurpose {
    /// The program with this index samples.
    Samples(usize),
    /// The map with this name receives output.
    Output(String),
}

impl UserObjects {
    /// Loads the objects that `options` name.
    ///
    /// # Errors
    /// Fails if an object cannot be loaded; the other objects are unloaded.
    pub(crate) fn load(options: &Options) -> Result<UserObjects> {
        let mut objects = Vec::new();
        for asked in &options.objects {
            let object = UserObject::load(&asked.path, asked.program.as_deref())?;
            for note in object.notes() {
                (options.notify)(Level::Notice, &format!("{}: {note}", asked.path.display()));
            }
            objects.push(object);
        }
        Ok(UserObjects { objects, ..UserObjects::default() })
    }

    /// Opens events for each program: one for each of `samplers` that is not a tracepoint, with complete call chains. For each perf event array that
    /// programs write to, also opens an output event on each CPU. The new events follow the existing events in `opened`.
    ///
    /// # Errors
    /// Fails if all `samplers` are tracepoints, if an event cannot be opened, or if the kernel refuses to attach its program.
    pub(crate) fn open(
        &mut self,
        opened: &mut OpenEvents,
        options: &Options,
        abilities: Abilities,
        samplers: &[Sampler],
        targets: &CpuThreadTargets,
    ) -> Result<()> {
        for (number, object) in self.objects.iter().enumerate() {
            for (index, program) in object.programs().iter().enumerate() {
                let before = self.attachments.len();
                for sampler in samplers.iter().filter(|it| it.attr.kind != event_type::TRACEPOINT) {
                    let name = format!("{} ({})", sampler.spec.name, program.name);
                    let mut carrier = sampler.clone();
                    // Keeps user call chains. Without them, the kernel refuses a program that reads stacks, or gives the program only a part of each
                    // stack.
                    carrier.attr.flags = carrier.attr.flags.without(AttrFlags::EXCLUDE_CALLCHAIN_USER);
                    carrier.spec.name.clone_from(&name);
                    let purpose = ObjectEventPurpose::Samples(index);
                    self.events.push(ObjectEvent { event: opened.events.len(), object: number, purpose });
                    let fds = opened.open_more(&carrier, targets)?;
                    let mut way = None;
                    let mut link_id = None;
                    for (at, event_fd) in fds.clone().zip(&opened.fds()[fds]) {
                        let attached = Attached::new(program.fd.as_fd(), event_fd.fd.as_fd(), event_fd.id)?;
                        way = Some(attached.method());
                        link_id = link_id.or(attached.link_id());
                        self.attached.push((at, attached));
                    }
                    let by = match way {
                        Some(AttachMethod::Link) => "by link",
                        _ => "by ioctl, because this kernel does not support links to perf events",
                    };
                    (options.notify)(
                        Level::Detail,
                        &format!("program {} is attached to event {name} {by}", program.id),
                    );
                    self.attachments.push(Attachment {
                        prog_id: program.id,
                        link_id,
                        kind: "perf_event".to_owned(),
                        target: AttachTarget::default().name(Secret::Event, name),
                    });
                }
                if self.attachments.len() == before {
                    let problem = format!(
                        "{}: program {} cannot run on a tracepoint event; add a sampling event, such as -e cpu-clock",
                        object.path().display(),
                        program.name
                    );
                    return Err(Error::Other(problem));
                }
            }
            for (event, map) in open_outputs(object, opened, options, abilities, targets)? {
                let purpose = ObjectEventPurpose::Output(map);
                self.events.push(ObjectEvent { event, object: number, purpose });
            }
        }
        Ok(())
    }

    /// Returns the ids of the objects' maps to dump at the end of the recording.
    pub(crate) fn map_ids(&self) -> Result<Vec<u32>> {
        let ids = self.objects.iter().map(UserObject::map_ids).collect::<Result<Vec<_>, _>>()?;
        Ok(ids.concat())
    }

    /// Connects a descriptor that was opened for a CPU that came online: attaches the program of its event, or puts it
    /// into the map for output.
    fn serve(&mut self, index: usize, event_fd: &EventFd) -> Result<()> {
        let Some(own) = self.events.iter().find(|own| own.event == event_fd.event) else { return Ok(()) };
        let object = &self.objects[own.object];
        match &own.purpose {
            ObjectEventPurpose::Samples(program) => {
                self.attached.retain(|(attached, _)| *attached != index);
                let program = object.programs()[*program].fd.as_fd();
                self.attached.push((index, Attached::new(program, event_fd.fd.as_fd(), event_fd.id)?));
            }
            ObjectEventPurpose::Output(map) => {
                object.set_output(map, event_fd.cpu.unsigned_abs(), event_fd.fd.as_fd())?
            }
        }
        Ok(())
    }

    /// Returns the attachments of the programs.
    pub(crate) fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }
}

impl Source for UserObjects {
    /// Reports perf events of other processes that have BPF programs.
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        for found in context.programs.attachments().filter(|_| is_first) {
            // Before Linux 6.6, the kernel describes links on tracepoints and probes like links on other perf events.
            if found.kind != "perf_event" || !context.programs.is_perf_event(found.prog_id) {
                continue;
            }
            let event = match String::from_utf8_lossy(found.target.text()) {
                name if name.is_empty() => "a perf event".into(),
                name => name,
            };
            let text = format!(
                "program {} is attached to {event}: other users of this event lose samples inside kprobe, tracepoint and perf_event programs",
                found.prog_id
            );
            (context.notify)(Level::Detail, &text);
        }
        Ok(())
    }

    /// Attaches programs on CPUs that came online.
    fn tick(&mut self, _tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        for event in context.events.iter() {
            let Event::CpuReopened(reopened) = event else { continue };
            for (index, event_fd) in &reopened.fds {
                if let Err(error) = self.serve(*index, event_fd) {
                    let text = format!("the programs of --bpf-object do not run on CPU {}: {error}", reopened.cpu);
                    (context.notify)(Level::Warning, &text);
                }
            }
        }
        Ok(None)
    }
}

/// Opens the events that receive the output of an object's programs. Returns the index of each event and its map.
fn open_outputs(
    object: &UserObject,
    opened: &mut OpenEvents,
    options: &Options,
    abilities: Abilities,
    targets: &CpuThreadTargets,
) -> Result<Vec<(usize, String)>> {
    let mut events = Vec::new();
    for output in object.outputs() {
        let attr = abilities.output();
        let event = opened.events.len();
        events.push((event, output.name.clone()));
        opened.events.push(OpenEvent::new(output.name.clone(), attr.clone()));
        for cpu in &targets.cpus {
            if *cpu >= output.entries {
                let text = format!(
                    "{}: map {} has only {} entries, so the recording lacks the program's output through this map on CPU \
                     {cpu}",
                    object.path().display(),
                    output.name,
                    output.entries
                );
                (options.notify)(Level::Warning, &text);
                continue;
            }
            // A program may run in any task, also in a task that is not recorded. The event therefore belongs to the CPU.
            let fd = sys::perf_event_open(&attr, -1, *cpu as i32)
                .map_err(|answer| refused(&output.name, -1, *cpu as i32, answer))?;
            let index = opened.add(fd, event, *cpu as i32)?;
            object.set_output(&output.name, *cpu, opened.fds()[index].fd.as_fd())?;
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bprec_format::{Endian, EventAttr, RecordType, Records, SampleType};

    use super::*;
    use crate::drain::Ring;

    const RING_BYTES: usize = 1 << 16;

    /// Attaches by ioctl, as on a kernel without links on events: samples that the program keeps arrive, and closing the event unloads the program.
    #[test]
    fn samples_arrive_from_an_event_whose_program_came_by_ioctl() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf_event.bpf.o");
        std::fs::write(&path, include_bytes!("../../../fixtures/bpf/perf_event.bpf.o")).unwrap();
        let object = match UserObject::load(&path, None) {
            Ok(object) => object,
            Err(why) if !why.to_string().contains("permitted") => panic!("{why}"),
            Err(why) => {
                println!("SKIP samples_arrive_from_an_event_whose_program_came_by_ioctl: {why}");
                return;
            }
        };
        let task_clock = EventAttr {
            kind: event_type::SOFTWARE,
            config: 1,
            sample_period: 1_000_000,
            sample_type: SampleType::IP.with(SampleType::TID),
            ..EventAttr::default()
        };
        let event = sys::perf_event_open(&task_clock, 0, -1).unwrap();
        let ring = Ring::map(event.as_fd(), RING_BYTES).unwrap();
        let attached = Attached::by_ioctl(object.programs()[0].fd.as_fd(), event.as_fd()).unwrap();
        let started = Instant::now();
        while ring.unread().len() < 10 * 24 && started.elapsed() < Duration::from_secs(60) {
            std::hint::black_box((0..100_000u64).fold(1u64, |x, i| x.wrapping_mul(31).wrapping_add(i)));
        }
        drop((attached, event));
        let samples = Records::new(ring.unread().first, 0, Endian::NATIVE).map_while(Result::ok);
        assert!(samples.filter(|record| record.kind == RecordType::SAMPLE).count() >= 10);
        let id = object.programs()[0].id;
        drop((ring, object));
        let alive = || bprec_bpf::prog_ids().any(|found| found.is_ok_and(|found| found == id));
        // The kernel unloads a program some time after its last descriptor is closed.
        while alive() {
            assert!(started.elapsed() < Duration::from_secs(90), "program {id} stays");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
