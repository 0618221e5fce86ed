//! A line on the terminal that says how far reading a large recording has come.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

use bprec_report::{Input, printable};

use crate::charset::{is_ascii_only, to_ascii};
use crate::columns::columns;

/// Nobody has to be told of what takes no longer.
const FIRST_AFTER: Duration = Duration::from_secs(1);
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Reads inputs. Where that takes long and standard error is a terminal, a line there says how far it has come; it is gone at the end.
pub(crate) fn with_progress<T>(inputs: &[&Input], read: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
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
        // Without a thread there is no line.
        let drawing = Builder::new().name("bprec-progress".to_owned()).spawn_scoped(scope, draw);
        let outcome = read();
        drop(reading);
        if let Ok(drawing) = drawing {
            // It does not panic, and what it shows is of no use any more.
            let _ = drawing.join();
        }
        outcome
    })
}

struct ProgressLine<'i> {
    inputs: &'i [&'i Input],
    /// By input: pass and share when it was drawn last.
    seen: Vec<(u32, Option<f64>)>,
    /// The input that was read last.
    current: usize,
    drawn_chars: usize,
}

impl ProgressLine<'_> {
    fn draw(&mut self) {
        let now: Vec<_> = self.inputs.iter().map(|input| (input.progress().pass(), input.progress().share())).collect();
        if let Some(moved) = (0..now.len()).rev().find(|at| self.seen.get(*at) != now.get(*at) && now[*at].0 > 0) {
            self.current = moved;
        }
        self.seen = now;
        let Some((input, (pass, share))) = self.inputs.get(self.current).zip(self.seen.get(self.current)) else {
            return;
        };
        let share = share.map(|share| format!(": {:.0} %", share * 100.0)).unwrap_or_default();
        let path = input.path().display().to_string();
        let text = format!("bprec: reading {}, pass {pass}{share}", printable(&path));
        let text = if is_ascii_only() { to_ascii(&text) } else { text };
        // In the last column some terminals begin another line.
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

    /// Writes over the line that is there.
    fn replace(&mut self, text: &str) {
        write_out(&format!("\r{text:width$}", width = self.drawn_chars));
        self.drawn_chars = text.chars().count();
    }
}

/// That it cannot be written is nothing to fail for.
fn write_out(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
