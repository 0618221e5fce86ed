//! Programs that implement kernel operations (`struct_ops`), with the member of the table that each implements.

use std::os::fd::AsFd;

use bprec_format::Secret;
use bprec_format::bpf::btf::{Btf, Kind as BtfKind};
use bprec_format::bprec::state::{AttachTarget, Attachment};

use crate::error::{Error, Object, Result};
use crate::sys::{self, Kind};

/// Lists the programs in a struct_ops map. The map's only value is the table of operations. Instead of a pointer to code, the kernel shows user space
/// the id of the program.
///
/// # Errors
/// Fails if the map was freed or cannot be read, or if the kernel has no BTF.
pub(crate) fn attachments(map_id: u32, link_id: u32) -> Result<Vec<Attachment>> {
    let fd = sys::fd_by_id(Kind::Map, map_id)?;
    let info = sys::map_info(fd.as_fd(), map_id)?;
    let value = sys::value_at(&fd, map_id, 0)?;
    let table = sys::c_chars(&info.name);
    let path = "/sys/kernel/btf/vmlinux";
    let vmlinux = std::fs::read(path).map_err(|source| Error::file(path, source))?;
    let members = members(&vmlinux, info.btf_vmlinux_value_type_id, &value).ok_or_else(|| Error::Answer {
        call: "bpf(BPF_MAP_LOOKUP_ELEM)",
        object: Object::Map(map_id),
        problem: "the kernel's BTF does not describe the value of the struct_ops map".to_owned(),
    })?;
    Ok(members
        .into_iter()
        .map(|(kind, member, prog_id)| Attachment {
            prog_id,
            link_id: Some(link_id),
            kind: "struct_ops".to_owned(),
            target: AttachTarget::default()
                .words(format!("{kind} "))
                .name(Secret::Map, &table)
                .words(format!(".{member}")),
        })
        .collect())
}

/// Returns (type of the table, member, program id) for each member that has a program. The value is a `struct bpf_struct_ops_<type>`, whose member
/// `data` is the table.
fn members(vmlinux: &[u8], value_type_id: u32, value: &[u8]) -> Option<Vec<(String, String, u32)>> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let btf = Btf::parse(vmlinux).ok()?;
    let wrapper = btf.type_by_id(value_type_id)?;
    let data = wrapper.members().find(|member| member.name == Some(b"data"))?;
    let table = btf.resolve(data.type_id)?;
    let kind = text(table.name()?);
    let is_function = |type_id: u32| {
        let pointer = btf.resolve(type_id).filter(|it| it.kind() == BtfKind::PTR);
        pointer.and_then(|it| btf.resolve(it.target()?)).is_some_and(|it| it.kind() == BtfKind::FUNC_PROTO)
    };
    let mut found = Vec::new();
    for member in table.members().filter(|member| is_function(member.type_id)) {
        let at = (data.bit_offset as usize + member.bit_offset as usize) / 8;
        let prog_id = u32::try_from(sys::get_u64(value, at)).unwrap_or(0);
        if let (Some(name), true) = (member.name, prog_id != 0) {
            found.push((kind.clone(), text(name), prog_id));
        }
    }
    Some(found)
}
