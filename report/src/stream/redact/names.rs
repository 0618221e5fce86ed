//! Replacements of names: equal secrets get equal replacements, numbered in order of occurrence.

use std::hash::BuildHasher;

use bprec_format::records::{BuildId, Mmap2File};
use rustc_hash::FxHashMap;

use super::shift::Shift;

/// Kind of secret; each kind has its own numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SecretKind {
    Host,
    Machine,
    Boot,
    Command,
    Comm,
    Path,
    Cgroup,
    /// Text chosen by the author of a program.
    Text,
    Program,
    Map,
    File,
    Recording,
    Event,
    /// Name of a network namespace.
    Network,
    /// Inode number of a namespace.
    Namespace,
    /// Attach point of unknown form.
    Target,
}

impl SecretKind {
    fn prefix(self) -> &'static str {
        match self {
            SecretKind::Host => "host-",
            SecretKind::Machine => "machine-",
            SecretKind::Boot => "boot-",
            SecretKind::Command => "command-",
            SecretKind::Comm => "comm-",
            SecretKind::Path => "/path-",
            SecretKind::Cgroup => "/cgroup-",
            SecretKind::Text => "text-",
            SecretKind::Program => "prog-",
            SecretKind::Map => "map-",
            SecretKind::File => "file-",
            SecretKind::Recording => "recording-",
            SecretKind::Event => "event-",
            SecretKind::Network => "netns-",
            SecretKind::Namespace => "ns-",
            SecretKind::Target => "target-",
        }
    }
}

/// Mapping names that the kernel uses in every process.
const COMMON_MAPPINGS: [&[u8]; 7] =
    [b"//anon", b"[heap]", b"[stack]", b"[vdso]", b"[vvar]", b"[vsyscall]", b"[uprobes]"];

/// Least number of hexadecimal digits of a possible address in text.
const ADDRESS_DIGITS: usize = 9;

/// Secrets with their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: FxHashMap<(SecretKind, Vec<u8>), u32>,
    counts: FxHashMap<SecretKind, u32>,
    /// Hash with a random key for build ids and tags. A guess of the original cannot be checked without the key.
    keyed: std::hash::RandomState,
}

impl Names {
    fn number(&mut self, kind: SecretKind, secret: &[u8]) -> u32 {
        let count = self.counts.entry(kind).or_default();
        *self.numbers.entry((kind, secret.to_vec())).or_insert_with(|| {
            *count += 1;
            *count
        })
    }

    /// Replaces a secret; empty stays empty.
    pub(super) fn replace(&mut self, kind: SecretKind, secret: &[u8]) -> Vec<u8> {
        if secret.is_empty() {
            return Vec::new();
        }
        let number = self.number(kind, secret);
        format!("{}{number}", kind.prefix()).into_bytes()
    }

    /// Redacts a task name; names of idle tasks stay.
    pub(super) fn comm(&mut self, comm: &[u8]) -> Vec<u8> {
        if comm == b"swapper" { comm.to_vec() } else { self.replace(SecretKind::Comm, comm) }
    }

    /// Redacts a cgroup path; the root stays.
    pub(super) fn cgroup(&mut self, path: &[u8]) -> Vec<u8> {
        if path == b"/" { path.to_vec() } else { self.replace(SecretKind::Cgroup, path) }
    }

    /// Redacts a program name. The kernel stores it truncated to 15 bytes in one place and in full in another. The truncated part alone decides the
    /// replacement, so that both names get the same replacement.
    pub(super) fn program(&mut self, name: &[u8]) -> Vec<u8> {
        const KERNEL_NAME_BYTES: usize = 15;
        // Reports recognize the recorder's own programs by these names.
        if bprec_format::bprec::is_program(name) {
            return name.to_vec();
        }
        self.replace(SecretKind::Program, &name[..name.len().min(KERNEL_NAME_BYTES)])
    }

    /// Replaces a tag by another tag of the same length.
    pub(super) fn tag(&self, tag: [u8; 8]) -> [u8; 8] {
        self.keyed.hash_one(tag).to_be_bytes()
    }

    /// Redacts the mapping name of a process.
    pub(super) fn mapping(&mut self, name: &[u8]) -> Vec<u8> {
        if COMMON_MAPPINGS.contains(&name) { name.to_vec() } else { self.replace(SecretKind::Path, name) }
    }

    /// Redacts the name of a kernel mapping. The name of the kernel itself and the file name of a module stay.
    pub(super) fn kernel_mapping(&mut self, name: &[u8]) -> Vec<u8> {
        if name.starts_with(b"[") {
            return name.to_vec();
        }
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_module = file.windows(3).any(|part| part == b".ko");
        let Some(directory) = name.strip_suffix(file).filter(|_| is_module) else { return self.mapping(name) };
        let mut path = self.replace(SecretKind::Path, directory);
        path.push(b'/');
        path.extend_from_slice(file);
        path
    }

    /// Replaces the identity of a mapped file: device and inode numbers, and a build id of the same length.
    pub(super) fn file(&mut self, file: &Mmap2File) -> Mmap2File {
        match file {
            // Anonymous memory has no file.
            Mmap2File::Inode { inode: 0, major: 0, minor: 0, .. } => *file,
            Mmap2File::Inode { major, minor, inode, generation } => {
                let numbers = [u64::from(*major), u64::from(*minor), *inode, *generation];
                let secret: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let inode = self.number(SecretKind::File, &secret).into();
                Mmap2File::Inode { major: 0, minor: 0, inode, generation: 0 }
            }
            Mmap2File::BuildId(id) => Mmap2File::BuildId(BuildId::new(&self.build_id(id.as_bytes()))),
        }
    }

    /// Replaces a build id by another build id of the same length.
    pub(super) fn build_id(&self, id: &[u8]) -> Vec<u8> {
        let words = (0..).flat_map(|part: u32| self.keyed.hash_one((id, part)).to_le_bytes());
        words.take(id.len()).collect()
    }

    /// Replaces the inode number of a namespace.
    pub(super) fn namespace(&mut self, inode: u64) -> u64 {
        self.number(SecretKind::Namespace, &inode.to_le_bytes()).into()
    }

    /// Redacts a message of the recorder: shifts addresses, and cuts the message at the first path. A path may contain blanks, so its end cannot be
    /// recognized.
    pub(super) fn message(&mut self, text: &str, shift: &Shift) -> String {
        let is_edge = |c: char| c.is_whitespace() || "(),.;:'\"`".contains(c);
        let (mut kept, mut at) = (String::new(), 0);
        for word in text.split_inclusive(char::is_whitespace) {
            let bare = word.trim_start_matches(is_edge);
            let start = at + word.len() - bare.len();
            let bare = bare.trim_end_matches(is_edge);
            if bare.contains('/') && event(bare, shift).is_none() {
                let path = self.replace(SecretKind::Path, &text.as_bytes()[start..]);
                return kept + &text[at..start] + &String::from_utf8_lossy(&path);
            }
            kept += &moved(word, shift);
            at += word.len();
        }
        kept
    }

    /// Redacts an event name. A name that is neither a word nor of the form `pmu/terms/modifiers` is replaced.
    pub(super) fn event(&mut self, name: &str, shift: &Shift) -> String {
        event(name, shift)
            .unwrap_or_else(|| String::from_utf8_lossy(&self.replace(SecretKind::Event, name.as_bytes())).into_owned())
    }
}

/// Returns the event name with shifted addresses; `None` if the name may contain other data.
fn event(name: &str, shift: &Shift) -> Option<String> {
    let Some((pmu, rest)) = name.split_once('/') else {
        return name.bytes().all(|byte| byte.is_ascii_graphic()).then(|| moved(name, shift));
    };
    let is_breakpoint =
        pmu.strip_prefix("mem:0x").is_some_and(|addr| addr.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_known = if is_breakpoint {
        // Breakpoint, such as `mem:0x1000/4:rw`: its length and modifiers follow the address.
        rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b':')
    } else {
        let (terms, modifiers) = rest.rsplit_once('/')?;
        let is_term = |term: &str| term.splitn(2, '=').all(is_identifier);
        let is_modifier = |byte: u8| byte.is_ascii_alphanumeric() || byte == b':';
        is_identifier(pmu)
            && terms.split(',').all(|term| term.is_empty() || is_term(term))
            && modifiers.bytes().all(is_modifier)
    };
    is_known.then(|| moved(name, shift))
}

/// Returns true for a kernel identifier: PMU, event, tracepoint, term or type.
pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Shifts the addresses in a text.
fn moved(text: &str, shift: &Shift) -> String {
    let mut parts = text.split("0x");
    let mut moved = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len()));
        match u64::from_str_radix(digits, 16) {
            Ok(addr) if digits.len() >= ADDRESS_DIGITS => moved += &format!("{:#x}{rest}", shift.of(addr)),
            _ => moved += &format!("0x{part}"),
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_a_path_begins() {
        let (mut names, shift) = (Names::default(), Shift::random());
        for plain in
            ["system wide", "1 of 2: EPERM", "no cpu/cycles/u: ENOENT", "raw_syscalls:sys_enter", "foo+0x10", ""]
        {
            assert_eq!(names.message(plain, &shift), plain);
        }
        assert_eq!(names.message("cannot open (/srv/a b: denied)", &shift), "cannot open (/path-1");
        assert_eq!(names.message("file=/srv/c: denied", &shift), "/path-2");
        assert_eq!(names.message("/srv/my secrets/d: denied", &shift), "/path-3");
        let addr = 0xffff_8880_1234_5678;
        assert_eq!(names.message("at 0xffff888012345678, why", &shift), format!("at {:#x}, why", shift.of(addr)));
    }

    #[test]
    fn names_of_events_have_no_paths() {
        let (mut names, shift) = (Names::default(), Shift::random());
        for plain in
            ["cycles:ppp", "cpu/cycles/u", "cpu/event=0x3c,name=mine/", "r3c", "mem:0x1000/4:rw", "{a,b}:S", ""]
        {
            assert_eq!(names.event(plain, &shift), plain);
        }
        for secret in ["uprobe/path=/srv/a,offset=0x10/", "/srv/a", "a b", "cpu/a b/", "x/y"] {
            assert!(names.event(secret, &shift).starts_with("event-"), "{secret}");
        }
        let addr = 0xffff_8880_1234_5678;
        assert_eq!(names.event("mem:0xffff888012345678:rw", &shift), format!("mem:{:#x}:rw", shift.of(addr)));
        let term = names.event("kprobe/func=0xffff888012345678/", &shift);
        assert_eq!(term, format!("kprobe/func={:#x}/", shift.of(addr)));
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
