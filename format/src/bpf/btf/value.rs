//! Decoded values, for example of a map's key or a `.rodata` variable, as a tree and as C-like text.

use std::fmt::{self, Write};

/// Limits on the parts of a value that are decoded; the rest becomes `...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Depth of nested structs and arrays.
    pub depth: usize,
    /// Elements of one array.
    pub elements: usize,
    /// Printed characters, approximately.
    pub chars: usize,
}

/// Limit on printed bytes of a name; the kernel's own limit on symbol names.
const MAX_NAME_BYTES: usize = 512;

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: 8, elements: 64, chars: 1024 }
    }
}

/// A value of a type.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// An integer of 0 or more, of a signed or unsigned type.
    Unsigned(u128),
    /// A negative integer.
    Negative(i128),
    /// A boolean that is 0 or 1; any other number is [`Unsigned`](Value::Unsigned).
    Bool(bool),
    /// A named value of an enum, by its name.
    Enum(&'a [u8]),
    /// A pointer.
    Pointer(u64),
    /// A `float`.
    Single(f32),
    /// A `double`.
    Double(f64),
    /// An array of `char`, without the NULs at its end.
    Text(Vec<u8>),
    /// Bytes of an unknown type.
    Bytes(Vec<u8>),
    /// An array.
    Array(Vec<Value<'a>>),
    /// Members of a struct, a union or a section. A member that is an anonymous struct or union has no name.
    Members(Vec<(Option<&'a [u8]>, Value<'a>)>),
    /// Value that lies beyond the end of the bytes.
    Missing,
    /// Value omitted because of a limit. As the last element or member, it stands for all that follow. Text that was cut is an array of the text and
    /// `Cut`.
    Cut,
}

impl Value<'_> {
    /// Returns false if a limit left out a part of the value.
    pub fn is_whole(&self) -> bool {
        match self {
            Value::Cut => false,
            Value::Array(items) => items.iter().all(Value::is_whole),
            Value::Members(members) => members.iter().all(|(_, value)| value.is_whole()),
            _ => true,
        }
    }
}

impl fmt::Display for Value<'_> {
    /// Formats the value as an initializer of C. Text is escaped, names are as the BTF has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Negative(value) => write!(f, "{value}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Enum(name) => f.write_str(&text(Some(name))),
            Value::Pointer(value) => write!(f, "{value:#x}"),
            Value::Single(value) => write!(f, "{value}"),
            Value::Double(value) => write!(f, "{value}"),
            Value::Text(bytes) => quoted(f, bytes),
            Value::Bytes(bytes) => {
                f.write_char('[')?;
                for (n, byte) in bytes.iter().enumerate() {
                    write!(f, "{}{byte:02x}", if n > 0 { " " } else { "" })?;
                }
                f.write_char(']')
            }
            Value::Array(items) => list(f, items, |item, f| item.fmt(f)),
            Value::Members(members) => list(f, members, |(name, value), f| {
                if name.is_some() {
                    write!(f, ".{} = ", text(*name))?;
                }
                value.fmt(f)
            }),
            Value::Missing => f.write_char('?'),
            Value::Cut => f.write_str("..."),
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    item: impl Fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    f.write_char('{')?;
    for (n, it) in items.iter().enumerate() {
        f.write_str(if n > 0 { ", " } else { " " })?;
        item(it, f)?;
    }
    f.write_str(if items.is_empty() { "}" } else { " }" })
}

/// A string literal. Bytes that are not UTF-8 are escaped as `\xff`.
fn quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_char('"')?;
    for chunk in bytes.utf8_chunks() {
        let valid = format!("{:?}", chunk.valid());
        f.write_str(valid.get(1..valid.len() - 1).unwrap_or_default())?;
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_char('"')
}

/// Name for display, cut to [`MAX_NAME_BYTES`].
fn text(name: Option<&[u8]>) -> String {
    let name = name.unwrap_or_default();
    String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name)).into_owned()
}
