//! Text tables of aligned columns, cut to the width of a screen.

use super::line::{TonedLine, share_tone};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, fit, fit_middle, printable, width_of};
use crate::options::Tone;
use std::io;

/// Limit on the text of a table that stays in memory between measuring and writing, bytes: some thousand rows.
const KEPT_BYTES: usize = 1 << 18;

/// A column: name, alignment, and behaviour if the table is too wide.
#[derive(Debug, Clone)]
pub(super) struct Column {
    name: String,
    align: Align,
    /// Meaning of the column for the legend; empty if the name is clear.
    what: &'static str,
    /// Drop order if the table is too wide: the column with the highest order is dropped first. 0 for a column that should stay.
    drop_order: u8,
    /// Least width that a text column is cut to; `None` for a column whose cells are never cut.
    cut_to: Option<usize>,
    /// Part of a long cell that is replaced by `…`.
    cut: Cut,
    /// True to show the column even without content.
    always: bool,
    /// Text that counts as no content, besides the empty text and `n/a`; may be empty.
    nothing: &'static str,
    /// Returns the tone of a cell from its text.
    tone: fn(&str) -> Option<Tone>,
}

/// Part of a long text that `…` replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Middle,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

impl Column {
    /// A number column, right-aligned.
    pub(super) fn number(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            align: Align::Right,
            what: "",
            drop_order: 0,
            cut_to: None,
            cut: Cut::Middle,
            always: false,
            nothing: "",
            tone: |_| None,
        }
    }

    /// A name column, left-aligned.
    pub(super) fn text(name: impl Into<String>) -> Column {
        Column { align: Align::Left, ..Column::number(name) }
    }

    /// Sets the drop order: if the table is too wide, the column with the highest order is dropped first.
    pub(super) fn droppable(self, order: u8) -> Column {
        Column { drop_order: order, ..self }
    }

    /// Lets cells be cut, but not below `width`.
    pub(super) fn cut_to(self, width: usize) -> Column {
        Column { cut_to: Some(width), ..self }
    }

    /// Cuts cells at the end instead of the middle, for texts whose beginning matters most.
    pub(super) fn cut_at_end(self) -> Column {
        Column { cut: Cut::End, ..self }
    }

    /// Shows the column even without content.
    pub(super) fn always(self) -> Column {
        Column { always: true, ..self }
    }

    /// Sets a text that counts as no content, such as `0.00`.
    pub(super) fn nothing(self, nothing: &'static str) -> Column {
        Column { nothing, ..self }
    }

    /// Sets the meaning of the column for the legend.
    pub(super) fn says(self, what: &'static str) -> Column {
        Column { what, ..self }
    }

    /// Meaning of the column; empty if the name is clear.
    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    /// Drop order; see [`Column::droppable`].
    #[cfg(test)]
    pub(super) fn drop_order(&self) -> u8 {
        self.drop_order
    }

    /// Marks cells as shares: high shares stand out by their tone.
    pub(super) fn share(self) -> Column {
        self.toned(share_tone)
    }

    /// Sets the function that returns the tone of a cell from its text.
    pub(super) fn toned(self, tone: fn(&str) -> Option<Tone>) -> Column {
        Column { tone, ..self }
    }

    /// Name of the column.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true for a right-aligned column.
    pub(super) fn is_number(&self) -> bool {
        self.align == Align::Right
    }

    /// Least width of the column, at least that of its name; `None` for a column whose cells are never cut, such as numbers.
    fn least_width(&self) -> Option<usize> {
        self.cut_to.map(|least| least.max(width_of(&self.name)))
    }

    /// Width to which the column is cut if the table does not fit into `line` characters: a third of the line for a column that should stay, an
    /// eighth for a droppable column, but never less than its least width. A column cut at the end is cut to its least width, and later gets the rest
    /// of the line. `None` for a column whose cells are never cut.
    fn share_of(&self, line: usize) -> Option<usize> {
        let share = match (self.cut, self.drop_order) {
            (Cut::End, _) => 0,
            (Cut::Middle, 0) => line / 3,
            (Cut::Middle, _) => line / 8,
        };
        self.least_width().map(|least| least.max(share))
    }

    fn says_something(&self, cell: &str) -> bool {
        !cell.is_empty() && cell != UNKNOWN && (self.nothing.is_empty() || cell != self.nothing)
    }
}

/// Blanks between columns.
pub(super) const GAP: usize = 2;

/// Columns of a growing table. New rows may widen columns, or show columns that had no content.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    columns: Vec<Column>,
    widths: Vec<usize>,
    /// For each column, true if the column is always shown or has a cell with content.
    kept: Vec<bool>,
}

/// Widths of the columns in a line of `limit` characters; `None` for columns that are not shown.
pub(super) struct Layout<'g> {
    columns: &'g [Column],
    widths: Vec<Option<usize>>,
    limit: usize,
}

impl Grid {
    pub(super) fn new(columns: Vec<Column>) -> Grid {
        let widths = columns.iter().map(|column| width_of(&printable(&column.name))).collect();
        let kept = columns.iter().map(|column| column.always).collect();
        Grid { columns, widths, kept }
    }

    /// Widens columns for rows. Returns true if a width changed or a column appeared.
    pub(super) fn fit(&mut self, rows: &[Vec<String>]) -> bool {
        let before = (self.widths.clone(), self.kept.clone());
        for row in rows {
            for (at, cell) in row.iter().enumerate() {
                self.widths[at] = self.widths[at].max(width_of(&printable(cell)));
                self.kept[at] |= self.columns[at].says_something(cell);
            }
        }
        before != (self.widths.clone(), self.kept.clone())
    }

    /// Layout for lines of `limit` characters. If the table is too wide, text columns are first cut to a share of the line. Then columns are dropped
    /// until the others fit. A column's share depends only on the line, so a wider line never shows shorter names.
    pub(super) fn layout(&self, limit: usize) -> Layout<'_> {
        let columns = &self.columns;
        let mut widths: Vec<Option<usize>> =
            self.widths.iter().zip(&self.kept).map(|(width, kept)| kept.then_some(*width)).collect();
        if total(&widths) > limit {
            for (width, column) in widths.iter_mut().zip(columns) {
                *width = width.map(|width| width.min(column.share_of(limit).unwrap_or(width)));
            }
        }
        let mut is_whole = true;
        while total(&widths) > limit {
            let shown = |at: &usize| widths[*at].is_some();
            let droppable = (0..columns.len()).filter(shown).filter(|at| columns[*at].drop_order > 0);
            let first = droppable.max_by_key(|at| (columns[*at].drop_order, *at));
            // If only columns without a drop order are left, the widest text column is narrowed, character by character. If no text column can be
            // narrowed any more, number columns are dropped from the right.
            let room = |at: &usize| Some(widths[*at]?.saturating_sub(columns[*at].least_width()?));
            let widest = (0..columns.len()).filter(|at| room(at).is_some_and(|room| room > 0));
            // A number is dropped rather than cut, because a part of a number would read as another number.
            let last_number = (1..columns.len()).filter(shown).rfind(|at| columns[*at].align == Align::Right);
            if let Some(at) = first {
                (widths[at], is_whole) = (None, false);
            } else if let Some(at) = widest.max_by_key(|at| widths[*at]) {
                widths[at] = widths[at].map(|width| width - 1);
            } else if let Some(at) = last_number {
                (widths[at], is_whole) = (None, false);
            } else {
                break;
            }
        }
        // The width of dropped columns is not given to names. Otherwise a slightly wider line, in which such a column returns, would show shorter
        // names.
        for at in (0..columns.len()).filter(|at| is_whole || columns[*at].cut == Cut::End) {
            let room = limit.saturating_sub(total(&widths));
            widths[at] = widths[at].map(|width| width + room.min(self.widths[at] - width));
        }
        Layout { columns, widths, limit }
    }
}

/// Cells of a table: rows, and totals below a rule.
pub(super) struct Sheet {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) totals: Vec<Vec<String>>,
}

impl Sheet {
    fn grid(&self) -> Grid {
        let mut grid = Grid::new(self.columns.clone());
        grid.fit(&self.rows);
        grid.fit(&self.totals);
        grid
    }

    /// Writes the table in lines of at most `width` characters.
    pub(super) fn write(&self, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
        let grid = self.grid();
        let layout = grid.layout(width);
        layout.write(&self.rows, out)?;
        if self.totals.is_empty() { Ok(()) } else { layout.write_totals(&self.totals, out) }
    }

    /// Writes a table that is made in parts, and returns the names of the shown columns. `part` returns a part by its index. To limit memory, parts
    /// beyond [`KEPT_BYTES`] are made twice: for measuring and for writing.
    pub(super) fn write_parts(
        columns: Vec<Column>,
        part: impl Fn(usize) -> Option<Sheet>,
        out: &mut Screen<'_>,
        width: usize,
    ) -> io::Result<Vec<String>> {
        let (mut grid, mut kept, mut totals) = (Grid::new(columns), PackedRows::default(), Vec::new());
        let (mut parts, mut parts_kept) = (0, 0);
        while let Some(sheet) = part(parts) {
            grid.fit(&sheet.rows);
            grid.fit(&sheet.totals);
            if parts_kept == parts && kept.text.len() < KEPT_BYTES {
                kept.push(&sheet.rows);
                parts_kept += 1;
            }
            totals.extend(sheet.totals);
            parts += 1;
        }
        let layout = grid.layout(width);
        layout.write(&[], out)?;
        kept.rows(layout.columns.len()).try_for_each(|row| out.line(&layout.line(&row)))?;
        for sheet in (parts_kept..parts).filter_map(part) {
            sheet.rows.iter().try_for_each(|row| out.line(&layout.line(row)))?;
        }
        layout.write_totals(&totals, out)?;
        let shown = layout.columns.iter().zip(&layout.widths).filter(|(_, width)| width.is_some());
        Ok(shown.map(|(column, _)| column.name.clone()).collect())
    }

    /// Width of the table in lines of `limit` characters.
    pub(super) fn width(&self, limit: usize) -> usize {
        total(&self.grid().layout(limit).widths)
    }

    /// Width of the named column in lines of `limit` characters; `None` if not shown.
    #[cfg(test)]
    pub(super) fn width_of_column(&self, name: &str, limit: usize) -> Option<usize> {
        self.grid().layout(limit).widths[self.columns.iter().position(|column| column.name == name)?]
    }

    /// Header, rows and totals as lines of at most `width` characters.
    pub(super) fn lines(&self, width: usize) -> (String, Vec<String>, Vec<String>) {
        let grid = self.grid();
        let layout = grid.layout(width);
        let lines = |rows: &[Vec<String>]| rows.iter().map(|row| layout.line(row).text).collect();
        (layout.header().text, lines(&self.rows), lines(&self.totals))
    }

    /// Sheet with only the named columns, in this order, even without content. Fails with the first unknown name.
    pub(super) fn with_columns(self, names: &[String]) -> Result<Sheet, &str> {
        let chosen = self.positions(names)?;
        let pick = |row: &Vec<String>| chosen.iter().map(|at| row[*at].clone()).collect::<Vec<_>>();
        Ok(Sheet {
            columns: chosen.iter().map(|at| self.columns[*at].clone().always().droppable(0)).collect(),
            rows: self.rows.iter().map(pick).collect(),
            totals: self.totals.iter().map(pick).collect(),
        })
    }

    /// Sheet that always shows the named columns. Fails with the first unknown name.
    pub(super) fn keeping(mut self, names: &[String]) -> Result<Sheet, &str> {
        for at in self.positions(names)? {
            self.columns[at] = self.columns[at].clone().always().droppable(0);
        }
        Ok(self)
    }

    fn positions<'n>(&self, names: &'n [String]) -> Result<Vec<usize>, &'n str> {
        let position = |name: &'n String| {
            let is_it = |column: &Column| column.name.eq_ignore_ascii_case(name.trim());
            self.columns.iter().position(is_it).ok_or(name.as_str())
        };
        names.iter().map(position).collect()
    }

    /// Removes each column whose entry in `kept` is false.
    fn retain(&mut self, kept: &[bool]) {
        let keep = |row: &mut Vec<String>| {
            let mut kept = kept.iter();
            row.retain(|_| kept.next() == Some(&true));
        };
        self.rows.iter_mut().chain(&mut self.totals).for_each(keep);
        let mut of_columns = kept.iter();
        self.columns.retain(|_| of_columns.next() == Some(&true));
    }

    /// Removes the named column.
    pub(super) fn without_column(mut self, name: &str) -> Sheet {
        let kept: Vec<bool> = self.columns.iter().map(|column| column.name != name).collect();
        self.retain(&kept);
        self
    }

    /// Removes columns without content, but not columns that are always shown.
    pub(super) fn without_idle_columns(mut self) -> Sheet {
        let kept = self.grid().kept;
        self.retain(&kept);
        self
    }
}

/// Rows with all cells in one text: a text for each cell would take several times the memory.
#[derive(Default)]
struct PackedRows {
    text: String,
    /// End of each cell in `text`.
    ends: Vec<usize>,
}

impl PackedRows {
    fn push(&mut self, rows: &[Vec<String>]) {
        for cell in rows.iter().flatten() {
            self.text.push_str(cell);
            self.ends.push(self.text.len());
        }
    }

    /// Rows of `cells` cells each.
    fn rows(&self, cells: usize) -> impl Iterator<Item = Vec<&str>> {
        let mut start = 0;
        self.ends.chunks(cells.max(1)).map(move |ends| {
            let cell = |end: &usize| &self.text[std::mem::replace(&mut start, *end)..*end];
            ends.iter().map(cell).collect()
        })
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    widths.iter().flatten().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
}

impl Layout<'_> {
    /// Writes the column names and the rows.
    pub(super) fn write(&self, rows: &[Vec<String>], out: &mut Screen<'_>) -> io::Result<()> {
        out.line(&self.header())?;
        rows.iter().try_for_each(|row| out.line(&self.line(row)))
    }

    /// Writes a rule and the totals, without tones: only shares of rows stand out.
    pub(super) fn write_totals(&self, rows: &[Vec<String>], out: &mut Screen<'_>) -> io::Result<()> {
        writeln!(out, "{}", self.rule())?;
        rows.iter().try_for_each(|row| out.line(&self.line(row).even()))
    }

    /// Line of column names, in bold.
    pub(super) fn header(&self) -> TonedLine {
        let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        TonedLine::of(Tone::Bold, self.line(&names).text)
    }

    /// Rule as wide as the table.
    pub(super) fn rule(&self) -> String {
        "-".repeat(total(&self.widths).min(self.limit))
    }

    /// A row as a line.
    pub(super) fn line(&self, row: &[impl AsRef<str>]) -> TonedLine {
        let mut line = TonedLine::with_capacity(total(&self.widths) + GAP);
        for ((column, width), cell) in self.columns.iter().zip(&self.widths).zip(row) {
            let (Some(width), cell) = (*width, cell.as_ref()) else { continue };
            let tone = (column.tone)(cell);
            let cell = printable(cell);
            let cell = match column.cut {
                Cut::Middle => fit_middle(&cell, width),
                Cut::End => fit(&cell, width),
            };
            let padding = width - width_of(&cell);
            if column.align == Align::Right {
                push_blanks(&mut line.text, padding);
            }
            line.push(&cell, tone);
            if column.align == Align::Left {
                push_blanks(&mut line.text, padding);
            }
            push_blanks(&mut line.text, GAP);
        }
        line.trim_end();
        line.cut(self.limit);
        line
    }
}

fn push_blanks(line: &mut String, mut count: usize) {
    const BLANKS: &str = "                                ";
    while count > 0 {
        let some = count.min(BLANKS.len());
        line.push_str(&BLANKS[..some]);
        count -= some;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    /// Wide characters take two columns of a terminal: 日本 is as wide as four letters.
    #[test]
    fn columns_behind_wide_characters_are_aligned() {
        let columns = vec![Column::text("NAME").cut_to(4), Column::number("N")];
        let rows = [cells(&["日本", "1"]), cells(&["abcd", "22"]), cells(&["e\u{301}", "3"])];
        let mut grid = Grid::new(columns);
        grid.fit(&rows);
        let lines = rows.each_ref().map(|row| grid.layout(usize::MAX).line(row).text);
        assert_eq!(lines, ["日本   1", "abcd  22", "e\u{301}      3"]);
    }

    /// A wider line may show more columns, but never a narrower column of names.
    #[test]
    fn a_wider_line_never_shows_a_shorter_name() {
        let columns = vec![
            Column::number("ID").always(),
            Column::text("PROGRAM").cut_to(8).always(),
            Column::number("RUNS").droppable(1),
            Column::text("OWNER").droppable(2).cut_to(8),
        ];
        let mut grid = Grid::new(columns);
        let name = "a_program_with_a_name_of_40_characters_12";
        grid.fit(&[cells(&["7", name, "123,456,789", "an_owner_with_a_long_name/4711"])]);
        let (mut before, mut owner_before) = (0, 0);
        for limit in 8..120 {
            let layout = grid.layout(limit);
            let width = layout.widths[1].unwrap();
            assert!(width >= before, "{limit}: {width} after {before}");
            before = width;
            if let Some(owner) = layout.widths[3] {
                assert!(owner >= owner_before, "{limit}: {owner} after {owner_before}");
                owner_before = owner;
            }
            assert!(limit < 12 || total(&layout.widths) <= limit, "{limit}");
        }
        assert_eq!((before, owner_before), (name.len(), 30));
    }

    #[test]
    fn columns_that_say_nothing_and_those_without_room_are_left_out() {
        let columns = vec![
            Column::number("ID").always(),
            Column::text("PROGRAM").cut_to(8),
            Column::number("%").nothing("0.00"),
            Column::number("RUNS").droppable(1),
        ];
        let mut grid = Grid::new(columns);
        let rows = [cells(&["n/a", "a_long_program", "0.00", "12"]), cells(&["7", "short", "n/a", "3"])];
        assert!(grid.fit(&rows) && !grid.fit(&rows));
        let wide = grid.layout(usize::MAX);
        assert_eq!(wide.header().text, " ID  PROGRAM         RUNS");
        assert_eq!(wide.line(&rows[0]).text, "n/a  a_long_program    12");
        assert_eq!(wide.rule().len(), 25);
        let narrow = grid.layout(15);
        assert_eq!(narrow.line(&rows[0]).text, "n/a  a_lo…ram");
        assert_eq!(narrow.line(&rows[1]).text, "  7  short");
        let columns = ["PAYER", "SAMPLES", "%BPF"]
            .map(|name| if name == "PAYER" { Column::text(name) } else { Column::number(name) });
        let mut grid = Grid::new(columns.map(Column::always).into());
        let rows = [cells(&["a_payer", "12,345", "99.95"])];
        grid.fit(&rows);
        assert_eq!(grid.layout(20).line(&rows[0]).text, "a_payer   12,345", "a number is not cut");
    }
}
