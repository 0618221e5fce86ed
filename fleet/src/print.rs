//! Output of answers as a table, CSV or JSON. Control characters in text are escaped.

use crate::answer::{Answer, Value};
use bprec_report::printable;
use std::io::{self, Write};

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// Comma-separated values (RFC 4180, lines end in a newline); unknown values are empty.
    Csv,
    /// One JSON document.
    Json,
}

/// Writes an answer. `name` is the name of the query.
pub(crate) fn write(answer: &Answer, name: &str, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => table(answer, out),
        Format::Csv => csv(answer, out),
        Format::Json => json(answer, name, out),
    }
}

fn table(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<Vec<String>> = answer.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([answer.columns[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..answer.columns.len()).map(width).collect();
    let is_text: Vec<bool> = (0..answer.columns.len())
        .map(|column| answer.rows.iter().any(|row| matches!(row.get(column), Some(Value::Text(_)))))
        .collect();
    let headings: Vec<String> = answer.columns.iter().map(|name| printable(name).into_owned()).collect();
    for row in std::iter::once(&headings).chain(&rows) {
        let mut line = String::new();
        for (cell, (width, is_text)) in row.iter().zip(widths.iter().zip(&is_text)) {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            line.push_str(if line.is_empty() { "" } else { "  " });
            match is_text {
                true => line.extend([cell.as_str(), padding.as_str()]),
                false => line.extend([padding.as_str(), cell.as_str()]),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Formats a value for a table.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "n/a".into(),
        Value::Integer(number) => number.to_string(),
        // Four significant digits, and all digits of the integer part. Below 1: four decimals; below 0.001: an exponent.
        Value::Real(number) => match number.abs() {
            0.0 => "0".into(),
            size if size >= 1000.0 => format!("{number:.0}"),
            size if size >= 100.0 => format!("{number:.1}"),
            size if size >= 10.0 => format!("{number:.2}"),
            size if size >= 1.0 => format!("{number:.3}"),
            size if size >= 0.001 => format!("{number:.4}"),
            _ => format!("{number:.2e}"),
        },
        Value::Bool(flag) => flag.to_string(),
        Value::Text(text) => printable(text).into_owned(),
    }
}

fn csv(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    let quoted = |text: &str| {
        let text = printable(text);
        if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into_owned() }
    };
    let names: Vec<String> = answer.columns.iter().map(|name| quoted(name)).collect();
    writeln!(out, "{}", names.join(","))?;
    for row in &answer.rows {
        let cells: Vec<String> = row.iter().map(|value| value.plain("", quoted)).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

fn json(answer: &Answer, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    write!(out, "{{\"format\":{},\"version\":1,\"rows\":[", text(&format!("bprec-fleet {name}")))?;
    for (at, row) in answer.rows.iter().enumerate() {
        let members = answer.columns.iter().zip(row);
        let members: Vec<String> =
            members.map(|(column, value)| format!("{}:{}", text(column), value.plain("null", text))).collect();
        write!(out, "{}\n{{{}}}", if at > 0 { "," } else { "" }, members.join(","))?;
    }
    writeln!(out, "\n]}}")
}
