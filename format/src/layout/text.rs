//! Layouts of texts, and the kinds of secrets in them.

use std::borrow::Cow;

use super::{Codec, List};
use crate::{Error, Reader, Result, Writer};

/// `length u16`, then that many bytes of text; the writer cuts the text at `MAX_BYTES`. `K` is the meaning of the text.
pub(crate) struct CountedText<K, const MAX_BYTES: usize = { u16::MAX as usize }>(K);

impl<'a, K: Meaning, const MAX_BYTES: usize> Codec<'a, Vec<u8>> for CountedText<K, MAX_BYTES> {
    const MIN_BYTES: usize = 2;

    fn put(value: &Vec<u8>, w: &mut Writer<'_>) {
        let text = K::written(value, w);
        let text = &text[..text.len().min(MAX_BYTES)];
        w.u16(text.len() as u16).bytes(text);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<u8>> {
        let len = r.u16(what)?;
        r.take(usize::from(len), what).map(<[u8]>::to_vec)
    }
}

impl<'a, K: Meaning, const MAX_BYTES: usize> Codec<'a, String> for CountedText<K, MAX_BYTES> {
    const MIN_BYTES: usize = 2;

    fn put(value: &String, w: &mut Writer<'_>) {
        <Self as Codec<'a, Vec<u8>>>::put(&value.as_bytes().to_vec(), w);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<String> {
        <Self as Codec<'a, Vec<u8>>>::get(r, what).map(|text| String::from_utf8_lossy(&text).into_owned())
    }
}

/// Writers pad texts of feature sections to a multiple of this length.
pub(crate) const TEXT_ALIGN_BYTES: usize = 64;

/// `length u32`, then that many bytes: the text up to the first NUL, and padding.
pub(crate) struct PaddedText<K>(K);

impl<'a, K: Meaning> Codec<'a, &'a [u8]> for PaddedText<K> {
    const MIN_BYTES: usize = 4;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        let text = K::written(value, w);
        let len = (text.len() + 1).next_multiple_of(TEXT_ALIGN_BYTES);
        w.u32(len as u32).bytes(&text).zeros(len - text.len());
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
        let len = r.u32(what)?;
        r.take(len as usize, what).map(until_nul)
    }
}

/// Text in a field of `N` bytes, up to the first NUL; the writer cuts the text to leave room for one NUL.
pub(crate) struct Fixed<K, const N: usize>(K);

impl<'a, K: Meaning, const N: usize> Codec<'a, &'a [u8]> for Fixed<K, N> {
    const MIN_BYTES: usize = N;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        let text = K::written(value, w);
        let text = &text[..text.len().min(N - 1)];
        w.bytes(text).zeros(N - text.len());
    }

    #[inline]
    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
        r.take(N, what).map(until_nul)
    }
}

/// Text in a field of fixed size, up to the first NUL.
pub(crate) fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Text up to the first NUL, the last field of a record; padded with NULs to 8 bytes.
pub(crate) struct LastText<K>(K);

impl<'a, K: Meaning> Codec<'a, &'a [u8]> for LastText<K> {
    const MIN_BYTES: usize = 1;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        let text = K::written(value, w);
        crate::records::put_string(w, &text);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
        crate::records::string(r, what)
    }
}

/// The words of a command line, as a list of texts. A replacement is a single text, because the count of words says something about them, too.
pub(crate) struct CommandWords;

impl<'a> Codec<'a, Vec<&'a [u8]>> for CommandWords {
    const MIN_BYTES: usize = <Words as Codec<'a, Vec<&'a [u8]>>>::MIN_BYTES;

    fn put(value: &Vec<&'a [u8]>, w: &mut Writer<'_>) {
        match meaning::CommandLine::written(&value.join(&b' '), w) {
            Cow::Owned(text) => Words::put(&vec![text.as_slice()], w),
            Cow::Borrowed(_) => Words::put(value, w),
        }
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<Vec<&'a [u8]>> {
        Words::get(r, what)
    }

    fn get_partial(r: &mut Reader<'a>, what: &'static str, problem: &mut Option<Error>) -> Result<Vec<&'a [u8]>> {
        Words::get_partial(r, what, problem)
    }
}

/// Layout of the words of a command line.
type Words = List<PaddedText<Public>>;

/// The meaning of a text. A text cannot be declared without a meaning.
pub(crate) trait Meaning {
    /// Kind of secret; `None` if the text is public.
    const SECRET: Option<Secret>;

    /// Returns the text to write: the replacement if the text is a secret and the writer redacts.
    #[inline]
    fn written<'t>(text: &'t [u8], w: &mut Writer<'_>) -> Cow<'t, [u8]> {
        match Self::SECRET {
            Some(secret) => w.replaced(Cow::Borrowed(text), |secrets, text| Cow::Owned(secrets.text(secret, &text))),
            None => Cow::Borrowed(text),
        }
    }
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

        impl Secret {
            /// All kinds, by their number. The number of a kind is a part of recordings.
            pub(crate) const ALL: &[Secret] = &[$(Secret::$name),*];
        }

        /// Types that name the kinds of [`Secret`] in the tables of layouts.
        #[allow(dead_code, reason = "some kinds occur in attach targets only, which name them by number")]
        pub(crate) mod meaning {
            use super::{Meaning, Secret};

            $(pub(crate) struct $name;

            impl Meaning for $name {
                const SECRET: Option<Secret> = Some(Secret::$name);
            })*
        }
    };
}

// New kinds at the end: recordings contain the numbers of kinds.
secrets! {
    /// Name of the machine.
    Host,
    /// Words of a command line.
    CommandLine,
    /// Any contents.
    Contents,
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
    /// Path in a mapping of the kernel: of a module, or `[kernel.kallsyms]` and the like.
    KernelMapping,
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
    /// Name of a network namespace.
    NetworkNamespace,
    /// Inode number of a namespace, as decimal text.
    NamespaceNumber,
    /// Address, as hexadecimal text with `0x`.
    Address,
    /// Attach point of a program as older recorders wrote it: one text, in which names are not marked.
    AttachTarget,
}
