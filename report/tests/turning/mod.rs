//! A converter of recordings from little-endian to big-endian. It follows the documented layouts and shares no
//! code with the reader, so a comparison reveals errors of the reader and of the converter.

mod bpf;
mod features;
mod records;

use records::Attr;

/// Copies little-endian bytes, and converts numbers on request.
pub(crate) struct Turn<'a> {
    from: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(from: &'a [u8]) -> Turn<'a> {
        Turn { from, at: 0, out: Vec::new() }
    }

    /// Copies a number of `width` bytes, converted, and returns it; 0 beyond the end.
    pub(crate) fn number(&mut self, width: usize) -> u64 {
        let Some(bytes) = self.from.get(self.at..self.at + width) else {
            self.bytes(width);
            return 0;
        };
        self.at += width;
        self.out.extend(bytes.iter().rev());
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Converts numbers of these widths, and returns the last one.
    pub(crate) fn numbers(&mut self, widths: &[usize]) -> u64 {
        widths.iter().fold(0, |_, width| self.number(*width))
    }

    /// Converts a number of 8 bytes after `change` has replaced its value.
    pub(crate) fn replaced(&mut self, change: impl FnOnce(u64) -> u64) {
        let start = self.out.len();
        let value = self.number(8);
        self.out.truncate(start);
        self.out.extend(change(value).to_be_bytes());
    }

    pub(crate) fn bytes(&mut self, len: usize) {
        let len = len.min(self.left());
        self.out.extend_from_slice(&self.from[self.at..self.at + len]);
        self.at += len;
    }

    /// Returns the next bytes without copying them: `len`, or fewer at the end.
    pub(crate) fn peek(&self, len: usize) -> &'a [u8] {
        &self.from[self.at..self.at + len.min(self.left())]
    }

    /// Skips `len` bytes and appends `with` instead.
    pub(crate) fn replace(&mut self, len: usize, with: Vec<u8>) {
        self.at += len.min(self.left());
        self.out.extend(with);
    }

    pub(crate) fn left(&self) -> usize {
        self.from.len() - self.at
    }
}

impl Turn<'_> {
    /// Converts fields by `layout`, one sign per field. `1` `2` `4` `8`: a number of this many bytes. `b`: 8 unchanged bytes. `t`: text after a u16
    /// with its length. `S`: text after a u32 with its length. `o`: a u8 and, if the u8 is not 0, a number of 8 bytes. `?(…)`: a u8 and, if the u8 is
    /// not 0, the fields in brackets. `l(…)`: a u32 with a count, and the fields in brackets this many times. `s(…)`: a u32 with a length in bytes,
    /// and fields of this length. Returns false if bytes are missing or left over.
    pub(crate) fn fields(&mut self, layout: &str) -> bool {
        self.some_fields(layout.as_bytes()) && self.is_at_end()
    }

    pub(crate) fn some_fields(&mut self, mut layout: &[u8]) -> bool {
        while let [sign, rest @ ..] = layout {
            layout = rest;
            let inner: &[u8] = if let [b'(', inside @ ..] = rest {
                let mut depth = 1;
                let end = inside.iter().position(|sign| {
                    depth += i32::from(*sign == b'(') - i32::from(*sign == b')');
                    depth == 0
                });
                let end = end.unwrap();
                layout = &inside[end + 1..];
                &inside[..end]
            } else {
                &[]
            };
            let left = self.left();
            let is_there = match sign {
                b'1' | b'2' | b'4' | b'8' => {
                    self.number(usize::from(sign - b'0'));
                    left >= usize::from(sign - b'0')
                }
                b'b' => self.text(8),
                b't' => {
                    let len = self.number(2) as usize;
                    self.text(len)
                }
                b'S' => {
                    let len = self.number(4) as usize;
                    self.text(len)
                }
                b'o' => self.number(1) == 0 || self.some_fields(b"8"),
                b'?' => self.number(1) == 0 || self.some_fields(inner),
                b'l' => {
                    let count = self.number(4);
                    (0..count).all(|_| self.some_fields(inner))
                }
                b's' => {
                    let end = self.number(4) as usize + self.at;
                    self.some_fields(inner) && self.at == end
                }
                sign => panic!("unknown character in a layout: {}", char::from(*sign)),
            };
            if !is_there || left == 0 {
                return false;
            }
        }
        true
    }

    /// Copies the rest; returns true if the rest is only padding: fewer than eight bytes, all 0.
    pub(crate) fn is_at_end(&mut self) -> bool {
        let rest = self.peek(usize::MAX);
        self.bytes(rest.len());
        rest.len() < 8 && rest.iter().all(|byte| *byte == 0)
    }

    fn text(&mut self, len: usize) -> bool {
        let is_there = self.left() >= len;
        self.bytes(len);
        is_there
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap()))
}

/// Positions of the parts of a file, from its header. Each pair is offset and size.
struct Header {
    attr_size: usize,
    attrs: (usize, usize),
    data: (usize, usize),
    features: [u64; 4],
}

impl Header {
    fn of(file: &[u8]) -> Header {
        let pair = |at| (u64_at(file, at) as usize, u64_at(file, at + 8) as usize);
        let mut data = pair(40);
        if data.1 == 0 {
            data.1 = file.len() - data.0;
        }
        let features = [72, 80, 88, 96].map(|at| u64_at(file, at));
        Header { attr_size: u64_at(file, 16) as usize, attrs: pair(24), data, features }
    }

    /// Feature sections of the file: number of the feature, offset and size.
    fn sections(&self, file: &[u8]) -> Vec<(u32, usize, usize)> {
        let table = self.data.0 + self.data.1;
        let bits = (0..256u32).filter(|bit| self.features[*bit as usize / 64] >> (bit % 64) & 1 != 0);
        let row =
            |(row, bit)| (bit, u64_at(file, table + row * 16) as usize, u64_at(file, table + row * 16 + 8) as usize);
        bits.enumerate().map(row).collect()
    }
}

/// Removes the features that the converter does not know from a little-endian file. Only tools of one vendor write such features.
pub(crate) fn without_unknown_features(file: &[u8]) -> Vec<u8> {
    let header = Header::of(file);
    let table = header.data.0 + header.data.1;
    let mut out = file.to_vec();
    let mut bits = [0u64; 4];
    let sections = header.sections(file);
    let known = sections.iter().filter(|(bit, ..)| features::is_known(*bit));
    for (row, (bit, at, len)) in known.enumerate() {
        bits[*bit as usize / 64] |= 1 << (bit % 64);
        out[table + row * 16..][..8].copy_from_slice(&(*at as u64).to_le_bytes());
        out[table + row * 16 + 8..][..8].copy_from_slice(&(*len as u64).to_le_bytes());
    }
    for (word, value) in bits.iter().enumerate() {
        out[72 + word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    out
}

/// Converts a little-endian file. The error names the part of the file that the converter cannot convert.
pub(crate) fn turned_file(file: &[u8]) -> Result<Vec<u8>, String> {
    let header = Header::of(file);
    let mut out = file.to_vec();
    let mut put = |at: usize, turned: Vec<u8>| out[at..at + turned.len()].copy_from_slice(&turned);
    // Readers detect the word size of a big-endian bitmap by the bit of HOSTNAME, which every recorder sets.
    if header.features != [0; 4] && header.features[0] >> 3 & 1 == 0 {
        return Err("no HOSTNAME".into());
    }
    let mut turn = Turn::new(&file[..104]);
    turn.numbers(&[8; 13]);
    put(0, turn.out);

    let table = header.data.0 + header.data.1;
    let sections = header.sections(file);
    let cpus = sections.iter().find(|(bit, ..)| *bit == 7).map_or(0, |(_, at, _)| u32_at(file, *at));
    for (row, (bit, at, len)) in sections.iter().enumerate() {
        put(table + row * 16, [at, len].iter().flat_map(|n| (**n as u64).to_be_bytes()).collect());
        let section = file.get(*at..at + len).ok_or("a feature is cut off")?;
        put(*at, features::turned(*bit, section, cpus)?);
    }

    let mut events = Events::default();
    for row in 0..header.attrs.1 / header.attr_size {
        let at = header.attrs.0 + row * header.attr_size;
        let attr = Attr::of(&file[at..]);
        if attr.size + 16 != header.attr_size {
            return Err("the attrs have several sizes".into());
        }
        let mut turn = Turn::new(&file[at..at + header.attr_size]);
        records::turn_attr(&mut turn, attr.size);
        turn.numbers(&[8, 8]);
        put(at, turn.out);
        let (first, len) = (u64_at(file, at + attr.size) as usize, u64_at(file, at + attr.size + 8) as usize);
        let mut turn = Turn::new(file.get(first..first + len).ok_or("the ids are cut off")?);
        let ids = (0..len / 8).map(|_| turn.number(8)).collect();
        put(first, turn.out);
        events.add(attr, ids);
    }
    put(header.data.0, turned_records(&file[header.data.0..table], &mut events)?);
    Ok(out)
}

/// Converts a little-endian stream.
pub(crate) fn turned_stream(stream: &[u8]) -> Result<Vec<u8>, String> {
    let mut header = Turn::new(&stream[..16]);
    header.numbers(&[8, 8]);
    let mut out = header.out;
    out.extend(turned_records(&stream[16..], &mut Events::default())?);
    Ok(out)
}

/// The events, and the event of each id.
#[derive(Default)]
struct Events {
    known: Vec<Attr>,
    ids: Vec<(u64, usize)>,
    /// Number of CPUs, from the feature NRCPUS of a stream.
    cpus: u32,
}

impl Events {
    fn add(&mut self, attr: Attr, ids: Vec<u64>) {
        self.ids.extend(ids.into_iter().map(|id| (id, self.known.len())));
        self.known.push(attr);
    }

    /// Event of a record, by the id in the record. All samples have the id at the same offset; all other records have it at the
    /// same distance from their end.
    fn of(&self, kind: u32, record: &[u8]) -> Attr {
        let first = self.known.first().cloned().unwrap_or_default();
        let place = |bits: &[u32]| bits.iter().filter(|bit| first.sample_type >> **bit & 1 != 0).count() * 8;
        let has_identifier = first.sample_type >> 16 & 1 != 0;
        let id_at = match (kind, has_identifier) {
            (9, true) => 8,
            (9, false) => 8 + place(&[0, 1, 2, 3]),
            (_, true) => record.len().wrapping_sub(8),
            (_, false) => record.len().wrapping_sub(8 + place(&[9, 7])),
        };
        let id = record.get(id_at..id_at.wrapping_add(8)).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
        let index = self.ids.iter().find(|(known, _)| *known == id).map_or(0, |(_, index)| *index);
        self.known.get(index).cloned().unwrap_or(first)
    }
}

fn turned_records(data: &[u8], events: &mut Events) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(head) = data.get(at..at + 8) {
        let kind = u32_at(head, 0);
        let size = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let Some(record) = data.get(at..at + size).filter(|record| record.len() >= 8) else { break };
        at += size;
        let mut outside = 0;
        match kind {
            64 => {
                let attr = Attr::of(&record[8..]);
                let ids = record[8 + attr.size..].chunks(8).map(|id| u64::from_le_bytes(id.try_into().unwrap()));
                events.add(attr, ids.collect());
            }
            // The formats of tracepoints state their own byte order, so they are copied.
            66 => outside = u32_at(record, 8).next_multiple_of(8) as usize,
            71 => outside = u64_at(record, 8) as usize,
            80 if u64_at(record, 8) == 7 => events.cpus = u32_at(record, 16),
            81 | 83 => return Err("compressed records".into()),
            _ => {}
        }
        out.extend(records::turned(kind, record, &events.of(kind, record), events.cpus)?);
        out.extend_from_slice(data.get(at..at + outside).ok_or("the data after a record is cut off")?);
        at += outside;
    }
    // An incomplete record is an error in both byte orders, but readers would report different sizes.
    match at == data.len() {
        true => Ok(out),
        false => Err("a record is cut off".into()),
    }
}
