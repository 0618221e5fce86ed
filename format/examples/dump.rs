//! Prints one line per record, ordered by time: `dump FILE`.

#![expect(clippy::print_stdout, reason = "output of the example")]

use bprec_format::{Decoded, Recording};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(std::env::args_os().nth(1).ok_or("usage: dump FILE")?)?;
    let mut records = Recording::open(&bytes)?.records_by_time();
    while let Some(item) = records.next() {
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                println!("{error}");
                continue;
            }
        };
        print!("{:#10x} {} ", item.record.offset, item.record.kind);
        match item.decode() {
            Ok(Decoded::Sample(sample)) => println!("{:?} ip {:#x}", sample.time_ns(), sample.ip().unwrap_or_default()),
            Ok(Decoded::Other(payload, id)) => println!("{:?} {payload:?}", id.time_ns),
            Ok(_) => println!(),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
