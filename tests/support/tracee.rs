//! Traces a program until it has installed its system call filters, and then tests which calls the filters allow. No tested call is executed: the
//! test installs a filter before the program installs its own, and this filter passes allowed calls to the tracer, which drops them. Calls that the
//! program's filters refuse never reach the tracer.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use libc::{c_int, c_long, user_regs_struct};

/// Last argument of tested calls. The program itself makes no call with this argument.
const MARK: u64 = 0x5eed_0bad_ca11_5eed;
/// Length of the instruction that makes a call.
const INSTRUCTION_BYTES: u64 = 2;

/// Answer of the program's filters to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// Refused with this error.
    Refused(i32),
}

/// The program, which is killed on drop.
pub(crate) struct Tracee {
    child: Child,
    process: c_int,
    registers: user_regs_struct,
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // The program may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Tracee {
    /// Starts a program and stops it at its first instruction.
    pub(crate) fn start(command: &mut Command) -> Tracee {
        let filter = filter();
        // SAFETY: the code between fork and exec makes only system calls, and allocates nothing.
        unsafe { command.pre_exec(move || be_traced(&filter)) };
        let child = command.spawn().unwrap();
        // SAFETY: zeros are valid registers.
        let tracee = Tracee { process: child.id().cast_signed(), child, registers: unsafe { std::mem::zeroed() } };
        assert_eq!(tracee.stop(), libc::SIGTRAP, "the first instruction");
        let options = libc::PTRACE_O_TRACESECCOMP | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        tracee.request(libc::PTRACE_SETOPTIONS, options as *mut libc::c_void);
        tracee
    }

    pub(crate) fn id(&self) -> u64 {
        u64::from(self.child.id())
    }

    /// Lets the program run until it has installed another filter.
    pub(crate) fn run_to_filter(&mut self) {
        let mut signal = 0;
        loop {
            self.resume(libc::PTRACE_CONT, signal);
            signal = match self.stop() {
                IN_FILTER => break,
                stop if stop >> 8 == 0 => stop,
                stop => panic!("stopped by {stop:#x}"),
            };
        }
        self.resume(libc::PTRACE_SYSCALL, 0);
        assert_eq!(self.stop(), libc::SIGTRAP | 0x80, "the end of the call");
        self.registers = self.read_registers();
        assert_eq!((self.registers.orig_rax, self.registers.rax), (libc::SYS_seccomp as u64, 0), "a filter");
    }

    /// Tests a call.
    pub(crate) fn verdict(&mut self, call: u64, arguments: [u64; 5]) -> Verdict {
        let [rdi, rsi, rdx, r10, r8] = arguments;
        let rip = self.registers.rip - INSTRUCTION_BYTES;
        let asked = user_regs_struct {
            rip,
            rax: call,
            // Prevents a restart of the interrupted call.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9: MARK,
            ..self.registers
        };
        self.write_registers(asked);
        self.resume(libc::PTRACE_SINGLESTEP, 0);
        let is_allowed = match self.stop() {
            libc::SIGTRAP => false,
            IN_FILTER => {
                let registers = self.read_registers();
                self.write_registers(user_regs_struct { orig_rax: u64::MAX, ..registers });
                self.resume(libc::PTRACE_SINGLESTEP, 0);
                assert_eq!(self.stop(), libc::SIGTRAP, "expected the end of call {call}, which was dropped");
                true
            }
            stop => panic!("stopped by {stop:#x} in call {call}"),
        };
        let registers = self.read_registers();
        assert_eq!(registers.rip, self.registers.rip, "behind call {call}");
        if is_allowed { Verdict::Allowed } else { Verdict::Refused((registers.rax as i64).wrapping_neg() as i32) }
    }

    fn resume(&self, how: libc::c_uint, signal: c_int) {
        self.request(how, signal as usize as *mut libc::c_void);
    }

    /// Waits until the program stops; returns the signal, with the kernel's event in the upper bits.
    fn stop(&self) -> c_int {
        let mut status = 0;
        // SAFETY: the kernel writes to a number that outlives the call.
        let stopped = unsafe { libc::waitpid(self.process, &raw mut status, libc::__WALL) };
        assert!(stopped == self.process && libc::WIFSTOPPED(status), "it ended: {status:#x}");
        status >> 8
    }

    fn read_registers(&self) -> user_regs_struct {
        // SAFETY: zeros are valid registers.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, (&raw mut registers).cast());
        registers
    }

    fn write_registers(&self, mut registers: user_regs_struct) {
        self.request(libc::PTRACE_SETREGS, (&raw mut registers).cast());
    }

    fn request(&self, request: libc::c_uint, data: *mut libc::c_void) {
        // SAFETY: the process is a stopped child; `data` is a number or points to data that outlives the call.
        let result = unsafe { libc::ptrace(request, self.process, std::ptr::null_mut::<libc::c_void>(), data) };
        assert!(result >= 0, "ptrace {request}: {}", io::Error::last_os_error());
    }
}

/// Stop signal of a program at a call that all of its filters allowed.
const IN_FILTER: c_int = libc::SIGTRAP | libc::PTRACE_EVENT_SECCOMP << 8;

/// Filter that passes tested calls, and calls that install filters, to the tracer.
fn filter() -> Vec<libc::sock_filter> {
    let instruction = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: usize| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32, 0, 0);
    let is = |value: u32, jt: u8, jf: u8| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, jt, jf);
    let give = |action: u32| instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0);
    let last_argument = std::mem::offset_of!(libc::seccomp_data, args) + 5 * size_of::<u64>();
    vec![
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
        is(libc::SYS_seccomp as u32, 4, 0),
        load(last_argument),
        is(MARK as u32, 0, 3),
        load(last_argument + 4),
        is((MARK >> 32) as u32, 0, 1),
        give(libc::SECCOMP_RET_TRACE),
        give(libc::SECCOMP_RET_ALLOW),
    ]
}

/// Lets the parent trace this process, and installs the filter.
fn be_traced(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the filter and its instructions outlive the calls; the other system calls take only numbers.
    let failed = unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) < 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER as c_long, 0, &raw const program) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Both ends of a terminal.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the kernel writes two descriptors, which only this process owns.
    unsafe {
        assert_eq!(libc::openpty(&raw mut ours, &raw mut theirs, none, none.cast(), none.cast()), 0, "a terminal");
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}
