//! Output of answers as a table, CSV or JSON. Control characters in text are escaped.

use crate::answer::{Answer, Value};
use anyhow::Result;
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
pub(crate) fn write(answer: &Answer, name: &str, format: Format, out: &mut dyn Write) -> Result<()> {
    match format {
        Format::Table => Ok(table(answer, out)?),
        Format::Csv => csv(answer, out),
        Format::Json => Ok(json(answer, name, out)?),
    }
}

fn table(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<Vec<String>> = answer.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let headings: Vec<String> = answer.columns.iter().map(|name| printable(name).into_owned()).collect();
    let lines = || std::iter::once(&headings).chain(&rows);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let columns: Vec<_> = (0..headings.len()).map(|column| (width(column), answer.is_numeric(column))).collect();
    for row in lines() {
        let mut line = String::new();
        for (cell, (width, is_numeric)) in row.iter().zip(&columns) {
            let gap = if line.is_empty() { "" } else { "  " };
            line += &if *is_numeric { format!("{gap}{cell:>width$}") } else { format!("{gap}{cell:width$}") };
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

fn csv(answer: &Answer, out: &mut dyn Write) -> Result<()> {
    let mut out = csv::Writer::from_writer(out);
    out.write_record(answer.columns.iter().map(|name| printable(name).into_owned()))?;
    for row in &answer.rows {
        let cell = |value: &Value| match value {
            Value::Text(text) => Value::Text(printable(text).into_owned()),
            other => other.clone(),
        };
        out.serialize(row.iter().map(cell).collect::<Vec<_>>())?;
    }
    Ok(out.flush()?)
}

fn json(answer: &Answer, name: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"format\":\"bprec-fleet {name}\",\"version\":1,\"rows\":[")?;
    for (at, row) in answer.rows.iter().enumerate() {
        let member =
            |(column, value)| Ok(format!("{}:{}", serde_json::to_string(column)?, serde_json::to_string(value)?));
        let members: Vec<String> = answer.columns.iter().zip(row).map(member).collect::<io::Result<_>>()?;
        write!(out, "{}\n{{{}}}", if at > 0 { "," } else { "" }, members.join(","))?;
    }
    writeln!(out, "\n]}}")
}
