//! Reports of recordings whose bytes are the same on every machine, to count the instructions of the reader: `cargo xtask instructions [--check]`
//! runs this program under callgrind. The first argument chooses the report, or the work of `bprec-format` alone.
#![allow(clippy::print_stdout, reason = "benchmarks print their results")]

use std::error::Error;

use bprec_format::Recording;
use bprec_generate::{Container, Shape, generate_bytes};
use bprec_report::{Document, Fields, Input, Options, ScriptOptions, Source, by_prog, script};

/// Small enough that callgrind ends within seconds, and large enough that the records dominate the count.
const RECORD_BYTES: u64 = 6 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let (Some(what), Some(file)) = (arguments.next(), arguments.next()) else {
        println!("SKIP instructions: they are counted by cargo xtask instructions");
        return Ok(());
    };
    let shape = Shape { record_bytes: RECORD_BYTES, ..Shape::default() };
    let churn = Shape { programs: 500, churned_programs: 500, ..shape.clone() };
    let zstd = Shape { container: Container::ZstdFile(1), ..shape.clone() };
    match what.as_str() {
        // The instructions for making the recordings are not counted.
        "make" => std::fs::write(&file, generate_bytes(&shape)?.0)?,
        "make-churn" => std::fs::write(&file, generate_bytes(&churn)?.0)?,
        "make-zstd" => std::fs::write(&file, generate_bytes(&zstd)?.0)?,
        "script" => {
            let options =
                ScriptOptions { fields: Fields::parse("ip,sym")?, threads: Some(1), ..ScriptOptions::default() };
            script(&mut Source::open(&file)?, &options, &mut std::io::sink())?;
        }
        // All records, and with `decode` also the fields of all samples.
        "walk" | "decode" => {
            let bytes = std::fs::read(&file)?;
            let mut records = Recording::open(&bytes)?.records();
            let (mut walked, mut frames) = (0, 0);
            while let Some(item) = records.next() {
                let item = item?;
                walked += 1;
                if what == "decode"
                    && let Some(sample) = item.sample()
                {
                    frames += sample.decode()?.callchain.map_or(0, |callchain| callchain.len());
                }
            }
            println!("{walked} records, {frames} frames decoded");
        }
        _ => {
            let by = what.strip_prefix("by-").filter(|by| *by != "prog").map(str::parse).transpose()?;
            let report = by_prog(&Input::open(&file)?, &Options { by, threads: Some(1), ..Options::default() })?;
            report.write_table(&mut std::io::sink(), 132)?;
        }
    }
    Ok(())
}
