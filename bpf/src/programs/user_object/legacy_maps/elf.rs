//! As much of ELF as it takes to rename a section and to give the file other BTF.

use bprec_format::Endian;

const FILE_HEADER_BYTES: usize = 64;
const HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;

/// An object of 64 bits in this machine's byte order.
pub(super) struct Elf<'a> {
    file: &'a [u8],
    sections: Vec<Section<'a>>,
    /// Index of the section with the names of sections.
    names: usize,
}

/// One section.
#[derive(Debug)]
pub(super) struct Section<'a> {
    index: usize,
    header: &'a [u8],
    name: &'a [u8],
    pub(super) data: &'a [u8],
}

impl<'a> Elf<'a> {
    /// `None` for what is not such an object.
    pub(super) fn parse(file: &'a [u8]) -> Option<Elf<'a>> {
        let byte_order = if cfg!(target_endian = "big") { 2 } else { 1 };
        if file.get(..6)? != [0x7f, b'E', b'L', b'F', 2, byte_order] {
            return None;
        }
        let table = usize::try_from(Endian::NATIVE.u64_at(file, 40)?).ok()?;
        let [header_bytes, count, names] = [58, 60, 62].map(|at| Endian::NATIVE.u16_at(file, at).map(usize::from));
        if header_bytes? != HEADER_BYTES {
            return None;
        }
        let header = |index: usize| {
            let start = table.checked_add(index.checked_mul(HEADER_BYTES)?)?;
            file.get(start..start.checked_add(HEADER_BYTES)?)
        };
        let names = names?;
        let strings = data_of(file, header(names)?)?;
        let section = |index| {
            let header = header(index)?;
            let name = string(strings, Endian::NATIVE.u32_at(header, 0)?)?;
            Some(Section { index, header, name, data: data_of(file, header)? })
        };
        let sections = (0..count?).map(section).collect::<Option<Vec<_>>>()?;
        Some(Elf { file, sections, names })
    }

    /// The section of that name.
    pub(super) fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name.as_bytes())
    }

    /// Names and offsets of the variables in a section, by their symbols.
    pub(super) fn variables_in(&self, section: &Section<'_>) -> Option<Vec<(&'a [u8], usize)>> {
        const SHT_SYMTAB: u32 = 2;
        const STT_SECTION: u8 = 3;
        let table = self.sections.iter().find(|it| Endian::NATIVE.u32_at(it.header, 4) == Some(SHT_SYMTAB))?;
        let strings = self.sections.get(Endian::NATIVE.u32_at(table.header, 40)? as usize)?.data;
        let is_in_it = |symbol: &&[u8]| {
            Endian::NATIVE.u16_at(symbol, 6).map(usize::from) == Some(section.index) && symbol[4] & 15 != STT_SECTION
        };
        let variable = |symbol: &[u8]| {
            let offset = usize::try_from(Endian::NATIVE.u64_at(symbol, 8)?).ok()?;
            Some((string(strings, Endian::NATIVE.u32_at(symbol, 0)?)?, offset))
        };
        table.data.chunks_exact(SYMBOL_BYTES).filter(is_in_it).map(variable).collect()
    }

    /// The file with `maps` named `.maps` and with this BTF.
    pub(super) fn with(&self, maps: &Section<'_>, btf: &[u8]) -> Option<Vec<u8>> {
        const SHT_PROGBITS: u32 = 1;
        const ALIGNMENT: usize = 48;
        let mut file = self.file.to_vec();
        let mut headers: Vec<[u8; HEADER_BYTES]> =
            self.sections.iter().map(|section| section.header.try_into().ok()).collect::<Option<_>>()?;
        let mut names = self.sections.get(self.names)?.data.to_vec();
        put_u32(&mut headers[maps.index], 0, names.len() as u32);
        names.extend(b".maps\0");
        let btf_index = match self.section(".BTF") {
            Some(section) => section.index,
            None => {
                let mut header = [0; HEADER_BYTES];
                put_u32(&mut header, 0, names.len() as u32);
                names.extend(b".BTF\0");
                put_u32(&mut header, 4, SHT_PROGBITS);
                put_u64(&mut header, ALIGNMENT, 4);
                headers.push(header);
                headers.len() - 1
            }
        };
        for (index, data) in [(self.names, &names[..]), (btf_index, btf)] {
            file.resize(file.len().next_multiple_of(8), 0);
            put_u64(&mut headers[index], 24, file.len() as u64);
            put_u64(&mut headers[index], 32, data.len() as u64);
            file.extend(data);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let table = file.len() as u64;
        put_u64(file.get_mut(..FILE_HEADER_BYTES)?, 40, table);
        file[60..62].copy_from_slice(&u16::try_from(headers.len()).ok()?.to_ne_bytes());
        file.extend(headers.as_flattened());
        Some(file)
    }
}

/// What a section header points to.
fn data_of<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    const SHT_NOBITS: u32 = 8;
    if Endian::NATIVE.u32_at(header, 4)? == SHT_NOBITS {
        return Some(&[]);
    }
    let start = usize::try_from(Endian::NATIVE.u64_at(header, 24)?).ok()?;
    let bytes = usize::try_from(Endian::NATIVE.u64_at(header, 32)?).ok()?;
    file.get(start..start.checked_add(bytes)?)
}

fn string(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}
