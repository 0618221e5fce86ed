//! The seekable container: header, attrs with their ids, the record stream, feature sections.
//!
//! Layout (`tools/perf/util/header.h`), 104 bytes: `magic u64, size u64, attr_size u64`, then offset and size of attrs,
//! data and event_types (u64 each), then a bitmap of 256 features. The table of feature sections, `{offset u64, size
//! u64}` per set bit in ascending order, directly follows the data. The bitmap is missing in headers of 72 bytes.
//!
//! Before Linux 3.4 the magic was `PERFFILE`, the same bytes in both byte orders: the size of the header shows the order.

use crate::feature::{Compression, Feature, SectionContent};
use crate::layout::{Codec, Plain, layout};
use crate::{Chunks, Endian, Error, EventAttr, Reader, Records, Result, Words, Writer};

/// `PERFILE2` as a little-endian number.
const MAGIC: u64 = 0x3245_4c49_4652_4550;
/// `PERFFILE`, in both byte orders.
const MAGIC_V1: [u8; 8] = *b"PERFFILE";
/// Bytes of a header without a bitmap of features.
const HEADER_BYTES_WITHOUT_FEATURES: u64 = 72;
/// Bytes of the header.
pub const FILE_HEADER_BYTES: usize = 104;
/// Bytes of the header of a stream (pipe format): magic and size.
pub const PIPE_HEADER_BYTES: usize = 16;
/// Bytes of the smallest attr and the section of its ids.
const ATTR_ENTRY_MIN_BYTES: usize = 64 + 16;
/// Count of feature bits in the header.
const FEATURE_BITS: u32 = 256;
/// Feature bit that every writer sets (HOSTNAME).
const HOSTNAME_BIT: u32 = 3;

layout! {
    /// A range of bytes in the input.
    #[derive(Copy, Default)]
    pub struct Section {
        /// Offset of the first byte.
        pub offset: u64,
        /// Length in bytes.
        pub size: u64,
    }

    /// Header of a file, up to the bitmap of features.
    #[derive(Copy)]
    #[expect(unreachable_pub, reason = "a layout is public, its module is not")]
    pub struct FileHeader {
        /// [`MAGIC`], or the magic of old files.
        pub magic: u64,
        /// Bytes of the header.
        pub size: u64,
        /// Bytes of an entry of the attrs section.
        pub attr_size: u64,
        /// The attrs, each with the section of its ids.
        pub attrs: Section,
        /// The records.
        pub data: Section,
        /// Names of events, in old files.
        pub event_types: Section,
    }
}

impl FileHeader {
    /// Reads the header of a file. The returned reader continues at the bitmap of features.
    fn read(bytes: &[u8]) -> Result<(Reader<'_>, FileHeader)> {
        let Container::File(endian) = Container::detect(bytes)? else {
            return Err(Error::value(
                8,
                "header size",
                PIPE_HEADER_BYTES as u64,
                "104: the input is a pipe stream, not a file",
            ));
        };
        let mut r = Reader::new(bytes, 0, endian);
        let header = Plain::get(&mut r, "file header")?;
        Ok((r, header))
    }
}

impl Section {
    /// Offset after the last byte; `None` if it exceeds 64 bits.
    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }

    /// Bytes of the section that the input has. The second value is true if the input has all of them.
    fn clip(self, bytes: &[u8]) -> (&[u8], bool) {
        let len = bytes.len() as u64;
        let start = self.offset.min(len) as usize;
        let end = self.end().unwrap_or(u64::MAX).min(len) as usize;
        (&bytes[start..end.max(start)], self.end().is_some_and(|end| end <= len))
    }
}

/// Kind of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Seekable file; [`File`] reads it.
    File(Endian),
    /// Stream of records after a header of 16 bytes.
    Pipe(Endian),
}

impl Container {
    /// Detects the kind of an input by its first 16 bytes.
    ///
    /// # Errors
    /// Fails if the input is shorter, or is not perf.data.
    pub fn detect(bytes: &[u8]) -> Result<Container> {
        let mut r = Reader::new(bytes, 0, Endian::Little);
        let magic = r.u64("magic")?;
        let endian = match magic {
            MAGIC => Endian::Little,
            _ if magic.swap_bytes() == MAGIC => Endian::Big,
            _ if magic.to_le_bytes() == MAGIC_V1 => match r.u64("header size")? {
                // The size is a small number in the byte order of its writer.
                size if size <= u64::from(u32::MAX) => Endian::Little,
                _ => Endian::Big,
            },
            _ => {
                let start = magic.to_le_bytes();
                return Err(Error::other(
                    0,
                    "file",
                    format!("it starts with \"{}\", not with \"PERFILE2\"", start.escape_ascii()),
                ));
            }
        };
        match endian.u64_at(bytes, 8) {
            None => Err(Error::truncated(8, "header size", 8, bytes.len() as u64 - 8)),
            Some(size) if size == PIPE_HEADER_BYTES as u64 => Ok(Container::Pipe(endian)),
            Some(_) => Ok(Container::File(endian)),
        }
    }
}

/// Event in the attrs section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAttr {
    /// Attr of the event.
    pub attr: EventAttr,
    /// Ids of the event, one per CPU or task.
    pub ids: Vec<u64>,
}

/// A seekable recording.
#[derive(Debug, Clone)]
pub struct File<'a> {
    bytes: &'a [u8],
    endian: Endian,
    attrs: Vec<FileAttr>,
    data: Section,
    unfinished: bool,
    is_featureless: bool,
    features: Vec<(u8, Section)>,
    problems: Vec<Error>,
}

impl<'a> File<'a> {
    /// Reads header, attrs and the table of features.
    ///
    /// # Errors
    /// Fails if the header or the attrs are damaged: no record can be read without them. Other damage is kept in
    /// [`File::problems`].
    pub fn parse(bytes: &'a [u8]) -> Result<File<'a>> {
        let (mut r, FileHeader { size, attr_size, attrs, data, .. }) = FileHeader::read(bytes)?;
        let endian = r.endian();
        if size != FILE_HEADER_BYTES as u64 && size != HEADER_BYTES_WITHOUT_FEATURES {
            return Err(Error::value(8, "header size", size, "104, or 72 without features"));
        }
        let bits = if size == FILE_HEADER_BYTES as u64 { feature_bits(&mut r)? } else { Vec::new() };

        let mut problems = Vec::new();
        let events = parse_attrs(bytes, endian, attr_size, attrs, &mut problems)?;
        let end = if attrs.offset > data.offset { attrs.offset } else { bytes.len() as u64 };
        // A killed writer leaves records up to the end of the file, and no features. perf leaves a header with feature bits and a data size of 0;
        // other writers leave a header without feature bits and with an old data size. A finished file can also lack features, but its data section
        // ends at `end`.
        let is_featureless = bits.is_empty() && size == FILE_HEADER_BYTES as u64;
        let unfinished = data.size == 0 || (is_featureless && data.end() != Some(end));
        let features = Vec::new();
        let mut file = File { bytes, endian, attrs: events, data, unfinished, is_featureless, features, problems };
        if unfinished {
            file.data.size = end.saturating_sub(data.offset);
        } else {
            file.parse_feature_table(&bits);
        }
        if !file.data.clip(bytes).1 {
            let available = (bytes.len() as u64).saturating_sub(data.offset);
            file.problems.push(Error::truncated(data.offset, "data section", data.size, available));
        }
        Ok(file)
    }

    /// Byte order of the machine that wrote the file.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Events in the order of the attrs section.
    pub fn attrs(&self) -> &[FileAttr] {
        &self.attrs
    }

    /// Section of the records. In an unfinished file, it goes up to the end of the file, or up to the attrs if they follow the records.
    pub fn data(&self) -> Section {
        self.data
    }

    /// Returns true if the writer did not finish the file: it has no features, and its records go up to the end, where the
    /// last record may be cut off.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Returns true if the header has a bitmap of features with no bit set. If its writer always writes features, such a file
    /// is unfinished.
    pub fn is_featureless(&self) -> bool {
        self.is_featureless
    }

    /// Bytes of records that the header announces; 0 if the writer did not update it. A recorder announces records once they are in the file, so
    /// a file with fewer bytes lost its end later.
    pub fn announced_bytes(&self) -> u64 {
        FileHeader::read(self.bytes).map_or(0, |(_, header)| header.data.size)
    }

    /// Records of the data section.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.data.clip(self.bytes).0, self.data.offset, self.endian)
    }

    /// Records in chunks; compressed records are unpacked.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks::new(self.data.clip(self.bytes).0, self.data.offset, self.endian, self.unpacked_limit_bytes())
    }

    /// Limit on the bytes that one compressed record unpacks to: field `mmap_len` of the COMPRESSED feature. In a recording
    /// that is a directory, the limit is valid for the other files, too.
    pub fn unpacked_limit_bytes(&self) -> Option<u64> {
        let (bytes, offset) = self.feature(Feature::COMPRESSED.0)?;
        Compression::parse(bytes, offset, self.endian).ok().map(|section| section.value.mmap_len_bytes.into())
    }

    /// Feature sections, in ascending order of their bits.
    pub fn features(&self) -> &[(u8, Section)] {
        &self.features
    }

    /// Bytes of a feature section, and their offset in the input.
    pub fn feature(&self, bit: u8) -> Option<(&'a [u8], u64)> {
        let at = self.features.binary_search_by_key(&bit, |(bit, _)| *bit).ok()?;
        let section = self.features[at].1;
        Some((section.clip(self.bytes).0, section.offset))
    }

    /// Damage of the container that did not prevent reading.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    fn parse_feature_table(&mut self, bits: &[u8]) {
        let Some(table_offset) = self.data.end() else {
            self.problems.push(Error::value(40, "data section", self.data.size, "an end below 2^64"));
            return;
        };
        let table = Section { offset: table_offset, size: bits.len() as u64 * 16 };
        let mut r = Reader::new(table.clip(self.bytes).0, table_offset, self.endian);
        for bit in bits {
            match Plain::get(&mut r, "feature table") {
                Ok(section @ Section { .. }) => {
                    if !section.clip(self.bytes).1 {
                        let available = (self.bytes.len() as u64).saturating_sub(section.offset);
                        let at = r.offset() - 16;
                        self.problems.push(Error::truncated(at, "feature section", section.size, available));
                    }
                    self.features.push((*bit, section));
                }
                Err(error) => {
                    self.problems.push(error);
                    return;
                }
            }
        }
    }
}

/// Set bits of the feature bitmap, ascending.
///
/// The bitmap was an array of `unsigned long`. In files of 32-bit big-endian writers, the halves of each 64-bit word are therefore swapped. Every
/// such writer sets HOSTNAME, so this bit shows the order.
fn feature_bits(r: &mut Reader<'_>) -> Result<Vec<u8>> {
    let endian = r.endian();
    let words = Words::new(r.take(FEATURE_BITS as usize / 8, "features")?, endian);
    let set = |swap_halves: bool| {
        let word_of = move |bit: u32| {
            let word = words.get(bit as usize / 64).unwrap_or(0);
            if swap_halves { word.rotate_left(32) } else { word }
        };
        (0..FEATURE_BITS).filter(move |bit| word_of(*bit) >> (bit % 64) & 1 != 0)
    };
    let has_hostname = |swap_halves: bool| set(swap_halves).any(|bit| bit == HOSTNAME_BIT);
    // If the bit is set in neither order, the halves are in order: a recovered file, for example, may lack HOSTNAME.
    let halves_swapped = endian == Endian::Big && !has_hostname(false) && has_hostname(true);
    Ok(set(halves_swapped).map(|bit| bit as u8).collect())
}

fn parse_attrs(
    bytes: &[u8],
    endian: Endian,
    attr_size: u64,
    section: Section,
    problems: &mut Vec<Error>,
) -> Result<Vec<FileAttr>> {
    if attr_size < ATTR_ENTRY_MIN_BYTES as u64 {
        return Err(Error::value(16, "attr_size", attr_size, "at least 80"));
    }
    let (table, whole) = section.clip(bytes);
    if !whole {
        return Err(Error::truncated(section.offset, "attrs section", section.size, table.len() as u64));
    }
    let entries = match attr_entries(table, section.offset, endian, Some(attr_size as usize), bytes.len() as u64) {
        Ok(entries) if entries.len() as u64 == section.size / attr_size => entries,
        _ => attr_entries(table, section.offset, endian, None, bytes.len() as u64)?,
    };
    if entries.is_empty() {
        return Err(Error::other(24, "attrs section", "the file has no event"));
    }
    let mut attrs = Vec::with_capacity(entries.len());
    // Id arrays do not overlap, so their total is not longer than the input.
    let mut ids_left = bytes.len() as u64;
    for (attr, ids) in entries {
        let (id_bytes, whole) = ids.clip(bytes);
        ids_left = ids_left
            .checked_sub(id_bytes.len() as u64)
            .ok_or_else(|| Error::value(section.offset, "attr ids", ids.size, "arrays that do not overlap"))?;
        if !whole {
            problems.push(Error::truncated(ids.offset, "ids of an event", ids.size, id_bytes.len() as u64));
        }
        attrs.push(FileAttr { attr, ids: Words::new(id_bytes, endian).iter().collect() });
    }
    Ok(attrs)
}

/// Entries of the attrs section: an attr and the section of its ids, which is in the last 16 bytes of the entry.
///
/// `stride` is the size of every entry (`attr_size` of the header), even if `attr.size` is smaller. Without a `stride`, attrs of different sizes are
/// back to back, as some writers put them: an entry then has `attr.size` + 16 bytes.
fn attr_entries(
    table: &[u8],
    table_offset: u64,
    endian: Endian,
    stride: Option<usize>,
    input_bytes: u64,
) -> Result<Vec<(EventAttr, Section)>> {
    let mut entries = Vec::new();
    let mut at = 0;
    while table.len() - at >= ATTR_ENTRY_MIN_BYTES {
        let offset = table_offset + at as u64;
        let attr = EventAttr::parse(&table[at..], offset, endian)?;
        let entry_len = stride.unwrap_or(attr.size as usize + 16);
        if attr.size as usize + 16 > entry_len {
            return Err(Error::value(offset + 4, "attr.size", attr.size.into(), "at most attr_size - 16"));
        }
        let Some(entry) = table.get(at..at + entry_len) else {
            return Err(Error::truncated(offset, "attrs section", entry_len as u64, (table.len() - at) as u64));
        };
        let ids_at = entry_len - 16;
        let ids: Section = Plain::get(&mut Reader::new(&entry[ids_at..], offset + ids_at as u64, endian), "attr ids")?;
        let plausible = ids.size % 8 == 0 && ids.end().is_some_and(|end| end <= input_bytes);
        if stride.is_some() && !plausible {
            return Err(Error::value(offset + ids_at as u64, "attr ids", ids.offset, "ids inside the file"));
        }
        entries.push((attr, ids));
        at += entry_len;
    }
    Ok(entries)
}

/// Layout of a file that is being written. The writer writes its header again as the file grows.
#[derive(Debug, Clone)]
pub struct FileLayout {
    endian: Endian,
    header: FileHeader,
}

impl FileLayout {
    /// Lays out a file with these events, and appends the bytes in front of the first record to `out`, which must be empty.
    /// All attrs are written in one size, the smallest that holds each of them.
    pub fn begin(events: &[FileAttr], endian: Endian, out: &mut Vec<u8>) -> FileLayout {
        let attr_size = events.iter().map(|event| event.attr.smallest_size()).max().unwrap_or(64);
        FileLayout::begin_sized(events, endian, attr_size, out)
    }

    /// Lays out a file like [`FileLayout::begin`], with attrs of this size, at least 64.
    pub(crate) fn begin_sized(events: &[FileAttr], endian: Endian, attr_size: u32, out: &mut Vec<u8>) -> FileLayout {
        out.resize(FILE_HEADER_BYTES, 0);
        let mut id_sections = Vec::with_capacity(events.len());
        for event in events {
            let mut w = Writer::new(out, endian);
            let offset = w.position() as u64;
            event.ids.iter().for_each(|id| {
                w.u64(*id);
            });
            id_sections.push(Section { offset, size: event.ids.len() as u64 * 8 });
        }
        let attrs_offset = out.len() as u64;
        for (event, ids) in events.iter().zip(id_sections) {
            EventAttr { size: attr_size, ..event.attr.clone() }.encode(out, endian);
            Plain::put(&ids, &mut Writer::new(out, endian));
        }
        let header = FileHeader {
            magic: MAGIC,
            size: FILE_HEADER_BYTES as u64,
            attr_size: u64::from(attr_size) + 16,
            attrs: Section { offset: attrs_offset, size: out.len() as u64 - attrs_offset },
            data: Section { offset: out.len() as u64, size: 0 },
            event_types: Section::default(),
        };
        let layout = FileLayout { endian, header };
        let header = layout.header(0, &[]);
        out[..FILE_HEADER_BYTES].copy_from_slice(&header);
        layout
    }

    /// Layout of an existing file; `bytes` must hold its header.
    ///
    /// # Errors
    /// Fails if the bytes are not the header of a file, or the header has no bitmap of features.
    pub fn of_header(bytes: &[u8]) -> Result<FileLayout> {
        let (r, header) = FileHeader::read(bytes)?;
        if header.size != FILE_HEADER_BYTES as u64 {
            return Err(Error::value(8, "header size", header.size, "104"));
        }
        Ok(FileLayout { endian: r.endian(), header })
    }

    /// Offset of the first record.
    pub fn data_offset(&self) -> u64 {
        self.header.data.offset
    }

    /// Header for `data_size` bytes of records and these feature bits. Until the features are written, a header without bits
    /// lets any perf read the records.
    pub fn header(&self, data_size: u64, features: &[u8]) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(FILE_HEADER_BYTES);
        let mut w = Writer::new(&mut bytes, self.endian);
        let data = Section { size: data_size, ..self.header.data };
        let event_types = Section::default();
        Plain::put(&FileHeader { magic: MAGIC, data, event_types, ..self.header }, &mut w);
        let mut words = [0u64; FEATURE_BITS as usize / 64];
        for bit in features {
            words[usize::from(*bit) / 64] |= 1 << (bit % 64);
        }
        for word in words {
            w.u64(word);
        }
        let mut header = [0; FILE_HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Appends the table of features and their sections, which belong after `data_size` bytes of records. `features`
    /// must be in ascending order of their bits.
    pub fn features(&self, data_size: u64, features: &[(u8, Vec<u8>)], out: &mut Vec<u8>) {
        let mut offset = self.data_offset() + data_size + features.len() as u64 * 16;
        for (_, payload) in features {
            Plain::put(&Section { offset, size: payload.len() as u64 }, &mut Writer::new(out, self.endian));
            offset += payload.len() as u64;
        }
        for (_, payload) in features {
            out.extend_from_slice(payload);
        }
    }
}

/// Header of a stream (pipe format).
pub fn pipe_header(endian: Endian) -> [u8; PIPE_HEADER_BYTES] {
    let mut header = [0; PIPE_HEADER_BYTES];
    header[..8].copy_from_slice(&endian.bytes_u64(MAGIC));
    header[8..].copy_from_slice(&endian.bytes_u64(PIPE_HEADER_BYTES as u64));
    header
}
