//! Checks the conditions of a release.

use anyhow::{Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::components;

/// Checks versions, the list of changes and the bill of materials. If `tag` is given or HEAD has the tag `vVERSION`, the heading in the list of
/// changes must have a date instead of `unreleased`. `setup/package` checks that builds are reproducible and that packages work; `setup/deny` checks
/// licences.
pub(crate) fn check(sh: &Shell, tag: Option<&str>) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut problems = Vec::new();
    // The workspace of the fuzzers is not released.
    for directory in [".", "fleet"] {
        let metadata = cmd!(sh, "cargo metadata --no-deps --format-version 1 --manifest-path {directory}/Cargo.toml");
        let metadata: Value = serde_json::from_str(&metadata.quiet().read()?)?;
        let lock: Value = toml::from_str(&sh.read_file(format!("{directory}/Cargo.lock"))?)?;
        for packages in [&metadata["packages"], &lock["package"]] {
            problems.extend(other_versions(packages, version).into_iter().map(|it| format!("{directory} has {it}")));
        }
    }
    let changes = sh.read_file("CHANGELOG.md")?;
    let own = format!("v{version}");
    if let Some(tag) = tag.filter(|tag| *tag != own) {
        problems.push(format!("the tag {tag} is not {own}"));
    }
    let tags = cmd!(sh, "git tag --points-at HEAD").quiet().read()?;
    let is_tagged = tag.is_some() || tags.lines().any(|tag| tag == own);
    let is_own = |line: &&str| line.strip_prefix("## ").and_then(|it| it.split(' ').next()) == Some(version);
    let heading = changes.lines().find(is_own);
    if heading.is_none_or(|heading| is_tagged && heading.contains("unreleased")) {
        problems.push(format!("CHANGELOG.md has this heading for {version}: {}", heading.unwrap_or("none")));
    }
    ensure!(problems.is_empty(), "not ready for release:\n  {}", problems.join("\n  "));
    println!("{version} can be released; its bill of materials has {} components", components::linked(sh)?.len());
    Ok(())
}

/// Returns the packages of this repository, which have no source, and their requirements of each other, which have a path, in another version than
/// `version`. Registries need a version in each requirement; requirements of packages that are never published accept any version.
fn other_versions(packages: &Value, version: &str) -> Vec<String> {
    let own = packages.as_array().into_iter().flatten().filter(|it| it["source"].is_null());
    let required =
        own.clone().flat_map(|it| it["dependencies"].as_array()).flatten().filter(|it| it["path"].is_string());
    let all = own.map(|it| (&it["name"], &it["version"])).chain(required.map(|it| (&it["name"], &it["req"])));
    let meant = [version, "*", &format!("^{version}")];
    all.filter(|(_, it)| meant.iter().all(|meant| it != meant)).map(|(name, it)| format!("{name} {it}")).collect()
}

#[cfg(test)]
mod tests {
    use super::other_versions;
    use serde_json::json;

    #[test]
    fn a_version_that_differs_is_found() {
        let foreign = json!({ "name": "other", "version": "7.0.0", "source": "registry" });
        let packages = |own: &str| json!([foreign, { "name": "own", "version": own }]);
        assert_eq!(other_versions(&packages("1.2.0"), "1.2.0"), Vec::<String>::new());
        assert_eq!(other_versions(&packages("1.2.1"), "1.2.0"), ["\"own\" \"1.2.1\""]);
        let foreign = json!({ "name": "other", "req": "^7.0.0" });
        let required = |req: &str| {
            let dependencies = json!([foreign, { "name": "own", "req": req, "path": "/own" }]);
            json!([{ "name": "this", "version": "1.2.0", "dependencies": dependencies }])
        };
        assert_eq!(other_versions(&required("^1.2.0"), "1.2.0"), Vec::<String>::new());
        assert_eq!(other_versions(&required("*"), "1.2.0"), Vec::<String>::new());
        assert_eq!(other_versions(&required("^1.1.0"), "1.2.0"), ["\"own\" \"^1.1.0\""]);
        // Packages in a lock file list names of packages.
        let locked = json!([{ "name": "own", "version": "1.2.0", "dependencies": ["other"] }]);
        assert_eq!(other_versions(&locked, "1.2.0"), Vec::<String>::new());
    }
}
