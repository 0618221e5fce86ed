//! What stands for names: the same secret gets the same replacement, numbered in the order in which secrets are met.

use std::hash::BuildHasher;

use bprec_format::records::{BuildId, Mmap2File};
use rustc_hash::FxHashMap;

use super::shift::Shift;

/// What a secret is; each kind is counted for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Host,
    Command,
    Comm,
    Path,
    Cgroup,
    /// Text that the author of a program put into it.
    Text,
    Program,
    Map,
    File,
    Recording,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::Host => "host-",
            Kind::Command => "command-",
            Kind::Comm => "comm-",
            Kind::Path => "/path-",
            Kind::Cgroup => "/cgroup-",
            Kind::Text => "text-",
            Kind::Program => "prog-",
            Kind::Map => "map-",
            Kind::File => "file-",
            Kind::Recording => "recording-",
        }
    }
}

/// Names of mappings that the kernel gives to every process.
const COMMON_MAPPINGS: [&[u8]; 7] =
    [b"//anon", b"[heap]", b"[stack]", b"[vdso]", b"[vvar]", b"[vsyscall]", b"[uprobes]"];

/// Digits from which on a hexadecimal number in a text may be an address.
const ADDRESS_DIGITS: usize = 9;

/// Secrets and their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: FxHashMap<(Kind, Vec<u8>), u32>,
    counts: FxHashMap<Kind, u32>,
    /// Its keys are random: nobody finds a build id by trying.
    keyed: std::hash::RandomState,
}

impl Names {
    fn number(&mut self, kind: Kind, secret: &[u8]) -> u32 {
        let count = self.counts.entry(kind).or_default();
        *self.numbers.entry((kind, secret.to_vec())).or_insert_with(|| {
            *count += 1;
            *count
        })
    }

    /// What stands for a secret; for none, none.
    pub(super) fn replace(&mut self, kind: Kind, secret: &[u8]) -> Vec<u8> {
        if secret.is_empty() {
            return Vec::new();
        }
        let number = self.number(kind, secret);
        format!("{}{number}", kind.prefix()).into_bytes()
    }

    /// The name of a task; the idle tasks are the kernel's.
    pub(super) fn comm(&mut self, comm: &[u8]) -> Vec<u8> {
        if comm == b"swapper" { comm.to_vec() } else { self.replace(Kind::Comm, comm) }
    }

    /// The path of a cgroup; the root is everyone's.
    pub(super) fn cgroup(&mut self, path: &[u8]) -> Vec<u8> {
        if path == b"/" { path.to_vec() } else { self.replace(Kind::Cgroup, path) }
    }

    /// The name of a program's function, of which the kernel keeps so much in one place and all in another.
    pub(super) fn program(&mut self, name: &[u8]) -> Vec<u8> {
        const KERNEL_NAME_BYTES: usize = 15;
        // Reports know the recorder's own by their names.
        if name.starts_with(b"bprec_") {
            return name.to_vec();
        }
        self.replace(Kind::Program, &name[..name.len().min(KERNEL_NAME_BYTES)])
    }

    /// A tag of the same length.
    pub(super) fn tag(&self, tag: [u8; 8]) -> [u8; 8] {
        self.keyed.hash_one(tag).to_be_bytes()
    }

    /// What a mapping in a process is of.
    pub(super) fn mapping(&mut self, name: &[u8]) -> Vec<u8> {
        if COMMON_MAPPINGS.contains(&name) { name.to_vec() } else { self.replace(Kind::Path, name) }
    }

    /// What a mapping in the kernel is of: itself, or a module, of which the file keeps its name.
    pub(super) fn kernel_mapping(&mut self, name: &[u8]) -> Vec<u8> {
        if name.starts_with(b"[") {
            return name.to_vec();
        }
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_module = file.windows(3).any(|part| part == b".ko");
        let Some(directory) = name.strip_suffix(file).filter(|_| is_module) else { return self.mapping(name) };
        let mut path = self.replace(Kind::Path, directory);
        path.push(b'/');
        path.extend_from_slice(file);
        path
    }

    /// Which file is mapped: other numbers, and a build id of the same length.
    pub(super) fn file(&mut self, file: &Mmap2File) -> Mmap2File {
        match file {
            // Of memory without a file.
            Mmap2File::Inode { inode: 0, major: 0, minor: 0, .. } => *file,
            Mmap2File::Inode { major, minor, inode, generation } => {
                let numbers = [u64::from(*major), u64::from(*minor), *inode, *generation];
                let secret: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let inode = self.number(Kind::File, &secret).into();
                Mmap2File::Inode { major: 0, minor: 0, inode, generation: 0 }
            }
            Mmap2File::BuildId(id) => Mmap2File::BuildId(BuildId::new(&self.build_id(id.as_bytes()))),
        }
    }

    /// A build id of the same length.
    pub(super) fn build_id(&self, id: &[u8]) -> Vec<u8> {
        let words = (0..).flat_map(|part: u32| self.keyed.hash_one((id, part)).to_le_bytes());
        words.take(id.len()).collect()
    }

    /// A text of the recorder's: paths and addresses in it are replaced.
    pub(super) fn prose(&mut self, text: &str, shift: &Shift) -> String {
        if text.starts_with('/') {
            // The path of a file, which may have blanks, and where in it.
            let end = text.find("+0x").unwrap_or(text.len());
            let path = self.replace(Kind::Path, &text.as_bytes()[..end]);
            return String::from_utf8_lossy(&path).into_owned() + &text[end..];
        }
        text.split_inclusive(char::is_whitespace).map(|word| self.word(word, shift)).collect()
    }

    fn word(&mut self, word: &str, shift: &Shift) -> String {
        if let Some(start) = word.find('/').filter(|start| word[..*start].chars().all(|c| c.is_ascii_punctuation())) {
            let end = word.trim_end_matches(|c: char| c.is_whitespace() || "),.;:'\"".contains(c)).len().max(start);
            let path = self.replace(Kind::Path, &word.as_bytes()[start..end]);
            return word[..start].to_owned() + &String::from_utf8_lossy(&path) + &word[end..];
        }
        let Some(start) = word.find("0x") else { return word.to_owned() };
        let digits = &word[start + 2..];
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len())];
        match u64::from_str_radix(digits, 16) {
            Ok(addr) if digits.len() >= ADDRESS_DIGITS => {
                let rest = &word[start + 2 + digits.len()..];
                format!("{}{:#x}{rest}", &word[..start], shift.of(addr))
            }
            _ => word.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_all_but_paths_and_addresses() {
        let (mut names, shift) = (Names::default(), Shift::random());
        for plain in ["system wide", "1 of 2: EPERM", "cpu/cycles/u", "raw_syscalls:sys_enter", "foo+0x10", ""] {
            assert_eq!(names.prose(plain, &shift), plain);
        }
        assert_eq!(names.prose("open /srv/a: denied (/etc/b)", &shift), "open /path-1: denied (/path-2)");
        assert_eq!(names.prose("/srv/a+0x10 and 2 more", &shift), "/path-1+0x10 and 2 more");
        let addr = 0xffff_8880_1234_5678;
        assert_eq!(names.prose("mem:0xffff888012345678:rw", &shift), format!("mem:{:#x}:rw", shift.of(addr)));
    }

    #[test]
    fn one_secret_has_one_replacement() {
        let mut names = Names::default();
        let first = names.comm(b"nginx");
        assert_eq!((names.comm(b"redis"), names.comm(b"nginx")), (b"comm-2".to_vec(), first));
        assert_eq!(names.kernel_mapping(b"/lib/modules/6.1-mine/kernel/net/tls.ko.xz"), b"/path-1/tls.ko.xz");
        assert_eq!(names.kernel_mapping(b"[kernel.kallsyms]_text"), b"[kernel.kallsyms]_text");
        let id = names.build_id(&[7; 20]);
        assert_eq!((id.len(), &id), (20, &names.build_id(&[7; 20])));
        assert_ne!(id, [7; 20]);
    }
}
