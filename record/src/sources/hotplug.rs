//! CPUs that go offline or come online during a recording.
//!
//! A CPU that goes offline loses its events for good, and a CPU that comes online has none. The recorder reports each CPU that is not sampled.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bprec_format::bprec::state::{CpuNotSampled, State};
use bprec_host::OfflineCpus;

use super::{Context, Event, Source, Tick};
use crate::events::CpuThreadTargets;
use crate::{Level, Options, Result, Target, sys};

/// Time between two checks of the online CPUs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Check for CPUs that are not sampled.
#[derive(Debug)]
pub(crate) struct Hotplug {
    sampled: Vec<u32>,
    /// Kernel notifications of CPUs that go offline, also between two checks; `None` if the kernel provides none.
    gone: Option<OfflineCpus>,
    /// CPUs that were online at the last check.
    online: Vec<u32>,
    /// CPUs known not to be sampled; `None` if the user chose the CPUs, because then no other CPU is expected.
    come: Option<Vec<u32>>,
    /// True if events are bound to CPUs: such an event ends with its CPU. An event of a task continues when the CPU comes back.
    events_of_cpus: bool,
    /// States written so far; each following file repeats them.
    said: Vec<CpuNotSampled>,
    next: Instant,
}

impl Hotplug {
    pub(crate) fn watch(options: &Options, targets: &CpuThreadTargets, online: &[u32]) -> Hotplug {
        Hotplug {
            sampled: targets.cpus.clone(),
            gone: OfflineCpus::listen().ok(),
            online: online.to_vec(),
            come: (!matches!(options.target, Target::Cpus(_))).then(Vec::new),
            events_of_cpus: !targets.binding.tasks,
            said: Vec::new(),
            next: Instant::now() + LOOK_EVERY,
        }
    }

    /// Reports the CPUs that went offline or came online since the last check.
    fn look(&mut self, context: &mut Context<'_>) -> Result<()> {
        // Read before the list of online CPUs, so that a CPU in both has come back.
        let gone: BTreeSet<u32> = self.gone.as_ref().map(OfflineCpus::take).unwrap_or_default();
        // If the list cannot be read, the state of the last check stays.
        let Ok(online) = bprec_host::online_cpus() else { return Ok(()) };
        let has_gone = |cpu: &u32| !online.contains(cpu) || gone.contains(cpu);
        let went = self.online.iter().filter(|cpu| has_gone(cpu)).copied().map(Event::CpuOffline);
        context.events.extend(went);
        let came = online.iter().filter(|cpu| !self.online.contains(cpu) || gone.contains(cpu));
        context.events.extend(came.copied().map(Event::CpuOnline));
        let time_ns = sys::monotonic_ns();
        if self.events_of_cpus {
            for cpu in self.sampled.extract_if(.., |cpu| has_gone(cpu)) {
                (context.notify)(
                    Level::Warning,
                    &format!("CPU {cpu} went offline: it is no longer sampled, even if it comes back"),
                );
                let state = CpuNotSampled { time_ns, cpu, came_online: false };
                self.said.push(state);
                context.out.state(State::CpuNotSampled(state))?;
                // When this CPU comes back, no second message is needed.
                self.come.iter_mut().for_each(|come| come.push(cpu));
            }
        }
        self.online.clone_from(&online);
        let Some(come) = &mut self.come else { return Ok(()) };
        for cpu in online {
            if self.sampled.contains(&cpu) || come.contains(&cpu) {
                continue;
            }
            come.push(cpu);
            (context.notify)(
                Level::Warning,
                &format!("CPU {cpu} came online: it is not sampled, as it was offline at the start"),
            );
            let state = CpuNotSampled { time_ns, cpu, came_online: true };
            self.said.push(state);
            context.out.state(State::CpuNotSampled(state))?;
        }
        Ok(())
    }
}

impl Source for Hotplug {
    fn begin_file(&mut self, _is_first: bool, context: &mut Context<'_>) -> Result<()> {
        context.out.states(self.said.iter().copied().map(State::CpuNotSampled))
    }

    fn tick(&mut self, Tick { now, .. }: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        if now >= self.next {
            self.next = now + LOOK_EVERY;
            self.look(context)?;
        }
        Ok(Some(self.next))
    }

    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        self.look(context)
    }
}
