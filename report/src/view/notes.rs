//! Notes: what has to be said beside numbers, in lines that begin with `#`.

use std::io::{self, Write};

/// Notes below a table.
pub(super) fn write_notes(notes: &[String], out: &mut dyn Write, width: usize) -> io::Result<()> {
    if !notes.is_empty() {
        writeln!(out, "#")?;
    }
    write_wrapped_all(notes, out, width)
}

/// Notes, each on as many lines as it needs.
pub(super) fn write_wrapped_all(notes: &[String], out: &mut dyn Write, width: usize) -> io::Result<()> {
    notes.iter().try_for_each(|note| write_wrapped(note, out, width))
}

/// A note on as many lines as it needs.
pub(super) fn write_wrapped(note: &str, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let mut line = String::from("#");
    for word in note.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > width && line.len() > 4 {
            writeln!(out, "{line}")?;
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "{line}")
}

/// Things of one reason together, in the order in which reasons come first.
pub(super) fn grouped_by(items: impl Iterator<Item = (String, String)>) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (reason, name) in items {
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => groups.push((reason, vec![name])),
        }
    }
    groups
}
