//! A page of the screen: its model, its rows, and the selected row.

use crate::view::{FirstScreen, Listing, ListingRow};
use ratatui::widgets::TableState;

use super::model::{Model, PageView, ShownProgram};
use super::palette::Palette;
use crate::view::hues::Hue;

/// Entry of the navigation stack: a view of one program, or of all programs.
pub(super) struct BrowserPage {
    pub(super) view: PageView,
    pub(super) program: Option<(ShownProgram, String)>,
    pub(super) model: Option<Model>,
    /// Texts and shares of the first page, and the colours of its rows.
    pub(super) first: Option<(FirstScreen, Vec<Hue>)>,
    /// Width in columns, and the lines for this width; not used on the first page.
    pub(super) listing: Option<(usize, Listing)>,
    /// Selected row and scroll position.
    pub(super) state: TableState,
    /// Frames that the flame graph is zoomed to, outermost first; empty for all stacks.
    pub(super) below: Vec<String>,
    /// Column of the selected box of the flame graph.
    pub(super) column: usize,
}

impl BrowserPage {
    pub(super) fn new(view: PageView, program: Option<(ShownProgram, String)>, model: Option<Model>) -> BrowserPage {
        let state = TableState::default();
        BrowserPage { view, program, model, first: None, listing: None, state, below: Vec::new(), column: 0 }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        match &self.first {
            Some((screen, _)) => screen.programs.len(),
            None => self.rows().len(),
        }
    }

    pub(super) fn chosen(&self) -> usize {
        self.state.selected().unwrap_or(0)
    }

    pub(super) fn rows(&self) -> &[ListingRow] {
        self.listing.as_ref().map_or(&[], |(_, listing)| &listing.rows)
    }

    /// Box of a row at the selected column, or the nearest box.
    pub(super) fn chosen_box(&self, row: usize) -> Option<usize> {
        let boxes = &self.rows().get(row)?.boxes;
        let distance = |at: usize| {
            let columns = &boxes[at].columns;
            columns.start.saturating_sub(self.column).max((self.column + 1).saturating_sub(columns.end))
        };
        (0..boxes.len()).min_by_key(|at| distance(*at))
    }

    /// Shows an event of the model on a page of programs.
    pub(super) fn show_event(&mut self, event: usize, palette: &mut Palette) {
        self.listing = None;
        let screen = self.model.as_ref().filter(|_| self.view == PageView::Programs);
        self.first = screen.and_then(|model| model.first_screen(event)).map(|screen| {
            let hues = palette.hues(&screen.programs);
            (screen, hues)
        });
    }

    /// Row of the hottest function or source line; `None` on pages that show neither.
    pub(super) fn hottest_row(&self) -> Option<usize> {
        let program = self.program.as_ref().map(|(key, _)| *key);
        let item = self.model.as_ref()?.hottest(self.view, program)?;
        self.rows().iter().position(|row| row.item == Some(item))
    }

    /// Row of a program on a page of programs.
    pub(super) fn row_of(&self, key: ShownProgram, event: usize) -> Option<usize> {
        let model = self.model.as_ref()?;
        let Some((screen, _)) = &self.first else { return model.row_of(key, event) };
        let is_it = |item: usize| model.program(item).is_some_and(|(program, _)| program == key);
        screen.programs.iter().position(|row| row.program.is_some_and(is_it))
    }

    /// Selects a row, and in a flame graph the box of this row that is nearest to the selected column.
    pub(super) fn go(&mut self, row: usize) {
        let row = row.min(self.len().saturating_sub(1));
        self.state.select(Some(row));
        let Some(at) = self.chosen_box(row) else { return };
        let columns = &self.rows()[row].boxes[at].columns;
        self.column = self.column.clamp(columns.start, columns.end - 1);
    }

    /// Selects the next box of the row, or the previous box if `is_back`.
    pub(super) fn go_beside(&mut self, is_back: bool) {
        let Some(at) = self.chosen_box(self.chosen()) else { return };
        let boxes = &self.rows()[self.chosen()].boxes;
        let to = if is_back { at.saturating_sub(1) } else { (at + 1).min(boxes.len() - 1) };
        self.column = boxes[to].columns.start;
    }

    /// Frames of the selected box, outermost first; `None` if a frame is folded.
    pub(super) fn chosen_frames(&self) -> Option<Vec<String>> {
        (0..=self.chosen()).map(|row| self.rows().get(row)?.boxes.get(self.chosen_box(row)?)?.frame.clone()).collect()
    }

    /// Item of the selected row.
    pub(super) fn item(&self) -> Option<usize> {
        if let Some((screen, _)) = &self.first {
            return screen.programs.get(self.chosen())?.program;
        }
        self.listing.as_ref()?.1.rows.get(self.chosen())?.item
    }
}
