//! State of the screen, and the keys that change it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::ProgFilter;
use crate::model::text::printable;
use crate::options::{Options, Sort};
use crate::view::{Detail, FlameBox, Listing};
use bprec_filter::Glob;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use ratatui::widgets::TableState;

use super::dashboard::Dashboard;
use super::model::{Kind, Model, PageView, ShownProgram};
use super::page::BrowserPage;
use super::palette::Palette;
use super::{Answer, Read, Request};

/// Effect of a key on the screen as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The screen stays open.
    Nothing,
    /// The screen ends.
    Quit,
}

/// Text that covers the page until Esc closes it.
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
/// Delay from a request until the last line of the screen shows how long the user has been waiting. A page without a model shows the waiting time
/// without delay.
const QUIET: Duration = Duration::from_millis(300);
/// File name that the prompt proposes for a recording.
const FILE: &str = "bprec-top.data";

/// The state of a screen.
pub struct Browser {
    /// Name of the recording or of the command.
    title: String,
    query: Options,
    /// Index of the shown event in the table.
    event: usize,
    /// Navigation stack: the first page shows all programs, the last page is on the screen.
    pages: Vec<BrowserPage>,
    live: Option<LiveState>,
    /// Requests that `next_request` has not returned yet.
    requests: VecDeque<Request>,
    /// Number of the newest request.
    asked: u64,
    /// Time of the newest request, until its answer arrives.
    waits_since: Option<Instant>,
    typed: Option<(Prompt, String)>,
    filter: String,
    /// Filter that applied before the user began to type a new one.
    filter_before: String,
    pub(super) overlay: Option<Overlay>,
    /// First line of the overlay's text on the screen.
    pub(super) overlay_top: usize,
    message: String,
    pub(super) palette: Palette,
    /// Area of the rows of the page on the screen.
    rows_area: Rect,
}

impl Browser {
    /// Makes the state for a recording, and requests the first page.
    pub fn of_recording(title: String, query: Options, palette: Palette) -> Browser {
        let mut browser = Browser::new(title, query, None, palette);
        browser.ask();
        browser
    }

    /// Makes the state for live intervals, which the source sends without a request.
    pub fn of_intervals(query: Options, interval: Duration, palette: Palette) -> Browser {
        Browser::new("bprec top".to_owned(), query, Some(LiveState { interval, is_paused: false }), palette)
    }

    fn new(title: String, query: Options, live: Option<LiveState>, palette: Palette) -> Browser {
        Browser {
            title,
            query,
            event: 0,
            pages: vec![BrowserPage::new(PageView::Programs, None, None)],
            live,
            requests: VecDeque::new(),
            asked: 0,
            waits_since: Some(Instant::now()),
            typed: None,
            filter: String::new(),
            filter_before: String::new(),
            overlay: None,
            overlay_top: 0,
            message: String::new(),
            palette,
            rows_area: Rect::default(),
        }
    }

    /// Takes the next request for the reading thread.
    pub fn next_request(&mut self) -> Option<Request> {
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
        if page.view.kind() != Kind::Programs {
            query.programs = page.program.iter().map(|(key, _)| key.filter()).collect();
            query.events = self.event_name().map(str::to_owned).into_iter().collect();
        }
        (self.asked, self.waits_since) = (self.asked + 1, Some(Instant::now()));
        let read = Read { number: self.asked, kind: page.view.kind(), query };
        self.requests.push_back(Request::Read(read));
    }

    /// Returns true if an answer is expected.
    pub fn is_waiting(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Applies an answer. If a newer request was made meanwhile, the answer to the older one is dropped.
    pub fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Read(number, model) if number == self.asked => {
                self.waits_since = None;
                match model {
                    Ok(model) => self.set_model(model),
                    Err(error) => self.message = error.to_string(),
                }
            }
            Answer::Read(..) => {}
            // During a pause, newer intervals are dropped, unless the screen still waits for an answer.
            Answer::Newer(_) if self.live.is_some_and(|live| live.is_paused) && self.waits_since.is_none() => {}
            Answer::Newer(model) => {
                self.set_model(model);
                match self.pages.last().map(|page| page.view.kind()) {
                    Some(Kind::Programs) => self.waits_since = None,
                    // A page about one program requests its own model of the new interval.
                    _ if self.waits_since.is_none() => self.ask(),
                    _ => {}
                }
            }
            Answer::Message(message) => self.message = message,
        }
    }

    /// Sets a model. A model with events is for all pages of programs, any other model for the page on the screen. The selected program stays
    /// selected in its new row. Exception: if the first row was selected, the new first row becomes selected.
    fn set_model(&mut self, model: Model) {
        let events = model.events();
        if events.is_empty() {
            let Some(page) = self.pages.last_mut() else { return };
            (page.model, page.listing) = (Some(model), None);
            return;
        }
        if events.iter().all(|(at, _)| *at != self.event) {
            self.event = events[0].0;
        }
        for page in self.pages.iter_mut().filter(|page| page.view.kind() == Kind::Programs) {
            let item = page.item().filter(|_| page.chosen() > 0);
            let chosen = item.and_then(|item| page.model.as_ref()?.program(item));
            page.model = Some(model.clone());
            page.show_event(self.event, &mut self.palette);
            let row = chosen.and_then(|(key, _)| page.row_of(key, self.event)).unwrap_or(page.chosen());
            let last = page.first.as_ref().map_or(usize::MAX, |(screen, _)| screen.programs.len().saturating_sub(1));
            page.state.select(Some(row.min(last)));
        }
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
            let row = page.state.selected().or_else(|| page.hottest_row()).unwrap_or(0);
            page.go(row);
        }
        self.pages.last()?.listing.as_ref().map(|(_, listing)| listing)
    }

    /// Lines of the current page, and the state of its list.
    pub(super) fn list(&mut self) -> Option<(&Listing, &Palette, &mut TableState)> {
        let BrowserPage { listing, state, .. } = self.pages.last_mut()?;
        Some((&listing.as_ref()?.1, &self.palette, state))
    }

    /// Returns true on the page of a flame graph.
    pub(super) fn is_flame_graph(&self) -> bool {
        self.pages.last().is_some_and(|page| page.view == PageView::Flame)
    }

    /// Returns true on the first page.
    pub(super) fn has_dashboard(&self) -> bool {
        self.pages.len() == 1
    }

    /// First page and the state of its table; `None` until its model has arrived.
    pub(super) fn dashboard(&mut self) -> Option<(Dashboard<'_>, &mut TableState)> {
        let (is_live, is_filtered) = (self.live.is_some(), !self.filter.is_empty());
        let BrowserPage { first, state, .. } = self.pages.last_mut()?;
        let (screen, hues) = first.as_ref()?;
        Some((Dashboard { screen, hues, palette: &self.palette, is_live, is_filtered }, state))
    }

    /// Machine and measurement, for the title of the first page.
    pub(super) fn machine_facts(&self) -> &str {
        let first = self.pages.last().and_then(|page| page.first.as_ref());
        first.map_or("", |(screen, _)| screen.machine_facts.as_str())
    }

    /// Stores the area of the rows, to find the row of a click.
    pub(super) fn set_rows_area(&mut self, area: Rect) {
        self.rows_area = area;
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
            Some(page) if page.view.kind() != Kind::Programs => {
                let program = page.program.as_ref().map_or("all programs", |(_, label)| label);
                vec![program.to_owned(), page.view.title().to_owned(), title]
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
            (Some(_), _) => "↑ ↓ scroll  Esc back",
            (None, Some(PageView::Programs) | None) if self.live.is_some() => {
                "h help  Enter open  / filter  s sort  t tree  p payers  b bill  g flame graph  c columns  Space pause  + - interval  w write"
            }
            (None, Some(PageView::Programs) | None) => {
                "h help  Enter open  / filter  s sort  t tree  p payers  b bill  g flame graph  c columns  n notes"
            }
            (None, Some(PageView::Table)) => "h help  Enter open  Esc back  s sort  n notes",
            (None, Some(PageView::Functions)) => {
                "h help  Enter open  Esc back  a annotate  t tree  p payers  g flame graph"
            }
            (None, Some(PageView::Code { .. })) => "h help  Enter open  Esc back  a instructions",
            (None, Some(PageView::Flame)) => "h help  ↑ ↓ Tab choose  Enter zoom  Esc back",
            (None, Some(_)) => "h help  Esc back",
        };
        format!("q quit  {keys}")
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.typed.is_some() {
            match key.code {
                // The key Backspace of some terminals.
                KeyCode::Char('h') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    self.type_key(KeyCode::Backspace)
                }
                KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => {}
                code => self.type_key(code),
            }
            return Action::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.back(),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at.saturating_add(1)),
            KeyCode::PageUp => self.go(|at, page| at.saturating_sub(page)),
            KeyCode::PageDown => self.go(|at, page| at.saturating_add(page)),
            KeyCode::Home => self.go(|_, _| 0),
            KeyCode::End => self.go(|_, _| usize::MAX),
            _ if self.overlay.is_some() => {}
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.show_overlay(Overlay::Help),
            KeyCode::Char('n') => self.show_overlay(Overlay::Notes),
            KeyCode::Tab => self.go_beside(false),
            KeyCode::BackTab => self.go_beside(true),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.open(Detail::Lines),
            KeyCode::Char('a') => self.open(Detail::Instructions),
            KeyCode::Char('c') => self.open_table(),
            KeyCode::Char('t') => self.open_of_program(PageView::Tree),
            KeyCode::Char('T') => self.push(PageView::Tree, None, None),
            KeyCode::Char('g') => self.open_of_program(PageView::Flame),
            KeyCode::Char('G') => self.push(PageView::Flame, None, None),
            KeyCode::Char('p') => self.open_of_program(PageView::Payers),
            KeyCode::Char('P') => self.push(PageView::Payers, None, None),
            KeyCode::Char('b') => self.push(PageView::Bill, None, None),
            KeyCode::Char('s') => self.sort(1),
            KeyCode::Char('S') => self.sort(Sort::NAMES.len() - 1),
            KeyCode::Char('f' | '/') => {
                self.filter_before.clone_from(&self.filter);
                self.typed = Some((Prompt::Filter, self.filter.clone()));
            }
            KeyCode::Char(c @ (' ' | '+' | '-' | 'w')) if self.live.is_some() => self.live_key(c),
            KeyCode::Char('e') => self.next_event(),
            _ => {}
        }
        Action::Nothing
    }

    /// Handles the mouse: the wheel moves the selection, a click selects a row, and a click on the selected row opens it.
    pub fn mouse(&mut self, mouse: MouseEvent) {
        match mouse.kind {
            _ if self.typed.is_some() => {}
            MouseEventKind::ScrollUp => self.go(|at, _| at.saturating_sub(1)),
            MouseEventKind::ScrollDown => self.go(|at, _| at.saturating_add(1)),
            _ if self.overlay.is_some() => {}
            MouseEventKind::Down(MouseButton::Left) if self.rows_area.contains((mouse.column, mouse.row).into()) => {
                let Some(page) = self.pages.last_mut() else { return };
                let row = page.state.offset() + usize::from(mouse.row - self.rows_area.y);
                let before = (page.chosen(), page.chosen_box(page.chosen()));
                page.column = mouse.column.into();
                if row < page.len() {
                    page.go(row);
                    if before == (row, page.chosen_box(row)) {
                        self.open(Detail::Lines);
                    }
                }
            }
            _ => {}
        }
    }

    fn show_overlay(&mut self, overlay: Overlay) {
        (self.overlay, self.overlay_top) = (Some(overlay), 0);
    }

    /// Selects another row, or scrolls the overlay. `to` returns the row from the selected row and the number of rows on the screen.
    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rows = usize::from(self.rows_area.height.max(1));
        if self.overlay.is_some() {
            // Drawing limits the position to the length of the text.
            return self.overlay_top = to(self.overlay_top, rows);
        }
        let Some(page) = self.pages.last_mut() else { return };
        page.go(to(page.chosen(), rows));
    }

    fn go_beside(&mut self, is_back: bool) {
        if let Some(page) = self.pages.last_mut() {
            page.go_beside(is_back);
        }
    }

    /// Opens a flame graph of the stacks that lead through the selected box.
    fn zoom(&mut self) {
        let Some(page) = self.pages.last() else { return };
        let Some(below) = page.chosen_frames().filter(|below| *below != page.below) else { return };
        let (program, model, state) = (page.program.clone(), page.model.clone(), page.state);
        self.pages.push(BrowserPage { state, below, ..BrowserPage::new(PageView::Flame, program, model) });
    }

    fn back(&mut self) {
        if self.overlay.take().is_some() || self.pages.len() == 1 {
            return;
        }
        self.pages.pop();
        // The closed page may still wait for an answer, which must not reach the page below.
        (self.asked, self.waits_since) = (self.asked + 1, None);
        if self.model().is_none() {
            self.ask();
        }
    }

    fn push(&mut self, view: PageView, program: Option<(ShownProgram, String)>, model: Option<Model>) {
        self.pages.push(BrowserPage::new(view, program, model));
        if self.model().is_none() {
            self.ask();
        }
    }

    /// Opens the item of the selected row.
    fn open(&mut self, detail: Detail) {
        let Some(page) = self.pages.last_mut() else { return };
        let item = page.item();
        let (program, model) = (page.program.clone(), page.model.clone());
        match (page.view, item) {
            // Rows without a single program (unattributed samples, remaining programs) open the table of all programs.
            (PageView::Programs, None) => self.open_table(),
            (PageView::Programs | PageView::Table, _) => self.open_of_program(PageView::Functions),
            (PageView::Functions, Some(function)) => self.push(PageView::Code { function, detail }, program, model),
            (PageView::Code { function, detail: shown }, _) if detail == Detail::Instructions => {
                let other = if shown == Detail::Lines { Detail::Instructions } else { Detail::Lines };
                page.view = PageView::Code { function, detail: other };
                page.listing = None;
            }
            (PageView::Flame, _) => self.zoom(),
            (PageView::Code { function, .. }, Some(line)) => {
                self.push(PageView::Line { function, line }, program, model)
            }
            _ => {}
        }
    }

    /// Opens the table of all programs and columns.
    fn open_table(&mut self) {
        if let Some(page) = self.pages.last().filter(|page| page.view == PageView::Programs) {
            let model = page.model.clone();
            self.push(PageView::Table, None, model);
        }
    }

    /// Opens a view of the selected program, or of the program of the current page.
    fn open_of_program(&mut self, view: PageView) {
        let Some(page) = self.pages.last() else { return };
        let program = match page.view {
            PageView::Programs | PageView::Table => page.item().and_then(|item| page.model.as_ref()?.program(item)),
            _ => page.program.clone(),
        };
        match program {
            Some(_) if page.view == view => {}
            Some(program) => self.push(view, Some(program), None),
            None => self.message = "this row has no program id".to_owned(),
        }
    }

    fn sort(&mut self, by: usize) {
        if self.pages.last().is_some_and(|page| page.view.kind() == Kind::Programs) {
            let at = Sort::NAMES.iter().position(|(sort, _)| *sort == self.query.sort).unwrap_or(0);
            self.query.sort = Sort::NAMES[(at + by) % Sort::NAMES.len()].0;
            self.ask();
        }
    }

    fn next_event(&mut self) {
        let events = self.pages.first().and_then(|page| page.model.as_ref()).map(Model::events).unwrap_or_default();
        let next = events.iter().find(|(at, _)| *at > self.event).or(events.first());
        self.event = next.map_or(0, |(at, _)| *at);
        for page in self.pages.iter_mut().filter(|page| page.view.kind() == Kind::Programs) {
            page.show_event(self.event, &mut self.palette);
            page.state = TableState::default().with_selected(0);
        }
    }

    /// Handles a key that only a live recording has.
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

    /// Handles a key of the prompt. A filter is applied after each key, before the user presses Enter.
    fn type_key(&mut self, code: KeyCode) {
        let Some((prompt, typed)) = &mut self.typed else { return };
        let prompt = *prompt;
        match code {
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => {
                self.typed = None;
                if prompt == Prompt::Filter {
                    self.set_filter(self.filter_before.clone());
                }
                return;
            }
            KeyCode::Enter => {
                let typed = self.typed.take().map(|(_, typed)| typed).unwrap_or_default();
                match prompt {
                    Prompt::Filter => self.set_filter(typed),
                    Prompt::File => self.requests.push_back(Request::Write(PathBuf::from(typed))),
                }
                return;
            }
            _ => return,
        }
        if prompt == Prompt::Filter {
            let typed = typed.clone();
            self.set_filter(typed);
            // No error message while the user types: an incomplete pattern can be invalid.
            self.message.clear();
        }
    }

    fn set_filter(&mut self, typed: String) {
        if typed == self.filter {
            return;
        }
        let parts = typed.split(',').filter(|part| !part.is_empty());
        match parts.map(filter).collect::<Result<Vec<ProgFilter>, _>>() {
            Ok(programs) => {
                while self.pages.last().is_some_and(|page| page.view.kind() != Kind::Programs) {
                    self.pages.pop();
                }
                (self.query.programs, self.filter) = (programs, typed);
                self.ask();
            }
            Err(error) => self.message = error.to_owned(),
        }
    }
}

/// Parses a filter. A name without `*`, `?` and `[` matches any part of a program's name.
fn filter(text: &str) -> Result<ProgFilter, &'static str> {
    match text.parse()? {
        ProgFilter::Name(name) if !name.as_str().contains(['*', '?', '[']) => {
            Ok(ProgFilter::Name(Glob::new(&format!("*{name}*"))))
        }
        filter => Ok(filter),
    }
}

#[cfg(test)]
mod tests;
