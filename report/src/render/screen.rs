//! Where text for people goes. Names and reasons in models are as the recording has them: here, in the one place that all text goes
//! through, what a terminal would obey is escaped. Renderers have no other way to write.

use crate::model::text::printable;
use std::borrow::Cow;
use std::fmt::{self, Arguments};
use std::io::{self, Write};

/// Takes lines, and nothing but lines.
pub(super) struct Screen<'o> {
    out: &'o mut dyn Write,
    line: String,
}

impl<'o> Screen<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Screen<'o> {
        Screen { out, line: String::new() }
    }

    /// Writes a line: this is what `writeln!` calls. A line that is written into another does not end it.
    pub(super) fn write_fmt(&mut self, line: Arguments<'_>) -> io::Result<()> {
        self.line.clear();
        fmt::write(&mut self.line, line).map_err(io::Error::other)?;
        let text = self.line.strip_suffix('\n').unwrap_or(&self.line);
        self.out.write_all(printable(text).as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Writes values with `separator` between them; what has it, or a quote, is quoted (RFC 4180, but lines end in a plain newline).
    pub(super) fn values(&mut self, values: impl IntoIterator<Item = String>, separator: &str) -> io::Result<()> {
        for (at, value) in values.into_iter().enumerate() {
            if at > 0 {
                self.out.write_all(separator.as_bytes())?;
            }
            let value = printable(&value);
            let value: Cow<'_, str> = match value.contains(separator) || value.contains('"') {
                true => format!("\"{}\"", value.replace('"', "\"\"")).into(),
                false => value,
            };
            self.out.write_all(value.as_bytes())?;
        }
        self.out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out);
        let name = "a\u{1b}[0m\nb\u{202e}";
        writeln!(screen, "≈ {name}").unwrap();
        writeln!(screen).unwrap();
        screen.values(["a,\"\r".to_owned(), "\u{9b}".to_owned(), "c".to_owned()], ",").unwrap();
        screen.values(["a\tb".to_owned(), "c".to_owned()], "\t").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "≈ a\\u{1b}[0m\\u{a}b\\u{202e}\n\n\"a,\"\"\\u{d}\",\\u{9b},c\na\\u{9}b\tc\n"
        );
    }
}
