//! Tail calls: their targets, and the programs that lead to them.
//!
//! A tail call replaces the caller's frame. The caller is inferred from the program arrays that programs use and, if several programs can reach the
//! target, from the hook in the call chain.

use super::States;
use super::hooks::Hooks;
use super::programs::IndexedProgram;
use super::runners::Runner;
use bprec_format::bpf::names::MapType;
use rustc_hash::{FxHashMap, FxHashSet};

/// Limit on the slots of program arrays that are followed. No real recording reaches it; beyond it, origins are unknown.
const MAX_STEPS: usize = 1 << 22;

/// Limit on programs with one id: kernels do not reuse an id so soon.
const MAX_OF_ID: usize = 64;

/// Map id that stands for all slots that the recorder did not read, in any array. The kernel gives this id to no map.
const UNREAD: u32 = 0;

/// Programs that tail calls can reach.
#[derive(Debug, Default)]
pub(crate) struct TailCalls {
    reached: Vec<bool>,
    /// For each program, the programs from which tail calls can lead to it, directly or through other programs. Lists only programs that a hook runs,
    /// and includes the program itself if a hook runs it.
    origins: Vec<Vec<u32>>,
    /// Lifetime of each program, ns.
    lifetimes: Vec<std::ops::Range<u64>>,
}

/// Numbers of the programs in each program array, by map id.
type Arrays = FxHashMap<u32, Vec<u32>>;

impl TailCalls {
    /// Follows tail calls. `maps_of` returns the ids of the maps that a program uses.
    pub(crate) fn new<M: IntoIterator<Item = u32>>(
        programs: &[IndexedProgram],
        maps_of: impl Fn(&IndexedProgram) -> M,
        states: &States,
    ) -> TailCalls {
        let arrays = arrays(programs, states);
        if arrays.is_empty() {
            return TailCalls::default();
        }
        let mut reached = vec![false; programs.len()];
        arrays.values().flatten().for_each(|program| reached[*program as usize] = true);
        let unread: FxHashSet<u32> =
            states.prog_arrays.iter().filter(|array| array.unread_slots > 0).map(|array| array.map_id).collect();
        let arrays_of = |program: &IndexedProgram| {
            let maps = maps_of(program).into_iter();
            let maps = maps.flat_map(|map| [Some(map), unread.contains(&map).then_some(UNREAD)]).flatten();
            maps.filter(|map| arrays.contains_key(map)).collect()
        };
        let used: Vec<Vec<u32>> = programs.iter().map(arrays_of).collect();
        let is_run_otherwise = |number: usize| {
            let mut attachments = states.attachments_of(programs[number].id).iter();
            !reached[number] || attachments.any(|attachment| attachment.kind != "tail_call")
        };
        // A chain of tail calls starts at a program that a hook runs. Tail calls may lead to this program as well.
        let matters = |number: &usize| reached[*number] || !used[*number].is_empty();
        let starts = (0..programs.len()).filter(|number| matters(number) && is_run_otherwise(*number));
        let origins = origins(starts, &used, &arrays, &reached).unwrap_or_else(|| vec![Vec::new(); programs.len()]);
        let lifetime = |it: &IndexedProgram| it.loaded_ns.unwrap_or(0)..it.unloaded_ns.unwrap_or(u64::MAX);
        TailCalls { reached, origins, lifetimes: programs.iter().map(lifetime).collect() }
    }

    /// Returns true if tail calls can reach a program.
    pub(crate) fn reach(&self, program: u32) -> bool {
        self.reached.get(program as usize) == Some(&true)
    }

    /// Returns the program that the hook ran and from which tail calls led to `program`, at a time. `None` if no such program is known or several are
    /// possible. `hook` is the hook of the call chain.
    pub(crate) fn origin(&self, program: u32, hooks: &Hooks, hook: Option<u32>, time_ns: u64) -> Option<u32> {
        let there = |origin: &u32| self.lifetimes[*origin as usize].contains(&time_ns);
        let mut origins: Vec<u32> = self.origins[program as usize].iter().copied().filter(there).collect();
        match hook.map_or(Runner::Unknown, |hook| hooks.runner(hook, time_ns)) {
            Runner::One(runner) => origins.retain(|origin| *origin == runner),
            Runner::Several { group, strangers: 0 } => {
                let group = hooks.groups().get(group as usize);
                origins.retain(|origin| group.is_some_and(|group| group.programs.contains(origin)));
            }
            Runner::Several { .. } | Runner::Unknown => {}
        }
        match origins[..] {
            [origin] => Some(origin),
            _ => None,
        }
    }
}

/// Returns the programs of each program array, in any of its readings.
fn arrays(programs: &[IndexedProgram], states: &States) -> Arrays {
    let mut by_id: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (number, program) in (0..).zip(programs) {
        let of_id = program.id.map(|id| by_id.entry(id).or_default());
        of_id.into_iter().filter(|of_id| of_id.len() < MAX_OF_ID).for_each(|of_id| of_id.push(number));
    }
    let mut held: FxHashMap<u32, FxHashSet<u32>> = FxHashMap::default();
    let mut add = |map_id: u32, prog_id: u32| {
        let programs = by_id.get(&prog_id).into_iter().flatten();
        held.entry(map_id).or_default().extend(programs);
    };
    for array in &states.prog_arrays {
        array.slots.iter().for_each(|slot| add(array.map_id, slot.prog_id));
    }
    if states.prog_arrays.is_empty() {
        // Older recordings have no contents of program arrays. Their attachments give the array by its name, which several arrays may share.
        let is_array = |map: &&bprec_format::bprec::state::Map| map.map_type == MapType::PROG_ARRAY.0;
        let mut named: FxHashMap<&[u8], Vec<u32>> = FxHashMap::default();
        states.maps.values().filter(is_array).for_each(|map| named.entry(&map.name).or_default().push(map.id));
        for attachment in states.attachments.iter().filter(|attachment| attachment.kind == "tail_call") {
            let name = attachment.target.text().split(|byte| *byte == b'[').next().unwrap_or_default();
            named.get(name).into_iter().flatten().for_each(|map_id| add(*map_id, attachment.prog_id));
        }
    }
    if states.prog_arrays.iter().any(|array| array.unread_slots > 0) {
        // A slot that was not read may have any program of the arrays.
        let all: FxHashSet<u32> = held.values().flatten().copied().collect();
        held.insert(UNREAD, all);
    }
    let mut arrays: Arrays = held.into_iter().map(|(map, programs)| (map, programs.into_iter().collect())).collect();
    arrays.values_mut().for_each(|programs| programs.sort_unstable());
    arrays
}

/// Returns, for each program that tail calls can reach, the programs in `starts` that lead to it; `None` if the limit on slots is exceeded.
fn origins(
    starts: impl Iterator<Item = usize>,
    used: &[Vec<u32>],
    arrays: &Arrays,
    reached: &[bool],
) -> Option<Vec<Vec<u32>>> {
    let mut origins = vec![Vec::new(); used.len()];
    let mut steps = 0;
    for start in starts {
        let (mut seen_arrays, mut seen) = (FxHashSet::default(), FxHashSet::from_iter([start as u32]));
        let mut open = vec![start as u32];
        while let Some(program) = open.pop() {
            if reached[program as usize] {
                origins[program as usize].push(start as u32);
            }
            for array in &used[program as usize] {
                if !seen_arrays.insert(*array) {
                    continue;
                }
                steps += arrays[array].len() + 1;
                if steps > MAX_STEPS {
                    return None;
                }
                open.extend(arrays[array].iter().copied().filter(|program| seen.insert(*program)));
            }
        }
    }
    Some(origins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::images::TrampolinePrograms;
    use crate::index::programs::ProgInfoSummary;
    use crate::index::symbols::KernelSymbols;
    use bprec_format::bpf::names::ProgType;
    use bprec_format::bprec::state::{AttachTarget, Attachment, KernelSymbol, ProgArray, Session, TailCall};

    fn program(id: u32) -> IndexedProgram {
        let info = ProgInfoSummary { prog_type: Some(ProgType::RAW_TRACEPOINT), ..ProgInfoSummary::default() };
        IndexedProgram { id: Some(id), info: Some(info), ..IndexedProgram::default() }
    }

    fn attached(prog_id: u32, kind: &str, target: &str) -> Attachment {
        Attachment { prog_id, link_id: None, kind: kind.into(), target: AttachTarget::default().words(target) }
    }

    fn array(map_id: u32, programs: &[u32]) -> ProgArray {
        let slots = (0..).zip(programs).map(|(index, prog_id)| TailCall { index, prog_id: *prog_id }).collect();
        ProgArray { map_id, slots, unread_slots: 0 }
    }

    const NAMES: [&str; 2] = ["__bpf_trace_sys_enter", "__bpf_trace_sys_exit"];

    /// Returns the program from which program `of` was tail-called, if the call chain leads to the tracepoint `hook`. Programs have the ids 10, 11
    /// and so on; `maps` holds the map ids of each program.
    fn origin(
        programs: &[IndexedProgram],
        maps: &[&[u32]],
        states: &States,
        of: u32,
        hook: Option<&str>,
        at_ns: u64,
    ) -> Option<u32> {
        let symbol = |(at, name): (u64, &str)| KernelSymbol { addr: at << 12, len_bytes: 16, name: name.into() };
        let symbols = KernelSymbols::new((0..).zip(NAMES).map(symbol).collect());
        let hooks = Hooks::new(&symbols, programs, states, &[], &TrampolinePrograms::default());
        let hook = hook.map(|hook| NAMES.iter().position(|name| name.ends_with(hook)).unwrap() as u64);
        let hook = hook.and_then(|at| hooks.of(symbols.find(at << 12)));
        let tail_calls = TailCalls::new(programs, |it| maps[it.id.unwrap() as usize - 10].to_vec(), states);
        assert!(tail_calls.reach(of));
        tail_calls.origin(of, &hooks, hook, at_ns)
    }

    fn states(attachments: &[Attachment], prog_arrays: &[ProgArray]) -> States {
        States {
            session: Some(Session { start_ns: 100, ..Session::default() }),
            attachments: attachments.to_vec(),
            prog_arrays: prog_arrays.to_vec(),
            ..States::default()
        }
    }

    #[test]
    fn a_chain_begins_where_a_hook_runs_a_program() {
        // Program 10 is on sys_enter and calls 12, which calls 13; program 11 is on sys_exit and calls 13; program 13 is also on sys_exit itself.
        let programs: Vec<IndexedProgram> = (10..14).map(program).collect();
        let maps: [&[u32]; 4] = [&[1], &[2], &[2, 9], &[]];
        let mut at = [attached(10, "raw_tracepoint", "sys_enter"), attached(11, "raw_tracepoint", "sys_exit")].to_vec();
        at.push(attached(12, "tail_call", "jumps[0]"));
        let arrays = [array(1, &[12]), array(2, &[13])];
        let known = states(&at, &arrays);
        let of = |number, hook| origin(&programs, &maps, &known, number, hook, 500);
        assert_eq!((of(2, None), of(2, Some("sys_enter"))), (Some(0), Some(0)));
        assert_eq!(of(2, Some("sys_exit")), None, "no program on this hook reaches program 12");
        assert_eq!(of(3, None), None, "programs 10 and 11 both reach program 13");
        assert_eq!((of(3, Some("sys_enter")), of(3, Some("sys_exit"))), (Some(0), Some(1)));
        at.push(attached(13, "raw_tracepoint", "sys_exit"));
        let known = states(&at, &arrays);
        assert_eq!(
            origin(&programs, &maps, &known, 3, Some("sys_exit"), 500),
            None,
            "program 11 or the hook itself is the origin"
        );
        assert_eq!(origin(&programs, &maps, &known, 3, Some("sys_enter"), 500), Some(0));
    }

    #[test]
    fn only_programs_that_were_there_jump() {
        // Both programs tail-call 12, and no hook of either is known. 10 is unloaded at 300; 11 is loaded at 400.
        let gone = IndexedProgram { unloaded_ns: Some(300), ..program(10) };
        let came = IndexedProgram { loaded_ns: Some(400), ..program(11) };
        let programs = [gone, came, program(12)];
        let known = states(&[], &[array(1, &[12])]);
        let of = |at_ns| origin(&programs, &[&[1], &[1], &[]], &known, 2, None, at_ns);
        assert_eq!((of(200), of(350), of(500)), (Some(0), None, Some(1)));
    }

    #[test]
    fn slots_that_were_not_looked_at_hold_any_of_the_programs() {
        let programs: Vec<IndexedProgram> = (10..13).map(program).collect();
        let long = ProgArray { unread_slots: 1, ..array(2, &[]) };
        let of = |arrays: &[ProgArray]| origin(&programs, &[&[1], &[2], &[]], &states(&[], arrays), 2, None, 500);
        assert_eq!(of(&[array(1, &[12]), array(2, &[])]), Some(0));
        assert_eq!(of(&[array(1, &[12]), long]), None);
    }

    #[test]
    fn ways_in_a_circle_end() {
        let programs: Vec<IndexedProgram> = (10..13).map(program).collect();
        let known = states(&[attached(10, "raw_tracepoint", "sys_enter")], &[array(1, &[11, 12])]);
        let of = |number| origin(&programs, &[&[1], &[1], &[1]], &known, number, None, 500);
        assert_eq!((of(1), of(2)), (Some(0), Some(0)));
    }
}
