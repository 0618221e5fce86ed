//! Seccomp filters with the system calls that a reader, a command that reads recordings, may make.
//!
//! A filter lists the allowed calls. All other calls fail with EPERM, also those that newer kernels add; the caller can handle this error. A call by
//! the numbers of another instruction set (`int 0x80`) ends the process.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, Le, MaskedEq};
use seccompiler::{
    BpfProgram, Result, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

use super::Needs;

/// Allows the calls of every reader and those in `needs`. Calls that an earlier filter refuses stay refused.
pub(super) fn allow_only(needs: Needs) -> Result<()> {
    // `clone3` must fail with ENOSYS, not EPERM. If several filters refuse a call, the newest filter chooses the error. Therefore this separate
    // filter refuses `clone3`, and the newer filter below allows it.
    if needs.confining {
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        apply(clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    }
    apply(Allowed::of(needs)?.0, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// Installs a filter with the action `listed` for the calls in `calls`, and the action `otherwise` for all other calls.
fn apply(calls: BTreeMap<i64, Vec<SeccompRule>>, otherwise: SeccompAction, listed: SeccompAction) -> Result<()> {
    let filter: BpfProgram =
        SeccompFilter::new(calls, otherwise, listed, std::env::consts::ARCH.try_into()?)?.try_into()?;
    apply_filter_all_threads(&filter)
}

/// Calls of every reader, with any arguments: on open descriptors, its own memory, threads, signals and time.
const ALWAYS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ppoll,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    // Allowed here; the separate filter in `allow_only` refuses it with ENOSYS, and the C library then calls `clone`. The flags of `clone3` are in
    // memory, where a filter cannot see them.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    // The kernel makes this call when a stopped process continues to wait.
    libc::SYS_restart_syscall,
    // Waits for the pager.
    libc::SYS_wait4,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

const CONFINING: &[c_long] = &[
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
    libc::SYS_capset,
];

/// Calls with a path. `unlink` removes temporary files on file systems without unnamed files.
const FILES: &[c_long] = &[
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
];

const SCREEN: &[c_long] = &[libc::SYS_epoll_pwait];

/// Syncing and naming an output, renaming the file that it replaces, and checking the owner of that file.
const OUTPUT: &[c_long] = &[libc::SYS_fsync, libc::SYS_linkat, libc::SYS_renameat2, libc::SYS_geteuid];
#[cfg(not(target_arch = "riscv64"))]
const OUTPUT_OLD: &[c_long] = &[libc::SYS_renameat];
#[cfg(target_arch = "riscv64")]
const OUTPUT_OLD: &[c_long] = &[];

const DIRECTORIES: &[c_long] = &[libc::SYS_mkdirat, libc::SYS_symlinkat];

const IN_PLACE: &[c_long] = &[libc::SYS_flock, libc::SYS_ftruncate, libc::SYS_pwrite64];

/// Older calls with the same effects, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
mod old {
    use libc::c_long;

    pub(super) const ALWAYS: &[c_long] = &[libc::SYS_poll];
    pub(super) const FILES: &[c_long] = &[libc::SYS_stat, libc::SYS_lstat, libc::SYS_readlink, libc::SYS_unlink];
    pub(super) const SCREEN: &[c_long] = &[libc::SYS_epoll_wait];
    pub(super) const OUTPUT: &[c_long] = &[libc::SYS_link, libc::SYS_rename];
    pub(super) const DIRECTORIES: &[c_long] = &[libc::SYS_mkdir, libc::SYS_symlink];
    pub(super) const OPEN: Option<c_long> = Some(libc::SYS_open);
}
#[cfg(not(target_arch = "x86_64"))]
mod old {
    use libc::c_long;

    pub(super) const ALWAYS: &[c_long] = &[];
    pub(super) const FILES: &[c_long] = &[];
    pub(super) const SCREEN: &[c_long] = &[];
    pub(super) const OUTPUT: &[c_long] = &[];
    pub(super) const DIRECTORIES: &[c_long] = &[];
    pub(super) const OPEN: Option<c_long> = None;
}

/// Flags with which C libraries start a thread; some libraries add a flag that the kernel ignores.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;
/// Highest of the old advice values of `madvise`, all of which affect only the calling process. `MADV_HWPOISON` is above.
const LAST_OLD_ADVICE: i32 = libc::MADV_DONTNEED;
/// Advice values of `madvise` for guard pages of thread stacks (since Linux 6.13): `MADV_GUARD_INSTALL`, `MADV_GUARD_REMOVE`.
const GUARDS: [i32; 2] = [102, 103];
const FUTEX_OPERATIONS: [i32; 5] =
    [libc::FUTEX_WAIT, libc::FUTEX_WAKE, libc::FUTEX_REQUEUE, libc::FUTEX_WAIT_BITSET, libc::FUTEX_WAKE_BITSET];
/// Bit of `O_TMPFILE` (a file without a name); the constant also contains `O_DIRECTORY`.
const WITHOUT_NAME: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// Mode bits that a new file may have: neither executable nor set-user-ID.
const MODE: i32 = 0o666;
/// Mode of a temporary file.
const OWNER_ONLY: i32 = 0o600;

/// Condition on an argument: index of the argument, comparison, value. Only the lower 32 bits are compared; the kernel uses no others.
type Condition = (u8, SeccompCmpOp, i32);

/// Allowed system calls with their rules. A call with rules is allowed only if one of them matches; a call without rules is always allowed.
#[derive(Default)]
struct Allowed(BTreeMap<i64, Vec<SeccompRule>>);

impl Allowed {
    fn of(needs: Needs) -> Result<Allowed> {
        let mut allowed = Allowed::default();
        allowed.whatever(&[ALWAYS, old::ALWAYS]);
        // Readers map no executable memory.
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            allowed.when(call, &[(2, within(libc::PROT_EXEC), 0)])?;
        }
        allowed.when(libc::SYS_madvise, &[(2, Le, LAST_OLD_ADVICE)])?;
        allowed.when_one_of(libc::SYS_madvise, 2, &GUARDS)?;
        for operation in FUTEX_OPERATIONS {
            let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
            allowed.when(libc::SYS_futex, &[(1, within(!flags), operation)])?;
        }
        allowed.when(libc::SYS_clone, &[(0, within(!libc::CLONE_DETACHED), THREAD)])?;
        allowed.when_one_of(libc::SYS_prctl, 0, &[libc::PR_SET_NAME])?;
        allowed.when_one_of(libc::SYS_fcntl, 1, &[libc::F_GETFD, libc::F_DUPFD_CLOEXEC])?;
        let asking = [libc::TCGETS as i32, libc::TCGETS2 as i32, libc::TIOCGWINSZ as i32];
        allowed.when_one_of(libc::SYS_ioctl, 1, &asking)?;
        // Allows the process to signal itself: abort() raises SIGABRT, and the SIGBUS handler raises SIGBUS again if the fault was not in a
        // mapped input.
        for signal in [libc::SIGABRT, libc::SIGBUS] {
            let own = std::process::id().cast_signed();
            allowed.when(libc::SYS_tgkill, &[(0, Eq, own), (2, Eq, signal)])?;
        }
        if needs.confining {
            allowed.whatever(&[CONFINING]);
            allowed.when_one_of(libc::SYS_prctl, 0, &[libc::PR_SET_NO_NEW_PRIVS])?;
        }
        if needs.files {
            allowed.whatever(&[FILES, old::FILES]);
            allowed.when_one_of(libc::SYS_fchmod, 1, &[OWNER_ONLY])?;
            let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | WITHOUT_NAME;
            allowed.open(within(writing), libc::O_RDONLY, None)?;
            allowed.open(within(libc::O_CREAT | libc::O_TRUNC | WITHOUT_NAME), WITHOUT_NAME, Some(MODE))?;
            allowed.open(within(libc::O_CREAT | libc::O_EXCL), libc::O_CREAT | libc::O_EXCL, Some(MODE))?;
        }
        if needs.screen {
            allowed.whatever(&[SCREEN, old::SCREEN]);
            allowed.when_one_of(libc::SYS_ioctl, 1, &[libc::TCSETS as i32, libc::TCSETS2 as i32])?;
        }
        if needs.output {
            allowed.whatever(&[OUTPUT, OUTPUT_OLD, old::OUTPUT]);
        }
        if needs.directories {
            allowed.whatever(&[DIRECTORIES, old::DIRECTORIES]);
        }
        if needs.in_place {
            allowed.whatever(&[IN_PLACE]);
            allowed.open(within(libc::O_CREAT | libc::O_TRUNC | WITHOUT_NAME), 0, None)?;
        }
        Ok(allowed)
    }

    fn whatever(&mut self, calls: &[&[c_long]]) {
        self.0.extend(calls.iter().copied().flatten().map(|call| (*call, Vec::new())));
    }

    /// Adds a rule that allows a call if all conditions hold.
    fn when(&mut self, call: c_long, conditions: &[Condition]) -> Result<()> {
        let condition = |(argument, operator, value): &Condition| {
            SeccompCondition::new(*argument, Dword, operator.clone(), u64::from(value.cast_unsigned()))
        };
        let conditions: std::result::Result<Vec<_>, _> = conditions.iter().map(condition).collect();
        self.0.entry(call).or_default().push(SeccompRule::new(conditions?)?);
        Ok(())
    }

    fn when_one_of(&mut self, call: c_long, argument: u8, values: &[i32]) -> Result<()> {
        values.iter().try_for_each(|value| self.when(call, &[(argument, Eq, *value)]))
    }

    /// Allows opening files if the open flags equal `flags` in the bits that `compared` selects, and the mode has no bits outside of `mode`; `None`
    /// allows all modes.
    fn open(&mut self, compared: SeccompCmpOp, flags: i32, mode: Option<i32>) -> Result<()> {
        for (call, argument) in [Some((libc::SYS_openat, 2)), old::OPEN.map(|call| (call, 1))].into_iter().flatten() {
            let mode = mode.map(|mode| (argument + 1, within(!mode), 0));
            let conditions: Vec<_> = [(argument, compared.clone(), flags)].into_iter().chain(mode).collect();
            self.when(call, &conditions)?;
        }
        Ok(())
    }
}

/// Comparison of only these bits of an argument.
fn within(bits: i32) -> SeccompCmpOp {
    MaskedEq(u64::from(bits.cast_unsigned()))
}
