//! BPF programs in recordings: `bpf_prog_info`, BTF, and the recorder's own payloads.

use super::{Turn, u32_at, u64_at};

/// Converts the numbers of a `bpf_prog_info` that reaches to `end`. Copies the tag (8 bytes), the name (16 bytes), and fields that the converter does
/// not know.
fn turn_info(turn: &mut Turn<'_>, end: usize) {
    turn.numbers(&[4, 4]);
    turn.bytes(8);
    turn.numbers(&[4, 4, 8, 8, 8, 4, 4, 8]);
    turn.bytes(16);
    turn.number(4);
    // A C bit field of one bit: the lowest bit of the word on little-endian machines, the highest on big-endian machines.
    let at = turn.out.len();
    let bits = turn.number(4) as u32;
    turn.out.truncate(at);
    turn.out.extend(bits.reverse_bits().to_be_bytes());
    let rest = [8, 8, 4, 4, 8, 8, 4, 4, 8, 4, 4, 8, 8, 4, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4];
    for width in rest {
        if turn.at + width <= end {
            turn.number(width);
        }
    }
    turn.bytes(end.saturating_sub(turn.at));
}

/// Arrays in the order of their bits in the section: offset of the pointer and of the count in `bpf_prog_info`, and layout of the elements.
const ARRAYS: [(usize, usize, Elements); 9] = [
    (24, 16, Elements::Bytes),
    (32, 20, Elements::Instructions),
    (56, 52, Elements::Numbers(4, 1)),
    (112, 104, Elements::Numbers(8, 1)),
    (120, 108, Elements::Numbers(4, 1)),
    (136, 144, Elements::Numbers(4, 2)),
    (152, 148, Elements::Numbers(4, 4)),
    (160, 168, Elements::Numbers(8, 1)),
    (184, 180, Elements::Tags),
];

#[derive(Clone, Copy)]
enum Elements {
    /// Machine code, which is not converted.
    Bytes,
    /// `code u8`, two registers of four bits, `off s16`, `imm s32`; the count is of bytes.
    Instructions,
    /// Size of a number in bytes, and count of numbers in an element.
    Numbers(usize, usize),
    /// Tags of eight bytes each, which are not converted.
    Tags,
}

fn turn_array(bytes: &[u8], elements: Elements) -> Vec<u8> {
    let mut turn = Turn::new(bytes);
    match elements {
        Elements::Bytes | Elements::Tags => turn.bytes(bytes.len()),
        Elements::Numbers(width, _) => {
            turn.numbers(&vec![width; bytes.len() / width]);
        }
        Elements::Instructions => {
            while turn.left() >= 8 {
                turn.bytes(1);
                let registers = turn.peek(1)[0];
                turn.replace(1, vec![registers.rotate_left(4)]);
                turn.numbers(&[2, 4]);
            }
        }
    }
    turn.out
}

/// Converts the section BPF_PROG_INFO; returns false if the section does not have the documented layout.
pub(super) fn programs(turn: &mut Turn<'_>) -> bool {
    let count = turn.number(4);
    for _ in 0..count {
        let info_len = turn.number(4) as usize;
        let data_len = turn.number(4) as usize;
        let arrays = turn.number(8);
        let info = turn.peek(info_len);
        if turn.left() < info_len + data_len || info_len < 192 {
            return false;
        }
        turn_info(turn, turn.at + info_len);
        let mut data = turn.peek(data_len).to_vec();
        for (bit, (pointer, count, elements)) in ARRAYS.into_iter().enumerate() {
            let (at, count) = (u64_at(info, pointer) as usize, u32_at(info, count) as usize);
            let bytes = match elements {
                Elements::Bytes | Elements::Instructions => count,
                Elements::Numbers(width, each) => count * width * each,
                Elements::Tags => count * 8,
            };
            if arrays >> bit & 1 != 0 {
                let Some(array) = data.get_mut(at..at + bytes) else { return false };
                let turned = turn_array(array, elements);
                array.copy_from_slice(&turned);
            }
        }
        turn.replace(data_len, data);
    }
    turn.is_at_end()
}

/// Converts the section BPF_BTF; returns false if the section does not have the documented layout.
pub(super) fn types(turn: &mut Turn<'_>) -> bool {
    let count = turn.number(4);
    for _ in 0..count {
        turn.number(4);
        let len = turn.number(4) as usize;
        let Some(blob) = turned_btf(turn.peek(len)) else { return false };
        turn.replace(len, blob);
    }
    turn.is_at_end()
}

/// Converts BTF. The header is a magic of 2 bytes, two single bytes, and numbers of 4 bytes. All types consist of numbers of 4 bytes.
fn turned_btf(blob: &[u8]) -> Option<Vec<u8>> {
    let header_bytes = u32_at(blob, 4) as usize;
    let section = |at: usize| (header_bytes + u32_at(blob, at) as usize, u32_at(blob, at + 4) as usize);
    let mut out = blob.to_vec();
    let mut header = Turn::new(blob.get(..header_bytes)?);
    header.number(2);
    header.bytes(2);
    header.numbers(&vec![4; (header_bytes - 4) / 4]);
    out[..header_bytes].copy_from_slice(&header.out);
    let (types, len) = section(8);
    out[types..types + len].copy_from_slice(&turn_array(blob.get(types..types + len)?, Elements::Numbers(4, 1)));
    if header_bytes >= 32 {
        // Record lengths by kind: two sizes of one byte each, and flags of two bytes.
        let (layout, len) = section(24);
        let mut turn = Turn::new(blob.get(layout..layout + len)?);
        while turn.left() >= 4 {
            turn.bytes(2);
            turn.number(2);
        }
        out[layout..layout + len].copy_from_slice(&turn.out);
    }
    Some(out)
}

/// Returns the layout of the body of a `bprec:state` payload of this kind, in the notation of [`Turn::fields`]; `None` for an unknown kind.
fn body(kind: u64) -> Option<&'static str> {
    Some(match kind {
        1 => "8884ttttt18",
        2 => "481l(4t4t)l(t)l(tt)t",
        3 => "41b8t",
        4 => "8l(4888o)",
        5 => "444444t444o1",
        6 => "4ott",
        7 => "4888",
        8 => "l(848)1",
        9 => "88888844",
        10 => "l(84t)",
        12 => "18l(s(t48411))l(tt)?(88l(8)oo)ot",
        13 => "8l(s(484t8t?(8888o88l(888)1l(28))))",
        14 => "8l(s(18t18tl(888)))",
        15 => "4t4818244?(88884)",
        _ => return None,
    })
}

/// Converts a payload, and the padding after it.
pub(super) fn turned_state(raw: &[u8]) -> Result<Vec<u8>, String> {
    let mut turn = Turn::new(raw);
    turn.number(2);
    let kind = turn.number(2);
    let len = turn.number(4) as usize;
    let mut inside = Turn::new(turn.peek(len));
    let layout = body(kind).ok_or_else(|| format!("unknown kind of state: {kind}"))?;
    if !inside.fields(layout) {
        return Err(format!("state of kind {kind} is not as documented, at {} of {len}", inside.at));
    }
    turn.replace(len, inside.out);
    turn.bytes(usize::MAX);
    Ok(turn.out)
}
