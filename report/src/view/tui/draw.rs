//! Draws the screen.

use crate::model::text::{fit_middle, wrap};
use crate::view::{FlameBox, to_ascii};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::browser::{Browser, Overlay};
use super::dashboard::draw_scrollbar;
use super::palette::{Charset, Palette};
use crate::view::hues::Hue;

const HELP: &str = "\
↑ ↓ k j, PgUp PgDn, Home End   go to a row
Enter → l        open the row: program, functions, lines, instructions
c                all columns of the table of programs
Esc ← Backspace  back
a                annotate: source lines with instructions; again: instructions on or off
t                tree: the program's functions, and what they called; T: of all programs
g                flame graph of the program in the kernel, for all tasks; G: of all samples
Tab Shift-Tab    flame graph: next or previous box in the row; Enter zooms into it
p                who pays for the program; P: for all programs
b                bill: what each owner of programs costs the machine
s S              next or previous sort order
/ f              filter programs while typing: part of a name, a pattern with * and ?, an id or a tag
e                next event
n                notes about the numbers
Space            bprec top: pause or continue
+ -              bprec top: longer or shorter interval
w                bprec top: write the last samples to a file
mouse            click: choose a row; again: open it; wheel: move; with Shift, the terminal selects text
q Ctrl-C         quit";

/// Column in which the meanings of keys begin.
const MEANINGS: usize = 17;
/// Divisor of the page's height: the text above a table takes at most this part of the height.
const ABOVE_PART: u16 = 3;

/// Draws the current page of a browser.
pub fn draw(frame: &mut Frame<'_>, browser: &mut Browser) {
    let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
    let [title, body, last] = Layout::vertical(rows).areas(frame.area());
    let charset = browser.palette.charset;
    frame.render_widget(browser_title(browser, title.width), title);
    match browser.overlay {
        Some(overlay) => {
            let (text, hanging) = match overlay {
                Overlay::Help => (HELP.to_owned(), MEANINGS),
                Overlay::Notes => {
                    (browser.listing(body.width.into()).map_or(String::new(), |it| it.notes.join("\n")), 0)
                }
            };
            let lines = wrapped(&charset.shown(&text), body.width.saturating_sub(1).into(), hanging);
            browser.overlay_top = browser.overlay_top.min(lines.len().saturating_sub(body.height.into()));
            browser.set_rows_area(body);
            draw_scrollbar(frame, body, lines.len(), &TableState::new().with_offset(browser.overlay_top));
            let shown = lines.into_iter().skip(browser.overlay_top).map(Line::from).collect::<Vec<_>>();
            frame.render_widget(Paragraph::new(shown), Rect { width: body.width.saturating_sub(1), ..body });
        }
        None if browser.has_dashboard() => {
            let drawn = browser.dashboard().map(|(dashboard, state)| dashboard.draw(frame, body, state));
            browser.set_rows_area(drawn.unwrap_or_default());
        }
        None => draw_page(frame, browser, body),
    }
    frame.render_widget(Paragraph::new(last_line(&charset.shown(&browser.last_line()), last.width)), last);
    if charset == Charset::Ascii {
        for cell in &mut frame.buffer_mut().content {
            // Texts are ASCII already; bars and lines become one character each.
            let ascii = to_ascii(cell.symbol()).chars().next().unwrap_or(' ');
            cell.set_char(ascii);
        }
    }
}

/// Lines of a text, wrapped to `width` columns. Further lines of a wrapped line begin in column `hanging`.
fn wrapped(text: &str, width: usize, hanging: usize) -> Vec<String> {
    let of_line = |line| wrap(line, width, 0, hanging).into_iter().enumerate();
    let indented = |(nth, line): (usize, String)| " ".repeat(if nth > 0 { hanging } else { 0 }) + &line;
    text.lines().flat_map(of_line).map(indented).collect()
}

/// Last line of the screen. In a list of keys, the keys are bold, and keys that do not fit are left out. A longer prompt or message loses its middle:
/// the end of a prompt is where the user types.
fn last_line(text: &str, width: u16) -> Line<'static> {
    if !text.starts_with(KEYS) {
        return Line::from(fit_middle(text, width.into()).into_owned());
    }
    let mut line = Line::default();
    for part in text.split("  ") {
        let (key, meaning) = part.split_once(' ').unwrap_or((part, ""));
        if line.width() + Span::raw(part).width() <= usize::from(width) {
            line.push_span(key.to_owned().bold());
            line.push_span(format!(" {meaning}  ").dim());
        }
    }
    line
}

/// Start of a last line that lists keys.
const KEYS: &str = "q quit";

/// Draws the current page, between the title and the last line.
fn draw_page(frame: &mut Frame<'_>, browser: &mut Browser, area: Rect) {
    // A flame graph takes all columns. Other pages leave the last column to the scrollbar.
    let bar = u16::from(!browser.is_flame_graph());
    let charset = browser.palette.charset;
    let Some(listing) = browser.listing(usize::from(area.width.saturating_sub(bar))) else { return };
    let lines = |lines: &[String]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let text_above = wrapped(&charset.shown(&listing.above.join("\n")), area.width.into(), 0);
    let (above, totals, rows) = (lines(&text_above), lines(&listing.totals), listing.rows.len());
    let chosen_box = browser.chosen_box().cloned();
    let boxes = u16::from(chosen_box.is_some());
    let left = area.height.saturating_sub(totals.saturating_add(1 + boxes));
    let above = above.min(left / ABOVE_PART);
    let rows = u16::try_from(rows).unwrap_or(u16::MAX).min(left - above);
    let heights = [above, 1, rows, boxes, totals].map(Constraint::Length);
    let [above, header, rows, chosen, totals] = Layout::vertical(heights).areas(area);
    browser.set_rows_area(rows);
    let Some((listing, palette, state)) = browser.list() else { return };
    frame.render_widget(Paragraph::new(text_above.join("\n")).dim(), above);
    frame.render_widget(Paragraph::new(charset.shown(&listing.header)).bold(), header);
    let selected = state.selected();
    let items = listing.rows.iter().enumerate().map(|(at, row)| match &chosen_box {
        Some(_) => {
            Row::new([with_boxes(&row.text, &row.boxes, chosen_box.as_ref().filter(|_| selected == Some(at)), palette)])
        }
        None => Row::new([Line::raw(charset.shown(&row.text))]),
    });
    let highlight = if chosen_box.is_some() { Style::new() } else { palette.chosen(Hue::GREY) };
    let table = Table::new(items, [Constraint::Fill(1)]).row_highlight_style(highlight);
    frame.render_stateful_widget(table, rows, state);
    if bar > 0 {
        draw_scrollbar(frame, rows, listing.rows.len(), state);
    }
    let text = chosen_box.map(|it| charset.shown(&it.text)).unwrap_or_default();
    frame.render_widget(Paragraph::new(text).bold(), chosen);
    frame.render_widget(Paragraph::new(charset.shown(&listing.totals.join("\n"))).bold(), totals);
}

/// Title of the page. On the first page, facts about the machine and the measurement follow on the right, if they fit.
fn browser_title(browser: &Browser, width: u16) -> Line<'static> {
    let charset = browser.palette.charset;
    let title = charset.shown(&browser.title());
    let facts = charset.shown(browser.machine_facts());
    let free = usize::from(width).saturating_sub(Span::raw(&title).width() + 2);
    let mut fitting = String::new();
    for fact in facts.split(" · ") {
        let longer = if fitting.is_empty() { fact.to_owned() } else { format!("{fitting} · {fact}") };
        if Span::raw(&longer).width() <= free {
            fitting = longer;
        }
    }
    let gap = " ".repeat(2 + free - Span::raw(&fitting).width().min(free));
    Line::from_iter([title.bold(), gap.into(), fitting.dim()])
}

/// A row of a flame graph: its boxes in the styles of [`Palette::frame`], the chosen box in reverse video.
fn with_boxes(row: &str, boxes: &[FlameBox], chosen: Option<&FlameBox>, palette: &Palette) -> Line<'static> {
    let part = |from: usize, to: usize| palette.charset.shown(&row.chars().take(to).skip(from).collect::<String>());
    let mut line = Line::default();
    let mut end = 0;
    for (at, of_row) in boxes.iter().enumerate() {
        line.push_span(part(end, of_row.columns.start));
        let style = match chosen == Some(of_row) {
            true => Style::new().reversed(),
            false => palette.frame(at),
        };
        line.push_span(Span::styled(part(of_row.columns.start, of_row.columns.end), style));
        end = of_row.columns.end;
    }
    line.push_span(part(end, usize::MAX));
    line
}
