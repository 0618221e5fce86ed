//! The command: forked first and held back, so that events can be opened on it, then let go.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};

use crate::{Error, Result, sys};

/// The command's process.
#[derive(Debug)]
pub(crate) struct Workload {
    name: String,
    pid: i32,
    state: State,
}

#[derive(Debug)]
enum State {
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
    pub(crate) fn hold(command: &[OsString], stdout_is_taken: bool) -> Result<Workload> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::Other("no command to run".to_owned()));
        };
        let name = program.to_string_lossy().into_owned();
        let failed = |answer| Error::Command { command: name.clone(), answer };
        let (pid_in, pid_out) = sys::pipe().map_err(failed)?;
        let (wait, go) = sys::pipe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments);
        if stdout_is_taken {
            command.stdout(io::stderr());
        }
        sys::hold_before_exec(&mut command, pid_out, wait, go.as_fd());
        // Spawning returns once the exec has succeeded or failed, so it needs a thread to wait there.
        let spawning =
            thread::Builder::new().name("bprec-spawn".to_owned()).spawn(move || command.spawn()).map_err(failed)?;
        let mut pid = [0; 4];
        match File::from(pid_in).read_exact(&mut pid) {
            Ok(()) => {
                let pid = i32::from_ne_bytes(pid);
                Ok(Workload { name, pid, state: State::Held { go, spawning } })
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
        let State::Held { go, spawning } = std::mem::replace(&mut self.state, State::Ended(None)) else {
            return Ok(());
        };
        let failed = |answer| Error::Command { command: self.name.clone(), answer };
        File::from(go).write_all(&[1]).map_err(failed)?;
        let child = spawning.join().map_err(|_| failed(io::Error::other("the thread that starts it failed")))?;
        self.state = State::Running(child.map_err(failed)?);
        Ok(())
    }

    /// Passes a signal on that the terminal has not sent to it as well.
    pub(crate) fn signal(&self, asked: sys::Asked) {
        if let State::Running(child) = &self.state
            && !asked.by_kernel
        {
            sys::send(child.id().cast_signed(), asked.signal);
        }
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if let State::Running(child) = &mut self.state
            && let Ok(Some(status)) = child.try_wait()
        {
            self.state = State::Ended(Some(status));
        }
        match &self.state {
            State::Ended(status) => *status,
            _ => None,
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Ended(None)) {
            // Closing the pipe without a byte makes it give up.
            State::Held { go, spawning } => {
                drop(go);
                drop(spawning.join());
            }
            // The recording ends before the command: it is asked to end too, as perf does.
            State::Running(child) => sys::terminate(child.id().cast_signed()),
            State::Ended(_) => (),
        }
    }
}
