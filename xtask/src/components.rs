//! Components that bprec is linked with, for redistributors: the texts of the licences, and a bill of materials.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

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

/// Format with which dpkg prints the version of the source of a package.
const SOURCE_VERSION: &str = "${source:Version}";

/// A package that `bprec` is linked with, as `cargo metadata` describes it.
#[derive(Deserialize)]
pub(crate) struct Component {
    name: String,
    version: String,
    license: String,
    source: Option<String>,
    manifest_path: PathBuf,
}

/// Prints every component with its licence, then the text of each licence once.
pub(crate) fn third_party(sh: &Shell) -> Result<()> {
    let components: Vec<Component> = linked(sh)?.into_iter().filter(|it| it.source.is_some()).collect();
    println!("# Libraries that bprec is linked with\n");
    println!(
        "If a component offers a choice of licences (OR, or /), this project may use it under any of them that deny.toml allows. It uses \
         libbpf-rs and libbpf-sys under BSD-2-Clause.\n"
    );
    println!("| component | version | licence |\n| --- | --- | --- |");
    for Component { name, version, license, .. } in &components {
        println!("| {name} | {version} | {license} |");
    }
    for (name, licence, of) in IN_C {
        println!("| {name} | as in {of} | {licence} |");
    }
    let mut texts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for component in &components {
        for path in sh.read_dir(component.manifest_path.parent().context("the manifest has no directory")?)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_uppercase();
            let is_licence = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
            if path.is_file() && is_licence.iter().any(|prefix| name.starts_with(prefix)) {
                let text = sh.read_file(&path)?;
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

/// Prints the components of the static executable as CycloneDX 1.5, without a time or a serial number, so that the same lock file gives the same
/// bytes. Debian's libraries have the versions that are installed on this machine.
pub(crate) fn sbom(sh: &Shell) -> Result<()> {
    let lock: Value = toml::from_str(&sh.read_file("Cargo.lock")?)?;
    let (own, others): (Vec<_>, Vec<_>) = linked(sh)?.into_iter().partition(|it| it.name == "bprec");
    let of = |it: &Component| {
        let licence = it.license.replace('/', " OR ");
        let mut component = library(&format!("pkg:cargo/{}@{}", it.name, it.version), &it.name, &it.version, &licence);
        let mut locked = lock["package"].as_array().into_iter().flatten();
        let locked = locked.find(|locked| locked["name"] == it.name && locked["version"] == it.version);
        // Packages of this repository have no checksum.
        if let Some(sum) = locked.and_then(|locked| locked.get("checksum")) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let mut components: Vec<Value> = others.iter().map(of).collect();
    for (name, licence, of) in IN_C {
        let version = format!("version of the crate {of}");
        let licences = json!([{ "expression": licence }]);
        components.push(json!({ "type": "library", "name": name, "description": version, "licenses": licences }));
    }
    for (name, licence, package) in IN_STATIC {
        let version = cmd!(sh, "dpkg-query --show --showformat {SOURCE_VERSION} {package}").quiet().read()?;
        components.push(from_debian(name, licence, &version));
    }
    let mut program = of(own.first().context("cargo metadata does not name bprec")?);
    program["type"] = Value::from("application");
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
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

/// Returns `bprec` and the packages that it is linked with on any release platform, sorted by name. Packages that only run during the build are
/// excluded.
pub(crate) fn linked(sh: &Shell) -> Result<Vec<Component>> {
    let edges = ["--edges=normal,no-proc-macro", "--prefix=none"];
    let platforms = PLATFORMS.map(|platform| format!("--target={platform}"));
    let tree = cmd!(sh, "cargo tree --locked --package bprec {edges...} {platforms...}").quiet().read()?;
    // A line has the form `name v1.2.3 (path)`.
    let linked: BTreeSet<_> = tree.lines().filter_map(|it| it.split_once(" v")).collect();
    let linked = |it: &Value| {
        let version = it["version"].as_str().unwrap_or_default();
        linked.iter().any(|(name, rest)| it["name"] == *name && rest.split(' ').next() == Some(version))
    };
    let metadata = cmd!(sh, "cargo metadata --format-version 1 --locked").quiet().read()?;
    let mut metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array_mut().context("cargo metadata names no packages")?;
    packages.retain(linked);
    let mut components = Vec::<Component>::deserialize(metadata["packages"].take()).context("read a package")?;
    components.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::from_debian;

    /// Package URLs follow the [specification](https://github.com/package-url/purl-spec): a plus sign is escaped, a colon is not.
    #[test]
    fn libraries_of_debian_have_an_address() {
        let zlib = from_debian("zlib", "Zlib", "1:1.2.13.dfsg-1+b1");
        assert_eq!(zlib["purl"], "pkg:deb/debian/zlib@1:1.2.13.dfsg-1%2Bb1?arch=source");
        assert_eq!(zlib["version"], "1:1.2.13.dfsg-1+b1");
    }
}
