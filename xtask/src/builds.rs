//! Executables that cargo builds from this workspace.

use std::path::PathBuf;

use anyhow::{Context, Result};
use cargo_metadata::Message;
use xshell::{Cmd, Shell, cmd};

/// Executable that cargo built.
pub(crate) struct Built {
    /// Directory of the crate below the root; `bprec` for the crate at the root.
    pub(crate) package: String,
    pub(crate) name: String,
    pub(crate) is_test: bool,
    pub(crate) path: PathBuf,
}

/// Runs a command of cargo that builds; returns the executables.
pub(crate) fn built(cargo: Cmd<'_>) -> Result<Vec<Built>> {
    let sources = std::env::current_dir()?;
    let messages = cargo.args(["--locked", "--message-format=json-render-diagnostics"]).quiet().read()?;
    let mut built = Vec::new();
    for message in Message::parse_stream(messages.as_bytes()) {
        let Message::CompilerArtifact(it) = message.context("read the output of cargo")? else { continue };
        let Some(path) = it.executable else { continue };
        let package = it.manifest_path.parent().context("a manifest has no directory")?;
        let package =
            package.strip_prefix(&sources).ok().filter(|it| *it != "").map_or("bprec".into(), |it| it.to_string());
        built.push(Built { package, name: it.target.name, is_test: it.profile.test, path: path.into() });
    }
    Ok(built)
}

/// Returns the executable `name`, a test program or a binary.
pub(crate) fn named<'a>(built: &'a [Built], name: &str, is_test: bool) -> Result<&'a Built> {
    let found = built.iter().find(|built| built.name == name && built.is_test == is_test);
    found.with_context(|| format!("{name} was not built"))
}

/// Builds everything that `cargo xtask test` builds, so that neither command rebuilds crates of the other.
pub(crate) fn workspace(sh: &Shell) -> Result<Vec<Built>> {
    built(cmd!(sh, "cargo test --workspace --no-run"))
}
