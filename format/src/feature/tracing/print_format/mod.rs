//! What a tracepoint says of itself in the kernel's own words: the `print fmt:` line of its format, for a sample's raw data.
//!
//! The line is what `printf` is given: a text with conversions, and expressions of C over the fields. Formats that use more
//! of C than is read here have no [`PrintFormat`]; their fields are shown one by one.

mod expression;

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::EventFormat;
use crate::Endian;
use expression::{Expression, Parser, Value};

/// A `print fmt:` line that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintFormat {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Conversion(Conversion),
}

/// A `%` of the text, with its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Conversion {
    is_left: bool,
    is_zero_padded: bool,
    has_plus: bool,
    has_prefix: bool,
    width: Option<Count>,
    precision: Option<Count>,
    /// Bytes of a number.
    bytes: usize,
    kind: char,
    /// What follows a `p`: how the kernel shows what it points to.
    pointee: String,
    argument: Expression,
}

/// A width or precision: in the text, or an argument of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Count {
    Fixed(usize),
    Argument(Expression),
}

/// Widths beyond this are no formatting.
const WIDTH_MAX: usize = 256;

impl PrintFormat {
    /// Reads the line of a format; `None` when there is none, or it uses what is not known here.
    pub fn parse(format: &EventFormat<'_>) -> Option<PrintFormat> {
        let mut parser = Parser::new(format.print_fmt?, format);
        let text = parser.string()?;
        let mut next = || {
            parser.take(",")?;
            parser.expression()
        };
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find('%') {
            push_text(&mut pieces, &rest[..at]);
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('%') {
                push_text(&mut pieces, "%");
                rest = behind;
            } else {
                pieces.push(Piece::Conversion(conversion(&mut rest, &mut next)?));
            }
        }
        push_text(&mut pieces, rest);
        parser.is_at_end().then_some(PrintFormat { pieces })
    }

    /// The text for a sample's raw data. What the data is too short for is shown as `?`.
    pub fn text(&self, raw: &[u8], endian: Endian) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Conversion(conversion) => {
                    let shown = conversion.text(raw, endian);
                    out.push_str(shown.as_deref().unwrap_or("?"));
                }
            }
        }
        out
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Text(last)) => last.push_str(text),
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

/// Reads what follows a `%`.
fn conversion(rest: &mut &str, next: &mut impl FnMut() -> Option<Expression>) -> Option<Conversion> {
    let flags = rest.len() - rest.trim_start_matches(['-', '0', '+', '#', ' ']).len();
    let (flags, behind) = rest.split_at(flags);
    *rest = behind;
    let width = count(rest, next)?;
    let mut precision = None;
    if let Some(behind) = rest.strip_prefix('.') {
        *rest = behind;
        precision = Some(count(rest, next)?.unwrap_or(Count::Fixed(0)));
    }
    let lengths = rest.len() - rest.trim_start_matches(['h', 'l', 'L', 'z', 'j', 't']).len();
    let (length, behind) = rest.split_at(lengths);
    let bytes = match length {
        "hh" => 1,
        "h" => 2,
        "" => 4,
        _ => 8,
    };
    let kind = behind.chars().next()?;
    *rest = &behind[kind.len_utf8()..];
    let mut pointee = String::new();
    if kind == 'p' {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        pointee = rest[..end].to_owned();
        *rest = &rest[end..];
    }
    if !"diuxXocsp".contains(kind) {
        return None;
    }
    let has = |flag| flags.contains(flag);
    Some(Conversion {
        is_left: has('-'),
        is_zero_padded: has('0'),
        has_plus: has('+'),
        has_prefix: has('#'),
        width,
        precision,
        bytes,
        kind,
        pointee,
        argument: next()?,
    })
}

/// A width or precision, if one stands here.
fn count(rest: &mut &str, next: &mut impl FnMut() -> Option<Expression>) -> Option<Option<Count>> {
    if let Some(behind) = rest.strip_prefix('*') {
        *rest = behind;
        return Some(Some(Count::Argument(next()?)));
    }
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, behind) = rest.split_at(digits);
    *rest = behind;
    if number.is_empty() { Some(None) } else { Some(Some(Count::Fixed(number.parse().ok()?))) }
}

impl Count {
    fn value(&self, raw: &[u8], endian: Endian) -> Option<usize> {
        match self {
            Count::Fixed(value) => Some(*value),
            Count::Argument(expression) => usize::try_from(expression.value(raw, endian)?.number()?).ok(),
        }
    }
}

impl Conversion {
    fn text(&self, raw: &[u8], endian: Endian) -> Option<String> {
        let count = |count: &Option<Count>| match count {
            Some(count) => count.value(raw, endian).map(Some),
            None => Some(None),
        };
        let (width, precision) = (count(&self.width)?.unwrap_or(0).min(WIDTH_MAX), count(&self.precision)?);
        let value = self.argument.value(raw, endian)?;
        let text = match (self.kind, value) {
            ('s', value) => {
                let text = string(value);
                precision.map_or(text.clone(), |most| text.chars().take(most).collect())
            }
            ('c', value) => char::from(value.number()? as u8).to_string(),
            ('p', Value::Bytes(bytes)) => pointee(&self.pointee, bytes),
            ('p', value) => format!("{:#x}", value.number()?),
            (_, value) => return self.number(value.number()?, width, precision),
        };
        Some(self.padded(text, width))
    }

    fn number(&self, value: i64, width: usize, precision: Option<usize>) -> Option<String> {
        let bits = 8 * self.bytes as u32;
        let cut = (value as u64) << (64 - bits) >> (64 - bits);
        let signed = value << (64 - bits) >> (64 - bits);
        let (sign, mut digits) = match self.kind {
            'd' | 'i' if signed < 0 => ("-", signed.unsigned_abs().to_string()),
            'd' | 'i' => (if self.has_plus { "+" } else { "" }, signed.to_string()),
            'u' => ("", cut.to_string()),
            'o' => (if self.has_prefix { "0" } else { "" }, format!("{cut:o}")),
            'x' => (if self.has_prefix && cut != 0 { "0x" } else { "" }, format!("{cut:x}")),
            'X' => (if self.has_prefix && cut != 0 { "0X" } else { "" }, format!("{cut:X}")),
            _ => return None,
        };
        let zeros = match precision {
            Some(least) => least.min(WIDTH_MAX).saturating_sub(digits.len()),
            None if self.is_zero_padded && !self.is_left => width.saturating_sub(sign.len() + digits.len()),
            None => 0,
        };
        digits.insert_str(0, &"0".repeat(zeros));
        Some(self.padded(format!("{sign}{digits}"), width))
    }

    fn padded(&self, text: String, width: usize) -> String {
        if self.is_left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// Bytes up to the first NUL; numbers, which would be pointers, in hexadecimal.
fn string(value: Value<'_>) -> String {
    match value {
        Value::Text(text) => text,
        Value::Bytes(bytes) => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        }
        Value::Number(number) => format!("{number:#x}"),
    }
}

/// Bytes that `%p` and some letters show: addresses of networks, or else hexadecimal digits.
fn pointee(letters: &str, bytes: &[u8]) -> String {
    let mut out = String::new();
    let hex = |out: &mut String, separator: &str| {
        for (at, byte) in bytes.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}{byte:02x}", if at == 0 { "" } else { separator });
        }
    };
    match (letters, bytes) {
        ("I4" | "i4", [a, b, c, d]) => return Ipv4Addr::new(*a, *b, *c, *d).to_string(),
        ("I6" | "i6" | "I6c", bytes) if let Some(address) = bytes.first_chunk::<16>() => {
            return Ipv6Addr::from(*address).to_string();
        }
        ("M", _) => hex(&mut out, ":"),
        _ => hex(&mut out, ""),
    }
    out
}

#[cfg(test)]
mod tests;
