//! What has to hold before a version is given out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{components, licences};

/// Checks versions, the list of changes, licences and the bill of materials. That builds repeat and that packages work, `setup/package`
/// checks.
pub(crate) fn check() -> Result<()> {
    let manifest = fs::read_to_string("Cargo.toml").context("read Cargo.toml")?;
    let version = workspace_version(&manifest).context("Cargo.toml has no version of the workspace")?;
    let mut problems = Vec::new();
    for path in crate::tree::files_under(Path::new("."))? {
        let is_own = path.file_name().is_some_and(|name| name == "Cargo.toml") && !path.starts_with("./fuzz");
        if is_own && path != Path::new("./Cargo.toml") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            if !text.contains("\nversion.workspace = true\n") {
                problems.push(format!("{} has a version of its own", path.display()));
            }
        }
    }
    let lock = fs::read_to_string("Cargo.lock").context("read Cargo.lock")?;
    problems.extend(other_versions(&lock, version).into_iter().map(|name| format!("Cargo.lock has {name}")));
    let changes = fs::read_to_string("CHANGELOG.md").context("read CHANGELOG.md")?;
    match heading(&changes, version) {
        None => problems.push(format!("CHANGELOG.md has no heading for {version}")),
        Some(heading) if heading.contains("unreleased") => problems.push(format!("CHANGELOG.md says: {heading}")),
        Some(_) => {}
    }
    let linked = components::count()?;
    if !problems.is_empty() {
        bail!("not ready for release:\n  {}", problems.join("\n  "));
    }
    licences::check()?;
    println!("{version} can be released: {linked} components are linked");
    Ok(())
}

fn workspace_version(manifest: &str) -> Option<&str> {
    let package = manifest.split("[workspace.package]").nth(1)?.split("\n[").next()?;
    package.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

/// Packages of this repository that the lock file has in another version.
fn other_versions(lock: &str, version: &str) -> Vec<String> {
    let packages = lock.split("[[package]]").skip(1).filter(|package| !package.contains("\nsource = "));
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.unwrap_or_default().trim_end_matches('"').to_owned()
    };
    let others = packages.filter(|package| value(package, "version") != version);
    others.map(|package| format!("{} {}", value(package, "name"), value(package, "version"))).collect()
}

/// The heading of a version among the changes.
fn heading<'a>(changes: &'a str, version: &str) -> Option<&'a str> {
    changes.lines().find(|line| line.strip_prefix("## ").and_then(|rest| rest.split(' ').next()) == Some(version))
}

#[cfg(test)]
mod tests {
    use super::{heading, other_versions, workspace_version};

    #[test]
    fn a_version_that_differs_is_told() {
        let manifest = "[workspace]\nversion = \"9.9.9\"\n[workspace.package]\nversion = \"1.2.0\"\n[package]\nversion = \"3.0.0\"\n";
        assert_eq!(workspace_version(manifest), Some("1.2.0"));
        let lock = "version = 4\n[[package]]\nname = \"own\"\nversion = \"1.2.0\"\n[[package]]\nname = \"late\"\nversion = \"1.1.0\"\n\
                    [[package]]\nname = \"other\"\nversion = \"7.0.0\"\nsource = \"registry\"\n";
        assert_eq!(other_versions(lock, "1.2.0"), ["late 1.1.0"]);
        let changes = "# Changes\n\n## 1.2.0 (2026-01-01)\n\n## 1.1.0\n";
        assert_eq!(heading(changes, "1.2.0"), Some("## 1.2.0 (2026-01-01)"));
        assert_eq!((heading(changes, "1.1.0"), heading(changes, "1.2")), (Some("## 1.1.0"), None));
    }
}
