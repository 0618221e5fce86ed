//! Minimal ELF editing: renames a section and replaces the BTF.

use object::elf::{FileHeader64, SHT_PROGBITS, SHT_SYMTAB, STT_SECTION, SectionHeader64, Sym64};
use object::pod::{bytes_of, bytes_of_slice};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{NativeEndian, SectionIndex, U16, U32, U64};

type Header = FileHeader64<NativeEndian>;

/// A 64-bit ELF object in this machine's byte order.
pub(super) struct Elf<'a> {
    file: &'a [u8],
    header: &'a Header,
    sections: SectionTable<'a, Header>,
}

/// A section of the object.
#[derive(Debug)]
pub(super) struct Section<'a> {
    index: SectionIndex,
    pub(super) data: &'a [u8],
}

impl<'a> Elf<'a> {
    /// Parses an object; `None` if it is not a 64-bit ELF object in this machine's byte order.
    pub(super) fn parse(file: &'a [u8]) -> Option<Elf<'a>> {
        let header = Header::parse(file).ok()?;
        header.endian().ok()?;
        let sections = header.sections(NativeEndian, file).ok()?;
        Some(Elf { file, header, sections })
    }

    /// Finds a section by name.
    pub(super) fn section(&self, name: &str) -> Option<Section<'a>> {
        let (index, header) = self.sections.section_by_name(NativeEndian, name.as_bytes())?;
        Some(Section { index, data: header.data(NativeEndian, self.file).ok()? })
    }

    /// Reads the names and offsets of the variables in a section from the symbol table.
    pub(super) fn variables_in(&self, section: &Section<'_>) -> Option<Vec<(&'a [u8], usize)>> {
        let symbols = self.sections.symbols(NativeEndian, self.file, SHT_SYMTAB).ok()?;
        let in_it = symbols.iter().filter(|symbol| {
            usize::from(symbol.st_shndx(NativeEndian)) == section.index.0 && symbol.st_type() != STT_SECTION
        });
        let variable = |symbol: &Sym64<NativeEndian>| {
            let name = symbols.symbol_name(NativeEndian, symbol).ok()?;
            Some((name, usize::try_from(symbol.st_value(NativeEndian)).ok()?))
        };
        in_it.map(variable).collect()
    }

    /// Returns the file with the section `maps` renamed to `.maps` and with `btf` as its BTF.
    pub(super) fn with(&self, maps: &Section<'_>, btf: &[u8]) -> Option<Vec<u8>> {
        let mut file = self.file.to_vec();
        let mut headers: Vec<SectionHeader64<NativeEndian>> = self.sections.iter().copied().collect();
        let names_index = self.header.shstrndx(NativeEndian, self.file).ok()? as usize;
        let mut names = headers.get(names_index)?.data(NativeEndian, self.file).ok()?.to_vec();
        headers.get_mut(maps.index.0)?.sh_name = U32::new(NativeEndian, u32::try_from(names.len()).ok()?);
        names.extend(b".maps\0");
        let btf_index = match self.section(".BTF") {
            Some(section) => section.index.0,
            None => {
                let (none, word) = (U64::new(NativeEndian, 0), |value| U32::new(NativeEndian, value));
                headers.push(SectionHeader64 {
                    sh_name: word(u32::try_from(names.len()).ok()?),
                    sh_type: word(SHT_PROGBITS),
                    sh_flags: none,
                    sh_addr: none,
                    sh_offset: none,
                    sh_size: none,
                    sh_link: word(0),
                    sh_info: word(0),
                    sh_addralign: U64::new(NativeEndian, 4),
                    sh_entsize: none,
                });
                names.extend(b".BTF\0");
                headers.len() - 1
            }
        };
        for (index, data) in [(names_index, &names[..]), (btf_index, btf)] {
            file.resize(file.len().next_multiple_of(8), 0);
            let header = headers.get_mut(index)?;
            header.sh_offset = U64::new(NativeEndian, file.len() as u64);
            header.sh_size = U64::new(NativeEndian, data.len() as u64);
            file.extend(data);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let header = FileHeader64 {
            e_shoff: U64::new(NativeEndian, file.len() as u64),
            e_shnum: U16::new(NativeEndian, u16::try_from(headers.len()).ok()?),
            ..*self.header
        };
        file.get_mut(..size_of::<Header>())?.copy_from_slice(bytes_of(&header));
        file.extend(bytes_of_slice(&headers));
        Some(file)
    }
}
