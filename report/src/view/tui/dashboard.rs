//! The first page: cost of BPF, cost over time, programs, the chosen program, and confidence in the numbers.

use std::cmp::Reverse;

use crate::model::text::{fit, fit_middle};
use crate::view::{CostPart, FirstScreen, HotLine, ScreenRow, Trust};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Borders, Cell, Paragraph, Row, Scrollbar, ScrollbarOrientation, ScrollbarState, Table, TableState,
};

use super::palette::Palette;
use crate::view::hues::Hue;

/// Fillings of BPF, kernel, user and idle in the bar of the machine.
const FILLED: [char; 4] = ['█', '▓', '▒', '░'];
/// Characters of the self, helper and entry parts of a cost bar, on a terminal that shows shades of a hue.
const SHADED_BARS: [char; 3] = ['▆', '▆', '▆'];
/// Characters of the self, helper and entry parts of a cost bar, on a terminal without shades: their heights tell the parts apart.
const STEPPED_BARS: [char; 3] = ['▆', '▄', '▂'];
/// Brightness of the hue in bars of self, helper and entry; 1 is the full hue.
const PART_LIGHT: [f64; 3] = [1.0, 0.62, 0.36];
/// Blocks of zero to eight eighths of a cell.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters that fill neighbouring layers on a terminal without colours.
const FILLINGS: [char; 3] = ['█', '▒', '░'];
/// Width, in columns, of the scale beside the chart of cost over time.
const SCALE_WIDTH: u16 = 6;
/// Least width, in columns, of a screen that shows bars over time, and three lists about the chosen program.
const WIDE: u16 = 100;
/// Least width, in columns, of the bar of the machine. If it would be narrower, the names of its parts are left out to make room.
const BAR_WIDTH: usize = 12;
/// Least width, in columns, of the list of payers in a row.
const PAYERS_WIDTH: u16 = 20;
/// Least and largest number of rows of the chart of cost over time, including its line of times.
const AREA_ROWS: (u16, u16) = (5, 18);
/// Least and largest number of rows of the panel about the chosen program, including its title and headings.
const PANEL_ROWS: (u16, u16) = (6, 11);
/// Least free rows of a screen that shows the chart and the panel.
const TALL: u16 = 14;
/// Rows of programs that a tall screen shows before the chart and the panel grow.
const PROGRAM_ROWS: u16 = 8;

/// Data and colours of the first page.
pub(super) struct Dashboard<'d> {
    pub(super) screen: &'d FirstScreen,
    pub(super) hues: &'d [Hue],
    pub(super) palette: &'d Palette,
    /// True for a recording that is under way.
    pub(super) is_live: bool,
    /// True if the user's filter selects the programs.
    pub(super) is_filtered: bool,
}

impl Dashboard<'_> {
    /// Draws the page; returns the area of the rows of programs.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut TableState) -> Rect {
        let rows = u16::try_from(self.screen.programs.len()).unwrap_or(u16::MAX).max(1);
        // Three lines are taken: the total, the heading of the table, and the confidence in the numbers.
        let free = area.height.saturating_sub(3);
        let (mut over_time, mut panel) = (0, 0);
        if free >= TALL && !self.screen.programs.is_empty() {
            let left = free - AREA_ROWS.0 - PANEL_ROWS.0;
            let left = left.saturating_sub(rows.min((left * 2 / 3).max(left.min(PROGRAM_ROWS))));
            let lists = |row: &ScreenRow| row.payers.len().max(row.parts.len()).max(row.lines.len());
            let longest = self.screen.programs.iter().map(lists).max().unwrap_or(0) as u16;
            let needed = (longest + 2).clamp(PANEL_ROWS.0, PANEL_ROWS.1);
            let more = (left / 2).min(needed - PANEL_ROWS.0);
            panel = PANEL_ROWS.0 + more;
            over_time = (AREA_ROWS.0 + left - more).min(AREA_ROWS.1);
        }
        let rows = (rows + 1).min(area.height.saturating_sub(2 + over_time + panel));
        let [total, over_time, rows, trust] = [1, over_time, rows, 1].map(Constraint::Length);
        let heights = [total, over_time, rows, Constraint::Fill(1), trust];
        let [total, over_time, table, panel, trust] = Layout::vertical(heights).areas(area);
        self.draw_total(frame, total);
        self.draw_over_time(frame, over_time);
        let table = self.draw_programs(frame, table, state);
        match state.selected() {
            Some(at) if at < self.screen.programs.len() => self.draw_chosen(frame, panel, at),
            _ if self.is_filtered => {
                frame.render_widget(Paragraph::new(" The filter selects no program that costs time.").dim(), panel)
            }
            _ => frame.render_widget(Paragraph::new(" No BPF program costs time here.").dim(), panel),
        }
        frame.render_widget(self.trust(trust.width), trust);
        table
    }

    fn style(&self, hue: Hue) -> Style {
        Style::new().fg(self.palette.color(hue))
    }

    /// Cost of BPF, and the machine as one bar.
    fn draw_total(&self, frame: &mut Frame<'_>, area: Rect) {
        let percent = format!(" {} % ", self.screen.percent);
        let text = Line::from_iter([percent.bold(), self.palette.charset.shown(&self.screen.of).into(), "  ".into()]);
        // BPF, kernel, user and idle, from left to right.
        let parts = self.screen.machine.iter().rev().map(|part| {
            let at = ["BPF", "kernel", "user"].iter().position(|name| *name == part.name);
            (at.unwrap_or(FILLED.len() - 1), part)
        });
        let light = [1.0, 0.9, 0.65, 0.45];
        let hue = |at: usize| match at {
            0 => self.hues.iter().find(|hue| **hue != Hue::GREY).copied().unwrap_or(Hue::GREY),
            _ => Hue::GREY.dimmed(light[at]),
        };
        let mut legend = Line::default();
        for (at, part) in parts.clone() {
            legend.push_span(Span::styled(format!("  {}", FILLED[at]), self.style(hue(at))));
            legend.push_span(format!(" {} {}", part.name, part.text).dim());
        }
        if text.width() + legend.width() + BAR_WIDTH > usize::from(area.width) {
            legend = Line::default();
        }
        let width = usize::from(area.width).saturating_sub(text.width() + legend.width() + 1);
        let mut bar = Line::default();
        let (mut drawn, mut sum) = (0, 0.0);
        for (at, part) in parts {
            sum += part.percent;
            let least = drawn + usize::from(part.percent > 0.0);
            let to = ((sum * width as f64 / 100.0).round() as usize).clamp(least, width.max(least));
            bar.push_span(Span::styled(FILLED[at].to_string().repeat(to - drawn), self.style(hue(at))));
            drawn = to;
        }
        let spans = text.spans.into_iter().chain(bar.spans).chain(legend.spans);
        frame.render_widget(Paragraph::new(Line::from_iter(spans)), area);
    }

    /// Cost of each program over time, stacked on one scale; loads and unloads below.
    fn draw_over_time(&self, frame: &mut Frame<'_>, area: Rect) {
        let Rect { x, y, width, height } = area;
        let (left, plot) = (SCALE_WIDTH.min(width), width.saturating_sub(SCALE_WIDTH + 1));
        let rows = height.saturating_sub(1);
        let points = self.screen.programs.iter().map(|row| row.series.len()).max().unwrap_or(0);
        if rows == 0 || plot == 0 || points == 0 {
            return;
        }
        let highest =
            (0..points).map(|at| self.screen.programs.iter().filter_map(|row| row.series.get(at)).sum::<f64>());
        let most = round_up(highest.fold(0.0, f64::max));
        let scale = |percent: f64| Line::from(format!("{percent} ")).alignment(Alignment::Right).dim();
        frame.render_widget(scale(most), Rect { width: left, height: 1, ..area });
        frame.render_widget(scale(0.0), Rect { y: y + rows - 1, width: left, height: 1, ..area });
        // Layers are sorted by hue, so that a program keeps its layer when rows change their order.
        let mut order: Vec<usize> = (0..self.screen.programs.len()).collect();
        order.sort_by_key(|at| Reverse((self.hues[*at].number.unwrap_or(usize::MAX), self.hues[*at].rgb)));
        for column in 0..plot {
            let at = usize::from(column) * points / usize::from(plot);
            let mut base = 0.0;
            let layers = order.iter().enumerate().map(|(layer, row)| {
                base += self.screen.programs[*row].series.get(at).copied().unwrap_or(0.0);
                ((base * f64::from(rows) * 8.0 / most).round() as usize, layer, self.hues[*row])
            });
            let layers: Vec<(usize, usize, Hue)> = layers.collect();
            self.draw_column(frame.buffer_mut(), Rect { x: x + left + column, y, width: 1, height: rows }, &layers);
        }
        let axis = Rect { x: x + left, y: y + rows, width: plot, height: 1 };
        frame.render_widget(self.axis(plot.into()).dim(), axis);
    }

    /// Draws a column of the chart. Layers are (top in eighths of a cell, index of the layer, hue), the lowest layer first.
    fn draw_column(&self, buffer: &mut Buffer, column: Rect, layers: &[(usize, usize, Hue)]) {
        for row in 0..usize::from(column.height) {
            let (from, to) = (row * 8, row * 8 + 8);
            let Some(at) = layers.iter().position(|(top, ..)| *top > from) else { break };
            let (top, layer, hue) = layers[at];
            let above = layers[at..].iter().find(|(above, ..)| *above > top.min(to)).filter(|_| top < to);
            let mut style = self.style(hue);
            if let Some((.., above)) = above {
                style = style.bg(self.palette.color(*above));
            }
            let is_filled = top >= to || above.is_some() && !self.palette.has_colors();
            let symbol = match is_filled {
                true if self.palette.has_colors() => EIGHTHS[8],
                true => FILLINGS[layer % FILLINGS.len()],
                false => EIGHTHS[top - from],
            };
            let y = column.bottom() - 1 - row as u16;
            buffer[(column.x, y)].set_char(symbol).set_style(style);
        }
    }

    /// Line below the chart: first and last time, and the loads and unloads that fit.
    fn axis(&self, width: usize) -> Line<'static> {
        let length_s = self.screen.series_s;
        let [first, last] = match self.is_live {
            true => [format!("{length_s:.0} s ago"), "now".to_owned()],
            false => ["0 s".to_owned(), format!("{length_s:.1} s")],
        };
        let mut axis: Vec<char> = vec![' '; width];
        let mut write = |at: usize, text: &str, gap: usize| {
            let end = at + text.chars().count();
            let is_free =
                end <= width && axis[at.saturating_sub(gap)..(end + gap).min(width)].iter().all(|c| *c == ' ');
            if is_free {
                axis.splice(at..end, text.chars());
            }
        };
        write(0, &first, 0);
        write(width.saturating_sub(last.len()), &last, 1);
        for flag in &self.screen.flags {
            let part = (flag.at_s - self.screen.series_from_s) / length_s;
            if (0.0..1.0).contains(&part) {
                write((part * width as f64) as usize, &format!("▲ {}", self.palette.charset.shown(&flag.text)), 1);
            }
        }
        Line::from(axis.into_iter().collect::<String>())
    }

    /// Highest share of any row at any time, %: the common scale of all bars over time.
    fn highest(&self) -> f64 {
        self.screen.programs.iter().flat_map(|row| &row.series).copied().fold(0.0, f64::max)
    }

    /// Table of programs; returns the area of its rows.
    fn draw_programs(&self, frame: &mut Frame<'_>, area: Rect, state: &mut TableState) -> Rect {
        let columns = ScreenColumns::of(area.width, self.screen, self.is_live);
        let most = self.screen.programs.iter().map(|row| row.percent).fold(0.0, f64::max);
        let rows = self.screen.programs.iter().zip(self.hues).enumerate().map(|(at, (row, hue))| {
            let line = Row::new(columns.0.iter().map(|(column, width)| self.cell(*column, *width, row, *hue, most)));
            if state.selected() == Some(at) { line.style(self.palette.chosen(*hue)) } else { line }
        });
        let heading = columns.0.iter().map(|(column, _)| {
            let name = column.heading(self.screen, self.is_live);
            Cell::from(Line::from(name).alignment(column.alignment()))
        });
        let table = Table::new(rows, columns.0.iter().map(|(_, width)| Constraint::Length(*width)))
            .header(Row::new(heading).dim())
            .column_spacing(1);
        frame.render_stateful_widget(table, Rect { width: area.width.saturating_sub(1), ..area }, state);
        let rows = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        draw_scrollbar(frame, rows, self.screen.programs.len(), state);
        rows
    }

    fn cell(&self, column: ScreenColumn, width: u16, row: &ScreenRow, hue: Hue, most: f64) -> Cell<'static> {
        let width = usize::from(width);
        let line = match column {
            ScreenColumn::Mark => Line::from(Span::styled("▌", self.style(hue))),
            ScreenColumn::Program => Line::from(self.palette.charset.shown(&fit_middle(&row.name, width))),
            ScreenColumn::Cost => Line::from(row.text.clone()).bold(),
            ScreenColumn::Bar => self.bar(row, hue, width, most),
            ScreenColumn::Statistics => Line::from(row.statistics.clone()),
            ScreenColumn::Runs => Line::from(self.palette.charset.shown(&row.runs)),
            ScreenColumn::Time => Line::from(self.palette.charset.shown(&row.time)),
            ScreenColumn::Spark => Line::from(Span::styled(spark(&row.series, width, self.highest()), self.style(hue))),
            ScreenColumn::Payers => {
                let of_row =
                    |part: &CostPart| part.percent * 100.0 / row.payers.iter().map(|it| it.percent).sum::<f64>();
                let payers = row.payers.iter().map(|it| (&it.name, format!("{:.0}", of_row(it))));
                Line::from(self.palette.charset.shown(&fitting_payers(payers, width))).dim()
            }
        };
        Cell::from(line.alignment(column.alignment()))
    }

    /// Cost of a row as a bar, split into self, helper and entry.
    fn bar(&self, row: &ScreenRow, hue: Hue, width: usize, most: f64) -> Line<'static> {
        let cells = |percent: f64| (percent * width as f64 / most.max(f64::MIN_POSITIVE)).round() as usize;
        let bars = if self.palette.has_shades() { SHADED_BARS } else { STEPPED_BARS };
        let (mut drawn, mut sum) = (0, 0.0);
        let mut line = Line::default();
        for ((part, bar), light) in row.columns.iter().zip(bars).zip(PART_LIGHT) {
            sum += part;
            let to = cells(sum).max(drawn);
            line.push_span(Span::styled(bar.to_string().repeat(to - drawn), self.style(hue.dimmed(light))));
            drawn = to;
        }
        // If self, helper and entry are less than the cost, the bar is continued up to the cost.
        let rest = cells(row.percent).max(usize::from(row.percent > 0.0)).saturating_sub(drawn);
        line.push_span(Span::styled(bars[0].to_string().repeat(rest), self.style(hue)));
        line
    }

    /// Payers, parts and hottest lines of the chosen program.
    fn draw_chosen(&self, frame: &mut Frame<'_>, area: Rect, at: usize) {
        let (row, hue) = (&self.screen.programs[at], self.hues[at]);
        let title = Line::from_iter([
            Span::styled(" ■ ", self.style(hue)).not_dim(),
            self.palette.charset.shown(&row.name).bold().not_dim(),
            format!("  {} ", self.palette.charset.shown(&row.about)).dim(),
        ]);
        let block = Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(title);
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let of = ScreenColumn::Cost.heading(self.screen, self.is_live);
        let line = |it: &HotLine| CostPart { name: place(it), percent: it.percent, text: it.text.clone() };
        let lists = [
            (format!("PAID BY, {of}"), row.payers.clone()),
            ("MADE OF, %PROGRAM".to_owned(), row.parts.clone()),
            ("HOTTEST LINES, %PROGRAM".to_owned(), row.lines.iter().map(line).collect()),
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        // A narrow screen shows two of the three lists. The parts are left out, because the hottest lines say more.
        let mut lists: Vec<_> = lists.collect();
        if area.width < WIDE && lists.len() == 3 {
            lists.remove(1);
        }
        let widths = lists.iter().enumerate().map(|(at, _)| Constraint::Fill(if at == 2 { 2 } else { 1 }));
        for ((heading, list), area) in lists.iter().zip(Layout::horizontal(widths).spacing(2).split(inner).iter()) {
            self.draw_list(frame, *area, heading, list, hue);
        }
    }

    fn draw_list(&self, frame: &mut Frame<'_>, area: Rect, heading: &str, list: &[CostPart], hue: Hue) {
        const SHARE: usize = 7;
        const BAR: usize = 8;
        let most = list.iter().map(|part| part.percent).fold(0.0, f64::max);
        let name = usize::from(area.width).saturating_sub(SHARE + BAR + 1);
        let lines = list.iter().map(|part| {
            let bar = ((part.percent * BAR as f64 / most).round() as usize).max(1);
            let bar = Span::styled(SHADED_BARS[0].to_string().repeat(bar), self.style(hue));
            let gap = " ".repeat(BAR.saturating_sub(bar.width()) + 1);
            Line::from_iter([
                format!("{:>6} ", part.text).bold(),
                bar,
                gap.into(),
                self.palette.charset.shown(&fit(&part.name, name)).into(),
            ])
        });
        let lines: Vec<Line<'_>> = [Line::from(heading.to_owned()).dim()].into_iter().chain(lines).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// Statements about the confidence in the numbers; statements about missing data come first.
    fn trust(&self, width: u16) -> Line<'static> {
        let mut said: Vec<&Trust> = self.screen.trust.iter().collect();
        said.sort_by_key(|trust| !trust.lacks);
        let mut line = Line::default();
        for trust in said {
            let text = format!(
                "{}{}",
                if line.spans.is_empty() { " " } else { " · " },
                self.palette.charset.shown(&trust.text)
            );
            if line.width() + Span::raw(&text).width() <= usize::from(width) {
                line.push_span(if trust.lacks { Span::styled(text, self.palette.warning()) } else { text.dim() });
            }
        }
        line
    }
}

/// Column of the table of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScreenColumn {
    Mark,
    Program,
    Cost,
    Bar,
    Statistics,
    Runs,
    Time,
    Spark,
    Payers,
}

impl ScreenColumn {
    fn heading(self, screen: &FirstScreen, is_live: bool) -> String {
        match self {
            ScreenColumn::Mark => String::new(),
            ScreenColumn::Program => "PROGRAM".to_owned(),
            ScreenColumn::Cost if screen.is_of_machine => "%MACHINE".to_owned(),
            ScreenColumn::Cost => "%SAMPLES".to_owned(),
            ScreenColumn::Bar => "COST".to_owned(),
            ScreenColumn::Statistics => "STATS%".to_owned(),
            ScreenColumn::Runs => "RUNS/S".to_owned(),
            ScreenColumn::Time => "TIME/RUN".to_owned(),
            ScreenColumn::Spark if is_live => format!("{:.0} S", screen.series_s),
            ScreenColumn::Spark => "OVER TIME".to_owned(),
            ScreenColumn::Payers => "PAID BY, %".to_owned(),
        }
    }

    fn alignment(self) -> Alignment {
        match self {
            ScreenColumn::Cost | ScreenColumn::Statistics | ScreenColumn::Runs | ScreenColumn::Time => Alignment::Right,
            ScreenColumn::Mark
            | ScreenColumn::Program
            | ScreenColumn::Bar
            | ScreenColumn::Spark
            | ScreenColumn::Payers => Alignment::Left,
        }
    }
}

/// Columns with their widths.
struct ScreenColumns(Vec<(ScreenColumn, u16)>);

impl ScreenColumns {
    /// Columns for a screen of `width` columns: names and costs always, other columns from certain widths on.
    fn of(width: u16, screen: &FirstScreen, is_live: bool) -> ScreenColumns {
        let has_runs = screen.programs.iter().any(|row| !row.runs.is_empty());
        let mut columns = vec![(ScreenColumn::Mark, 1), (ScreenColumn::Program, 0), (ScreenColumn::Cost, 8)];
        if width >= 70 {
            columns.push((ScreenColumn::Bar, if width >= WIDE { 20 } else { 10 }));
        }
        if has_runs && is_live {
            columns.push((ScreenColumn::Statistics, 6));
        }
        if has_runs && width >= 50 {
            columns.push((ScreenColumn::Runs, 8));
        }
        if has_runs && width >= 60 {
            columns.push((ScreenColumn::Time, 9));
        }
        if width >= WIDE {
            columns.push((ScreenColumn::Spark, 12));
        }
        let longest = screen.programs.iter().map(|row| Span::raw(&row.name).width()).max().unwrap_or(0).max(7);
        // The last column of the screen is for the scrollbar.
        let taken: u16 = columns.iter().map(|(_, width)| width + 1).sum();
        let free = width.saturating_sub(taken);
        let mut name = free.min(u16::try_from(longest).unwrap_or(u16::MAX));
        if width >= 120 {
            name = name.min(free.saturating_sub(PAYERS_WIDTH + 1));
            columns.push((ScreenColumn::Payers, free.saturating_sub(name + 1)));
        }
        columns[1].1 = name;
        ScreenColumns(columns)
    }
}

/// Draws a scrollbar on the right if the rows do not fit into the area.
pub(super) fn draw_scrollbar(frame: &mut Frame<'_>, area: Rect, rows: usize, state: &TableState) {
    let hidden = rows.saturating_sub(area.height.into());
    if hidden > 0 {
        let mut state = ScrollbarState::new(hidden + 1).position(state.offset());
        let bar = Scrollbar::new(ScrollbarOrientation::VerticalRight).begin_symbol(None).end_symbol(None);
        frame.render_stateful_widget(bar.track_symbol(Some("│")).thumb_symbol("█"), area, &mut state);
    }
}

/// Payers with their shares, the largest first. Payers that do not fit into `width`, and payers of less than half a per cent, are left out.
fn fitting_payers<'p>(payers: impl Iterator<Item = (&'p String, String)>, width: usize) -> String {
    let mut text = String::new();
    for (name, share) in payers.filter(|(_, share)| share != "0") {
        let separator = if text.is_empty() { "" } else { " · " };
        let payer = format!("{separator}{} {share}", fit_middle(name, width.saturating_sub(share.len() + 1)));
        if Span::raw(&text).width() + Span::raw(&payer).width() > width {
            break;
        }
        text += &payer;
    }
    text
}

/// File, line number and text of a source line.
fn place(line: &HotLine) -> String {
    format!("{}:{} {}", line.file, line.line, line.source)
}

/// Bars of a series. A share of `most` per cent has the full height.
fn spark(series: &[f64], width: usize, most: f64) -> String {
    let parts = width.min(series.len());
    let mean = |at: usize| {
        let part = &series[at * series.len() / parts..(at + 1) * series.len() / parts];
        part.iter().sum::<f64>() / part.len() as f64
    };
    let bar = |share: f64| EIGHTHS[if most > 0.0 { (share * 8.0 / most).ceil() as usize } else { 0 }.min(8)];
    (0..parts).map(|at| bar(mean(at))).collect()
}

/// Smallest round number (1, 1.2, 1.5, 2, … times a power of ten) that is at least `value`.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(0.01).log10().floor());
    let found = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].into_iter().find(|it| it * power >= value);
    (found.unwrap_or(10.0) * power * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::model::History;
    use crate::view::tui::palette::{Charset, Depth};
    use crate::{Input, Options, Session, Sort};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).into()
    }

    /// Draws a page with the first row selected; returns its text.
    fn drawn(screen: &FirstScreen, is_live: bool, (width, height): (u16, u16), depth: Depth) -> String {
        let mut palette = Palette::new(depth, Charset::Unicode);
        let hues = palette.hues(&screen.programs);
        let dashboard = Dashboard { screen, hues: &hues, palette: &palette, is_live, is_filtered: false };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut state = TableState::default().with_selected(0);
        terminal
            .draw(|frame| {
                dashboard.draw(frame, frame.area(), &mut state);
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer
            .content
            .chunks(usize::from(width).max(1))
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
        lines.map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    fn recording() -> FirstScreen {
        let input = Input::open(root().join("../fixtures/recordings/linux-7.2/everything.data")).unwrap();
        let (report, overviews) = Session::open(&input).unwrap().overviews(&Options::default()).unwrap();
        report.first_screen(0, &overviews[0])
    }

    /// First screen of the last interval of a recording, with the history of all intervals.
    fn interval() -> FirstScreen {
        let input = Input::open(root().join("../fixtures/recordings/linux-6.18/busy.data")).unwrap();
        let session = Session::open(&input).unwrap();
        let options = Options { sort: Sort::Cpu, ..Options::default() };
        let times = session.read_times_ns();
        let mut history = History::default();
        let mut screen = FirstScreen::default();
        for bounds in times.windows(2) {
            let interval = session.interval_with_samples(&options, (bounds[0], bounds[1]), times[0]).unwrap();
            history.push(&interval);
            screen = interval.first_screen(0, &history);
        }
        screen
    }

    /// Pages at common terminal sizes. `BPREC_UPDATE=1` rewrites the expected pages.
    #[test]
    fn pages_are_as_expected() {
        let pages = [("recording", recording(), false), ("interval", interval(), true)];
        for (name, screen, is_live) in &pages {
            for (width, height) in [(120, 38), (80, 22), (60, 13)] {
                let page = drawn(screen, *is_live, (width, height), Depth::Full);
                let path = root().join(format!("src/view/tui/expected/{name}-{width}x{height}.txt"));
                if std::env::var_os("BPREC_UPDATE").is_some() {
                    std::fs::write(&path, &page).unwrap();
                }
                let expected = std::fs::read_to_string(&path).unwrap_or_default();
                assert_eq!(page, expected, "{}", path.display());
            }
        }
    }

    /// Pages of any size are drawn, with and without colours, and no row shows a cost of 0.00.
    #[test]
    fn pages_of_any_size_are_drawn() {
        for screen in [FirstScreen::default(), recording(), interval()] {
            for depth in [Depth::Plain, Depth::Sixteen, Depth::Indexed, Depth::Full] {
                for width in [0, 1, 7, 20, 49, 69, 99, 130, 300] {
                    for height in [0, 1, 2, 3, 8, 17, 30, 70] {
                        let page = drawn(&screen, true, (width, height), depth);
                        assert!(page.lines().all(|line| !line.starts_with('▌') || !line.contains(" 0.00 ")), "{page}");
                    }
                }
            }
        }
    }

    /// The lengths of the bars are in proportion to the shares; the largest share has the full length.
    #[test]
    fn bars_have_the_lengths_of_shares() {
        let palette = Palette::new(Depth::Full, Charset::Unicode);
        let screen = FirstScreen::default();
        let dashboard = Dashboard { screen: &screen, hues: &[], palette: &palette, is_live: false, is_filtered: false };
        let row = |percent: f64, columns: [f64; 3]| {
            let mut row = ScreenRow::default();
            (row.percent, row.columns) = (percent, columns);
            row
        };
        let lengths = |row: &ScreenRow| {
            let bar = dashboard.bar(row, Hue::GREY, 20, 10.0);
            bar.spans.iter().map(Span::width).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&row(10.0, [5.0, 3.0, 2.0])), [10, 6, 4, 0]);
        assert_eq!(lengths(&row(5.0, [0.0; 3])), [0, 0, 0, 10], "parts are unknown");
        assert_eq!(lengths(&row(0.01, [0.01, 0.0, 0.0])), [0, 0, 0, 1], "a cost is seen");
        assert_eq!([0.0, 0.3, 1.0, 4.2, 12.0, 99.0].map(round_up), [0.01, 0.3, 1.0, 5.0, 12.0, 100.0]);
        assert_eq!(spark(&[0.0, 1.0, 4.0, 8.0], 4, 8.0), " ▁▄█");
        assert_eq!(spark(&[1.0, 3.0, 8.0, 8.0], 2, 8.0), "▂█");
    }

    /// No name or share of a payer is cut off at the end of the column.
    #[test]
    fn payers_that_do_not_fit_are_left_out() {
        let [nginx, worker, idle] = ["nginx", "a-very-long-name-of-a-worker", "idle"].map(str::to_owned);
        let payers = || [(&nginx, "60".to_owned()), (&worker, "39".to_owned()), (&idle, "0".to_owned())].into_iter();
        assert_eq!(fitting_payers(payers(), 20), "nginx 60");
        assert_eq!(fitting_payers(payers(), 60), "nginx 60 · a-very-long-name-of-a-worker 39");
        assert_eq!(fitting_payers(payers().skip(1), 12), "a-ve…rker 39");
    }
}
