//! Stacks as text, one per line.

use crate::model::Stacks;
use crate::model::text::printable;
use std::io::{self, Write};

impl Stacks {
    /// Writes the call chains, one per line.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_folded(&self, out: &mut dyn Write) -> io::Result<()> {
        // Labels must not contain the separator of frames.
        let labels: Vec<String> = self.frames.iter().map(|frame| printable(&frame.label()).replace(';', ":")).collect();
        for stack in &self.stacks {
            for (at, frame) in stack.frames.iter().enumerate() {
                out.write_all(if at > 0 { b";" } else { b"" })?;
                out.write_all(labels[*frame as usize].as_bytes())?;
            }
            writeln!(out, " {}", stack.count.weight)?;
        }
        Ok(())
    }
}
