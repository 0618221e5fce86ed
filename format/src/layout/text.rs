//! Layouts of texts, and the kinds of secrets in them.

use super::{Codec, Secrets};
use crate::{Reader, Result, Writer};

/// `length u16`, then that many bytes of text; the writer cuts the text at `MAX_BYTES`. `K` is the meaning of the text.
pub(crate) struct CountedText<K, const MAX_BYTES: usize = { u16::MAX as usize }>(K);

impl<'a, K: Meaning, const MAX_BYTES: usize> Codec<'a, Vec<u8>> for CountedText<K, MAX_BYTES> {
    const MIN_BYTES: usize = 2;

    fn put(value: &Vec<u8>, w: &mut Writer<'_>) {
        let text = &value[..value.len().min(MAX_BYTES)];
        w.u16(text.len() as u16).bytes(text);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<u8>> {
        let len = r.u16(what)?;
        r.take(usize::from(len), what).map(<[u8]>::to_vec)
    }

    fn secrets(value: &mut Vec<u8>, secrets: &mut dyn Secrets) {
        if let Some(secret) = K::SECRET {
            secrets.text(secret, value);
        }
    }
}

impl<'a, K: Meaning, const MAX_BYTES: usize> Codec<'a, String> for CountedText<K, MAX_BYTES> {
    const MIN_BYTES: usize = 2;

    fn put(value: &String, w: &mut Writer<'_>) {
        let text = &value.as_bytes()[..value.len().min(MAX_BYTES)];
        w.u16(text.len() as u16).bytes(text);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<String> {
        <Self as Codec<'a, Vec<u8>>>::get(r, what).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    fn secrets(value: &mut String, secrets: &mut dyn Secrets) {
        let mut text = std::mem::take(value).into_bytes();
        <Self as Codec<'a, Vec<u8>>>::secrets(&mut text, secrets);
        *value = String::from_utf8_lossy(&text).into_owned();
    }
}

/// Writers pad texts of feature sections to a multiple of this length.
pub(crate) const TEXT_ALIGN_BYTES: usize = 64;

/// `length u32`, then that many bytes: the text up to the first NUL, and padding.
pub(crate) struct PaddedText;

impl<'a> Codec<'a, &'a [u8]> for PaddedText {
    const MIN_BYTES: usize = 4;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        let len = (value.len() + 1).next_multiple_of(TEXT_ALIGN_BYTES);
        w.u32(len as u32).bytes(value).zeros(len - value.len());
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
        let len = r.u32(what)?;
        let bytes = r.take(len as usize, what)?;
        Ok(bytes.split(|b| *b == 0).next().unwrap_or_default())
    }
}

/// Text in a field of `N` bytes, up to the first NUL; the writer cuts the text to leave room for one NUL.
pub(crate) struct Fixed<const N: usize>;

impl<'a, const N: usize> Codec<'a, Vec<u8>> for Fixed<N> {
    const MIN_BYTES: usize = N;

    fn put(value: &Vec<u8>, w: &mut Writer<'_>) {
        let text = &value[..value.len().min(N - 1)];
        w.bytes(text).zeros(N - text.len());
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<u8>> {
        let field = r.take(N, what)?;
        Ok(field.split(|b| *b == 0).next().unwrap_or_default().to_vec())
    }
}

/// Text up to the first NUL, the last field of a record; padded with NULs to 8 bytes.
pub(crate) struct LastText;

impl<'a> Codec<'a, &'a [u8]> for LastText {
    const MIN_BYTES: usize = 1;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        crate::records::put_string(w, value);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
        crate::records::string(r, what)
    }
}

/// The meaning of a text. A counted text cannot be declared without a meaning.
pub(crate) trait Meaning {
    /// Kind of secret; `None` if the text is public.
    const SECRET: Option<Secret>;
}

/// Text that is not a secret.
pub(crate) struct Public;

impl Meaning for Public {
    const SECRET: Option<Secret> = None;
}

/// Defines the kinds of secrets, and a type for each kind.
macro_rules! secrets {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Kind of a secret text. Redaction chooses the replacement by the kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Secret {
            $($(#[$doc])* $name,)*
        }

        /// Types that name the kinds of [`Secret`] in the tables of layouts.
        pub(crate) mod meaning {
            use super::{Meaning, Secret};

            $(pub(crate) struct $name;

            impl Meaning for $name {
                const SECRET: Option<Secret> = Some(Secret::$name);
            })*
        }
    };
}

secrets! {
    /// Name of a task.
    Comm,
    /// Path of a cgroup.
    Cgroup,
    /// Name of a task, or path of a cgroup. The path of a cgroup starts with `/`.
    CommOrCgroup,
    /// Path of a file.
    Path,
    /// Path in a mapping: of a file, or `[vdso]`, `//anon` and the like.
    Mapping,
    /// Target of the recording: CPU and task numbers, or the words of a command.
    Target,
    /// Source of counts: one of three words if bprec wrote it, else any text.
    Tier,
    /// Name of an event; it may contain paths and filters.
    Event,
    /// Id of the machine.
    Machine,
    /// Id of a boot of the machine.
    Boot,
    /// Value that a program's author chose.
    Value,
    /// Name of a function of a BPF program.
    Program,
    /// Name of a map.
    Map,
    /// Name of a kernel function or of a BPF program's code.
    Symbol,
    /// A message of the recorder; it may contain any name.
    Message,
}
