//! A container of a Kubernetes pod, made of cgroups alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::support::{skip, wait_for};

/// UID of the pod.
pub(crate) const UID: &str = "0f3c1c52-6a3e-4b2a-9a57-0f2f2c5d9b11";
/// Names of the namespace, the pod and the container.
pub(crate) const NAMES: [&str; 3] = ["shop", "cart-7c5", "web"];

/// The cgroups of a container in a pod, nested; dropping removes them.
pub(crate) struct Pod {
    /// Id of the container.
    pub(crate) id: String,
    cgroups: Vec<PathBuf>,
}

impl Pod {
    /// Makes the cgroups; prints a skip message if the machine has no cgroup2.
    pub(crate) fn new(test: &str) -> Option<Pod> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let Some(unified) = mounts.find(|words| words[2] == "cgroup2") else {
            skip(test, "no cgroup2 is mounted");
            return None;
        };
        let mut pod = Pod { id: "5c37f9c5ea1a4d7f".repeat(4), cgroups: Vec::new() };
        let mut cgroup = Path::new(unified[1]).to_owned();
        for name in [format!("kubepods-{}", std::process::id()), format!("pod{UID}"), pod.id.clone()] {
            cgroup.push(name);
            fs::create_dir(&cgroup).unwrap();
            pod.cgroups.push(cgroup.clone());
        }
        Some(pod)
    }

    /// Moves a process into the container.
    pub(crate) fn take(&self, pid: u32) {
        fs::write(self.cgroups.last().unwrap().join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Records the machine for a second. The recorder gets a private `/var/log` with the container's log, as the kubelet would name it.
    pub(crate) fn record(&self, path: &Path) -> Child {
        let id = &self.id;
        let [namespace, pod, container] = NAMES;
        let log = format!("/var/log/pods/{namespace}_{pod}_{UID}/{container}/0.log");
        let link = format!("ln -s {log} /var/log/containers/{pod}_{namespace}_{container}-{id}.log; sleep 1");
        let with_own_log = "mount -t tmpfs none /var/log && mkdir /var/log/containers && exec \"$@\"";
        Command::new("unshare")
            .args(["--mount", "sh", "-c", with_own_log, "sh", env!("CARGO_BIN_EXE_bprec"), "record", "-q", "-a"])
            .args(["-F", "999", "-e", "cpu-clock", "-o"])
            .arg(path)
            .args(["--", "sh", "-c", &link])
            .spawn()
            .unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for cgroup in self.cgroups.iter().rev() {
            // The cgroup becomes empty some time after its last task has ended.
            wait_for("an empty cgroup", || fs::remove_dir(cgroup).is_ok().then_some(()));
        }
    }
}
