//! Feature sections.

use super::records::{Attr, turn_attr};
use super::{Turn, bpf};

/// Returns the layout of a feature's section, in the notation of [`Turn::fields`]; `None` for a section that is not a list of fields.
fn layout(feature: u32) -> Option<&'static str> {
    Some(match feature {
        3 | 4 | 5 | 6 | 8 | 9 => "S",
        7 | 33 => "44",
        10 | 23 | 24 => "8",
        11 => "l(S)",
        14 => "l(488S)",
        15 | 19 => "",
        16 => "l(4S)",
        17 => "l(S44)",
        20 => "4l(4444SSS)",
        21 => "88",
        27 => "44444",
        28 | 30 => "l(SS)",
        29 => "4488",
        31 => "l(l(SS)S)",
        34 => "4",
        _ => return None,
    })
}

/// True if the converter knows the feature.
pub(super) fn is_known(feature: u32) -> bool {
    layout(feature).is_some() || matches!(feature, 1 | 2 | 12 | 13 | 18 | 22 | 25 | 26)
}

/// Converts a section to the other byte order.
pub(super) fn turned(feature: u32, section: &[u8], cpus: u32) -> Result<Vec<u8>, String> {
    let mut turn = Turn::new(section);
    let is_turned = match feature {
        // The formats of tracepoints state their own byte order, so they are copied.
        1 => {
            turn.bytes(section.len());
            true
        }
        2 => build_ids(&mut turn),
        12 => events(&mut turn),
        13 => topology(&mut turn, cpus),
        18 | 22 => {
            turn.numbers(&vec![8; section.len() / 8]);
            turn.is_at_end()
        }
        25 => bpf::programs(&mut turn),
        26 => bpf::types(&mut turn),
        feature => turn.fields(layout(feature).ok_or_else(|| format!("feature {feature}"))?),
    };
    match is_turned {
        true => Ok(turn.out),
        false => Err(format!("feature {feature} is not as documented, at {} of {}", turn.at, section.len())),
    }
}

fn build_ids(turn: &mut Turn<'_>) -> bool {
    while turn.left() >= 36 {
        let start = turn.at;
        turn.numbers(&[4, 2]);
        let size = turn.number(2) as usize;
        turn.number(4);
        turn.bytes((start + size).saturating_sub(turn.at));
    }
    turn.is_at_end()
}

fn events(turn: &mut Turn<'_>) -> bool {
    let count = turn.number(4);
    let size = turn.number(4) as usize;
    for _ in 0..count {
        // The section has one size for all attrs. It is at least the size that each attr gives for itself.
        debug_assert!(Attr::of(turn.peek(size)).size <= size);
        turn_attr(turn, size);
        let ids = turn.number(4);
        let name = turn.number(4);
        turn.bytes(name as usize);
        turn.numbers(&vec![8; ids as usize]);
    }
    turn.is_at_end()
}

fn topology(turn: &mut Turn<'_>, cpus: u32) -> bool {
    let lists = turn.some_fields(b"l(S)l(S)");
    // Old sections end here. Newer sections go on with the core and the socket of each CPU, and then with the dies.
    if lists && turn.left() > 0 {
        turn.numbers(&vec![4; cpus as usize * 2]);
    }
    if lists && turn.left() > 0 {
        turn.some_fields(b"l(S)");
        turn.numbers(&vec![4; cpus as usize]);
    }
    lists && turn.is_at_end()
}
