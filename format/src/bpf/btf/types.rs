//! Type records: 12 bytes of name, kind, and size or target type, then bytes that depend on the kind.

use crate::bpf::{Element, Elements};
use crate::{Endian, Error, Result};

/// Bytes that every record starts with: `name_off u32, info u32, size_or_type u32`.
const RECORD_BYTES: usize = 12;

/// Kind of type that a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(pub u8);

impl Kind {
    /// An integer, `char` and `bool` included.
    pub const INT: Kind = Kind(1);
    /// A pointer.
    pub const PTR: Kind = Kind(2);
    /// An array.
    pub const ARRAY: Kind = Kind(3);
    /// A struct.
    pub const STRUCT: Kind = Kind(4);
    /// A union.
    pub const UNION: Kind = Kind(5);
    /// An enum of up to 32 bits.
    pub const ENUM: Kind = Kind(6);
    /// A struct or union without a known definition.
    pub const FWD: Kind = Kind(7);
    /// A typedef.
    pub const TYPEDEF: Kind = Kind(8);
    /// `volatile`.
    pub const VOLATILE: Kind = Kind(9);
    /// `const`.
    pub const CONST: Kind = Kind(10);
    /// `restrict`.
    pub const RESTRICT: Kind = Kind(11);
    /// A function: a name for a FUNC_PROTO.
    pub const FUNC: Kind = Kind(12);
    /// Parameters and return type.
    pub const FUNC_PROTO: Kind = Kind(13);
    /// A global variable.
    pub const VAR: Kind = Kind(14);
    /// A section of variables.
    pub const DATASEC: Kind = Kind(15);
    /// A floating-point number.
    pub const FLOAT: Kind = Kind(16);
    /// An attribute of a declaration.
    pub const DECL_TAG: Kind = Kind(17);
    /// An attribute of a type.
    pub const TYPE_TAG: Kind = Kind(18);
    /// An enum of 64 bits.
    pub const ENUM64: Kind = Kind(19);

    /// Returns true if the kind only renames or qualifies its target.
    pub fn is_modifier(self) -> bool {
        matches!(self, Kind::TYPEDEF | Kind::VOLATILE | Kind::CONST | Kind::RESTRICT | Kind::TYPE_TAG)
    }

    /// Bytes after the first twelve, as (fixed part, part per element); `None` for unknown kinds.
    fn extra_bytes(self) -> Option<(usize, usize)> {
        Some(match self {
            Kind::INT | Kind::VAR | Kind::DECL_TAG => (4, 0),
            Kind::ARRAY => (12, 0),
            Kind::STRUCT | Kind::UNION | Kind::DATASEC | Kind::ENUM64 => (0, 12),
            Kind::ENUM | Kind::FUNC_PROTO => (0, 8),
            Kind::PTR | Kind::FWD | Kind::TYPEDEF | Kind::VOLATILE | Kind::CONST => (0, 0),
            Kind::RESTRICT | Kind::FUNC | Kind::FLOAT | Kind::TYPE_TAG => (0, 0),
            _ => return None,
        })
    }

    /// Returns true if the third word of a record is a size.
    fn has_size(self) -> bool {
        matches!(self, Kind::INT | Kind::STRUCT | Kind::UNION | Kind::ENUM | Kind::ENUM64 | Kind::FLOAT | Kind::DATASEC)
    }

    /// Returns true if the third word of a record is the id of a type.
    fn has_target(self) -> bool {
        self.is_modifier() || matches!(self, Kind::PTR | Kind::FUNC | Kind::FUNC_PROTO | Kind::VAR | Kind::DECL_TAG)
    }
}

/// Unpacks the second word of a record into (kind, flag, count of elements). Before Linux 7.3, kind and count have fewer bits, and the bits between
/// them are zero.
fn unpack(info: u32) -> (Kind, bool, u32) {
    (Kind((info >> 24) as u8 & 0x7f), info >> 31 != 0, info & 0xff_ffff)
}

/// Returns the length in bytes of the first record in `types`. `layout` has four bytes per kind: `info_sz u8, elem_sz
/// u8, flags u16`. Offsets in errors count from the record.
pub(super) fn record_bytes(endian: Endian, types: &[u8], layout: &[u8]) -> Result<usize> {
    let available = types.len() as u64;
    let info = endian.u32_at(types, 4).filter(|_| types.len() >= RECORD_BYTES);
    let info = info.ok_or_else(|| Error::truncated(0, "BTF type", RECORD_BYTES as u64, available))?;
    let (kind, _, vlen) = unpack(info);
    let from_layout = || {
        let entry = layout.get(usize::from(kind.0) * 4..)?.first_chunk::<4>()?;
        Some((usize::from(entry[0]), usize::from(entry[1])))
    };
    let (once, each) = kind.extra_bytes().or_else(from_layout).ok_or_else(|| {
        Error::value(4, "BTF kind", u64::from(kind.0), "a known kind, or one that the layout describes")
    })?;
    let bytes = (vlen as usize).saturating_mul(each).saturating_add(RECORD_BYTES + once);
    if bytes > types.len() {
        return Err(Error::truncated(0, "BTF type", bytes as u64, available));
    }
    Ok(bytes)
}

/// String at an offset, without its NUL; `None` for an invalid offset or a missing NUL.
pub(super) fn string(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    rest.get(..rest.iter().position(|b| *b == 0)?)
}

/// One type.
#[derive(Debug, Clone, Copy)]
pub struct Type<'a> {
    endian: Endian,
    id: u32,
    name_off: u32,
    info: u32,
    size_or_type: u32,
    extra: &'a [u8],
    strings: &'a [u8],
}

impl<'a> Type<'a> {
    pub(super) fn new(endian: Endian, id: u32, record: &'a [u8], strings: &'a [u8]) -> Option<Type<'a>> {
        Some(Type {
            endian,
            id,
            name_off: endian.u32_at(record, 0)?,
            info: endian.u32_at(record, 4)?,
            size_or_type: endian.u32_at(record, 8)?,
            extra: record.get(RECORD_BYTES..)?,
            strings,
        })
    }

    /// Id of the type in the blob.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Kind of the type.
    pub fn kind(&self) -> Kind {
        unpack(self.info).0
    }

    /// Flag of the kind: has bit fields (struct, union), is signed (enums), is a union (FWD).
    pub fn kind_flag(&self) -> bool {
        unpack(self.info).1
    }

    /// Count of elements, such as members or parameters. For FUNC: its linkage (0 static, 1 global, 2 extern).
    pub fn vlen(&self) -> u32 {
        unpack(self.info).2
    }

    /// Name of the type; `None` if the type is anonymous or its string offset is invalid.
    pub fn name(&self) -> Option<&'a [u8]> {
        string(self.strings, self.name_off).filter(|name| !name.is_empty())
    }

    /// Size in bytes; `None` if records of this kind have no size.
    pub fn size_bytes(&self) -> Option<u32> {
        self.kind().has_size().then_some(self.size_or_type)
    }

    /// Id of the type that the record refers to (0 is `void`), such as the pointee of a PTR, the prototype of a FUNC or the return type of a
    /// FUNC_PROTO. `None` if records of this kind refer to no type.
    pub fn target(&self) -> Option<u32> {
        self.kind().has_target().then_some(self.size_or_type)
    }

    /// Raw third word and the bytes after the first twelve, for kinds that this crate does not decode.
    pub fn raw(&self) -> (u32, &'a [u8]) {
        (self.size_or_type, self.extra)
    }

    /// Encoding of an INT; `None` for other kinds.
    pub fn int(&self) -> Option<IntType> {
        let word = self.word(Kind::INT)?;
        let encoding = (word >> 24) as u8 & 0xf;
        Some(IntType {
            is_signed: encoding & 1 != 0,
            is_char: encoding & 2 != 0,
            is_bool: encoding & 4 != 0,
            bit_offset: (word >> 16) as u8,
            bits: word as u8,
        })
    }

    /// Element type, index type and length of an ARRAY; `None` for other kinds.
    pub fn array(&self) -> Option<ArrayType> {
        let first = self.word(Kind::ARRAY)?;
        let (index, len) = (self.endian.u32_at(self.extra, 4)?, self.endian.u32_at(self.extra, 8)?);
        Some(ArrayType { element: first, index, len })
    }

    /// Members of a STRUCT or UNION.
    pub fn members(&self) -> impl Iterator<Item = Member<'a>> + use<'a> {
        let (strings, bit_fields) = (self.strings, self.kind_flag());
        self.elements::<[u32; 3]>(&[Kind::STRUCT, Kind::UNION]).map(move |[name_off, type_id, offset]| Member {
            name: string(strings, name_off).filter(|name| !name.is_empty()),
            type_id,
            bit_offset: if bit_fields { offset & 0xff_ffff } else { offset },
            bits: if bit_fields { (offset >> 24) as u8 } else { 0 },
        })
    }

    /// Values of an ENUM or ENUM64.
    pub fn enumerators(&self) -> impl Iterator<Item = Enumerator<'a>> + use<'a> {
        let (strings, signed) = (self.strings, self.kind_flag());
        let narrow = self.elements::<[u32; 2]>(&[Kind::ENUM]).map(move |[name_off, value]| {
            (name_off, if signed { i128::from(value as i32) } else { i128::from(value) })
        });
        let wide = self.elements::<[u32; 3]>(&[Kind::ENUM64]).map(move |[name_off, low, high]| {
            let value = u64::from(high) << 32 | u64::from(low);
            (name_off, if signed { i128::from(value as i64) } else { i128::from(value) })
        });
        narrow.chain(wide).map(move |(name_off, value)| Enumerator { name: string(strings, name_off), value })
    }

    /// Parameters of a FUNC_PROTO. A last parameter of type 0 without a name means `...`.
    pub fn params(&self) -> impl Iterator<Item = Param<'a>> + use<'a> {
        let strings = self.strings;
        self.elements::<[u32; 2]>(&[Kind::FUNC_PROTO]).map(move |[name_off, type_id]| Param {
            name: string(strings, name_off).filter(|n| !n.is_empty()),
            type_id,
        })
    }

    /// Entries of a DATASEC.
    pub fn section_vars(&self) -> impl Iterator<Item = SectionVar> + use<'a> {
        self.elements::<[u32; 3]>(&[Kind::DATASEC]).map(|[type_id, offset, size_bytes]| SectionVar {
            type_id,
            offset,
            size_bytes,
        })
    }

    /// String offsets of the names of the type and of its elements.
    pub(super) fn name_offsets(&self) -> impl Iterator<Item = u32> + use<'a> {
        let long = self.elements::<[u32; 3]>(&[Kind::STRUCT, Kind::UNION, Kind::ENUM64]).map(|[name_off, ..]| name_off);
        let short = self.elements::<[u32; 2]>(&[Kind::ENUM, Kind::FUNC_PROTO]).map(|[name_off, _]| name_off);
        std::iter::once(self.name_off).chain(long).chain(short)
    }

    fn word(&self, kind: Kind) -> Option<u32> {
        if self.kind() == kind { self.endian.u32_at(self.extra, 0) } else { None }
    }

    /// Elements of the type if its kind is in `kinds`; otherwise no elements.
    fn elements<T: Element>(&self, kinds: &[Kind]) -> impl Iterator<Item = T> + use<'a, T> {
        let extra = if kinds.contains(&self.kind()) { self.extra } else { &[] };
        Elements::new(extra, T::BYTES, self.endian).iter()
    }
}

impl<const N: usize> Element for [u32; N] {
    const BYTES: usize = 4 * N;

    fn decode(endian: Endian, bytes: &[u8]) -> Option<[u32; N]> {
        let mut words = [0; N];
        for (n, word) in words.iter_mut().enumerate() {
            *word = endian.u32_at(bytes, 4 * n)?;
        }
        Some(words)
    }
}

/// Encoding of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntType {
    /// True for a signed integer (two's complement).
    pub is_signed: bool,
    /// True for a character.
    pub is_char: bool,
    /// True for a boolean.
    pub is_bool: bool,
    /// First bit of the value within its bytes; 0 except in old bit fields.
    pub bit_offset: u8,
    /// Width of the value in bits; narrower than its bytes only in old bit fields.
    pub bits: u8,
}

/// Types and length of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayType {
    /// Type id of the elements.
    pub element: u32,
    /// Type id of the index.
    pub index: u32,
    /// Count of elements.
    pub len: u32,
}

/// A member of a struct or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member<'a> {
    /// Name of the member; `None` for an anonymous struct or union.
    pub name: Option<&'a [u8]>,
    /// Id of the member's type.
    pub type_id: u32,
    /// Offset in bits.
    pub bit_offset: u32,
    /// Width of a bit field, 0 for an ordinary member.
    pub bits: u8,
}

/// A value of an enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enumerator<'a> {
    /// Name of the value; `None` if its string offset is invalid.
    pub name: Option<&'a [u8]>,
    /// Value as a number; `i128` holds the values of signed and unsigned enums of 64 bits.
    pub value: i128,
}

/// A parameter of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Param<'a> {
    /// Name of the parameter; prototypes of function pointers often have none.
    pub name: Option<&'a [u8]>,
    /// Id of the parameter's type.
    pub type_id: u32,
}

/// Position of a variable in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SectionVar {
    /// Id of a type of kind VAR, or FUNC for an external function.
    pub type_id: u32,
    /// Offset in the section, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size_bytes: u32,
}
