//! `bprec completions`.

use std::io::Write;

use anyhow::Result;
use clap_complete::{Shell, generate};

use crate::Outcome;

/// Print completions for a shell: source <(bprec completions bash).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shell to complete in.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut script = Vec::new();
    generate(args.shell, &mut crate::command(), "bprec", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Done)
}
