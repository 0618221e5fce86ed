//! Standard output, through a pager where it is a terminal and what is printed has more rows than that.
//!
//! A confined reader starts no program, so a shell is started before. It waits for a line on its standard input and becomes the
//! pager then; when none comes, it ends. So a short table never meets a pager, and neither does the line that shows progress.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::process::{Child, Command, Stdio};

use anyhow::Result;

use crate::args::OUTPUT;

#[derive(clap::Args)]
pub(crate) struct PagerArgs {
    /// Do not use a pager. By default, output longer than the terminal goes through $BPREC_PAGER, $PAGER or less.
    #[arg(long, help_heading = OUTPUT)]
    no_pager: bool,
}

impl PagerArgs {
    /// Standard output, with a pager that waits. To be called before the command is confined.
    pub(crate) fn output(&self) -> Output {
        if self.no_pager { Output::without_pager() } else { Output::with_pager() }
    }
}

/// Script that the shell runs: `$0` is the pager's command.
const WAIT_FOR_A_LINE: &str = "IFS= read -r line && exec /bin/sh -c \"$0\"";
/// The pager where the environment names none; that it is not installed is not worth a message.
const LESS: &str = "command -v less >/dev/null || exit 127; exec less";
/// Options of less, unless the user has some: end where all fits, keep colours, keep the screen.
const LESS_OPTIONS: &str = "FRX";
/// Exit codes of a shell that could not start a command.
const NOT_STARTED: [i32; 2] = [126, 127];
/// A pipe holds no more: when so much was written, somebody reads.
const PIPE_BYTES: usize = 64 << 10;

/// Output of a command.
pub(crate) struct Output(State);

enum State {
    Direct(Stdout),
    /// All of it fits on the screen yet.
    Held {
        shell: Child,
        screen: Screen,
        text: Vec<u8>,
    },
    /// Bytes that were sent are kept until it is certain that the pager was started.
    Paged {
        pager: Child,
        sent: Option<Vec<u8>>,
    },
    /// The pager was left before the end.
    Left,
}

impl Output {
    pub(crate) fn without_pager() -> Output {
        Output(State::Direct(io::stdout()))
    }

    fn with_pager() -> Output {
        let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        if is_dumb || !io::stdout().is_terminal() {
            return Output::without_pager();
        }
        let Some(screen) = Screen::of_terminal() else { return Output::without_pager() };
        // A set-user-ID program would start whatever its caller names.
        let pager = pager().filter(|_| !is_set_id());
        let Some(shell) = pager.and_then(|pager| shell(pager).spawn().ok()) else { return Output::without_pager() };
        Output(State::Held { shell, screen, text: Vec::new() })
    }

    /// Prints what `write` writes, and waits until the pager is left. That it is left before the end is no error.
    pub(crate) fn print(mut self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let mut buffered = BufWriter::new(&mut self);
        let written = write(&mut buffered).and_then(|()| Ok(buffered.flush()?));
        // Bytes that could not be written are not tried again.
        let _ = buffered.into_parts();
        if matches!(self.0, State::Left) {
            return Ok(());
        }
        let ended = self.end();
        written.and_then(|()| Ok(ended?))
    }

    /// Prints what is held, or waits for the pager.
    fn end(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, State::Left) {
            State::Direct(mut stdout) => stdout.flush(),
            State::Held { mut shell, text, .. } => {
                // It gets no line.
                shell.wait()?;
                print_all(&text)
            }
            State::Paged { mut pager, sent } => match sent.filter(|_| is_not_started(&mut pager)) {
                Some(sent) => print_all(&sent),
                None => pager.wait().map(drop),
            },
            State::Left => Ok(()),
        }
    }

    /// Has the shell become the pager, and sends it what was held.
    fn begin_paging(&mut self) -> io::Result<()> {
        let State::Held { mut shell, text, .. } = std::mem::replace(&mut self.0, State::Left) else { return Ok(()) };
        let told = shell.stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(b"\n"));
        self.0 = match told {
            Ok(()) => {
                ignore_interrupts();
                State::Paged { pager: shell, sent: Some(Vec::new()) }
            }
            Err(_) => {
                shell.wait()?;
                State::Direct(io::stdout())
            }
        };
        self.write_all(&text)
    }

    /// Sends it to the pager; prints all that was sent where the pager could not be started.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let State::Paged { pager, sent } = &mut self.0 else { return Ok(()) };
        if sent.as_ref().is_some_and(|sent| sent.len() > PIPE_BYTES) {
            *sent = None;
        }
        if let Some(sent) = sent {
            sent.extend_from_slice(bytes);
        }
        let Err(error) = pager.stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(bytes)) else { return Ok(()) };
        let is_not_started = is_not_started(pager);
        match sent.take().filter(|_| is_not_started) {
            Some(sent) => {
                self.0 = State::Direct(io::stdout());
                self.write_all(&sent)
            }
            None => {
                self.0 = State::Left;
                Err(error)
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            State::Direct(stdout) => return stdout.write(bytes),
            State::Held { screen, text, .. } => {
                text.extend_from_slice(bytes);
                if screen.is_filled_by(bytes) {
                    self.begin_paging()?;
                }
            }
            State::Paged { .. } => self.send(bytes)?,
            State::Left => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        Ok(bytes.len())
    }

    /// Held bytes stay held: nobody waits for a part of a table.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            State::Direct(stdout) => stdout.flush(),
            _ => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // There is an error already where `print` has not ended it.
        let _ = self.end();
    }
}

fn print_all(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text)?;
    stdout.flush()
}

/// The command of the pager; `None` where the user wants none.
fn pager() -> Option<OsString> {
    let named = ["BPREC_PAGER", "PAGER"].iter().find_map(std::env::var_os);
    let Some(named) = named else { return Some(LESS.into()) };
    (!named.is_empty() && named != "cat").then_some(named)
}

/// The shell that waits.
fn shell(pager: OsString) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", WAIT_FOR_A_LINE]).arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        shell.env("LESS", LESS_OPTIONS);
    }
    if has_more_rights_than_caller() {
        // For whoever may run nothing else with these rights it starts no programs and opens no files.
        shell.env("LESSSECURE", "1");
    }
    shell
}

/// Waits for the end of the pager: whether the shell could not start it.
fn is_not_started(pager: &mut Child) -> bool {
    let code = pager.wait().ok().and_then(|status| status.code());
    code.is_some_and(|code| NOT_STARTED.contains(&code))
}

/// Rows of the terminal that are free yet.
struct Screen {
    columns: usize,
    free_rows: usize,
    column: usize,
    is_in_escape: bool,
}

impl Screen {
    /// The whole terminal but for the row of the next prompt.
    fn of_terminal() -> Option<Screen> {
        let (columns, rows) = terminal_size::terminal_size()?;
        let (columns, rows) = (usize::from(columns.0), usize::from(rows.0));
        Some(Screen { columns, free_rows: rows.saturating_sub(1), column: 0, is_in_escape: false })
    }

    /// Takes the rows of what follows; whether there are not so many.
    fn is_filled_by(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            let begins_row = match byte {
                // Colours take no column.
                _ if self.is_in_escape => {
                    self.is_in_escape = !byte.is_ascii_alphabetic();
                    false
                }
                0x1b => {
                    self.is_in_escape = true;
                    false
                }
                // The rest of a character.
                0x80..=0xbf => false,
                b'\n' => std::mem::take(&mut self.column) == 0,
                // Lines that are too long go on in the next row.
                _ => {
                    self.column += 1;
                    (self.column - 1).is_multiple_of(self.columns.max(1))
                }
            };
            if begins_row {
                let Some(rows) = self.free_rows.checked_sub(1) else { return true };
                self.free_rows = rows;
            }
        }
        false
    }
}

/// Leaves Ctrl-C to the pager.
fn ignore_interrupts() {
    #[cfg(unix)]
    // Without it Ctrl-C ends the command, too.
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

/// Returns true if this runs for another user, by sudo and the like. Capabilities of a file are not inherited by a pager.
fn has_more_rights_than_caller() -> bool {
    #[cfg(unix)]
    let own = rustix::process::geteuid().as_raw().to_string();
    #[cfg(not(unix))]
    let own = String::new();
    let is_for_another = |name| std::env::var_os(name).is_some_and(|caller| caller != *own);
    ["SUDO_UID", "PKEXEC_UID"].into_iter().any(is_for_another) || std::env::var_os("DOAS_USER").is_some()
}
