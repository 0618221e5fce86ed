//! Checks the conditions of a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::components;

/// Checks versions, the list of changes and the bill of materials. If `tag` is given or HEAD has the tag `vVERSION`, the heading in the list of
/// changes must have a date instead of `unreleased`. `setup/package` checks that builds are reproducible and that packages work; `setup/deny` checks
/// licences.
pub(crate) fn check(tag: Option<&str>) -> Result<()> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let version = env!("CARGO_PKG_VERSION");
    let mut problems = Vec::new();
    for path in crate::tree::files_under(Path::new("."))? {
        // The fuzzers are not released.
        if path.starts_with("./fuzz") {
            continue;
        }
        if path.ends_with("Cargo.toml") && !has_version(&read(&path)?, version) {
            problems.push(format!("{} has another version", path.display()));
        } else if path.ends_with("Cargo.lock") {
            let others = other_versions(&read(&path)?, version);
            problems.extend(others.into_iter().map(|name| format!("{} has {name}", path.display())));
        }
    }
    let manifest = read(Path::new("Cargo.toml"))?;
    problems.extend(other_requirements(&manifest, version).into_iter().map(|line| format!("Cargo.toml: {line}")));
    let changes = read(Path::new("CHANGELOG.md"))?;
    let heading =
        changes.lines().find(|line| line.strip_prefix("## ").and_then(|it| it.split(' ').next()) == Some(version));
    let tags = Command::new("git").args(["tag", "--points-at", "HEAD"]).output().context("run git")?.stdout;
    let is_ours = |tag: &str| tag.strip_prefix('v') == Some(version);
    let is_tagged = tag.is_some() || String::from_utf8_lossy(&tags).lines().any(is_ours);
    if let Some(tag) = tag.filter(|tag| !is_ours(tag)) {
        problems.push(format!("the tag {tag} is not v{version}"));
    }
    match heading {
        None => problems.push(format!("CHANGELOG.md has no heading for {version}")),
        Some(heading) if is_tagged && heading.contains("unreleased") => {
            problems.push(format!("CHANGELOG.md says: {heading}"))
        }
        Some(_) => {}
    }
    if !problems.is_empty() {
        bail!("not ready for release:\n  {}", problems.join("\n  "));
    }
    println!("{version} can be released; its bill of materials has {} components", components::count()?);
    Ok(())
}

fn has_version(manifest: &str, version: &str) -> bool {
    manifest.lines().any(|line| line == "version.workspace = true" || line == format!("version = \"{version}\""))
}

/// Returns the lines of the manifest that require a package of this workspace in another version than `version`. Registries need a version in each
/// requirement; requirements on packages that are never published have no version.
fn other_requirements<'a>(manifest: &'a str, version: &str) -> Vec<&'a str> {
    let own = manifest.lines().filter(|line| line.contains("{ path = ") && line.contains(", version = "));
    own.filter(|line| !line.contains(&format!(", version = \"{version}\""))).collect()
}

/// Returns the names of packages of this repository that have another version in the lock file.
fn other_versions(lock: &str, version: &str) -> Vec<String> {
    let packages = lock.split("[[package]]").skip(1).filter(|package| !package.contains("\nsource = "));
    let others = packages.filter(|package| !has_version(package, version));
    others
        .filter_map(|package| package.lines().find_map(|line| line.strip_prefix("name = ")).map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{has_version, other_requirements, other_versions};

    #[test]
    fn a_version_that_differs_is_found() {
        assert!(has_version("[package]\nversion.workspace = true\n", "1.2.0"));
        assert!(has_version("[package]\nversion = \"1.2.0\"\n", "1.2.0"));
        assert!(!has_version("[package]\nversion = \"1.2.1\"\n", "1.2.0"));
        let lock = "version = 4\n[[package]]\nname = \"own\"\nversion = \"1.2.0\"\n[[package]]\nname = \"late\"\nversion = \"1.1.0\"\n\
                    [[package]]\nname = \"other\"\nversion = \"7.0.0\"\nsource = \"registry\"\n";
        assert_eq!(other_versions(lock, "1.2.0"), ["\"late\""]);
        let late = "late = { path = \"late\", version = \"1.1.0\" }";
        let manifest =
            format!("{late}\nown = {{ path = \"own\", version = \"1.2.0\" }}\ntests = {{ path = \"tests\" }}\n");
        assert_eq!(other_requirements(&manifest, "1.2.0"), [late]);
    }
}
