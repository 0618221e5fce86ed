//! Standard output, through a pager on a terminal. As in git, the pager starts before the sandbox, which forbids executing files; `less -F` exits at
//! once if the output fits on the screen.

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write};
use std::process::{Child, Command, Stdio};

use anyhow::Result;

use crate::args::OUTPUT;

#[derive(clap::Args)]
pub(crate) struct PagerArgs {
    /// Do not use a pager. By default, output to a terminal goes through $BPREC_PAGER, $PAGER or less.
    #[arg(long, help_heading = OUTPUT)]
    no_pager: bool,
}

impl PagerArgs {
    /// Opens standard output, with its pager. Must run before the sandbox, which forbids executing files.
    pub(crate) fn output(&self) -> Output {
        if self.no_pager { Output::without_pager() } else { Output::with_pager() }
    }
}

/// Options of less if $LESS is not set: exit if the output fits on the screen, show colors, keep the output on the screen.
const LESS_OPTIONS: &str = "FRX";
/// Characters that make a pager command a shell command: the same as in git, but without the space.
const SHELL_CHARACTERS: &str = "|&;<>()$`\\\"'\n*?[#~=%";

/// Standard output of a command, direct or through the pager.
pub(crate) struct Output(State);

enum State {
    Direct(Stdout),
    /// Process of the pager; the flag is true once bprec has written text to the pager.
    Paged(Child, bool),
    /// The output has ended, or the user has quit the pager.
    Left,
}

impl Output {
    pub(crate) fn without_pager() -> Output {
        Output(State::Direct(io::stdout()))
    }

    fn with_pager() -> Output {
        let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        // A set-user-ID executable must not run a command that its caller chooses.
        if is_dumb || !io::stdout().is_terminal() || is_set_id() {
            return Output::without_pager();
        }
        match pager().and_then(|mut pager| pager.spawn().ok()) {
            Some(pager) => Output(State::Paged(pager, false)),
            None => Output::without_pager(),
        }
    }

    /// Prints the output of `write`, and waits for the pager to exit. Returns the result of `write`; `None` if the user has quit the pager early.
    pub(crate) fn print<T>(mut self, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<Option<T>> {
        let mut buffered = BufWriter::new(&mut self);
        let written = write(&mut buffered).and_then(|result| Ok(buffered.flush().map(|()| result)?));
        // Drops bytes that could not be written: the destructor of the writer would try again.
        let _ = buffered.into_parts();
        if matches!(self.0, State::Left) {
            return Ok(None);
        }
        let ended = self.end();
        written.and_then(|result| Ok(ended.map(|()| Some(result))?))
    }

    /// Flushes the output, or waits for the pager.
    fn end(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, State::Left) {
            State::Direct(mut stdout) => stdout.flush(),
            // `wait` closes the pager's input first.
            State::Paged(mut pager, _) => pager.wait().map(drop),
            State::Left => Ok(()),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.0 {
            State::Direct(stdout) => return stdout.write(bytes),
            State::Paged(pager, has_text) => {
                if !std::mem::replace(has_text, true) {
                    ignore_interrupts();
                }
                pager.stdin.as_mut().map(|pipe| pipe.write(bytes))
            }
            State::Left => None,
        };
        let written = written.unwrap_or_else(|| Err(ErrorKind::BrokenPipe.into()));
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.end()?;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            State::Direct(stdout) => stdout.flush(),
            _ => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Ignores errors: if the output is still open, the command has failed or prints nothing here.
        let _ = self.end();
    }
}

/// Command of the pager; `None` for `cat` or an empty name. A command without shell characters runs directly, so a missing pager is noticed and
/// the output goes to the terminal.
fn pager() -> Option<Command> {
    let named = ["BPREC_PAGER", "PAGER"].iter().find_map(std::env::var_os).unwrap_or(OsString::from("less"));
    let mut pager = match named.to_str().filter(|named| !named.contains(|c| SHELL_CHARACTERS.contains(c))) {
        Some("cat") => return None,
        Some(named) => {
            let mut words = named.split_whitespace();
            let mut pager = Command::new(words.next()?);
            pager.args(words);
            pager
        }
        None => {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(named);
            shell
        }
    };
    pager.stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        pager.env("LESS", LESS_OPTIONS);
    }
    if has_more_rights_than_caller() {
        // sudo may allow bprec alone: less must not run other commands or open files as root.
        pager.env("LESSSECURE", "1");
    }
    Some(pager)
}

/// Leaves Ctrl-C to the pager. Until the pager has text, Ctrl-C ends bprec.
fn ignore_interrupts() {
    #[cfg(unix)]
    // On failure, Ctrl-C still ends bprec.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, std::sync::Arc::default());
}

fn is_set_id() -> bool {
    #[cfg(unix)]
    {
        use rustix::process::{getegid, geteuid, getgid, getuid};
        getuid() != geteuid() || getgid() != getegid()
    }
    #[cfg(not(unix))]
    false
}

/// Returns true if another user started bprec through sudo or pkexec, or any user through doas. Ignores file capabilities: a pager does not inherit
/// them.
fn has_more_rights_than_caller() -> bool {
    #[cfg(unix)]
    let own = rustix::process::geteuid().as_raw().to_string();
    #[cfg(not(unix))]
    let own = String::new();
    let is_for_another = |name| std::env::var_os(name).is_some_and(|caller| caller != *own);
    ["SUDO_UID", "PKEXEC_UID"].into_iter().any(is_for_another) || std::env::var_os("DOAS_USER").is_some()
}
