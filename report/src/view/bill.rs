//! Bills of the owners of BPF programs: the CPU time that each owner costs, and its parts.

use super::blocks::{Block, NO_EVENT, View, graded, problems};
use super::by_prog::{late_ticks, measured};
use super::cells::{NOTHING, estimate, memory, of_machine, percent};
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, counted, fixed, grouped};
use crate::model::{Bill, BillParts, BillShare, EventBill, LateTicks, Note, OwnerBill, Program};
use std::borrow::Cow;
use std::io;

/// Legend of the parts of a bill.
const LEGEND: &str = "shares are of all CPUs' time. OTHERS%: the owner's programs in tasks of others; OWN%: the owner's tasks, by their CPU clock if recorded, with BPF()% in the system \
    call bpf(), of which LOAD% is in loads of programs (VERIFIER%, JIT%), and PROGS% in the owner's programs; WAKE%: wake-ups of the consumers of its \
    buffers; UPROBE%: traps, single steps and returns of user probes; HOOK%: code between kernel probes or tracepoints and programs; FREE%: deferred \
    frees of maps and programs. Each sample is in one part of one owner";
/// Meaning of the column of programs that samples cannot show.
const UNSAMPLED: &str = "UNSAMPLED%: programs that samples cannot show, such as those that run with interrupts off, by the kernel's run statistics; \
    not part of any other number";
/// Meaning of `≈`.
const SHARED: &str = "≈: includes samples that several owners may have caused, split between them by the runs of their \
                      programs";

pub(super) fn view(report: &Bill, _: usize) -> View<'_> {
    let mut view = View::default();
    view.events(&report.events, NO_EVENT, |event| {
        let samples = counted(event.samples.samples, "sample");
        let total = &event.total;
        let fact = format!(
            "{samples} · {} for BPF ({} % of the machine)",
            grouped(total.count.samples),
            of_machine(total.machine_percent, LateTicks::scales(event.late_ticks))
        );
        let blocks = [
            Block::Fact(measured(&report.recording, &event.name)),
            Block::Fact(fact),
            Block::Gap,
            Block::Table(owners(event)),
        ];
        let has_programs = report.owner.is_some() && !event.owners.is_empty();
        let programs = has_programs.then(|| [Block::Gap, Block::Table(programs(report, event))]);
        blocks.into_iter().chain(programs.into_iter().flatten())
    });
    let late = late_ticks(report.events.iter().map(|event| event.late_ticks));
    let unseen = report.notes.iter().filter(|note| matches!(note, Note::NotInSamples { .. })).map(graded);
    view.notes(legend(&report.events), late.into_iter().chain(unseen).chain(problems(&report.problems)));
    view
}

/// Meanings of the columns and marks that bills use.
pub(super) fn legend(events: &[EventBill]) -> impl Iterator<Item = &'static str> {
    let is_shared = events.iter().flat_map(|event| &event.owners).any(|owner| is_shared(&owner.parts));
    let has_unsampled = events.iter().any(|event| event.total.unsampled.is_some());
    let marks = [(is_shared, SHARED), (has_unsampled, UNSAMPLED)];
    [LEGEND].into_iter().chain(marks.into_iter().filter_map(|(is_used, text)| is_used.then_some(text)))
}

/// Cell of a share of the machine, with `≈` if it is scaled or includes samples that several owners may have caused.
pub(super) fn of_the_machine(event: &EventBill, parts: &BillParts) -> String {
    of_machine(parts.machine_percent, LateTicks::scales(event.late_ticks) || is_shared(parts))
}

fn is_shared(parts: &BillParts) -> bool {
    parts.shared.count.weight > 0
}

/// An owner, a program of an owner, or a sum.
struct BillLine<'r> {
    event: &'r EventBill,
    kind: &'static str,
    name: Cow<'r, str>,
    owner: Option<&'r OwnerBill>,
    /// Facts of the program; `None` in lines of owners and sums.
    program: Option<&'r Program>,
    parts: &'r BillParts,
}

impl<'r> BillLine<'r> {
    fn of_owner(event: &'r EventBill, owner: &'r OwnerBill) -> BillLine<'r> {
        let name = owner.name.as_str().into();
        BillLine { owner: Some(owner), ..BillLine::sum(event, "owner", name, &owner.parts) }
    }

    fn sum(event: &'r EventBill, kind: &'static str, name: Cow<'r, str>, parts: &'r BillParts) -> BillLine<'r> {
        BillLine { event, kind, name, owner: None, program: None, parts }
    }

    /// Owner, in the line of an owner; `None` in lines of programs and sums.
    fn head(&self) -> Option<&'r OwnerBill> {
        self.owner.filter(|_| self.kind == "owner")
    }

    /// Memory of the maps of a program or of an owner's programs, bytes.
    fn map_bytes(&self) -> Option<u64> {
        let of_owner = || Some(&self.owner?.map_bytes);
        self.program.map(|program| &program.map_memory_bytes).or_else(of_owner)?.value().copied()
    }

    /// Machine code of a program or of an owner's programs, bytes.
    fn jit_bytes(&self) -> Option<u64> {
        match self.program {
            Some(program) => program.load().jited_bytes.map(u64::from),
            None => self.owner?.jit_bytes.value().copied(),
        }
    }

    /// Resident memory of an owner's processes, bytes.
    fn resident_bytes(&self) -> Option<u64> {
        self.head()?.resident_bytes.value().copied()
    }
}

fn owner_lines(event: &EventBill) -> impl Iterator<Item = BillLine<'_>> {
    let others = event.others.as_ref().map(|others| {
        let name = format!("({})", counted(others.owners as u64, "more owner"));
        BillLine::sum(event, "others", name.into(), &others.parts)
    });
    let unattributed = BillLine::sum(event, "unattributed", "[unattributed]".into(), &event.unattributed);
    event.owners.iter().map(|owner| BillLine::of_owner(event, owner)).chain(others).chain([unattributed])
}

fn program_lines<'r>(report: &'r Bill, event: &'r EventBill) -> impl Iterator<Item = BillLine<'r>> {
    event.owners.iter().flat_map(move |owner| {
        owner.programs.iter().map(move |it| BillLine {
            owner: Some(owner),
            program: report.programs.get(it.program),
            ..BillLine::sum(event, "program", it.name.as_str().into(), &it.parts)
        })
    })
}

fn total(event: &EventBill) -> BillLine<'_> {
    BillLine::sum(event, "total", "TOTAL".into(), &event.total)
}

/// A part of the bill: name in CSV, column of tables, and value.
type PartColumn = (&'static str, Column, fn(&BillParts) -> BillShare);

fn part_columns() -> [PartColumn; 14] {
    let share = |name: &'static str, order: u8| Column::number(name).share().droppable(order).nothing("0.00");
    [
        ("in_others", share("OTHERS%", 0).always(), |it| it.in_others.sum),
        ("self", share("SELF%", 5), |it| it.in_others.own),
        ("helper", share("HELPER%", 5), |it| it.in_others.helper),
        ("entry", share("ENTRY%", 5), |it| it.in_others.entry),
        ("own_tasks", share("OWN%", 0).always(), |it| it.own_tasks.sum),
        ("bpf_calls", share("BPF()%", 4), |it| it.own_tasks.bpf_calls),
        ("loads", share("LOAD%", 4), |it| it.own_tasks.loads.sum),
        ("load_verifier", share("VERIFIER%", 5), |it| it.own_tasks.loads.verifier),
        ("load_jit", share("JIT%", 5), |it| it.own_tasks.loads.jit),
        ("own_programs", share("PROGS%", 4), |it| it.own_tasks.programs),
        ("wakeups", share("WAKE%", 3), |it| it.causes.wakeups),
        ("user_probes", share("UPROBE%", 3), |it| it.causes.user_probes),
        ("kernel_hooks", share("HOOK%", 3), |it| it.causes.kernel_hooks),
        ("frees", share("FREE%", 3), |it| it.causes.frees),
    ]
}

/// Columns of tables and of CSV. `first` is the heading of the names in tables.
fn fields<'r>(first: &'static str) -> LineColumns<'r, BillLine<'r>> {
    type F<'r> = LineColumn<'r, BillLine<'r>>;
    let of_program = |cell: fn(&Program) -> Option<String>| {
        move |it: &BillLine<'r>| it.program.map_or_else(String::new, |it| cell(it).unwrap_or_else(|| UNKNOWN.into()))
    };
    let mut fields: Vec<F<'r>> = vec![
        F::csv("event", |it| Some(it.event.name.clone())),
        F::csv("kind", |it| Some(it.kind)),
        F::csv("owner", |it| Some(it.owner.map_or_else(|| it.name.to_string(), |owner| owner.name.clone()))),
        F::csv("owner_kind", |it| Some(it.owner?.kind)),
        F::csv("program", |it| (it.kind == "program").then(|| it.name.to_string()))
            .and_text(Column::text(first).always().cut_to(20), |it| it.name.to_string()),
        F::csv("id", |it| it.program?.id).and_text(Column::number("ID"), of_program(|it| Some(it.id?.to_string()))),
        F::csv("samples", |it| Some(it.parts.count.samples))
            .and_text(Column::number("SAMPLES").droppable(6), |it| grouped(it.parts.count.samples)),
        F::csv("weight", |it| Some(it.parts.count.weight)),
        F::csv("machine_percent", |it| it.parts.machine_percent)
            .and_text(Column::number("%MACHINE").share().always(), |it| of_the_machine(it.event, it.parts)),
        F::csv("margin_percent", |it| it.parts.margin_percent)
            .and_text(Column::number("±").always(), |it| percent(it.parts.margin_percent)),
        F::csv("millicpus", |it| it.parts.millicpus).and_text(Column::number("mCPU").droppable(1), |it| {
            it.parts.millicpus.map_or_else(|| UNKNOWN.into(), |millicpus| fixed(millicpus, 1))
        }),
        F::csv("bill_percent", |it| it.parts.bill_percent),
        F::csv("shared_weight", |it| Some(it.parts.shared.count.weight)),
    ];
    for (name, column, part) in part_columns() {
        fields.push(F::csv(format!("{name}_samples"), move |it| Some(part(it.parts).count.samples)));
        let weight = F::csv(format!("{name}_weight"), move |it| Some(part(it.parts).count.weight));
        fields.push(weight.and_text(column, move |it| percent(part(it.parts).machine_percent)));
    }
    fields.extend([
        F::csv("unsampled_ns", |it| Some(it.parts.unsampled?.time_ns)),
        F::csv("unsampled_machine_percent", |it| it.parts.unsampled?.machine_percent)
            .and_text(Column::number("UNSAMPLED%").share().droppable(1).nothing(NOTHING), |it| {
                it.parts.unsampled.map_or_else(String::new, |it| estimate(it.machine_percent))
            }),
        F::csv("programs", |it| Some(it.head()?.program_count()))
            .and_text(Column::number("PROGRAMS").droppable(2), |it| {
                it.head().map_or_else(String::new, |owner| grouped(owner.program_count() as u64))
            }),
        F::csv("verified_insns", |it| it.program?.load().verified_insns).and_text(
            Column::number("VERIFIED").droppable(2),
            of_program(|it| Some(grouped(it.load().verified_insns?.into()))),
        ),
        F::csv("load_duration_ns", |it| it.program?.load().load_duration_ns).and_text(
            Column::number("LOAD MS").droppable(2),
            of_program(|it| Some(fixed(it.load().load_duration_ns? as f64 / 1e6, 2))),
        ),
        F::csv("map_bytes", BillLine::map_bytes).and_text(Column::number("MAP MEM").droppable(2), |it| {
            it.owner.map_or_else(String::new, |_| memory(it.map_bytes()))
        }),
        F::csv("jit_bytes", BillLine::jit_bytes).and_text(Column::number("JIT MEM").droppable(2), |it| {
            it.owner.map_or_else(String::new, |_| memory(it.jit_bytes()))
        }),
        F::csv("resident_bytes", BillLine::resident_bytes)
            .and_text(Column::number("RSS").droppable(2).nothing(UNKNOWN), |it| {
                it.head().map_or_else(String::new, |_| memory(it.resident_bytes()))
            }),
    ]);
    LineColumns::new(fields)
}

/// Table of an event's owners.
pub(super) fn owners(event: &EventBill) -> Sheet {
    let rows: Vec<BillLine<'_>> = owner_lines(event).collect();
    fields("OWNER").sheet(&rows, &[total(event)])
}

/// Table of the programs of an event's owners.
fn programs(report: &Bill, event: &EventBill) -> Sheet {
    let rows: Vec<BillLine<'_>> = program_lines(report, event).collect();
    fields("PROGRAM").sheet(&rows, &[])
}

pub(super) fn csv(report: &Bill, out: &mut Screen<'_>) -> io::Result<()> {
    let lines = report
        .events
        .iter()
        .flat_map(|event| owner_lines(event).chain(program_lines(report, event)).chain([total(event)]));
    fields("OWNER").write_csv(lines, out)
}
