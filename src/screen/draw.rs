//! Draws the screen.

use bprec_report::FlameBox;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{List, Paragraph, Wrap};

use super::browser::{Browser, Overlay};
use crate::terminal::{is_ascii_only, to_ascii};

const HELP: &str = "\
↑ ↓ k j, PgUp PgDn, Home End   go to a row
Enter → l        open the row: program, functions, lines, instructions
Esc ← Backspace  back
a                annotate: source lines with instructions; again: instructions on or off
t                tree: the program's functions, and what they called; T: of all programs
g                flame graph of the program's samples, growing down; G: of all samples
Tab Shift-Tab    flame graph: next or previous box in the row; Enter zooms into it
p                who pays for the program; P: for all programs
s S              next or previous sort order
f /              filter programs: part of a name, a pattern with * and ?, an id or a tag
e                next event
n                notes about the numbers
Space            bprec top: pause or continue
+ -              bprec top: longer or shorter interval
w                bprec top: write the last samples to a file
q Ctrl-C         quit";

/// Divisor of the height: at most this part of a page is the text above the table.
const ABOVE_PART: u16 = 3;

pub(super) fn draw(frame: &mut Frame<'_>, browser: &mut Browser) {
    let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
    let [title, body, last] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(shown(&browser.title())).reversed(), title);
    match browser.overlay {
        Some(Overlay::Help) => frame.render_widget(Paragraph::new(shown(HELP)), body),
        Some(Overlay::Notes) => {
            let listing = browser.listing(usize::from(body.width));
            let notes = listing.map(|listing| shown(&listing.notes.join("\n"))).unwrap_or_default();
            frame.render_widget(Paragraph::new(notes).wrap(Wrap { trim: false }), body);
        }
        None => draw_page(frame, browser, body),
    }
    frame.render_widget(Paragraph::new(shown(&browser.last_line())).dim(), last);
}

/// Converts text to ASCII if the locale is not UTF-8.
fn shown(text: &str) -> String {
    if is_ascii_only() { to_ascii(text) } else { text.to_owned() }
}

/// Draws the current page, between the title and the last line.
fn draw_page(frame: &mut Frame<'_>, browser: &mut Browser, area: Rect) {
    let Some(listing) = browser.listing(usize::from(area.width)) else { return };
    let lines = |lines: &[String]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let (above, totals, rows) = (lines(&listing.above), lines(&listing.totals), listing.rows.len());
    let chosen_box = browser.chosen_box().cloned();
    let boxes = u16::from(chosen_box.is_some());
    let left = area.height.saturating_sub(totals.saturating_add(1 + boxes));
    let above = above.min(left / ABOVE_PART);
    let rows = u16::try_from(rows).unwrap_or(u16::MAX).min(left - above);
    let heights = [above, 1, rows, boxes, totals].map(Constraint::Length);
    let [above, header, rows, chosen, totals] = Layout::vertical(heights).areas(area);
    let Some((listing, state)) = browser.list(usize::from(left) - usize::from(above.height)) else { return };
    frame.render_widget(Paragraph::new(shown(&listing.above.join("\n"))).dim(), above);
    frame.render_widget(Paragraph::new(shown(&listing.header)).bold(), header);
    let selected = state.selected();
    let items = listing.rows.iter().enumerate().map(|(at, row)| match &chosen_box {
        Some(it) if selected == Some(at) => with_box(&row.text, it),
        _ => Line::raw(shown(&row.text)),
    });
    let highlight = if chosen_box.is_some() { Style::new() } else { Style::new().reversed() };
    frame.render_stateful_widget(List::new(items).highlight_style(highlight), rows, state);
    let text = chosen_box.map(|it| shown(&it.text)).unwrap_or_default();
    frame.render_widget(Paragraph::new(text).bold(), chosen);
    frame.render_widget(Paragraph::new(shown(&listing.totals.join("\n"))).bold(), totals);
}

/// A row of a flame graph with its selected box highlighted.
fn with_box(row: &str, chosen: &FlameBox) -> Line<'static> {
    let part = |from: usize, to: usize| shown(&row.chars().take(to).skip(from).collect::<String>());
    let (start, end) = (chosen.columns.start, chosen.columns.end);
    Line::from_iter([part(0, start).into(), part(start, end).reversed(), part(end, usize::MAX).into()])
}
