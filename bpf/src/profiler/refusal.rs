//! Programs around which no pair is put, and why.

use std::collections::HashSet;
use std::fs;

use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfo;

use crate::error::Result;
use crate::links;
use crate::prog::ProgSnapshot;

/// `BPF_JMP | BPF_CALL` of helper 12: a tail call, as the kernel shows it.
const CALL: u8 = 0x85;
const TAIL_CALL: i32 = 12;
/// The oldest kernel on which others' programs are traced.
const OLDEST: (u32, u32) = (6, 7);

/// What has to be known about the machine to tell which programs can be traced without harm.
#[derive(Debug)]
pub struct Refusals {
    /// Programs of which an extension has replaced a function.
    extended: HashSet<u32>,
    /// Trampolines lose count of tail calls, which then never end.
    endless_tail_calls: bool,
}

impl Refusals {
    /// Looks at the links there are, and at the kernel's version.
    ///
    /// # Errors
    /// When links cannot be listed.
    pub fn look() -> Result<Refusals> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Refusals { extended: links::extended()?, endless_tail_calls: !tail_calls_are_counted(&release) })
    }

    /// Looks at the links again.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn refresh(&mut self) -> Result<()> {
        self.extended = links::extended()?;
        Ok(())
    }

    /// Why this program is left alone, or None when it is not.
    pub fn reason(&self, program: &ProgSnapshot) -> Option<String> {
        let info = program.info.view();
        let id = info.id().unwrap_or(0);
        let name = entry_name(program);
        let reason = if info.prog_type() == Some(ProgType::EXT) {
            "it is an extension of another program"
        } else if self.extended.contains(&id) {
            "an extension has replaced a function of it, and none could be attached to it while it is traced"
        } else if name.as_deref().is_some_and(is_dispatcher) {
            "it is a dispatcher: no extension could be attached to it while it is traced"
        } else if program.btf.is_none() || info.func_info().is_none_or(|functions| functions.is_empty()) {
            "it has no BTF, by which its functions are found"
        } else if info.jited_insns().is_some_and(<[u8]>::is_empty) {
            "it is interpreted"
        } else if self.endless_tail_calls && makes_tail_calls(&info) {
            "it makes tail calls, and this kernel's trampolines lose count of them (fixed in Linux 6.7 on x86-64, 6.12 elsewhere)"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }
}

/// Whether the program may leave by a tail call: what that runs is then in its own counts. True when its instructions
/// are not shown.
pub fn makes_tail_calls(info: &ProgInfo<'_>) -> bool {
    info.xlated_insns().is_none_or(|insns| {
        insns.chunks_exact(8).any(|insn| {
            // A source register that is not zero calls something else.
            let number = i32::from_ne_bytes([insn[4], insn[5], insn[6], insn[7]]);
            insn[0] == CALL && super::source_register(insn[1]) == 0 && number == TAIL_CALL
        })
    })
}

/// The full name of a program's first function.
fn entry_name(program: &ProgSnapshot) -> Option<String> {
    let info = program.info.view();
    let type_id = info.functions().next()?.type_id?;
    let btf = Btf::parse(program.btf.as_deref()?).ok()?;
    Some(String::from_utf8_lossy(btf.type_by_id(type_id)?.name()?).into_owned())
}

/// Programs that exist to have their functions replaced, such as libxdp's, go by this name.
fn is_dispatcher(name: &str) -> bool {
    name == "dispatcher" || name.ends_with("_dispatcher")
}

fn tail_calls_are_counted(release: &str) -> bool {
    version(release) >= if cfg!(target_arch = "x86_64") { (6, 7) } else { (6, 12) }
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Why no program should be traced on this kernel, or None. A 6.1 kernel (emulated, once in some dozens of recordings) met
/// the breakpoint by which it changes a running program's first instruction, did not know it, and stopped.
pub(super) fn kernel_reason() -> Option<&'static str> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let reason = "before Linux 6.7 it is not safe to attach to programs while they run";
    (version(&release) < OLDEST).then_some(reason)
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
    fn kernels_with_the_fault_are_told_by_their_release() {
        assert!(!tail_calls_are_counted("6.1.0-41-amd64"));
        assert!(tail_calls_are_counted("6.12.57+deb13-cloud-amd64"));
        assert!(tail_calls_are_counted("7.0.1"));
    }
}
