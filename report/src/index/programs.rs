//! Programs of the recording: their lifetimes, and the addresses of their code.
//!
//! Three sources complete each other: KSYMBOL (addresses of functions, with load and unload), BPF_EVENT (the id of the program that the symbols
//! before it belong to) and `bpf_prog_info` (all other facts). KSYMBOLs of the kernel and of perf name a program differently: records are joined by
//! id and address, never by name.

mod free;
mod loads;
mod side_event;
mod traits;

use self::free::FreePrograms;
pub(crate) use self::loads::ProgramLoads;
pub(crate) use self::side_event::{SideEvent, SidebandKind};
pub(crate) use self::traits::TAIL_CALL;
use crate::index::code::{Code, Range, interpreter_ranges};
use crate::index::images::{Image, TrampolinePrograms, lossy, symbol_name};
use crate::index::sections::source_file;
use crate::index::states::States;
use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfo;
use bprec_format::records::{BpfEventKind, KsymbolKind};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Function of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProgramFunction {
    pub(crate) name: String,
    /// Address of the function's code, if known.
    pub(crate) addr: Option<u64>,
}

/// Program of the recording.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexedProgram {
    pub(crate) id: Option<u32>,
    pub(crate) tag: Option<[u8; 8]>,
    /// Facts of the program's `bpf_prog_info`, if the recording has it.
    pub(crate) info: Option<ProgInfoSummary>,
    /// Load time since boot, ns, from the recorder's states; only for programs without `info`.
    pub(crate) state_load_time_ns: Option<u64>,
    /// Functions, the entry function first.
    pub(crate) functions: Vec<ProgramFunction>,
    /// Load time, ns, if the recording has it.
    pub(crate) loaded_ns: Option<u64>,
    /// Unload time, ns, if the recording has it.
    pub(crate) unloaded_ns: Option<u64>,
    /// True if the interpreter runs the program, which has no machine code.
    pub(crate) interpreted: bool,
    /// Process and thread that loaded the program, if the recording has them.
    pub(crate) loader: Option<(u32, u32)>,
    /// Maps that the program uses.
    pub(crate) map_ids: Box<[u32]>,
}

/// Facts of a `bpf_prog_info`, without its functions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgInfoSummary {
    /// Position among the infos.
    pub(crate) at: usize,
    pub(crate) prog_type: Option<ProgType>,
    pub(crate) load_time_ns: u64,
    pub(crate) uid: Option<u32>,
    /// Bytes of machine code.
    pub(crate) jited_bytes: Option<u32>,
    /// Instructions that the verifier processed.
    pub(crate) verified_insns: Option<u32>,
}

/// Program known only from its BPF_EVENT: the recording has no info, no code and no attach point of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    pub(crate) id: u32,
    pub(crate) tag: Option<[u8; 8]>,
    pub(crate) loaded_ns: Option<u64>,
    pub(crate) loader_pid: Option<u32>,
}

/// Programs of a recording, their images, and the address ranges of programs and images.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) list: Vec<IndexedProgram>,
    /// Programs that are known only from a BPF_EVENT. They are not in `list`, as nothing can be charged to them.
    pub(crate) announced: Vec<Announced>,
    /// Base name of the source file of each info, by [`ProgInfoSummary::at`].
    pub(crate) source_files: Box<[Option<Box<str>>]>,
    /// Number of a program by id and load time.
    pub(crate) by_key: FxHashMap<(u32, u64), u32>,
    pub(crate) images: Vec<Image>,
    /// Programs that trampolines run.
    pub(crate) attached: TrampolinePrograms,
    pub(crate) ranges: Vec<Range>,
}

/// Range of a symbol, and its program once known.
#[derive(Debug, Clone)]
struct CodeSymbol {
    addr: u64,
    len_bytes: u32,
    from_ns: u64,
    to_ns: u64,
    name: Vec<u8>,
    program: Option<u32>,
}

/// State of a walk through the side-band records in the order of time. The walk assigns symbols to programs, and finds when programs are loaded and
/// unloaded.
#[derive(Debug, Default)]
struct SideBandWalk {
    symbols: Vec<CodeSymbol>,
    images: Vec<(CodeSymbol, Image)>,
    known: Vec<IndexedProgram>,
    /// Number of the latest program with each id.
    by_id: FxHashMap<u32, u32>,
    /// Number of the loaded symbol at each address, at the current point of the walk.
    here: FxHashMap<u64, u32>,
    images_here: FxHashMap<u64, u32>,
    /// Symbols that wait for the BPF_EVENT of their program, by CPU and thread. The flag is false for loaded symbols and true for unloaded symbols.
    pending: FxHashMap<((u32, u32), bool), Vec<u32>>,
    /// Addresses of the interpreter's entry functions: KSYMBOL gives them as the address of a program without machine code.
    interpreters: Vec<u64>,
    /// Code of kprobes and ftrace, which belongs to no program.
    out_of_line: Vec<Range>,
    /// Names of symbols that were announced again at the address of a loaded symbol, by number of the loaded symbol. The program's BPF_EVENT shows
    /// whether both are the same symbol (`bind`).
    again: FxHashMap<u32, Vec<u8>>,
    /// True if a symbol of the next BPF_EVENT has no machine code, by CPU and thread.
    interpreted: FxHashMap<(u32, u32), bool>,
}

impl Programs {
    /// Builds the list of programs from the side-band records, the program infos and their BTF. `states` relates load times to the recording's clock
    /// and has the attach points.
    pub(crate) fn join(
        mut side: Vec<SideEvent>,
        infos: &[ProgInfo<'_>],
        btf: &BTreeMap<u32, Btf<'_>>,
        states: &States,
    ) -> Programs {
        // Synthesized records have no time and come first in each file. The sort is stable: records of one time keep their order.
        side.sort_by_key(|event| (event.file, !event.is_listed, event.time_ns));
        let mut timeline = SideBandWalk::default();
        for event in side {
            timeline.step(event);
        }
        timeline.finish(infos, btf, states)
    }
}

impl SideBandWalk {
    fn step(&mut self, event: SideEvent) {
        let SideEvent { time_ns, is_listed, place, kind, .. } = event;
        match kind {
            SidebandKind::Symbol { addr, len_bytes, kind: KsymbolKind::BPF, gone, name } => {
                let symbol = CodeSymbol { addr, len_bytes, from_ns: time_ns, to_ns: u64::MAX, name, program: None };
                match Image::of_symbol(&symbol.name) {
                    Some(image) => self.image(symbol, image, gone),
                    None if gone => self.gone(symbol, place),
                    None => self.came(symbol, place, is_listed),
                }
            }
            SidebandKind::Symbol { addr, len_bytes, .. } => {
                let end = addr.saturating_add(len_bytes.into());
                self.out_of_line.push(Range { announced: false, ..Range::always(addr, end, Code::PLAIN) });
            }
            SidebandKind::Program { kind: BpfEventKind::PROG_LOAD, id, tag, pid } => {
                let loader = pid.filter(|_| !is_listed).map(|pid| (pid, place.1));
                self.loaded(time_ns, place, (id, tag), loader, is_listed);
            }
            SidebandKind::Program { kind: BpfEventKind::PROG_UNLOAD, id, tag, .. } => {
                self.unloaded(time_ns, place, id, tag)
            }
            SidebandKind::Program { .. } => {}
        }
    }

    fn image(&mut self, symbol: CodeSymbol, image: Image, gone: bool) {
        let before =
            if gone { self.images_here.remove(&symbol.addr) } else { self.images_here.get(&symbol.addr).copied() };
        if let Some(before) = before {
            let (known, known_image) = &mut self.images[before as usize];
            if !gone && known_image.name == image.name {
                return;
            }
            known.to_ns = symbol.from_ns;
            if gone {
                return;
            }
        }
        if gone {
            self.images.push((CodeSymbol { from_ns: 0, to_ns: symbol.from_ns, ..symbol }, image));
        } else {
            self.images_here.insert(symbol.addr, self.images.len() as u32);
            self.images.push((symbol, image));
        }
    }

    fn came(&mut self, symbol: CodeSymbol, place: (u32, u32), is_listed: bool) {
        if symbol.len_bytes == 0 {
            self.interpreters.push(symbol.addr);
            self.interpreted.insert(place, true);
            return;
        }
        let index = match self.here.get(&symbol.addr) {
            // Two cases look alike here. The symbol may be announced twice: by the list at the start of a file, and by the kernel. Or the symbol
            // belongs to another program at the same address, and the record of the first program's unload was lost. `bind` decides when the
            // BPF_EVENT comes.
            Some(before)
                if self.symbols[*before as usize].len_bytes == symbol.len_bytes
                    && (is_listed || self.symbols[*before as usize].from_ns == 0) =>
            {
                self.again.insert(*before, symbol.name);
                *before
            }
            before => {
                if let Some(before) = before {
                    self.symbols[*before as usize].to_ns = symbol.from_ns;
                }
                self.here.insert(symbol.addr, self.symbols.len() as u32);
                self.symbols.push(symbol);
                self.symbols.len() as u32 - 1
            }
        };
        self.pending.entry((place, false)).or_default().push(index);
    }

    fn gone(&mut self, symbol: CodeSymbol, place: (u32, u32)) {
        let index = match self.here.remove(&symbol.addr) {
            Some(index) => {
                self.symbols[index as usize].to_ns = symbol.from_ns;
                index
            }
            // The symbol was loaded before the recording, but the list at the recording's start lacks it.
            None => {
                self.symbols.push(CodeSymbol { from_ns: 0, to_ns: symbol.from_ns, ..symbol });
                self.symbols.len() as u32 - 1
            }
        };
        self.pending.entry((place, true)).or_default().push(index);
    }

    fn loaded(
        &mut self,
        time_ns: u64,
        place: (u32, u32),
        (id, tag): (u32, [u8; 8]),
        loader: Option<(u32, u32)>,
        is_listed: bool,
    ) {
        let symbols = self.pending.remove(&(place, false)).unwrap_or_default();
        let interpreted = self.interpreted.remove(&place).unwrap_or(false);
        let program = match self.by_id.get(&id) {
            Some(program) if self.known[*program as usize].unloaded_ns.is_none() => *program,
            _ => self.add(id, tag),
        };
        let known = &mut self.known[program as usize];
        known.interpreted |= interpreted && symbols.is_empty();
        known.loader = known.loader.or(loader);
        // A BPF_EVENT without a time lists a program that was loaded before the recording.
        known.loaded_ns.get_or_insert(if is_listed { 0 } else { time_ns });
        self.bind(symbols, program, time_ns);
    }

    fn unloaded(&mut self, time_ns: u64, place: (u32, u32), id: u32, tag: [u8; 8]) {
        let symbols = self.pending.remove(&(place, true)).unwrap_or_default();
        let program = match self.by_id.get(&id) {
            Some(program) => *program,
            None => self.add(id, tag),
        };
        let known = &mut self.known[program as usize];
        known.unloaded_ns = (time_ns > 0).then_some(time_ns);
        self.bind(symbols, program, 0);
    }

    fn add(&mut self, id: u32, tag: [u8; 8]) -> u32 {
        let program = self.known.len() as u32;
        self.known.push(IndexedProgram { id: Some(id), tag: Some(tag), ..IndexedProgram::default() });
        self.by_id.insert(id, program);
        program
    }

    /// Assigns symbols to a program; `came_ns` is their load time, 0 if unknown. A symbol that already belongs to another program is split at
    /// `came_ns`: the record of the other program's unload was lost.
    fn bind(&mut self, symbols: Vec<u32>, program: u32, came_ns: u64) {
        for index in symbols {
            let again = self.again.remove(&index);
            let symbol = &mut self.symbols[index as usize];
            match again.filter(|_| came_ns > 0 && symbol.program.is_some_and(|of| of != program)) {
                Some(name) => {
                    symbol.to_ns = came_ns;
                    let new = CodeSymbol {
                        name,
                        from_ns: came_ns,
                        to_ns: u64::MAX,
                        program: Some(program),
                        ..symbol.clone()
                    };
                    self.here.insert(new.addr, self.symbols.len() as u32);
                    self.symbols.push(new);
                }
                None => {
                    symbol.program.get_or_insert(program);
                }
            }
        }
    }

    fn finish(mut self, infos: &[ProgInfo<'_>], btf: &BTreeMap<u32, Btf<'_>>, states: &States) -> Programs {
        for known in &mut self.known {
            known.loaded_ns = known.loaded_ns.filter(|time| *time > 0);
        }
        let owners = self.match_infos(infos);
        for known in self.known.iter_mut().filter(|known| known.info.is_none()) {
            known.state_load_time_ns = known.id.and_then(|id| states.only_load_time_ns(id));
        }
        let mut ranges = Vec::new();
        let mut symbol_functions: Vec<Option<(u32, u32)>> = vec![None; self.symbols.len()];
        // Several programs may have had the same address at different times. A function therefore matches only symbols of its own program, and
        // symbols without a program.
        let mut of_program: Vec<(u64, u32, u32)> = Vec::with_capacity(self.symbols.len());
        let mut of_none: FxHashMap<(u64, u64), Vec<u32>> = FxHashMap::default();
        for (index, symbol) in (0..).zip(&self.symbols) {
            match symbol.program {
                Some(program) => of_program.push((symbol.addr, program, index)),
                None => of_none.entry((symbol.addr, symbol.len_bytes.into())).or_default().push(index),
            }
        }
        of_program.sort_unstable();
        for (info_index, info) in infos.iter().enumerate() {
            let program = owners[info_index];
            if self.known[program as usize].info.is_some_and(|first| first.at != info_index) {
                continue;
            }
            let since =
                info.load_time_ns().and_then(|load_time_ns| states.boot_times.to_recording(load_time_ns)).unwrap_or(0);
            let types = info.btf_id().and_then(|id| btf.get(&id));
            for function in info.functions() {
                let name = function.type_id.and_then(|id| types?.func_name(id)).map(lossy);
                self.known[program as usize]
                    .functions
                    .push(ProgramFunction { name: name.unwrap_or_default(), addr: function.addr });
                let Some(range) = function.range() else { continue };
                let at = (program, function.index as u32);
                let mut announced = false;
                let own = (range.start, program);
                let first = of_program.partition_point(|(addr, of, _)| (*addr, *of) < own);
                for (.., index) in of_program[first..].iter().take_while(|(addr, of, _)| (*addr, *of) == own) {
                    symbol_functions[*index as usize] = Some(at);
                    announced = true;
                }
                // A symbol without a BPF_EVENT belongs to the first program with the same code.
                for index in of_none.remove(&(range.start, range.end - range.start)).unwrap_or_default() {
                    self.symbols[index as usize].program = Some(program);
                    symbol_functions[index as usize] = Some(at);
                    announced = true;
                }
                if !announced {
                    let code = Code::Function { program, function: at.1 };
                    let to_ns = self.known[program as usize].unloaded_ns.unwrap_or(u64::MAX);
                    ranges.push(Range {
                        start: range.start,
                        end: range.end,
                        from_ns: since.min(to_ns),
                        to_ns,
                        code,
                        announced: false,
                    });
                }
            }
        }
        self.place_symbols(&symbol_functions, &mut ranges);
        let announced = self.set_announced_apart(&mut ranges, states);
        self.name_functions(infos);
        self.sort(&mut ranges);
        ranges.extend(interpreter_ranges(self.interpreters));
        ranges.extend(self.out_of_line);
        let keyed = |(at, program): (usize, &IndexedProgram)| Some((program.key()?, at as u32));
        let mut by_key = FxHashMap::with_capacity_and_hasher(self.known.len(), FxBuildHasher);
        by_key.extend(self.known.iter().enumerate().filter_map(keyed));
        let source_files = infos.iter().map(|info| source_file(info, btf.get(&info.btf_id()?)?)).collect();
        let mut programs =
            Programs { list: self.known, announced, by_key, ranges, source_files, ..Programs::default() };
        programs.place_images(self.images, infos);
        programs
    }

    /// Moves programs that are known only from a BPF_EVENT out of the list. There may be many, and an entry of the list takes far more memory.
    fn set_announced_apart(&mut self, ranges: &mut [Range], states: &States) -> Vec<Announced> {
        let mut announced = Vec::new();
        let mut numbers = Vec::with_capacity(self.known.len());
        let mut kept = 0;
        self.known.retain(|known| {
            numbers.push(kept);
            let is_known = known.info.is_some()
                || known.interpreted
                || !known.functions.is_empty()
                || !states.attachments_of(known.id).is_empty();
            match known.id.filter(|_| !is_known) {
                Some(id) => {
                    let IndexedProgram { tag, loaded_ns, loader, .. } = *known;
                    announced.push(Announced { id, tag, loaded_ns, loader_pid: loader.map(|(pid, _)| pid) });
                    false
                }
                None => {
                    kept += 1;
                    true
                }
            }
        });
        self.known.shrink_to_fit();
        renumber(ranges, &numbers);
        announced
    }

    /// Numbers programs by id and load time, programs without an id last. A program's number is its position in every report.
    fn sort(&mut self, ranges: &mut [Range]) {
        let mut order: Vec<u32> = (0..self.known.len() as u32).collect();
        let key = |number: u32| {
            let known = &self.known[number as usize];
            let load_time_ns = known.info.map(|info| info.load_time_ns);
            (known.id.is_none(), known.id, load_time_ns, known.loaded_ns, known.name(), number)
        };
        order.sort_unstable_by(|a, b| key(*a).cmp(&key(*b)));
        let mut numbers = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(before, number)| numbers[*before as usize] = number);
        self.known = order.iter().map(|before| std::mem::take(&mut self.known[*before as usize])).collect();
        renumber(ranges, &numbers);
    }

    /// Returns, for each info, its program. A repeated info has the program of the earlier info. Any other info gets a program that has the info's id
    /// and no info yet, preferably a program with the same code address, or else a new program.
    fn match_infos(&mut self, infos: &[ProgInfo<'_>]) -> Vec<u32> {
        let id_of = |program: u32| self.known[program as usize].id.unwrap_or(0);
        let mut by_id = FreePrograms::new((0..self.known.len() as u32).map(|program| (id_of(program), program)));
        let bound = self.symbols.iter().filter_map(|symbol| Some((symbol.program?, symbol.addr)));
        let mut by_code = FreePrograms::new(bound.map(|(program, addr)| ((id_of(program), addr), program)));
        let mut owners = Vec::with_capacity(infos.len());
        // Each file repeats the infos of its programs.
        let mut by_key: FxHashMap<(u32, u64), u32> = FxHashMap::with_capacity_and_hasher(infos.len(), FxBuildHasher);
        for (index, info) in infos.iter().enumerate() {
            let id = info.id().unwrap_or(0);
            let key = info.load_time_ns().filter(|load_time_ns| *load_time_ns > 0).map(|loaded| (id, loaded));
            if let Some(program) = key.and_then(|key| by_key.get(&key)) {
                owners.push(*program);
                continue;
            }
            let is_free = |program: u32| self.known[program as usize].info.is_none();
            let addrs = info.functions().filter_map(|function| function.addr);
            let same_code = addrs.filter_map(|addr| by_code.first((id, addr), is_free)).min();
            let program = match same_code.or_else(|| by_id.first(id, is_free)) {
                Some(program) => program,
                None => {
                    self.known.push(IndexedProgram { id: Some(id), ..IndexedProgram::default() });
                    self.known.len() as u32 - 1
                }
            };
            let known = &mut self.known[program as usize];
            known.info = Some(ProgInfoSummary {
                at: index,
                prog_type: info.prog_type(),
                load_time_ns: info.load_time_ns().unwrap_or(0),
                uid: info.created_by_uid(),
                jited_bytes: info.jited_prog_len(),
                verified_insns: info.verified_insns(),
            });
            known.tag = info.tag().map(|tag| tag.0).or(known.tag);
            known.map_ids = info.map_ids().into_iter().flat_map(|ids| ids.iter()).collect();
            key.map(|key| by_key.insert(key, program));
            owners.push(program);
        }
        owners
    }

    /// Assigns each symbol to a function: an existing function, a new function of the symbol's program, or a function of a new program.
    fn place_symbols(&mut self, functions: &[Option<(u32, u32)>], ranges: &mut Vec<Range>) {
        // Functions by program and address, for programs that get new functions.
        let mut places: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        let mut placed: FxHashSet<u32> = FxHashSet::default();
        for (index, symbol) in self.symbols.iter().enumerate() {
            let (program, function) = match functions[index] {
                Some((program, function)) => {
                    let known = &mut self.known[program as usize].functions[function as usize];
                    if known.name.is_empty() {
                        known.name = symbol_name(&symbol.name).1;
                    }
                    (program, function)
                }
                None => {
                    let (tag, name) = symbol_name(&symbol.name);
                    let program = symbol.program.unwrap_or_else(|| {
                        let known = IndexedProgram {
                            tag,
                            loaded_ns: (symbol.from_ns > 0).then_some(symbol.from_ns),
                            unloaded_ns: (symbol.to_ns < u64::MAX).then_some(symbol.to_ns),
                            ..IndexedProgram::default()
                        };
                        self.known.push(known);
                        self.known.len() as u32 - 1
                    });
                    let known = &mut self.known[program as usize].functions;
                    if placed.insert(program) {
                        for (at, addr) in (0..).zip(&*known).filter_map(|(at, function)| Some((at, function.addr?))) {
                            places.entry((program, addr)).or_insert(at);
                        }
                    }
                    let at = *places.entry((program, symbol.addr)).or_insert_with(|| {
                        // Reserves space for exactly one function, as most programs have one.
                        known.reserve_exact(usize::from(known.is_empty()));
                        known.push(ProgramFunction { name, addr: Some(symbol.addr) });
                        known.len() as u32 - 1
                    });
                    (program, at)
                }
            };
            ranges.push(Range {
                start: symbol.addr,
                end: symbol.addr.saturating_add(symbol.len_bytes.into()),
                from_ns: symbol.from_ns,
                to_ns: symbol.to_ns,
                code: Code::Function { program, function },
                announced: true,
            });
        }
    }

    /// Names functions without a name. The entry function gets the program's name, which the kernel cuts to 15 characters. Any other function gets
    /// `func#N`.
    fn name_functions(&mut self, infos: &[ProgInfo<'_>]) {
        for known in &mut self.known {
            let info_name =
                known.info.and_then(|info| infos[info.at].name()).map(lossy).filter(|name| !name.is_empty());
            for (index, function) in known.functions.iter_mut().enumerate() {
                // Without BTF, the kernel gives every function the name `F`.
                if function.name.is_empty() || (index > 0 && function.name == "F") {
                    function.name = match (index, &info_name) {
                        (0, Some(name)) => name.clone(),
                        (0, None) => String::new(),
                        _ => format!("func#{index}"),
                    };
                }
            }
            if known.functions.is_empty() {
                known.functions = vec![ProgramFunction { name: info_name.unwrap_or_default(), addr: None }];
            }
        }
    }
}

impl Programs {
    /// Returns the program with an id and load time.
    pub(crate) fn by_key(&self, id: u32, load_time_ns: u64) -> Option<&IndexedProgram> {
        self.list.get(*self.by_key.get(&(id, load_time_ns))? as usize)
    }

    /// Returns the base name of a program's source file, if it is known.
    pub(crate) fn source_file(&self, program: &IndexedProgram) -> Option<&str> {
        self.source_files.get(program.info?.at)?.as_deref()
    }

    fn place_images(&mut self, images: Vec<(CodeSymbol, Image)>, infos: &[ProgInfo<'_>]) {
        let info_of = |(program, known): (usize, &IndexedProgram)| Some((program as u32, infos.get(known.info?.at)?));
        self.attached = TrampolinePrograms::new(infos, self.list.iter().enumerate().filter_map(info_of));
        for (symbol, image) in images {
            self.ranges.push(Range {
                start: symbol.addr,
                end: symbol.addr.saturating_add(symbol.len_bytes.into()),
                from_ns: symbol.from_ns,
                to_ns: symbol.to_ns,
                code: Code::Image(self.images.len() as u32),
                announced: true,
            });
            self.images.push(image);
        }
    }
}

/// Replaces program numbers in ranges; `numbers` has the new number of each old number.
fn renumber(ranges: &mut [Range], numbers: &[u32]) {
    for range in ranges {
        if let Code::Function { program, .. } = &mut range.code {
            *program = numbers[*program as usize];
        }
    }
}

#[cfg(test)]
mod tests;
