//! Layouts as tables: a struct lists its fields in the order of their bytes, each with the codec that reads and writes it. Reading, writing,
//! the name of a field in errors and what of it is secret follow from the table.

mod text;

pub(crate) use text::{CountedText, Fixed, LastText, PaddedText, Public, TEXT_ALIGN_BYTES, meaning};

use crate::{Endian, Error, Reader, Result, Writer};

/// Layout of a value of type `T`.
pub(crate) trait Codec<'a, T> {
    /// Fewest bytes that a value takes: bounds what the count of a list may allocate.
    const MIN_BYTES: usize;

    /// Appends a value.
    fn put(value: &T, w: &mut Writer<'_>);

    /// Reads a value; `what` is its name in errors.
    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<T>;

    /// Reads a value of which a part may be missing: of a list, the elements before the damage, which goes to `problem`.
    #[inline]
    fn get_partial(r: &mut Reader<'a>, what: &'static str, _problem: &mut Option<Error>) -> Result<T> {
        Self::get(r, what)
    }

    /// Shows each secret that the value holds.
    fn secrets(_value: &mut T, _secrets: &mut dyn Secrets) {}
}

/// Meaning of a text, which decides what replaces it where it must not be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Secret {
    /// Name of a task.
    Comm,
    /// Path of a cgroup.
    Cgroup,
    /// Name of a task, or path of a cgroup, which starts with `/`.
    CommOrCgroup,
    /// Path of a file.
    Path,
    /// Path in a mapping: of a file, or `[vdso]`, `//anon` and the like.
    Mapping,
    /// Target of the recording: CPU and task numbers, or the words of a command.
    Target,
    /// Source of counts: one of three words, unless another program wrote it.
    Tier,
    /// Name of an event, which may hold paths and filters.
    Event,
    /// Value that a program's author chose.
    Value,
    /// Name of a function of a BPF program.
    Program,
    /// Name of a map.
    Map,
    /// Name of a kernel function or of a BPF program's code.
    Symbol,
    /// A message of the recorder, which may name anything.
    Message,
}

/// Replaces what must not be known, in place.
pub trait Secrets {
    /// A text.
    fn text(&mut self, secret: Secret, text: &mut Vec<u8>);
    /// An address of the kernel.
    fn address(&mut self, address: &mut u64);
    /// The tag of a program.
    fn tag(&mut self, tag: &mut [u8; 8]);
    /// The identity of a mapped file.
    fn file(&mut self, file: &mut crate::records::Mmap2File);
    /// The number of a type, or of a set of types, in BTF.
    fn btf_id(&mut self, id: &mut u32);
}

/// Numbers, arrays of bytes and structs that [`layout!`] declares.
pub(crate) struct Plain;

/// Defines codecs of numbers.
macro_rules! numbers {
    ($($ty:ty: $method:ident $(as $wire:ty)?,)*) => {
        $(impl<'a> Codec<'a, $ty> for Plain {
            const MIN_BYTES: usize = size_of::<$ty>();

            #[inline]
            fn put(value: &$ty, w: &mut Writer<'_>) {
                w.$method(*value $(as $wire)?);
            }

            #[inline]
            fn get(r: &mut Reader<'a>, what: &'static str) -> Result<$ty> {
                Ok(r.$method(what)? as $ty)
            }
        })*
    };
}

numbers! {
    u8: u8,
    u16: u16,
    u32: u32,
    u64: u64,
    i32: u32 as u32,
    i64: u64 as u64,
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

    fn secrets(value: &mut Option<T>, secrets: &mut dyn Secrets) {
        if let Some(value) = value {
            C::secrets(value, secrets);
        }
    }
}

/// A `u32` in eight bytes.
pub(crate) struct Wide;

impl<'a> Codec<'a, u32> for Wide {
    const MIN_BYTES: usize = 8;

    fn put(value: &u32, w: &mut Writer<'_>) {
        w.u64((*value).into());
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<u32> {
        Ok(r.u64(what)? as u32)
    }
}

/// A field that older writers did not have: present is known from the bytes that are left.
pub(crate) struct Late;

/// Defines codecs of optional numbers behind the end of older layouts.
macro_rules! late_numbers {
    ($($ty:ty),*) => {
        $(impl<'a> Codec<'a, Option<$ty>> for Late {
            const MIN_BYTES: usize = 0;

            fn put(value: &Option<$ty>, w: &mut Writer<'_>) {
                Plain::put(&value.unwrap_or_default(), w);
            }

            fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<$ty>> {
                Plain::get(r, what).map(Some)
            }
        })*
    };
}

late_numbers!(u32, u64);

/// A late number that is never 0: 0 stands for none where a later field follows.
pub(crate) struct LateNonZero;

impl<'a> Codec<'a, Option<u32>> for LateNonZero {
    const MIN_BYTES: usize = 0;

    fn put(value: &Option<u32>, w: &mut Writer<'_>) {
        Late::put(value, w);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<u32>> {
        Late::get(r, what).map(|value: Option<u32>| value.filter(|value| *value != 0))
    }
}

/// The number of elements as `N`, and so many elements.
pub(crate) struct List<C = Plain, N = u32>(C, N);

/// `count u64`, and so many elements.
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

    /// Every element takes at least one byte, so that the bytes there bound the work; the count itself sizes nothing.
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

    fn secrets(value: &mut Vec<T>, secrets: &mut dyn Secrets) {
        for item in value {
            C::secrets(item, secrets);
        }
    }
}

/// Two values, one behind the other.
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

    fn secrets((first, second): &mut (T, U), secrets: &mut dyn Secrets) {
        A::secrets(first, secrets);
        B::secrets(second, secrets);
    }
}

/// `length u32`, and a value of that many bytes. Bytes that are left over at its end are of a later version.
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

    fn secrets(value: &mut T, secrets: &mut dyn Secrets) {
        C::secrets(value, secrets);
    }
}

/// `length u32`, and that many bytes, which may be anything.
pub(crate) struct Bytes;

impl<'a> Codec<'a, Vec<u8>> for Bytes {
    const MIN_BYTES: usize = 4;

    fn put(value: &Vec<u8>, w: &mut Writer<'_>) {
        w.u32(value.len() as u32).bytes(value);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<u8>> {
        let len = r.u32(what)?;
        Ok(r.take(len as usize, what)?.to_vec())
    }
}

/// A value with `N` bytes behind it that mean nothing.
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

/// The rest of the bytes: as they are, as `FEWEST` or more whole numbers, or as a value that is there if there are enough.
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

/// An address of the kernel.
pub(crate) struct Address;

impl<'a> Codec<'a, u64> for Address {
    const MIN_BYTES: usize = 8;

    fn put(value: &u64, w: &mut Writer<'_>) {
        w.u64(*value);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<u64> {
        r.u64(what)
    }

    fn secrets(value: &mut u64, secrets: &mut dyn Secrets) {
        secrets.address(value);
    }
}

/// The number of a type in BTF.
pub(crate) struct BtfId;

impl<'a> Codec<'a, u32> for BtfId {
    const MIN_BYTES: usize = 4;

    fn put(value: &u32, w: &mut Writer<'_>) {
        w.u32(*value);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<u32> {
        r.u32(what)
    }

    fn secrets(value: &mut u32, secrets: &mut dyn Secrets) {
        secrets.btf_id(value);
    }
}

/// `present u8` and the tag of a program, which is zeros where it is not present.
pub(crate) struct OptionalTag;

impl<'a> Codec<'a, Option<[u8; 8]>> for OptionalTag {
    const MIN_BYTES: usize = 9;

    fn put(value: &Option<[u8; 8]>, w: &mut Writer<'_>) {
        w.u8(value.is_some().into()).bytes(&value.unwrap_or_default());
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Option<[u8; 8]>> {
        let is_present = r.u8(what)? != 0;
        let tag = r.array(what)?;
        Ok(is_present.then_some(tag))
    }

    fn secrets(value: &mut Option<[u8; 8]>, secrets: &mut dyn Secrets) {
        if let Some(tag) = value {
            secrets.tag(tag);
        }
    }
}

/// Bytes that a value takes.
pub(crate) fn bytes_of<'a, T, C: Codec<'a, T>>(value: &T, scratch: &mut Vec<u8>) -> usize {
    scratch.clear();
    C::put(value, &mut Writer::new(scratch, Endian::Little));
    scratch.len()
}

/// Declares a struct with the layout of its fields: `name: type as codec`, [`Plain`] where no codec is named. Fields behind `late:` are those that older
/// writers did not have; they are written up to the last one that is not its default.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $crate::layout::layout!(@struct [$(#[$meta])*] [$name] ['a, $name] $($fields)*);
    };
    ($(#[$meta:meta])* pub struct $name:ident<$life:lifetime> { $($fields:tt)* }) => {
        $crate::layout::layout!(@struct [$(#[$meta])*] [$name<$life>] [$life, $name] $($fields)*);
    };
    ($(#[$meta:meta])* pub struct $name:ident<$life:lifetime>($($field:tt)*);) => {
        $crate::layout::layout!(@tuple [$(#[$meta])*] [$name<$life>] [$life, $name] $($field)*);
    };
    ($(#[$meta:meta])* pub struct $name:ident($($field:tt)*);) => {
        $crate::layout::layout!(@tuple [$(#[$meta])*] [$name] ['a, $name] $($field)*);
    };
    (@tuple [$(#[$meta:meta])*] [$($type:tt)*] [$life:lifetime, $name:ident] pub $ty:ty $(as $codec:ty)?) => {
        $(#[$meta])*
        pub struct $($type)*(pub $ty);

        impl<$life> $crate::layout::Codec<$life, $($type)*> for $crate::layout::Plain {
            const MIN_BYTES: usize = <$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::MIN_BYTES;

            fn put(value: &$($type)*, w: &mut $crate::Writer<'_>) {
                <$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::put(&value.0, w);
            }

            fn get(r: &mut $crate::Reader<$life>, _what: &'static str) -> $crate::Result<$($type)*> {
                <$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::get(r, stringify!($name)).map($name)
            }

            fn get_partial(
                r: &mut $crate::Reader<$life>,
                _what: &'static str,
                problem: &mut Option<$crate::Error>,
            ) -> $crate::Result<$($type)*> {
                <$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::get_partial(r, stringify!($name), problem)
                    .map($name)
            }
        }
    };
    (
        @struct [$(#[$meta:meta])*] [$($type:tt)*] [$life:lifetime, $name:ident]
        $($(#[$field_meta:meta])* pub $field:ident: $ty:ty $(as $codec:ty)?,)*
        $(late: $($(#[$late_meta:meta])* pub $late:ident: $late_ty:ty $(as $late_codec:ty)?,)*)?
    ) => {
        $(#[$meta])*
        pub struct $($type)* {
            $($(#[$field_meta])* pub $field: $ty,)*
            $($($(#[$late_meta])* pub $late: $late_ty,)*)?
        }

        impl<$life> $crate::layout::Codec<$life, $($type)*> for $crate::layout::Plain {
            const MIN_BYTES: usize =
                0 $(+ <$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::MIN_BYTES)*;

            fn put(value: &$($type)*, w: &mut $crate::Writer<'_>) {
                $(<$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::put(&value.$field, w);)*
                $(
                    let is_set = [$(value.$late != <$late_ty>::default()),*];
                    let mut fields = is_set.iter().rposition(|is_set| *is_set).map_or(0, |last| last + 1);
                    $(if fields > 0 {
                        fields -= 1;
                        <$crate::layout::layout!(@codec $($late_codec)?) as $crate::layout::Codec<$life, $late_ty>>::put(&value.$late, w);
                    })*
                    let _ = fields;
                )?
            }

            #[inline]
            fn get(r: &mut $crate::Reader<$life>, what: &'static str) -> $crate::Result<$($type)*> {
                let mut problem = None;
                let value = Self::get_partial(r, what, &mut problem)?;
                problem.map_or(Ok(value), Err)
            }

            #[inline]
            fn get_partial(
                r: &mut $crate::Reader<$life>,
                _what: &'static str,
                problem: &mut Option<$crate::Error>,
            ) -> $crate::Result<$($type)*> {
                Ok($name {
                    $($field: <$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::get_partial(
                        r,
                        concat!(stringify!($name), " ", stringify!($field)),
                        problem,
                    )?,)*
                    $($($late: if r.is_empty() {
                        <$late_ty>::default()
                    } else {
                        <$crate::layout::layout!(@codec $($late_codec)?) as $crate::layout::Codec<$life, $late_ty>>::get_partial(
                            r,
                            concat!(stringify!($name), " ", stringify!($late)),
                            problem,
                        )?
                    },)*)?
                })
            }

            fn secrets(value: &mut $($type)*, secrets: &mut dyn $crate::layout::Secrets) {
                $(<$crate::layout::layout!(@codec $($codec)?) as $crate::layout::Codec<$life, $ty>>::secrets(&mut value.$field, secrets);)*
                $($(<$crate::layout::layout!(@codec $($late_codec)?) as $crate::layout::Codec<$life, $late_ty>>::secrets(
                    &mut value.$late,
                    secrets,
                );)*)?
            }
        }
    };
    (@codec) => { $crate::layout::Plain };
    (@codec $codec:ty) => { $codec };
}

/// Lays a number out that has a type of its own.
macro_rules! number {
    ($name:ident: $method:ident) => {
        impl<'a> $crate::layout::Codec<'a, $name> for $crate::layout::Plain {
            const MIN_BYTES: usize = size_of::<$name>();

            fn put(value: &$name, w: &mut $crate::Writer<'_>) {
                w.$method(value.0);
            }

            fn get(r: &mut $crate::Reader<'a>, what: &'static str) -> $crate::Result<$name> {
                r.$method(what).map($name)
            }
        }
    };
}

pub(crate) use {layout, number};
