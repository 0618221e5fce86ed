//! Commands that another process sends while a recording is under way (`--control`), in the words of perf.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use super::liveness::is_readable;
use crate::options::{Control, ControlEnd};
use crate::{Error, Result, sys};

/// What perf answers when a command is carried out: with the zero that ends a string in C.
const ANSWER: &[u8] = b"ack\n\0";
/// A command is shorter than that.
const COMMAND_MAX_BYTES: usize = 1 << 12;

/// Where commands come from, and answers go to.
#[derive(Debug)]
pub(super) struct Remote {
    /// `None` when nobody can send any more.
    commands: Option<File>,
    answers: Option<File>,
    /// A command that is not there whole.
    pending: Vec<u8>,
}

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Begin to sample, or go on.
    Enable,
    /// Stop sampling for now.
    Disable,
    /// End the file, and go on in another one.
    Snapshot,
    /// End the recording.
    Stop,
    /// Answer.
    Ping,
    /// Say which events are recorded.
    Events,
    /// A command that perf has, and why it is not carried out here.
    Unsupported(String, &'static str),
    /// Nothing that is known here.
    Unknown(String),
}

impl Remote {
    /// Opens what `control` names.
    ///
    /// # Errors
    /// When a FIFO cannot be opened, or a descriptor is not open.
    pub(super) fn open(control: &Control) -> Result<Remote> {
        Ok(Remote {
            commands: Some(open(&control.commands)?),
            answers: control.answers.as_ref().map(open).transpose()?,
            pending: Vec::new(),
        })
    }

    /// Readable when there may be a command.
    pub(super) fn commands(&self) -> Option<&impl AsFd> {
        self.commands.as_ref()
    }

    /// Takes what has arrived.
    pub(super) fn take(&mut self) -> Vec<Command> {
        let mut buffer = [0; COMMAND_MAX_BYTES];
        while let Some(commands) = self.commands.as_mut().filter(|commands| is_readable(*commands)) {
            match commands.read(&mut buffer) {
                Ok(bytes @ 1..) => self.pending.extend_from_slice(&buffer[..bytes]),
                // Nobody is there any more; what they sent last may lack its end.
                Ok(0) | Err(_) => {
                    self.commands = None;
                    self.pending.push(b'\n');
                }
            }
            if self.pending.len() > COMMAND_MAX_BYTES {
                break;
            }
        }
        let Some(end) = self.pending.iter().rposition(|byte| *byte == b'\n') else {
            // Longer than any command: not to be kept.
            let overlong = self.pending.len() > COMMAND_MAX_BYTES;
            return if overlong { vec![parse(&std::mem::take(&mut self.pending))] } else { Vec::new() };
        };
        let rest = self.pending.split_off(end + 1);
        let lines = std::mem::replace(&mut self.pending, rest);
        // Some writers send the zero that ends a string in C.
        let texts = lines.split(|byte| [b'\n', 0].contains(byte)).map(<[u8]>::trim_ascii);
        texts.filter(|text| !text.is_empty()).map(parse).collect()
    }

    /// Says that a command was carried out; false when nobody takes the answer. It never waits.
    pub(super) fn answer(&mut self) -> bool {
        let Some(answers) = &mut self.answers else { return true };
        sys::is_writable(answers) && answers.write_all(ANSWER).is_ok()
    }
}

fn open(end: &ControlEnd) -> Result<File> {
    match end {
        // Open for both it needs no other end, and does not come to its own when that closes.
        ControlEnd::Fifo(path) => {
            let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
            let mut how = OpenOptions::new();
            how.read(true).write(true).custom_flags(nonblock).open(path).map_err(|error| Error::file(path, error))
        }
        ControlEnd::Descriptor(fd) => sys::duplicate(*fd).map(File::from).map_err(|answer| Error::Syscall {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            object: format!("--control fd:{fd}"),
            answer,
            remedy: "it must be open, and inherited".to_owned(),
        }),
    }
}

fn parse(text: &[u8]) -> Command {
    match text {
        b"enable" => Command::Enable,
        b"disable" => Command::Disable,
        b"snapshot" => Command::Snapshot,
        b"stop" => Command::Stop,
        b"ping" => Command::Ping,
        b"evlist" => Command::Events,
        other => {
            let text = String::from_utf8_lossy(other).escape_debug().take(100).collect();
            match other.split(u8::is_ascii_whitespace).next() {
                Some(b"enable" | b"disable") => Command::Unsupported(text, "all events are switched together"),
                Some(b"evlist") => Command::Unsupported(text, "evlist without options names the events"),
                _ => Command::Unknown(text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn commands_arrive_in_parts_and_without_an_end() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut write = File::from(write);
        let mut remote = Remote { commands: Some(read.into()), answers: None, pending: Vec::new() };
        assert!(remote.take().is_empty());
        write.write_all(b"enable\n\0disable\nsto").unwrap();
        assert_eq!(remote.take(), [Command::Enable, Command::Disable]);
        write.write_all(b"p\n\nenable cycles\nenablecycles\nsnapshot\0\nping").unwrap();
        let one_event = Command::Unsupported("enable cycles".to_owned(), "all events are switched together");
        let unknown = Command::Unknown("enablecycles".to_owned());
        assert_eq!(remote.take(), [Command::Stop, one_event, unknown, Command::Snapshot]);
        drop(write);
        assert_eq!(remote.take(), [Command::Ping]);
        assert!(remote.commands().is_none() && remote.take().is_empty());
    }

    #[test]
    fn what_is_no_command_is_not_kept() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut remote = Remote { commands: Some(read.into()), answers: None, pending: Vec::new() };
        File::from(write).write_all(&[b'x'; COMMAND_MAX_BYTES + 1]).unwrap();
        let commands = remote.take();
        assert!(matches!(&commands[..], [Command::Unknown(text)] if text.len() == 100), "{commands:?}");
        assert!(remote.pending.capacity() <= 2 * COMMAND_MAX_BYTES);
    }
}
