//! Components that bprec is linked with, for redistributors: the texts of the licences, and a bill of materials.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{MetadataCommand, Package};
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

/// First letters of the names of files with licences.
const LICENCES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Text before the components.
const OPENING: &str = "# Libraries that bprec is linked with\n\nIf a component offers a choice of licences (OR, or /), this project may \
     use it under any of them that deny.toml allows. It uses libbpf-rs and libbpf-sys under BSD-2-Clause.\n\n\
     | component | version | licence |\n| --- | --- | --- |";

/// Prints every component with its licence, then the text of each licence once.
pub(crate) fn third_party(sh: &Shell) -> Result<()> {
    println!("{OPENING}");
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for component in linked(sh)?.into_iter().filter(|it| it.source.is_some()) {
        println!("| {} | {} | {} |", component.name, component.version, licence(&component));
        for path in sh.read_dir(component.manifest_path.parent().context("the manifest has no directory")?)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
            if path.is_file() && LICENCES.iter().any(|prefix| name.starts_with(prefix)) {
                let text = sh.read_file(&path)?.trim_end().replace('\r', "");
                texts.entry(text).or_default().insert(component.name.to_string());
            }
        }
    }
    for (name, licence, of) in IN_C {
        println!("| {name} | as in {of} | {licence} |");
    }
    for (text, names) in texts {
        println!("\n## {}\n\n```text\n{text}\n```", Vec::from_iter(names).join(", "));
    }
    Ok(())
}

/// Prints the components of the static executable as CycloneDX 1.5, without a time or a serial number, so that the same lock file gives the same
/// bytes. Debian's libraries have the versions that are installed on this machine.
pub(crate) fn sbom(sh: &Shell) -> Result<()> {
    let lock: Value = toml::from_str(&sh.read_file("Cargo.lock")?)?;
    let of = |it: &Package| {
        let (name, version) = (it.name.as_str(), it.version.to_string());
        let mut component =
            library(&format!("pkg:cargo/{name}@{version}"), name, &version, &licence(it).replace('/', " OR "));
        let mut locked = lock["package"].as_array().into_iter().flatten();
        let locked = locked.find(|locked| locked["name"] == name && locked["version"] == version);
        // Packages of this repository have no checksum.
        if let Some(sum) = locked.and_then(|locked| locked.get("checksum")) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let (own, others): (Vec<_>, Vec<_>) = linked(sh)?.into_iter().partition(|it| it.name == "bprec");
    let mut program = of(own.first().context("cargo metadata does not name bprec")?);
    program["type"] = Value::from("application");
    let mut components: Vec<Value> = others.iter().map(of).collect();
    components.extend(IN_C.map(|(name, licence, of)| {
        let (version, licences) = (format!("version of the crate {of}"), json!([{ "expression": licence }]));
        json!({ "type": "library", "name": name, "description": version, "licenses": licences })
    }));
    for (name, licence, package) in IN_STATIC {
        let version = cmd!(sh, "dpkg-query --show --showformat {SOURCE_VERSION} {package}").quiet().read()?;
        components.push(from_debian(name, licence, &version));
    }
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

fn licence(package: &Package) -> &str {
    package.license.as_deref().unwrap_or_default()
}

/// Returns `bprec` and the packages that it is linked with on any release platform, sorted by name. Packages that only run during the build are
/// excluded.
pub(crate) fn linked(sh: &Shell) -> Result<Vec<Package>> {
    let edges = ["--edges=normal,no-proc-macro", "--prefix=none"];
    let platforms = PLATFORMS.map(|platform| format!("--target={platform}"));
    let tree = cmd!(sh, "cargo tree --locked --package bprec {edges...} {platforms...}").quiet().read()?;
    // A line has the form `name v1.2.3 (path)`.
    let linked: BTreeSet<_> = tree.lines().map(|it| it.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    let mut packages = MetadataCommand::new().other_options(["--locked".to_owned()]).exec()?.packages;
    packages.retain(|it| linked.contains(&format!("{} v{}", it.name, it.version)));
    packages.sort_by_key(|it| (it.name.to_string(), it.version.to_string()));
    let unlicensed = packages.iter().find(|it| it.license.is_none());
    ensure!(unlicensed.is_none(), "{} names no licence", unlicensed.map_or("", |it| &it.name));
    Ok(packages)
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
