//! The process of the command: forked and held back until events are opened on it, then released to exec.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::liveness::is_readable;
use crate::sys::{self, Inherited};
use crate::{Error, Result};

/// Process of the command that is recorded or counted.
#[derive(Debug)]
pub(crate) struct Workload {
    name: String,
    pid: i32,
    /// Descriptor of the process (pidfd). Unlike the pid, the descriptor never refers to another process. `None`
    /// before Linux 5.3.
    pidfd: Option<OwnedFd>,
    state: WorkloadState,
}

#[derive(Debug)]
enum WorkloadState {
    /// The process is forked, and waits for a byte in the pipe before it calls exec.
    Held {
        go: OwnedFd,
        spawning: JoinHandle<io::Result<Child>>,
    },
    Running(Child),
    Ended(Option<ExitStatus>),
}

impl Workload {
    /// Forks the process of the command and holds it back. If the recording goes to standard output, the command writes
    /// to standard error instead.
    ///
    /// # Errors
    /// Fails if there is no command, or if a pipe, a thread or the process cannot be created.
    pub(crate) fn hold(command: &[OsString], stdout_is_taken: bool, inherited: Inherited) -> Result<Workload> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::Other("no command is given".to_owned()));
        };
        let name = program.to_string_lossy().into_owned();
        let failed = |answer| Error::Command { command: name.clone(), answer };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let (pid_in, pid_out) = pipe()?;
        let (wait, go) = pipe()?;
        let mut command = Command::new(program);
        command.args(arguments);
        if stdout_is_taken {
            command.stdout(io::stderr());
        }
        sys::hold_before_exec(&mut command, pid_out, wait, go.as_fd(), inherited);
        // `spawn` returns only when the exec has succeeded or failed, so a thread waits for `spawn`.
        let spawning = sys::spawn("bprec-spawn", move || command.spawn())?;
        let mut pid = [0; 4];
        match File::from(pid_in).read_exact(&mut pid) {
            Ok(()) => {
                let pid = i32::from_ne_bytes(pid);
                let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                Ok(Workload { name, pid, pidfd, state: WorkloadState::Held { go, spawning } })
            }
            Err(error) => {
                drop(go);
                let answer = spawning.join().ok().and_then(Result::err).unwrap_or(error);
                Err(Error::Command { command: name, answer })
            }
        }
    }

    /// Process id of the command.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Releases the command to exec.
    ///
    /// # Errors
    /// Fails if the command does not exist or cannot be executed.
    pub(crate) fn start(&mut self) -> Result<()> {
        let WorkloadState::Held { go, spawning } = std::mem::replace(&mut self.state, WorkloadState::Ended(None))
        else {
            return Ok(());
        };
        let failed = |answer| Error::Command { command: self.name.clone(), answer };
        File::from(go).write_all(&[1]).map_err(failed)?;
        let child = spawning
            .join()
            .map_err(|_| failed(io::Error::other("bprec's thread that starts the command ended with a panic")))?;
        self.state = WorkloadState::Running(child.map_err(failed)?);
        Ok(())
    }

    /// Process descriptor of the command, readable when the command has ended.
    pub(crate) fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    /// Passes a signal on to the command. A signal from the kernel (Ctrl-C in a terminal) is not passed on: the command
    /// has received it, too.
    pub(crate) fn signal(&mut self, asked: sys::Asked) {
        if !asked.by_kernel
            && let Some(signal) = Signal::from_named_raw(asked.signal)
        {
            self.send(signal);
        }
    }

    fn send(&mut self, signal: Signal) {
        let WorkloadState::Running(child) = &mut self.state else { return };
        match &self.pidfd {
            // A signal to a command that has ended has no effect.
            Some(pidfd) => {
                let _ = pidfd_send_signal(pidfd, signal);
            }
            None => {
                // `try_wait` returned `None`: the child is not reaped yet, so its pid is not reused.
                if let (Ok(None), Some(pid)) = (child.try_wait(), Pid::from_raw(self.pid)) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }

    /// Returns true if the command has ended, even if its exit status is lost.
    pub(crate) fn has_ended(&mut self) -> bool {
        if let WorkloadState::Running(child) = &mut self.state {
            match child.try_wait() {
                Ok(Some(status)) => self.state = WorkloadState::Ended(Some(status)),
                Ok(None) => (),
                // `try_wait` fails if other code of this process has reaped the child. The exit status is lost then.
                Err(_) if self.pidfd.as_ref().is_none_or(is_readable) => self.state = WorkloadState::Ended(None),
                Err(_) => (),
            }
        }
        matches!(self.state, WorkloadState::Ended(_))
    }

    /// Exit status of the command; `None` while the command runs, and if the status is lost.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.has_ended();
        match &self.state {
            WorkloadState::Ended(status) => *status,
            _ => None,
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // If the command still runs when the recording ends, the recorder asks it to end, too, as perf does.
        self.send(Signal::TERM);
        match std::mem::replace(&mut self.state, WorkloadState::Ended(None)) {
            // The held process gives up when the pipe is closed without a byte.
            WorkloadState::Held { go, spawning } => {
                drop(go);
                drop(spawning.join());
            }
            WorkloadState::Running(_) | WorkloadState::Ended(_) => (),
        }
    }
}
