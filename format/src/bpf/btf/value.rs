//! Values as C-like text: what a map's key or a `.rodata` variable holds.

use super::c::text;
use super::{Btf, IntType, Kind, Member, Type};
use crate::Endian;
use byteorder::{BigEndian, ByteOrder, LittleEndian};
use std::fmt::Write;

/// How much of a value is printed; what is left out becomes `...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Structs and arrays within each other.
    pub depth: usize,
    /// Elements of one array.
    pub elements: usize,
    /// Characters in all, roughly.
    pub chars: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: 8, elements: 64, chars: 1024 }
    }
}

impl Btf<'_> {
    /// A value of a type as text: `{ .pid = 12, .comm = "bash", .flags = RUNNING }`. `bytes` are in the order of the
    /// machine that the BTF came from. Parts that `bytes` is too short for are `?`, types that cannot be shown are
    /// bytes in hexadecimal.
    pub fn value_text(&self, type_id: u32, bytes: &[u8], limits: &Limits) -> String {
        let mut printer = Printer { btf: self, limits, out: String::new(), is_cut: false };
        printer.value(type_id, bytes, 0);
        if printer.is_cut {
            printer.out.push_str(" ...");
        }
        printer.out
    }
}

struct Printer<'b, 'a> {
    btf: &'b Btf<'a>,
    limits: &'b Limits,
    out: String,
    is_cut: bool,
}

impl Printer<'_, '_> {
    /// True once enough is printed; everything prints at least one character, so that this ends any loop.
    fn is_full(&mut self) -> bool {
        self.is_cut |= self.out.len() >= self.limits.chars;
        self.is_cut
    }

    fn put(&mut self, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{value}");
    }

    fn value(&mut self, type_id: u32, bytes: &[u8], depth: usize) {
        if self.is_full() {
            return;
        }
        let Some(found) = self.btf.resolve(type_id) else { return self.raw(bytes) };
        let size = self.btf.size_of(type_id).and_then(|size| usize::try_from(size).ok());
        let bytes = match size {
            Some(size) if bytes.len() < size && !matches!(found.kind(), Kind::ARRAY | Kind::STRUCT | Kind::DATASEC) => {
                return self.put('?');
            }
            Some(size) => bytes.get(..size).unwrap_or(bytes),
            None => bytes,
        };
        match found.kind() {
            Kind::INT | Kind::ENUM | Kind::ENUM64 => match unsigned(self.btf.endian(), bytes) {
                Some(value) => self.number(&found, value, bytes.len() as u32 * 8),
                None => self.raw(bytes),
            },
            Kind::PTR => match unsigned(self.btf.endian(), bytes) {
                Some(value) => self.put(format_args!("{value:#x}")),
                None => self.raw(bytes),
            },
            Kind::FLOAT => self.float(bytes),
            Kind::ARRAY | Kind::STRUCT | Kind::UNION | Kind::DATASEC | Kind::VAR if depth >= self.limits.depth => {
                self.put("{...}");
            }
            Kind::VAR => self.value(found.target().unwrap_or(0), bytes, depth + 1),
            Kind::ARRAY => self.array(&found, bytes, depth),
            Kind::STRUCT | Kind::UNION => self.members(&found, bytes, depth),
            Kind::DATASEC => self.section(&found, bytes, depth),
            _ => self.raw(bytes),
        }
    }

    /// Bytes of which nothing is known.
    fn raw(&mut self, bytes: &[u8]) {
        self.put("0x");
        for byte in bytes {
            if self.is_full() {
                return;
            }
            self.put(format_args!("{byte:02x}"));
        }
    }

    /// A number of `bits` bits whose value is `value`.
    fn number(&mut self, found: &Type<'_>, value: u128, bits: u32) {
        let int = found.int();
        let is_signed = int.map_or(found.kind_flag(), |int| int.is_signed);
        let negative = is_signed && bits > 0 && bits <= 128 && value >> (bits - 1) & 1 != 0;
        if int.is_some_and(|int| int.is_bool) && value < 2 {
            return self.put(value == 1);
        }
        // The upper bits of a negative number are ones.
        let signed = if negative { (value | u128::MAX.checked_shl(bits).unwrap_or(0)) as i128 } else { value as i128 };
        if let Some(name) = found.enumerators().find(|e| e.value == signed).and_then(|e| e.name) {
            return self.put(text(Some(name)));
        }
        if negative { self.put(signed) } else { self.put(value) }
    }

    fn float(&mut self, bytes: &[u8]) {
        let endian = self.btf.endian();
        match bytes.len() {
            4 => self.put(f32::from_bits(endian.u32_at(bytes, 0).unwrap_or_default())),
            8 => self.put(f64::from_bits(endian.u64_at(bytes, 0).unwrap_or_default())),
            _ => self.raw(bytes),
        }
    }

    fn array(&mut self, found: &Type<'_>, bytes: &[u8], depth: usize) {
        let Some(array) = found.array() else { return self.raw(bytes) };
        if self.is_char(array.element)
            && let Some(string) = as_text(bytes)
        {
            let left = self.limits.chars.saturating_sub(self.out.len());
            let shown: String = string.chars().take(left).collect();
            self.is_cut |= shown.len() < string.len();
            return self.put(format_args!("{shown:?}"));
        }
        let size = self.btf.size_of(array.element).and_then(|size| usize::try_from(size).ok());
        let Some(size) = size else { return self.raw(bytes) };
        self.put("{");
        for n in 0..array.len as usize {
            self.put(if n == 0 { " " } else { ", " });
            if n >= self.limits.elements {
                self.put("...");
                break;
            }
            if self.is_full() {
                break;
            }
            let element = n.checked_mul(size).and_then(|at| bytes.get(at..));
            self.value(array.element, element.unwrap_or_default(), depth + 1);
        }
        self.put(if array.len == 0 { "}" } else { " }" });
    }

    /// True for `char`, which compilers mark as a character or only name so.
    fn is_char(&self, type_id: u32) -> bool {
        self.btf.resolve(type_id).is_some_and(|t| {
            t.size_bytes() == Some(1) && t.int().is_some_and(|int| int.is_char || t.name() == Some(b"char"))
        })
    }

    fn members(&mut self, found: &Type<'_>, bytes: &[u8], depth: usize) {
        self.put("{");
        let mut separator = " ";
        for member in found.members() {
            self.put(separator);
            separator = ", ";
            if self.is_full() {
                break;
            }
            if member.name.is_some() {
                self.put(format_args!(".{} = ", text(member.name)));
            }
            match self.bit_field(&member) {
                Some((int, bits)) => match bit_field(self.btf.endian(), bytes, member.bit_offset, int, bits) {
                    Some(value) => match self.btf.resolve(member.type_id) {
                        Some(resolved) => self.number(&resolved, value, bits),
                        None => self.put(value),
                    },
                    None => self.put('?'),
                },
                None => {
                    let at = member.bit_offset as usize / 8;
                    self.value(member.type_id, bytes.get(at..).unwrap_or_default(), depth + 1);
                }
            }
        }
        self.put(if separator == " " { "}" } else { " }" });
    }

    /// First bit within the member's place, and width, when a member is a bit field.
    fn bit_field(&self, member: &Member<'_>) -> Option<(u32, u32)> {
        if member.bits > 0 {
            return Some((0, u32::from(member.bits)));
        }
        // Before bit fields had a flag, their width was the integer's.
        let resolved = self.btf.resolve(member.type_id)?;
        let IntType { bit_offset, bits, .. } = resolved.int()?;
        let is_whole = resolved.size_bytes()?.checked_mul(8)? == u32::from(bits) && member.bit_offset.is_multiple_of(8);
        (!is_whole || bit_offset > 0).then_some((u32::from(bit_offset), u32::from(bits)))
    }

    fn section(&mut self, found: &Type<'_>, bytes: &[u8], depth: usize) {
        self.put("{");
        let mut separator = " ";
        for variable in self.btf.variables(found.id()) {
            self.put(separator);
            separator = ", ";
            if self.is_full() {
                break;
            }
            self.put(format_args!(".{} = ", text(Some(variable.name))));
            self.value(variable.type_id, bytes.get(variable.offset as usize..).unwrap_or_default(), depth + 1);
        }
        self.put(if separator == " " { "}" } else { " }" });
    }
}

/// The unsigned integer that up to 16 bytes mean.
fn unsigned(endian: Endian, bytes: &[u8]) -> Option<u128> {
    (1..=16).contains(&bytes.len()).then(|| match endian {
        Endian::Little => LittleEndian::read_uint128(bytes, bytes.len()),
        Endian::Big => BigEndian::read_uint128(bytes, bytes.len()),
    })
}

/// The bits of a bit field: counted from the least significant bit in little-endian, from the most significant in
/// big-endian.
fn bit_field(endian: Endian, bytes: &[u8], member_offset: u32, int_offset: u32, bits: u32) -> Option<u128> {
    if bits == 0 || bits > 64 {
        return None;
    }
    let first = member_offset.checked_add(int_offset)?;
    let end = first.checked_add(bits)?.div_ceil(8);
    let covering = bytes.get(first as usize / 8..end as usize)?;
    let value = unsigned(endian, covering)?;
    let skipped = match endian {
        Endian::Little => first % 8,
        Endian::Big => covering.len() as u32 * 8 - first % 8 - bits,
    };
    Some(value >> skipped & ((1 << bits) - 1))
}

/// The string in a `char` array, if it is one.
fn as_text(bytes: &[u8]) -> Option<&str> {
    let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let string = std::str::from_utf8(bytes.get(..len)?).ok()?;
    let is_text = !string.chars().any(|c| c.is_control() && !c.is_ascii_whitespace());
    let is_blank = len > 0 || bytes.iter().all(|b| *b == 0);
    (is_text && is_blank).then_some(string)
}
