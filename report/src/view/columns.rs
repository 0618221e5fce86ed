//! Columns of a view, each declared once: heading and cell for tables, name and value for CSV. All writers read these declarations, so that no value
//! can stand below the name of another column.

use super::cells::plain;
use super::grid::{Column, Sheet};
use super::screen::Screen;
use std::borrow::Cow;
use std::io;

/// Returns the cell of a line in one column.
type CellFn<'v, L> = Box<dyn Fn(&L) -> String + 'v>;

/// A column for lines of type `L`: in tables, in CSV, or in both.
pub(super) struct LineColumn<'v, L> {
    csv: Option<(Cow<'static, str>, CellFn<'v, L>)>,
    text: Option<(Column, CellFn<'v, L>)>,
    ahead: usize,
}

impl<'v, L> LineColumn<'v, L> {
    /// A CSV column; `None` is an empty field.
    pub(super) fn csv<V: ToString>(
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&L) -> Option<V> + 'v,
    ) -> LineColumn<'v, L> {
        LineColumn { csv: Some((name.into(), Box::new(move |line| plain(value(line))))), text: None, ahead: 0 }
    }

    /// A table column.
    pub(super) fn text(column: Column, cell: impl Fn(&L) -> String + 'v) -> LineColumn<'v, L> {
        LineColumn { csv: None, text: Some((column, Box::new(cell))), ahead: 0 }
    }

    /// Adds a table column to a CSV column.
    pub(super) fn and_text(self, column: Column, cell: impl Fn(&L) -> String + 'v) -> LineColumn<'v, L> {
        LineColumn { text: Some((column, Box::new(cell))), ..self }
    }

    /// Moves the table column `columns` positions to the left of its place in the declaration.
    pub(super) fn ahead(self, columns: usize) -> LineColumn<'v, L> {
        LineColumn { ahead: columns, ..self }
    }
}

/// Columns of a view.
pub(super) struct LineColumns<'v, L> {
    csv: Vec<(Cow<'static, str>, CellFn<'v, L>)>,
    columns: Vec<Column>,
    cells: Vec<CellFn<'v, L>>,
}

impl<'v, L> LineColumns<'v, L> {
    pub(super) fn new(fields: impl IntoIterator<Item = LineColumn<'v, L>>) -> LineColumns<'v, L> {
        let mut all = LineColumns { csv: Vec::new(), columns: Vec::new(), cells: Vec::new() };
        for LineColumn { csv, text, ahead } in fields {
            all.csv.extend(csv);
            if let Some((column, cell)) = text {
                let at = all.columns.len() - ahead;
                all.columns.insert(at, column);
                all.cells.insert(at, cell);
            }
        }
        all
    }

    /// Columns of tables.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Table of these lines.
    pub(super) fn sheet<'l>(
        &self,
        rows: impl IntoIterator<Item = &'l L>,
        totals: impl IntoIterator<Item = &'l L>,
    ) -> Sheet
    where
        L: 'l,
    {
        let cells = |line: &L| self.cells.iter().map(|cell| cell(line)).collect();
        Sheet {
            columns: self.columns.clone(),
            rows: rows.into_iter().map(cells).collect(),
            totals: totals.into_iter().map(cells).collect(),
        }
    }

    /// Writes a line of column names, then a line of values for each item of `lines`.
    pub(super) fn write_csv(&self, lines: impl IntoIterator<Item = L>, out: &mut Screen<'_>) -> io::Result<()> {
        out.values(self.csv.iter().map(|(name, _)| name.to_string()), ",")?;
        self.write_csv_lines(lines, out)
    }

    /// Writes a line of values for each item of `lines`.
    pub(super) fn write_csv_lines(&self, lines: impl IntoIterator<Item = L>, out: &mut Screen<'_>) -> io::Result<()> {
        lines.into_iter().try_for_each(|line| out.values(self.csv.iter().map(|(_, cell)| cell(&line)), ","))
    }
}
