//! Root file systems as the kernel unpacks them at boot: cpio archives in the "newc" layout (`Documentation/driver-api/early-userspace/
//! buffer-format.rst` of Linux). Archives may follow each other in one file; each is padded to four bytes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes one archive.
pub(crate) struct Archive<W: Write> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    /// A directory that need not exist here.
    pub(crate) fn directory(&mut self, name: &str) -> Result<()> {
        Ok(self.entry(name.as_bytes(), 0o040_755, &[])?)
    }

    /// A file with the given contents and permissions.
    pub(crate) fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) -> Result<()> {
        Ok(self.entry(name.as_bytes(), 0o100_000 | permissions, contents)?)
    }

    /// Everything below `directory`, under `prefix` (empty for the root); files, directories and symbolic links.
    pub(crate) fn tree(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        let mut entries = fs::read_dir(directory)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("read {}", directory.display()))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            let name = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            let metadata = entry.metadata()?;
            let context = || format!("pack {}", path.display());
            if metadata.is_dir() {
                self.entry(name.as_bytes(), metadata.mode(), &[])?;
                self.tree(&path, &name)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).with_context(context)?;
                self.entry(name.as_bytes(), 0o120_777, target.as_os_str().as_bytes())?;
            } else if metadata.is_file() {
                let contents = fs::read(&path).with_context(context)?;
                self.entry(name.as_bytes(), metadata.mode(), &contents)?;
            }
        }
        Ok(())
    }

    /// Closes the archive.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry(b"TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &[u8], mode: u32, contents: &[u8]) -> io::Result<()> {
        const HEADER_BYTES: usize = 110;
        self.inode += 1;
        let length = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
        let links = 1;
        let fields =
            [self.inode, mode, 0, 0, links, 0, length(contents.len())?, 0, 0, 0, 0, length(name.len() + 1)?, 0];
        write!(self.out, "070701")?;
        for field in fields {
            write!(self.out, "{field:08X}")?;
        }
        self.out.write_all(name)?;
        self.out.write_all(&[0])?;
        self.pad(HEADER_BYTES + name.len() + 1)?;
        self.out.write_all(contents)?;
        self.pad(contents.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    /// Expected bytes: `printf 'hi' > f; echo f | cpio -o -H newc`, with owner, inode and time set to what is written here.
    #[test]
    fn a_file_is_laid_out_as_cpio_does() {
        let mut archive = Archive::new(Vec::new());
        archive.file("f", 0o644, b"hi").unwrap();
        let bytes = archive.finish().unwrap();
        let header = "07070100000001000081A400000000000000000000000100000000000000020000000000000000000000000000000000000002\
                      00000000";
        let file = [header.as_bytes(), b"f\0", b"hi\0\0"].concat();
        assert_eq!(&bytes[..file.len()], file);
        assert!(bytes[file.len()..].starts_with(b"070701"));
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(bytes.len() % 4, 0);
    }
}
