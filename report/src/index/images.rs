//! Images: code that the kernel makes to run programs.

use bprec_format::bpf::prog_info::ProgInfo;
use rustc_hash::FxHashMap;

/// Code that exists to run programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) kind: ImageKind,
    /// The one program that it runs, when there is only one that it can be.
    pub(crate) program: Option<u32>,
}

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageKind {
    /// Calls what is attached to this function, by its BTF object (or program) and type.
    Trampoline(TrampolineKey),
    /// Jumps to a program.
    Dispatcher,
    /// Enters a struct_ops program.
    StructOps,
}

/// What a trampoline instruments: the number in its name (`bpf_trampoline_compute_key` in the kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrampolineKey {
    /// A function of a program.
    Program {
        /// The program.
        id: u32,
        /// The function in the program's BTF.
        btf_id: u32,
    },
    /// A kernel function.
    Kernel {
        /// BTF of vmlinux or a module.
        btf_obj_id: u32,
        /// The function in it.
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
    /// What a symbol's name says it is, if it is not a program's function.
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
        Some(Image { name: String::from_utf8_lossy(name).into_owned(), kind, program: None })
    }
}

/// What programs are attached to by trampolines, for lookup.
pub(super) struct Attached {
    /// By BTF object and type: the program, `None` if there are several.
    programs: FxHashMap<(u32, u32), Option<u32>>,
    /// By program id: the BTF object of the first info that has the id.
    btf_of: FxHashMap<u32, Option<u32>>,
}

impl Attached {
    /// `programs` are those that have an info, each with its number.
    pub(super) fn new<'i>(infos: &[ProgInfo<'_>], programs: impl Iterator<Item = (u32, &'i ProgInfo<'i>)>) -> Attached {
        let mut attached = Attached { programs: FxHashMap::default(), btf_of: FxHashMap::default() };
        for info in infos {
            if let Some(id) = info.id() {
                attached.btf_of.entry(id).or_insert_with(|| info.btf_id());
            }
        }
        for (program, info) in programs {
            if let Some(target) = info.attach_btf_obj_id().zip(info.attach_btf_id()) {
                let only = attached.programs.entry(target);
                only.and_modify(|only| *only = None).or_insert(Some(program));
            }
        }
        attached
    }

    /// The program that is attached to what a trampoline instruments, if it is one only.
    pub(super) fn only_one(&self, key: TrampolineKey) -> Option<u32> {
        let target = match key {
            TrampolineKey::Kernel { btf_obj_id, btf_id } => (btf_obj_id, btf_id),
            TrampolineKey::Program { id, btf_id } => (self.btf_of.get(&id)?.filter(|id| *id != 0)?, btf_id),
        };
        self.programs.get(&target).copied().flatten()
    }
}
