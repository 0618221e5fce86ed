//! Columns side by side, each as wide as its widest cell.

use super::text::UNKNOWN;

/// Lines of a table. Columns whose name starts with `<` are flush left. Columns that say nothing in any row are left out.
pub(super) fn lines(names: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let mut grid = Grid::new(names);
    grid.fit(rows);
    std::iter::once(grid.header()).chain(grid.lines(rows)).collect()
}

/// Columns of a table that grows: they get wider, and more, as rows come that need it.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    /// Those that start with `<` are flush left.
    names: Vec<String>,
    widths: Vec<usize>,
    /// Some row says something there.
    kept: Vec<bool>,
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

impl Grid {
    pub(super) fn new(names: &[String]) -> Grid {
        let widths = names.iter().map(|name| chars(name.trim_start_matches('<'))).collect();
        Grid { names: names.to_vec(), widths, kept: vec![false; names.len()] }
    }

    /// Makes room for rows; whether that changed anything.
    pub(super) fn fit(&mut self, rows: &[Vec<String>]) -> bool {
        let before = (self.widths.clone(), self.kept.clone());
        for row in rows {
            for ((cell, width), kept) in row.iter().zip(&mut self.widths).zip(&mut self.kept) {
                *width = (*width).max(chars(cell));
                *kept |= !cell.is_empty() && cell != UNKNOWN;
            }
        }
        before != (self.widths.clone(), self.kept.clone())
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| name.trim_start_matches('<').to_owned()).collect();
        self.line(&names)
    }

    /// Rows that there is room for.
    pub(super) fn lines(&self, rows: &[Vec<String>]) -> impl Iterator<Item = String> {
        rows.iter().map(|row| self.line(row))
    }

    fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate().filter(|(at, _)| self.kept[*at]) {
            let padding = " ".repeat(self.widths[at].saturating_sub(chars(cell)));
            match self.names[at].starts_with('<') {
                true => line.extend([cell.as_str(), &padding]),
                false => line.extend([padding.as_str(), cell]),
            }
            line.push_str("  ");
        }
        line.truncate(line.trim_end().len());
        line
    }
}
