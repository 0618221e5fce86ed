//! A page of tables that are not of one recording: whoever has them gets the look, the sorting and the filters of the recording's page.

use super::{ColumnData, TableData, document, text};
use serde::Serialize;
use std::io::{self, Write};

const BODY: &str = include_str!("tables.html");
const SCRIPT: &str = include_str!("sections.js");

/// Tables with a heading each, as one page that needs nothing else. Everything in it is shown as text, whatever it holds.
#[derive(Debug, Clone, Default)]
pub struct TablesPage {
    /// Title of the page.
    pub title: String,
    /// Subjects of the tables, a line each.
    pub facts: Vec<String>,
    /// In their order.
    pub tables: Vec<PageTable>,
}

/// A table of a [`TablesPage`].
#[derive(Debug, Clone, Default)]
pub struct PageTable {
    /// Its heading.
    pub title: String,
    /// Kind of its rows.
    pub about: String,
    /// Names of its columns, and whether they have numbers.
    pub columns: Vec<(String, bool)>,
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct TablesData {
    title: String,
    facts: Vec<String>,
    tables: Vec<Section>,
}

#[derive(Serialize)]
struct Section {
    title: String,
    about: String,
    table: TableData,
}

impl TablesPage {
    /// Writes the page.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let texts = |texts: &[String]| texts.iter().map(|it| text(it)).collect::<Vec<_>>();
        let sections = self.tables.iter().map(|table| Section {
            title: text(&table.title),
            about: text(&table.about),
            table: TableData {
                columns: table
                    .columns
                    .iter()
                    .map(|(name, is_number)| ColumnData { name: text(name), number: *is_number })
                    .collect(),
                rows: table.rows.iter().map(|row| texts(row)).collect(),
                totals: Vec::new(),
            },
        });
        let data = TablesData { title: text(&self.title), facts: texts(&self.facts), tables: sections.collect() };
        document(BODY, &data, SCRIPT, out)
    }
}
