//! Facts of the running machine: its identity, CPU lists, mounts, cgroups, pods, processes and their owners, namespaces, kernel symbols,
//! capabilities. Each fact is read in one place.
//!
//! This crate reads `/proc` and `/sys`. Beyond that, [`private_mount`] mounts a file system for this process alone, [`create_output`] opens files
//! after checking their owner, and `sandbox` (a feature) confines this process. Code for perf events and BPF belongs in the crates that build on this
//! crate.
#![forbid(unsafe_code)]

mod cgroups;
mod cpus;
pub mod elf;
mod errno;
mod error;
mod ids;
mod kallsyms;
mod mounts;
mod namespaces;
mod outputs;
mod pods;
mod privilege;
mod process;
#[cfg(feature = "sandbox")]
pub mod sandbox;

pub use cgroups::{Cgroup, CgroupError, Cgroups};
pub use cpus::{OfflineCpus, online_cpus, possible_cpus, present_cpus};
pub use errno::{Answer, ENOTSUPP, Errno};
pub use error::{Error, Result};
pub use ids::{boot_id, machine_id};
pub use kallsyms::{Kallsyms, KernelFunction, Symbol, SymbolReader};
pub use mounts::{mounts_of_type, private_mount};
pub use namespaces::{
    NetworkName, NetworkNamespace, NetworkNamespaces, is_initial_pid_namespace, is_initial_user_namespace,
};
pub use outputs::{
    create_output, directory_of, journal_of, refuse_planted, refuse_planted_target, rename_with_journal, sync_directory,
};
pub use pods::PodContainer;
pub use privilege::{Capability, hidden_addresses};
pub use process::{
    Process, Stat, comm, is_alive, process_ids, resident_bytes, start_ticks, thread_ids, with_descendants,
};

/// Value of a file under `/proc/sys`, such as `kernel/kptr_restrict`; `None` if the file cannot be read or is not a number.
pub fn sysctl_number(name: &str) -> Option<i64> {
    std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

/// Release of the kernel (`6.12.57+deb13-amd64`); empty if it cannot be read.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Major and minor version of the kernel, such as (6, 12); zeros if they cannot be read.
pub fn kernel_version() -> (u32, u32) {
    version(&kernel_release())
}

/// The first two numbers in a kernel release; zero for a number that is missing.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
