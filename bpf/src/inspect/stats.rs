//! Run statistics: the switch, and the numbers.

use std::fs;
use std::os::fd::OwnedFd;

use crate::error::Result;
use crate::inspect::programs::Program;
use crate::sys;

/// Runs of a program and their time since it was loaded, counted only while statistics were on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunStats {
    /// Time spent in the program, helpers included.
    pub run_time_ns: u64,
    /// Completed runs.
    pub run_cnt: u64,
    /// Runs skipped because the program was already running on that CPU; None before Linux 5.12. Counted always.
    pub recursion_misses: Option<u64>,
}

impl Program {
    /// Its run statistics as of now: one system call, no allocation.
    ///
    /// # Errors
    /// Only if the kernel refuses the call, which it does not for a descriptor of a program.
    pub fn stats(&self) -> Result<RunStats> {
        let (info, known) = sys::prog_summary(self.fd(), self.id())?;
        Ok(RunStats {
            run_time_ns: info.run_time_ns,
            run_cnt: info.run_cnt,
            recursion_misses: sys::knows_misses(known).then_some(info.recursion_misses),
        })
    }
}

/// Keeps the kernel's run statistics on for as long as it lives, beside whatever others ask for.
///
/// It is a file descriptor, so that they go off again however this process ends.
#[derive(Debug)]
pub struct StatsGuard {
    _fd: OwnedFd,
}

impl StatsGuard {
    /// Switches run statistics on.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; EINVAL before Linux 5.8.
    pub fn enable() -> Result<StatsGuard> {
        sys::enable_run_time_stats().map(|fd| StatsGuard { _fd: fd })
    }
}

/// True if the sysctl `kernel.bpf_stats_enabled` is on; None when this kernel does not say.
///
/// It does not tell of statistics that somebody else's descriptor keeps on.
pub fn stats_sysctl() -> Option<bool> {
    let text = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").ok()?;
    text.trim().parse::<u32>().ok().map(|value| value != 0)
}
