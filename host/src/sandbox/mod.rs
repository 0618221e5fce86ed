//! Confinement of this process, for programs that read files of unknown origin: Landlock (files, TCP, abstract sockets,
//! signals), seccomp (system calls) and capabilities.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod calls;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod calls {
    pub(super) fn allow_only(_needs: super::Needs) -> Result<(), &'static str> {
        Err("not supported on this processor")
    }
}

/// Newest version of Landlock that bprec uses; older kernels enforce the rights that they know.
const LANDLOCK: ABI = ABI::V6;

/// System calls that a command needs in addition to the calls of every reader.
#[derive(Debug, Clone, Copy)]
struct Needs {
    /// Dropping more privileges later.
    confining: bool,
    /// Opening files by path, and creating temporary files.
    files: bool,
    /// Setting the terminal, and waiting for keys.
    screen: bool,
    /// Giving the output file its name.
    output: bool,
    /// Changing an existing file.
    in_place: bool,
    /// Creating directories and links.
    directories: bool,
}

/// Access that a confined process keeps in addition to reading files and writing temporary files.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeptAccess<'a> {
    /// Setting the terminal, and waiting for keys.
    pub screen: bool,
    /// New file to write. If the name is in use, the process renames the existing file first.
    pub output: Option<&'a Path>,
    /// Changing the existing file `output`.
    pub in_place: bool,
    /// Creating directories beside `output`, and links in and between them.
    pub directories: bool,
}

/// Proof that this process has dropped privileges, by the mechanisms that the kernel has. `seal` drops more.
#[derive(Debug)]
#[must_use]
pub struct Confined {
    needs: Needs,
    /// Directories in which files can be created.
    writable: Vec<PathBuf>,
    said: Vec<String>,
}

impl Confined {
    /// Drops privileges that `access` does not need, in this thread and in all threads that start later. The seccomp filter also applies to threads
    /// that already run. Mechanisms that the kernel lacks are skipped.
    pub fn enter(access: KeptAccess<'_>) -> Confined {
        let mut writable = vec![std::env::temp_dir()];
        writable.extend(access.output.map(|output| match output.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        }));
        let handled = AccessFs::from_write(LANDLOCK) | AccessFs::Execute;
        let files = restrict(handled, AccessFs::from_write(LANDLOCK), &writable, access.directories);
        let mut said = vec![match files {
            Ok(RulesetStatus::FullyEnforced) => "Landlock".to_owned(),
            Ok(RulesetStatus::PartiallyEnforced) => {
                "Landlock (this kernel supports only a part of its rules)".to_owned()
            }
            Ok(RulesetStatus::NotEnforced) => "no Landlock: this kernel does not support it".to_owned(),
            Err(error) => format!("no Landlock ({error})"),
        }];
        let needs = Needs {
            confining: true,
            files: true,
            screen: access.screen,
            output: access.output.is_some(),
            in_place: access.in_place,
            directories: access.directories,
        };
        said.push(match calls::allow_only(needs) {
            Ok(()) => "seccomp".to_owned(),
            Err(error) => format!("no seccomp ({error})"),
        });
        Confined { needs, writable, said }
    }

    /// Drops access to files; returns the active mechanisms as text. If `needs_files` is true, the temporary directory and the directory of the
    /// output stay accessible, for temporary files and for naming the output. If it is false, the calls that open files and all capabilities are
    /// dropped, too.
    pub fn seal(self, needs_files: bool) -> String {
        let Confined { needs, writable, mut said } = self;
        let stays = if needs_files { &writable[..] } else { &[] };
        // A failure is ignored: `enter` has already reported if this kernel lacks Landlock.
        drop(restrict(AccessFs::from_all(LANDLOCK), AccessFs::from_all(LANDLOCK) & !AccessFs::Execute, stays, false));
        if !needs_files {
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            said.push(match rustix::thread::set_capabilities(None, none) {
                Ok(()) => "no capabilities".to_owned(),
                Err(error) => format!("capabilities cannot be dropped ({error})"),
            });
        }
        // Last, because the filter refuses the calls that drop privileges.
        drop(calls::allow_only(Needs { confining: false, files: needs_files, ..needs }));
        said.join(", ")
    }
}

/// Drops the file rights `handled`; in the directories `below`, the rights `allowed` remain. Also drops TCP, abstract sockets and signals to other
/// processes. With `links`, drops nothing on kernels that have the first version of Landlock (Linux 5.13 to 5.18): that version always refuses links
/// between directories.
fn restrict(
    handled: BitFlags<AccessFs>,
    allowed: BitFlags<AccessFs>,
    below: &[PathBuf],
    links: bool,
) -> Result<RulesetStatus, landlock::RulesetError> {
    let level = if links { CompatLevel::SoftRequirement } else { CompatLevel::BestEffort };
    let ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        // A missing directory needs no rule.
        .add_rules(path_beneath_rules(below, allowed))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

    use super::*;
    use std::fs::{self, File, Permissions};
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    /// Variable with the directory in which the confined process may write.
    const OUTPUT: &str = "BPREC_TEST_SANDBOX_OUTPUT";
    /// Variable that is set if the confined process keeps creating files.
    const NEEDS_FILES: &str = "BPREC_TEST_SANDBOX_NEEDS_FILES";

    /// Runs a test again in a child process, because a confined process never regains its privileges.
    fn run_confined(name: &str) {
        for needs_files in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (temporary, output) = (directory.path().join("tmp"), directory.path().join("output"));
            fs::create_dir(&temporary).unwrap();
            fs::create_dir(&output).unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name, "--nocapture"]).env(OUTPUT, &output).env("TMPDIR", &temporary);
            child.envs(needs_files.then_some((NEEDS_FILES, "1")));
            let child = child.output().unwrap();
            let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success() && said.contains("1 passed"), "{said}");
            said.lines().filter(|line| line.starts_with("SKIP")).for_each(|line| println!("{line}"));
        }
    }

    #[test]
    fn a_confined_process_can_do_nothing_else() {
        let name = "sandbox::tests::a_confined_process_can_do_nothing_else";
        let Some(output) = std::env::var_os(OUTPUT).map(PathBuf::from) else { return run_confined(name) };
        let beside = output.with_file_name("beside");
        // Before the process is confined, all accesses work.
        fs::write(&beside, "").unwrap();
        assert!(Command::new("true").status().is_ok() && UdpSocket::bind("127.0.0.1:0").is_ok());

        let confined = Confined::enter(KeptAccess { output: Some(&output.join("file")), ..KeptAccess::default() });
        let said = confined.said.join(", ");
        if said != "Landlock, seccomp" {
            println!("SKIP {name}: this kernel lacks a part of the sandbox: {said}");
            return;
        }
        let is_refused = |what: &str, result: std::io::Result<()>| {
            let kind = result.err().map(|error| error.kind());
            assert_eq!(kind, Some(std::io::ErrorKind::PermissionDenied), "{what}");
        };
        let always = |when: &str| {
            is_refused(&format!("exec {when}"), Command::new("true").status().map(drop));
            is_refused(&format!("UDP {when}"), UdpSocket::bind("127.0.0.1:0").map(drop));
            is_refused(&format!("TCP {when}"), TcpListener::bind("127.0.0.1:0").map(drop));
            is_refused(&format!("a local socket {when}"), UnixListener::bind(output.join("socket")).map(drop));
            is_refused(&format!("a directory {when}"), fs::create_dir(output.join("directory")));
            is_refused(&format!("create {when}"), File::create_new(output.with_file_name("new")).map(drop));
            is_refused(&format!("write {when}"), File::options().write(true).open(&beside).map(drop));
            is_refused(&format!("truncate {when}"), File::create(&beside).map(drop));
            is_refused(&format!("remove {when}"), fs::remove_file(&beside));
            is_refused(&format!("rename {when}"), fs::rename(&beside, output.with_file_name("renamed")));
            is_refused(&format!("rights {when}"), fs::set_permissions(&beside, Permissions::from_mode(0o4755)));
        };
        let new_output = || {
            let is_new = File::create_new(output.join("file.part")).is_ok();
            is_new && fs::rename(output.join("file.part"), output.join("file")).is_ok()
        };
        always("before");
        // Accesses that an output and a temporary file need are still allowed.
        assert!(tempfile::tempfile().is_ok() && File::open(&beside).is_ok() && new_output());
        is_refused("write the output again", File::create(output.join("file")).map(drop));

        if std::env::var_os(NEEDS_FILES).is_some() {
            confined.seal(true);
            always("with files");
            assert!(tempfile::tempfile().is_ok() && new_output());
            is_refused("read elsewhere", File::open(std::env::current_exe().unwrap()).map(drop));
            return;
        }
        assert_eq!(confined.seal(false), "Landlock, seccomp, no capabilities");
        always("without files");
        is_refused("read", File::open(output.join("file")).map(drop));
        is_refused("look", fs::metadata(output.join("file")).map(drop));
        is_refused("write the output", File::create(output.join("file")).map(drop));
        is_refused("a temporary file", tempfile::tempfile().map(drop));
        // Threads are confined, too, and can be started.
        std::thread::scope(|scope| scope.spawn(|| always("in a thread")).join()).unwrap();
    }
}
