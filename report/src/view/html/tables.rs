//! A page of tables from any source, with the look, sorting and filters of a recording's page.

use super::{ColumnData, TableData, document, text};
use serde::Serialize;
use std::io::{self, Write};

const BODY: &str = include_str!("tables.html");
const SCRIPT: &str = include_str!("sections.js");

/// Tables with headings as a self-contained page. All texts are escaped.
#[derive(Debug, Clone, Default)]
pub struct TablesPage {
    /// Title of the page.
    pub title: String,
    /// Lines above the tables.
    pub facts: Vec<String>,
    /// Tables in page order.
    pub tables: Vec<PageTable>,
}

/// A table of a [`TablesPage`].
#[derive(Debug, Clone, Default)]
pub struct PageTable {
    /// Heading of the table.
    pub title: String,
    /// Noun for the rows.
    pub about: String,
    /// Names of the columns, each with true if its cells are numbers.
    pub columns: Vec<(String, bool)>,
    /// Rows with a cell per column.
    pub rows: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct TablesData {
    title: String,
    facts: Vec<String>,
    tables: Vec<PageSection>,
}

#[derive(Serialize)]
struct PageSection {
    title: String,
    about: String,
    table: TableData,
}

impl TablesPage {
    /// Writes the page.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let texts = |texts: &[String]| texts.iter().map(|it| text(it)).collect::<Vec<_>>();
        let sections = self.tables.iter().map(|table| PageSection {
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
