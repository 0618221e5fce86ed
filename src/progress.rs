//! Progress line on the terminal while a large recording is read.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

use bprec_report::{Input, Progress, printable};

use crate::terminal::{columns, is_ascii_only, is_quiet, to_ascii};

/// Delay before the first progress line; shorter work shows none.
const FIRST_AFTER: Duration = Duration::from_secs(1);
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Runs `read`. If it takes longer than a second and standard error is a terminal, a line there shows the progress until the end.
pub(crate) fn with_progress<T>(inputs: &[&Input], read: impl FnOnce() -> T) -> T {
    let inputs: Vec<_> = inputs.iter().map(|input| (input.path(), &**input.progress())).collect();
    with_progress_of(&inputs, read)
}

/// Shows progress as [`with_progress`], for inputs that are not open yet, or that are streams.
pub(crate) fn with_progress_of<T>(inputs: &[(&Path, &Progress)], read: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() || is_quiet() {
        return read();
    }
    scope(|scope| {
        let (reading, ended) = channel::<()>();
        let draw = move || {
            let mut line = ProgressLine { inputs, seen: Vec::new(), current: 0, drawn_chars: 0 };
            let mut wait = FIRST_AFTER;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                line.draw();
                wait = REDRAW_EVERY;
            }
            line.erase();
        };
        // If the thread cannot start, no progress is shown.
        let drawing = Builder::new().name("bprec-progress".to_owned()).spawn_scoped(scope, draw);
        let outcome = read();
        drop(reading);
        if let Ok(drawing) = drawing {
            // The thread does not panic.
            let _ = drawing.join();
        }
        outcome
    })
}

struct ProgressLine<'i> {
    inputs: &'i [(&'i Path, &'i Progress)],
    /// Progress of each input when the line was last drawn.
    seen: Vec<Seen>,
    /// Index of the input that is being read.
    current: usize,
    drawn_chars: usize,
}

/// Progress of one input.
#[derive(Clone, Copy, PartialEq)]
struct Seen {
    is_copying: bool,
    pass: u32,
    share: Option<f64>,
    read_bytes: u64,
}

impl Seen {
    fn of(progress: &Progress) -> Seen {
        Seen {
            is_copying: progress.is_copying(),
            pass: progress.pass(),
            share: progress.share(),
            read_bytes: progress.read_bytes(),
        }
    }

    /// Formats the progress line of a path.
    fn of_path(self, path: &str) -> String {
        let how_far = match self.share {
            Some(share) => format!(": {:.0} %", share * 100.0),
            None if self.read_bytes > 0 => format!(": {:.1} MB", self.read_bytes as f64 / 1e6),
            None => String::new(),
        };
        match self.is_copying {
            true => format!("bprec: copying {path}{how_far}"),
            false => format!("bprec: reading {path}, pass {}{how_far}", self.pass),
        }
    }
}

impl ProgressLine<'_> {
    fn draw(&mut self) {
        let now: Vec<Seen> = self.inputs.iter().map(|(_, progress)| Seen::of(progress)).collect();
        let has_begun = |seen: &Seen| seen.is_copying || seen.pass > 0;
        if let Some(moved) = (0..now.len()).rev().find(|at| self.seen.get(*at) != now.get(*at) && has_begun(&now[*at]))
        {
            self.current = moved;
        }
        self.seen = now;
        let seen = self.seen.get(self.current).filter(|seen| has_begun(seen));
        let Some(((path, _), seen)) = self.inputs.get(self.current).zip(seen) else { return };
        let text = seen.of_path(&printable(&path.display().to_string()));
        let text = if is_ascii_only() { to_ascii(&text) } else { text };
        // Some terminals wrap after a character in the last column.
        let most = columns(&io::stderr()).saturating_sub(1);
        let chars = text.chars().count();
        let text: String = text.chars().skip(chars.saturating_sub(most)).collect();
        self.replace(&text);
    }

    fn erase(&mut self) {
        if self.drawn_chars > 0 {
            self.replace("");
            write_out("\r");
        }
    }

    /// Overwrites the line on the terminal.
    fn replace(&mut self, text: &str) {
        write_out(&format!("\r{text:width$}", width = self.drawn_chars));
        self.drawn_chars = text.chars().count();
    }
}

/// Writes to standard error; ignores errors.
fn write_out(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
