//! Models as JSON, with control characters escaped. `docs/json.md` describes the members, and the changes that increase the version.

use crate::model::Header;
use crate::model::text::{is_plain, is_steering};
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Writes an indented document.
pub(super) fn pretty(model: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Escaping(PrettyFormatter::new()));
    model.serialize(&mut serializer)?;
    writeln!(out)
}

/// Writes an indented document. The header of the recording, if given, is the first member.
pub(super) fn pretty_under(header: Option<&Header>, model: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct UnderHeader<'a, M> {
        header: &'a Header,
        #[serde(flatten)]
        model: &'a M,
    }
    match header {
        Some(header) => pretty(&UnderHeader { header, model }, out),
        None => pretty(model, out),
    }
}

/// Writes a document on one line.
pub(super) fn line(model: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Escaping(CompactFormatter));
    model.serialize(&mut serializer)?;
    writeln!(out)
}

/// JSON formatter that also escapes characters that JSON allows: control characters from U+007F on, and invisible characters ([`is_steering`]).
struct Escaping<F>(F);

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, writer: &mut W $(, $arg: $type)*) -> io::Result<()> {
            self.0.$name(writer $(, $arg)*)
        })*
    };
}

impl<F: Formatter> Formatter for Escaping<F> {
    forward! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
        write_char_escape(char_escape: CharEscape);
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if is_plain(fragment.as_bytes()) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_steering(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?;
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        let mut out = Vec::new();
        let name = "a\"b\u{1b}[0m\\ \u{9b}\u{7f}é\n\u{202e}\u{e0041}";
        line(&name, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"a\\\"b\\u001b[0m\\\\ \\u009b\\u007fé\\n\\u202e\\udb40\\udc41\"\n"
        );
    }
}
