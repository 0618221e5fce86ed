//! Reads the text of a tracepoint's `format` file, and values of fields by the layout in this text.

use crate::Endian;
use std::fmt::{self, Write};

/// A tracepoint: its id and the fields of its raw data.
///
/// The text has lines `name: N` and `ID: n`, and for each field a line `field:DECLARATION; offset:n; size:n; signed:n;`. Its
/// line `print fmt: …`, an expression of C, is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat<'a> {
    /// Name of the tracepoint, like `sched_switch`.
    pub name: &'a str,
    /// Id of the tracepoint on the recorded machine.
    pub id: u32,
    /// Fields in the order of the text, the `common_*` ones first.
    pub fields: Vec<Field<'a>>,
}

/// A field of a tracepoint's raw data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Type: the declaration without the name and the dimensions after it, such as `unsigned long` or `__data_loc char[]`.
    pub type_name: &'a str,
    /// Name of the field.
    pub name: &'a str,
    /// Array dimensions as declared, brackets included: `[6]`; empty for a single value.
    pub dimensions: &'a str,
    /// Offset in the raw data.
    pub offset: u32,
    /// Size in bytes.
    pub size_bytes: u32,
    /// True for a signed number; `None` on old kernels, where the text lacks this.
    pub is_signed: Option<bool>,
}

impl<'a> EventFormat<'a> {
    /// Reads the text; `None` if the text has no name or id. Unreadable lines are skipped.
    pub fn parse(text: &'a [u8]) -> Option<EventFormat<'a>> {
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(text.get(..error.valid_up_to())?).ok()?,
        };
        let (mut name, mut id, mut fields) = (None, None, Vec::new());
        for line in text.lines() {
            let line = line.trim();
            if let Some(value) = line.strip_prefix("name:") {
                name = Some(value.trim());
            } else if let Some(value) = line.strip_prefix("ID:") {
                id = value.trim().parse().ok();
            } else if line.starts_with("field:") {
                fields.extend(Field::parse(line));
            }
        }
        Some(EventFormat { name: name?, id: id?, fields })
    }

    /// Field with this name.
    pub fn field(&self, name: &str) -> Option<&Field<'a>> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl<'a> Field<'a> {
    fn parse(line: &'a str) -> Option<Field<'a>> {
        let mut parts = line.split(';').map(str::trim);
        let declaration = parts.next()?.strip_prefix("field:")?.trim();
        let (mut offset, mut size, mut is_signed) = (None, None, None);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", value)) => offset = value.parse().ok(),
                Some(("size", value)) => size = value.parse().ok(),
                Some(("signed", value)) => is_signed = Some(value != "0"),
                _ => {}
            }
        }
        let (before, dimensions) = match declaration.find('[') {
            // In `__data_loc char[] name` the brackets belong to the type.
            Some(at) if declaration.ends_with(']') => declaration.split_at(at),
            _ => (declaration, ""),
        };
        let name_at = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let (type_name, name) = before.split_at_checked(name_at)?;
        Some(Field {
            type_name: type_name.trim(),
            name: name.trim(),
            dimensions,
            offset: offset?,
            size_bytes: size?,
            is_signed,
        })
    }

    /// Returns true for the fields that all tracepoints have.
    pub fn is_common(&self) -> bool {
        self.name.starts_with("common_")
    }

    /// Type of an element, if the field is an array.
    fn element_type(&self) -> &'a str {
        let element = self.type_name.trim_start_matches("__rel_data_loc").trim_start_matches("__data_loc");
        element.trim().trim_end_matches("[]").trim()
    }

    /// Place and type of the value, without the names.
    pub fn layout(&self) -> FieldLayout {
        let is_relative = self.type_name.starts_with("__rel_data_loc");
        let is_elsewhere = is_relative || self.type_name.starts_with("__data_loc");
        let is_signed = self.is_signed.unwrap_or(false);
        let element = self.element_type();
        let kind = if !is_elsewhere && self.dimensions.is_empty() {
            if self.type_name.ends_with('*') { FieldForm::Pointer } else { FieldForm::Number { is_signed } }
        } else if matches!(element, "char" | "const char" | "unsigned char" | "signed char") {
            FieldForm::Text
        } else {
            self.element_bytes(element).map_or(FieldForm::Bytes, |bytes| FieldForm::Numbers { bytes, is_signed })
        };
        FieldLayout {
            offset: self.offset,
            size_bytes: self.size_bytes,
            is_relative: is_elsewhere.then_some(is_relative),
            kind,
        }
    }

    /// Bytes of one element of an array: the field's size divided by the declared length, or the fixed size of the
    /// element's type.
    fn element_bytes(&self, element: &str) -> Option<u8> {
        let declared: Option<u32> = self.dimensions.strip_prefix('[').and_then(|d| d.strip_suffix(']')?.parse().ok());
        let size = match declared {
            Some(len) => self.size_bytes.checked_div(len)?,
            None => match element {
                "u8" | "s8" | "__u8" | "__s8" | "bool" => 1,
                "u16" | "s16" | "__u16" | "__s16" | "short" | "unsigned short" => 2,
                "u32" | "s32" | "__u32" | "__s32" | "int" | "unsigned int" => 4,
                "u64" | "s64" | "__u64" | "__s64" | "unsigned long long" | "long long" => 8,
                _ => return None,
            },
        };
        u8::try_from(size).ok().filter(|size| (1..=8).contains(size))
    }
}

/// Place of a field's value in raw data, and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLayout {
    offset: u32,
    size_bytes: u32,
    /// `None` if the value is in the field itself. Otherwise the field points to data after the fixed fields, by an offset from the end of the field
    /// (true) or from the start of the raw data (false).
    is_relative: Option<bool>,
    kind: FieldForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldForm {
    Number {
        is_signed: bool,
    },
    Pointer,
    /// An array of characters.
    Text,
    /// Any other array of numbers.
    Numbers {
        bytes: u8,
        is_signed: bool,
    },
    Bytes,
}

impl FieldLayout {
    /// The field's bytes; for `__data_loc` and `__rel_data_loc`, the bytes that the field points to. `None` if the raw data is too short for these
    /// bytes.
    pub fn bytes<'r>(&self, raw: &'r [u8], endian: Endian) -> Option<&'r [u8]> {
        let end = (self.offset as usize).checked_add(self.size_bytes as usize)?;
        let own = raw.get(self.offset as usize..end)?;
        let Some(is_relative) = self.is_relative else { return Some(own) };
        // The field has the length of the data in its upper half and the offset in its lower half.
        let place = endian.u32_at(own, 0)?;
        let (len, at) = ((place >> 16) as usize, (place & 0xffff) as usize);
        let at = if is_relative { at.checked_add(end)? } else { at };
        raw.get(at..at.checked_add(len)?)
    }

    /// Appends the value: numbers in decimal, pointers in hexadecimal, `char` arrays as quoted strings, other arrays in braces, anything else as
    /// bytes in hexadecimal. Appends `?` if the raw data is too short.
    pub fn write(&self, raw: &[u8], endian: Endian, out: &mut String) {
        let Some(bytes) = self.bytes(raw, endian) else { return out.push('?') };
        // Writing to a string cannot fail.
        let _ = match self.kind {
            FieldForm::Text => {
                let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
                write!(out, "{:?}", String::from_utf8_lossy(text))
            }
            FieldForm::Number { is_signed } => number(bytes, endian, is_signed, out),
            FieldForm::Pointer => match integer(bytes, endian, false) {
                Some(value) => write!(out, "{value:#x}"),
                None => hex(bytes, out),
            },
            FieldForm::Numbers { bytes: size, is_signed } => {
                out.push('{');
                for (at, item) in bytes.chunks_exact(size.into()).enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    let _ = number(item, endian, is_signed, out);
                }
                out.push('}');
                Ok(())
            }
            FieldForm::Bytes => hex(bytes, out),
        };
    }
}

/// Appends a number, or the bytes if they are not a number.
fn number(bytes: &[u8], endian: Endian, is_signed: bool, out: &mut String) -> fmt::Result {
    match integer(bytes, endian, is_signed) {
        Some(value) if is_signed => write!(out, "{}", value as i64),
        Some(value) => write!(out, "{value}"),
        None => hex(bytes, out),
    }
}

/// An integer of 1 to 8 bytes, extended to 64 bits.
fn integer(bytes: &[u8], endian: Endian, is_signed: bool) -> Option<u64> {
    let value = endian.uint(bytes).filter(|_| bytes.len() <= 8)? as u64;
    let unused_bits = 64 - 8 * bytes.len() as u32;
    Some(if is_signed { ((value << unused_bits) as i64 >> unused_bits) as u64 } else { value })
}

fn hex(bytes: &[u8], out: &mut String) -> fmt::Result {
    out.push_str("0x");
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}
