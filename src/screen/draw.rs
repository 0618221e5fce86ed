//! Lines on the screen.

use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::browser::{Browser, Overlay};
use crate::charset::{is_ascii_only, to_ascii};

const HELP: &str = "\
↑ ↓ k j, PgUp PgDn, Home End   go to a row
Enter → l        open what the row is of: program, functions, lines, instructions
Esc ← Backspace  back
a                annotate: lines with their instructions; there: instructions on and off
t                tree: functions of the program, what they called, what ran below; T: of all
g                flame graph of the program's samples, growing downwards; G: of all samples
p                who pays for the program; P: for all programs
s S              the next order of the rows, the one before
f /              only programs with a part of a name, a pattern with * and ?, an id or a tag
e                the next event
n                notes: what has to be said beside the numbers
Space            bprec top: pause, and go on
+ -              bprec top: longer and shorter intervals
w                bprec top: write what was recorded into a file
q Ctrl-C         quit";

/// Of the rows that a page has, those that say what was measured are at most one of so many.
const ABOVE_PART: usize = 3;

pub(super) fn draw(frame: &mut Frame<'_>, browser: &mut Browser) {
    let (width, height) = (usize::from(frame.area().width), usize::from(frame.area().height));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines: Vec<(String, Style)> = vec![(format!("{:width$}", browser.title()), reversed)];
    match browser.overlay {
        Some(Overlay::Help) => lines.extend(HELP.lines().map(|line| (line.to_owned(), Style::new()))),
        Some(Overlay::Notes) => {
            let notes = browser.listing(width).map(|listing| listing.notes.clone()).unwrap_or_default();
            lines.extend(notes.iter().flat_map(|note| wrapped(note, width)).map(|line| (line, Style::new())));
        }
        None => page(browser, &mut lines, (width, height), [bold, dim, reversed]),
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), (String::new(), Style::new()));
    lines.push((browser.last_line(), dim));
    let is_ascii = is_ascii_only();
    let text = |line: String| if is_ascii { to_ascii(&line).to_string() } else { line };
    let lines: Vec<Line<'_>> = lines.into_iter().map(|(line, style)| Line::styled(text(line), style)).collect();
    frame.render_widget(Paragraph::new(lines), frame.area());
}

/// The lines of the page that is shown, as many as fit between the title and the last line.
fn page(
    browser: &mut Browser,
    lines: &mut Vec<(String, Style)>,
    (width, height): (usize, usize),
    [bold, dim, reversed]: [Style; 3],
) {
    let Some(listing) = browser.listing(width) else { return };
    let left = height.saturating_sub(lines.len() + 2 + listing.totals.len());
    let above = listing.above.len().min(left / ABOVE_PART);
    let (first, chosen) = browser.scroll(left - above);
    let Some(listing) = browser.listing(width) else { return };
    lines.extend(listing.above.iter().take(above).map(|line| (line.clone(), dim)));
    lines.push((listing.header.clone(), bold));
    let rows = listing.rows.iter().enumerate().skip(first).take(left - above);
    lines.extend(rows.map(|(at, row)| match at == chosen {
        true => (format!("{:width$}", row.text), reversed),
        false => (row.text.clone(), Style::new()),
    }));
    lines.extend(listing.totals.iter().map(|line| (line.clone(), bold)));
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
