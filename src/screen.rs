//! The terminal of interactive screens: raw mode, keys, signals. A separate thread reads the recording, so that keys always work.

#![cfg_attr(not(all(feature = "record", target_os = "linux")), allow(dead_code, reason = "only top needs all of it"))]

use std::io::{self, IsTerminal, Stdout, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bprec_report::tui::{Action, Answer, Browser, Charset, Depth, Palette, Request, draw};
use bprec_report::{Input, Options, Paint, Session};
use crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::terminal::{is_ascii_only, paint};

/// Interval at which signals and answers are polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval at which signals and answers are polled while an answer is awaited.
const LOOK_SOON: Duration = Duration::from_millis(20);

/// Shows a recording until a key or a signal ends it.
///
/// # Errors
/// Fails if the recording cannot be read, or if the terminal cannot be used.
pub(crate) fn browse_recording(terminal: Terminal, input: Input, title: String, query: Options) -> anyhow::Result<()> {
    // Quitting does not wait for the reader, which may take long on a large recording.
    let is_waited_for = false;
    terminal.browse(Browser::of_recording(title, query, palette()), is_waited_for, move |requests, answers| {
        let session = Session::open(&input)?;
        while let Ok(request) = requests.recv() {
            // Skips to the latest request: the browser would ignore the answers to earlier requests.
            let request = requests.try_iter().last().unwrap_or(request);
            if let Request::Read(read) = request
                && answers.send(session.answer(&read)).is_err()
            {
                break;
            }
        }
        Ok(())
    })
}

/// Shows intervals, which `source` sends. After a key or a signal has ended the screen, waits for the end of `source`.
///
/// # Errors
/// Fails if `source` fails, or if the terminal cannot be used.
pub(crate) fn browse_live<F>(terminal: Terminal, query: Options, interval: Duration, source: F) -> anyhow::Result<()>
where
    F: FnOnce(Receiver<Request>, Sender<Answer>) -> anyhow::Result<()> + Send + 'static,
{
    terminal.browse(Browser::of_intervals(query, interval, palette()), true, source)
}

/// Colors and characters of the terminal, as `--color`, NO_COLOR, COLORTERM, TERM and the locale say.
fn palette() -> Palette {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let depth = if paint(&stdout()) == Paint::Plain {
        Depth::Plain
    } else if matches!(variable("COLORTERM").as_str(), "truecolor" | "24bit") {
        Depth::Full
    } else if variable("TERM").contains("256color") {
        Depth::Indexed
    } else {
        Depth::Sixteen
    };
    Palette::new(depth, if is_ascii_only() { Charset::Ascii } else { Charset::Unicode })
}

/// The reading thread. It ends when its channel of requests is closed.
struct Reader {
    ask: Option<Sender<Request>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    is_waited_for: bool,
}

impl Reader {
    /// Sends a request. If the thread has ended, [`Reader::end`] returns its error.
    fn ask(&self, request: Request) {
        if let Some(ask) = &self.ask {
            let _ = ask.send(request);
        }
    }

    /// Waits for the end of the thread, and returns its error.
    fn end(&mut self) -> anyhow::Result<()> {
        drop(self.ask.take());
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended.unwrap_or_else(|_| Err(anyhow!(panicked().unwrap_or_default())))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.is_waited_for {
            // Errors are ignored here; an explicit call of `end` returns them.
            let _ = self.end();
        }
    }
}

/// True while the terminal is in raw mode. Only the thread that owns the terminal uses this flag.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// Panic message of a thread other than the drawing thread; printed after the terminal is restored.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The terminal in raw mode. Dropping this value, or a panic of its thread, restores the previous mode.
pub(crate) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
    is_over: Arc<AtomicBool>,
}

impl Terminal {
    /// Sets the terminal to raw mode, and sets up keys and signals. Must run before the sandbox, which forbids the necessary calls. `what` names the
    /// screen in errors.
    ///
    /// # Errors
    /// Fails if standard input or output is no terminal, or if the terminal cannot be set up.
    pub(crate) fn take(what: &str) -> anyhow::Result<Terminal> {
        if !io::stdin().is_terminal() || !stdout().is_terminal() {
            bail!("{what} needs a terminal as standard input and output");
        }
        let is_over = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&is_over)).context("handle signals")?;
        }
        let inner = ratatui::Terminal::new(CrosstermBackend::new(stdout())).context("set up the terminal")?;
        let (earlier, owner) = (panic::take_hook(), thread::current().id());
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == owner {
                give_back();
                earlier(info);
            } else {
                *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
            }
        }));
        let mut terminal = Terminal { inner, is_over };
        IS_TAKEN.store(true, Ordering::Relaxed);
        enable_raw_mode().context("set up the terminal")?;
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture).context("set up the terminal")?;
        event::poll(Duration::ZERO).context("read the terminal")?;
        terminal.clear()?;
        Ok(terminal)
    }

    /// Clears the screen without a query to the terminal: a terminal on a serial line may not answer.
    fn clear(&mut self) -> io::Result<()> {
        let size = self.inner.size()?;
        self.inner.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Runs `source` in a separate thread and shows its answers. If `is_waited_for` is true, also waits for its end.
    fn browse<F>(mut self, mut browser: Browser, is_waited_for: bool, source: F) -> anyhow::Result<()>
    where
        F: FnOnce(Receiver<Request>, Sender<Answer>) -> anyhow::Result<()> + Send + 'static,
    {
        // Removes the progress line of redaction.
        self.clear()?;
        let ((ask, requests), (answer, answers)) = (channel(), channel());
        let thread = thread::Builder::new().name("bprec-read".to_owned()).spawn(move || source(requests, answer))?;
        let mut reader = Reader { ask: Some(ask), thread: Some(thread), is_waited_for };
        let has_ended = self.show(&mut browser, &reader, &answers)?;
        drop(self);
        if has_ended || is_waited_for { reader.end() } else { Ok(()) }
    }

    /// Draws after each key and answer, until a key or a signal ends the screen (returns false), or the reader ends (returns true).
    fn show(&mut self, browser: &mut Browser, reader: &Reader, answers: &Receiver<Answer>) -> anyhow::Result<bool> {
        let (mut is_drawn, mut size) = (false, None);
        loop {
            if let Some(said) = panicked() {
                bail!("{said}");
            }
            while let Some(request) = browser.next_request() {
                reader.ask(request);
            }
            match answers.try_recv() {
                Ok(answer) => {
                    browser.take(answer);
                    is_drawn = false;
                    continue;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(true),
            }
            let now = self.inner.size()?;
            if !is_drawn || size != Some(now) || browser.is_waiting() {
                self.inner.draw(|frame| draw(frame, browser))?;
                (is_drawn, size) = (true, Some(now));
            }
            if self.is_over.load(Ordering::Relaxed) || is_hung_up() {
                return Ok(false);
            }
            if key_comes(if browser.is_waiting() { LOOK_SOON } else { LOOK_EVERY })? {
                is_drawn = false;
                match event::read()? {
                    Event::Key(key) if browser.key(key) == Action::Quit => return Ok(false),
                    Event::Mouse(mouse) => browser.mouse(mouse),
                    _ => {}
                }
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Waits for an event of the terminal, at most `within`. Returns true if there is an event.
fn key_comes(within: Duration) -> io::Result<bool> {
    // Checks for events that crossterm has already read. The timeout is zero, because `event::poll` with a timeout reads a hung-up terminal in an
    // endless loop.
    if event::poll(Duration::ZERO)? {
        return Ok(true);
    }
    #[cfg(target_os = "linux")]
    {
        polled(PollFlags::IN, within);
        Ok(!is_hung_up() && event::poll(Duration::ZERO)?)
    }
    #[cfg(not(target_os = "linux"))]
    event::poll(within)
}

/// Returns true if the terminal is hung up.
fn is_hung_up() -> bool {
    #[cfg(target_os = "linux")]
    let is_hung_up = polled(PollFlags::empty(), Duration::ZERO).intersects(PollFlags::HUP | PollFlags::ERR);
    #[cfg(not(target_os = "linux"))]
    let is_hung_up = false;
    is_hung_up
}

/// Waits for the wanted state of the terminal, at most `within`; returns the state. A signal ends the wait early, with an empty state.
#[cfg(target_os = "linux")]
fn polled(wanted: PollFlags, within: Duration) -> PollFlags {
    let input = io::stdin();
    let mut descriptors = [PollFd::new(&input, wanted)];
    let polled = Timespec::try_from(within).is_ok_and(|within| poll(&mut descriptors, Some(&within)).is_ok());
    if polled { descriptors[0].revents() } else { PollFlags::empty() }
}

/// Takes the panic message of another thread.
fn panicked() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Restores the terminal if it is in raw mode. Ignores errors.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

    use super::*;
    use std::path::Path;
    use std::process::Command;
    use std::time::Instant;

    /// Environment variable of the process that must panic.
    const PANICS: &str = "BPREC_TEST_SCREEN_PANICS";

    /// Panics in a separate process on a terminal: first in the reading thread, then in the drawing thread.
    #[test]
    fn a_panic_leaves_the_terminal_whole() {
        let name = "screen::tests::a_panic_leaves_the_terminal_whole";
        match std::env::var(PANICS).as_deref() {
            Ok("read") => {
                let browser = Browser::of_recording("nothing".to_owned(), Options::default(), palette());
                let ended = Terminal::take("a test").unwrap().browse(browser, true, |_, _| panic!("while it reads"));
                ended.unwrap();
                return;
            }
            Ok(_) => {
                let _terminal = Terminal::take("a test").unwrap();
                panic!("while it draws");
            }
            Err(_) => {}
        }
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("SKIP {name}: needs tmux");
            return;
        }
        for (which, said) in [("read", "while it reads"), ("draw", "while it draws")] {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let tmux = |arguments: &[&str]| {
                let mut tmux = Command::new("tmux");
                tmux.args(["-f", "/dev/null", "-S"]).arg(path("socket")).args(arguments).env_remove("TMUX");
                String::from_utf8(tmux.env("LC_ALL", "C.UTF-8").output().unwrap().stdout).unwrap()
            };
            let script = format!(
                "cd '{}'; stty -a > before; RUST_BACKTRACE=0 {PANICS}={which} '{}' --exact {name} --nocapture; stty -a > now; mv now after; exec sleep 1000",
                directory.path().display(),
                std::env::current_exe().unwrap().display()
            );
            tmux(&["new-session", "-d", "-x", "200", "-y", "40", &script]);
            let read = |path: &Path| std::fs::read_to_string(path).ok();
            let started = Instant::now();
            let after = loop {
                match read(&path("after")) {
                    Some(after) => break after,
                    None => assert!(started.elapsed() < Duration::from_secs(60), "{}", tmux(&["capture-pane", "-p"])),
                }
                thread::sleep(Duration::from_millis(10));
            };
            let screen = tmux(&["capture-pane", "-p"]);
            let flags = tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
            tmux(&["kill-server"]);
            assert_eq!(read(&path("before")), Some(after), "{which}");
            assert_eq!(flags.trim(), "0 1", "{which}: {screen}");
            assert!(screen.contains(said), "{which}: {screen}");
        }
    }
}
