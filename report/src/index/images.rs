//! Images: code that the kernel generates to run programs.

use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfo;
use rustc_hash::FxHashMap;

/// Generated code that runs programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) kind: ImageKind,
}

/// Kind of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageKind {
    /// Calls the programs attached to a function.
    Trampoline(TrampolineKey),
    /// Jumps to a program.
    Dispatcher,
    /// Enters a struct_ops program.
    StructOps,
}

/// Function that a trampoline instruments, from the number in the trampoline's name (`bpf_trampoline_compute_key` in the kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrampolineKey {
    /// A function of a program.
    Program {
        /// Id of the program.
        id: u32,
        /// Id of the function in the program's BTF.
        btf_id: u32,
    },
    /// A kernel function.
    Kernel {
        /// Id of the BTF of vmlinux or a module.
        btf_obj_id: u32,
        /// Id of the function in the BTF.
        btf_id: u32,
    },
}

impl TrampolineKey {
    const KERNEL: u64 = 0x8000_0000;

    fn new(key: u64) -> TrampolineKey {
        let (high, low) = ((key >> 32) as u32, (key & !TrampolineKey::KERNEL) as u32);
        if key & TrampolineKey::KERNEL == 0 {
            TrampolineKey::Program { id: high, btf_id: low }
        } else {
            TrampolineKey::Kernel { btf_obj_id: high, btf_id: low }
        }
    }
}

impl Image {
    /// Returns the image that a symbol names; `None` for a program's function.
    pub(super) fn of_symbol(name: &[u8]) -> Option<Image> {
        let kind = if let Some(key) = name.strip_prefix(b"bpf_trampoline_") {
            let key: u64 = std::str::from_utf8(key).ok()?.parse().ok()?;
            ImageKind::Trampoline(TrampolineKey::new(key))
        } else if name.starts_with(b"bpf_dispatcher_") {
            ImageKind::Dispatcher
        } else if name.starts_with(b"bpf__") {
            ImageKind::StructOps
        } else {
            return None;
        };
        Some(Image { name: String::from_utf8_lossy(name).into_owned(), kind })
    }
}

/// Programs that trampolines run, by target: the function that the trampoline instruments.
#[derive(Debug, Default)]
pub(crate) struct TrampolinePrograms {
    /// Programs by BTF object and type id of the target.
    programs: FxHashMap<(u32, u32), Vec<u32>>,
    /// Id of the BTF object of each program, by program id, from the first info with that id.
    btf_of: FxHashMap<u32, Option<u32>>,
}

impl TrampolinePrograms {
    /// Collects the functions to which programs are attached. `programs` has the number and the `bpf_prog_info` of each program with an info.
    pub(super) fn new<'i>(
        infos: &[ProgInfo<'_>],
        programs: impl Iterator<Item = (u32, &'i ProgInfo<'i>)>,
    ) -> TrampolinePrograms {
        let mut attached = TrampolinePrograms::default();
        for info in infos {
            if let Some(id) = info.id() {
                attached.btf_of.entry(id).or_insert_with(|| info.btf_id());
            }
        }
        for (program, info) in programs {
            // An extension replaces a function: no trampoline runs it.
            if info.prog_type() != Some(ProgType::EXT)
                && let Some(target) = info.attach_btf_obj_id().zip(info.attach_btf_id())
            {
                attached.programs.entry(target).or_default().push(program);
            }
        }
        attached
    }

    /// Makes the table from targets with their programs, and BTF objects by program id.
    #[cfg(test)]
    pub(crate) fn of(programs: &[((u32, u32), &[u32])], btf_of: &[(u32, u32)]) -> TrampolinePrograms {
        TrampolinePrograms {
            programs: programs.iter().map(|(target, programs)| (*target, programs.to_vec())).collect(),
            btf_of: btf_of.iter().map(|(id, btf_id)| (*id, Some(*btf_id))).collect(),
        }
    }

    /// Returns the BTF object and type id of the function that a trampoline instruments.
    pub(super) fn target(&self, key: TrampolineKey) -> Option<(u32, u32)> {
        match key {
            TrampolineKey::Kernel { btf_obj_id, btf_id } => Some((btf_obj_id, btf_id)),
            TrampolineKey::Program { id, btf_id } => {
                self.btf_of.get(&id).copied().flatten().filter(|id| *id != 0).map(|btf_obj_id| (btf_obj_id, btf_id))
            }
        }
    }

    /// Returns the programs attached to a target.
    pub(super) fn to(&self, target: Option<(u32, u32)>) -> &[u32] {
        target.and_then(|target| self.programs.get(&target)).map_or(&[], Vec::as_slice)
    }
}

/// Limit on the length of a symbol's name, bytes: the names of all functions are copied into every report. The kernel's limit is the
/// same: `KSYM_NAME_LEN` (512) with the NUL.
const LONGEST_SYMBOL: usize = 511;

/// Splits `bpf_prog_<tag>_<name>` into tag and name. Any other symbol is returned as a name without a tag.
pub(super) fn symbol_name(symbol: &[u8]) -> (Option<[u8; 8]>, String) {
    let symbol = symbol.get(..LONGEST_SYMBOL).unwrap_or(symbol);
    let split = || {
        let rest = symbol.strip_prefix(b"bpf_prog_")?;
        let (tag, name) = rest.split_at_checked(16)?;
        let tag = u64::from_str_radix(std::str::from_utf8(tag).ok()?, 16).ok()?;
        let name = if name.is_empty() { name } else { name.strip_prefix(b"_")? };
        Some((Tag(tag.to_be_bytes()).0, lossy(name)))
    };
    match split() {
        Some((tag, name)) => (Some(tag), name),
        None => (None, lossy(symbol)),
    }
}

pub(super) fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
