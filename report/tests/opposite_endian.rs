//! The same recording as a machine of the other byte order would have written it, made by a converter that shares no code
//! with the reader, prints the same text.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use bprec_format::{Container, Endian};
use bprec_report::{Fields, ScriptOptions, Show, Source, script};

/// Copies little-endian bytes, turning what it is told to turn.
struct Turn<'a> {
    from: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'a> Turn<'a> {
    fn new(from: &'a [u8]) -> Turn<'a> {
        Turn { from, at: 0, out: Vec::new() }
    }

    /// Copies a number of `width` bytes, turned, and returns it; 0 beyond the end.
    fn number(&mut self, width: usize) -> u64 {
        let Some(bytes) = self.from.get(self.at..self.at + width) else {
            self.bytes(width);
            return 0;
        };
        self.at += width;
        self.out.extend(bytes.iter().rev());
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Numbers of these widths, the last of which is returned.
    fn numbers(&mut self, widths: &[usize]) -> u64 {
        widths.iter().fold(0, |_, width| self.number(*width))
    }

    /// Replaces a number of 8 bytes.
    fn replaced(&mut self, change: impl FnOnce(u64) -> u64) {
        let start = self.out.len();
        let value = self.number(8);
        self.out.truncate(start);
        self.out.extend(change(value).to_be_bytes());
    }

    fn bytes(&mut self, len: usize) {
        let len = len.min(self.left());
        self.out.extend_from_slice(&self.from[self.at..self.at + len]);
        self.at += len;
    }

    fn left(&self) -> usize {
        self.from.len() - self.at
    }
}

/// Bit fields of flag words start at the most significant bit there.
fn turn_attr_flags(word: u64) -> u64 {
    let mut turned = 0;
    for bit in 0..64 {
        let target = match bit {
            // The two bits of precise_ip stay in their order.
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

/// What the converter needs of an event.
#[derive(Default, Clone)]
struct Attr {
    size: usize,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    branch_sample_type: u64,
    regs_user: u64,
}

fn attr_of(bytes: &[u8]) -> Attr {
    let word = |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
    let size = bytes.get(4..8).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap())) as usize;
    let size = if size == 0 { 64 } else { size };
    let known = |at: usize| if at < size { word(at) } else { 0 };
    Attr {
        size,
        sample_type: word(24),
        read_format: word(32),
        flags: word(40),
        branch_sample_type: known(72),
        regs_user: known(80),
    }
}

fn turn_attr(turn: &mut Turn<'_>, size: usize) {
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

fn turn_sample(turn: &mut Turn<'_>, attr: &Attr) {
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
        let len = turn.number(4);
        turn.bytes(len as usize);
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
}

/// Widths of the numbers that a record begins with; text or bytes follow up to the trailer. `None` for records of words.
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
        _ => return None,
    })
}

fn turn_record(record: &[u8], attr: &Attr) -> Vec<u8> {
    let mut turn = Turn::new(record);
    let kind = turn.number(4) as u32;
    let misc = turn.number(2);
    turn.number(2);
    let trailer: Vec<usize> = [(1, &[4, 4][..]), (2, &[8]), (6, &[8]), (9, &[8]), (7, &[4, 4]), (16, &[8])]
        .iter()
        .filter(|(bit, _)| attr.flags >> 18 & 1 != 0 && attr.sample_type >> bit & 1 != 0)
        .flat_map(|(_, widths)| widths.iter().copied())
        .collect();
    let trailer_bytes: usize = trailer.iter().sum();
    match kind {
        9 => turn_sample(&mut turn, attr),
        64.. => match kind {
            73 => {
                let count = turn.number(8);
                for _ in 0..count {
                    turn.number(8);
                    turn.bytes(16);
                }
            }
            74 => {
                // Lists of CPUs and ranges; masks are rare, and not in the lines that are compared.
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
    turn.out
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()))
}

/// The file in the other byte order; `None` for those with features or records that the converter does not know.
fn turned(bytes: &[u8]) -> Option<Vec<u8>> {
    let (attr_size, attrs, data) = (u64_at(bytes, 16) as usize, u64_at(bytes, 24) as usize, u64_at(bytes, 40) as usize);
    let (attrs_len, data_len) = (u64_at(bytes, 32) as usize, u64_at(bytes, 48) as usize);
    let mut out = bytes.to_vec();
    let mut put = |at: usize, turned: Vec<u8>| out[at..at + turned.len()].copy_from_slice(&turned);

    // Features that name events are turned, all others are switched off: the lines do not depend on them.
    let features = u64_at(bytes, 72);
    let mut header = Turn::new(&bytes[..104]);
    header.numbers(&[8; 9]);
    let kept = features & (1 << 3 | 1 << 12);
    header.replaced(|_| kept);
    (0..3).for_each(|_| header.replaced(|_| 0));
    // By HOSTNAME, which every recorder writes, readers know in what units a big-endian bitmap was written.
    if kept >> 3 & 1 == 0 {
        return None;
    }
    put(0, header.out);

    let table = data + data_len;
    let sections: Vec<(u32, usize, usize)> = (0..64)
        .filter(|bit| features >> bit & 1 != 0)
        .enumerate()
        .map(|(row, bit)| (bit, u64_at(bytes, table + row * 16) as usize, u64_at(bytes, table + row * 16 + 8) as usize))
        .collect();
    let kept_sections = sections.iter().filter(|(bit, ..)| kept >> bit & 1 != 0);
    for (row, (bit, at, len)) in kept_sections.enumerate() {
        put(table + row * 16, [at, len].iter().flat_map(|n| (**n as u64).to_be_bytes()).collect());
        let mut turn = Turn::new(bytes.get(*at..at + len)?);
        if *bit == 12 {
            let count = turn.number(4);
            let size = turn.number(4) as usize;
            for _ in 0..count {
                turn_attr(&mut turn, size);
                let ids = turn.number(4);
                let name = turn.number(4);
                turn.bytes(name as usize);
                turn.numbers(&vec![8; ids as usize]);
            }
        } else {
            turn.number(4);
            turn.bytes(usize::MAX);
        }
        put(*at, turn.out);
    }

    let mut known = Vec::new();
    let mut ids = Vec::new();
    for row in 0..attrs_len / attr_size {
        let at = attrs + row * attr_size;
        let attr = attr_of(&bytes[at..]);
        if attr.size + 16 != attr_size {
            return None;
        }
        let mut turn = Turn::new(&bytes[at..at + attr_size]);
        turn_attr(&mut turn, attr.size);
        turn.numbers(&[8, 8]);
        put(at, turn.out);
        let (first, len) = (u64_at(bytes, at + attr.size) as usize, u64_at(bytes, at + attr.size + 8) as usize);
        let mut turn = Turn::new(bytes.get(first..first + len)?);
        for _ in 0..len / 8 {
            ids.push((turn.number(8), known.len()));
        }
        put(first, turn.out);
        known.push(attr);
    }

    let mut at = data;
    while at < data + data_len {
        let kind = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().unwrap());
        let size = usize::from(u16::from_le_bytes(bytes.get(at + 6..at + 8)?.try_into().unwrap()));
        let record = bytes.get(at..at + size)?;
        if matches!(kind, 66 | 80 | 81 | 83) || kind >= 87 {
            return None;
        }
        // An id stands at the same place in all samples, and at the same place from the end of all other records.
        let first = &known[0];
        let place = |bits: &[u32]| bits.iter().filter(|bit| first.sample_type >> **bit & 1 != 0).count() * 8;
        let has_identifier = first.sample_type >> 16 & 1 != 0;
        let id_at = match (kind, has_identifier) {
            (9, true) => 8,
            (9, false) => 8 + place(&[0, 1, 2, 3]),
            (_, true) => size.wrapping_sub(8),
            (_, false) => size.wrapping_sub(8 + place(&[9, 7])),
        };
        let id = record.get(id_at..id_at.wrapping_add(8)).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
        let index = ids.iter().find(|(known, _)| *known == id).map_or(0, |(_, index)| *index);
        put(at, turn_record(record, &known[index]));
        at += size;
        if kind == 71 {
            at += u64_at(record, 8) as usize;
        }
    }
    Some(out)
}

fn text(bytes: Vec<u8>, dump: bool) -> String {
    let show = Show { task: true, mmap: true, switch: true, namespace: true, cgroup: true, lost: true, bpf: true };
    let fields = Fields::parse("comm,pid,tid,cpu,time,period,event,addr,ip,sym,dso,cgroup").unwrap();
    let mut out = Vec::new();
    let options = ScriptOptions { show, fields, dump, ..ScriptOptions::default() };
    let summary = script(&mut Source::from_bytes("test", bytes), &options, &mut out).unwrap();
    // The bytes themselves differ, of course.
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(".  ")).collect();
    format!("{summary:?}\n{}", lines.join("\n"))
}

#[test]
fn the_opposite_byte_order_prints_the_same() {
    let files = common::corpus_files();
    let mut compared = 0;
    let inputs = files.into_iter().map(|f| (f.name, f.bytes)).chain(common::recordings());
    for (name, bytes) in inputs.filter(|(_, bytes)| bytes.len() < 2_000_000) {
        if Container::detect(&bytes).ok() != Some(Container::File(Endian::Little)) {
            continue;
        }
        let Some(turned) = turned(&bytes) else { continue };
        assert_eq!(Container::detect(&turned), Ok(Container::File(Endian::Big)));
        for dump in [false, true] {
            let (expected, found) = (text(bytes.clone(), dump), text(turned.clone(), dump));
            let differs = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
            // EVENT_UPDATE and the like are shown by their numbers, which is what is compared; features differ in number.
            assert_eq!(differs, None, "{name}");
            assert_eq!(expected.len(), found.len(), "{name}");
        }
        compared += 1;
    }
    assert!(compared >= 6, "only {compared} files");
    eprintln!("{compared} recordings print the same in both byte orders");
}
