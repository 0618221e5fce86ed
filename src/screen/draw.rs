//! Lines on the screen.

use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

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

/// Largest part of a page's rows that say what was measured: one in this many.
const ABOVE_PART: usize = 3;

pub(super) fn draw(frame: &mut Frame<'_>, browser: &mut Browser) {
    let (width, height) = (usize::from(frame.area().width), usize::from(frame.area().height));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines: Vec<Parts> = vec![whole(format!("{:width$}", browser.title()), reversed)];
    match browser.overlay {
        Some(Overlay::Help) => lines.extend(HELP.lines().map(|line| whole(line.to_owned(), Style::new()))),
        Some(Overlay::Notes) => {
            let notes = browser.listing(width).map(|listing| listing.notes.clone()).unwrap_or_default();
            lines.extend(notes.iter().flat_map(|note| wrapped(note, width)).map(|line| whole(line, Style::new())));
        }
        None => page(browser, &mut lines, (width, height), [bold, dim, reversed]),
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), Parts::new());
    lines.push(whole(browser.last_line(), dim));
    let is_ascii = is_ascii_only();
    let text = |line: String| if is_ascii { to_ascii(&line).to_string() } else { line };
    let line = |parts: Parts| Line::from_iter(parts.into_iter().map(|(part, style)| Span::styled(text(part), style)));
    let lines: Vec<Line<'_>> = lines.into_iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines), frame.area());
}

/// Parts of a line, each with its style.
type Parts = Vec<(String, Style)>;

fn whole(line: String, style: Style) -> Parts {
    vec![(line, style)]
}

/// The lines of the page that is shown, as many as fit between the title and the last line.
fn page(
    browser: &mut Browser,
    lines: &mut Vec<Parts>,
    (width, height): (usize, usize),
    [bold, dim, reversed]: [Style; 3],
) {
    let Some(listing) = browser.listing(width) else { return };
    let (above, totals) = (listing.above.len(), listing.totals.len());
    let chosen_box = browser.chosen_box().cloned();
    let left = height.saturating_sub(lines.len() + 2 + totals + usize::from(chosen_box.is_some()));
    let above = above.min(left / ABOVE_PART);
    let (first, chosen) = browser.scroll(left - above);
    let Some(listing) = browser.listing(width) else { return };
    lines.extend(listing.above.iter().take(above).map(|line| whole(line.clone(), dim)));
    lines.push(whole(listing.header.clone(), bold));
    let rows = listing.rows.iter().enumerate().skip(first).take(left - above);
    lines.extend(rows.map(|(at, row)| match &chosen_box {
        _ if at != chosen => whole(row.text.clone(), Style::new()),
        None => whole(format!("{:width$}", row.text), reversed),
        Some(it) => {
            let part = |from: usize, to: usize| row.text.chars().take(to).skip(from).collect::<String>();
            let (start, end) = (it.columns.start, it.columns.end);
            let around = Style::new();
            vec![(part(0, start), around), (part(start, end), reversed), (part(end, usize::MAX), around)]
        }
    }));
    lines.extend(chosen_box.map(|it| whole(it.text, bold)));
    lines.extend(listing.totals.iter().map(|line| whole(line.clone(), bold)));
}

/// A note on as many lines as it needs.
fn wrapped(note: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if last == 0 || last + 1 + word.chars().count() <= width => {
                line.push_str(if last == 0 { "" } else { " " });
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines
}
