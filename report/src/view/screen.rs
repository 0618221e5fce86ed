//! Writer of text, Markdown and CSV. Models have names as recorded, so this writer escapes characters that control a terminal. The renderers of these
//! formats have no other writer.

use super::line::TonedLine;
use crate::model::text::printable;
use crate::options::{Paint, Tone};
use std::borrow::Cow;
use std::fmt::{self, Arguments};
use std::io::{self, Write};

/// Writer that accepts whole lines only.
pub(super) struct Screen<'o> {
    out: &'o mut dyn Write,
    paint: Paint,
    line: String,
}

impl<'o> Screen<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Screen<'o> {
        Screen::painted(out, Paint::Plain)
    }

    /// Screen that shows tones as escape sequences, or ignores tones with [`Paint::Plain`].
    pub(super) fn painted(out: &'o mut dyn Write, paint: Paint) -> Screen<'o> {
        Screen { out, paint, line: String::new() }
    }

    /// Writes one line; `writeln!` calls this function. Newlines in the text are escaped. Notes, which begin with `# `, are dim.
    pub(super) fn write_fmt(&mut self, line: Arguments<'_>) -> io::Result<()> {
        self.line.clear();
        fmt::write(&mut self.line, line).map_err(io::Error::other)?;
        let text = self.line.strip_suffix('\n').unwrap_or(&self.line);
        let tone = text.starts_with("# ").then_some(Tone::Dim);
        piece(self.out, self.paint, text, tone)?;
        self.out.write_all(b"\n")
    }

    /// Writes a line, each piece in its tone.
    pub(super) fn line(&mut self, line: &TonedLine) -> io::Result<()> {
        line.pieces().try_for_each(|(text, tone)| piece(self.out, self.paint, text, tone))?;
        self.out.write_all(b"\n")
    }

    /// Writes a line of values separated by `separator`. Values with a separator or a quote are quoted as in RFC 4180, but lines end with LF. A value
    /// that a spreadsheet would run as a formula gets a leading apostrophe.
    pub(super) fn values(&mut self, values: impl IntoIterator<Item = String>, separator: &str) -> io::Result<()> {
        for (at, value) in values.into_iter().enumerate() {
            if at > 0 {
                self.out.write_all(separator.as_bytes())?;
            }
            let value = match is_formula(&value) {
                true => format!("'{}", printable(&value)).into(),
                false => printable(&value),
            };
            let value: Cow<'_, str> = match value.contains(separator) || value.contains('"') {
                true => format!("\"{}\"", value.replace('"', "\"\"")).into(),
                false => value,
            };
            self.out.write_all(value.as_bytes())?;
        }
        self.out.write_all(b"\n")
    }
}

/// Returns true if the first character makes spreadsheets treat the value as a formula. Numbers with a sign are no formulas.
fn is_formula(value: &str) -> bool {
    let is_number = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.bytes().all(|byte| byte.is_ascii_digit() || b".e%".contains(&byte))
    };
    match value.chars().next() {
        Some('+' | '-') => value.len() > 1 && !is_number(&value[1..]),
        Some('=' | '@' | '\t' | '\r' | '\n' | '＝' | '＋' | '－' | '＠') => true,
        _ => false,
    }
}

/// Writes a piece of a line. Control characters of the text are escaped; the tone's escape sequences are not.
fn piece(out: &mut dyn Write, paint: Paint, text: &str, tone: Option<Tone>) -> io::Result<()> {
    let text = printable(text);
    match tone {
        Some(tone) if paint == Paint::Ansi => out.write_all(paint.text(tone, &text).as_bytes()),
        _ => out.write_all(text.as_bytes()),
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

    #[test]
    fn no_value_is_a_formula() {
        let mut out = Vec::new();
        let values = ["=cmd|'/C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "＝1", "--", "-x", "=a,b"];
        Screen::new(&mut out).values(values.map(str::to_owned), ",").unwrap();
        let numbers = ["-1", "+5%", "-1.5e9", "-", "0", "", "≥3", "a=b"];
        Screen::new(&mut out).values(numbers.map(str::to_owned), ",").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "'=cmd|'/C calc'!A0,'+1+1,'-1+1,'@SUM(1),'\\u{9}=1,'\\u{d}=1,'＝1,'--,'-x,\"'=a,b\"\n-1,+5%,-1.5e9,-,0,,≥3,a=b\n"
        );
    }

    #[test]
    fn tones_are_ours_and_escapes_of_names_are_not() {
        let mut out = Vec::new();
        let mut screen = Screen::painted(&mut out, Paint::Ansi);
        writeln!(screen, "# \u{1b}[31m").unwrap();
        writeln!(screen, "\u{1b}[31m").unwrap();
        screen.line(&TonedLine::of(Tone::Red, "\u{1b}[0m".to_owned())).unwrap();
        let expected = "\u{1b}[2m# \\u{1b}[31m\u{1b}[0m\n\\u{1b}[31m\n\u{1b}[31m\\u{1b}[0m\u{1b}[0m\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
