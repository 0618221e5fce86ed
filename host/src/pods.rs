//! Names of the containers of Kubernetes pods on this machine.
//!
//! The kubelet keeps a link to the log of each container: `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`, which leads to
//! `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/N.log`. Kubernetes allows no `_` in these names.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Directory of the links.
const LINKS: &str = "/var/log/containers";

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodContainer {
    /// Id of the container, as in the path of its cgroup.
    pub id: String,
    /// UID of the pod; empty if the link does not lead to a directory of the pod.
    pub pod_uid: String,
    /// Kubernetes namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container in the pod.
    pub container: String,
}

impl PodContainer {
    /// Reads the names of all containers that have a log; empty on a machine without a kubelet.
    pub fn all() -> Vec<PodContainer> {
        let Ok(entries) = fs::read_dir(LINKS) else { return Vec::new() };
        let links = entries.flatten().filter_map(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            PodContainer::of_link(entry.file_name().to_str()?, &target)
        });
        links.collect()
    }

    /// Time at which a container was last added or removed; `None` on a machine without a kubelet.
    pub fn changed_at() -> Option<SystemTime> {
        fs::metadata(LINKS).ok()?.modified().ok()
    }

    /// Reads the names in a link's name and in the path to which it leads.
    fn of_link(name: &str, target: &Path) -> Option<PodContainer> {
        let [pod, namespace, last] = name.strip_suffix(".log")?.split('_').collect::<Vec<_>>()[..] else { return None };
        let (container, id) = last.rsplit_once('-')?;
        let directory = target.parent().and_then(Path::parent).and_then(Path::file_name).and_then(|name| name.to_str());
        let of_pod = directory.and_then(|directory| directory.strip_prefix(&format!("{namespace}_{pod}_")));
        let [id, pod_uid, namespace, pod, container] =
            [id, of_pod.unwrap_or_default(), namespace, pod, container].map(str::to_owned);
        Some(PodContainer { id, pod_uid, namespace, pod, container })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn links_name_pod_and_container() {
        let id = "5c37f9c5ea1a4d7f0a1b".repeat(3);
        let uid = "0f3c1c52-6a3e-4b2a-9a57-0f2f2c5d9b11";
        let target = format!("/var/log/pods/shop_cart-7c5_{uid}/web-server/0.log");
        let read = PodContainer::of_link(&format!("cart-7c5_shop_web-server-{id}.log"), Path::new(&target)).unwrap();
        let names = [&read.id, &read.pod_uid, &read.namespace, &read.pod, &read.container].map(String::as_str);
        assert_eq!(names, [&id, uid, "shop", "cart-7c5", "web-server"]);
        // Docker keeps its logs in another directory.
        let target = Path::new("/var/lib/docker/containers/x/x-json.log");
        let read = PodContainer::of_link(&format!("cart-7c5_shop_web-server-{id}.log"), target).unwrap();
        assert_eq!((read.pod_uid.as_str(), read.pod.as_str()), ("", "cart-7c5"));
        for other in ["messages.log", "a_b_c.log", "cart_shop_web-1", "a_b_c_d-1.log"] {
            assert_eq!(PodContainer::of_link(other, Path::new("")), None, "{other}");
        }
    }
}
