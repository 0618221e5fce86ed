//! Bills of owners.

use super::facts::{EventFacts, Facts, WantedFacts};
use super::notes::{of_unseen, unseen};
use super::rows::map_memory;
use super::shares::{machine_margin, millicpus, percent};
use crate::index::Index;
use crate::index::owners::{BpfOwner, Owners};
use crate::index::programs::IndexedProgram;
use crate::input::recording::OpenRecording;
use crate::model::{
    Bill, BillCauses, BillLoads, BillParts, BillShare, Count, EventBill, InOthers, JSON_VERSION, Known, Note,
    OtherOwners, OwnTasks, OwnerBill, Program, ProgramBill, Reason,
};
use crate::pass::sinks::bill::{BillPart, BillSink, Billed, EventBillLines};
use crate::pass::sinks::sharing::HookWeights;
use crate::{Options, Result};
use bprec_filter::Glob;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit on the rows of owners and programs without samples, in all events.
const BILL_ROWS_WITHOUT_SAMPLES: usize = 1 << 10;

/// Makes the bills of the owners that the pattern `owner` matches; `None` matches all owners.
pub(crate) fn bill(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    owner: Option<&str>,
) -> Result<Bill> {
    let options = Options { by: None, ..options.clone() };
    let owners = Arc::new(Owners::new(index));
    let (facts, sink) =
        Facts::gather(recording, index, &options, WantedFacts::default(), |_| sink(recording, index, &owners))?;
    let (events, unseen) = events(&facts, &owners, sink, owner);
    Ok(Bill {
        format: "bprec bill",
        version: JSON_VERSION,
        recording: facts.recorded.clone(),
        owner: owner.map(str::to_owned),
        events,
        programs: Arc::clone(&facts.programs),
        problems: facts.problems(),
        notes: facts.notes().into_iter().chain(unseen).collect(),
    })
}

/// Makes the sink that [`events`] needs.
pub(crate) fn sink<'i>(recording: &OpenRecording<'_>, index: &'i Index, owners: &Arc<Owners>) -> BillSink<'i> {
    BillSink::new(index, Arc::clone(owners), Vec::new(), recording.events.all().len())
}

/// Makes the bills of the selected events that have samples, and notes on programs that samples cannot show.
pub(crate) fn events(
    facts: &Facts<'_>,
    owners: &Owners,
    sink: BillSink<'_>,
    owner: Option<&str>,
) -> (Vec<EventBill>, Vec<Note>) {
    let index = facts.index;
    let (_, mut lines) = sink.finish(&HookWeights::new(index, &facts.selection.window));
    let mut programs = vec![Vec::new(); owners.list.len()];
    for program in 0..facts.programs.len() as u32 {
        owners.number_of(program).into_iter().for_each(|owner| programs[owner as usize].push(program));
    }
    let asked = owner.map(Glob::new);
    let is_asked = |owner: &BpfOwner| asked.as_ref().is_none_or(|pattern| is_named(pattern, &owner.name));
    let of_asked = owners.list.iter().zip(&programs).filter(|(owner, _)| is_asked(owner));
    let rows: usize = of_asked.map(|(_, programs)| 1 + programs.len()).sum();
    let resident = index.states.holder_times.iter().flat_map(|file| file.resident_bytes.iter().copied()).collect();
    let builder = BillBuilder { facts, owners, programs, resident, asked };
    // If no event has samples, the first event gets an empty bill.
    let has_samples = |event: &usize| facts.event(*event).ledger.samples.samples > 0;
    let mut with_samples: Vec<usize> = facts.events().filter(has_samples).collect();
    with_samples.extend(facts.events().next().filter(|_| with_samples.is_empty()));
    let mut notes = Vec::new();
    let mut rows_left = BILL_ROWS_WITHOUT_SAMPLES;
    let events = with_samples.into_iter().enumerate().map(|(at, event)| {
        let lists_without_samples = rows <= rows_left;
        rows_left -= if lists_without_samples { rows } else { 0 };
        // The lines of each event are freed after its bill: a recording may have thousands of events.
        let mut lines = std::mem::take(lines.of(event));
        if let Some(weight_of_ns) = facts.weight_of_cpu_ns(event) {
            lines.replace_by_measured(&index.states.holder_times, owners, weight_of_ns);
        }
        // Only for the first event: a recording may have thousands of events, and of programs.
        let programs = if at == 0 { facts.programs.len() } else { 0 };
        let unseen = unseen(facts, &facts.event(event), 0..programs);
        notes.extend(of_unseen(facts, event, &unseen));
        builder.event(event, lines, &unseen, lists_without_samples)
    });
    (events.collect(), notes)
}

/// Sums of samples by part of a bill.
#[derive(Debug, Clone, Copy, Default)]
struct PartSums {
    parts: [Billed; BillPart::COUNT],
    /// Time by run statistics that samples cannot show, ns; `None` without such programs, or if it is unknown.
    unsampled_ns: Option<u64>,
}

impl PartSums {
    fn add(&mut self, part: BillPart, billed: Billed) {
        self.parts[part as usize].merge(billed);
    }

    fn add_unsampled(&mut self, time_ns: u64) {
        self.unsampled_ns = Some(self.unsampled_ns.unwrap_or(0).saturating_add(time_ns));
    }

    fn merge(&mut self, other: &PartSums) {
        for (mine, theirs) in self.parts.iter_mut().zip(&other.parts) {
            mine.merge(*theirs);
        }
        other.unsampled_ns.into_iter().for_each(|time_ns| self.add_unsampled(time_ns));
    }

    fn of(&self, parts: &[BillPart]) -> Count {
        parts.iter().map(|part| self.parts[*part as usize].count).sum()
    }

    fn all(&self) -> Count {
        self.parts.iter().map(|billed| billed.count).sum()
    }

    /// Returns the samples and the time that samples cannot show, as one cost to sort by.
    fn cost(&self) -> Count {
        let all = self.all();
        Count { weight: all.weight.saturating_add(self.unsampled_ns.unwrap_or(0)), ..all }
    }

    fn shared(&self) -> Count {
        self.parts.iter().map(|billed| billed.shared).sum()
    }
}

struct BillBuilder<'b> {
    facts: &'b Facts<'b>,
    owners: &'b Owners,
    /// Programs of each owner.
    programs: Vec<Vec<u32>>,
    /// Resident memory of processes at the end of the recording, bytes.
    resident: BTreeMap<u32, u64>,
    /// Pattern of the names of owners, if any.
    asked: Option<Glob>,
}

impl BillBuilder<'_> {
    /// Makes the bill of an event. `unseen` has the programs that its samples cannot show. Without `lists_without_samples`, owners and programs without
    /// a cost are only counted.
    fn event(
        &self,
        number: usize,
        lines: EventBillLines,
        unseen: &BTreeMap<usize, Option<u64>>,
        lists_without_samples: bool,
    ) -> EventBill {
        let event = self.facts.event(number);
        let mut of_owners = vec![PartSums::default(); self.owners.list.len()];
        let mut of_programs: BTreeMap<u32, PartSums> = BTreeMap::new();
        let (mut unattributed, mut total) = (PartSums::default(), PartSums::default());
        for ((owner, program, part, _), billed) in &lines.lines {
            total.add(*part, *billed);
            match owner {
                Some(owner) => of_owners[*owner as usize].add(*part, *billed),
                None => unattributed.add(*part, *billed),
            }
            if let Some(program) = program {
                of_programs.entry(*program).or_default().add(*part, *billed);
            }
        }
        drop(lines);
        for (program, time_ns) in unseen.iter().filter_map(|(program, time_ns)| Some((*program as u32, (*time_ns)?))) {
            let owner = self.owners.number_of(program).map(|owner| &mut of_owners[owner as usize]);
            owner.unwrap_or(&mut unattributed).add_unsampled(time_ns);
            of_programs.entry(program).or_default().add_unsampled(time_ns);
            total.add_unsampled(time_ns);
        }
        let shares = BillShares { event: &event, cpus: self.facts.recorded.cpus, total: total.all() };
        let mut costs: Vec<(&BpfOwner, u32, PartSums)> = self
            .owners
            .list
            .iter()
            .zip(0..)
            .zip(of_owners)
            .map(|((owner, number), sums)| (owner, number, sums))
            .collect();
        costs.sort_by(|(a, _, x), (b, _, y)| y.cost().cmp_weight(x.cost()).then_with(|| a.name.cmp(&b.name)));
        let (mut owners, mut others, mut others_sums) = (Vec::new(), 0, PartSums::default());
        for (owner, number, sums) in costs {
            let is_asked = self.asked.as_ref().is_none_or(|pattern| is_named(pattern, &owner.name));
            let has_room = self.facts.options.limit.is_none_or(|limit| owners.len() < limit);
            if is_asked && has_room && (lists_without_samples || sums.cost().weight > 0) {
                owners.push(self.owner(owner, number, &sums, &of_programs, &shares, lists_without_samples));
            } else {
                others += 1;
                others_sums.merge(&sums);
            }
        }
        // Spare capacity would add up: a recording may have thousands of events, most of them with one owner.
        owners.shrink_to_fit();
        EventBill {
            name: self.facts.recording.names[number].clone(),
            unit: event.unit,
            samples: event.ledger.samples,
            machine: event.machine.clone(),
            late_ticks: event.late_ticks,
            owners,
            others: (others > 0).then(|| Box::new(OtherOwners { owners: others, parts: shares.parts(&others_sums) })),
            unattributed: shares.parts(&unattributed),
            total: shares.parts(&total),
        }
    }

    fn owner(
        &self,
        owner: &BpfOwner,
        number: u32,
        sums: &PartSums,
        of_programs: &BTreeMap<u32, PartSums>,
        shares: &BillShares<'_>,
        lists_without_samples: bool,
    ) -> OwnerBill {
        let programs = &self.programs[number as usize];
        let sums_of = |program: u32| of_programs.get(&program).copied().unwrap_or_default();
        // The sort moves the numbers of programs, not their sums, which are large.
        let mut listed = programs.clone();
        listed.retain(|program| lists_without_samples || of_programs.contains_key(program));
        listed.sort_by(|a, b| sums_of(*b).cost().cmp_weight(sums_of(*a).cost()).then(a.cmp(b)));
        let costs = listed.into_iter().map(|program| {
            let known = &self.facts.programs[program as usize];
            ProgramBill {
                program: program as usize,
                id: known.id,
                name: Program::label(known),
                parts: shares.parts(&sums_of(program)),
            }
        });
        let costs: Vec<ProgramBill> = costs.collect();
        OwnerBill {
            name: owner.name.clone(),
            kind: owner.kind,
            pids: owner.pids.clone(),
            parts: shares.parts(sums),
            programs_without_row: programs.len() - costs.len(),
            programs: costs,
            map_bytes: map_memory(self.list(programs), self.facts.index),
            jit_bytes: self.jit_bytes(programs),
            resident_bytes: self.resident_bytes(owner),
        }
    }

    /// Returns the size of the programs' machine code.
    fn jit_bytes(&self, programs: &[u32]) -> Known<u64> {
        let bytes = |program: &IndexedProgram| program.info?.jited_bytes.map(u64::from);
        let sum = self.list(programs).map(bytes).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
        Known::or_unknown(sum, Reason::NoProgInfo)
    }

    /// Returns the memory of the processes that hold the owner's programs, at the end of the recording.
    fn resident_bytes(&self, owner: &BpfOwner) -> Known<u64> {
        let sum = owner.pids.iter().try_fold(0_u64, |sum, pid| sum.checked_add(*self.resident.get(pid)?));
        Known::or_unknown(sum.filter(|_| !self.resident.is_empty()), Reason::NoResidentMemory)
    }

    fn list(&self, programs: &[u32]) -> impl Iterator<Item = &IndexedProgram> + Clone {
        programs.iter().map(|program| &self.facts.index.programs.list[*program as usize])
    }
}

/// Returns true if a pattern matches the name of an owner or of one of its holders, with or without the process id.
pub(super) fn is_named(pattern: &Glob, name: &str) -> bool {
    let holders = name.split(", ");
    let names = holders.flat_map(|holder| [Some(holder), holder.rsplit_once('/').map(|(comm, _)| comm)]);
    pattern.matches(name) || names.flatten().any(|name| pattern.matches(name))
}

/// Totals of an event, by which costs are divided to get shares.
struct BillShares<'e> {
    event: &'e EventFacts<'e>,
    cpus: Option<u32>,
    total: Count,
}

impl BillShares<'_> {
    fn share(&self, count: Count) -> BillShare {
        BillShare { count, machine_percent: percent(count.weight, self.event.machine.value().copied()) }
    }

    fn parts(&self, sums: &PartSums) -> BillParts {
        use BillPart::{
            BpfCall, Entry, Free, Helper, Jit, KernelHook, Load, OwnCode, ProgramInTasks, Tasks, UserProbe, Verifier,
            Wakeup,
        };
        let of = |parts: &[BillPart]| self.share(sums.of(parts));
        let (count, samples) = (sums.all(), self.event.ledger.samples);
        let machine_percent = self.share(count).machine_percent;
        BillParts {
            count,
            machine_percent,
            margin_percent: machine_margin(count.samples, samples, self.event.machine.value().copied()),
            millicpus: millicpus(machine_percent, self.cpus),
            bill_percent: percent(count.weight, Some(self.total.weight)),
            in_others: InOthers {
                sum: of(&[OwnCode, Helper, Entry]),
                own: of(&[OwnCode]),
                helper: of(&[Helper]),
                entry: of(&[Entry]),
            },
            own_tasks: OwnTasks {
                sum: of(&[Tasks, BpfCall, Load, Verifier, Jit, ProgramInTasks]),
                bpf_calls: of(&[BpfCall, Load, Verifier, Jit]),
                loads: BillLoads { sum: of(&[Load, Verifier, Jit]), verifier: of(&[Verifier]), jit: of(&[Jit]) },
                programs: of(&[ProgramInTasks]),
            },
            causes: BillCauses {
                sum: of(&[Wakeup, UserProbe, KernelHook, Free]),
                wakeups: of(&[Wakeup]),
                user_probes: of(&[UserProbe]),
                kernel_hooks: of(&[KernelHook]),
                frees: of(&[Free]),
            },
            shared: self.share(sums.shared()),
            unsampled: sums.unsampled_ns.map(|time_ns| self.event.whole.unsampled(time_ns)),
        }
    }
}
