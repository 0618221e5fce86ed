//! The command: forked first and held back, so that events can be opened on it, then let go.

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

/// The command's process.
#[derive(Debug)]
pub(crate) struct Workload {
    name: String,
    pid: i32,
    /// Refers to this process and to no other that gets its number later; absent before Linux 5.3.
    pidfd: Option<OwnedFd>,
    state: WorkloadState,
}

#[derive(Debug)]
enum WorkloadState {
    /// Forked, waiting for a byte before it execs.
    Held {
        go: OwnedFd,
        spawning: JoinHandle<io::Result<Child>>,
    },
    Running(Child),
    Ended(Option<ExitStatus>),
}

impl Workload {
    /// Forks the command's process and holds it back. Where standard output is the recording's, the command's goes to
    /// standard error.
    ///
    /// # Errors
    /// When there is no room for another process.
    pub(crate) fn hold(command: &[OsString], stdout_is_taken: bool, inherited: Inherited) -> Result<Workload> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::Other("no command to run".to_owned()));
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
        // Spawning returns once the exec has succeeded or failed, so it needs a thread to wait there.
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

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it exec.
    ///
    /// # Errors
    /// When there is no such command, or it cannot be executed.
    pub(crate) fn start(&mut self) -> Result<()> {
        let WorkloadState::Held { go, spawning } = std::mem::replace(&mut self.state, WorkloadState::Ended(None))
        else {
            return Ok(());
        };
        let failed = |answer| Error::Command { command: self.name.clone(), answer };
        File::from(go).write_all(&[1]).map_err(failed)?;
        let child = spawning.join().map_err(|_| failed(io::Error::other("the thread that starts it failed")))?;
        self.state = WorkloadState::Running(child.map_err(failed)?);
        Ok(())
    }

    /// Readable when it has ended.
    pub(crate) fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    /// Passes a signal on that the terminal has not sent to it as well.
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
            // One that has ended is not to be told anything.
            Some(pidfd) => {
                let _ = pidfd_send_signal(pidfd, signal);
            }
            None => {
                // It was not waited for yet, so the number is still its own.
                if let (Ok(None), Some(pid)) = (child.try_wait(), Pid::from_raw(self.pid)) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }

    /// True if it has ended, be it that nobody can say how any more.
    pub(crate) fn has_ended(&mut self) -> bool {
        if let WorkloadState::Running(child) = &mut self.state {
            match child.try_wait() {
                Ok(Some(status)) => self.state = WorkloadState::Ended(Some(status)),
                Ok(None) => (),
                // Somebody else has waited for it.
                Err(_) if self.pidfd.as_ref().is_none_or(is_readable) => self.state = WorkloadState::Ended(None),
                Err(_) => (),
            }
        }
        matches!(self.state, WorkloadState::Ended(_))
    }

    /// Exit status of the command, once it has ended.
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
        // The recording ends before the command: it is asked to end too, as perf does.
        self.send(Signal::TERM);
        match std::mem::replace(&mut self.state, WorkloadState::Ended(None)) {
            // Closing the pipe without a byte makes it give up.
            WorkloadState::Held { go, spawning } => {
                drop(go);
                drop(spawning.join());
            }
            WorkloadState::Running(_) | WorkloadState::Ended(_) => (),
        }
    }
}
