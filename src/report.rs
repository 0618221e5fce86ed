//! `bprec report`.

use crate::Outcome;

/// Show what each BPF program cost.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args {} = args;
    Ok(Outcome::NothingMatched)
}
