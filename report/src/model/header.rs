//! Facts about the machine and the recording.

use super::text::{clean, printable};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Header of a recording. As text: lines that start with `# `. As JSON: an object with one string per name. If a name has several values or
/// continuation lines, its string has several lines.
#[derive(Debug, Clone)]
pub struct Header {
    lines: Vec<String>,
}

impl Header {
    /// Makes a header of lines, most of them of the form `name : value`.
    pub(crate) fn new(lines: Vec<String>) -> Header {
        Header { lines }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# ========")?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", printable_line(&format!("# {line}"))))?;
        writeln!(f, "# ========\n#")
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut facts: Vec<(&str, String)> = Vec::new();
        let mut places = BTreeMap::new();
        let mut place = 0;
        for line in &self.lines {
            // An indented line continues the value of the line before.
            let (name, value) = match line.split_once(" : ").or_else(|| line.split_once(": ")) {
                _ if line.starts_with(char::is_whitespace) => (None, line.as_str()),
                Some((name, value)) => (Some(name), value),
                None => (Some(line.as_str()), ""),
            };
            if let Some(name) = name {
                place = *places.entry(name).or_insert(facts.len());
            }
            match facts.get_mut(place) {
                Some((_, text)) => *text += &format!("\n{}", value.trim()),
                None => facts.push((name.unwrap_or_default(), value.trim().to_owned())),
            }
        }
        serializer.collect_map(facts)
    }
}

/// Escapes a header line for a terminal. The tab that indents the line of a subprogram (`# \tsub_prog …`) stays.
fn printable_line(line: &str) -> String {
    match line.split_once("# \t") {
        Some(("", rest)) => format!("# \t{}", printable(rest)),
        _ => clean(line),
    }
}
