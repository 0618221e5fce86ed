//! A custom sink: kernel functions that BPF programs call, by time spent in them. `cargo run -p bprec-report --example helpers -- perf.data`
#![allow(clippy::print_stdout, reason = "an example")]

use bprec_report::{Attribution, Charge, ChargeColumn, Input, Options, SampleView, Session, Sink, format};
use std::collections::BTreeMap;
use std::error::Error;

/// Weight of the samples in called functions, by number of the program and address of the called function.
#[derive(Default)]
struct Helpers(BTreeMap<(u32, u64), u64>);

impl Sink for Helpers {
    fn fork(&self) -> Self {
        Helpers::default()
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> format::Result<()> {
        if let Charge::Program { program, column: ChargeColumn::Helper, called: Some(called), .. } = attribution.charge
        {
            *self.0.entry((program, called)).or_default() += sample.count.weight;
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (key, weight) in other.0 {
            *self.0.entry(key).or_default() += weight;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("which recording?")?;
    let input = Input::open(path)?;
    let session = Session::open(&input)?;
    let helpers = session.run(&Options::default(), Helpers::default())?;
    let symbolizer = session.symbolizer();
    let mut by_name: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for ((program, called), weight) in helpers.0 {
        let name =
            symbolizer.find(called, u64::MAX).map_or_else(|| format!("{called:#x}"), |symbol| symbol.name.into());
        *by_name.entry((session.program_name(program).unwrap_or_default(), name)).or_default() += weight;
    }
    for ((program, helper), weight) in by_name {
        println!("{weight:>15}  {program}  {helper}");
    }
    Ok(())
}
