//! Attach points of programs.

use crate::layout::{Codec, CountedText, List, Optional, Plain, Public, Wide, layout};
use crate::{Reader, Result, Secret, Secrets, Writer};

layout! {
    /// Attachment of a program.
    #[derive(Hash, Default)]
    pub struct Attachment {
        /// Program id.
        pub prog_id: u32,
        /// Id of the link, if the attachment has one.
        pub link_id: Option<u32> as Optional<Wide>,
        /// Kind of attachment: `tracepoint`, `raw_tracepoint`, `kprobe`, `xdp`, `perf_event`, `cgroup`, `tracing` …
        pub kind: String as CountedText<Public>,
        /// Attach point: `raw_syscalls:sys_enter`, `lo`, `cpu-clock`, a cgroup's path, a function's name …
        pub target: AttachTarget,
    }

    /// A name in the text of an [`AttachTarget`].
    #[derive(Copy, Hash, PartialOrd, Ord)]
    pub struct TargetName {
        /// Offset of the name's first byte in the text.
        pub start: u16,
        /// Offset of the first byte after the name.
        pub end: u16,
        /// Kind of the name: a number of [`Secret`].
        pub kind: u8,
    }
}

/// Attach point of a program: a text of public words and of names, each with its kind. Redaction replaces the names and keeps the words.
///
/// The layout is the text (`length u16` and the bytes), then `count u32` and a [`TargetName`] for each name. Older recorders wrote the text alone: all
/// of it counts as one name, of kind [`Secret::AttachTarget`].
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachTarget {
    text: Vec<u8>,
    names: Vec<TargetName>,
}

impl AttachTarget {
    /// The whole text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Appends public words.
    pub fn words(mut self, words: impl AsRef<[u8]>) -> AttachTarget {
        self.text.extend_from_slice(words.as_ref());
        self
    }

    /// Appends a name.
    pub fn name(self, kind: Secret, name: impl AsRef<[u8]>) -> AttachTarget {
        let start = self.text.len() as u16;
        let mut target = self.words(name);
        target.names.push(TargetName { start, end: target.text.len() as u16, kind: kind as u8 });
        target
    }

    /// Returns the parts of the text in their order: public words (`None`), and names with their kinds. A name of an unknown kind counts as
    /// [`Secret::AttachTarget`], and a name outside of the text is empty.
    pub fn parts(&self) -> impl Iterator<Item = (Option<Secret>, &[u8])> {
        let text = |range: std::ops::Range<usize>| self.text.get(range).unwrap_or_default();
        let ends = std::iter::once(0).chain(self.names.iter().map(|name| name.end.into()));
        let names = self.names.iter().zip(ends).flat_map(move |(name, at)| {
            let (start, end) = (name.start.into(), name.end.into());
            let kind = Secret::ALL.get(usize::from(name.kind)).copied().unwrap_or(Secret::AttachTarget);
            [(None, text(at..start)), (Some(kind), text(start..end))]
        });
        let rest = self.names.last().map_or(0, |name| name.end.into());
        let parts = names.chain([(None, text(rest..self.text.len()))]);
        parts.filter(|(kind, text)| kind.is_some() || !text.is_empty())
    }

    fn redacted(&self, secrets: &mut dyn Secrets) -> AttachTarget {
        self.parts().fold(AttachTarget::default(), |target, part| match part {
            (Some(kind), name) => target.name(kind, secrets.text(kind, name)),
            (None, words) => target.words(words),
        })
    }
}

impl<'a> Codec<'a, AttachTarget> for Plain {
    const MIN_BYTES: usize = 2;

    fn put(value: &AttachTarget, w: &mut Writer<'_>) {
        let target = w.replaced(value.clone(), |secrets, target| target.redacted(secrets));
        CountedText::<Public>::put(&target.text, w);
        List::<Plain>::put(&target.names, w);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<AttachTarget> {
        let text: Vec<u8> = CountedText::<Public>::get(r, what)?;
        match r.is_empty() {
            true => Ok(AttachTarget::default().name(Secret::AttachTarget, text)),
            false => Ok(AttachTarget { text, names: List::<Plain>::get(r, what)? }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;
    use crate::records::Mmap2File;

    /// Replaces a text by its kind and its length.
    #[derive(Debug)]
    struct Lengths;

    impl Secrets for Lengths {
        fn text(&mut self, secret: Secret, text: &[u8]) -> Vec<u8> {
            format!("{secret:?}{}", text.len()).into_bytes()
        }
        fn address(&mut self, address: u64) -> u64 {
            address
        }
        fn tag(&mut self, tag: [u8; 8]) -> [u8; 8] {
            tag
        }
        fn file(&mut self, file: Mmap2File) -> Mmap2File {
            file
        }
        fn namespace(&mut self, inode: u64) -> u64 {
            inode
        }
        fn btf_id(&mut self, id: u32) -> u32 {
            id
        }
    }

    fn written(target: &AttachTarget, secrets: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, Endian::Little);
        match secrets {
            true => Plain::put(target, &mut writer.redacting(&mut Lengths)),
            false => Plain::put(target, &mut writer),
        }
        bytes
    }

    fn read(bytes: &[u8]) -> AttachTarget {
        Plain::get(&mut Reader::new(bytes, 0, Endian::Little), "target").unwrap()
    }

    #[test]
    fn redaction_replaces_names_and_keeps_words() {
        let target = AttachTarget::default().name(Secret::Map, "jumps").words("[3] in netns ");
        let target = target.name(Secret::NetworkNamespace, "acme").words(".");
        assert_eq!((target.text(), &read(&written(&target, false))), (&b"jumps[3] in netns acme."[..], &target));
        let redacted = read(&written(&target, true));
        assert_eq!(redacted.text(), b"Map5[3] in netns NetworkNamespace4.");
        // The offsets of the names are those of the replacements: redacting again replaces the replacements.
        assert_eq!(read(&written(&redacted, true)).text(), b"Map4[3] in netns NetworkNamespace17.");
    }

    #[test]
    fn parts_are_words_and_names_in_the_order_of_the_text() {
        let target =
            AttachTarget::default().name(Secret::Symbol, "vfs_read").words(", ").name(Secret::Symbol, "vfs_write");
        let parts: Vec<_> = target.parts().collect();
        let name = Some(Secret::Symbol);
        assert_eq!(parts, [(name, &b"vfs_read"[..]), (None, b", "), (name, b"vfs_write")]);
        assert_eq!(AttachTarget::default().words("lo").parts().collect::<Vec<_>>(), [(None, &b"lo"[..])]);
        assert_eq!(AttachTarget::default().parts().count(), 0);
    }

    #[test]
    fn a_target_without_marks_is_one_name() {
        let old = read(b"\x04\x00acme");
        assert_eq!((old.text(), read(&written(&old, true)).text()), (&b"acme"[..], &b"AttachTarget4"[..]));
        let unknown_kind = AttachTarget { names: vec![TargetName { start: 0, end: 4, kind: u8::MAX }], ..old };
        assert_eq!(read(&written(&unknown_kind, true)).text(), b"AttachTarget4");
    }

    #[test]
    fn marks_beyond_the_text_do_no_harm() {
        let names = [(3, 9), (9, 3), (1, 2)].map(|(start, end)| TargetName { start, end, kind: 0 });
        let target = AttachTarget { text: b"acme".to_vec(), names: names.to_vec() };
        assert!(!read(&written(&target, true)).text().windows(4).any(|part| part == b"acme"));
    }
}
