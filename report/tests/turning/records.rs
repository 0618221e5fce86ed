//! Records and attrs.

use super::{Turn, bpf, features};

/// Converts the flag bits of an attr, which start at the most significant bit on big-endian machines.
fn turn_attr_flags(word: u64) -> u64 {
    let mut turned = 0;
    for bit in 0..64 {
        let target = match bit {
            // The two bits of precise_ip keep their order.
            15 => 63 - 16,
            16 => 63 - 15,
            bit => 63 - bit,
        };
        turned |= (word >> bit & 1) << target;
    }
    turned
}

fn turn_branch_flags(word: u64) -> u64 {
    let mut turned = 0;
    let mut at = 0;
    for width in [1, 1, 1, 1, 16, 4, 2, 4, 3, 31] {
        turned |= (word >> at & ((1 << width) - 1)) << (64 - at - width);
        at += width;
    }
    turned
}

/// Facts about an event that the converter needs.
#[derive(Default, Clone)]
pub(crate) struct Attr {
    pub(crate) size: usize,
    /// True if the samples have payloads of the recorder.
    is_state: bool,
    pub(crate) sample_type: u64,
    read_format: u64,
    flags: u64,
    branch_sample_type: u64,
    regs_user: u64,
}

impl Attr {
    pub(crate) fn of(bytes: &[u8]) -> Attr {
        let word = |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
        let size = bytes.get(4..8).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap())) as usize;
        let size = if size == 0 { 64 } else { size };
        let known = |at: usize| if at < size { word(at) } else { 0 };
        Attr {
            size,
            is_state: bytes.first() == Some(&1) && word(8) == 10,
            sample_type: word(24),
            read_format: word(32),
            flags: word(40),
            branch_sample_type: known(72),
            regs_user: known(80),
        }
    }
}

pub(crate) fn turn_attr(turn: &mut Turn<'_>, size: usize) {
    let end = turn.at + size;
    turn.numbers(&[4, 4, 8, 8, 8, 8]);
    turn.replaced(turn_attr_flags);
    for width in [4, 4, 8, 8, 8, 8, 4, 4, 8, 4, 2, 2, 4] {
        if turn.at < end {
            turn.number(width);
        }
    }
    if turn.at < end {
        let start = turn.out.len();
        let action = turn.number(4) as u32;
        turn.out.truncate(start);
        turn.out.extend(action.reverse_bits().to_be_bytes());
    }
    while turn.at < end {
        turn.number(8);
    }
}

fn turn_read(turn: &mut Turn<'_>, format: u64) {
    let bit = |n: u64| (format >> n & 1) as usize;
    let count = if bit(3) == 1 { turn.number(8) as usize } else { 1 };
    turn.numbers(&vec![8; bit(0) + bit(1)]);
    turn.numbers(&vec![8; count * (1 + bit(2) + bit(4))]);
}

fn turn_sample(turn: &mut Turn<'_>, attr: &Attr) -> Result<(), String> {
    let has = |bit: u32| attr.sample_type >> bit & 1 != 0;
    for (bit, widths) in
        [(16, &[8][..]), (0, &[8]), (1, &[4, 4]), (2, &[8]), (3, &[8]), (6, &[8]), (9, &[8]), (7, &[4, 4]), (8, &[8])]
    {
        if has(bit) {
            turn.numbers(widths);
        }
    }
    if has(4) {
        turn_read(turn, attr.read_format);
    }
    if has(5) {
        let count = turn.number(8);
        turn.numbers(&vec![8; count as usize]);
    }
    if has(10) {
        let len = turn.number(4) as usize;
        let raw = turn.peek(len);
        if attr.is_state {
            turn.replace(len, bpf::turned_state(raw)?);
        } else {
            turn.bytes(len);
        }
    }
    if has(11) {
        let count = turn.number(8);
        if attr.branch_sample_type >> 17 & 1 != 0 {
            turn.number(8);
        }
        for _ in 0..count {
            turn.numbers(&[8, 8]);
            turn.replaced(turn_branch_flags);
        }
    }
    if has(12) && turn.number(8) != 0 {
        turn.numbers(&vec![8; attr.regs_user.count_ones() as usize]);
    }
    if has(13) {
        let len = turn.number(8);
        turn.bytes(len as usize);
        if len != 0 {
            turn.number(8);
        }
    }
    if has(14) || has(24) {
        turn.number(8);
    }
    while turn.left() >= 8 {
        turn.number(8);
    }
    Ok(())
}

/// Widths of the numbers at the start of a record; text or bytes follow up to the trailer. `None` for records that consist of 8-byte words.
fn widths(kind: u32) -> Option<&'static [usize]> {
    Some(match kind {
        1 => &[4, 4, 8, 8, 8],
        3 => &[4, 4],
        4 | 7 => &[4, 4, 4, 4, 8],
        10 => &[4, 4, 8, 8, 8, 4, 4, 8, 8, 4, 4],
        12 | 15 => &[4, 4],
        17 => &[8, 4, 2, 2],
        18 => &[2, 2, 4],
        19 => &[8],
        20 => &[8, 2, 2],
        _ => return None,
    })
}

/// Converts a record to the other byte order. `cpus` is the number of CPUs from the stream's NRCPUS.
pub(crate) fn turned(kind: u32, record: &[u8], attr: &Attr, cpus: u32) -> Result<Vec<u8>, String> {
    let mut turn = Turn::new(record);
    turn.number(4);
    let misc = turn.number(2);
    turn.number(2);
    let trailer: Vec<usize> = [(1, &[4, 4][..]), (2, &[8]), (6, &[8]), (9, &[8]), (7, &[4, 4]), (16, &[8])]
        .iter()
        .filter(|(bit, _)| attr.flags >> 18 & 1 != 0 && attr.sample_type >> bit & 1 != 0)
        .flat_map(|(_, widths)| widths.iter().copied())
        .collect();
    let trailer_bytes: usize = trailer.iter().sum();
    match kind {
        9 => turn_sample(&mut turn, attr)?,
        64.. => match kind {
            64 => turn_attr(&mut turn, Attr::of(&record[8..]).size),
            65 => {
                turn.number(8);
                turn.bytes(usize::MAX);
            }
            66 => {
                turn.numbers(&[4, 4]);
            }
            67 => {
                turn.number(4);
                turn.bytes(usize::MAX);
            }
            69 | 75 | 77 => {}
            72 => {
                turn.numbers(&[4, 4, 4, 4, 4, 4, 8, 8]);
                turn.bytes(64);
                turn.numbers(&[4, 4]);
            }
            79 => {
                turn.numbers(&[8; 5]);
                turn.bytes(usize::MAX);
            }
            80 => {
                let feature = turn.number(8) as u32;
                let payload = turn.peek(usize::MAX);
                // The last record of this type has a number beyond the writer's last feature, and no payload.
                let turned = if payload.is_empty() { Vec::new() } else { features::turned(feature, payload, cpus)? };
                turn.replace(payload.len(), turned);
            }
            68 | 82 => {}
            84.. => return Err(format!("unknown record type {kind}")),
            73 => {
                let count = turn.number(8);
                for _ in 0..count {
                    turn.number(8);
                    turn.bytes(16);
                }
            }
            74 => {
                // CPU lists and ranges are converted; masks are rare, and no compared line shows them.
                turn.number(2);
                while turn.left() >= 2 {
                    turn.number(2);
                }
            }
            78 => {
                let what = turn.number(8);
                turn.number(8);
                match what {
                    1 => {
                        turn.number(8);
                    }
                    3 => {
                        while turn.left() >= 2 {
                            turn.number(2);
                        }
                    }
                    _ => turn.bytes(usize::MAX),
                }
            }
            76 => {
                turn.numbers(&[8, 4, 4]);
            }
            70 => {
                turn.numbers(&[4, 4]);
            }
            71 => {
                turn.numbers(&[8, 8, 8, 4, 4, 4, 4]);
            }
            _ => {}
        },
        _ => {
            let end = record.len().saturating_sub(trailer_bytes);
            if kind == 10 && misc >> 14 & 1 != 0 {
                turn.numbers(&[4, 4, 8, 8, 8]);
                turn.bytes(24);
                turn.numbers(&[4, 4]);
            } else if let Some(widths) = widths(kind) {
                turn.numbers(widths);
            }
            if widths(kind).is_some() {
                turn.bytes(end - turn.at);
            } else if kind == 16 {
                turn.numbers(&[4, 4]);
            }
            while turn.at < end {
                turn.number(8);
            }
            turn.numbers(&trailer);
        }
    }
    while turn.left() >= 8 && kind != 3 {
        turn.number(8);
    }
    turn.bytes(usize::MAX);
    Ok(turn.out)
}
