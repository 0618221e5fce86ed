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
const FROM_REGISTRY: &str = "anyhow";

/// A lock file, and what is known of it.
struct Workspace {
    directory: &'static str,
    /// Packages of which there are several versions, since others have not moved on yet. Each more is built, and has to be looked at, again.
    again: &'static [(&'static str, usize)],
    /// Packages under other licences, which are in no program: they run while it is compiled.
    while_compiling: &'static [(&'static str, &'static str)],
}

const WORKSPACES: [Workspace; 2] = [
    Workspace { directory: ".", again: &[("foldhash", 2), ("hashbrown", 2), ("syn", 2)], while_compiling: &[] },
    Workspace {
        directory: "fleet",
        again: &[
            ("foldhash", 2),
            ("getrandom", 3),
            ("hashbrown", 3),
            ("itertools", 2),
            ("num-bigint", 2),
            ("r-efi", 2),
            ("syn", 2),
            ("zstd", 2),
            ("zstd-safe", 2),
        ],
        // Licence of the macro `const_random`.
        while_compiling: &[("tiny-keccak", "CC0-1.0")],
    },
];

/// Checks every package that the lock files can bring in, on any platform.
pub(crate) fn check() -> Result<()> {
    WORKSPACES.iter().try_for_each(check_workspace)
}

fn check_workspace(workspace: &Workspace) -> Result<()> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(workspace.directory)
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or("none given");
            let name = package["name"].as_str()?;
            let is_known = workspace.while_compiling.contains(&(name, licence));
            let version = package["version"].as_str()?;
            (!is_known && !allowed(licence)).then(|| format!("{name} {version}: {licence}"))
        })
        .collect();
    if !refused.is_empty() {
        bail!("licences not allowed:\n  {}", refused.join("\n  "));
    }
    let problems = sources(packages).into_iter().chain(duplicates(packages, workspace.again));
    let problems: Vec<String> = problems.chain(unchecked(workspace.directory)?).collect();
    if !problems.is_empty() {
        bail!("packages not allowed:\n  {}", problems.join("\n  "));
    }
    println!(
        "{}: {} packages, all under allowed licences, from one registry with a checksum, once each",
        workspace.directory,
        packages.len()
    );
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
fn duplicates(packages: &[Value], again: &[(&str, usize)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        if let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str()) {
            versions.entry(name).or_default().push(version);
        }
    }
    let most = |name: &str| again.iter().find(|(known, _)| *known == name).map_or(1, |(_, most)| *most);
    let more = versions.iter().filter(|(name, versions)| versions.len() > most(name));
    let more = more.map(|(name, versions)| format!("{name} is there as {}", versions.join(", ")));
    let fewer = again.iter().filter(|(name, most)| versions.get(name).is_none_or(|versions| versions.len() < *most));
    more.chain(fewer.map(|(name, most)| format!("{name} is no longer there {most} times: change the list"))).collect()
}

/// Packages of the lock file that come from a registry and have no checksum.
fn unchecked(directory: &str) -> Result<Vec<String>> {
    let lock = std::path::Path::new(directory).join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
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
    use super::{FROM_REGISTRY, allowed, duplicates, sources};
    use serde_json::json;

    #[test]
    fn a_package_from_elsewhere_or_in_one_version_too_many_is_told() {
        const REGISTRY: &str = "registry+https://example.org/index";
        const AGAIN: [(&str, usize); 2] = [("twice", 2), ("thrice", 3)];
        let package = |name: &str, version: &str, source: Option<&str>| json!({ "name": name, "version": version, "source": source });
        let mut packages = vec![package("ours", "0.1.0", None), package(FROM_REGISTRY, "1.0.0", Some(REGISTRY))];
        for (name, most) in AGAIN {
            packages.extend((0..most).map(|major| package(name, &format!("{major}.0.0"), Some(REGISTRY))));
        }
        assert!(sources(&packages).is_empty() && duplicates(&packages, &AGAIN).is_empty());
        packages.push(package("one", "1.0.0", Some("git+https://example.org/one")));
        packages.push(package(FROM_REGISTRY, "2.0.0", Some(REGISTRY)));
        assert_eq!(sources(&packages), ["one comes from git+https://example.org/one"]);
        assert_eq!(duplicates(&packages, &AGAIN), [format!("{FROM_REGISTRY} is there as 1.0.0, 2.0.0")]);
        packages.retain(|package| package["name"] != AGAIN[0].0);
        assert_eq!(duplicates(&packages, &AGAIN).len(), 2);
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
