//! Packages of other releases and architectures, Debian's, by this machine's apt but in a root of its own: nothing is installed,
//! and the system's own lists and state stay untouched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Unavailable;

/// One suite, or a few, for one architecture.
pub(crate) struct Suite {
    name: String,
    config: PathBuf,
    root: PathBuf,
}

impl Suite {
    /// Fetches the lists of `suites` into a root below `cache`. Of what several of them have, apt takes backports only where a
    /// package is asked for as `name/suite`.
    pub(crate) fn open(cache: &Path, suites: &[&str], architecture: &str) -> Result<Self> {
        let name = suites.join("+");
        let root = cache.join("apt").join(format!("{name}-{architecture}"));
        for directory in ["etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "archives/partial"] {
            fs::create_dir_all(root.join(directory)).with_context(|| format!("create {}", root.display()))?;
        }
        let sources = suites.iter().map(|suite| source(suite)).collect::<Result<String>>()?;
        fs::write(root.join("etc/sources.list"), sources)?;
        fs::write(root.join("status"), "")?;
        let at = root.display();
        let config = root.join("apt.conf");
        // Downloads stay with the user who asked: apt's own user may not be able to enter the cache.
        let text = format!(
            "Dir \"{at}\";\nDir::Etc \"{at}/etc\";\nDir::State \"{at}/state\";\nDir::State::status \"{at}/status\";\n\
             Dir::Cache \"{at}\";\nDir::Cache::archives \"{at}/archives\";\nAPT::Architecture \"{architecture}\";\n\
             APT::Architectures {{ \"{architecture}\"; }};\nAPT::Sandbox::User \"\";\nAPT::Install-Recommends \"false\";\n\
             Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n"
        );
        fs::write(&config, text)?;
        let suite = Self { name: format!("{name} {architecture}"), config, root };
        suite.apt("apt-get", &["--quiet=2", "--error-on=any", "update"], &suite.root)?;
        Ok(suite)
    }

    /// The kernel image behind the meta package for virtual machines: the packages to unpack, whose names change with every update. Newer releases
    /// split it into the image proper and its modules, with meta packages of their own.
    pub(crate) fn kernel(&self, architecture: &str) -> Result<Vec<String>> {
        let wanted = ["linux-image-", "linux-binary-", "linux-modules-"];
        let meta = format!("linux-image-cloud-{architecture}");
        let mut found = vec![meta.clone()];
        let mut next = 0;
        while let Some(package) = found.get(next) {
            let depends = self.apt("apt-cache", &["depends", "--important", package], &self.root)?;
            let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
            let parts = names.filter(|name| wanted.iter().any(|prefix| name.starts_with(prefix)));
            let new: Vec<String> = parts.filter(|name| !found.iter().any(|it| it == name)).map(str::to_owned).collect();
            found.extend(new);
            next += 1;
        }
        ensure!(found.len() > 1, "{meta} of {} depends on no image", self.name);
        Ok(found)
    }

    /// Fetches exactly `packages`, without what they depend on; gives the files.
    pub(crate) fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        let directory = self.root.join("archives/exact");
        fresh(&directory)?;
        let arguments: Vec<&str> =
            ["--quiet=2", "download"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.apt("apt-get", &arguments, &directory)?;
        debs(&directory)
    }

    /// Fetches `packages` with everything they depend on; gives the files.
    pub(crate) fn download_with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let directory = self.root.join("archives");
        fresh(&directory)?;
        fs::create_dir_all(directory.join("partial"))?;
        let arguments = ["--quiet=2", "--download-only", "--yes", "install"];
        let arguments: Vec<&str> = arguments.into_iter().chain(packages.iter().copied()).collect();
        self.apt("apt-get", &arguments, &self.root)?;
        debs(&directory)
    }

    /// Lists and downloads are of no more use once the packages are unpacked.
    pub(crate) fn close(self) -> Result<()> {
        fs::remove_dir_all(&self.root).with_context(|| format!("remove {}", self.root.display()))
    }

    fn apt(&self, program: &str, arguments: &[&str], directory: &Path) -> Result<String> {
        let output = Command::new(program)
            .args(arguments)
            .env("APT_CONFIG", &self.config)
            .env("LC_ALL", "C")
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()
            .map_err(|why| Unavailable(format!("{program}: {why}")))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let why = stderr.lines().find(|line| line.starts_with("E: ")).unwrap_or(stderr.trim()).to_owned();
            return Err(Unavailable(format!("{}: {program} {}: {why}", self.name, arguments.join(" "))).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The line of apt's for a suite.
fn source(suite: &str) -> Result<String> {
    let archive = if suite.ends_with("-security") { "debian-security" } else { "debian" };
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    Ok(format!("deb [signed-by={keyring}] {}/{archive} {suite} main\n", mirror()?))
}

/// The archive that this machine's packages are from.
fn mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(SITE)"])
        .env("LC_ALL", "C")
        .output()
        .map_err(|why| Unavailable(format!("apt-get: {why}; guests are made of Debian's packages")))?;
    let sites = String::from_utf8_lossy(&output.stdout).into_owned();
    let site = sites.lines().find_map(|site| site.trim_end_matches('/').strip_suffix("/debian"));
    Ok(site.ok_or_else(|| Unavailable("apt knows no Debian archive here".to_owned()))?.to_owned())
}

/// Unpacks `deb` over `directory` without the paths that `excluded` match; no script of the package runs.
pub(crate) fn unpack(deb: &Path, directory: &Path, excluded: &[&str]) -> Result<()> {
    let mut contents = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| Unavailable(format!("dpkg-deb: {why}")))?;
    let stream = contents.stdout.take().context("dpkg-deb has no output")?;
    let status = Command::new("tar")
        // Packages of releases before the merge of / and /usr come out where the links lead.
        .args(["--extract", "--file=-", "--keep-directory-symlink", "--no-same-owner"])
        .args(excluded.iter().map(|pattern| format!("--exclude={pattern}")))
        .arg("--directory")
        .arg(directory)
        .stdin(stream)
        .status()
        .context("run tar")?;
    ensure!(contents.wait()?.success() && status.success(), "cannot unpack {}", deb.display());
    Ok(())
}

fn debs(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "nothing was downloaded into {}", directory.display());
    Ok(files)
}

/// Runs `make` in a directory beside `target` and renames it when it is whole.
pub(super) fn made(target: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let unfinished = target.with_extension("unfinished");
    fresh(&unfinished)?;
    make(&unfinished)?;
    fs::rename(&unfinished, target).with_context(|| format!("rename to {}", target.display()))
}

/// Makes `directory` exist and be empty.
pub(crate) fn fresh(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("empty {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))
}
