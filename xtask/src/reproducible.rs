//! That the same commit gives the same package, wherever it is built.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Where the last commit is built: paths of different lengths, in different time zones.
const BUILDS: [(&str, &str); 2] = [("once", "UTC"), ("again/in/another/directory", "Asia/Kathmandu")];

/// Builds the Debian package of the last commit in two directories, and compares the bytes of the packages.
pub(crate) fn check() -> Result<()> {
    let base = std::path::absolute(crate::target_directory().join("reproducible")).context("find target")?;
    if base.exists() {
        fs::remove_dir_all(&base).with_context(|| format!("remove {}", base.display()))?;
    }
    let packages = BUILDS.iter().map(|(directory, zone)| build(&base.join(directory), zone));
    let packages = packages.collect::<Result<Vec<_>>>()?;
    let [one, other] = [&packages[0], &packages[1]];
    if fs::read(one)? != fs::read(other)? {
        let unpacked = [unpack(one)?, unpack(other)?];
        let files = different_files(&unpacked[0], &unpacked[1])?;
        bail!("{} and {} differ in: {}", one.display(), other.display(), files.join(", "));
    }
    println!("{}: {} bytes, the same from both directories", one.display(), fs::metadata(one)?.len());
    Ok(())
}

/// Builds the package from a copy of the last commit.
fn build(directory: &Path, zone: &str) -> Result<PathBuf> {
    let clone = ["clone", "--quiet", "."];
    run(Command::new("git").args(clone).arg(directory))?;
    // A target directory of the caller's would be the same for both.
    let mut package = Command::new("setup/package");
    package.arg("deb").current_dir(directory).env("TZ", zone).env_remove("CARGO_TARGET_DIR");
    let printed = run(&mut package)?;
    let path = printed.lines().last().context("setup/package deb printed no path")?;
    Ok(directory.join(path))
}

/// Runs a command to its end; what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The files and the control data of a package, beside it.
fn unpack(package: &Path) -> Result<PathBuf> {
    let directory = package.with_extension("unpacked");
    run(Command::new("dpkg-deb").arg("--raw-extract").args([package, &directory]))?;
    Ok(directory)
}

/// Files that only one of two directories has, or that have other bytes there.
fn different_files(one: &Path, other: &Path) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for directory in [one, other] {
        for path in crate::tree::files_under(directory)? {
            names.insert(path.strip_prefix(directory).context("a file below its directory")?.to_owned());
        }
    }
    let differs = |name: &PathBuf| fs::read(one.join(name)).ok() != fs::read(other.join(name)).ok();
    let different: Vec<String> = names.into_iter().filter(differs).map(|name| name.display().to_string()).collect();
    Ok(if different.is_empty() { vec!["times or owners".to_owned()] } else { different })
}

#[cfg(test)]
mod tests {
    use super::different_files;
    use std::fs;

    #[test]
    fn files_that_differ_are_named() {
        let directory = std::env::temp_dir().join(format!("bprec-reproducible-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| directory.join(name));
        for (side, text) in [(&one, "1"), (&other, "2")] {
            fs::create_dir_all(side.join("usr")).unwrap();
            fs::write(side.join("usr/same"), "same").unwrap();
            fs::write(side.join("usr/differs"), text).unwrap();
        }
        assert_eq!(different_files(&one, &one).unwrap(), ["times or owners"]);
        fs::write(other.join("more"), "").unwrap();
        assert_eq!(different_files(&one, &other).unwrap(), ["more", "usr/differs"]);
        fs::remove_dir_all(directory).unwrap();
    }
}
