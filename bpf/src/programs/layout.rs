//! Layouts of structures, from the BTF of our BPF objects. Tests compare them with the constants of the Rust code.

use bprec_format::bpf::btf::{Btf, Kind};
use object::{Object, ObjectSection};

/// Size of a structure and offsets of its members.
pub(crate) struct Layout {
    members: Vec<(String, usize)>,
    bytes: usize,
}

impl Layout {
    /// Reads the layout of the structure `name` in an object; `None` if the object lacks it.
    pub(crate) fn of(elf: &[u8], name: &str) -> Option<Layout> {
        Layout::in_btf(elf, |btf| btf.find(Kind::STRUCT, name.as_bytes()).map(|it| it.id()))
    }

    /// Reads the layout of the structure type of the variable `name`.
    pub(crate) fn of_variable(elf: &[u8], name: &str) -> Option<Layout> {
        Layout::in_btf(elf, |btf| btf.find(Kind::VAR, name.as_bytes())?.target())
    }

    /// Reads the layout of a section: its variables are the members.
    pub(crate) fn of_section(elf: &[u8], name: &str) -> Option<Layout> {
        let file = object::File::parse(elf).ok()?;
        let btf = Btf::parse(file.section_by_name(".BTF")?.data().ok()?).ok()?;
        let section = btf.find(Kind::DATASEC, name.as_bytes())?;
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        // The compiler leaves the offsets in BTF empty, for the loader to fill in. The symbol table has them.
        let at = |name: &str| {
            use object::ObjectSymbol;
            file.symbols().find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address() as usize)
        };
        let members = btf.variables(section.id()).filter_map(|it| Some((text(it.name), at(&text(it.name))?))).collect();
        Some(Layout { members, bytes: file.section_by_name(name)?.size() as usize })
    }

    fn in_btf(elf: &[u8], find: impl Fn(&Btf<'_>) -> Option<u32>) -> Option<Layout> {
        let file = object::File::parse(elf).ok()?;
        let btf = Btf::parse(file.section_by_name(".BTF")?.data().ok()?).ok()?;
        let structure = btf.resolve(find(&btf)?)?;
        let members = structure
            .members()
            .filter_map(|it| Some((String::from_utf8_lossy(it.name?).into_owned(), it.bit_offset as usize / 8)));
        Some(Layout { members: members.collect(), bytes: btf.size_of(structure.id())? as usize })
    }

    /// Offset of a member, in bytes.
    pub(crate) fn offset(&self, member: &str) -> Option<usize> {
        self.members.iter().find(|(name, _)| name == member).map(|(_, offset)| *offset)
    }

    /// Names and offsets of all members.
    pub(crate) fn members(&self) -> Vec<(&str, usize)> {
        self.members.iter().map(|(name, offset)| (name.as_str(), *offset)).collect()
    }

    /// Size of the structure, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
