//! Targets of tracing programs (functions of the kernel, its modules and other programs), named through BTF.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use bprec_format::Secret;
use bprec_format::bpf::btf::Btf;
use bprec_format::bprec::state::AttachTarget;

use crate::inspect::btf::BtfCache;
use crate::inspect::programs::Program;
use crate::sys::{self, Kind};

/// Function that a tracing link traces, by its BTF ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TracedFunction {
    /// A type of the BTF of the kernel or a module: (BTF id, type id).
    Kernel(u32, u32),
    /// A type of the BTF of a program: (program id, type id).
    Program(u32, u32),
}

impl TracedFunction {
    /// Function that a tracing link of program `prog_id` traces; `None` if the kernel does not show the target. The link shows `object_id`, the upper
    /// half of the trampoline key: the id of a BTF blob (for a function of the kernel or a module) or the id of a program. If it is the id of a BTF
    /// blob, the info of program `prog_id` has the same id in `attach_btf_obj_id`.
    pub(crate) fn of_link(prog_id: u32, is_extension: bool, object_id: u32, type_id: u32) -> Option<TracedFunction> {
        if object_id == 0 {
            return None;
        }
        if is_extension {
            return Some(TracedFunction::Program(object_id, type_id));
        }
        let tracer = Program::take(prog_id).ok()?;
        let (info, known) = sys::prog_summary(tracer.fd(), prog_id).ok()?;
        if !sys::knows_target(known) {
            return None;
        }
        Some(if info.attach_btf_obj_id == object_id {
            TracedFunction::Kernel(object_id, type_id)
        } else {
            TracedFunction::Program(object_id, type_id)
        })
    }
}

/// Names of targets; targets without a name are left out. Examples: `tcp_sendmsg`, `tcp_sendmsg [mod]`, `main_func of program 12`.
pub(crate) fn names(targets: &[TracedFunction], btfs: &BtfCache) -> HashMap<TracedFunction, AttachTarget> {
    let mut by_object: HashMap<(bool, u32), Vec<TracedFunction>> = HashMap::new();
    for target in targets {
        let object = match *target {
            TracedFunction::Kernel(id, _) => (true, id),
            TracedFunction::Program(id, _) => (false, id),
        };
        by_object.entry(object).or_default().push(*target);
    }
    let mut vmlinux = None;
    let mut named = HashMap::new();
    for ((is_kernel, id), targets) in by_object {
        let Some((blob, suffix)) = (if is_kernel { kernel_btf(id, &mut vmlinux) } else { program_btf(id, btfs) })
        else {
            continue;
        };
        let Ok(btf) = Btf::parse(&blob) else { continue };
        for target in targets {
            let (TracedFunction::Kernel(_, type_id) | TracedFunction::Program(_, type_id)) = target;
            if let Some(name) = btf.type_by_id(type_id).and_then(|t| t.name()) {
                let kind = if is_kernel { Secret::Symbol } else { Secret::Program };
                named.insert(target, AttachTarget::default().name(kind, name).words(&suffix));
            }
        }
    }
    named
}

fn program_btf(id: u32, btfs: &BtfCache) -> Option<(Arc<[u8]>, String)> {
    let program = Program::take(id).ok()?;
    let (info, _) = sys::prog_summary(program.fd(), id).ok()?;
    Some((btfs.get(info.btf_id).ok()?, format!(" of program {id}")))
}

/// BTF of the kernel or of a module, and the suffix for names in it. For a module: the BTF of the kernel followed by that of the module, see
/// [`join`].
fn kernel_btf(id: u32, vmlinux: &mut Option<Arc<[u8]>>) -> Option<(Arc<[u8]>, String)> {
    let fd = sys::fd_by_id(Kind::Btf, id).ok()?;
    let about = sys::btf_info(fd.as_fd(), id, true).ok()?;
    if !about.is_kernel {
        return None;
    }
    let blob: Arc<[u8]> = about.blob.into();
    if about.name == b"vmlinux" {
        *vmlinux = Some(Arc::clone(&blob));
        return Some((blob, String::new()));
    }
    let base = match vmlinux {
        Some(base) => Arc::clone(base),
        None => Arc::clone(vmlinux.insert(std::fs::read("/sys/kernel/btf/vmlinux").ok()?.into())),
    };
    Some((join(&base, &blob)?.into(), format!(" [{}]", String::from_utf8_lossy(&about.name))))
}

/// Appends a split BTF to its base. Type ids and string offsets of the split BTF continue those of the base, so the joined BTF has the types of both
/// in sequence, then the strings of both.
fn join(base: &[u8], split: &[u8]) -> Option<Vec<u8>> {
    const HEADER_BYTES: usize = 24;
    // Ranges of the types and of the strings in a blob. Offsets in the header count from the end of the header.
    let sections = |blob: &[u8]| {
        let header_bytes = sys::get_u32(blob, 4) as usize;
        let section = |at: usize| {
            let start = header_bytes.checked_add(sys::get_u32(blob, at) as usize)?;
            Some(start..start.checked_add(sys::get_u32(blob, at + 4) as usize)?)
        };
        Some((section(8)?, section(16)?))
    };
    let (base_types, base_strings) = sections(base)?;
    let (split_types, split_strings) = sections(split)?;
    let types = [base.get(base_types)?, split.get(split_types)?].concat();
    let strings = [base.get(base_strings)?, split.get(split_strings)?].concat();
    let mut joined = base.get(..4)?.to_vec();
    let lengths = [HEADER_BYTES, 0, types.len(), types.len(), strings.len()];
    joined.extend(lengths.into_iter().flat_map(|length| (length as u32).to_ne_bytes()));
    joined.extend(types);
    joined.extend(strings);
    Some(joined)
}
