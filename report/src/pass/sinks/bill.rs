//! The bill: samples that owners of programs cause, by owner and part. Each sample is in at most one part of one owner. Lines can also be split by
//! payer: the context (such as a task or a container) that the samples were taken in.

use super::by_event::ByEvent;
use super::ledger::is_idle;
use super::measured::MeasuredProcesses;
use super::pivot::{Key, KeyNumbers};
use super::sharing::{HookWeights, Sharers, share_out_among};
use crate::index::Index;
use crate::index::causes::{BpfCause, causes};
use crate::index::code::{Code, CodeCache};
use crate::index::kernel::runs_per_program;
use crate::index::owners::Owners;
use crate::index::programs::ProgramLoads;
use crate::index::runners::{HookGroup, Runner};
use crate::model::Count;
use crate::options::Payer;
use crate::pass::attribution::{Attribution, Charge, ChargeColumn, user_ip};
use crate::pass::frames::kernel_frames;
use crate::pass::{SampleView, Sink};
use bprec_format::bpf::names::MapType;
use bprec_format::bprec::state::Attachment;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Part of an owner's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BillPart {
    /// The owner's programs, in tasks that are not the owner's: the programs' own code.
    OwnCode,
    /// The owner's programs, in tasks that are not the owner's: code that the programs called.
    Helper,
    /// The owner's programs, in tasks that are not the owner's: code that runs the programs.
    Entry,
    /// Wake-ups of consumers of the owner's buffers.
    Wakeup,
    /// Traps, single steps and returns of user probes.
    UserProbe,
    /// Code between kernel probes or tracepoints and programs.
    KernelHook,
    /// Deferred frees of maps and programs.
    Free,
    /// The owner's tasks, outside of `bpf()` and of the owner's programs.
    Tasks,
    /// System calls `bpf()` of the owner's tasks.
    BpfCall,
    /// Loads of the owner's programs by any task, and loads of unknown programs by the owner's tasks, outside of the next two.
    Load,
    /// The verifier in these loads.
    Verifier,
    /// The compiler in these loads.
    Jit,
    /// The owner's programs in the owner's tasks.
    ProgramInTasks,
}

impl BillPart {
    /// Number of parts.
    pub(crate) const COUNT: usize = BillPart::ProgramInTasks as usize + 1;

    /// Returns the part for the same work in a task of the owner.
    fn in_own_tasks(self) -> BillPart {
        match self {
            BillPart::OwnCode | BillPart::Helper | BillPart::Entry | BillPart::ProgramInTasks => {
                BillPart::ProgramInTasks
            }
            BillPart::BpfCall | BillPart::Load | BillPart::Verifier | BillPart::Jit => self,
            _ => BillPart::Tasks,
        }
    }

    fn of_cause(cause: BpfCause) -> BillPart {
        match cause {
            BpfCause::RingBufferWakeup | BpfCause::PerfBufferWakeup => BillPart::Wakeup,
            BpfCause::UserProbe | BpfCause::UserException => BillPart::UserProbe,
            BpfCause::KernelProbe | BpfCause::Tracepoint | BpfCause::SystemCall => BillPart::KernelHook,
            BpfCause::Free => BillPart::Free,
            BpfCause::BpfCall => BillPart::BpfCall,
            BpfCause::Load => BillPart::Load,
            BpfCause::Verifier => BillPart::Verifier,
            BpfCause::Jit => BillPart::Jit,
        }
    }
}

/// Key of a line: owner and program, if known, the part, and the payer if lines are split by payer.
pub(crate) type BillKey = (Option<u32>, Option<u32>, BillPart, Option<u32>);

/// Samples of a line of the bill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Billed {
    pub(crate) count: Count,
    /// Part of `count` from work that several owners may have caused: this owner's share of such work.
    pub(crate) shared: Count,
    /// Part of `shared` in code that a hook runs once for all its programs. If one of the programs is removed, this code still runs for the others.
    pub(crate) common: Count,
}

impl Billed {
    pub(crate) fn merge(&mut self, other: Billed) {
        self.count.merge(other.count);
        self.shared.merge(other.shared);
        self.common.merge(other.common);
    }
}

/// Key of samples that are divided among several programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SharedKey {
    part: BillPart,
    /// Owner of the task that the samples were taken in.
    task_owner: Option<u32>,
    payer: Option<u32>,
    /// True for code that a hook runs once for all its programs.
    is_common: bool,
}

/// Lines of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventBillLines {
    pub(crate) lines: FxHashMap<BillKey, Billed>,
    /// Samples of each payer, in BPF or not, without those of idle CPUs; `None` if lines are not split by payer. In a box, because a recording may
    /// have thousands of events.
    pub(crate) busy: Option<Box<FxHashMap<u32, Count>>>,
    /// Samples of processes while the recorder measured their CPU time, by process and payer.
    pub(super) measured: FxHashMap<(u32, Option<u32>), Count>,
    /// Samples of hooks with several programs, until they are shared out.
    hooks: FxHashMap<(Sharers, SharedKey), Count>,
    /// Samples of wake-ups, until they are shared out among the programs that fill buffers.
    wakeups: FxHashMap<(Sharers, SharedKey), Count>,
}

impl EventBillLines {
    fn add(&mut self, line: BillKey, count: Count) {
        self.lines.entry(line).or_default().count.merge(count);
    }

    fn add_busy(&mut self, payer: u32, count: Count) {
        self.busy.get_or_insert_default().entry(payer).or_default().merge(count);
    }

    /// Adds the lines of another thread. `numbers` has this thread's number of each of the other thread's payers.
    fn merge(&mut self, other: EventBillLines, numbers: &[u32]) {
        let number = |payer: Option<u32>| payer.map(|payer| numbers[payer as usize]);
        for ((owner, program, part, payer), billed) in other.lines {
            self.lines.entry((owner, program, part, number(payer))).or_default().merge(billed);
        }
        for (payer, count) in other.busy.into_iter().flat_map(|busy| *busy) {
            self.add_busy(numbers[payer as usize], count);
        }
        for ((pid, payer), count) in other.measured {
            self.measured.entry((pid, number(payer))).or_default().merge(count);
        }
        for (mine, theirs) in [(&mut self.hooks, other.hooks), (&mut self.wakeups, other.wakeups)] {
            for ((sharers, key), count) in theirs {
                let key = SharedKey { payer: number(key.payer), ..key };
                mine.entry((sharers, key)).or_default().merge(count);
            }
        }
    }

    /// Returns the lines with new numbers of the payers; `numbers` is indexed by the old numbers.
    fn renumbered(self, numbers: &[u32]) -> EventBillLines {
        let mut lines = EventBillLines::default();
        lines.merge(self, numbers);
        lines
    }

    /// Shares samples out among the programs of groups.
    fn share(
        &mut self,
        shared: FxHashMap<(Sharers, SharedKey), Count>,
        owners: &Owners,
        groups: &[HookGroup],
        weights: &HookWeights<'_>,
    ) {
        let parts = shared.into_iter().map(|((sharers, key), count)| {
            let group = &groups[sharers.group as usize];
            let mut of_group = group.programs.iter().map(|program| owners.number_of(*program));
            let first = of_group.next().flatten();
            // If one owner has all programs of the group, it gets all of the cost, however the programs share it.
            let sole = first.filter(|first| sharers.strangers == 0 && of_group.all(|owner| owner == Some(*first)));
            (sharers, (key, sole), count)
        });
        share_out_among(parts.collect(), groups, weights, |program, (key, sole), share| {
            let owner = program.and_then(|program| owners.number_of(program)).or(*sole);
            let part = if owner.is_some() && owner == key.task_owner { key.part.in_own_tasks() } else { key.part };
            let if_so = |is_so| if is_so { share } else { Count::default() };
            let (shared, common) = (if_so(sole.is_none()), if_so(sole.is_none() && key.is_common));
            self.lines.entry((owner, program, part, key.payer)).or_default().merge(Billed {
                count: share,
                shared,
                common,
            });
        });
    }
}

/// Facts that all threads of a pass share.
#[derive(Debug)]
struct BillFacts {
    owners: Arc<Owners>,
    /// Work that a kernel function does because of BPF programs, by number of the function.
    causes: FxHashMap<u32, BpfCause>,
    /// Programs that can fill ring buffers, and programs that can fill perf event buffers: the programs that use a map of this type.
    fillers: [HookGroup; 2],
    /// File name and offset of each uprobe.
    probed: Vec<(String, u64)>,
    measured: MeasuredProcesses,
    /// Loads of programs by each thread.
    loads: ProgramLoads,
    /// Keys that identify payers, if lines are split by payer.
    payers: Vec<Payer>,
    /// Numbers of the kernel functions that run once for each program of a hook; only if lines are split by payer.
    per_program: FxHashSet<u32>,
}

/// Adds up samples by owner and part.
#[derive(Debug)]
pub(crate) struct BillSink<'i> {
    index: &'i Index,
    facts: Arc<BillFacts>,
    codes: CodeCache<'i>,
    /// Buffer for the kernel functions of the current sample, innermost first.
    functions: Vec<u32>,
    /// Payers, if lines are split by payer.
    keys: KeyNumbers,
    events: ByEvent<EventBillLines>,
}

/// Limit on the length of an instruction, of any architecture.
const MAX_INSTRUCTION_BYTES: u64 = 15;
/// Name of the mapping in which the kernel steps over probed instructions and catches returns.
const UPROBES_MAPPING: &str = "[uprobes]";

/// Returns the file name and the offset of a uprobe; `None` for any other attachment.
fn probed(attachment: &Attachment) -> Option<(String, u64)> {
    let target = String::from_utf8_lossy(attachment.target.text());
    let (path, offset) = target.rsplit_once("+0x").filter(|_| attachment.kind.starts_with("uprobe"))?;
    Some((path.rsplit('/').next()?.to_owned(), u64::from_str_radix(offset, 16).ok()?))
}

impl<'i> BillSink<'i> {
    /// Makes an empty sink. With keys of payers, splits lines by payer.
    pub(crate) fn new(index: &'i Index, owners: Arc<Owners>, payers: Vec<Payer>, events: usize) -> BillSink<'i> {
        let fillers = [MapType::RINGBUF, MapType::PERF_EVENT_ARRAY].map(|map_type| {
            let is_filled = |id: &u32| index.states.maps.get(id).is_some_and(|map| MapType(map.map_type) == map_type);
            let programs =
                index.programs.list.iter().zip(0..).filter(|(program, _)| program.map_ids.iter().any(is_filled));
            HookGroup { programs: programs.map(|(_, number)| number).collect(), run_together: false }
        });
        let probed = index.states.attachments.iter().filter_map(probed).collect();
        let kernel = &index.code.kernel;
        let per_program = kernel.names().filter(|(_, name)| !payers.is_empty() && runs_per_program(name));
        let per_program = per_program.map(|(function, _)| function).collect();
        let measured = MeasuredProcesses::new(&index.states.holder_times);
        let (causes, loads) = (causes(kernel), ProgramLoads::new(index));
        let facts = Arc::new(BillFacts { owners, causes, fillers, probed, measured, loads, payers, per_program });
        BillSink::with(index, facts, events)
    }

    fn with(index: &'i Index, facts: Arc<BillFacts>, events: usize) -> BillSink<'i> {
        let codes = CodeCache::for_sink(&index.code);
        let (functions, keys) = (Vec::new(), KeyNumbers::default());
        BillSink { index, facts, codes, functions, keys, events: ByEvent::new(events) }
    }

    /// Returns the keys of the payers, and the lines of each event, with all shared costs shared out.
    pub(crate) fn finish(mut self, weights: &HookWeights<'_>) -> (Vec<Vec<Key>>, ByEvent<EventBillLines>) {
        let (owners, fillers) = (&self.facts.owners, &self.facts.fillers);
        let (payers, positions) = self.keys.sorted();
        for event in self.events.iter_mut() {
            *event = std::mem::take(event).renumbered(&positions);
            let (hooks, wakeups) = (std::mem::take(&mut event.hooks), std::mem::take(&mut event.wakeups));
            event.share(hooks, owners, self.index.hooks.groups(), weights);
            event.share(wakeups, owners, fillers, weights);
        }
        (payers, self.events)
    }

    /// Returns the owner of the task that a sample was taken in.
    fn task_owner(&self, sample: &SampleView<'_>) -> bprec_format::Result<Option<u32>> {
        let owners = &self.facts.owners;
        if owners.has_workloads()
            && let Some(cgroup) = sample.cgroup()?
            && let Some(owner) = self.index.workloads().of_cgroup(cgroup).and_then(|it| owners.of_workload(it))
            && sample.pid_tid.0 != 0
        {
            return Ok(Some(owner));
        }
        Ok(owners.of_process(sample.pid_tid.0, sample.time_ns.unwrap_or(u64::MAX)))
    }

    /// Returns the cause of a sample outside of programs, and the address that identifies a user probe, if known: in user space, or as an offset in a
    /// file. Leaves the kernel functions of the sample's call chain in [`BillSink::functions`].
    fn cause(&mut self, sample: &SampleView<'_>) -> bprec_format::Result<Option<(BpfCause, Option<u64>)>> {
        self.functions.clear();
        let time_ns = sample.time_ns.unwrap_or(u64::MAX);
        let Some(leaf) = sample.kernel_ip else {
            let ip = sample.ip().filter(|_| self.index.hooks.has_user_probes(time_ns));
            return Ok(ip.and_then(|ip| self.user_probe(sample.pid_tid.0, ip, time_ns)));
        };
        let chain = sample.callchain()?;
        let (mut found, mut load, mut exception) = (None, None, None);
        let mut is_leaf = true;
        for frame in kernel_frames(self.index, leaf, &chain, time_ns) {
            let function = self.codes.of_frame(frame, time_ns).kernel_function();
            let cause = function.and_then(|function| self.facts.causes.get(&function).copied());
            self.functions.extend(function);
            exception = cause.filter(|cause| *cause == BpfCause::UserException);
            let counted = match cause {
                Some(BpfCause::Tracepoint | BpfCause::SystemCall) => cause.filter(|_| is_leaf),
                Some(BpfCause::Load | BpfCause::Verifier | BpfCause::Jit) => {
                    load = load.or(cause);
                    None
                }
                Some(BpfCause::BpfCall) => load.or(cause),
                Some(BpfCause::UserException) | None => None,
                Some(_) => cause,
            };
            found = found.or(counted);
            is_leaf = false;
        }
        // An exception counts only if its function is the outermost frame, which shows that it came from user mode.
        Ok(found.or(exception).map(|cause| (cause, user_ip(&chain))))
    }

    /// Returns the cause of a sample in user mode, and the offset of the probe in its file if known; `None` if no user probe is the cause. Interrupts
    /// that are pending during a probe's trap come right after it, at the probed instruction or at the next one. Samples there belong to the probe.
    fn user_probe(&self, pid: u32, ip: u64, time_ns: u64) -> Option<(BpfCause, Option<u64>)> {
        let (file, mapped) = self.index.user.find(pid, ip, time_ns)?;
        let path = self.index.user.path(file);
        if path == UPROBES_MAPPING {
            return Some((BpfCause::UserProbe, None));
        }
        let is_behind = |probe: &u64| (*probe..=probe.saturating_add(MAX_INSTRUCTION_BYTES)).contains(&mapped.offset());
        let mut probes = self.facts.probed.iter().filter(|(name, _)| path.rsplit('/').next() == Some(name));
        let (_, probe) = probes.find(|(_, probe)| is_behind(probe))?;
        Some((BpfCause::UserProbe, Some(*probe)))
    }

    /// Returns true if a sample in the entry code of several programs is in code that a hook runs once for all of them.
    fn is_common(&mut self, sample: &SampleView<'_>) -> bprec_format::Result<bool> {
        let time_ns = sample.time_ns.unwrap_or(u64::MAX);
        let Some(leaf) = sample.kernel_ip.filter(|_| !self.facts.per_program.is_empty()) else { return Ok(true) };
        for frame in kernel_frames(self.index, leaf, &sample.callchain()?, time_ns) {
            let code = self.codes.of_frame(frame, time_ns);
            if code.kernel_function().is_some_and(|function| self.facts.per_program.contains(&function)) {
                return Ok(false);
            }
            if code.is_bpf() || matches!(code, Code::Kernel { role, .. } if role.runs_programs()) {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Bills a sample outside of programs.
    fn elsewhere(
        &mut self,
        sample: &SampleView<'_>,
        task_owner: Option<u32>,
        payer: Option<u32>,
    ) -> bprec_format::Result<()> {
        let cause = self.cause(sample)?;
        let time_ns = sample.time_ns.unwrap_or(u64::MAX);
        let (runner, part) = match cause {
            None => (None, BillPart::Tasks),
            Some((BpfCause::BpfCall, _)) => (None, BillPart::BpfCall),
            Some((cause @ (BpfCause::Load | BpfCause::Verifier | BpfCause::Jit), _)) => {
                let program = self.facts.loads.at(sample.pid_tid.1, time_ns);
                (Some(program.map_or(Runner::Unknown, Runner::One)), BillPart::of_cause(cause))
            }
            Some((BpfCause::Free, _)) => (Some(Runner::Unknown), BillPart::Free),
            Some((cause @ (BpfCause::RingBufferWakeup | BpfCause::PerfBufferWakeup), _)) => {
                let group = u32::from(cause == BpfCause::PerfBufferWakeup);
                let has_fillers = !self.facts.fillers[group as usize].programs.is_empty();
                let runner = if has_fillers { Runner::Several { group, strangers: 0 } } else { Runner::Unknown };
                // Perf events also wake their readers. If no program fills perf event buffers, such a wake-up is no work for BPF.
                (Some(runner).filter(|_| has_fillers || cause == BpfCause::RingBufferWakeup), BillPart::Wakeup)
            }
            Some((cause, user_ip)) => {
                let hook = self.index.hooks.of_cause(cause, self.functions.iter().copied(), user_ip, time_ns);
                (hook.map(|hook| self.index.hooks.runner(hook, time_ns)), BillPart::of_cause(cause))
            }
        };
        let event = self.events.of(sample.event);
        match (runner, task_owner) {
            (None, None) => {}
            (None | Some(Runner::Unknown), Some(owner)) => {
                event.add((Some(owner), None, part.in_own_tasks(), payer), sample.count);
            }
            (Some(Runner::Unknown), None) => event.add((None, None, part, payer), sample.count),
            (Some(Runner::One(program)), _) => self.bill(sample, program, part, task_owner, payer),
            (Some(Runner::Several { group, strangers }), _) => {
                let sharers = Sharers { group, strangers, interval: self.index.runs.interval(time_ns) };
                let is_wakeup = part == BillPart::Wakeup;
                let key = SharedKey { part, task_owner, payer, is_common: !is_wakeup };
                let shared = if is_wakeup { &mut event.wakeups } else { &mut event.hooks };
                shared.entry((sharers, key)).or_default().merge(sample.count);
            }
        }
        Ok(())
    }

    /// Bills a sample to the owner of a program.
    fn bill(
        &mut self,
        sample: &SampleView<'_>,
        program: u32,
        part: BillPart,
        task_owner: Option<u32>,
        payer: Option<u32>,
    ) {
        let owner = self.facts.owners.number_of(program);
        let part = if owner.is_some() && owner == task_owner { part.in_own_tasks() } else { part };
        self.events.of(sample.event).add((owner, Some(program), part, payer), sample.count);
    }
}

impl Sink for BillSink<'_> {
    fn fork(&self) -> Self {
        BillSink::with(self.index, Arc::clone(&self.facts), self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let task_owner = self.task_owner(sample)?;
        let payer = self.keys.payer(self.index, &self.facts.payers, sample)?;
        if let Some(payer) = payer.filter(|_| !is_idle(self.index, sample, attribution.charge)) {
            self.events.of(sample.event).add_busy(payer, sample.count);
        }
        let time_ns = sample.time_ns.unwrap_or(u64::MAX);
        if task_owner.is_some() && self.facts.measured.has(sample.pid_tid.0, time_ns) {
            let event = self.events.of(sample.event);
            event.measured.entry((sample.pid_tid.0, payer)).or_default().merge(sample.count);
        }
        if payer.is_some() && task_owner.is_some() {
            // Lines are split by payer only to predict the CPU time without some programs. Then only the removed owners have tasks, and a removed
            // task saves all its time, including that of other owners' programs in it.
            self.events.of(sample.event).add((task_owner, None, BillPart::Tasks, payer), sample.count);
            return Ok(());
        }
        match attribution.charge {
            Charge::Elsewhere | Charge::UnknownCode => return self.elsewhere(sample, task_owner, payer),
            Charge::Program { program, column, .. } => {
                let part = match column {
                    ChargeColumn::Own => BillPart::OwnCode,
                    ChargeColumn::Helper => BillPart::Helper,
                    ChargeColumn::Entry => BillPart::Entry,
                };
                self.bill(sample, program, part, task_owner, payer);
            }
            Charge::SharedEntry { group, strangers, interval } => {
                let is_common = self.is_common(sample)?;
                let shared = SharedKey { part: BillPart::Entry, task_owner, payer, is_common };
                let key = (Sharers { group, strangers, interval }, shared);
                self.events.of(sample.event).hooks.entry(key).or_default().merge(sample.count);
            }
            Charge::Entry => self.events.of(sample.event).add((None, None, BillPart::Entry, payer), sample.count),
            Charge::Interpreted => {
                self.events.of(sample.event).add((None, None, BillPart::OwnCode, payer), sample.count);
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        let numbers = self.keys.merge(other.keys);
        self.events.merge(other.events, |mine, theirs| mine.merge(theirs, &numbers));
    }
}

#[cfg(test)]
mod tests {
    use bprec_format::bprec::state::AttachTarget;

    use super::*;
    use crate::input::window::Window;

    fn count(samples: u64) -> Count {
        Count { samples, weight: samples * 10 }
    }

    /// Programs 0 and 1 have the owner 0, program 2 has the owner 1. Run counts of programs 0 and 2 are known.
    fn shared(programs: &[u32], strangers: u32, task_owner: Option<u32>) -> Vec<(BillKey, Billed)> {
        let (index, window) = (Index::default(), Window::everything());
        let weights = HookWeights::of_rates(&index, &window, vec![Some(300), None, Some(100)]);
        let groups = [HookGroup { programs: programs.into(), run_together: false }];
        let mut event = EventBillLines::default();
        let sharers = Sharers { group: 0, strangers, interval: None };
        let key = SharedKey { part: BillPart::Wakeup, task_owner, payer: None, is_common: false };
        event.wakeups.insert((sharers, key), count(8));
        let wakeups = std::mem::take(&mut event.wakeups);
        event.share(wakeups, &Owners::of_programs(vec![0, 0, 1]), &groups, &weights);
        let mut lines: Vec<(BillKey, Billed)> = event.lines.into_iter().collect();
        lines.sort_by_key(|(key, _)| *key);
        lines
    }

    #[test]
    fn work_of_several_owners_is_shared_by_runs_and_marked() {
        let both = |samples| Billed { count: count(samples), shared: count(samples), ..Billed::default() };
        let expected = vec![
            ((Some(0), Some(0), BillPart::Wakeup, None), both(6)),
            ((Some(1), Some(2), BillPart::Wakeup, None), both(2)),
        ];
        assert_eq!(shared(&[0, 2], 0, None), expected);
        let own = vec![
            ((Some(0), Some(0), BillPart::Wakeup, None), both(6)),
            ((Some(1), Some(2), BillPart::Tasks, None), both(2)),
        ];
        assert_eq!(shared(&[0, 2], 0, Some(1)), own, "the sample is in a task of owner 1");
        assert_eq!(
            shared(&[1, 2], 0, None),
            [((None, None, BillPart::Wakeup, None), both(8))],
            "runs of program 1 are unknown"
        );
    }

    #[test]
    fn work_of_one_owner_is_not_an_estimate() {
        let sole = Billed { count: count(8), ..Billed::default() };
        assert_eq!(
            shared(&[0, 1], 0, None),
            [((Some(0), None, BillPart::Wakeup, None), sole)],
            "no run counts are needed if one owner has all programs"
        );
        assert_eq!(shared(&[0], 0, Some(0)), [((Some(0), Some(0), BillPart::Tasks, None), sole)]);
        let unknown = Billed { count: count(4), shared: count(4), ..Billed::default() };
        let expected = vec![
            ((None, None, BillPart::Wakeup, None), unknown),
            ((Some(0), Some(0), BillPart::Wakeup, None), unknown),
        ];
        assert_eq!(shared(&[0], 1, None), expected, "another program may be on the hook");
    }

    #[test]
    fn probes_are_found_by_file_and_offset() {
        let attachment = |kind: &str, target: &str| Attachment {
            kind: kind.into(),
            target: AttachTarget::default().words(target),
            ..Attachment::default()
        };
        assert_eq!(probed(&attachment("uprobe", "/usr/lib/libc.so.6+0x1f0")), Some(("libc.so.6".into(), 0x1f0)));
        assert_eq!(probed(&attachment("kprobe", "vfs_read+0x10")), None);
        assert_eq!(probed(&attachment("uprobe", "/usr/lib/libc.so.6")), None);
    }
}
