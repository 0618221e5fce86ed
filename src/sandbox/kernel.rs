//! What the kernel offers to confine a process with: Landlock (files, TCP, abstract sockets, signals), seccomp (system calls), capabilities.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
    path_beneath_rules,
};

/// The newest whose rights are given up; of older kernels those that they know.
const LANDLOCK: ABI = ABI::V6;

/// A process that gave up what no reader needs.
pub(super) struct Confined {
    /// Where files may be made yet.
    writable: Vec<PathBuf>,
    said: Vec<String>,
}

impl Confined {
    pub(super) fn enter(output: Option<&Path>) -> Confined {
        let mut writable = vec![std::env::temp_dir()];
        writable.extend(output.map(|output| match output.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        }));
        let handled = AccessFs::from_write(LANDLOCK) | AccessFs::Execute;
        let files = restrict(handled, AccessFs::from_write(LANDLOCK), &writable);
        let mut said = vec![match files {
            Ok(RulesetStatus::FullyEnforced) => "Landlock".to_owned(),
            Ok(RulesetStatus::PartiallyEnforced) => "Landlock (as far as this kernel has it)".to_owned(),
            Ok(RulesetStatus::NotEnforced) => "no Landlock in this kernel".to_owned(),
            Err(error) => format!("no Landlock ({error})"),
        }];
        said.push(match system_calls::deny_needless() {
            Ok(()) => "seccomp".to_owned(),
            Err(error) => format!("no seccomp ({error})"),
        });
        Confined { writable, said }
    }

    /// Returns what the kernel has granted, in words.
    pub(super) fn seal(self, needs_files: bool) -> String {
        let Confined { writable, mut said } = self;
        let stays = if needs_files { &writable[..] } else { &[] };
        // What could not be given up before was said then.
        drop(restrict(AccessFs::from_all(LANDLOCK), AccessFs::from_all(LANDLOCK) & !AccessFs::Execute, stays));
        if !needs_files {
            drop(system_calls::deny_opening());
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            said.push(match rustix::thread::set_capabilities(None, none) {
                Ok(()) => "no capabilities".to_owned(),
                Err(error) => format!("capabilities stay ({error})"),
            });
        }
        said.join(", ")
    }
}

/// Gives up `handled` but for what is `allowed` below some directories; TCP, and what other processes can be reached by.
fn restrict(
    handled: BitFlags<AccessFs>,
    allowed: BitFlags<AccessFs>,
    below: &[PathBuf],
) -> Result<RulesetStatus, landlock::RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(handled)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        // A directory that is not there needs no rule.
        .add_rules(path_beneath_rules(below, allowed))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod system_calls {
    use std::collections::BTreeMap;

    use anyhow::Result;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    /// What no reader does: other programs, other processes, sockets, namespaces, mounts, modules, keys, and interfaces of the kernel that
    /// are large.
    const NEEDLESS: [libc::c_long; 82] = [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_kcmp,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_listen,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_io_setup,
        libc::SYS_io_submit,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_fanotify_init,
        libc::SYS_fanotify_mark,
        libc::SYS_mknodat,
        libc::SYS_symlinkat,
        libc::SYS_fchmodat,
        libc::SYS_fchownat,
        libc::SYS_fchown,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_truncate,
        libc::SYS_memfd_create,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_adjtimex,
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setregid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setgroups,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_personality,
        libc::SYS_syslog,
    ];

    /// The older calls that do the same, which newer machines do not have.
    #[cfg(target_arch = "x86_64")]
    const NEEDLESS_OLD: [libc::c_long; 7] = [
        libc::SYS_symlink,
        libc::SYS_mknod,
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_iopl,
        libc::SYS_ioperm,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const NEEDLESS_OLD: [libc::c_long; 0] = [];

    #[cfg(target_arch = "x86_64")]
    const OPENING: [libc::c_long; 4] = [libc::SYS_openat, libc::SYS_openat2, libc::SYS_open, libc::SYS_creat];
    #[cfg(not(target_arch = "x86_64"))]
    const OPENING: [libc::c_long; 2] = [libc::SYS_openat, libc::SYS_openat2];

    pub(super) fn deny_needless() -> Result<()> {
        deny(&[&NEEDLESS[..], &NEEDLESS_OLD].concat())
    }

    pub(super) fn deny_opening() -> Result<()> {
        deny(&OPENING)
    }

    /// Has system calls fail with EPERM, for this thread and those that it starts.
    fn deny(calls: &[libc::c_long]) -> Result<()> {
        // On x86-64 the same calls have other numbers, too: those of programs with short pointers, which this is none of.
        const X32: Option<i64> = if cfg!(target_arch = "x86_64") { Some(1 << 30) } else { None };
        let others = X32.into_iter().flat_map(|x32| calls.iter().copied().chain(512..=547).map(move |call| call | x32));
        let denied: BTreeMap<i64, Vec<_>> =
            calls.iter().copied().chain(others).map(|call| (call, Vec::new())).collect();
        let action = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(denied, SeccompAction::Allow, action, std::env::consts::ARCH.try_into()?)?;
        let filter: BpfProgram = filter.try_into()?;
        Ok(apply_filter(&filter)?)
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod system_calls {
    use anyhow::{Result, bail};

    pub(super) fn deny_needless() -> Result<()> {
        bail!("not on this processor")
    }

    pub(super) fn deny_opening() -> Result<()> {
        deny_needless()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

    use super::*;
    use std::fs::{self, File};
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    /// Where the process that is confined may write, given to it by the test that starts it.
    const OUTPUT: &str = "BPREC_TEST_SANDBOX_OUTPUT";

    /// Tries what it should not be able to do, in a process of its own: nothing that was given up comes back.
    #[test]
    fn a_confined_process_can_do_nothing_else() {
        let name = "sandbox::kernel::tests::a_confined_process_can_do_nothing_else";
        let Some(output) = std::env::var_os(OUTPUT).map(PathBuf::from) else {
            let directory = tempfile::tempdir().unwrap();
            let (temporary, output) = (directory.path().join("tmp"), directory.path().join("output"));
            fs::create_dir(&temporary).unwrap();
            fs::create_dir(&output).unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name, "--nocapture"]).env(OUTPUT, &output).env("TMPDIR", &temporary);
            let child = child.output().unwrap();
            let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success() && said.contains("1 passed"), "{said}");
            said.lines().filter(|line| line.starts_with("SKIP")).for_each(|line| println!("{line}"));
            return;
        };
        let beside = output.with_file_name("beside");
        // All of it is possible before.
        fs::write(&beside, "").unwrap();
        assert!(Command::new("true").status().is_ok() && UdpSocket::bind("127.0.0.1:0").is_ok());

        let confined = Confined::enter(Some(&output.join("file")));
        let said = confined.said.join(", ");
        if said != "Landlock, seccomp" {
            println!("SKIP {name}: this kernel has not all of it: {said}");
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
            is_refused(&format!("create {when}"), File::create(output.with_file_name("new")).map(drop));
            is_refused(&format!("write {when}"), File::options().write(true).open(&beside).map(drop));
            is_refused(&format!("truncate {when}"), File::create(&beside).map(drop));
            is_refused(&format!("remove {when}"), fs::remove_file(&beside));
            is_refused(&format!("rename {when}"), fs::rename(&beside, output.with_file_name("renamed")));
        };
        always("before");
        // What an output and a temporary file need.
        assert!(tempfile::tempfile().is_ok() && File::open(&beside).is_ok());
        fs::write(output.join("file.part"), "").unwrap();
        fs::rename(output.join("file.part"), output.join("file")).unwrap();

        let seal = || Confined { writable: confined.writable.clone(), said: confined.said.clone() };
        seal().seal(true);
        always("with files");
        assert!(tempfile::tempfile().is_ok());
        fs::write(output.join("file.part"), "").unwrap();
        is_refused("read elsewhere", File::open(std::env::current_exe().unwrap()).map(drop));

        assert_eq!(seal().seal(false), "Landlock, seccomp, no capabilities");
        always("without files");
        is_refused("read", File::open(output.join("file")).map(drop));
        is_refused("write the output", File::create(output.join("file")).map(drop));
        is_refused("a temporary file", tempfile::tempfile().map(drop));
        // Threads are confined, too, and can be started.
        std::thread::scope(|scope| scope.spawn(|| always("in a thread")).join()).unwrap();
    }
}
