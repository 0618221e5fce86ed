//! Layouts as tables: a struct lists its fields in the order of their bytes, each with the codec that reads and writes the field. The table also
//! gives the names of fields in errors, and the secret fields.

mod text;

pub use text::Secret;
pub(crate) use text::{
    CommandWords, CountedText, Fixed, LastText, Meaning, PaddedText, Public, TEXT_ALIGN_BYTES, meaning, until_nul,
};

use crate::records::Mmap2File;
use crate::{Error, Reader, Result, Writer};

/// Layout of a value of type `T`.
pub(crate) trait Codec<'a, T> {
    /// Minimum length of an encoded value. Before a list allocates memory, it checks that the remaining bytes suffice for as many values as its count
    /// says.
    const MIN_BYTES: usize;

    /// Appends a value.
    fn put(value: &T, w: &mut Writer<'_>);

    /// Reads a value; `what` is its name in errors.
    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<T>;

    /// Reads a value that may be damaged: a list keeps the elements before the damage, and sets `problem`.
    #[inline]
    fn get_partial(r: &mut Reader<'a>, what: &'static str, _problem: &mut Option<Error>) -> Result<T> {
        Self::get(r, what)
    }
}

/// Gives the replacements of secrets. A [`Writer`] asks for them field by field, so that no field of a layout can be forgotten.
pub trait Secrets: std::fmt::Debug {
    /// Replacement of a text.
    fn text(&mut self, secret: Secret, text: &[u8]) -> Vec<u8>;
    /// Replacement of an address.
    fn address(&mut self, address: u64) -> u64;
    /// Replacement of the tag of a program.
    fn tag(&mut self, tag: [u8; 8]) -> [u8; 8];
    /// Replacement of the identity of a mapped file.
    fn file(&mut self, file: Mmap2File) -> Mmap2File;
    /// Replacement of the inode number of a namespace.
    fn namespace(&mut self, inode: u64) -> u64;
    /// Replacement of the id of a BTF type or of a BTF object.
    fn btf_id(&mut self, id: u32) -> u32;
}

/// Layout of numbers, arrays of bytes, and structs that [`layout!`] declares.
pub(crate) struct Plain;

/// A `u32` in eight bytes.
pub(crate) struct Wide;

/// An address.
pub(crate) struct Address;

/// Tag of a program.
pub(crate) struct Tag;

/// Inode number of a namespace.
pub(crate) struct NamespaceInode;

/// The id of a BTF type or of a BTF object.
pub(crate) struct BtfId;

/// Defines codecs of numbers: codec, type of the value, integer in the bytes, and the method that replaces a secret number.
macro_rules! numbers {
    ($($codec:ident $ty:ident: $wire:ident $(, $secret:ident)?;)*) => {
        $(impl<'a> Codec<'a, $ty> for $codec {
            const MIN_BYTES: usize = size_of::<$wire>();

            #[inline]
            fn put(value: &$ty, w: &mut Writer<'_>) {
                let value = *value;
                $(let value = w.replaced(value, |secrets, value| secrets.$secret(value));)?
                w.$wire(value as $wire);
            }

            #[inline]
            fn get(r: &mut Reader<'a>, what: &'static str) -> Result<$ty> {
                Ok(r.$wire(what)? as $ty)
            }
        })*
    };
}

numbers! {
    Plain u8: u8;
    Plain u16: u16;
    Plain u32: u32;
    Plain u64: u64;
    Plain i32: u32;
    Plain i64: u64;
    Wide u32: u64;
    Address u64: u64, address;
    NamespaceInode u64: u64, namespace;
    BtfId u32: u32, btf_id;
}

/// A bit in the field `misc` of the record's header, which the writer of the record sets.
pub(crate) struct HeaderBit<const BIT: u16>;

impl<'a, const BIT: u16> Codec<'a, bool> for HeaderBit<BIT> {
    const MIN_BYTES: usize = 0;

    fn put(_value: &bool, _w: &mut Writer<'_>) {}

    fn get(r: &mut Reader<'a>, _what: &'static str) -> Result<bool> {
        Ok(r.misc() & BIT != 0)
    }
}

impl<'a> Codec<'a, bool> for Plain {
    const MIN_BYTES: usize = 1;

    fn put(value: &bool, w: &mut Writer<'_>) {
        w.u8((*value).into());
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<bool> {
        Ok(r.u8(what)? != 0)
    }
}

impl<'a, const N: usize> Codec<'a, [u8; N]> for Plain {
    const MIN_BYTES: usize = N;

    fn put(value: &[u8; N], w: &mut Writer<'_>) {
        w.bytes(value);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<[u8; N]> {
        r.array(what)
    }
}

/// `present u8`, and the value if present.
pub(crate) struct Optional<C>(C);

impl<'a, T, C: Codec<'a, T>> Codec<'a, Option<T>> for Optional<C> {
    const MIN_BYTES: usize = 1;

    fn put(value: &Option<T>, w: &mut Writer<'_>) {
        w.u8(value.is_some().into());
        if let Some(value) = value {
            C::put(value, w);
        }
    }

    #[inline]
    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<T>> {
        if r.u8(what)? == 0 { Ok(None) } else { C::get(r, what).map(Some) }
    }
}

/// A number that older writers did not write. The field is `None` if no bytes are left for it, and with `NON_ZERO` also if it is 0: then the writer puts
/// 0 for `None` if a later field follows.
pub(crate) struct Late<const NON_ZERO: bool = false>;

/// A late number that is never 0.
pub(crate) type LateNonZero = Late<true>;

impl<'a, T: Copy + Default + PartialEq, const NON_ZERO: bool> Codec<'a, Option<T>> for Late<NON_ZERO>
where
    Plain: Codec<'a, T>,
{
    const MIN_BYTES: usize = 0;

    fn put(value: &Option<T>, w: &mut Writer<'_>) {
        Plain::put(&value.unwrap_or_default(), w);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<T>> {
        let value = Plain::get(r, what)?;
        Ok((!NON_ZERO || value != T::default()).then_some(value))
    }
}

/// `count N`, then that many elements.
pub(crate) struct List<C = Plain, N = u32>(C, N);

/// `count u64`, then that many elements.
pub(crate) type LongList<C = Plain> = List<C, u64>;

impl<'a, T, C: Codec<'a, T>, N: Copy + Default + Into<u64> + TryFrom<usize>> Codec<'a, Vec<T>> for List<C, N>
where
    Plain: Codec<'a, N>,
{
    const MIN_BYTES: usize = size_of::<N>();

    fn put(value: &Vec<T>, w: &mut Writer<'_>) {
        Plain::put(&N::try_from(value.len()).unwrap_or_default(), w);
        for item in value {
            C::put(item, w);
        }
    }

    #[inline]
    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<T>> {
        let count: N = Plain::get(r, what)?;
        let count = r.count(count.into(), C::MIN_BYTES, what)?;
        (0..count).map(|_| C::get(r, what)).collect()
    }

    /// A damaged count does no harm: every element takes at least one byte, so the input limits the work, and no memory is allocated by the count.
    fn get_partial(r: &mut Reader<'a>, what: &'static str, problem: &mut Option<Error>) -> Result<Vec<T>> {
        let count: N = Plain::get(r, what)?;
        let mut items = Vec::new();
        for _ in 0..count.into() {
            match C::get(r, what) {
                Ok(item) => items.push(item),
                Err(error) => {
                    *problem = Some(error);
                    break;
                }
            }
        }
        Ok(items)
    }
}

/// Two values, one after the other.
pub(crate) struct Pair<A, B>(A, B);

impl<'a, T, U, A: Codec<'a, T>, B: Codec<'a, U>> Codec<'a, (T, U)> for Pair<A, B> {
    const MIN_BYTES: usize = A::MIN_BYTES + B::MIN_BYTES;

    fn put((first, second): &(T, U), w: &mut Writer<'_>) {
        A::put(first, w);
        B::put(second, w);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<(T, U)> {
        Ok((A::get(r, what)?, B::get(r, what)?))
    }
}

/// `length u32`, then a value of that many bytes. Bytes that are left at its end are fields of a later version.
pub(crate) struct Framed<C = Plain>(C);

impl<'a, T, C: Codec<'a, T>> Codec<'a, T> for Framed<C> {
    const MIN_BYTES: usize = 4;

    fn put(value: &T, w: &mut Writer<'_>) {
        w.u32(0);
        let start = w.position();
        C::put(value, w);
        let len = (w.position() - start) as u32;
        w.patch_u32(start - 4, len);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<T> {
        let len = r.u32(what)?;
        let offset = r.offset();
        C::get(&mut Reader::new(r.take(len as usize, what)?, offset, r.endian()), what)
    }
}

/// `length N`, then that many bytes.
pub(crate) struct Bytes<N = u32>(N);

impl<'a, T: From<&'a [u8]> + AsRef<[u8]>, N: Copy + Default + Into<u64> + TryFrom<usize>> Codec<'a, T> for Bytes<N>
where
    Plain: Codec<'a, N>,
{
    const MIN_BYTES: usize = size_of::<N>();

    fn put(value: &T, w: &mut Writer<'_>) {
        let bytes = value.as_ref();
        Plain::put(&N::try_from(bytes.len()).unwrap_or_default(), w);
        w.bytes(bytes);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<T> {
        let len: N = Plain::get(r, what)?;
        let len = r.count(len.into(), 1, what)?;
        r.take(len, what).map(T::from)
    }
}

/// A value with `N` bytes of padding after it.
pub(crate) struct Padded<const N: usize>;

impl<'a, T, const N: usize> Codec<'a, T> for Padded<N>
where
    Plain: Codec<'a, T>,
{
    const MIN_BYTES: usize = <Plain as Codec<'a, T>>::MIN_BYTES + N;

    fn put(value: &T, w: &mut Writer<'_>) {
        Plain::put(value, w);
        w.zeros(N);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<T> {
        let value = Plain::get(r, what)?;
        r.take(N, what)?;
        Ok(value)
    }
}

/// All remaining bytes. The type of the field selects their form: bytes, at least `FEWEST` numbers, or an optional value, which is present if the
/// bytes suffice for it.
pub(crate) struct Rest<const FEWEST: usize = 0>;

impl<'a> Codec<'a, &'a [u8]> for Rest {
    const MIN_BYTES: usize = 0;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        w.bytes(value);
    }

    fn get(r: &mut Reader<'a>, _what: &'static str) -> Result<&'a [u8]> {
        Ok(r.rest())
    }
}

impl<'a, T, const FEWEST: usize> Codec<'a, Vec<T>> for Rest<FEWEST>
where
    Plain: Codec<'a, T>,
{
    const MIN_BYTES: usize = FEWEST * <Plain as Codec<'a, T>>::MIN_BYTES;

    fn put(value: &Vec<T>, w: &mut Writer<'_>) {
        value.iter().for_each(|item| Plain::put(item, w));
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<T>> {
        let count = (r.remaining() / <Plain as Codec<'a, T>>::MIN_BYTES).max(FEWEST);
        (0..count).map(|_| Plain::get(r, what)).collect()
    }
}

impl<'a, T> Codec<'a, Option<T>> for Rest
where
    Plain: Codec<'a, T>,
{
    const MIN_BYTES: usize = 0;

    fn put(value: &Option<T>, w: &mut Writer<'_>) {
        value.iter().for_each(|value| Plain::put(value, w));
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<T>> {
        let is_there = r.remaining() >= <Plain as Codec<'a, T>>::MIN_BYTES;
        is_there.then(|| Plain::get(r, what)).transpose()
    }
}

impl<'a> Codec<'a, [u8; 8]> for Tag {
    const MIN_BYTES: usize = 8;

    fn put(value: &[u8; 8], w: &mut Writer<'_>) {
        let tag = w.replaced(*value, |secrets, tag| secrets.tag(tag));
        w.bytes(&tag);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<[u8; 8]> {
        r.array(what)
    }
}

/// `present u8` and the tag of a program, all zeros if it is not present.
pub(crate) struct OptionalTag;

impl<'a> Codec<'a, Option<[u8; 8]>> for OptionalTag {
    const MIN_BYTES: usize = 9;

    fn put(value: &Option<[u8; 8]>, w: &mut Writer<'_>) {
        match value {
            Some(tag) => Tag::put(tag, w.u8(1)),
            None => drop(w.u8(0).zeros(8)),
        }
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<[u8; 8]>> {
        let is_present = r.u8(what)? != 0;
        let tag = r.array(what)?;
        Ok(is_present.then_some(tag))
    }
}

/// Declares structs with the layout of their fields: `name: type as codec`, [`Plain`] if no codec is named. The structs
/// are `Debug`, `Clone`, `PartialEq` and `Eq`. Older writers did not write the fields after `late:`. Writers now write
/// these fields up to the last one that differs from its default.
macro_rules! layout {
    ($(
        $(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? $({ $($fields:tt)* })? $(($($field:tt)*);)?
    )*) => {
        $($crate::layout::layout!(@declare [$(#[$meta])*] $name [$($life)?] $({ $($fields)* })? $(($($field)*))?);)*
    };
    (@declare $head:tt $name:ident [] $fields:tt) => {
        $crate::layout::layout!(@struct $head ['a $name [$name]] $fields);
    };
    (@declare $head:tt $name:ident [$life:lifetime] $fields:tt) => {
        $crate::layout::layout!(@struct $head [$life $name [$name<$life>]] $fields);
    };
    (@struct [$($head:tt)*] [$life:lifetime $name:ident [$($type:tt)*]] (pub $ty:ty $(as $codec:ty)?)) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        $($head)*
        pub struct $($type)*(pub $ty);

        $crate::layout::layout!(@codec [$life $name [$($type)*]] {
            0 [stringify!($name)]: $ty, $crate::layout::layout!(@or_plain $($codec)?);
        });
    };
    (@struct [$($head:tt)*] [$life:lifetime $name:ident [$($type:tt)*]] {
        $($(#[$field_meta:meta])* pub $field:ident: $ty:ty $(as $codec:ty)?,)*
        $(late: $($(#[$late_meta:meta])* pub $late:ident: $late_ty:ty $(as $late_codec:ty)?,)*)?
    }) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        $($head)*
        pub struct $($type)* {
            $($(#[$field_meta])* pub $field: $ty,)*
            $($($(#[$late_meta])* pub $late: $late_ty,)*)?
        }

        $crate::layout::layout!(@codec [$life $name [$($type)*]] {
            $($field [concat!(stringify!($name), " ", stringify!($field))]: $ty, $crate::layout::layout!(@or_plain $($codec)?);)*
        } $({
            $($late [concat!(stringify!($name), " ", stringify!($late))]: $late_ty, $crate::layout::layout!(@or_plain $($late_codec)?);)*
        })?);
    };
    (@codec [$life:lifetime $name:ident [$type:ty]] {
        $($field:tt [$label:expr]: $ty:ty, $codec:ty;)*
    } $({
        $($late:tt [$late_label:expr]: $late_ty:ty, $late_codec:ty;)*
    })?) => {
        impl<$life> $crate::layout::Codec<$life, $type> for $crate::layout::Plain {
            const MIN_BYTES: usize = 0 $(+ <$codec as $crate::layout::Codec<$life, $ty>>::MIN_BYTES)*;

            fn put(value: &$type, w: &mut $crate::Writer<'_>) {
                $(<$codec as $crate::layout::Codec<$life, $ty>>::put(&value.$field, w);)*
                $(
                    let is_set = [$(value.$late != <$late_ty>::default()),*];
                    let mut fields = is_set.iter().rposition(|is_set| *is_set).map_or(0, |last| last + 1);
                    $(if fields > 0 {
                        fields -= 1;
                        <$late_codec as $crate::layout::Codec<$life, $late_ty>>::put(&value.$late, w);
                    })*
                    let _ = fields;
                )?
            }

            #[inline]
            fn get(r: &mut $crate::Reader<$life>, what: &'static str) -> $crate::Result<$type> {
                let mut problem = None;
                let value = Self::get_partial(r, what, &mut problem)?;
                problem.map_or(Ok(value), Err)
            }

            #[inline]
            fn get_partial(
                r: &mut $crate::Reader<$life>,
                _what: &'static str,
                problem: &mut Option<$crate::Error>,
            ) -> $crate::Result<$type> {
                Ok($name {
                    $($field: <$codec as $crate::layout::Codec<$life, $ty>>::get_partial(r, $label, problem)?,)*
                    $($($late: if r.is_empty() {
                        <$late_ty>::default()
                    } else {
                        <$late_codec as $crate::layout::Codec<$life, $late_ty>>::get_partial(r, $late_label, problem)?
                    },)*)?
                })
            }
        }
    };
    (@or_plain) => { $crate::layout::Plain };
    (@or_plain $codec:ty) => { $codec };
}

pub(crate) use layout;
