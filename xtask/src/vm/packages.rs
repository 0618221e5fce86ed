//! Debian packages of other releases and architectures, fetched by this machine's apt with separate directories: nothing is installed,
//! and the lists and state of the system's apt do not change.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Unavailable, cache};

/// A suite for one architecture.
pub(crate) struct Suite {
    name: String,
    config: PathBuf,
    root: PathBuf,
}

impl Suite {
    /// Fetches the package lists of the suite `name` into a directory of the cache.
    pub(crate) fn open(name: &str, architecture: &str) -> Result<Self> {
        let root = cache()?.join("apt").join(format!("{name}-{architecture}"));
        for directory in ["etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "archives/partial"] {
            fs::create_dir_all(root.join(directory)).with_context(|| format!("create {}", root.display()))?;
        }
        fs::write(root.join("etc/sources.list"), source(name)?)?;
        fs::write(root.join("status"), "")?;
        let at = root.display();
        let config = root.join("apt.conf");
        // apt downloads as the current user, because apt's sandbox user may have no access to the cache.
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

    /// Returns the package of the kernel image; in newer releases, also the package of its modules. Their names change with every update, so they are
    /// found from the meta package for virtual machines, through its dependencies. The meta packages are in the result, too.
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
        ensure!(found.len() > 1, "{meta} of {} depends on no kernel image", self.name);
        Ok(found)
    }

    /// Fetches `packages` without their dependencies; returns the files.
    pub(crate) fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        let directory = self.root.join("archives/exact");
        fresh(&directory)?;
        let arguments: Vec<&str> =
            ["--quiet=2", "download"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.apt("apt-get", &arguments, &directory)?;
        debs(&directory)
    }

    /// Fetches `packages` with all their dependencies; returns the files.
    pub(crate) fn download_with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let directory = self.root.join("archives");
        fresh(&directory)?;
        fs::create_dir_all(directory.join("partial"))?;
        let arguments = ["--quiet=2", "--download-only", "--yes", "install"];
        let arguments: Vec<&str> = arguments.into_iter().chain(packages.iter().copied()).collect();
        self.apt("apt-get", &arguments, &self.root)?;
        debs(&directory)
    }

    /// Removes lists and downloads after the packages are unpacked.
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

/// Returns the line for a suite in apt's list of sources.
fn source(suite: &str) -> Result<String> {
    let archive = if suite.ends_with("-security") { "debian-security" } else { "debian" };
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    Ok(format!("deb [signed-by={keyring}] {}/{archive} {suite} main\n", mirror()?))
}

/// Returns the archive from which this machine gets its packages.
fn mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(SITE)"])
        .env("LC_ALL", "C")
        .output()
        .map_err(|why| Unavailable(format!("apt-get: {why}; guests are made of Debian's packages")))?;
    let sites = String::from_utf8_lossy(&output.stdout).into_owned();
    let site = sites.lines().find_map(|site| site.trim_end_matches('/').strip_suffix("/debian"));
    Ok(site.ok_or_else(|| Unavailable("apt has no Debian archive".to_owned()))?.to_owned())
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
        // Files of packages from before the merge of / and /usr are unpacked to the targets of the links.
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

/// Returns the directory `name` of the cache. If it is missing, runs `make` in a directory beside it, which is renamed when it is complete.
pub(super) fn made(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock = File::create(cache.join("setup.lock"))?;
    lock.lock().context("wait for another set-up")?;
    let target = cache.join(name);
    if !target.exists() {
        let unfinished = target.with_extension("unfinished");
        fresh(&unfinished)?;
        make(&unfinished)?;
        fs::rename(&unfinished, &target).with_context(|| format!("rename to {}", target.display()))?;
    }
    Ok(target)
}

/// Creates `directory`, or empties it if it exists.
pub(crate) fn fresh(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("empty {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))
}
