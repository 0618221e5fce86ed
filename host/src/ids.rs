//! Identity of this machine and of its boot.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::{is_initial_pid_namespace, mounts_of_type};

/// Application id with which the machine's id is hashed. With another number, every machine would get another id.
const APPLICATION: u128 = 0x8360_a73d_8228_4ed9_a923_8482_bb49_e537;
/// Mask of the bits that are equal in all version 4 UUIDs.
const UUID_BITS: u128 = 0xf << 76 | 0x3 << 62;
/// Values of the bits in [`UUID_BITS`].
const UUID_VERSION_4: u128 = 0x4 << 76 | 0x2 << 62;

/// Id of this machine, 32 hexadecimal digits; `None` if unknown. It stays the same when the machine is renamed.
///
/// The id is a keyed hash of `/etc/machine-id`, which is a secret of the machine, as `sd_id128_get_machine_app_specific()`
/// makes it. The id is unknown in a container with its own pid namespace, which cannot see the root directory of the machine.
pub fn machine_id() -> Option<String> {
    if is_initial_pid_namespace() != Some(true) {
        return None;
    }
    // In a container, `/etc` is part of its image, which many machines share. Process 1 is outside of the container, so its root has the machine's
    // `/etc`.
    let text = match fs::read_to_string(Path::new("/proc/1/root").join("etc/machine-id")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !is_image() => {
            fs::read_to_string("/etc/machine-id")
        }
        read => read,
    };
    hashed(&text.ok()?)
}

/// Id of this boot, 32 hexadecimal digits; `None` if unknown.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    parsed(&text.replace('-', "")).map(digits)
}

/// Returns true if the root directory is that of a container: it is an overlay, or has the marker file of Docker or Podman.
fn is_image() -> bool {
    let is_root = |kind: &[u8]| mounts_of_type(kind).is_ok_and(|mounts| mounts.iter().any(|it| it == Path::new("/")));
    let marks = ["/.dockerenv", "/run/.containerenv"];
    is_root(b"overlay") || is_root(b"fuse.fuse-overlayfs") || marks.iter().any(|mark| Path::new(mark).exists())
}

fn hashed(machine_id: &str) -> Option<String> {
    let mut hash = Hmac::<Sha256>::new_from_slice(&parsed(machine_id)?.to_be_bytes()).ok()?;
    hash.update(&APPLICATION.to_be_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize().into_bytes()[..16]);
    Some(digits(u128::from_be_bytes(first) & !UUID_BITS | UUID_VERSION_4))
}

/// Parses an id of 32 hexadecimal digits. `None` for other text, such as `uninitialized`, and for all zeros: the id is not set yet.
fn parsed(text: &str) -> Option<u128> {
    let text = text.trim();
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| u128::from_str_radix(text, 16).ok())?.filter(|id| *id != 0)
}

fn digits(id: u128) -> String {
    format!("{id:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes by `systemd-id128 machine-id --app-specific=8360a73d82284ed9a9238482bb49e537` (systemd 252) with these
    /// texts in `/etc/machine-id`.
    #[test]
    fn the_id_of_a_machine_is_that_of_systemd() {
        for (machine_id, id) in [
            ("fedcba9876543210fedcba9876543210\n", "0366e83aa10d43009e86c377be145384"),
            ("0123456789ABCDEF0123456789ABCDEF\n", "2efcdca8822641d0afaba3a7f2e37eb4"),
            ("ffffffffffffffffffffffffffffffff", "1f8be68c61514cbd9df13e81f9ad3422"),
        ] {
            assert_eq!(hashed(machine_id).as_deref(), Some(id), "{machine_id}");
        }
    }

    #[test]
    fn an_id_that_is_not_set_is_unknown() {
        for text in [
            "",
            "\n",
            "uninitialized\n",
            "00000000000000000000000000000000\n",
            "fedcba9876543210fedcba987654321\n",
            "+edcba9876543210fedcba9876543210\n",
            "fedcba9876543210fedcba98765432100\n",
        ] {
            assert_eq!(hashed(text), None, "{text:?}");
        }
    }
}
