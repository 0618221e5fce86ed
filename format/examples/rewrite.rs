//! Writes a recording (a file or a stream, complete or cut off) as a file that every perf opens: `rewrite FROM TO`.

use bprec_format::rewrite::Rewriter;
use bprec_format::{FILE_HEADER_BYTES, Recording, Resync};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (paths.next(), paths.next()) else { return Err("usage: rewrite FROM TO".into()) };
    let bytes = std::fs::read(from)?;
    let (mut out, mut writer) = (Vec::new(), None);
    let mut records = Recording::open(&bytes)?.records();
    while let Some(item) = records.next() {
        // A damaged part of the recording is left out.
        let Ok(item) = item else { continue };
        // In a stream, records at the start describe the events.
        if !item.is_description() || writer.is_some() {
            let writer = match &mut writer {
                Some(writer) => writer,
                None => writer.insert(Rewriter::begin_smallest(item.metadata(), &mut out)?),
            };
            if Resync::new(writer.events(), false).unfit(&item.record).is_none() {
                writer.record(&item.record, item.is_description(), &mut out);
            }
        }
    }
    let writer: Rewriter = writer.ok_or("no record")?;
    let header = writer.finish(records.metadata(), &[], &mut out);
    out[..FILE_HEADER_BYTES].copy_from_slice(&header);
    std::fs::write(to, out)?;
    Ok(())
}
