//! The `bpf(2)` system call.
//!
//! Attributes are the kernel's `union bpf_attr`, zero except for the fields that are set. The size passed to the kernel ends at the last
//! field that is used, so that every kernel that knows these fields accepts the attributes.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(super) use libbpf_rs::libbpf_sys::bpf_attr as Attr;

/// End of a field of `union bpf_attr`: the size to pass if this field is the last used field.
macro_rules! attr_end {
    ($($field:ident).+) => {{
        const END: usize = {
            let attr = $crate::sys::syscall::ZEROED;
            // SAFETY: every member of the union consists of integers, and nothing is read.
            let field = unsafe { &raw const attr.$($field).+ };
            std::mem::offset_of!($crate::sys::syscall::Attr, $($field).+) + $crate::sys::syscall::bytes_of(field)
        };
        END
    }};
}
pub(super) use attr_end;

/// Attributes without any field set.
// SAFETY: every member of the union consists of integers, for which any bits are valid.
pub(super) const ZEROED: Attr = unsafe { std::mem::zeroed() };

/// Size of a pointer's target, in bytes.
pub(super) const fn bytes_of<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// Converts a descriptor to the number that attributes take.
pub(super) fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Encodes the name of an object; the kernel keeps 15 bytes.
pub(super) fn object_name(name: &str) -> [std::ffi::c_char; 16] {
    let mut field = [0; 16];
    field.iter_mut().zip(name.bytes().take(15)).for_each(|(to, from)| *to = from as std::ffi::c_char);
    field
}

/// Calls `bpf(2)`. `Err` holds the errno.
///
/// # Safety
///
/// Every pointer in `attr` that `command` uses must be valid for the kernel's reads and writes, with the lengths given beside it in
/// `attr`.
pub(super) unsafe fn bpf(command: u32, attr: &mut Attr, size: usize) -> Result<i32, i32> {
    debug_assert!(size <= size_of::<Attr>());
    // SAFETY: `attr` is initialised memory of at least `size` bytes, borrowed exclusively for the call; the kernel writes no field beyond the
    // union's end. The caller guarantees the pointers in it.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size) };
    // The system call returns an int: a descriptor, zero, or -1 with errno set.
    if answer < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(answer as i32) }
}

/// Calls `bpf(2)` for a command that returns a new file descriptor. `Err` holds the errno.
///
/// # Safety
///
/// The conditions of [`bpf`] apply, and `command` must return a new file descriptor.
pub(super) unsafe fn bpf_fd(command: u32, attr: &mut Attr, size: usize) -> Result<OwnedFd, i32> {
    // SAFETY: the caller guarantees the same conditions.
    let fd = unsafe { bpf(command, attr, size) }?;
    // SAFETY: the kernel has just created this descriptor (close-on-exec, like all descriptors of `bpf(2)`), and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_with_the_field() {
        assert_eq!(attr_end!(info.info), 16);
        assert_eq!(attr_end!(test.cpu), 72);
        assert_eq!(attr_end!(batch.flags), 56);
        assert_eq!(attr_end!(__bindgen_anon_3.attach_btf_id), 112);
        assert_eq!(
            object_name("abc")[..4],
            [b'a' as std::ffi::c_char, b'b' as std::ffi::c_char, b'c' as std::ffi::c_char, 0]
        );
        assert_eq!(object_name("0123456789abcdefgh")[15], 0);
    }
}
