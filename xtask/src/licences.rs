//! Everything that is linked or built with: its licence, where it comes from, and whether it is there twice.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Licences that ask for nothing beyond keeping their text. Of a crate offered under several, one arm of these is enough: libbpf-rs and
/// libbpf-sys are used under BSD-2-Clause, never under LGPL.
const ALLOWED: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "Unicode-3.0",
    "0BSD",
    "Unlicense",
];

/// A package whose registry is the one that all may come from; those without any source are of this repository.
const FROM_REGISTRY: &str = "libbpf-rs";

/// Packages of which there are two versions, since others have not moved on yet. Each more is built, and has to be looked at, twice.
const TWICE: [&str; 2] = ["hashbrown", "syn"];

/// Checks every package that the lock file can bring in, on any platform.
pub(crate) fn check() -> Result<()> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or("none given");
            let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
            (!allowed(licence)).then(|| format!("{name}: {licence}"))
        })
        .collect();
    if !refused.is_empty() {
        bail!("licences not allowed:\n  {}", refused.join("\n  "));
    }
    let problems: Vec<String> = sources(packages).into_iter().chain(duplicates(packages)).chain(unchecked()?).collect();
    if !problems.is_empty() {
        bail!("packages not allowed:\n  {}", problems.join("\n  "));
    }
    println!("{} packages, all under allowed licences, from one registry with a checksum, once each", packages.len());
    Ok(())
}

/// Packages from anywhere else.
fn sources(packages: &[Value]) -> Vec<String> {
    let known = packages.iter().find(|package| package["name"] == FROM_REGISTRY).and_then(|it| it["source"].as_str());
    let registry = known.filter(|source| source.starts_with("registry+"));
    let elsewhere = packages.iter().filter_map(|package| {
        let source = package["source"].as_str().filter(|source| Some(*source) != registry)?;
        Some(format!("{} comes from {source}", package["name"].as_str()?))
    });
    elsewhere.collect()
}

/// Packages in more versions than are known, and those that are known and no longer are.
fn duplicates(packages: &[Value]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        if let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str()) {
            versions.entry(name).or_default().push(version);
        }
    }
    let most = |name: &str| if TWICE.contains(&name) { 2 } else { 1 };
    let more = versions.iter().filter(|(name, versions)| versions.len() > most(name));
    let more = more.map(|(name, versions)| format!("{name} is there as {}", versions.join(", ")));
    let fewer = TWICE.iter().filter(|name| versions.get(**name).is_none_or(|versions| versions.len() < 2));
    more.chain(fewer.map(|name| format!("{name} is no longer there twice: take it off the list"))).collect()
}

/// Packages of the lock file that come from a registry and have no checksum.
fn unchecked() -> Result<Vec<String>> {
    let lock = std::fs::read_to_string("Cargo.lock").context("read Cargo.lock")?;
    let packages = lock.split("[[package]]").skip(1);
    let unchecked = packages.filter(|package| package.contains("\nsource = ") && !package.contains("\nchecksum = "));
    Ok(unchecked.map(|package| format!("no checksum:{}", package.replace('\n', " "))).collect())
}

/// True when some choice among the expression's alternatives needs allowed licences only.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let expression = strip_outer(expression.trim());
    for (operator, any) in [(" OR ", true), (" AND ", false)] {
        let parts = split_outside_parentheses(expression, operator);
        if parts.len() > 1 {
            return if any { parts.into_iter().any(allowed) } else { parts.into_iter().all(allowed) };
        }
    }
    ALLOWED.contains(&expression)
}

/// Without the parentheses around all of it.
fn strip_outer(expression: &str) -> &str {
    let Some(inner) = expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return expression };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth < 0 {
            return expression;
        }
    }
    inner.trim()
}

fn split_outside_parentheses<'a>(expression: &'a str, operator: &str) -> Vec<&'a str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (at, c) in expression.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 && at >= start && expression[at..].starts_with(operator) {
            parts.push(expression[start..at].trim());
            start = at + operator.len();
        }
    }
    parts.push(expression[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::{FROM_REGISTRY, TWICE, allowed, duplicates, sources};
    use serde_json::json;

    #[test]
    fn a_package_from_elsewhere_or_in_one_version_too_many_is_told() {
        const REGISTRY: &str = "registry+https://example.org/index";
        let package = |name: &str, version: &str, source: Option<&str>| json!({ "name": name, "version": version, "source": source });
        let mut packages = vec![package("ours", "0.1.0", None), package(FROM_REGISTRY, "1.0.0", Some(REGISTRY))];
        packages.extend(
            TWICE.iter().flat_map(|name| ["1.0.0", "2.0.0"].map(|version| package(name, version, Some(REGISTRY)))),
        );
        assert!(sources(&packages).is_empty() && duplicates(&packages).is_empty());
        packages.push(package("one", "1.0.0", Some("git+https://example.org/one")));
        packages.push(package(FROM_REGISTRY, "2.0.0", Some(REGISTRY)));
        assert_eq!(sources(&packages), ["one comes from git+https://example.org/one"]);
        assert_eq!(duplicates(&packages), [format!("{FROM_REGISTRY} is there as 1.0.0, 2.0.0")]);
        packages.retain(|package| package["name"] != TWICE[0]);
        assert_eq!(duplicates(&packages).len(), 2);
    }

    #[test]
    fn one_allowed_arm_is_enough_and_every_conjunct_is_needed() {
        for yes in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "LGPL-2.1-only OR BSD-2-Clause",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "(MIT) AND (Zlib OR GPL-3.0-only)",
        ] {
            assert!(allowed(yes), "{yes}");
        }
        for no in [
            "GPL-2.0-only",
            "MIT AND GPL-2.0-only",
            "CDDL-1.0",
            "none given",
            "",
            "(LGPL-2.1-only OR MIT) AND CDDL-1.0",
        ] {
            assert!(!allowed(no), "{no}");
        }
    }
}
