//! Stacks a line each.

use crate::model::Stacks;
use crate::model::text::printable;
use std::io::{self, Write};

pub(super) fn write(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    // What stands between frames is in none of them.
    let labels: Vec<String> = stacks.frames.iter().map(|frame| printable(&frame.label()).replace(';', ":")).collect();
    let mut line = String::new();
    for stack in &stacks.stacks {
        line.clear();
        for frame in &stack.frames {
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(&labels[*frame as usize]);
        }
        writeln!(out, "{line} {}", stack.count.weight)?;
    }
    Ok(())
}
