//! Annotated code of programs: source lines, BPF instructions and machine instructions, each with its cost.
//!
//! All data is in the recording: the BPF instructions, the machine code, the line table and the BTF. Only the requested programs are
//! decoded.

mod charges;
pub(crate) mod frames;
mod hot;
pub(crate) mod lines;
mod listing;
mod machine;
mod names;
mod source;
mod xlated;

use crate::index::Index;
use crate::index::programs::IndexedProgram;
use crate::index::sections::{btf_of, prog_infos};
use crate::input::recording::OpenRecording;
use crate::model::{
    AnnotatedFunction, AnnotatedProgram, Annotation, BpfInsn, CodeLine, Count, JSON_VERSION, LeftOut, MachineInsn,
    Reason,
};
use crate::pass::Selection;
use crate::pass::sinks::instructions::InstructionsSink;
use crate::query::by_prog::facts::{Facts, WantedFacts};
use crate::query::by_prog::shares::percent;
use crate::{AnnotateOptions, Error, Options, Result};
use bprec_format::bpf::Tag;
use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::prog_info::{Function, ProgInfo};
use bprec_format::feature::Feature;
use charges::{EventCosts, FunctionCosts, ProgramSites, ProgramWhole, SiteCost};
use listing::{FunctionListing, LineStarts, PairedCall, Proof, slots_of_functions};
use machine::{Isa, hex};
use names::CodeNames;
use rustc_hash::FxHashMap;
use source::SourceFiles;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Annotates the code of the selected programs with the samples of one event: the first event that has samples of these programs, or else the first
/// event.
pub(crate) fn annotate(recording: &OpenRecording<'_>, index: &Index, options: &AnnotateOptions) -> Result<Annotation> {
    let (facts, sites) = gather(recording, index, &options.query)?;
    of_first(&facts, &sites, facts.events(), options)
}

/// Collects the charges of programs and the sample counts by address, in one pass over the samples.
fn gather<'f>(
    recording: &'f OpenRecording<'_>,
    index: &'f Index,
    options: &'f Options,
) -> Result<(Facts<'f>, InstructionsSink<'f>)> {
    let events = recording.events.all().len();
    let sites = |selection: &Selection<'_>| InstructionsSink::new(index, selection.asked.clone(), events);
    Facts::gather(recording, index, options, WantedFacts::default(), sites)
}

/// Annotates the requested programs with the samples of one of `events`: the first event that has samples of these programs, or else the first event.
///
/// # Errors
/// Fails if `events` is empty.
pub(crate) fn of_first(
    facts: &Facts<'_>,
    sites: &InstructionsSink<'_>,
    mut events: impl Iterator<Item = usize> + Clone,
    options: &AnnotateOptions,
) -> Result<Annotation> {
    let first = events.clone().next();
    let asked = &facts.selection.asked;
    let is_charged = |event: &usize| {
        let mut charged = facts.ledgers[*event].programs.iter();
        charged.any(|(program, charges)| asked.has(program) && charges.sum() != Count::default())
    };
    let no_event = || Error::option("--event", "", "the recording has no event that samples the CPUs");
    let event = events.find(is_charged).or(first).ok_or_else(no_event)?;
    let (index, recording) = (facts.index, facts.recording);
    let costs = EventCosts::new(facts, sites, event);
    let mut numbers: Vec<u32> = (0..index.programs.list.len() as u32).filter(|number| asked.has(*number)).collect();
    let asked = numbers.len();
    if !costs.programs.is_empty() {
        numbers.retain(|number| costs.programs.contains_key(number));
    }
    let weight = |number: &u32| costs.programs.get(number).map_or(0, |cost| cost.charged().weight);
    numbers.sort_by_key(|number| (Reverse(weight(number)), *number));
    let arch = recording.text(Feature::ARCH);
    let code = ProgramCode::new(recording, index, &numbers, arch.as_deref());
    let call_base = names::call_base(index);
    // A program without samples may have run all the same. Then `blind` has the reason why samples cannot see it.
    let has_cost = |number: &u32| costs.programs.get(number).is_some_and(|it| it.cost.sum() != Count::default());
    let (without, of_event) = (numbers.iter().filter(|number| !has_cost(number)), facts.event(event));
    let blind = without.filter_map(|number| Some((*number, facts.blind_row(&of_event, *number as usize)?))).collect();
    let annotator = Annotator { index, code: &code, costs: &costs, blind, options, arch: arch.as_deref(), call_base };
    let annotated: Vec<AnnotatedProgram> = numbers.iter().map(|number| annotator.program(*number)).collect();
    Ok(Annotation {
        format: "bprec annotate",
        version: JSON_VERSION,
        event: recording.names[event].clone(),
        unit: of_event.unit,
        samples: costs.samples,
        no_helper: (!costs.has_chains).then_some(Reason::NoCallChains),
        programs_without_samples: asked - annotated.len(),
        programs: annotated,
        arch,
    })
}

/// Recorded code of some programs.
struct ProgramCode<'a> {
    index: &'a Index,
    isa: Option<Isa>,
    /// Program infos by number of the program.
    infos: FxHashMap<u32, ProgInfo<'a>>,
    btf: BTreeMap<u32, Btf<'a>>,
}

impl<'a> ProgramCode<'a> {
    fn new(recording: &'a OpenRecording<'_>, index: &'a Index, numbers: &[u32], arch: Option<&str>) -> ProgramCode<'a> {
        let position = |number: &u32| Some((index.programs.list[*number as usize].info?.at, *number));
        let wanted: FxHashMap<usize, u32> = numbers.iter().filter_map(position).collect();
        let infos = prog_infos(recording.sections(), recording.endian()).enumerate();
        let infos: FxHashMap<u32, ProgInfo<'_>> =
            infos.filter_map(|(at, info)| Some((*wanted.get(&at)?, info))).collect();
        let types: BTreeSet<u32> = infos.values().filter_map(ProgInfo::btf_id).collect();
        let btf = btf_of(recording.sections(), recording.endian(), |id| types.contains(&id));
        ProgramCode { index, isa: arch.and_then(Isa::of), infos, btf }
    }

    fn sources(&self, number: u32) -> SourceFiles<'_> {
        SourceFiles::new(self.infos.get(&number).and_then(|info| self.btf.get(&info.btf_id()?)))
    }

    /// Returns the wanted functions of a program, each with its listing if the recording has the program's info.
    fn listings(&self, number: u32, wanted: impl Fn(u32) -> bool) -> Vec<(u32, Option<FunctionListing<'a>>)> {
        let program = &self.index.programs.list[number as usize];
        let info = self.infos.get(&number);
        let slots = info.map(slots_of_functions).unwrap_or_default();
        let functions: Vec<Function<'a>> = info.map(|info| info.functions().collect()).unwrap_or_default();
        let starts = info.map(LineStarts::new).unwrap_or_default();
        // The list of an interpreted program may also have the interpreter's address, which is no function of the program.
        let count = if program.interpreted && !functions.is_empty() { functions.len() } else { usize::MAX };
        let known = (0..).zip(&program.functions).take(count).filter(|(at, _)| wanted(*at));
        let listed = known.map(|(at, known)| {
            let slots = slots.get(at as usize).cloned().flatten();
            let function = functions.get(at as usize);
            (at, info.map(|info| FunctionListing::new(info, &starts, function, known.addr, slots, self.isa)))
        });
        listed.collect()
    }
}

struct Annotator<'a> {
    index: &'a Index,
    code: &'a ProgramCode<'a>,
    costs: &'a EventCosts,
    /// Reason why samples cannot see a program, by program.
    blind: FxHashMap<u32, Reason>,
    options: &'a AnnotateOptions,
    arch: Option<&'a str>,
    /// Address of `__bpf_call_base`: calls of kernel functions in BPF instructions are encoded as distances from it. `None` if the recording does not
    /// have it.
    call_base: Option<u64>,
}

/// Function with its listing and costs.
struct ListedFunction<'a> {
    number: u32,
    listing: Option<FunctionListing<'a>>,
    costs: FunctionCosts,
    /// Calls paired with their machine instructions, each with the distance from `__bpf_call_base` in the BPF instruction, if it has one.
    calls: Vec<(PairedCall, Option<i32>)>,
}

impl<'a> Annotator<'a> {
    fn program(&self, number: u32) -> AnnotatedProgram {
        let program = &self.index.programs.list[number as usize];
        let nothing = ProgramSites::default();
        let cost = self.costs.programs.get(&number).unwrap_or(&nothing);
        let has_chains = self.costs.has_chains;
        let blind = self.blind.get(&number);
        let is_blind = blind.is_some();
        let whole = ProgramWhole { cost: cost.cost, charged: cost.charged().weight, has_chains, is_blind };
        // If samples cannot see the program, they may still show its entry code. Without samples in its entry code, its cost is unknown.
        let charged = Some(cost.charged()).filter(|charged| !is_blind || *charged != Count::default());
        let entry = has_chains && charged.is_some();
        let functions: Vec<_> = self.options.functions.iter().filter(|it| program.matches(&it.program)).collect();
        let is_wanted = |at: u32| {
            let name = program.functions.get(at as usize).map_or("", |function| function.name.as_str());
            functions.is_empty() || functions.iter().any(|it| it.function.as_ref().is_none_or(|it| it.matches(name)))
        };
        let listings = self.code.listings(number, is_wanted).into_iter();
        let joined: Vec<ListedFunction<'a>> =
            listings.map(|(at, listing)| joined(program, cost, at, listing)).collect();
        let line_costs: Vec<Vec<SiteCost>> = joined.iter().map(|function| function.costs.lines.clone()).collect();
        let (limit, percent_limit) = (self.options.query.limit, self.options.percent_limit);
        let shown = hot::shown(&line_costs, whole.charged, limit, percent_limit);
        let names = self.names(program, &joined);
        let mut sources = self.code.sources(number);
        let functions = joined.iter().zip(shown);
        let functions =
            functions.map(|(function, shown)| self.function(program, function, &shown, &names, &mut sources, &whole));
        AnnotatedProgram {
            id: program.id,
            load_time_ns: program.info.map(|info| info.load_time_ns),
            name: program.name().to_owned(),
            tag: program.tag.map(|tag| Tag(tag).to_string()),
            prog_type: program.info.and_then(|info| info.prog_type),
            blind: blind.cloned(),
            charged,
            percent: charged.and_then(|charged| percent(charged.weight, Some(self.costs.samples.weight))),
            own: (!is_blind).then_some(cost.cost.own),
            helper: (has_chains && !is_blind).then_some(cost.cost.helper),
            entry: entry.then_some(cost.entry + cost.entry_shared),
            entry_shared: entry.then_some(cost.entry_shared),
            functions: functions.collect(),
        }
    }

    fn names(&self, program: &'a IndexedProgram, joined: &[ListedFunction<'_>]) -> CodeNames<'a> {
        let calls = joined.iter().flat_map(|function| &function.calls);
        let helpers = calls.clone().filter_map(|(call, distance)| Some((*call, (*distance)?)));
        let base = self.call_base.or_else(|| names::call_base_of(helpers));
        let mut names = CodeNames::new(self.index, program, self.code.isa, base);
        // `__bpf_call_base` plus the distance in the BPF instruction must be the target of the machine instruction. Otherwise the pair is wrong and
        // left out.
        let is_right = |call: &PairedCall, distance: Option<i32>| {
            base.zip(distance).is_none_or(|(base, distance)| base.wrapping_add_signed(distance.into()) == call.target)
        };
        let right = calls.filter(|(call, distance)| is_right(call, *distance));
        names.calls = right.map(|(call, _)| (call.slot, *call)).collect();
        names
    }

    fn function(
        &self,
        program: &IndexedProgram,
        joined: &ListedFunction<'_>,
        shown: &[bool],
        names: &CodeNames<'_>,
        sources: &mut SourceFiles<'_>,
        whole: &ProgramWhole,
    ) -> AnnotatedFunction {
        let known = program.functions.get(joined.number as usize);
        let costs = &joined.costs;
        let listing = joined.listing.as_ref();
        let (no_lines, no_bpf, no_machine) = self.lacks(program, listing);
        let mut function = AnnotatedFunction {
            name: known.map(|function| function.name.clone()).unwrap_or_default(),
            addr: known.and_then(|function| function.addr),
            len_bytes: listing.and_then(|listing| listing.len_bytes),
            cost: whole.cost(costs.all),
            no_lines,
            no_bpf,
            no_machine,
            lines: Vec::new(),
            left_out: None,
            elsewhere: whole.cost(costs.elsewhere),
        };
        let Some(listing) = listing else { return function };
        let mut left_out = (0, SiteCost::default());
        let take_left_out = |left_out: &mut (u64, SiteCost)| {
            let (lines, cost) = std::mem::take(left_out);
            (lines > 0).then(|| LeftOut { lines, cost: whole.cost(cost) })
        };
        for (at, is_shown) in shown.iter().enumerate() {
            if !is_shown {
                left_out.0 += 1;
                left_out.1.merge(costs.lines[at]);
                continue;
            }
            let before = take_left_out(&mut left_out);
            let mut line = self.line(listing, at, costs, names, sources, whole);
            line.left_out = before;
            function.lines.push(line);
        }
        function.left_out = take_left_out(&mut left_out);
        function
    }

    /// Returns the reasons why source lines, BPF instructions and machine instructions (in this order) are missing or incomplete.
    fn lacks(
        &self,
        program: &IndexedProgram,
        listing: Option<&FunctionListing<'_>>,
    ) -> (Option<Reason>, Option<Reason>, Option<Reason>) {
        let Some(listing) = listing else {
            let none = || Some(Reason::NoProgInfo);
            return (none(), none(), none());
        };
        let no_lines = match (listing.has_lines, listing.has_addresses) {
            (false, _) => Some(Reason::NoLineInfo),
            (true, false) if !listing.code.is_empty() => Some(Reason::NoLineAddresses),
            _ => None,
        };
        let no_bpf = match (&listing.slots, listing.has_xlated) {
            (Some(_), _) => None,
            (None, true) => Some(Reason::FunctionUnbounded),
            (None, false) => Some(Reason::NoInstructions),
        };
        let is_decoded = self.code.isa.is_some_and(Isa::is_decoded);
        let no_machine = match listing.code {
            [] if program.interpreted => Some(Reason::Interpreted),
            [] => Some(Reason::NoInstructions),
            _ if !is_decoded => Some(Reason::NotDecoded { arch: self.arch.unwrap_or_default().to_owned() }),
            _ => None,
        };
        (no_lines, no_bpf, no_machine)
    }

    fn line(
        &self,
        listing: &FunctionListing<'_>,
        at: usize,
        costs: &FunctionCosts,
        names: &CodeNames<'_>,
        sources: &mut SourceFiles<'_>,
        whole: &ProgramWhole,
    ) -> CodeLine {
        let line = &listing.lines[at];
        let bpf = listing.bpf(line);
        let proof = listing.proof(line, &bpf, self.code.isa);
        let machine = |at: usize| self.machine(listing, at, costs.insns[at], names, whole);
        let sum = |insns: std::ops::Range<usize>| {
            let mut sum = SiteCost::default();
            insns.for_each(|at| sum.merge(costs.insns[at]));
            sum
        };
        let mut insns = Vec::with_capacity(bpf.len());
        for (nth, (slot, insn, second)) in bpf.iter().enumerate() {
            let text = xlated::text(*slot, insn, *second, &|operand| names.operand(operand));
            let own_insns = match proof {
                Proof::Single => Some(line.insns.clone()),
                Proof::OneToOne => Some(line.insns.start + nth..line.insns.start + nth + 1),
                Proof::Line => None,
            };
            // Without decoded machine instructions, the only BPF instruction of a line gets the cost of the line.
            let own_cost =
                own_insns.clone().map(|own| if listing.insns.is_empty() { costs.lines[at] } else { sum(own) });
            let call = names.calls.get(slot).map(|call| costs.insns[call.insn]);
            let helper = own_cost.or(call);
            insns.push(BpfInsn {
                slot: *slot,
                text,
                own: own_cost.and_then(|cost| whole.own(cost.own)),
                helper: helper.and_then(|cost| whole.helper(cost.helper)),
                machine: own_insns.unwrap_or(0..0).map(machine).collect(),
            });
        }
        CodeLine {
            left_out: None,
            source: line.info.as_ref().and_then(|info| sources.line(info)),
            cost: whole.cost(costs.lines[at]),
            bpf: insns,
            machine: if proof == Proof::Line { line.insns.clone().map(machine).collect() } else { Vec::new() },
        }
    }

    fn machine(
        &self,
        listing: &FunctionListing<'_>,
        at: usize,
        cost: SiteCost,
        names: &CodeNames<'_>,
        whole: &ProgramWhole,
    ) -> MachineInsn {
        let insn = listing.insns[at];
        let bytes = listing.code.get(insn.offset as usize..insn.end() as usize).unwrap_or_default();
        let addr = listing.start.unwrap_or(0).wrapping_add(insn.offset.into());
        let called = match insn.call {
            machine::Call::To(target) => target.and_then(|target| names.function(target)),
            machine::Call::No | machine::Call::Unknown => None,
        };
        MachineInsn {
            addr,
            offset_bytes: insn.offset,
            bytes: hex(bytes),
            text: self.code.isa.map_or_else(|| hex(bytes), |isa| isa.text(bytes, addr)),
            called,
            cost: whole.cost(cost),
        }
    }
}

fn joined<'a>(
    program: &IndexedProgram,
    cost: &ProgramSites,
    number: u32,
    listing: Option<FunctionListing<'a>>,
) -> ListedFunction<'a> {
    let sites = cost.functions.get(&number).map_or(&[][..], Vec::as_slice);
    let costs = FunctionCosts::new(listing.as_ref(), sites);
    let addrs: Vec<Option<u64>> = program.functions.iter().map(|function| function.addr).collect();
    let mut calls = Vec::new();
    for (listing, line) in listing.iter().flat_map(|listing| listing.lines.iter().map(move |line| (listing, line))) {
        let bpf = listing.bpf(line);
        let distance = |slot: u32| {
            let (_, insn, _) = bpf[bpf.binary_search_by_key(&slot, |(at, ..)| *at).ok()?];
            (insn.src == 0 && insn.imm != 0).then_some(insn.imm)
        };
        calls.extend(listing.calls(line, &bpf, &addrs).into_iter().map(|call| (call, distance(call.slot))));
    }
    ListedFunction { number, listing, costs, calls }
}
