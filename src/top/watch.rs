//! Interactive `bprec top`: answers requests of the screen from a live recording.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bprec_record::{Level, Options};
use bprec_report::model::{History, Interval};
use bprec_report::tui::{Answer, Kind, Model, Request};
use bprec_report::{Options as Query, Redact, Redactor, RewriteOptions, Session, Source, rewrite};

use super::live::{LOOK_EVERY, Live};
use crate::draft::{Draft, Older};
use crate::screen::{Terminal, browse_live};

/// Warnings of the recorder that the screen has not shown yet.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps a warning for the screen.
fn keep(level: Level, message: &str) {
    if level == Level::Warning {
        WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
    }
}

/// Text that `--redact` shows in place of a warning of the recorder, because a warning can contain any name.
const REDACTED: &str = "the recorder has a warning; --redact hides its text";

/// Shows the live recording until a key or a signal ends it.
pub(super) fn watch(
    terminal: Terminal,
    options: Options,
    keep_for: Duration,
    query: Query,
    redact: Option<Redact>,
) -> anyhow::Result<()> {
    let options = Options { notify: keep, ..options };
    browse_live(terminal, query.clone(), options.interval, move |requests, answers| {
        let live = start(&options, keep_for, redact)?;
        let (shown, history) = (None, Arc::default());
        let mut watched = Watched { live, options, keep_for, query, redact, shown, history, is_paused: false };
        let ended = watched.answer(&requests, &answers);
        watched.live.end().and(ended)
    })
}

/// Starts a recording. Each interval is shown with the samples of the time `keep_for` before its end.
fn start(options: &Options, keep_for: Duration, redact: Option<Redact>) -> anyhow::Result<Live> {
    let mut live = Live::start(options.clone(), keep_for, redact.map(Redactor::new))?;
    live.samples_ns = Some(u64::try_from(keep_for.as_nanos()).unwrap_or(u64::MAX));
    Ok(live)
}

/// The live recording behind the screen.
struct Watched {
    live: Live,
    options: Options,
    keep_for: Duration,
    query: Query,
    redact: Option<Redact>,
    /// Interval on the screen.
    shown: Option<Arc<Interval>>,
    history: Arc<History>,
    is_paused: bool,
}

impl Watched {
    /// Answers requests until the screen or the recorder has ended.
    fn answer(&mut self, requests: &Receiver<Request>, answers: &Sender<Answer>) -> anyhow::Result<()> {
        while !self.live.has_ended() {
            let answer = match requests.recv_timeout(LOOK_EVERY) {
                Ok(request) => self.answer_one(&request)?,
                Err(RecvTimeoutError::Timeout) => self.next_interval()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let warnings = std::mem::take(&mut *WARNINGS.lock().unwrap_or_else(PoisonError::into_inner));
            let warnings = warnings.into_iter().map(|message| match self.redact {
                None => message,
                Some(_) => REDACTED.to_owned(),
            });
            for answer in warnings.map(Answer::Message).chain(answer) {
                // If the screen has ended, the next receive finds the channel closed.
                let _ = answers.send(answer);
            }
        }
        Ok(())
    }

    /// Answers a request; `None` if the request only changes later intervals, or if the interval on the screen cannot be computed again.
    fn answer_one(&mut self, request: &Request) -> anyhow::Result<Option<Answer>> {
        Ok(match request {
            Request::Read(read) if read.kind() == Kind::Programs => {
                self.query = read.query().clone();
                let again = self.shown.as_ref().map(|shown| self.live.again(&self.query, shown)).transpose();
                again?.flatten().map(|interval| self.show(interval))
            }
            // Reads the whole newest file, because an interval has few samples. Opening fails while the file is replaced.
            Request::Read(read) => Some(match self.live.input() {
                Ok(input) => match Session::open_without_user_code(&input) {
                    Ok(session) => session.answer(read),
                    Err(error) => read.answer(Err(error)),
                },
                Err(error) => read.answer(Err(error)),
            }),
            Request::Pause(is_paused) => {
                self.is_paused = *is_paused;
                None
            }
            Request::Every(interval) => {
                if *interval < self.options.interval {
                    // Only a new recording can read the counters more often.
                    self.options.interval = *interval;
                    self.live.end()?;
                    self.live = start(&self.options, self.keep_for, self.redact)?;
                } else {
                    self.live.set_interval(*interval);
                }
                None
            }
            Request::Write(path) => Some(Answer::Message(match self.write(path) {
                Ok(said) => said,
                Err(error) => crate::message(&error),
            })),
        })
    }

    /// Returns the next interval; `None` while the interval lasts or the screen is paused.
    fn next_interval(&mut self) -> anyhow::Result<Option<Answer>> {
        if self.is_paused {
            return Ok(None);
        }
        let Some(interval) = self.live.poll(&self.query)? else { return Ok(None) };
        Arc::make_mut(&mut self.history).push(&interval);
        Ok(Some(self.show(interval)))
    }

    /// Makes an interval the shown one, and returns the answer for the screen.
    fn show(&mut self, interval: Interval) -> Answer {
        let interval = Arc::new(interval);
        self.shown = Some(Arc::clone(&interval));
        Answer::Newer(Model::Interval(interval, Arc::clone(&self.history)))
    }

    /// Writes the current file to `target`. If the current file is shorter than `--keep`, also writes the previous file, with the extension
    /// `before.data`. Returns a message with the names.
    fn write(&self, target: &Path) -> anyhow::Result<String> {
        let mut parts = vec![self.live.path()];
        let mut targets = vec![target.to_owned()];
        if self.live.file_length() < self.keep_for
            && let Some(before) = self.live.path_before()
        {
            parts.push(before);
            targets.push(target.with_extension("before.data"));
        }
        let mut said = Vec::new();
        for (part, target) in parts.iter().zip(&targets) {
            let options = RewriteOptions { repair: true, redact: self.redact, ..RewriteOptions::default() };
            let mut source = Source::open(part)?;
            let mut draft = Draft::create(target)?;
            let summary = rewrite(&mut source, &options, &mut draft.file)?;
            draft.persist(Older::Replaced)?;
            said.push(format!("{} samples -> {}", summary.samples, target.display()));
        }
        Ok(said.join(", "))
    }
}
