//! State of the screen, and the keys that change it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bprec_report::{Detail, FlameBox, Listing, ListingRow, Options, ProgFilter, Sort, printable};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::ListState;

use super::model::{Model, ProgramKey, View};
use super::{Answer, Read, Request};

/// Effect of a key on the screen as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
}

/// Entry of the navigation stack: a view of one program, or of all.
struct Page {
    view: View,
    program: Option<(ProgramKey, String)>,
    model: Option<Model>,
    /// Lines of the page, and the width in columns that they are made for.
    listing: Option<(usize, Listing)>,
    /// Selected row and scroll position.
    state: ListState,
    /// Frames to which the flame graph is zoomed.
    below: Vec<String>,
    /// Column of the selected box of the flame graph.
    column: usize,
}

impl Page {
    fn new(view: View, program: Option<(ProgramKey, String)>, model: Option<Model>) -> Page {
        Page { view, program, model, listing: None, state: ListState::default(), below: Vec::new(), column: 0 }
    }

    fn chosen(&self) -> usize {
        self.state.selected().unwrap_or(0)
    }

    fn rows(&self) -> &[ListingRow] {
        self.listing.as_ref().map_or(&[], |(_, listing)| &listing.rows)
    }

    /// Box of a row at the selected column, or the nearest box.
    fn chosen_box(&self, row: usize) -> Option<usize> {
        let boxes = &self.rows().get(row)?.boxes;
        let distance = |at: usize| {
            let columns = &boxes[at].columns;
            columns.start.saturating_sub(self.column).max((self.column + 1).saturating_sub(columns.end))
        };
        (0..boxes.len()).min_by_key(|at| distance(*at))
    }

    /// Selects a row, and in a flame graph the box above or below the selected one.
    fn go(&mut self, row: usize) {
        let row = row.min(self.rows().len().saturating_sub(1));
        self.state.select(Some(row));
        let Some(at) = self.chosen_box(row) else { return };
        let columns = &self.rows()[row].boxes[at].columns;
        self.column = self.column.clamp(columns.start, columns.end - 1);
    }

    /// Selects the next or the previous box of the row.
    fn go_beside(&mut self, is_back: bool) {
        let Some(at) = self.chosen_box(self.chosen()) else { return };
        let boxes = &self.rows()[self.chosen()].boxes;
        let to = if is_back { at.saturating_sub(1) } else { (at + 1).min(boxes.len() - 1) };
        self.column = boxes[to].columns.start;
    }

    /// Frames of the selected box, outermost first.
    fn chosen_frames(&self) -> Option<Vec<String>> {
        (0..=self.chosen()).map(|row| self.rows().get(row)?.boxes.get(self.chosen_box(row)?)?.frame.clone()).collect()
    }

    /// Item of the selected row.
    fn item(&self) -> Option<usize> {
        self.listing.as_ref()?.1.rows.get(self.chosen())?.item
    }
}

/// Text shown over the page until a key closes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    Notes,
}

/// Purpose of the text that the user types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prompt {
    Filter,
    /// Name of the file to write.
    File,
}

/// State of `bprec top`.
#[derive(Debug, Clone, Copy)]
struct LiveState {
    interval: Duration,
    is_paused: bool,
}

/// Lengths of intervals that the keys + and - select, ms.
const INTERVALS_MS: [u64; 8] = [200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// Wait after which the last line shows that an answer is awaited.
const QUIET: Duration = Duration::from_millis(300);
/// Default name of a written recording.
const FILE: &str = "bprec-top.data";

/// The state of a screen.
pub(super) struct Browser {
    /// Name of the recording or of the command.
    title: String,
    query: Options,
    /// Index of the shown event in the table.
    event: usize,
    /// Navigation stack: the first page is the table, the last one is shown.
    pages: Vec<Page>,
    live: Option<LiveState>,
    /// Requests that `next_request` has not returned yet.
    requests: VecDeque<Request>,
    /// Number of the newest request.
    asked: u64,
    /// Time of the newest request, until its answer arrives.
    waits_since: Option<Instant>,
    typed: Option<(Prompt, String)>,
    filter: String,
    pub(super) overlay: Option<Overlay>,
    message: String,
    /// Rows that fit on the screen.
    page_rows: usize,
}

impl Browser {
    /// Starts with the table of a recording.
    pub(super) fn of_recording(title: String, query: Options) -> Browser {
        let mut browser = Browser::new(title, query, None);
        browser.ask();
        browser
    }

    /// Starts with the table of the next interval, which the source sends without a request.
    pub(super) fn of_intervals(query: Options, interval: Duration) -> Browser {
        Browser::new("bprec top".to_owned(), query, Some(LiveState { interval, is_paused: false }))
    }

    fn new(title: String, query: Options, live: Option<LiveState>) -> Browser {
        Browser {
            title,
            query,
            event: 0,
            pages: vec![Page::new(View::Programs, None, None)],
            live,
            requests: VecDeque::new(),
            asked: 0,
            waits_since: Some(Instant::now()),
            typed: None,
            filter: String::new(),
            overlay: None,
            message: String::new(),
            page_rows: 1,
        }
    }

    /// Takes the next request for the reading thread.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Name of the shown event.
    fn event_name(&self) -> Option<&str> {
        let events = self.pages.first()?.model.as_ref()?.events();
        events.iter().find(|(at, _)| *at == self.event).map(|(_, name)| *name)
    }

    /// Requests the model of the current page.
    fn ask(&mut self) {
        let Some(page) = self.pages.last() else { return };
        let mut query = self.query.clone();
        if page.view != View::Programs {
            query.programs = page.program.iter().map(|(key, _)| key.filter()).collect();
            query.events = self.event_name().map(str::to_owned).into_iter().collect();
        }
        (self.asked, self.waits_since) = (self.asked + 1, Some(Instant::now()));
        let read = Read { number: self.asked, kind: page.view.kind(), query };
        self.requests.push_back(Request::Read(read));
    }

    /// Returns true if an answer is expected.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Applies an answer, unless a newer request has replaced its request.
    pub(super) fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Read(number, model) if number == self.asked => {
                self.waits_since = None;
                match model {
                    Ok(model) => self.set_model(self.pages.len() - 1, model),
                    Err(error) => self.message = error.to_string(),
                }
            }
            Answer::Read(..) => {}
            // Pages do not change during a pause.
            Answer::Newer(_) if self.live.is_some_and(|live| live.is_paused) && self.waits_since.is_none() => {}
            Answer::Newer(model) => {
                self.set_model(0, model);
                match self.pages.len() {
                    1 => self.waits_since = None,
                    // Pages of a program show the same interval.
                    _ if self.waits_since.is_none() => self.ask(),
                    _ => {}
                }
            }
            Answer::Message(message) => self.message = message,
        }
    }

    /// Sets the model of a page. The selected program stays selected; if the first row was selected, the first row stays selected.
    fn set_model(&mut self, page: usize, model: Model) {
        let Some(page) = self.pages.get_mut(page) else { return };
        if page.view == View::Programs {
            let events = model.events();
            if events.iter().all(|(at, _)| *at != self.event) {
                self.event = events.first().map_or(0, |(at, _)| *at);
            }
            let item = page.item().filter(|_| page.chosen() > 0);
            let chosen = item.and_then(|item| page.model.as_ref()?.program(item));
            let row = chosen.and_then(|(key, _)| model.row_of(key, self.event));
            page.state.select(Some(row.unwrap_or(page.chosen())));
        }
        page.model = Some(model);
        page.listing = None;
    }

    fn model(&self) -> Option<&Model> {
        self.pages.last()?.model.as_ref()
    }

    /// Computes the lines of the current page.
    fn lay_out(&self, width: usize) -> Option<(usize, Listing)> {
        let page = self.pages.last()?;
        let program = page.program.as_ref().map(|(key, _)| *key);
        Some((width, page.model.as_ref()?.listing(page.view, program, self.event, &page.below, width)))
    }

    /// Lines of the current page for this width; `None` until its model has arrived.
    pub(super) fn listing(&mut self, width: usize) -> Option<&Listing> {
        let known = self.pages.last()?.listing.as_ref().map(|(width, _)| *width);
        if known != Some(width) {
            let listing = self.lay_out(width);
            let page = self.pages.last_mut()?;
            page.listing = listing;
            page.go(page.chosen());
        }
        self.pages.last()?.listing.as_ref().map(|(_, listing)| listing)
    }

    /// Lines of the current page and the state of its list. `rows` is the height of the list.
    pub(super) fn list(&mut self, rows: usize) -> Option<(&Listing, &mut ListState)> {
        self.page_rows = rows.max(1);
        let Page { listing, state, .. } = self.pages.last_mut()?;
        Some((&listing.as_ref()?.1, state))
    }

    /// Selected box of the flame graph.
    pub(super) fn chosen_box(&self) -> Option<&FlameBox> {
        let page = self.pages.last()?;
        page.rows().get(page.chosen())?.boxes.get(page.chosen_box(page.chosen())?)
    }

    /// Title line of the page.
    pub(super) fn title(&self) -> String {
        let title = self.title.clone();
        let parts = match self.pages.last() {
            Some(page) if page.view != View::Programs => {
                let what = match page.view {
                    View::Programs | View::Functions => "functions",
                    View::Code { .. } => "lines",
                    View::Line { .. } => "instructions",
                    View::Tree => "what it called",
                    View::Payers => "payers",
                    View::Flame => "flame graph",
                };
                let program = page.program.as_ref().map_or("all programs", |(_, label)| label);
                vec![program.to_owned(), what.to_owned(), title]
            }
            _ => {
                let filter = (!self.filter.is_empty()).then(|| format!("filter {}", self.filter));
                let live = self.live.map(|live| {
                    let paused = if live.is_paused { ", paused" } else { "" };
                    format!("every {} s{paused}", live.interval.as_secs_f64())
                });
                [title].into_iter().chain(live).chain([format!("sort {}", self.query.sort)]).chain(filter).collect()
            }
        };
        printable(&parts.join(" · ")).into_owned()
    }

    /// Last line of the screen: the prompt, the progress, a message, or the keys.
    pub(super) fn last_line(&self) -> String {
        if let Some((prompt, typed)) = &self.typed {
            let what = match prompt {
                Prompt::Filter => "filter (part of a name, * and ?, id or tag)",
                Prompt::File => "write into",
            };
            return printable(&format!("{what}: {typed}_")).into_owned();
        }
        if let Some(since) = self.waits_since.filter(|since| self.model().is_none() || since.elapsed() > QUIET) {
            let what = if self.live.is_some() && self.pages.len() == 1 { "recording" } else { "reading" };
            return format!("q quit  {what} … {:.1} s", since.elapsed().as_secs_f64());
        }
        if !self.message.is_empty() {
            return printable(&self.message).into_owned();
        }
        let keys = match (self.overlay, self.pages.last().map(|page| page.view)) {
            (Some(_), _) => "Esc back",
            (None, Some(View::Programs) | None) if self.live.is_some() => {
                "h help  Enter open  Space pause  f filter  s sort  t tree  p payers  g flame graph  + - interval  w write"
            }
            (None, Some(View::Programs) | None) => {
                "h help  Enter open  f filter  s sort  a annotate  t tree  p payers  g flame graph  n notes"
            }
            (None, Some(View::Functions)) => {
                "h help  Enter open  Esc back  a annotate  t tree  p payers  g flame graph"
            }
            (None, Some(View::Code { .. })) => "h help  Enter open  Esc back  a instructions",
            (None, Some(View::Flame)) => "h help  ↑ ↓ Tab choose  Enter zoom  Esc back",
            (None, Some(_)) => "h help  Esc back",
        };
        format!("q quit  {keys}")
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.typed.is_some() {
            self.type_key(key.code);
            return Action::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.back(),
            _ if self.overlay.is_some() => {}
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.overlay = Some(Overlay::Help),
            KeyCode::Char('n') => self.overlay = Some(Overlay::Notes),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at + 1),
            KeyCode::PageUp => self.go(|at, page| at.saturating_sub(page)),
            KeyCode::PageDown => self.go(|at, page| at + page),
            KeyCode::Home => self.go(|_, _| 0),
            KeyCode::End => self.go(|_, _| usize::MAX),
            KeyCode::Tab => self.go_beside(false),
            KeyCode::BackTab => self.go_beside(true),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.open(Detail::Lines),
            KeyCode::Char('a') => self.open(Detail::Instructions),
            KeyCode::Char('t') => self.open_of_program(View::Tree),
            KeyCode::Char('T') => self.push(View::Tree, None, None),
            KeyCode::Char('g') => self.open_of_program(View::Flame),
            KeyCode::Char('G') => self.push(View::Flame, None, None),
            KeyCode::Char('p') => self.open_of_program(View::Payers),
            KeyCode::Char('P') => self.push(View::Payers, None, None),
            KeyCode::Char('s') => self.sort(1),
            KeyCode::Char('S') => self.sort(Sort::NAMES.len() - 1),
            KeyCode::Char('f' | '/') => self.typed = Some((Prompt::Filter, self.filter.clone())),
            KeyCode::Char(c @ (' ' | '+' | '-' | 'w')) if self.live.is_some() => self.live_key(c),
            KeyCode::Char('e') => self.next_event(),
            _ => {}
        }
        Action::Nothing
    }

    /// Selects another row: `to` gets the selected row and the number of rows on the screen.
    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rows = self.page_rows;
        let Some(page) = self.pages.last_mut() else { return };
        page.go(to(page.chosen(), rows));
    }

    fn go_beside(&mut self, is_back: bool) {
        if let Some(page) = self.pages.last_mut() {
            page.go_beside(is_back);
        }
    }

    /// Opens the flame graph below the selected box.
    fn zoom(&mut self) {
        let Some(page) = self.pages.last() else { return };
        let Some(below) = page.chosen_frames().filter(|below| *below != page.below) else { return };
        let (program, model, state) = (page.program.clone(), page.model.clone(), page.state);
        self.pages.push(Page { state, below, ..Page::new(View::Flame, program, model) });
    }

    fn back(&mut self) {
        if self.overlay.take().is_some() || self.pages.len() == 1 {
            return;
        }
        self.pages.pop();
        // The page below must not take an answer to the closed page.
        (self.asked, self.waits_since) = (self.asked + 1, None);
        if self.model().is_none() {
            self.ask();
        }
    }

    fn push(&mut self, view: View, program: Option<(ProgramKey, String)>, model: Option<Model>) {
        let is_known = model.is_some();
        self.pages.push(Page::new(view, program, model));
        if !is_known {
            self.ask();
        }
    }

    /// Opens the item of the selected row.
    fn open(&mut self, detail: Detail) {
        let Some(page) = self.pages.last_mut() else { return };
        let item = page.item();
        let (program, model) = (page.program.clone(), page.model.clone());
        match (page.view, item) {
            (View::Programs, _) => self.open_of_program(View::Functions),
            (View::Functions, Some(function)) => self.push(View::Code { function, detail }, program, model),
            (View::Code { function, detail: shown }, _) if detail == Detail::Instructions => {
                let other = if shown == Detail::Lines { Detail::Instructions } else { Detail::Lines };
                page.view = View::Code { function, detail: other };
                page.listing = None;
            }
            (View::Flame, _) => self.zoom(),
            (View::Code { function, .. }, Some(line)) => self.push(View::Line { function, line }, program, model),
            _ => {}
        }
    }

    /// Opens a view of the selected program, or of the program of the current page.
    fn open_of_program(&mut self, view: View) {
        let Some(page) = self.pages.last() else { return };
        let program = match page.view {
            View::Programs => page.item().and_then(|item| page.model.as_ref()?.program(item)),
            _ => page.program.clone(),
        };
        match program {
            Some(_) if page.view == view => {}
            Some(program) => self.push(view, Some(program), None),
            None => self.message = "this row has no program id".to_owned(),
        }
    }

    fn sort(&mut self, by: usize) {
        if self.pages.len() == 1 {
            let at = Sort::NAMES.iter().position(|(sort, _)| *sort == self.query.sort).unwrap_or(0);
            self.query.sort = Sort::NAMES[(at + by) % Sort::NAMES.len()].0;
            self.ask();
        }
    }

    fn next_event(&mut self) {
        let Some(page) = self.pages.last_mut().filter(|page| page.view == View::Programs) else { return };
        let events = page.model.as_ref().map(Model::events).unwrap_or_default();
        let next = events.iter().find(|(at, _)| *at > self.event).or(events.first());
        self.event = next.map_or(0, |(at, _)| *at);
        (page.listing, page.state) = (None, ListState::default());
    }

    /// Handles keys of a live recording.
    fn live_key(&mut self, key: char) {
        let Some(live) = &mut self.live else { return };
        let ms = live.interval.as_millis();
        let interval = match key {
            '+' => INTERVALS_MS.iter().find(|it| u128::from(**it) > ms),
            '-' => INTERVALS_MS.iter().rfind(|it| u128::from(**it) < ms),
            'w' => return self.typed = Some((Prompt::File, FILE.to_owned())),
            _ => {
                live.is_paused = !live.is_paused;
                return self.requests.push_back(Request::Pause(live.is_paused));
            }
        };
        if let Some(ms) = interval {
            live.interval = Duration::from_millis(*ms);
            self.requests.push_back(Request::Every(live.interval));
        }
    }

    /// Handles a key of the prompt.
    fn type_key(&mut self, code: KeyCode) {
        let Some((prompt, typed)) = &mut self.typed else { return };
        match code {
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                let (prompt, typed) = (*prompt, std::mem::take(typed));
                self.typed = None;
                match prompt {
                    Prompt::Filter => self.set_filter(typed),
                    Prompt::File => self.requests.push_back(Request::Write(PathBuf::from(typed))),
                }
            }
            _ => {}
        }
    }

    fn set_filter(&mut self, typed: String) {
        let parts = typed.split(',').filter(|part| !part.is_empty());
        match parts.map(filter).collect::<Result<Vec<ProgFilter>, _>>() {
            Ok(programs) => {
                self.pages.truncate(1);
                (self.query.programs, self.filter) = (programs, typed);
                self.ask();
            }
            Err(error) => self.message = error.to_string(),
        }
    }
}

/// Parses a filter; text without `*` and `?` matches parts of names.
fn filter(text: &str) -> bprec_report::Result<ProgFilter> {
    match text.parse()? {
        ProgFilter::Name(name) if !name.contains(['*', '?', '[']) => Ok(ProgFilter::Name(format!("*{name}*"))),
        filter => Ok(filter),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bprec_report::{Input, Session};

    /// A key takes the page away before what it asked for is there.
    #[test]
    fn a_late_answer_is_not_taken_for_another_page() {
        let recording = include_bytes!("../../fixtures/recordings/linux-7.2/ratio.data");
        let input = Input::from_bytes("ratio.data", recording.to_vec());
        let session = Session::open(&input).unwrap();
        let answer = |browser: &mut Browser| match browser.next_request() {
            Some(Request::Read(read)) => read.answer(&session),
            other => panic!("{other:?}"),
        };
        let mut browser = Browser::of_recording(String::new(), Options::default());
        let table = answer(&mut browser);
        browser.take(table);
        let before = browser.listing(100).unwrap().clone();
        assert!(before.header.contains("PROGRAM"), "{before:?}");
        browser.key(KeyEvent::new(KeyCode::Char('P'), KeyModifiers::NONE));
        let late = answer(&mut browser);
        browser.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
        browser.take(late);
        assert_eq!(browser.listing(100), Some(&before));
    }
}
