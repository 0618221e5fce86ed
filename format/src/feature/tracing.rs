//! TRACING_DATA: the formats of the tracepoints that a recording uses, as in tracefs.
//!
//! Layout: `0x17 0x08 0x44 tracing`, version with its NUL, byte order `u8`, bytes of a `long` `u8`, page size `u32`. Texts with their lengths follow:
//! the headers of the ring buffer, ftrace's own events, events by system, kallsyms, printk formats, and since version 0.6 the names of tasks. The
//! section states its own byte order; in practice it equals that of the file.

mod event_format;

pub use event_format::{EventFormat, Field, FieldLayout};

use super::SectionContent;
use crate::layout::meaning::Contents;
use crate::layout::{Bytes, Codec, List, Meaning as _, Plain, layout};
use crate::{Endian, Error, Reader, Result, Writer};

const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// The content of the section. Texts are kept as they were read from tracefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracingData<'a> {
    /// Byte order of raw sample data, and of this section.
    pub endian: Endian,
    /// Bytes of a `long` on the machine.
    pub long_bytes: u8,
    /// Bytes of a page on the machine.
    pub page_size_bytes: u32,
    /// `events/header_page`.
    pub header_page: &'a [u8],
    /// `events/header_event`.
    pub header_event: &'a [u8],
    /// `events/ftrace/*/format` of the recorded events.
    pub ftrace: Vec<&'a [u8]>,
    /// `events/<system>/<event>/format` of the recorded events.
    pub systems: Vec<TracingSystem<'a>>,
    /// `/proc/kallsyms`; perf leaves it empty.
    pub kallsyms: &'a [u8],
    /// `printk_formats`.
    pub printk_formats: &'a [u8],
    /// `saved_cmdlines`; absent before version 0.6.
    pub saved_cmdlines: &'a [u8],
}

layout! {
    /// Tracepoints of one system.
    pub struct TracingSystem<'a> {
        /// Name of the system, like `sched`.
        pub name: &'a [u8] as TextWithNul,
        /// The text of each event's `format` file.
        pub formats: Vec<&'a [u8]> as List<LongText>,
    }
}

/// Text with a length of 64 bits.
type LongText = Bytes<u64>;

/// Text that ends with a NUL.
struct TextWithNul;

impl<'a> Codec<'a, &'a [u8]> for TextWithNul {
    const MIN_BYTES: usize = 1;

    fn put(value: &&'a [u8], w: &mut Writer<'_>) {
        w.bytes(value).u8(0);
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
        r.cstr(what)
    }
}

impl<'a> TracingData<'a> {
    /// Every event with the name of its system; formats that cannot be read are left out.
    pub fn events(&self) -> impl Iterator<Item = (&'a [u8], EventFormat<'a>)> + '_ {
        self.systems.iter().flat_map(|system| {
            system.formats.iter().filter_map(move |text| Some((system.name, EventFormat::parse(text)?)))
        })
    }

    /// System and format of the event with this id: the `config` in the attr of a tracepoint.
    pub fn event(&self, id: u64) -> Option<(&'a [u8], EventFormat<'a>)> {
        self.events().find(|(_, format)| u64::from(format.id) == id)
    }

    fn read_rest(&mut self, r: &mut Reader<'a>, version: &[u8], problem: &mut Option<Error>) -> Result<()> {
        self.page_size_bytes = r.u32("TRACING_DATA page size")?;
        self.header_page = named_text(r, b"header_page")?;
        self.header_event = named_text(r, b"header_event")?;
        self.ftrace = List::<LongText>::get_partial(r, "TRACING_DATA ftrace", problem)?;
        if problem.is_some() {
            return Ok(());
        }
        let systems = r.u32("TRACING_DATA system count")?;
        for _ in 0..systems {
            let name = TextWithNul::get(r, "TRACING_DATA system")?;
            let formats = List::<LongText>::get_partial(r, "TRACING_DATA formats", problem)?;
            self.systems.push(TracingSystem { name, formats });
            if problem.is_some() {
                return Ok(());
            }
        }
        self.kallsyms = <Bytes>::get(r, "TRACING_DATA kallsyms")?;
        self.printk_formats = <Bytes>::get(r, "TRACING_DATA printk_formats")?;
        if is_since_0_6(version) {
            self.saved_cmdlines = LongText::get(r, "TRACING_DATA saved_cmdlines")?;
        }
        Ok(())
    }
}

/// Returns true for version 0.6 or later, which has the names of tasks.
fn is_since_0_6(version: &[u8]) -> bool {
    std::str::from_utf8(version).is_ok_and(|text| text.parse::<f32>().is_ok_and(|version| version >= 0.6))
}

fn named_text<'a>(r: &mut Reader<'a>, name: &'static [u8]) -> Result<&'a [u8]> {
    let at = r.offset();
    if r.cstr("TRACING_DATA header name")? != name {
        return Err(Error::other(at, "TRACING_DATA", format!("{} is missing", name.escape_ascii())));
    }
    LongText::get(r, "TRACING_DATA header")
}

impl<'a> SectionContent<'a> for TracingData<'a> {
    fn read(outer: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<TracingData<'a>> {
        let at = outer.offset();
        if outer.array("TRACING_DATA magic")? != *MAGIC {
            return Err(Error::other(at, "TRACING_DATA", "the magic is missing"));
        }
        let version = outer.cstr("TRACING_DATA version")?;
        let endian = match outer.u8("TRACING_DATA byte order")? {
            0 => Endian::Little,
            1 => Endian::Big,
            other => return Err(Error::value(outer.offset() - 1, "TRACING_DATA byte order", other.into(), "0 or 1")),
        };
        let mut value = TracingData {
            endian,
            long_bytes: outer.u8("TRACING_DATA size of long")?,
            page_size_bytes: 0,
            header_page: &[],
            header_event: &[],
            ftrace: vec![],
            systems: vec![],
            kallsyms: &[],
            printk_formats: &[],
            saved_cmdlines: &[],
        };
        let base = outer.offset();
        let mut r = Reader::new(outer.rest(), base, endian);
        if let Err(error) = value.read_rest(&mut r, version, problem) {
            problem.get_or_insert(error);
        }
        Ok(value)
    }

    /// Appends the section in its own byte order, regardless of the byte order of `w`.
    fn encode(&self, w: &mut Writer<'_>) {
        let mut out = Vec::new();
        let mut own = Writer::new(&mut out, self.endian);
        own.bytes(MAGIC).bytes(b"0.6\0").u8(u8::from(self.endian == Endian::Big)).u8(self.long_bytes);
        own.u32(self.page_size_bytes);
        for (name, text) in [(&b"header_page"[..], self.header_page), (b"header_event", self.header_event)] {
            TextWithNul::put(&name, &mut own);
            LongText::put(&text, &mut own);
        }
        List::<LongText>::put(&self.ftrace, &mut own);
        List::<Plain>::put(&self.systems, &mut own);
        <Bytes>::put(&&*Contents::written(self.kallsyms, w), &mut own);
        <Bytes>::put(&&*Contents::written(self.printk_formats, w), &mut own);
        LongText::put(&&*Contents::written(self.saved_cmdlines, w), &mut own);
        w.bytes(&out);
    }
}
