//! Header of a BTF blob, and the sections that it locates.

use crate::{Endian, Error, Result};
use zerocopy::byteorder::{BigEndian, ByteOrder, LittleEndian, U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Fields of `struct btf_header` that every kernel has.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header<O: ByteOrder> {
    magic: U16<O>,
    version: u8,
    flags: u8,
    hdr_len: U32<O>,
    type_off: U32<O>,
    type_len: U32<O>,
    str_off: U32<O>,
    str_len: U32<O>,
}

/// Fields after [`Header`] since Linux 7.3.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LayoutHeader<O: ByteOrder> {
    layout_off: U32<O>,
    layout_len: U32<O>,
}

/// Sections of a blob.
pub(super) struct Sections<'a> {
    pub(super) types: &'a [u8],
    pub(super) types_offset: u64,
    pub(super) strings: &'a [u8],
    pub(super) layout: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Finds the sections of a blob in this byte order.
    pub(super) fn locate(bytes: &'a [u8], endian: Endian) -> Result<Sections<'a>> {
        match endian {
            Endian::Little => Sections::of::<LittleEndian>(bytes),
            Endian::Big => Sections::of::<BigEndian>(bytes),
        }
    }

    fn of<O: ByteOrder>(bytes: &'a [u8]) -> Result<Sections<'a>> {
        let short = |needed: usize| Error::truncated(0, "BTF header", needed as u64, bytes.len() as u64);
        let min_bytes = size_of::<Header<O>>();
        let (header, behind) = Header::<O>::ref_from_prefix(bytes).map_err(|_| short(min_bytes))?;
        let header_bytes = header.hdr_len.get() as usize;
        if header_bytes < min_bytes {
            return Err(Error::value(4, "BTF hdr_len", header.hdr_len.get().into(), "at least 24"));
        }
        let body = bytes.get(header_bytes..).ok_or_else(|| short(header_bytes))?;
        let part = |what: &'static str, offset: U32<O>, len: U32<O>| {
            let end = u64::from(offset) + u64::from(len);
            let range = usize::try_from(end).ok().map(|end| offset.get() as usize..end);
            range
                .and_then(|range| body.get(range))
                .ok_or_else(|| Error::truncated(header_bytes as u64, what, end, body.len() as u64))
        };
        let layout = match LayoutHeader::<O>::ref_from_prefix(behind) {
            Ok((layout, _)) if header_bytes >= min_bytes + size_of::<LayoutHeader<O>>() => {
                part("BTF layout section", layout.layout_off, layout.layout_len)?
            }
            _ => &[],
        };
        Ok(Sections {
            types: part("BTF type section", header.type_off, header.type_len)?,
            types_offset: header_bytes as u64 + u64::from(header.type_off),
            strings: part("BTF string section", header.str_off, header.str_len)?,
            layout,
        })
    }
}
