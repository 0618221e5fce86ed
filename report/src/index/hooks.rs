//! Hooks: the kernel functions of a call chain identify the hook; links and attachments show which programs are on it.

use super::States;
use super::causes::BpfCause;
use super::images::{Image, ImageKind, TrampolineKey, TrampolinePrograms};
use super::kernel::{
    Candidates, Dispatch, KERNEL_PROBES, RAW_TRACEPOINTS, SYSTEM_CALL_TRACEPOINTS, TRACEPOINTS, TRACING_EVENTS,
    USER_PROBES, UserProbe, XDP_PROGRAMS,
};
use super::programs::IndexedProgram;
use super::runners::{HookGroup, Runner, Runners};
use super::symbols::KernelSymbols;
use bprec_format::bpf::names::ProgType;
use bprec_format::bprec::state::Attachment;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Mask of the offset in a page: a mapped function has the same offset in its page as in a page of the file.
const PAGE_OFFSET: u64 = 0xfff;

/// Information that a kernel function in a call chain gives about the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// The function identifies the hook.
    Hook(u32),
    /// The function suggests this hook, but a function further out in the call chain may identify another hook.
    Perhaps(Way, u32),
    /// The function identifies a tracepoint. The hook depends on the way in which the programs are attached to the tracepoint.
    Tracepoint { raw: u32, perf: u32 },
}

/// Way in which a hook runs programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Way {
    RawTracepoint,
    Event,
    Probe,
}

/// Hooks of a recording and the programs on them.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    runners: Runners,
    /// Information that kernel functions give about the hook, by number of the function.
    leads: FxHashMap<u32, Lead>,
    /// Hooks of kprobes by number of the probed kernel function.
    probed: FxHashMap<u32, u32>,
    /// Hook of all uprobes.
    uprobe: Option<u32>,
    /// Hooks of uprobes by offset in a page.
    uprobed: FxHashMap<u64, u32>,
    /// Hooks by number of an image.
    images: Vec<u32>,
    /// Hooks for call chains that do not show which user probe, kernel probe or system call tracepoint was hit.
    any: AnyHooks,
}

/// One hook per kind of probe, with the programs of all hooks of this kind. If the code between a probe and its programs does not show which probe
/// was hit, it is charged to the hook of the kind.
#[derive(Debug, Default)]
struct AnyHooks {
    user_probe: u32,
    kernel_probe: u32,
    system_call: u32,
}

impl Hooks {
    /// Builds the hooks. `attached` has the programs that trampolines run.
    pub(crate) fn new(
        symbols: &KernelSymbols,
        programs: &[IndexedProgram],
        states: &States,
        images: &[Image],
        attached: &TrampolinePrograms,
    ) -> Hooks {
        let mut builder = Builder::new(programs, states);
        let user_probes = UserProbe::NAMES.map(|way| builder.user_probes(way));
        let leads = builder.leads(symbols, user_probes);
        let probed = builder.probed(symbols);
        let uprobed = builder.uprobed();
        let images = builder.images(images, attached);
        let any = AnyHooks {
            user_probe: builder.candidates(USER_PROBES),
            kernel_probe: builder.candidates(KERNEL_PROBES),
            system_call: builder.candidates(SYSTEM_CALL_TRACEPOINTS),
        };
        Hooks { runners: builder.runners, leads, probed, uprobe: Some(user_probes[0]), uprobed, images, any }
    }

    /// Returns the hook that a call chain leads to. `functions` are the numbers of its kernel functions, innermost first.
    pub(crate) fn of(&self, functions: impl IntoIterator<Item = u32>) -> Option<u32> {
        self.told(functions).map_or_else(|perhaps| perhaps, Some)
    }

    /// Returns the hook that a function of the call chain identifies. If no function identifies a hook, the error has the hook that a function
    /// suggests, if any.
    fn told(&self, functions: impl IntoIterator<Item = u32>) -> Result<u32, Option<u32>> {
        let mut last: Option<(Way, u32)> = None;
        for function in functions {
            if let Some((Way::Probe, _)) = last {
                if let Some(hook) = self.probed.get(&function) {
                    return Ok(*hook);
                }
                continue;
            }
            match self.leads.get(&function) {
                Some(Lead::Hook(hook)) => return Ok(*hook),
                Some(Lead::Perhaps(way, hook)) => last = Some((*way, *hook)),
                Some(Lead::Tracepoint { raw, perf }) => {
                    return Ok(if matches!(last, Some((Way::Event, _))) { *perf } else { *raw });
                }
                None => {}
            }
        }
        Err(last.map(|(_, hook)| hook))
    }

    /// Narrows the hook of all uprobes by the task's address in user space, `user_ip`, to the uprobes with the same offset in their page. Returns
    /// `None` if no program is on such a uprobe, and returns `hook` unchanged if it is another hook or `user_ip` is unknown.
    pub(crate) fn at_user_ip(&self, hook: u32, user_ip: Option<u64>) -> Option<u32> {
        match user_ip.filter(|_| self.uprobe == Some(hook)) {
            Some(ip) => self.uprobed.get(&(ip & PAGE_OFFSET)).copied(),
            None => Some(hook),
        }
    }

    /// Returns the hook of an image.
    pub(crate) fn of_image(&self, image: u32) -> Option<u32> {
        self.images.get(image as usize).copied()
    }

    /// Returns the hook of the trace event that a call chain identifies. Returns `None` if no program was attached to the hook at the time: the
    /// kernel then makes the trace event only for perf.
    pub(crate) fn of_event(&self, functions: impl IntoIterator<Item = u32>, time_ns: u64) -> Option<u32> {
        self.told(functions).ok().filter(|hook| self.runners.has_any(*hook, time_ns))
    }

    /// Returns true if a program was attached to a user probe at a time.
    pub(crate) fn has_user_probes(&self, time_ns: u64) -> bool {
        self.runners.has_any(self.any.user_probe, time_ns)
    }

    /// Returns the hook that made a kernel function do the work `cause`, if a program was attached to the hook at the time. `functions` are those of
    /// the call chain, innermost first; `user_ip` is the address in user space at which the task entered the kernel.
    pub(crate) fn of_cause(
        &self,
        cause: BpfCause,
        functions: impl IntoIterator<Item = u32>,
        user_ip: Option<u64>,
        time_ns: u64,
    ) -> Option<u32> {
        let has_any = |hook: &u32| self.runners.has_any(*hook, time_ns);
        match cause {
            BpfCause::UserProbe | BpfCause::UserException => {
                // After the trap of a breakpoint, the address may be one byte after the probe.
                let probed = user_ip.into_iter().flat_map(|ip| [ip, ip.wrapping_sub(1)]);
                let hooks = probed.filter_map(|ip| self.uprobed.get(&(ip & PAGE_OFFSET)).copied());
                hooks.chain([self.any.user_probe]).find(has_any)
            }
            BpfCause::KernelProbe => self.told(functions).ok().into_iter().chain([self.any.kernel_probe]).find(has_any),
            BpfCause::Tracepoint => functions.into_iter().find_map(|function| match self.leads.get(&function) {
                Some(Lead::Tracepoint { raw, perf }) => [*raw, *perf].into_iter().find(has_any),
                _ => None,
            }),
            BpfCause::SystemCall => Some(self.any.system_call).filter(has_any),
            BpfCause::RingBufferWakeup
            | BpfCause::PerfBufferWakeup
            | BpfCause::Free
            | BpfCause::BpfCall
            | BpfCause::Load
            | BpfCause::Verifier
            | BpfCause::Jit => None,
        }
    }

    /// Returns the program or programs that a hook ran at a time.
    pub(crate) fn runner(&self, hook: u32, time_ns: u64) -> Runner {
        self.runners.at(hook, time_ns)
    }

    /// Groups of programs that share a hook, by number.
    pub(crate) fn groups(&self) -> &[HookGroup] {
        self.runners.groups()
    }

    /// Returns true if hooks had more programs than the limits allow: the programs of some hooks are then unknown.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.runners.is_incomplete()
    }
}

struct Builder<'a> {
    programs: &'a [IndexedProgram],
    states: &'a States,
    lifetimes: Vec<Range<u64>>,
    /// Programs with unknown attach points: never queried, or unloaded before the recorder queried them.
    strangers: Vec<u32>,
    multi: MultiPrograms<'a>,
    /// Number of each set of strangers made so far, by the definition of the set.
    sets: FxHashMap<Strangers, u32>,
    /// Hooks by candidates.
    candidates: FxHashMap<Candidates, u32>,
    /// Hooks by their programs, set of strangers, and `run_together`.
    hooks: FxHashMap<(Vec<u32>, u32, bool), u32>,
    runners: Runners,
}

/// Definition of a set of strangers: programs with unknown attach points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Strangers {
    /// Strangers of these types or of unknown type, except programs with which the recorder counts other programs.
    OfTypes(&'static [ProgType]),
    /// Strangers of unknown type, and the programs of `tracing_multi` links that `multi` selects. With `with_counting`, also programs with which the
    /// recorder counts other programs.
    Unidentified { with_counting: bool, multi: Multi },
}

/// Programs of `tracing_multi` links (Linux 7.3) that may be on a trampoline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Multi {
    /// No program: the trampoline belongs to a function of a BPF program, and `tracing_multi` links attach only to kernel functions.
    None,
    /// Programs of links that attach to more functions than the recording lists, as the trampoline's function may be one of the unlisted functions.
    Unlisted,
    /// All programs of these links, because the trampoline's function is unknown.
    All,
}

/// Programs of `tracing_multi` links, which share trampolines with other programs.
#[derive(Debug, Default)]
struct MultiPrograms<'a> {
    by_function: FxHashMap<&'a [u8], Vec<u32>>,
    unlisted: Vec<u32>,
    all: Vec<u32>,
}

impl<'a> Builder<'a> {
    fn new(programs: &'a [IndexedProgram], states: &'a States) -> Builder<'a> {
        let start_ns = states.session.as_ref().map(|session| session.start_ns);
        let released = |program: &IndexedProgram| states.released.get(&program.key()?);
        let lifetime = |program: &IndexedProgram| {
            let unloaded_ns = program.unloaded_ns.unwrap_or(u64::MAX);
            let gone_ns = released(program).map_or(unloaded_ns, |released| unloaded_ns.min(released.before_ns));
            program.loaded_ns.unwrap_or(0)..gone_ns
        };
        let is_stranger = |program: &IndexedProgram| {
            let has_gone = program.unloaded_ns.is_some() || released(program).is_some();
            let came =
                start_ns.is_some_and(|start_ns| program.loaded_ns.is_some_and(|loaded_ns| loaded_ns >= start_ns));
            let was_looked_at = start_ns.is_some() && program.info.is_some() && !(came && has_gone);
            !was_looked_at && states.attachments_of(program.id).is_empty()
        };
        let numbered = (0..).zip(programs);
        Builder {
            programs,
            states,
            lifetimes: programs.iter().map(lifetime).collect(),
            strangers: numbered.filter(|(_, program)| is_stranger(program)).map(|(number, _)| number).collect(),
            multi: MultiPrograms::new(programs, states),
            sets: FxHashMap::default(),
            candidates: FxHashMap::default(),
            hooks: FxHashMap::default(),
            runners: Runners::default(),
        }
    }

    fn attachments(&self) -> impl Iterator<Item = (u32, &'a Attachment)> + use<'a> {
        let (programs, states) = (self.programs, self.states);
        (0..).zip(programs).flat_map(move |(number, program)| {
            states.attachments_of(program.id).iter().map(move |attachment| (number, attachment))
        })
    }

    fn is_of(&self, program: u32, types: &[ProgType]) -> bool {
        let prog_type = self.programs[program as usize].info.and_then(|info| info.prog_type);
        prog_type.is_none_or(|prog_type| types.contains(&prog_type))
    }

    /// Returns true if the recorder loaded the program to count another program. Such a program has no info, and is on no hook except the counted
    /// program's.
    fn counts_others(&self, program: u32) -> bool {
        self.states.is_loaded_by_recorder(&self.programs[program as usize])
    }

    fn strangers(&mut self, set: Strangers) -> u32 {
        if let Some(number) = self.sets.get(&set) {
            return *number;
        }
        let is_in = |program: &u32| match set {
            Strangers::OfTypes(types) => self.is_of(*program, types) && !self.counts_others(*program),
            Strangers::Unidentified { with_counting, .. } => {
                self.programs[*program as usize].info.is_none() && (with_counting || !self.counts_others(*program))
            }
        };
        let multi: &[u32] = match set {
            Strangers::Unidentified { multi: Multi::Unlisted, .. } => &self.multi.unlisted,
            Strangers::Unidentified { multi: Multi::All, .. } => &self.multi.all,
            _ => &[],
        };
        let members: Vec<u32> = self.strangers.iter().copied().filter(is_in).chain(multi.iter().copied()).collect();
        let lifetimes = &self.lifetimes;
        let number = self.runners.add_strangers(members.into_iter().map(|it| (it, lifetimes[it as usize].clone())));
        self.sets.insert(set, number);
        number
    }

    /// Returns the hook of these programs and strangers. With `run_together`, the hook runs all of these programs whenever it is reached.
    fn hook(&mut self, programs: &[u32], strangers: Strangers, run_together: bool) -> u32 {
        let strangers = self.strangers(strangers);
        let programs: Vec<u32> = programs.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect();
        let (lifetimes, runners) = (&self.lifetimes, &mut self.runners);
        *self.hooks.entry((programs, strangers, run_together)).or_insert_with_key(|(programs, ..)| {
            let programs = programs.iter().map(|it| (*it, lifetimes[*it as usize].clone()));
            runners.add(programs, strangers, run_together)
        })
    }

    fn candidates(&mut self, candidates: Candidates) -> u32 {
        if let Some(hook) = self.candidates.get(&candidates) {
            return *hook;
        }
        let attached = self.attachments().filter(|(number, attachment)| {
            self.is_of(*number, candidates.types)
                && match candidates.attached_as {
                    [] => attachment.kind != "tail_call",
                    kinds => kinds.iter().any(|kind| is_attached_as(kind, attachment)),
                }
        });
        let attached: Vec<u32> = attached.map(|(number, _)| number).collect();
        let hook = self.hook(&attached, Strangers::OfTypes(candidates.types), false);
        self.candidates.insert(candidates, hook);
        hook
    }

    /// Returns the hook of all user probes of a kind.
    fn user_probes(&mut self, way: &'static str) -> u32 {
        let attached = self.attachments().filter(|(_, attachment)| attachment.kind == way);
        let attached: Vec<u32> = attached.map(|(number, _)| number).collect();
        self.hook(&attached, Strangers::OfTypes(&[ProgType::KPROBE]), false)
    }

    /// Returns the hooks of uprobes by offset in a page.
    fn uprobed(&mut self) -> FxHashMap<u64, u32> {
        let mut on: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (number, attachment) in self.attachments().filter(|(_, attachment)| attachment.kind == UserProbe::NAMES[0])
        {
            let offset =
                attachment.target.text().rsplit(|byte| *byte == b'+').next().and_then(|it| it.strip_prefix(b"0x"));
            let offset = offset.and_then(|offset| u64::from_str_radix(std::str::from_utf8(offset).ok()?, 16).ok());
            if let Some(offset) = offset {
                on.entry(offset & PAGE_OFFSET).or_default().push(number);
            }
        }
        let hooks = on
            .into_iter()
            .map(|(offset, programs)| (offset, self.hook(&programs, Strangers::OfTypes(&[ProgType::KPROBE]), false)));
        hooks.collect()
    }

    fn leads(&mut self, symbols: &KernelSymbols, [uprobe, uretprobe]: [u32; 2]) -> FxHashMap<u32, Lead> {
        let tracepoints = self.tracepoints(symbols);
        let (any_raw, any_event) = (self.candidates(RAW_TRACEPOINTS), self.candidates(TRACING_EVENTS));
        let mut lead = |dispatch: Dispatch, subject: &str| {
            Some(match dispatch {
                Dispatch::NotSaid => return None,
                Dispatch::Programs(candidates) => Lead::Hook(self.candidates(candidates)),
                Dispatch::Probe(candidates) => Lead::Perhaps(Way::Probe, self.candidates(candidates)),
                Dispatch::UserProbe(UserProbe::Entry) => Lead::Hook(uprobe),
                Dispatch::UserProbe(UserProbe::Return) => Lead::Hook(uretprobe),
                Dispatch::AnyEvent => Lead::Perhaps(Way::Event, any_event),
                Dispatch::AnyRawTracepoint => Lead::Perhaps(Way::RawTracepoint, any_raw),
                Dispatch::RawTracepoint => tracepoints.of_class(Way::RawTracepoint, subject),
                Dispatch::Event => tracepoints.of_class(Way::Event, subject),
                Dispatch::Tracepoint => {
                    let of = |way| tracepoints.hooks.get(&(way, subject)).copied().unwrap_or(tracepoints.nobody(way));
                    Lead::Tracepoint { raw: of(Way::RawTracepoint), perf: of(Way::Event) }
                }
            })
        };
        let leads =
            symbols.dispatches().filter_map(|(number, dispatch, subject)| Some((number, lead(dispatch, &subject)?)));
        leads.collect()
    }

    fn tracepoints(&mut self, symbols: &KernelSymbols) -> Tracepoints<'a> {
        let mut by_event: BTreeMap<(Way, &str), Vec<u32>> = BTreeMap::new();
        for (number, attachment) in self.attachments() {
            let way = match attachment.kind.as_str() {
                "raw_tracepoint" => Way::RawTracepoint,
                "tracepoint" => Way::Event,
                _ => continue,
            };
            let name = attachment.target.text().rsplit(|byte| *byte == b':').next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name) {
                by_event.entry((way, name)).or_default().push(number);
            }
        }
        // Tracepoints of one event class share the class's functions, which do not show the tracepoint. A tracepoint that has functions of its own
        // name does not use the class's functions.
        let events: Vec<(Way, &str)> = by_event.keys().copied().collect();
        let mut is_own = vec![false; events.len()];
        for (_, dispatch, subject) in symbols.dispatches() {
            let way = match dispatch {
                Dispatch::RawTracepoint => Way::RawTracepoint,
                Dispatch::Event => Way::Event,
                _ => continue,
            };
            if let Ok(at) = events.binary_search(&(way, &*subject)) {
                is_own[at] = true;
            }
        }
        let mut in_classes = [Vec::new(), Vec::new()];
        let mut hooks = FxHashMap::default();
        for (((way, name), programs), is_own) in by_event.into_iter().zip(is_own) {
            hooks.insert((way, name), self.hook(&programs, way.strangers(), true));
            if !is_own {
                in_classes[usize::from(way == Way::Event)].extend(programs);
            }
        }
        let ways = [Way::RawTracepoint, Way::Event];
        let of_classes = [0, 1].map(|at| self.hook(&in_classes[at], ways[at].strangers(), false));
        let nobody = ways.map(|way| self.hook(&[], way.strangers(), false));
        Tracepoints { hooks, of_classes, nobody }
    }

    fn probed(&mut self, symbols: &KernelSymbols) -> FxHashMap<u32, u32> {
        let mut on: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        for (number, attachment) in self.attachments().filter(|(_, attachment)| attachment.kind == "kprobe") {
            let function = attachment.target.text().split(|byte| *byte == b'+').next().unwrap_or_default();
            on.entry(function).or_default().push(number);
        }
        let hooks = on.into_iter().map(|(function, programs)| {
            (function, self.hook(&programs, Strangers::OfTypes(&[ProgType::KPROBE]), false))
        });
        let hooks: FxHashMap<&[u8], u32> = hooks.collect();
        // Several kernel functions may have the same name; each leads to the hook.
        symbols.names().filter_map(|(number, name)| Some((number, *hooks.get(name.as_bytes())?))).collect()
    }

    fn images(&mut self, images: &[Image], attached: &TrampolinePrograms) -> Vec<u32> {
        // The kernel names a struct_ops stub after the type of its table and the operation.
        let mut operations: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (number, attachment) in self.attachments().filter(|(_, attachment)| attachment.kind == "struct_ops") {
            let target = String::from_utf8_lossy(attachment.target.text());
            if let Some(((kind, _), (_, member))) = target.split_once(' ').zip(target.rsplit_once('.')) {
                operations.entry(format!("bpf__{kind}_{member}")).or_default().push(number);
            }
        }
        let operations: FxHashMap<String, u32> = operations
            .into_iter()
            .map(|(name, programs)| (name, self.hook(&programs, Strangers::OfTypes(&[ProgType::STRUCT_OPS]), false)))
            .collect();
        let no_operation = self.hook(&[], Strangers::OfTypes(&[ProgType::STRUCT_OPS]), false);
        // The kernel makes a new trampoline whenever a program is attached or detached. All trampolines of one traced function have the same hook.
        let mut trampolines: FxHashMap<(Option<(u32, u32)>, bool), u32> = FxHashMap::default();
        // A trampoline's name has the BTF id of the traced function, but the targets of `tracing_multi` links are function names. A program attached
        // to this function alone (`fentry`, not `fentry_multi`) has both the id and the name.
        let function_of = |program: &u32| {
            let attachments = self.states.attachments_of(self.programs[*program as usize].id).iter();
            let mut traced =
                attachments.filter(|it| TRAMPOLINES.contains(&it.kind.as_str()) && !it.target.text().is_empty());
            traced.next().map(|it| it.target.text())
        };
        let dispatcher = self.candidates(XDP_PROGRAMS);
        let hooks = images.iter().map(|image| match image.kind {
            ImageKind::Dispatcher => dispatcher,
            ImageKind::StructOps => operations.get(&image.name).copied().unwrap_or(no_operation),
            ImageKind::Trampoline(key) => {
                let with_counting = matches!(key, TrampolineKey::Program { .. });
                let target = attached.target(key);
                *trampolines.entry((target, with_counting)).or_insert_with(|| {
                    let mut programs = attached.to(target).to_vec();
                    let function = programs.iter().find_map(function_of);
                    let multi = match function {
                        _ if with_counting => Multi::None,
                        Some(_) => Multi::Unlisted,
                        None => Multi::All,
                    };
                    let on_function = function.and_then(|function| self.multi.by_function.get(function));
                    programs.extend(on_function.filter(|_| !with_counting).into_iter().flatten());
                    self.hook(&programs, Strangers::Unidentified { with_counting, multi }, true)
                })
            }
        });
        hooks.collect()
    }
}

/// Hooks of tracepoints.
struct Tracepoints<'a> {
    /// Hooks by name.
    hooks: FxHashMap<(Way, &'a str), u32>,
    /// Hooks with the programs of all tracepoints that use the functions of their class: as raw tracepoints, then as perf events.
    of_classes: [u32; 2],
    /// Hooks without an attached program: for raw tracepoints, then for perf events.
    nobody: [u32; 2],
}

impl Tracepoints<'_> {
    /// Returns the information about the hook that follows from a function that runs the programs of tracepoint `name`, or of the event class `name`.
    fn of_class(&self, way: Way, name: &str) -> Lead {
        let of_name = self.hooks.get(&(way, name)).copied();
        of_name.map_or(Lead::Perhaps(way, self.of_classes[usize::from(way == Way::Event)]), Lead::Hook)
    }

    fn nobody(&self, way: Way) -> u32 {
        self.nobody[usize::from(way == Way::Event)]
    }
}

impl Way {
    fn strangers(self) -> Strangers {
        Strangers::OfTypes(if self == Way::RawTracepoint { RAW_TRACEPOINTS.types } else { TRACEPOINTS.types })
    }
}

/// Kinds of attachment by a trampoline of a kernel function.
const TRAMPOLINES: [&str; 6] = ["fentry", "fexit", "fsession", "fmod_ret", "lsm", "tp_btf"];
/// Kinds of attachment by a `tracing_multi` link. A recorder that does not know these kinds writes the number `15` instead.
const MULTI: [&str; 4] = ["fentry_multi", "fexit_multi", "fsession_multi", "15"];
/// End of a `tracing_multi` target that stands for unlisted functions: `3 more`.
const MORE_FUNCTIONS: &[u8] = b" more";

impl<'a> MultiPrograms<'a> {
    fn new(programs: &[IndexedProgram], states: &'a States) -> MultiPrograms<'a> {
        let mut multi = MultiPrograms::default();
        for (number, program) in (0..).zip(programs) {
            let attachments = states.attachments_of(program.id).iter();
            for attachment in attachments.filter(|attachment| MULTI.contains(&attachment.kind.as_str())) {
                let target = attachment.target.text();
                if target.is_empty() || target.ends_with(MORE_FUNCTIONS) {
                    multi.unlisted.push(number);
                } else {
                    multi.by_function.entry(target).or_default().push(number);
                }
                multi.all.push(number);
            }
        }
        multi.all.dedup();
        multi.unlisted.dedup();
        multi
    }
}

/// Returns true for an attachment to a tracepoint as a perf event.
pub(crate) fn is_tracepoint(attachment: &Attachment) -> bool {
    attachment.kind == "tracepoint"
}

/// Returns true for an attachment to a user probe as a perf event.
pub(crate) fn is_user_probe(attachment: &Attachment) -> bool {
    UserProbe::NAMES.contains(&attachment.kind.as_str())
}

fn is_attached_as(pattern: &str, attachment: &Attachment) -> bool {
    let (kind, target) = pattern.split_once(':').map_or((pattern, None), |(kind, target)| (kind, Some(target)));
    let is_like = |pattern: &str, text: &[u8]| match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start.as_bytes()),
        None => text == pattern.as_bytes(),
    };
    is_like(kind, attachment.kind.as_bytes()) && target.is_none_or(|target| is_like(target, attachment.target.text()))
}

#[cfg(test)]
mod tests;
