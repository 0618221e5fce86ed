//! Decodes bytes into values. Types may be cyclic and lengths may be arbitrary, so each step is charged against a
//! limit.

use super::value::{Limits, Value};
use super::{Btf, IntType, Kind, Member, Type};
use crate::Endian;

impl<'a> Btf<'a> {
    /// Decodes a value of a type. `bytes` are in the byte order of the BTF.
    pub fn value(&self, type_id: u32, bytes: &[u8], limits: &Limits) -> Value<'a> {
        Decoder { btf: self, limits, chars_left: limits.chars }.value(type_id, bytes, 0)
    }

    /// A value of a type as text: `{ .pid = 12, .comm = "bash", .flags = RUNNING }`. Parts beyond the end of `bytes`
    /// are `?`; types that cannot be shown are printed as hexadecimal bytes.
    pub fn value_text(&self, type_id: u32, bytes: &[u8], limits: &Limits) -> String {
        self.value(type_id, bytes, limits).to_string()
    }
}

struct Decoder<'b, 'a> {
    btf: &'b Btf<'a>,
    limits: &'b Limits,
    chars_left: usize,
}

/// Characters charged for each value; names, text and raw bytes are charged in addition.
const NUMBER_CHARS: usize = 4;

impl<'a> Decoder<'_, 'a> {
    /// Charges characters to be printed; returns false if the limit was already used up. Each call charges at least one character, so that any loop
    /// ends.
    fn spend(&mut self, chars: usize) -> bool {
        let has_room = self.chars_left > 0;
        self.chars_left = self.chars_left.saturating_sub(chars.max(1));
        has_room
    }

    fn value(&mut self, type_id: u32, bytes: &[u8], depth: usize) -> Value<'a> {
        if !self.spend(NUMBER_CHARS) {
            return Value::Cut;
        }
        let Some(found) = self.btf.resolve(type_id) else { return self.raw(bytes) };
        let size = self.btf.size_of(type_id).and_then(|size| usize::try_from(size).ok());
        let bytes = match size {
            Some(size) if bytes.len() < size && !matches!(found.kind(), Kind::ARRAY | Kind::STRUCT | Kind::DATASEC) => {
                return Value::Missing;
            }
            Some(size) => bytes.get(..size).unwrap_or(bytes),
            None => bytes,
        };
        let endian = self.btf.endian();
        match found.kind() {
            Kind::INT | Kind::ENUM | Kind::ENUM64 => match endian.uint(bytes) {
                Some(value) => self.number(&found, value, bytes.len() as u32 * 8),
                None => self.raw(bytes),
            },
            Kind::PTR => endian.u64_at(bytes, 0).map_or(Value::Missing, Value::Pointer),
            Kind::FLOAT => match bytes.len() {
                4 => endian.u32_at(bytes, 0).map_or(Value::Missing, |bits| Value::Single(f32::from_bits(bits))),
                8 => endian.u64_at(bytes, 0).map_or(Value::Missing, |bits| Value::Double(f64::from_bits(bits))),
                _ => self.raw(bytes),
            },
            Kind::ARRAY | Kind::STRUCT | Kind::UNION | Kind::DATASEC | Kind::VAR if depth >= self.limits.depth => {
                Value::Cut
            }
            Kind::VAR => self.value(found.target().unwrap_or(0), bytes, depth + 1),
            Kind::ARRAY => self.array(&found, bytes, depth),
            Kind::STRUCT | Kind::UNION => self.members(&found, bytes, depth),
            Kind::DATASEC => self.section(&found, bytes, depth),
            _ => self.raw(bytes),
        }
    }

    fn number(&mut self, found: &Type<'a>, value: u128, bits: u32) -> Value<'a> {
        let value = number(found, value, bits);
        if let Value::Enum(name) = value {
            self.spend(name.len());
        }
        value
    }

    /// Bytes of an unknown type, charged as three characters each.
    fn raw(&mut self, bytes: &[u8]) -> Value<'a> {
        let shown = bytes.get(..self.chars_left / 3 + 1).unwrap_or(bytes);
        self.spend(3 * shown.len());
        if shown.len() < bytes.len() {
            return Value::Array(vec![Value::Bytes(shown.to_vec()), Value::Cut]);
        }
        Value::Bytes(shown.to_vec())
    }

    fn array(&mut self, found: &Type<'a>, bytes: &[u8], depth: usize) -> Value<'a> {
        let Some(array) = found.array() else { return self.raw(bytes) };
        if self.is_char(array.element) && bytes.len() as u64 == u64::from(array.len) {
            return self.text(bytes);
        }
        let size = self.btf.size_of(array.element).and_then(|size| usize::try_from(size).ok());
        let Some(size) = size else { return self.raw(bytes) };
        let mut items = Vec::new();
        for n in 0..array.len as usize {
            // Elements of size 0 are all equal, and their count has no limit: only one is printed.
            if n >= self.limits.elements || self.chars_left == 0 || size == 0 && n > 0 {
                items.push(Value::Cut);
                break;
            }
            let element = n.checked_mul(size).and_then(|at| bytes.get(at..));
            items.push(self.value(array.element, element.unwrap_or_default(), depth + 1));
        }
        Value::Array(items)
    }

    /// Returns true for `char`: compilers mark the integer as a character, or only name it `char`.
    fn is_char(&self, type_id: u32) -> bool {
        self.btf.resolve(type_id).is_some_and(|t| {
            t.size_bytes() == Some(1) && t.int().is_some_and(|int| int.is_char || t.name() == Some(b"char"))
        })
    }

    /// Text in a `char` array. If the bytes before the first NUL are valid text, the text ends at that NUL, because buffers often hold old bytes
    /// after it. Otherwise, all bytes are shown, without the NULs at the end.
    fn text(&mut self, bytes: &[u8]) -> Value<'a> {
        let first = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_text = std::str::from_utf8(first)
            .is_ok_and(|text| !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace()));
        let all = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let whole = if is_text { first } else { bytes.get(..all).unwrap_or_default() };
        let shown = whole.get(..self.chars_left + 1).unwrap_or(whole);
        self.spend(shown.len());
        if shown.len() < whole.len() {
            return Value::Array(vec![Value::Text(shown.to_vec()), Value::Cut]);
        }
        Value::Text(shown.to_vec())
    }

    fn members(&mut self, found: &Type<'a>, bytes: &[u8], depth: usize) -> Value<'a> {
        let mut members = Vec::new();
        for member in found.members() {
            if !self.spend(4 + member.name.map_or(0, <[u8]>::len)) {
                members.push((None, Value::Cut));
                break;
            }
            let value = match self.bit_field(&member) {
                Some((int, bits)) => match bit_field(self.btf.endian(), bytes, member.bit_offset, int, bits) {
                    Some(value) => match self.btf.resolve(member.type_id) {
                        Some(resolved) => self.number(&resolved, value, bits),
                        None => Value::Unsigned(value),
                    },
                    None => Value::Missing,
                },
                None => {
                    let at = member.bit_offset as usize / 8;
                    self.value(member.type_id, bytes.get(at..).unwrap_or_default(), depth + 1)
                }
            };
            members.push((member.name, value));
        }
        Value::Members(members)
    }

    /// Returns (first bit within the member's bytes, width in bits) of a bit field; `None` for an ordinary member.
    fn bit_field(&self, member: &Member<'_>) -> Option<(u32, u32)> {
        if member.bits > 0 {
            return Some((0, u32::from(member.bits)));
        }
        // In old BTF, the integer type gives the width of a bit field.
        let resolved = self.btf.resolve(member.type_id)?;
        let IntType { bit_offset, bits, .. } = resolved.int()?;
        let is_whole = resolved.size_bytes()?.checked_mul(8)? == u32::from(bits) && member.bit_offset % 8 == 0;
        (!is_whole || bit_offset > 0).then_some((u32::from(bit_offset), u32::from(bits)))
    }

    fn section(&mut self, found: &Type<'a>, bytes: &[u8], depth: usize) -> Value<'a> {
        let mut members = Vec::new();
        for variable in self.btf.variables(found.id()) {
            if !self.spend(4 + variable.name.len()) {
                members.push((None, Value::Cut));
                break;
            }
            let at = bytes.get(variable.offset as usize..).unwrap_or_default();
            members.push((Some(variable.name), self.value(variable.type_id, at, depth + 1)));
        }
        Value::Members(members)
    }
}

/// Converts `value` of `bits` bits by the type `found`: to a boolean, a named value of an enum, or a signed or unsigned number.
fn number<'a>(found: &Type<'a>, value: u128, bits: u32) -> Value<'a> {
    let int = found.int();
    let is_signed = int.map_or(found.kind_flag(), |int| int.is_signed);
    let negative = is_signed && bits > 0 && bits <= 128 && value >> (bits - 1) & 1 != 0;
    if int.is_some_and(|int| int.is_bool) && value < 2 {
        return Value::Bool(value == 1);
    }
    // The upper bits of a negative number are ones.
    let signed = if negative { (value | u128::MAX.checked_shl(bits).unwrap_or(0)) as i128 } else { value as i128 };
    if let Some(name) = found.enumerators().find(|e| e.value == signed).and_then(|e| e.name) {
        return Value::Enum(name);
    }
    if negative { Value::Negative(signed) } else { Value::Unsigned(value) }
}

/// Extracts a bit field of `bits` bits; `None` if it is empty, wider than 64 bits, or not within `bytes`. Offsets count from the least significant
/// bit on little-endian machines, and from the most significant bit on big-endian machines.
fn bit_field(endian: Endian, bytes: &[u8], member_offset: u32, int_offset: u32, bits: u32) -> Option<u128> {
    if bits == 0 || bits > 64 {
        return None;
    }
    let first = member_offset.checked_add(int_offset)?;
    let end = first.checked_add(bits)?.div_ceil(8);
    let covering = bytes.get(first as usize / 8..end as usize)?;
    let value = endian.uint(covering)?;
    let skipped = match endian {
        Endian::Little => first % 8,
        Endian::Big => covering.len() as u32 * 8 - first % 8 - bits,
    };
    Some(value >> skipped & ((1 << bits) - 1))
}
