//! Progress line on the terminal while a large recording is read.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

use bprec_report::{Input, Progress, printable};

use crate::terminal::{columns, is_ascii_only, is_quiet};

/// Delay before the first progress line; shorter work shows none.
const FIRST_AFTER: Duration = Duration::from_secs(1);
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Runs `read`. After one second, a line on standard error shows the progress until the end, if standard error is a terminal; `--quiet` hides the
/// line.
pub(crate) fn with_progress<T>(inputs: &[&Input], read: impl FnOnce() -> T) -> T {
    let inputs: Vec<_> = inputs.iter().map(|input| (input.path(), &**input.progress())).collect();
    with_progress_of(&inputs, read)
}

/// Shows progress as [`with_progress`] does, for inputs that are still being opened, and for streams.
pub(crate) fn with_progress_of<T>(inputs: &[(&Path, &Progress)], read: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() || is_quiet() {
        return read();
    }
    scope(|scope| {
        let (reading, ended) = channel::<()>();
        let draw = move || {
            let mut line = ProgressLine { inputs, positions: Vec::new(), current: 0, drawn_chars: 0 };
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
            // Ignores the result: the thread does not panic.
            let _ = drawing.join();
        }
        outcome
    })
}

struct ProgressLine<'i> {
    inputs: &'i [(&'i Path, &'i Progress)],
    /// Position in each input when the line was last drawn.
    positions: Vec<Position>,
    /// Index of the input that the line shows: the last one that has made progress.
    current: usize,
    drawn_chars: usize,
}

/// Position in an input: true while the input is copied, number of the pass over the input (from 1), bytes read.
type Position = (bool, u32, u64);

impl ProgressLine<'_> {
    fn draw(&mut self) {
        let position = |progress: &Progress| (progress.is_copying(), progress.pass(), progress.read_bytes());
        let now: Vec<Position> = self.inputs.iter().map(|(_, progress)| position(progress)).collect();
        let has_begun = |(is_copying, pass, _): &Position| *is_copying || *pass > 0;
        let moved = (0..now.len()).rev().find(|at| self.positions.get(*at) != now.get(*at) && has_begun(&now[*at]));
        self.current = moved.unwrap_or(self.current);
        self.positions = now;
        let position = self.positions.get(self.current).filter(|position| has_begun(position));
        let Some((&(path, progress), position)) = self.inputs.get(self.current).zip(position) else { return };
        let text = line(&printable(&path.display().to_string()), progress.share(), *position);
        let text = if is_ascii_only() { bprec_report::to_ascii(&text) } else { text };
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

/// Formats the progress line of an input. `share` is the fraction read; `None` if the size of the input is unknown.
fn line(path: &str, share: Option<f64>, (is_copying, pass, read_bytes): Position) -> String {
    let progress = match share {
        Some(share) => format!(": {:.0} %", share * 100.0),
        None if read_bytes > 0 => format!(": {:.1} MB", read_bytes as f64 / 1e6),
        None => String::new(),
    };
    match is_copying {
        true => format!("bprec: copying {path}{progress}"),
        false => format!("bprec: reading {path}, pass {pass}{progress}"),
    }
}

/// Writes to standard error; ignores errors.
fn write_out(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
