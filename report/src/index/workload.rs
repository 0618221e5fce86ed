//! Workloads: the container, pod and runtime, or the systemd unit, that a cgroup's path names; pods with their names in Kubernetes, if recorded.
//!
//! Known paths are those of Docker, containerd, CRI-O and Podman with the cgroupfs and the systemd driver, the kubelet's QoS classes, LXC,
//! systemd-nspawn and machined, Amazon ECS and Garden, also nested. Any other path is its own name.

use crate::model::Workload;
use bprec_format::bprec::state::PodContainer;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Workloads of a recording's cgroups. Cgroups of one container share a workload.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    list: Vec<Workload>,
    by_cgroup: FxHashMap<u64, u32>,
}

impl Workloads {
    /// Finds the workloads of cgroups by their paths, with the names of pods.
    pub(crate) fn new(cgroups: &BTreeMap<u64, String>, pods: &BTreeSet<PodContainer>) -> Workloads {
        let names = PodNames::new(pods);
        let mut numbers: BTreeMap<Workload, u32> = BTreeMap::new();
        let mut workloads = Workloads::default();
        for (id, path) in cgroups {
            let workload = names.put_into(of_path(path));
            let number = *numbers.entry(workload.clone()).or_insert_with(|| {
                workloads.list.push(workload);
                workloads.list.len() as u32 - 1
            });
            workloads.by_cgroup.insert(*id, number);
        }
        workloads
    }

    /// Returns the number of a cgroup's workload.
    pub(crate) fn of_cgroup(&self, id: u64) -> Option<u32> {
        self.by_cgroup.get(&id).copied()
    }

    /// Returns the number of a workload.
    pub(crate) fn number(&self, workload: &Workload) -> Option<u32> {
        self.list.iter().zip(0..).find(|(known, _)| *known == workload).map(|(_, number)| number)
    }

    /// Returns a workload by its number.
    pub(crate) fn get(&self, number: u32) -> Option<&Workload> {
        self.list.get(number as usize)
    }
}

/// Names of pods and of their containers.
struct PodNames<'p> {
    by_container: FxHashMap<&'p str, &'p PodContainer>,
    by_pod: FxHashMap<&'p str, &'p PodContainer>,
}

impl PodNames<'_> {
    fn new(pods: &BTreeSet<PodContainer>) -> PodNames<'_> {
        PodNames {
            by_container: pods.iter().map(|container| (container.id.as_str(), container)).collect(),
            by_pod: pods.iter().map(|container| (container.pod_uid.as_str(), container)).collect(),
        }
    }

    /// Names a workload by its pod and container. The list of containers comes from their logs, so it lacks the container that only holds the pod's
    /// namespaces. That container is named by its pod and its short id.
    fn put_into(&self, mut workload: Workload) -> Workload {
        let container = workload.id.as_deref().and_then(|id| self.by_container.get(id));
        let pod = workload.pod.as_deref().and_then(|pod| self.by_pod.get(pod));
        let Some(names) = container.or(pod) else { return workload };
        let pod_name = format!("{}/{}", names.namespace, names.pod);
        workload.name = match (container, &workload.id) {
            (Some(container), _) => format!("{pod_name}/{}", container.container),
            (None, Some(id)) => format!("{pod_name}/{}", short(id)),
            (None, None) => pod_name.clone(),
        };
        workload.pod_name = Some(pod_name);
        workload.container_name = container.map(|container| container.container.clone());
        workload
    }
}

/// Prefixes of cgroup names before the container's id, with the runtime.
const PREFIXES: [(&str, &str); 8] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    // The process that monitors a container runs outside of it, in a cgroup with the container's id.
    ("crio-conmon-", "conmon"),
    ("libpod-conmon-", "conmon"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
    ("containerd-", "containerd"),
];

/// Names of cgroups with children named by a container's id, and the runtime.
const PARENTS: [(&str, &str); 5] = [
    ("docker", "docker"),
    ("buildkit", "buildkit"),
    ("libpod_parent", "podman"),
    ("garden", "garden"),
    ("k8s.io", "containerd"),
];

/// Names of cgroups with children named by a container's name, and the runtime.
const NAMED_PARENTS: [(&str, &str); 2] = [("lxc", "lxc"), ("lxc.payload", "lxc")];

/// Suffixes of systemd units that processes run in; slices only hold other units.
const UNITS: [&str; 5] = [".service", ".scope", ".mount", ".socket", ".swap"];

/// Number of digits of a container's id that are shown: as many as runtimes show.
const SHORT_ID: usize = 12;

#[derive(Default)]
struct CgroupWalk {
    pod: Option<String>,
    container: Option<(String, String)>,
    /// Containers around the innermost one, outermost first.
    inside: Vec<String>,
    unit: Option<String>,
    slice: Option<String>,
    user: Option<u32>,
}

/// Returns the workload of a cgroup's path.
pub(super) fn of_path(path: &str) -> Workload {
    let mut walk = CgroupWalk::default();
    let mut parents = ["", ""];
    for component in path.split('/').filter(|component| !component.is_empty()) {
        match component.split(':').collect::<Vec<_>>()[..] {
            // The systemd driver takes paths in the form `slice:prefix:id`. If runc uses the cgroupfs driver, but gets such a path, it makes one
            // cgroup with this text as its name.
            [slice, prefix, id] if slice.is_empty() || slice.ends_with(".slice") => {
                walk.component(slice, ["", ""]);
                walk.component(&format!("{prefix}-{id}"), ["", ""]);
            }
            _ => walk.component(component, parents),
        }
        parents = [parents[1], component];
    }
    walk.finish(path)
}

impl CgroupWalk {
    fn component(&mut self, name: &str, parents: [&str; 2]) {
        if let Some(pod) = pod_of(name) {
            self.pod = Some(pod);
        } else if let Some((runtime, id)) = container_of(name, parents) {
            if let Some((runtime, id)) = self.container.replace((runtime.to_owned(), id)) {
                self.inside.push(format!("{runtime}:{}", short(&id)));
            }
            // Units further inside belong to the systemd that runs in the container, so the units found outside of it are forgotten.
            (self.unit, self.slice, self.user) = (None, None, None);
        } else if UNITS.iter().any(|suffix| name.ends_with(suffix)) {
            self.unit = Some(unescaped(name));
        } else if let Some(slice) = name.strip_suffix(".slice") {
            self.user = slice.strip_prefix("user-").and_then(|user| user.parse().ok()).or(self.user);
            self.slice = Some(unescaped(name));
        }
    }

    fn finish(self, path: &str) -> Workload {
        let CgroupWalk { pod, container, inside, unit, slice, user } = self;
        if let Some((runtime, id)) = container {
            let of_pod = pod.as_ref().map(|pod| format!(" pod:{pod}")).unwrap_or_default();
            let name = format!("{runtime}:{}{of_pod}", short(&id));
            return Workload { name, runtime: Some(runtime), id: Some(id), pod, inside, ..Workload::default() };
        }
        if let Some(pod) = pod {
            return Workload { name: format!("pod:{pod}"), pod: Some(pod), ..Workload::default() };
        }
        match unit.or(slice) {
            Some(unit) => {
                let of_user = user.map(|user| format!(" user:{user}")).unwrap_or_default();
                Workload { name: format!("{unit}{of_user}"), unit: Some(unit), user, ..Workload::default() }
            }
            None => Workload { name: path.to_owned(), ..Workload::default() },
        }
    }
}

/// Returns the id of a pod by its cgroup's name: the uid (Kubernetes) or the id (Podman).
fn pod_of(name: &str) -> Option<String> {
    let slice = name.strip_suffix(".slice");
    if let Some((parent, id)) = slice.and_then(|slice| slice.split_once("-libpod_pod_")) {
        return (["machine", "user"].contains(&parent) && is_id(id)).then(|| short(id).to_owned());
    }
    let uid = match slice {
        Some(slice) if slice.contains("kubepods") => slice.rsplit_once("-pod")?.1,
        Some(_) => return None,
        None => name.strip_prefix("pod").filter(|uid| uid.len() >= 32)?,
    };
    // Slices have `_` in place of each `-` of the uid: systemd cannot have a `-` in the last part of a slice's name. Static pods have a hash instead
    // of a uid.
    let is_uid = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || b"-_".contains(&byte));
    is_uid.then(|| uid.replace('_', "-"))
}

/// Returns the runtime and id of a cgroup's container.
fn container_of<'n>(name: &'n str, [grandparent, parent]: [&str; 2]) -> Option<(&'static str, String)> {
    let stem: &'n str = name.strip_suffix(".scope").unwrap_or(name);
    if let Some((runtime, id)) =
        PREFIXES.iter().find_map(|(prefix, runtime)| Some((*runtime, stem.strip_prefix(prefix)?)))
    {
        return is_id(id).then(|| (runtime, id.to_owned()));
    }
    if let Some(machine) = name.strip_prefix("systemd-nspawn@").and_then(|name| name.strip_suffix(".service")) {
        return Some(("nspawn", unescaped(machine)));
    }
    if let Some(machine) = stem.strip_prefix("machine-").filter(|_| parent == "machine.slice" && stem != name) {
        return Some(("machine", unescaped(machine)));
    }
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return Some(("lxc", name.to_owned()));
    }
    let of = |parents: &[(&str, &'static str)]| parents.iter().find(|(name, _)| *name == parent).map(|(_, it)| *it);
    if let Some(runtime) = of(&NAMED_PARENTS) {
        return Some((runtime, name.to_owned()));
    }
    if grandparent == "ecs" {
        return Some(("ecs", name.to_owned()));
    }
    let is_build = parent == "buildkit" && name.len() >= 20 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_garden = parent == "garden" && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_whole_id = name.len() == 64 && is_id(name);
    (is_build || is_garden || is_whole_id).then(|| (of(&PARENTS).unwrap_or("container"), name.to_owned()))
}

/// Returns true if the text may be a container's id: hexadecimal, and too long for a word.
fn is_id(text: &str) -> bool {
    (SHORT_ID..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Shortens an id for display; a name stays whole.
fn short(id: &str) -> &str {
    if is_id(id) { &id[..SHORT_ID] } else { id }
}

/// Decodes systemd's escapes in a unit's name: `\x2d` is a `-`.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digits = rest.strip_prefix(br"\x").and_then(|digits| digits.get(..2));
        let escaped = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match escaped {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
