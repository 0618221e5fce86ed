//! Executables that cargo builds from this workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::{Cmd, Shell, cmd};

/// Executable that cargo built.
pub(crate) struct Built {
    /// Directory of the crate below the root.
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
    for message in serde_json::Deserializer::from_str(&messages).into_iter::<Value>() {
        let message = message.context("read the output of cargo")?;
        let Some(path) = message["executable"].as_str() else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("a target has no manifest")?);
        let package = manifest.parent().and_then(|directory| directory.strip_prefix(&sources).ok()).unwrap_or(manifest);
        built.push(Built {
            package: package.to_string_lossy().into_owned(),
            name: message["target"]["name"].as_str().context("a target has no name")?.to_owned(),
            is_test: message["profile"]["test"] == true,
            path: path.into(),
        });
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
