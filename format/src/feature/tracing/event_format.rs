//! The text of a tracepoint's `format` file, and values laid out as it says.

use crate::Endian;
use byteorder::{BigEndian, ByteOrder, LittleEndian};
use std::fmt::Write;

/// A tracepoint: its id and the fields of its raw data.
///
/// The text has lines `name: N`, `ID: n` and `print fmt: …`, and for each field a line
/// `field:DECLARATION; offset:n; size:n; signed:n;`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat<'a> {
    /// Its name, like `sched_switch`.
    pub name: &'a str,
    /// Its number on the recorded machine.
    pub id: u32,
    /// Its fields in the order of the text, the `common_*` ones first.
    pub fields: Vec<Field<'a>>,
    /// How the kernel would print it, as C arguments of `printf`.
    pub print_fmt: Option<&'a str>,
}

/// A field of a tracepoint's raw data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its type without what belongs to the name: `unsigned long`, `__data_loc char[]`.
    pub type_name: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its dimensions as declared, brackets included: `[6]`; empty for a single value.
    pub dimensions: &'a str,
    /// Where it starts in the raw data.
    pub offset: u32,
    /// Its size.
    pub size_bytes: u32,
    /// Whether it is signed; old kernels do not say.
    pub is_signed: Option<bool>,
}

impl<'a> EventFormat<'a> {
    /// Reads the text; `None` when it gives no name or id. Lines that make no sense are passed over.
    pub fn parse(text: &'a [u8]) -> Option<EventFormat<'a>> {
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(text.get(..error.valid_up_to())?).ok()?,
        };
        let (mut name, mut id, mut print_fmt, mut fields) = (None, None, None, Vec::new());
        for line in text.lines() {
            let line = line.trim();
            if let Some(value) = line.strip_prefix("name:") {
                name = Some(value.trim());
            } else if let Some(value) = line.strip_prefix("ID:") {
                id = value.trim().parse().ok();
            } else if let Some(value) = line.strip_prefix("print fmt:") {
                print_fmt = Some(value.trim());
            } else if line.starts_with("field:") {
                fields.extend(Field::parse(line));
            }
        }
        Some(EventFormat { name: name?, id: id?, fields, print_fmt })
    }

    /// The field with a name.
    pub fn field(&self, name: &str) -> Option<&Field<'a>> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The event's own fields of some raw data: `prev_comm="bash" prev_pid=12`.
    pub fn text(&self, raw: &[u8], endian: Endian) -> String {
        let mut out = String::new();
        for field in self.fields.iter().filter(|field| !field.is_common()) {
            if !out.is_empty() {
                out.push(' ');
            }
            let _ = write!(out, "{}={}", field.name, field.text(raw, endian));
        }
        out
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

    /// True for the fields that all tracepoints have.
    pub fn is_common(&self) -> bool {
        self.name.starts_with("common_")
    }

    /// True when the field holds a pointer.
    fn is_pointer(&self) -> bool {
        self.type_name.ends_with('*')
    }

    /// The field's bytes: for `__data_loc` and `__rel_data_loc` those that it points to. `None` when the raw data is
    /// too short for them.
    pub fn bytes<'r>(&self, raw: &'r [u8], endian: Endian) -> Option<&'r [u8]> {
        self.place().bytes(raw, endian)
    }

    /// For data of varying length, which is behind the fixed fields: whether its place counts from the field's end.
    fn is_elsewhere(&self) -> Option<bool> {
        if self.type_name.starts_with("__rel_data_loc") {
            Some(true)
        } else if self.type_name.starts_with("__data_loc") {
            Some(false)
        } else {
            None
        }
    }

    /// The type of an element, where the field is an array.
    fn element_type(&self) -> &'a str {
        let element = self.type_name.trim_start_matches("__rel_data_loc").trim_start_matches("__data_loc");
        element.trim().trim_end_matches("[]").trim()
    }

    /// Where its value is, without its names.
    pub(super) fn place(&self) -> Place {
        Place {
            offset: self.offset as usize,
            size_bytes: self.size_bytes as usize,
            is_relative: self.is_elsewhere(),
            is_array: self.is_elsewhere().is_some() || !self.dimensions.is_empty(),
            is_signed: self.is_signed.unwrap_or(false),
            element_bytes: self.element_bytes(self.element_type()),
        }
    }

    /// The value of a field that is one number of at most 64 bits, extended to 64 bits by its sign.
    pub fn number(&self, raw: &[u8], endian: Endian) -> Option<u64> {
        self.place().number(raw, endian)
    }

    /// The value as text: numbers in decimal, pointers in hexadecimal, `char` arrays as strings, other arrays in
    /// braces, anything else as bytes in hexadecimal; `?` when the raw data is too short.
    pub fn text(&self, raw: &[u8], endian: Endian) -> String {
        let Some(bytes) = self.bytes(raw, endian) else { return "?".to_owned() };
        let is_array = self.is_elsewhere().is_some() || !self.dimensions.is_empty();
        let element = self.element_type();
        if is_array && matches!(element, "char" | "const char" | "unsigned char" | "signed char") {
            let string = bytes.split(|b| *b == 0).next().unwrap_or_default();
            return format!("{:?}", String::from_utf8_lossy(string));
        }
        let is_signed = self.is_signed.unwrap_or(false);
        if !is_array {
            return match integer(bytes, endian, is_signed) {
                Some(value) if self.is_pointer() => format!("{value:#x}"),
                Some(value) if is_signed => (value as i64).to_string(),
                Some(value) => value.to_string(),
                None => hex(bytes),
            };
        }
        let Some(element_bytes) = self.element_bytes(element) else { return hex(bytes) };
        let items: Vec<String> = bytes
            .chunks_exact(element_bytes)
            .filter_map(|item| integer(item, endian, is_signed))
            .map(|value| if is_signed { (value as i64).to_string() } else { value.to_string() })
            .collect();
        format!("{{{}}}", items.join(", "))
    }

    /// Bytes of one element of an array: what the declared length leaves, or what the element's type takes everywhere.
    fn element_bytes(&self, element: &str) -> Option<usize> {
        let declared: Option<usize> = self.dimensions.strip_prefix('[').and_then(|d| d.strip_suffix(']')?.parse().ok());
        let size = match declared {
            Some(len) => (self.size_bytes as usize).checked_div(len)?,
            None => match element {
                "u8" | "s8" | "__u8" | "__s8" | "bool" => 1,
                "u16" | "s16" | "__u16" | "__s16" | "short" | "unsigned short" => 2,
                "u32" | "s32" | "__u32" | "__s32" | "int" | "unsigned int" => 4,
                "u64" | "s64" | "__u64" | "__s64" | "unsigned long long" | "long long" => 8,
                _ => return None,
            },
        };
        (1..=8).contains(&size).then_some(size)
    }
}

/// Where a field's value is in raw data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    offset: usize,
    size_bytes: usize,
    /// Of data of varying length: whether its place counts from the field's end.
    is_relative: Option<bool>,
    is_array: bool,
    is_signed: bool,
    element_bytes: Option<usize>,
}

impl Place {
    pub(super) fn bytes<'r>(&self, raw: &'r [u8], endian: Endian) -> Option<&'r [u8]> {
        let end = self.offset.checked_add(self.size_bytes)?;
        let own = raw.get(self.offset..end)?;
        let Some(is_relative) = self.is_relative else { return Some(own) };
        // Upper half: length, lower half: where.
        let place = endian.u32_at(own, 0)?;
        let (len, at) = ((place >> 16) as usize, (place & 0xffff) as usize);
        let at = if is_relative { at.checked_add(end)? } else { at };
        raw.get(at..at.checked_add(len)?)
    }

    /// The value, if it is one number of at most 64 bits, extended to 64 bits by its sign.
    pub(super) fn number(&self, raw: &[u8], endian: Endian) -> Option<u64> {
        if self.is_array { None } else { integer(self.bytes(raw, endian)?, endian, self.is_signed) }
    }

    pub(super) fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// Bytes of one element of an array, where they are known.
    pub(super) fn element_bytes(&self) -> Option<usize> {
        self.element_bytes
    }
}

/// An integer of 1 to 8 bytes, extended to 64 bits.
pub(super) fn integer(bytes: &[u8], endian: Endian, is_signed: bool) -> Option<u64> {
    let len = bytes.len();
    (1..=8).contains(&len).then(|| match (endian, is_signed) {
        (Endian::Little, false) => LittleEndian::read_uint(bytes, len),
        (Endian::Little, true) => LittleEndian::read_int(bytes, len) as u64,
        (Endian::Big, false) => BigEndian::read_uint(bytes, len),
        (Endian::Big, true) => BigEndian::read_int(bytes, len) as u64,
    })
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::from("0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}
