//! `packaging/install.sh` installs only files with checksums in `SHA256SUMS`, and leaves no other files behind. sha256sum makes the checksums.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Version of the release made for the tests.
const VERSION: &str = "9.8.7";

/// A folder with one release, and a directory to install to.
struct Release {
    directory: tempfile::TempDir,
    archive: String,
}

impl Release {
    /// Makes an archive like `setup/package archive`. In place of the program, it contains a script that prints `version`.
    fn new(version: &str) -> Release {
        let directory = tempfile::tempdir().unwrap();
        let machine = String::from_utf8(Command::new("uname").arg("-m").output().unwrap().stdout).unwrap();
        let name = format!("bprec-{VERSION}-{}", machine.trim());
        let release = Release { archive: format!("{name}.tar.gz"), directory };
        let packed = release.path("packed").join(&name);
        for file in ["bin/bprec", "lib/systemd/system/bprec-record.service", "share/man/man1/bprec.1.gz"] {
            fs::create_dir_all(packed.join(file).parent().unwrap()).unwrap();
        }
        fs::write(packed.join("bin/bprec"), format!("#!/bin/sh\necho bprec {version}\n")).unwrap();
        fs::set_permissions(packed.join("bin/bprec"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(packed.join("lib/systemd/system/bprec-record.service"), "ExecStart=/bin/bprec record -a\n").unwrap();
        fs::write(packed.join("share/man/man1/bprec.1.gz"), "page").unwrap();
        fs::create_dir_all(release.files()).unwrap();
        let pack = ["-C", "packed", "-czf"];
        let archive = release.files().join(&release.archive);
        release.run(Command::new("tar").args(pack).arg(archive).arg(&name).current_dir(release.directory.path()));
        release.sum();
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Directory with the files of the release.
    fn files(&self) -> PathBuf {
        self.path("releases").join(format!("v{VERSION}"))
    }

    /// Writes `SHA256SUMS` of the archive as it is now.
    fn sum(&self) -> String {
        let output = Command::new("sha256sum").arg(&self.archive).current_dir(self.files()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::write(self.files().join("SHA256SUMS"), &output.stdout).unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    }

    fn run(&self, command: &mut Command) {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn script(&self, url: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/install.sh");
        let mut command = Command::new("sh");
        command.arg(script).arg("--prefix").arg(self.prefix()).arg(VERSION);
        command.env("BPREC_URL", url).env("TMPDIR", self.path("temporary"));
        drop(fs::create_dir(self.path("temporary")));
        command
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("releases").display())
    }

    fn prefix(&self) -> PathBuf {
        self.path("installed")
    }

    /// Asserts that the script failed for this reason, and left no files in the target directory and in its working directory.
    fn refuses(&self, output: &Output, reason: &str) {
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(reason), "{reason}: {output:?}");
        assert!(!self.prefix().exists(), "{reason}");
        assert_eq!(fs::read_dir(self.path("temporary")).unwrap().count(), 0, "{reason}");
    }

    /// Asserts that the script installed everything.
    fn installs(&self, output: &Output) {
        assert!(output.status.success(), "{output:?}");
        let program = self.prefix().join("bin/bprec");
        assert_eq!(Command::new(&program).output().unwrap().stdout, format!("bprec {VERSION}\n").as_bytes());
        let unit = fs::read_to_string(self.prefix().join("lib/systemd/system/bprec-record.service")).unwrap();
        assert_eq!(unit, format!("ExecStart={} record -a\n", program.display()));
        assert_eq!(fs::read(self.prefix().join("share/man/man1/bprec.1.gz")).unwrap(), b"page");
        assert_eq!(fs::read_dir(self.path("temporary")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.prefix().join("bin")).unwrap().count(), 1);
    }
}

#[test]
fn an_archive_with_its_sum_is_installed() {
    let release = Release::new(VERSION);
    release.installs(&release.script(&release.url()).output().unwrap());
    // The user can also pass the expected checksum, from another source than the release.
    release.installs(&release.script(&release.url()).env("BPREC_SHA256", release.sum()).output().unwrap());
}

#[test]
fn an_archive_with_another_sum_is_refused() {
    let release = Release::new(VERSION);
    let archive = release.files().join(&release.archive);
    let whole = fs::read(&archive).unwrap();
    let elsewhere = "0".repeat(64);
    let output = release.script(&release.url()).env("BPREC_SHA256", &elsewhere).output().unwrap();
    release.refuses(&output, &elsewhere);
    // A bit of the archive differs, its end is missing, it is empty, or it does not exist.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for bytes in [&damaged[..], &whole[..whole.len() - 1], &[]] {
        fs::write(&archive, bytes).unwrap();
        release.refuses(&release.script(&release.url()).output().unwrap(), "has the SHA-256");
    }
    fs::remove_file(&archive).unwrap();
    release.refuses(&release.script(&release.url()).output().unwrap(), "cannot download");
}

#[test]
fn sums_without_the_archive_are_refused() {
    let release = Release::new(VERSION);
    let sum = release.sum();
    let sums = release.files().join("SHA256SUMS");
    let listed = format!("{sum}  {}\n", release.archive);
    for text in [String::new(), listed.replace(".tar.gz", ".tar.gz.old"), listed.repeat(2), listed[8..].to_owned()] {
        fs::write(&sums, &text).unwrap();
        release.refuses(&release.script(&release.url()).output().unwrap(), "has no sum of");
    }
}

#[test]
fn a_program_of_another_version_is_refused() {
    let release = Release::new("9.8.6");
    release.refuses(&release.script(&release.url()).output().unwrap(), "is bprec 9.8.6");
}

#[test]
fn a_script_that_arrived_in_part_does_nothing() {
    let release = Release::new(VERSION);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/install.sh");
    let text = fs::read_to_string(script).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for end in (0..lines.len()).step_by(7).chain([lines.len() - 1]) {
        let part = lines[..end].concat();
        let mut shell = Command::new("sh");
        let arguments = ["-c", &part, "install.sh", "--prefix"];
        shell.args(arguments).arg(release.prefix()).arg(VERSION).env("BPREC_URL", release.url());
        drop(shell.output().unwrap());
        assert!(!release.prefix().exists(), "{end} lines");
    }
}

/// Answers requests for files below `root`, one connection at a time, until the process ends.
fn serve(root: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(&stream).lines();
            let head: Vec<_> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let asked = head[0].split(' ').nth(1).unwrap().trim_start_matches('/');
            match fs::read(root.join(asked)) {
                Ok(bytes) => {
                    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len()).unwrap();
                    stream.write_all(&bytes).unwrap();
                }
                // Many servers send a page instead of an archive.
                Err(_) => stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n<html>").unwrap(),
            }
        }
    });
    url
}

/// Downloads with curl, and with wget if curl is missing.
#[test]
fn archives_are_downloaded() {
    let tools =
        ["awk", "cat", "cp", "find", "gzip", "mkdir", "mktemp", "mv", "rm", "sed", "sh", "sha256sum", "tar", "uname"];
    let find = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|it| it.join(name)).find(|it| it.exists())
    };
    for client in ["curl", "wget"] {
        let Some(client_path) = find(client) else {
            println!("SKIP archives_are_downloaded: no {client}");
            continue;
        };
        let release = Release::new(VERSION);
        let url = serve(release.path("releases"));
        let bin = release.path("tools");
        fs::create_dir(&bin).unwrap();
        for tool in tools {
            std::os::unix::fs::symlink(find(tool).unwrap(), bin.join(tool)).unwrap();
        }
        std::os::unix::fs::symlink(client_path, bin.join(client)).unwrap();
        let archive = release.files().join(&release.archive);
        fs::rename(&archive, release.path("aside")).unwrap();
        release.refuses(&release.script(&url).env("PATH", &bin).output().unwrap(), "cannot download");
        fs::rename(release.path("aside"), &archive).unwrap();
        release.installs(&release.script(&url).env("PATH", &bin).output().unwrap());
    }
}
