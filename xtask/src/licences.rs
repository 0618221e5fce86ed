//! The licences of everything that is linked or built with.

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
    println!("{} packages, all under allowed licences", packages.len());
    Ok(())
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
    use super::allowed;

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
