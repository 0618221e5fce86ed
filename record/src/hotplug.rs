//! CPUs that go offline or come online during a recording.
//!
//! The kernel takes the events of a CPU that goes offline away for good, and a CPU that comes online has none. What is not sampled is said.

use std::time::{Duration, Instant};

use bprec_format::state::{CpuNotSampled, State};

use crate::open::Places;
use crate::{Level, Options, Target, machine, sys};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Which CPUs are sampled.
#[derive(Debug)]
pub(crate) struct Hotplug {
    sampled: Vec<u32>,
    /// CPUs that have come online and are not sampled; `None` when only some CPUs are to be.
    come: Option<Vec<u32>>,
    /// Events go with their CPU. Those of tasks wait for it to come back.
    events_of_cpus: bool,
    next: Instant,
}

impl Hotplug {
    pub(crate) fn watch(options: &Options, places: &Places) -> Hotplug {
        Hotplug {
            sampled: places.cpus.clone(),
            come: (!matches!(options.target, Target::Cpus(_))).then(Vec::new),
            events_of_cpus: !places.binding.tasks,
            next: Instant::now() + LOOK_EVERY,
        }
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Looks what has changed since the last time, and says it.
    pub(crate) fn look(&mut self, notify: fn(Level, &str), states: &mut Vec<State>) {
        self.next = Instant::now() + LOOK_EVERY;
        // Not knowing is no news.
        let Some(online) = machine::told_online_cpus() else { return };
        let time_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
        if self.events_of_cpus {
            for cpu in self.sampled.extract_if(.., |cpu| !online.contains(cpu)) {
                notify(
                    Level::Warning,
                    &format!("CPU {cpu} went offline: it is not sampled any more, even if it comes back"),
                );
                states.push(State::CpuNotSampled(CpuNotSampled { time_ns, cpu, came_online: false }));
                // It is known not to be sampled.
                self.come.iter_mut().for_each(|come| come.push(cpu));
            }
        }
        let Some(come) = &mut self.come else { return };
        for cpu in online {
            if self.sampled.contains(&cpu) || come.contains(&cpu) {
                continue;
            }
            come.push(cpu);
            notify(
                Level::Warning,
                &format!("CPU {cpu} came online: it is not sampled, as it was not there at the start"),
            );
            states.push(State::CpuNotSampled(CpuNotSampled { time_ns, cpu, came_online: true }));
        }
    }
}
