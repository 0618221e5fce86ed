//! Coverage: the share of the machine's time that an event's samples stand for, and why it is incomplete.

use super::facts::{Facts, WantedFacts};
use super::shares::{EventWhole, percent};
use crate::index::states::SYSTEM_WIDE;
use crate::input::event_kind::EventKind;
use crate::model::{Aggregated, Count, Known, LateTicks, MissingTicks, Reason};
use crate::{Options, Result, TimeRange};
use bprec_format::AttrFlags;
use bprec_format::feature::{CpuCount, Feature};

/// Share of arrived timer ticks below which ticks are late.
const LATE_PERCENT: f64 = 95.0;
/// Longest time without ticks after the kernel throttled an event. Throttling ends at the next tick of the scheduler, at 100 Hz.
const THROTTLED_NS: u64 = 10_000_000;
/// Least count of arrived ticks from which ticks can be called late. With fewer, the ticks missing at the two ends of the recording are a large
/// share.
const FEW_TICKS: u64 = 100;
/// Least number of samples in programs to determine which ticks are missing.
const FEW_CHARGED_SAMPLES: u64 = 30;
/// Least time per run, ns, for a comparison of samples with run statistics. The time of shorter runs is mostly that of reading the clock.
const SHORT_RUN_NS: f64 = 500.0;

impl Facts<'_> {
    /// Returns the option or target that limits the samples to a part of the machine.
    pub(super) fn narrowed(&self) -> Option<String> {
        if self.options.cpus.is_some() {
            return Some("--cpu".into());
        }
        if !self.options.comms.is_empty() {
            return Some("--comms".into());
        }
        self.recorded.target.clone().filter(|target| target != SYSTEM_WIDE)
    }

    /// Returns true if the event sampled all CPUs. Recordings of perf do not say so; it follows from two facts. perf opens a system-wide event once
    /// per CPU and without inheritance, and only system-wide events sample the idle task.
    fn is_system_wide(&self, event: usize) -> bool {
        if let Some(target) = &self.recorded.target {
            return target == SYSTEM_WIDE;
        }
        let opened = self.recording.event(event);
        let online = self.recording.feature(Feature::NRCPUS).map(|count: CpuCount| count.online as usize);
        let is_inherited = opened.attr.flags.contains(AttrFlags::INHERIT);
        let has_idle = self.ledgers[event].idle.samples > 0 || !self.options.comms.is_empty();
        !is_inherited && online == Some(opened.ids.len()) && has_idle
    }

    /// Returns true if the event sampled user space and the kernel on all CPUs, and neither the kernel nor a BPF program dropped samples by a rule.
    fn samples_all_tasks(&self, event: usize) -> bool {
        let excluded = [AttrFlags::EXCLUDE_USER, AttrFlags::EXCLUDE_KERNEL];
        let flags = self.recording.event(event).attr.flags;
        self.is_system_wide(event)
            && !excluded.into_iter().any(|part| flags.contains(part))
            && !self.index.lost.filtered.contains_key(&event)
            && self.recording.kinds[event] == EventKind::Pmu
    }

    /// Returns the weight of 1 ns of CPU time, if the samples of the event and the selection stand for all CPU time of all tasks.
    pub(super) fn weight_of_cpu_ns(&self, event: usize) -> Option<f64> {
        let is_all = self.selection.window.whole && self.narrowed().is_none() && self.samples_all_tasks(event);
        let capacity_ns = self.capacity_ns(event).into_value().filter(|capacity_ns| is_all && *capacity_ns > 0)?;
        // If ticks are missing on idle and busy CPUs alike, the weight of the ticks that arrived stands for the capacity.
        Some(self.event(event).machine.into_value()? as f64 / capacity_ns as f64)
    }

    /// Returns the arrived ticks and their share, %, if fewer than [`LATE_PERCENT`] of the timer's ticks arrived and nothing else explains this.
    fn arrived_late(&self, event: usize, capacity_ns: u64) -> Option<(Count, f64)> {
        let ledger = &self.ledgers[event];
        let is_all = self.samples_all_tasks(event)
            && !self.recording.event(event).attr.flags.contains(AttrFlags::EXCLUDE_IDLE)
            && self.lost[event] == Some(0)
            && self.recorded.cpus_not_sampled.is_empty()
            && !self.index.aggregations.contains_key(&event);
        // Ticks in tasks that `--comms` leaves out are added: only the ticks of all tasks show if ticks are missing.
        let others = self.left_out.of_other_tasks.get(&event).copied().unwrap_or_default();
        let arrived = ledger.samples + others;
        let arrived_percent = percent(arrived.weight, Some(capacity_ns))?;
        let throttled_ns = self.throttled(event).saturating_mul(THROTTLED_NS);
        let explained_percent = percent(arrived.weight.saturating_add(throttled_ns), Some(capacity_ns))?;
        (is_all && explained_percent < LATE_PERCENT).then_some((arrived, arrived_percent))
    }

    /// Returns the facts about missing ticks if ticks are late.
    pub(super) fn late_ticks(&self, event: usize, capacity_ns: u64) -> Option<LateTicks> {
        let (arrived, arrived_percent) = self.arrived_late(event, capacity_ns)?;
        let in_whole = self.missing_in_whole.get(event).copied().flatten();
        let is_late = in_whole.is_some() || arrived.samples >= FEW_TICKS;
        is_late.then(|| {
            let missing = match self.narrowed() {
                // Run statistics count runs on all CPUs and of all tasks, so they cannot be compared with a selection of samples.
                Some(_) => MissingTicks::Unknown,
                None if self.selection.window.whole => self.missing_ticks(event, arrived_percent / 100.0),
                None => in_whole.unwrap_or(MissingTicks::Unknown),
            };
            LateTicks { capacity_ns, arrived_percent, missing }
        })
    }

    /// Determines for each event which ticks are missing in the whole recording. A part of the time often has too few samples to show which ticks are
    /// missing, and all parts must have shares by the same rule. Returns an empty list without another pass if the whole recording is selected, or if
    /// no ticks are late.
    pub(super) fn find_missing_in_whole(&self) -> Result<Vec<Option<MissingTicks>>> {
        let is_late = |event| self.arrived_late(event, self.capacity_ns(event).into_value()?);
        if self.selection.window.whole || self.events().all(|event| is_late(event).is_none()) {
            return Ok(Vec::new());
        }
        let options = Options { time: TimeRange::All, by: None, ..self.options.clone() };
        let (whole, ()) = Facts::gather(self.recording, self.index, &options, WantedFacts::default(), |_| ())?;
        let missing = |event| Some(whole.event(event).late_ticks?.missing);
        Ok((0..self.ledgers.len()).map(missing).collect())
    }

    /// Compares the sampled time of programs with their time by run statistics. If ticks are missing in busy and idle time alike, programs lack the
    /// same share of ticks as the machine. If ticks are missing only in idle time, programs lack no ticks.
    fn missing_ticks(&self, event: usize, arrived: f64) -> MissingTicks {
        let sampled = self.ledgers[event].programs.iter().filter_map(|(number, charges)| {
            let runs = self.programs[number as usize].runs.value()?;
            let inside = charges.inside();
            (inside.samples > 0 && runs.ns_per_run? >= SHORT_RUN_NS).then_some((inside, runs.time_ns))
        });
        let (inside, run_ns) = sampled.fold((Count::default(), 0u64), |(inside, run_ns), (more, time_ns)| {
            (inside + more, run_ns.saturating_add(time_ns))
        });
        // Run statistics charge the time after a tail call to the caller, samples charge it to the callee. With tail calls, the two times cannot be
        // compared.
        if inside.samples < FEW_CHARGED_SAMPLES || run_ns == 0 || self.common.has_tail_called {
            return MissingTicks::Unknown;
        }
        match inside.weight as f64 / (run_ns as f64) < arrived.sqrt() {
            true => MissingTicks::All,
            false => MissingTicks::Idle,
        }
    }

    /// Returns true if samples cover everything that ran: all CPUs and tasks, in the whole recording, without losses.
    pub(super) fn samples_are_whole(&self, event: usize) -> bool {
        let recorded = &self.recorded;
        let is_all = self.selection.window.whole && self.options.cpus.is_none() && self.options.comms.is_empty();
        // The samples must stand for at least 90 % of the machine's time: those of a timer with late ticks do not.
        let weight = self.ledgers[event].samples.weight;
        let cpus = recorded.cpus.unwrap_or(0);
        let machine_ns = recorded.elapsed_ns.unwrap_or(0).saturating_mul(cpus.into());
        let all_there = u128::from(weight) * 10 >= u128::from(machine_ns) * 9;
        let throttled = self.index.lost.throttled.get(&event).is_some_and(|times| *times > 0);
        is_all
            && recorded.target.as_deref() == Some(SYSTEM_WIDE)
            && all_there
            && self.lost[event] == Some(0)
            && !throttled
    }

    pub(super) fn aggregated(&self, event: usize, whole: &EventWhole<'_>) -> Option<Aggregated> {
        let account = self.index.aggregations.get(&event)?;
        let options = self.options;
        // The recorder's totals (`account`) are of the whole recording. A recording that was cut off or rewritten in part has fewer samples, and its
        // blind spot is unknown.
        let ledger = &self.ledgers[event];
        let seen = Count { samples: account.samples, weight: account.period };
        let is_all =
            self.selection.window.whole && options.cpus.is_none() && options.comms.is_empty() && ledger.samples == seen;
        let unseen = account.counted.filter(|_| is_all).map(|counted| counted.saturating_sub(account.period));
        // Number of samples for a weight, estimated by the mean weight of a sample in the totals.
        let samples = |weight: u64| {
            let samples = u128::from(weight) * u128::from(account.samples) / u128::from(account.period.max(1));
            u64::try_from(samples).unwrap_or(u64::MAX)
        };
        let blind_spot = unseen.map(|weight| Count { samples: samples(weight), weight });
        Some(Aggregated {
            entries: account.entries,
            interval_ns: account.interval_ns,
            overflow: ledger.overflow,
            overflow_machine_percent: percent(ledger.overflow.weight, whole.machine),
            blind_spot_machine_percent: blind_spot.and_then(|count| percent(count.weight, whole.machine)),
            blind_spot: Known::or_unknown(blind_spot, Reason::PartOnly),
        })
    }
}
