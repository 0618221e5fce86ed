//! CPUs that go offline or come online during a recording.
//!
//! The kernel ends the events of a CPU that goes offline. When the CPU comes online again, it has no events, and the
//! recorder opens them again. The recording says which CPUs were not sampled, and when.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bprec_format::bprec::state::{CpuNotSampled, State};
use bprec_host::OfflineCpus;

use super::{Context, Event, Source, Tick};
use crate::drain::{CpuRings, DrainRequests};
use crate::events::{CpuThreadTargets, OpenEvents};
use crate::{Error, Level, Options, Result, Target, sys};

/// Time between two checks of the online CPUs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Source that finds CPUs without events and opens their events again.
#[derive(Debug)]
pub(crate) struct Hotplug {
    options: Options,
    opened: Arc<OpenEvents>,
    drain: DrainRequests,
    /// CPUs that have sampling events while they are online; empty if the events belong to tasks, because such events survive when a CPU goes
    /// offline.
    sampled: Vec<u32>,
    /// True if CPUs that were offline at the start are sampled, too: each from the first file that begins while the CPU is online.
    samples_new: bool,
    /// Kernel notifications of CPUs that go offline, even if only between two checks; `None` if the kernel provides none.
    gone: Option<OfflineCpus>,
    /// CPUs that were online at the last check.
    online: Vec<u32>,
    /// CPUs that are not sampled now, as the recording states them. Each further file repeats these states.
    not_sampled: Vec<CpuNotSampled>,
    /// Monotonic time of the last check, in nanoseconds.
    looked_ns: u64,
    next: Instant,
}

/// CPUs that changed between two checks.
#[derive(Debug)]
struct Changes {
    /// CPUs that went offline. They may be online again.
    went: Vec<u32>,
    /// CPUs that are online without events.
    came: Vec<u32>,
}

impl Hotplug {
    pub(crate) fn watch(
        options: &Options,
        targets: &CpuThreadTargets,
        online: &[u32],
        opened: Arc<OpenEvents>,
        drain: DrainRequests,
    ) -> Hotplug {
        let samples_cpus = !targets.binding.tasks;
        Hotplug {
            options: options.clone(),
            opened,
            drain,
            sampled: if samples_cpus { targets.cpus.clone() } else { Vec::new() },
            samples_new: samples_cpus && !matches!(options.target, Target::Cpus(_)),
            gone: OfflineCpus::listen().ok(),
            online: online.to_vec(),
            not_sampled: Vec::new(),
            looked_ns: sys::monotonic_ns(),
            next: Instant::now() + LOOK_EVERY,
        }
    }

    /// Reports the CPUs that went offline or came online since the last check, and opens the events of CPUs that are online
    /// again. After a suspend, all CPUs count as changed: the kernel sends no notification of CPUs that it takes offline for
    /// the suspend.
    fn look(&mut self, was_suspended: bool, context: &mut Context<'_>) -> Result<()> {
        // `gone` is read before the list of online CPUs: a CPU in `gone` that is also in that list went offline and has
        // come back.
        let mut gone: BTreeSet<u32> = self.gone.as_ref().map(OfflineCpus::take).unwrap_or_default();
        if was_suspended {
            gone.extend(&self.online);
        }
        // If the list cannot be read, the state of the last check stays.
        let Ok(online) = bprec_host::online_cpus() else { return Ok(()) };
        let changes = changes(&self.online, &online, &gone);
        self.online = online;
        let now_ns = sys::monotonic_ns();
        // If a CPU is already online again, its events ended at an unknown time since the last check. The gap in its
        // samples then begins at the last check.
        let looked_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        for cpu in &changes.went {
            context.events.push(Event::CpuOffline(*cpu));
            if self.sampled.contains(cpu) && self.lacks(*cpu).is_none() {
                let is_back = changes.came.contains(cpu);
                if !is_back {
                    let text = format!("CPU {cpu} went offline: it has no samples until it comes back");
                    (context.notify)(Level::Warning, &text);
                }
                let time_ns = if is_back { looked_ns } else { now_ns };
                self.miss(CpuNotSampled { time_ns, cpu: *cpu, ..CpuNotSampled::default() }, context)?;
            }
        }
        let mut sampled_again = Vec::new();
        for cpu in changes.came {
            context.events.push(Event::CpuOnline(cpu));
            if self.samples_new && !self.sampled.contains(&cpu) && self.lacks(cpu).is_none() {
                let text = format!(
                    "CPU {cpu} came online: it has no samples in this file, because it was offline when the file began"
                );
                (context.notify)(Level::Warning, &text);
                self.miss(CpuNotSampled { time_ns: now_ns, cpu, came_online: true, until_ns: 0 }, context)?;
            }
            if self.reopen(cpu, context)? {
                sampled_again.push(cpu);
            }
        }
        if !sampled_again.is_empty() {
            let text = format!(
                "these CPUs are sampled again, after they were offline or the machine was suspended: {}",
                sampled_again.iter().map(|cpu| format!("CPU {cpu}")).collect::<Vec<_>>().join(", ")
            );
            (context.notify)(Level::Warning, &text);
        }
        Ok(())
    }

    /// Returns the state that the recording has for a CPU that is not sampled now; `None` for other CPUs.
    fn lacks(&self, cpu: u32) -> Option<&CpuNotSampled> {
        self.not_sampled.iter().find(|state| state.cpu == cpu)
    }

    /// Writes the state that a CPU is not sampled, and remembers the state.
    fn miss(&mut self, state: CpuNotSampled, context: &mut Context<'_>) -> Result<()> {
        self.not_sampled.push(state);
        context.out.state(State::CpuNotSampled(state))
    }

    /// Opens the events of a CPU that is online; sampling events only if the CPU is in `sampled`. Returns true if the
    /// CPU was not sampled before and is sampled now.
    fn reopen(&mut self, cpu: u32, context: &mut Context<'_>) -> Result<bool> {
        let samples = self.sampled.contains(&cpu);
        let reopened = self.opened.reopen(cpu, samples).and_then(|reopened| {
            // The drain gets the rings before the events are enabled: records that wait in a ring for the drain would
            // be out of order.
            if !reopened.fds.is_empty() {
                self.drain.add(CpuRings::map(&reopened, &self.opened, &self.options)?)?;
            }
            self.opened.enable_on(cpu, false)?;
            Ok(reopened)
        });
        match reopened {
            Ok(reopened) => context.events.push(Event::CpuReopened(reopened)),
            Err(Error::OutputEnded) => return Err(Error::OutputEnded),
            Err(error) => {
                (context.notify)(Level::Warning, &format!("CPU {cpu} has no samples from now on: {error}"));
                return Ok(false);
            }
        }
        let Some(state) = self.lacks(cpu).copied().filter(|_| samples) else { return Ok(false) };
        self.not_sampled.retain(|other| other.cpu != cpu);
        context.out.state(State::CpuNotSampled(CpuNotSampled { until_ns: sys::monotonic_ns(), ..state }))?;
        Ok(true)
    }

    /// Begins to sample the CPUs that came online during the file that ends now. That file has no samples of these CPUs, because its percentages
    /// refer to the CPUs that were online at its start.
    fn sample_new(&mut self, context: &mut Context<'_>) -> Result<()> {
        let new: Vec<u32> = self.not_sampled.iter().filter(|it| it.came_online).map(|it| it.cpu).collect();
        for cpu in new.into_iter().filter(|cpu| self.online.contains(cpu)).collect::<Vec<_>>() {
            self.sampled.push(cpu);
            if self.reopen(cpu, context)? {
                context.out.session.cpus_online += 1;
            } else {
                self.sampled.pop();
            }
        }
        Ok(())
    }
}

/// Returns the CPUs that changed between two checks. `before` were online at the first check, `online` at the second; `gone` were offline in between.
fn changes(before: &[u32], online: &[u32], gone: &BTreeSet<u32>) -> Changes {
    Changes {
        went: before.iter().filter(|cpu| !online.contains(cpu) || gone.contains(cpu)).copied().collect(),
        came: online.iter().filter(|cpu| !before.contains(cpu) || gone.contains(cpu)).copied().collect(),
    }
}

impl Source for Hotplug {
    fn begin_file(&mut self, _is_first: bool, context: &mut Context<'_>) -> Result<()> {
        context.out.states(self.not_sampled.iter().copied().map(State::CpuNotSampled))
    }

    fn tick(&mut self, Tick { now, .. }: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        let was_suspended = context.events.iter().any(|event| matches!(event, Event::Suspended));
        if now >= self.next || was_suspended {
            self.next = now + LOOK_EVERY;
            self.look(was_suspended, context)?;
        }
        Ok(Some(self.next))
    }

    fn end_file(&mut self, is_last: bool, context: &mut Context<'_>) -> Result<()> {
        self.look(false, context)?;
        if is_last { Ok(()) } else { self.sample_new(context) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_was_offline_for_a_moment_has_gone_and_come() {
        let changed = |before: &[u32], online: &[u32], gone: &[u32]| {
            let Changes { went, came } = changes(before, online, &gone.iter().copied().collect());
            (went, came)
        };
        assert_eq!(changed(&[0, 1], &[0, 1], &[]), (vec![], vec![]));
        assert_eq!(changed(&[0, 1, 2], &[0, 1, 3], &[1, 2]), (vec![1, 2], vec![1, 3]));
        // After a suspend, both CPUs went offline and came online between two checks.
        assert_eq!(changed(&[0, 1], &[0, 1], &[0, 1]), (vec![0, 1], vec![0, 1]));
    }
}
