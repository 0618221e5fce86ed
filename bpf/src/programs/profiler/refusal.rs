//! Decides which programs are not traced, with the reason.

use std::collections::HashSet;

use bprec_format::bpf::btf::{Btf, Kind};
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfo;

use super::insn::{source_register, target_register};
use crate::error::Result;
use crate::inspect;
use crate::inspect::ProgSnapshot;
use crate::programs::names;

/// `BPF_JMP | BPF_CALL`
const CALL: u8 = 0x85;
/// Number of the helper `bpf_tail_call`. In the instructions that the kernel shows, a tail call is a call of this helper.
const TAIL_CALL: i32 = 12;
/// Oldest kernel on which programs of others are traced; older kernels are untested.
const OLDEST: (u32, u32) = (6, 1);

/// Facts about the machine that decide which programs can be traced without harm.
#[derive(Debug)]
pub struct Refusals {
    /// Ids of the programs in which an extension has replaced a function.
    extended: HashSet<u32>,
    /// True if the kernel's trampolines lose the tail call count, so that a chain of tail calls may never end.
    endless_tail_calls: bool,
}

impl Refusals {
    /// Lists the links and reads the kernel's version.
    ///
    /// # Errors
    /// Fails if links cannot be listed.
    pub fn look() -> Result<Refusals> {
        let release = bprec_host::kernel_release();
        Ok(Refusals { extended: inspect::extended()?, endless_tail_calls: !tail_calls_are_counted(&release) })
    }

    /// Lists the links again, to find new extensions.
    ///
    /// # Errors
    /// Fails if links cannot be listed.
    pub fn refresh(&mut self) -> Result<()> {
        self.extended = inspect::extended()?;
        Ok(())
    }

    /// Returns the reason why a program is not traced; `None` if it may be traced.
    pub fn reason(&self, program: &ProgSnapshot) -> Option<String> {
        let info = program.info.view();
        let id = info.id().unwrap_or(0);
        let btf = program.btf.as_deref().and_then(|btf| Btf::parse(btf).ok());
        let name = btf.as_ref().and_then(|btf| entry_name(&info, btf));
        let is_named = |is: fn(&str) -> bool| name.as_deref().is_some_and(is);
        let kind = info.prog_type();
        let is_of = |kinds: &[ProgType]| kind.is_some_and(|kind| kinds.contains(&kind));
        let reason = if is_named(|name| names::is_own(name.as_bytes())) {
            "it is a counting or sampling program of bprec (of this recorder or another one)"
        } else if is_of(&[ProgType::STRUCT_OPS]) {
            "it implements an operation of the kernel (struct_ops, for example a scheduler), and counting would slow this \
             operation down"
        } else if is_of(&[ProgType::PERF_EVENT]) {
            "it runs on perf events, in non-maskable interrupts, where bprec does not count"
        } else if self.extended.contains(&id) {
            "an extension program has replaced one of its functions: while bprec traces this function, no other extension \
             could replace it"
        } else if is_named(is_dispatcher) {
            "it is a dispatcher: while bprec traces it, no extension program could be attached to it"
        } else if btf.as_ref().is_some_and(|btf| has_place_for_extension(&info, btf)) {
            "one of its functions is an empty placeholder, as in a dispatcher: while bprec traces this function, no \
             extension program could replace it"
        } else if program.btf.is_none() || info.func_info().is_none_or(|functions| functions.is_empty()) {
            "it has no BTF, which is needed to find its functions"
        } else if info.jited_insns().is_some_and(<[u8]>::is_empty) {
            "the kernel interprets it, and only JIT-compiled programs can be traced"
        } else if self.endless_tail_calls && makes_tail_calls(&info) {
            "it makes tail calls, and this kernel's trampolines lose count of them (fixed in Linux 6.7 on x86-64, 6.12 elsewhere)"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }
}

/// Returns true if the program contains a tail call: its counts then include the programs that it tail-calls. Also returns true if the
/// kernel does not show the instructions.
pub fn makes_tail_calls(info: &ProgInfo<'_>) -> bool {
    info.xlated_insns().is_none_or(|insns| {
        insns.chunks_exact(8).any(|insn| {
            // With a nonzero source register, the instruction calls a BPF function or a kernel function instead of a helper.
            let number = i32::from_ne_bytes([insn[4], insn[5], insn[6], insn[7]]);
            insn[0] == CALL && source_register(insn[1]) == 0 && number == TAIL_CALL
        })
    })
}

/// Returns the full name of a program's first function.
fn entry_name(info: &ProgInfo<'_>, btf: &Btf<'_>) -> Option<String> {
    let type_id = info.functions().next()?.type_id?;
    Some(String::from_utf8_lossy(btf.type_by_id(type_id)?.name()?).into_owned())
}

/// Returns true for names of dispatchers, such as libxdp's: programs that exist to have their functions replaced.
fn is_dispatcher(name: &str) -> bool {
    name == "dispatcher" || name.ends_with("_dispatcher")
}

/// Returns true if a function other than the entry is global, takes one pointer and does nothing with it. Programs of any name have such
/// functions as placeholders for extensions.
fn has_place_for_extension(info: &ProgInfo<'_>, btf: &Btf<'_>) -> bool {
    let Some(insns) = info.xlated_insns() else { return false };
    let functions: Vec<_> = info.functions().collect();
    functions.iter().enumerate().skip(1).any(|(at, function)| {
        let end = functions.get(at + 1).map_or(Some(insns.len()), |next| Some(next.insn_off? as usize * 8));
        let body = function.insn_off.zip(end).and_then(|(start, end)| insns.get(start as usize * 8..end));
        body.is_some_and(does_nothing) && function.type_id.is_some_and(|id| is_global_of_one_pointer(btf, id))
    })
}

fn is_global_of_one_pointer(btf: &Btf<'_>, type_id: u32) -> bool {
    const GLOBAL: u32 = 1;
    let Some(function) = btf.type_by_id(type_id).filter(|it| it.kind() == Kind::FUNC && it.vlen() == GLOBAL) else {
        return false;
    };
    let Some(prototype) = function.target().and_then(|id| btf.resolve(id)) else { return false };
    let mut params = prototype.params().map(|param| btf.resolve(param.type_id).map(|it| it.kind()));
    params.next() == Some(Some(Kind::PTR)) && params.next().is_none()
}

/// Returns true if the instructions call no function, load no 64-bit constant or address, and access no memory other than their own stack.
fn does_nothing(insns: &[u8]) -> bool {
    // Instruction classes (`BPF_LD` and so on, the low three bits), and the frame pointer register.
    const LD: u8 = 0;
    const LDX: u8 = 1;
    const ST: u8 = 2;
    const STX: u8 = 3;
    const STACK: u8 = 10;
    insns.chunks_exact(8).all(|insn| {
        let source = source_register(insn[1]);
        let target = target_register(insn[1]);
        match insn[0] & 7 {
            LD => false,
            LDX => source == STACK,
            ST | STX => target == STACK,
            _ => insn[0] != CALL,
        }
    })
}

/// Returns true if the trampolines of the kernel `release` keep the tail call count, so that every chain of tail calls ends.
pub fn tail_calls_are_counted(release: &str) -> bool {
    bprec_host::version(release) >= if cfg!(target_arch = "x86_64") { (6, 7) } else { (6, 12) }
}

/// Returns the reason why no program is traced on this kernel; `None` if tracing was tested on it. Attaching to live programs can do harm,
/// so it is not tried out on a user's machine.
pub(super) fn kernel_reason() -> Option<&'static str> {
    let reason = "bprec traces programs only from Linux 6.1 on, because tracing was not tested on older kernels";
    (bprec_host::kernel_version() < OLDEST).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatchers_go_by_their_name() {
        assert!(is_dispatcher("xdp_dispatcher") && is_dispatcher("tc_dispatcher"));
        assert!(!is_dispatcher("dispatch_packets"));
    }

    #[test]
    fn what_does_nothing_is_told_by_its_instructions() {
        let body = |insns: &[[u8; 2]]| insns.iter().flat_map(|[code, regs]| [*code, *regs, 0, 0, 0, 0, 0, 0]).collect();
        // Register numbers of an instruction in the layout of this machine: target, source.
        let regs = |target: u8, source: u8| {
            if cfg!(target_endian = "little") { target | source << 4 } else { target << 4 | source }
        };
        // *(u32 *)(r10) = 0; if r1 == 0 …; r0 = *(u32 *)(r10); exit
        let stub: Vec<u8> = body(&[[0x62, regs(10, 0)], [0x15, regs(1, 0)], [0x61, regs(0, 10)], [0x95, 0]]);
        assert!(does_nothing(&stub));
        let reads_its_context: Vec<u8> = body(&[[0x61, regs(0, 1)], [0x95, 0]]);
        let calls: Vec<u8> = body(&[[CALL, 0], [0x95, 0]]);
        let loads_an_address: Vec<u8> = body(&[[0x18, 0], [0, 0], [0x95, 0]]);
        for busy in [reads_its_context, calls, loads_an_address] {
            assert!(!does_nothing(&busy));
        }
    }

    #[test]
    fn kernels_with_the_fault_are_told_by_their_release() {
        assert!(!tail_calls_are_counted("6.1.0-41-amd64"));
        assert!(tail_calls_are_counted("6.12.57+deb13-cloud-amd64"));
        assert!(tail_calls_are_counted("7.0.1"));
    }
}
