//! Run statistics: the switch, and the counts of a program.

use std::fs;
use std::os::fd::OwnedFd;

use crate::error::Result;
use crate::inspect::programs::Program;
use crate::sys;

/// Count and total time of a program's runs since its load, counted only while run statistics were on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunStats {
    /// Time in the program, helpers included.
    pub run_time_ns: u64,
    /// Completed runs.
    pub run_cnt: u64,
    /// Runs that the kernel skipped because the program was already running on that CPU. Counted even while run statistics are off; `None` before
    /// Linux 5.12.
    pub recursion_misses: Option<u64>,
}

impl Program {
    /// Current run statistics: one system call, no allocation.
    ///
    /// # Errors
    /// Fails only if the kernel refuses the call. The kernel allows it for every descriptor of a program.
    pub fn stats(&self) -> Result<RunStats> {
        let (info, known) = sys::prog_summary(self.fd(), self.id())?;
        Ok(RunStats {
            run_time_ns: info.run_time_ns,
            run_cnt: info.run_cnt,
            recursion_misses: sys::knows_misses(known).then_some(info.recursion_misses),
        })
    }
}

/// Keeps run statistics on while it lives; other tools may keep them on, too.
///
/// The switch is a file descriptor, so the kernel switches the statistics off when this process ends in any way.
#[derive(Debug)]
pub struct StatsGuard {
    _fd: OwnedFd,
}

impl StatsGuard {
    /// Switches run statistics on.
    ///
    /// # Errors
    /// Fails with EPERM without CAP_SYS_ADMIN, with EINVAL before Linux 5.8.
    pub fn enable() -> Result<StatsGuard> {
        sys::enable_run_time_stats().map(|fd| StatsGuard { _fd: fd })
    }
}

/// Returns true if the sysctl `kernel.bpf_stats_enabled` is on; `None` if the sysctl cannot be read.
///
/// The sysctl does not show statistics that a descriptor of another tool keeps on.
pub fn stats_sysctl() -> Option<bool> {
    let text = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").ok()?;
    text.trim().parse::<u32>().ok().map(|value| value != 0)
}
