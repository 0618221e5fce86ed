//! Making the recordings again.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds the recorder and the loader and lets `fixtures/record` make the recordings `names` (all, when there are none) in `directory`.
pub(crate) fn make(directory: &str, names: &[&str]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    run(Command::new(cargo).args(["build", "--locked", "--package", "bprec", "--package", "bprec-fixtures"]))?;
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    let built = |name: &str| format!("{target}/debug/{name}");
    run(Command::new("fixtures/record").args([&built("bprec"), &built("bprec-load"), directory]).args(names))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
