//! Processes whose CPU time the recorder measured. The bill takes this time in place of their samples.

use super::bill::{BillPart, EventBillLines};
use crate::index::owners::Owners;
use crate::model::Count;
use bprec_format::bprec::state::HolderTimes;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Times between which the CPU time of each process was measured, ns.
#[derive(Debug)]
pub(super) struct MeasuredProcesses(FxHashMap<u32, Vec<(u64, u64)>>);

impl MeasuredProcesses {
    pub(super) fn new(times: &[HolderTimes]) -> MeasuredProcesses {
        let mut measured: FxHashMap<u32, Vec<(u64, u64)>> = FxHashMap::default();
        for file in times {
            for (pid, _) in &file.processes {
                measured.entry(*pid).or_default().push((file.from_ns, file.to_ns));
            }
        }
        MeasuredProcesses(measured)
    }

    /// Returns true if the CPU time of a process was being measured at a time.
    pub(super) fn has(&self, pid: u32, time_ns: u64) -> bool {
        let times = self.0.get(&pid).map_or(&[][..], |times| times);
        times.iter().any(|(from_ns, to_ns)| (*from_ns..=*to_ns).contains(&time_ns))
    }
}

impl EventBillLines {
    /// Replaces the samples of processes by the CPU time that was measured, as time of the owners' tasks. 1 ns has the weight `weight_of_ns`.
    pub(crate) fn replace_by_measured(&mut self, times: &[HolderTimes], owners: &Owners, weight_of_ns: f64) {
        let mut measured_ns: BTreeMap<u32, u64> = BTreeMap::new();
        for (pid, cpu_ns) in times.iter().flat_map(|file| &file.processes) {
            let sum_ns = measured_ns.entry(*pid).or_default();
            *sum_ns = sum_ns.saturating_add(*cpu_ns);
        }
        let mut payers_of: FxHashMap<u32, Vec<(Option<u32>, Count)>> = FxHashMap::default();
        for ((pid, payer), sampled) in std::mem::take(&mut self.measured) {
            payers_of.entry(pid).or_default().push((payer, sampled));
        }
        for (pid, cpu_ns) in measured_ns {
            let Some(owner) = owners.of_process(pid, u64::MAX) else { continue };
            let mut payers = payers_of.remove(&pid).unwrap_or_default();
            if payers.is_empty() && self.busy.is_none() {
                payers.push((None, Count::default()));
            }
            let sampled: Count = payers.iter().map(|(_, sampled)| *sampled).sum();
            for (payer, part) in &payers {
                // A process has one payer, unless CPUs or threads are payers. Then its payers share the time as they share the samples.
                let share = if payers.len() == 1 { 1.0 } else { part.weight as f64 / sampled.weight.max(1) as f64 };
                let weight = (cpu_ns as f64 * weight_of_ns * share) as u64;
                let replace =
                    |count: &mut Count| count.weight = count.weight.saturating_add(weight).saturating_sub(part.weight);
                replace(&mut self.lines.entry((Some(owner), None, BillPart::Tasks, *payer)).or_default().count);
                let busy = payer.and_then(|payer| self.busy.as_mut()?.get_mut(&payer));
                busy.into_iter().for_each(replace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: u32 = 70;
    const STRANGER: u32 = 71;

    fn times(processes: &[(u32, u64)]) -> Vec<HolderTimes> {
        vec![HolderTimes { from_ns: 100, to_ns: 200, processes: processes.to_vec(), ..HolderTimes::default() }]
    }

    fn samples(weight: u64) -> Count {
        Count { samples: weight / 10, weight }
    }

    /// Owner 0 has the process `AGENT`, no owner has `STRANGER`. Returns the weight of the owner's tasks outside of `bpf()`, by payer.
    fn tasks(mut event: EventBillLines, processes: &[(u32, u64)]) -> BTreeMap<Option<u32>, u64> {
        event.replace_by_measured(&times(processes), &Owners::of_processes(&[(AGENT, 0)]), 1.0);
        assert!(event.lines.keys().all(|(owner, ..)| *owner == Some(0)), "{event:?}");
        let tasks = event.lines.iter().filter(|((_, _, part, _), _)| *part == BillPart::Tasks);
        tasks.map(|((_, _, _, payer), billed)| (*payer, billed.count.weight)).collect()
    }

    fn event(lines: &[(BillPart, u64)], measured: &[(u32, u64)]) -> EventBillLines {
        let mut event = EventBillLines::default();
        for (part, weight) in lines {
            event.lines.entry((Some(0), None, *part, None)).or_default().count = samples(*weight);
        }
        event.measured = measured.iter().map(|(pid, weight)| ((*pid, None), samples(*weight))).collect();
        event
    }

    #[test]
    fn the_measured_time_stands_for_the_samples() {
        let lines = [(BillPart::Tasks, 200), (BillPart::BpfCall, 100)];
        // 50 of the tasks' 200 and the 100 in `bpf()` are of processes that were not measured.
        let measured = [(AGENT, 150), (STRANGER, 50)];
        assert_eq!(tasks(event(&lines, &measured), &[(AGENT, 900), (STRANGER, 7)]), [(None, 950)].into());
        assert_eq!(tasks(event(&lines, &measured), &[(AGENT, 120)]), [(None, 170)].into(), "less than the samples");
        assert_eq!(tasks(event(&lines, &[(AGENT, 250)]), &[(AGENT, 10)]), [(None, 0)].into(), "never below 0");
        assert_eq!(tasks(event(&[], &[]), &[(AGENT, 30)]), [(None, 30)].into(), "a process without samples");
    }

    #[test]
    fn payers_share_the_time_as_they_share_the_samples() {
        let mut event = EventBillLines::default();
        for (payer, weight) in [(0, 300), (1, 100)] {
            event.lines.entry((Some(0), None, BillPart::Tasks, Some(payer))).or_default().count = samples(weight);
            event.measured.insert((AGENT, Some(payer)), samples(weight));
        }
        event.busy = Some(Box::new([(0, samples(500)), (1, samples(100))].into_iter().collect()));
        event.replace_by_measured(&times(&[(AGENT, 800)]), &Owners::of_processes(&[(AGENT, 0)]), 1.0);
        let line = |payer| event.lines[&(Some(0), None, BillPart::Tasks, Some(payer))].count;
        assert_eq!([line(0).weight, line(1).weight], [600, 200]);
        assert_eq!(line(0).samples, 30, "the count of samples stays");
        let busy = event.busy.unwrap();
        assert_eq!([busy[&0].weight, busy[&1].weight], [800, 200]);
    }

    #[test]
    fn samples_before_and_after_the_measurement_are_not_replaced() {
        let measured = MeasuredProcesses::new(&times(&[(AGENT, 1)]));
        assert_eq!([99, 100, 200, 201].map(|time_ns| measured.has(AGENT, time_ns)), [false, true, true, false]);
        assert!(!measured.has(STRANGER, 150));
    }
}
