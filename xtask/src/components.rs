//! Components that bprec is linked with, for redistributors: the texts of the licences, and a bill of materials.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command::{cargo, output};

/// The platforms that releases are built for.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// C libraries that a crate bundles or that are linked statically: name, licence, crate.
const IN_C: [(&str, &str, &str); 2] = [("libbpf", "BSD-2-Clause", "libbpf-sys"), ("zstd", "BSD-3-Clause", "zstd-sys")];

/// Debian packages whose libraries are linked into the static executable: name, licence, package with the archive that was linked.
const IN_STATIC: [(&str, &str, &str); 3] = [
    ("glibc", "LGPL-2.1-or-later", "libc6-dev"),
    ("elfutils", "GPL-2.0-or-later OR LGPL-3.0-or-later", "libelf-dev"),
    ("zlib", "Zlib", "zlib1g-dev"),
];

/// A package of the lock file.
struct Component {
    name: String,
    version: String,
    licence: String,
    /// Checksum in the lock file; `None` for the packages of this repository.
    checksum: Option<String>,
    is_own: bool,
    manifest: String,
}

/// Prints every component with its licence, then the text of each licence once.
pub(crate) fn third_party() -> Result<()> {
    let components: Vec<Component> = components()?.into_iter().filter(|it| !it.is_own).collect();
    println!("# Libraries that bprec is linked with\n");
    println!(
        "If a component offers a choice of licences (OR, or /), this project may use it under any of them that deny.toml allows. It uses \
         libbpf-rs and libbpf-sys under BSD-2-Clause.\n"
    );
    println!("| component | version | licence |\n| --- | --- | --- |");
    for Component { name, version, licence, .. } in &components {
        println!("| {name} | {version} | {licence} |");
    }
    for (name, licence, of) in IN_C {
        println!("| {name} | as in {of} | {licence} |");
    }
    let mut texts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for component in &components {
        let directory = Path::new(&component.manifest).parent().context("the manifest has no directory")?;
        for entry in fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_uppercase();
            let is_licence = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
            if path.is_file() && is_licence.iter().any(|prefix| name.starts_with(prefix)) {
                let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                texts.entry(text.trim_end().replace('\r', "")).or_default().insert(&component.name);
            }
        }
    }
    for (text, names) in texts {
        let names: Vec<&str> = names.into_iter().collect();
        println!("\n## {}\n\n```text\n{text}\n```", names.join(", "));
    }
    Ok(())
}

/// Prints the components as CycloneDX 1.5, without a time or a serial number, so that the same lock file gives the same bytes. For the static
/// executable, also prints Debian's libraries that are linked into it, with the versions that are installed on this machine.
pub(crate) fn sbom(is_static: bool) -> Result<()> {
    let components = components()?;
    let own = components.iter().find(|it| it.name == "bprec").context("cargo metadata does not name bprec")?;
    let of = |it: &Component| {
        let licence = it.licence.replace('/', " OR ");
        let mut component = library(&format!("pkg:cargo/{}@{}", it.name, it.version), &it.name, &it.version, &licence);
        if let Some(sum) = &it.checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let in_c = IN_C.iter().map(|(name, licence, of)| {
        json!({
            "type": "library",
            "name": name,
            "description": format!("version of the crate {of}"),
            "licenses": [{ "expression": licence }],
        })
    });
    let mut linked = components.iter().filter(|it| it.name != "bprec").map(of).chain(in_c).collect::<Vec<_>>();
    if is_static {
        for (name, licence, package) in IN_STATIC {
            linked.push(from_debian(name, licence, &debian_version(package)?));
        }
    }
    let mut program = of(own);
    program["type"] = Value::from("application");
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": linked,
    });
    println!("{}", serde_json::to_string_pretty(&bill)?);
    Ok(())
}

/// Returns the component for a source package of Debian.
fn from_debian(name: &str, licence: &str, version: &str) -> Value {
    // The specification of package URLs does not encode colons.
    library(&format!("pkg:deb/debian/{name}@{}?arch=source", version.replace('+', "%2B")), name, version, licence)
}

fn library(reference: &str, name: &str, version: &str, licence: &str) -> Value {
    json!({
        "type": "library",
        "bom-ref": reference,
        "purl": reference,
        "name": name,
        "version": version,
        "licenses": [{ "expression": licence }],
    })
}

/// Version of the source of an installed package.
fn debian_version(package: &str) -> Result<String> {
    let arguments = ["--show", "--showformat", "${source:Version}", package];
    output(Command::new("dpkg-query").args(arguments))
}

/// Count of components.
pub(crate) fn count() -> Result<usize> {
    components().map(|components| components.len())
}

/// Returns `bprec` and the packages that it is linked with on any release platform, sorted by name.
fn components() -> Result<Vec<Component>> {
    let metadata: Value =
        serde_json::from_str(&output(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?)?;
    let linked = linked()?;
    let lock = fs::read_to_string("Cargo.lock").context("read Cargo.lock")?;
    let mut components: Vec<Component> = metadata["packages"]
        .as_array()
        .context("cargo metadata names no packages")?
        .iter()
        .filter(|package| {
            let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
            linked.contains(&(text("name"), text("version")))
        })
        .map(|package| {
            let text = |name: &str| package[name].as_str().map(str::to_owned);
            let name = text("name").context("a package has no name")?;
            let version = text("version").context("a package has no version")?;
            Ok(Component {
                licence: text("license").with_context(|| format!("{name} names no licence"))?,
                checksum: checksum(&lock, &name, &version),
                is_own: package["source"].is_null(),
                manifest: text("manifest_path").context("a package has no manifest")?,
                name,
                version,
            })
        })
        .collect::<Result<_>>()?;
    components.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(components)
}

/// Returns names and versions of the packages that `bprec` is linked with on any release platform. Packages that only run during the build
/// are excluded.
fn linked() -> Result<BTreeSet<(String, String)>> {
    let platforms = PLATFORMS.iter().flat_map(|platform| ["--target", platform]);
    let arguments = ["tree", "--locked", "--package", "bprec", "--edges", "normal,no-proc-macro", "--prefix", "none"];
    let printed = output(&mut cargo(&arguments.into_iter().chain(platforms).collect::<Vec<_>>()))?;
    // Each line has the form `name v1.2.3 (path)`.
    let words = printed.lines().filter_map(|line| line.split_once(" v"));
    Ok(words.map(|(name, rest)| (name.into(), rest.split(' ').next().unwrap_or(rest).into())).collect())
}

/// Returns the checksum of a package in the lock file.
fn checksum(lock: &str, name: &str, version: &str) -> Option<String> {
    let head = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let package = lock.split("[[package]]").find(|package| package.trim_start().starts_with(&head))?;
    package.lines().find_map(|line| line.strip_prefix("checksum = \"")?.strip_suffix('"')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{checksum, from_debian};

    /// Package URLs follow the [specification](https://github.com/package-url/purl-spec): a plus sign is escaped, a colon is not.
    #[test]
    fn libraries_of_debian_have_an_address() {
        let zlib = from_debian("zlib", "Zlib", "1:1.2.13.dfsg-1+b1");
        assert_eq!(zlib["purl"], "pkg:deb/debian/zlib@1:1.2.13.dfsg-1%2Bb1?arch=source");
        assert_eq!(zlib["version"], "1:1.2.13.dfsg-1+b1");
    }

    #[test]
    fn a_checksum_is_of_that_version() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0\"\nchecksum = \"11\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0\"\n\
                    checksum = \"22\"\n\n[[package]]\nname = \"own\"\nversion = \"1.0\"\n";
        assert_eq!(checksum(lock, "a", "2.0").as_deref(), Some("22"));
        assert_eq!(checksum(lock, "own", "1.0"), None);
    }
}
