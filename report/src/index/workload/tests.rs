//! Cgroup paths from machines, bug reports and tests of other tools, with the workloads that they name.

use super::*;

const ID: &str = "5c37f9c5ea1a7ee1ea4d3f0ae8c1c4bb1d6a1d2f6bbd62ba5c0d8e9ee2f0b1a7";
const OTHER: &str = "d4e8e05a546c86b6443f101966c618e47753ed01fa9929cae00d3b692f7a9f80";
const UID: &str = "214f3ba8-4b69-4bdb-a7d5-5ecc73f04ae9";
const SLICE_UID: &str = "214f3ba8_4b69_4bdb_a7d5_5ecc73f04ae9";
const STATIC_UID: &str = "0d0eb4f7a1d4e2ed5e3a7c2f9d5b8c61";

/// Replaces `{ID}`, `{OTHER}` and so on by the constants above.
fn path(pattern: &str) -> String {
    let names = [("{ID}", ID), ("{OTHER}", OTHER), ("{UID}", UID), ("{SLICE}", SLICE_UID), ("{STATIC}", STATIC_UID)];
    names.iter().fold(pattern.to_owned(), |path, (name, value)| path.replace(name, value))
}

/// Path of a cgroup, and the name of its workload.
const NAMES: &[(&str, &str)] = &[
    // Docker: the cgroupfs driver, the systemd driver, rootless, a container with systemd in it, a build.
    ("/docker/{ID}", "docker:5c37f9c5ea1a"),
    ("/system.slice/docker-{ID}.scope", "docker:5c37f9c5ea1a"),
    ("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", "docker:5c37f9c5ea1a"),
    ("/system.slice/docker-{ID}.scope/init.scope", "docker:5c37f9c5ea1a"),
    ("/system.slice/docker-{ID}.scope/system.slice/nginx.service", "docker:5c37f9c5ea1a"),
    ("/docker/buildkit/qj2vnz8k5yo2wyqcuwl1y0nfd", "buildkit:qj2vnz8k5yo2wyqcuwl1y0nfd"),
    ("/docker/buildkit", "/docker/buildkit"),
    ("/docker", "/docker"),
    // Containerd without Kubernetes.
    ("/system.slice/nerdctl-{ID}.scope", "containerd:5c37f9c5ea1a"),
    ("/k8s.io/{ID}", "containerd:5c37f9c5ea1a"),
    ("/default/{ID}", "container:5c37f9c5ea1a"),
    // Kubernetes, cgroupfs: guaranteed, burstable, best effort, a static pod.
    ("/kubepods/pod{UID}/{ID}", "container:5c37f9c5ea1a pod:{UID}"),
    ("/kubepods/burstable/pod{UID}/{ID}", "container:5c37f9c5ea1a pod:{UID}"),
    ("/kubepods/besteffort/pod{UID}/{ID}", "container:5c37f9c5ea1a pod:{UID}"),
    ("/kubepods/burstable/pod{STATIC}/{ID}", "container:5c37f9c5ea1a pod:{STATIC}"),
    ("/kubepods/burstable/pod{UID}/crio-{ID}", "cri-o:5c37f9c5ea1a pod:{UID}"),
    ("/kubepods/burstable/pod{UID}/crio-conmon-{ID}", "conmon:5c37f9c5ea1a pod:{UID}"),
    ("/kubepods/burstable/pod{UID}", "pod:{UID}"),
    ("/../../pod{UID}/{ID}", "container:5c37f9c5ea1a pod:{UID}"),
    // Kubernetes, systemd: Docker, containerd, and CRI-O, which has a further cgroup inside.
    ("/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope", "containerd:5c37f9c5ea1a pod:{UID}"),
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/docker-{ID}.scope",
        "docker:5c37f9c5ea1a pod:{UID}",
    ),
    (
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice/crio-{ID}.scope/container",
        "cri-o:5c37f9c5ea1a pod:{UID}",
    ),
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope",
        "containerd:5c37f9c5ea1a pod:{STATIC}",
    ),
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/crio-conmon-{ID}.scope",
        "conmon:5c37f9c5ea1a pod:{UID}",
    ),
    ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice", "pod:{UID}"),
    ("/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice"),
    // Containerd with the cgroupfs driver under a kubelet with the systemd driver.
    (
        "/system.slice/containerd.service/kubepods-besteffort-pod{SLICE}.slice:cri-containerd:{OTHER}",
        "containerd:d4e8e05a546c pod:{UID}",
    ),
    // Nodes that are containers themselves, with either driver.
    ("/docker/{ID}/kubelet/kubepods/burstable/pod{UID}/{OTHER}", "container:d4e8e05a546c pod:{UID}"),
    (
        "/system.slice/docker-{ID}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
         kubelet-kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{OTHER}.scope",
        "containerd:d4e8e05a546c pod:{UID}",
    ),
    // Docker in Docker.
    ("/docker/{ID}/docker/{OTHER}", "docker:d4e8e05a546c"),
    // Podman: root, rootless, cgroupfs, in a pod, and its monitor.
    ("/machine.slice/libpod-{ID}.scope", "podman:5c37f9c5ea1a"),
    ("/machine.slice/libpod-{ID}.scope/container", "podman:5c37f9c5ea1a"),
    ("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", "podman:5c37f9c5ea1a"),
    ("/libpod_parent/libpod-{ID}", "podman:5c37f9c5ea1a"),
    ("/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope", "podman:5c37f9c5ea1a pod:d4e8e05a546c"),
    (
        "/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_{OTHER}.slice/libpod-{ID}.scope",
        "podman:5c37f9c5ea1a pod:d4e8e05a546c",
    ),
    ("/machine.slice/libpod-conmon-{ID}.scope", "conmon:5c37f9c5ea1a"),
    // LXC and LXD, with a systemd inside and without.
    ("/lxc/web", "lxc:web"),
    ("/lxc/101/ns/system.slice/ssh.service", "lxc:101"),
    ("/lxc.payload.web", "lxc:web"),
    ("/lxc.payload/web/init.scope", "lxc:web"),
    ("/lxc.payload.gha-fleet_worker/system.slice/actions.runner.one-job.service", "lxc:gha-fleet_worker"),
    ("/lxc.monitor.web", "/lxc.monitor.web"),
    // Docker in LXC.
    ("/lxc.payload.web/system.slice/docker-{ID}.scope", "docker:5c37f9c5ea1a"),
    // Machines of systemd-machined: containers of systemd-nspawn, and virtual machines.
    ("/machine.slice/systemd-nspawn@build.service/payload/init.scope", "nspawn:build"),
    (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator", "machine:qemu-1-web"),
    // Amazon ECS and Garden.
    ("/ecs/0410e1a1fde64b1bb5b2bcb3d2a9ff0a/{ID}", "ecs:5c37f9c5ea1a"),
    (
        "/ecs/0410e1a1fde64b1bb5b2bcb3d2a9ff0a/0410e1a1fde64b1bb5b2bcb3d2a9ff0a-2532609239",
        "ecs:0410e1a1fde64b1bb5b2bcb3d2a9ff0a-2532609239",
    ),
    ("/ecstasks.slice/ecstasks-0410e1a1fde64b1bb5b2bcb3d2a9ff0a.slice/docker-{ID}.scope", "docker:5c37f9c5ea1a"),
    ("/garden/b29069cf-99ec-4d5b-7ffc-8a9c", "garden:b29069cf-99ec-4d5b-7ffc-8a9c"),
    // Units of systemd: services, cgroups inside a service, templates, scopes, slices, units of users.
    ("/init.scope", "init.scope"),
    ("/system.slice/ssh.service", "ssh.service"),
    ("/system.slice/systemd-udevd.service/udev", "systemd-udevd.service"),
    ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
    (r"/system.slice/system-serial\x2dgetty.slice/serial-getty@ttyS0.service", "serial-getty@ttyS0.service"),
    (
        r"/system.slice/system-systemd\x2dfsck.slice/systemd-fsck@dev-disk-by\x2duuid-AE93.service",
        "systemd-fsck@dev-disk-by-uuid-AE93.service",
    ),
    (r"/system.slice/caf\xc3\xa9.service", "café.service"),
    (r"/system.slice/odd\x2.service", r"odd\x2.service"),
    ("/system.slice/docker.service", "docker.service"),
    ("/system.slice/containerd.service", "containerd.service"),
    ("/system.slice/docker-cleanup.service", "docker-cleanup.service"),
    ("/system.slice", "system.slice"),
    ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope user:1000"),
    ("/user.slice/user-0.slice/user@0.service/init.scope", "init.scope user:0"),
    (
        r"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-org.gnome.Terminal-2048.scope",
        "app-gnome-org.gnome.Terminal-2048.scope user:1000",
    ),
    ("/user.slice/user-1000.slice", "user-1000.slice user:1000"),
    // Unknown paths stay as they are.
    ("/", "/"),
    ("", ""),
    ("/batch/job-17", "/batch/job-17"),
    ("/pod", "/pod"),
    ("/podium/1", "/podium/1"),
    ("/docker/web", "/docker/web"),
    ("/a/::b", "/a/::b"),
];

#[test]
fn paths_have_names() {
    for (pattern, expected) in NAMES {
        assert_eq!(of_path(&path(pattern)).name, path(expected), "{pattern}");
    }
}

#[test]
fn parts_of_names_are_told_apart() {
    let nested = of_path(&path("/docker/{ID}/kubelet/kubepods/burstable/pod{UID}/{OTHER}"));
    assert_eq!(nested.inside, ["docker:5c37f9c5ea1a"]);
    assert_eq!((nested.runtime.as_deref(), nested.id.as_deref()), (Some("container"), Some(OTHER)));
    assert_eq!(nested.pod.as_deref(), Some(UID));
    let unit = of_path("/user.slice/user-1000.slice/session-3.scope");
    assert_eq!((unit.unit.as_deref(), unit.user), (Some("session-3.scope"), Some(1000)));
    assert_eq!(of_path("/x"), Workload { name: "/x".into(), ..Workload::default() });
}

/// Tasks in cgroups inside a container's cgroup run in the container. Containers are different if only the start of their ids is equal.
#[test]
fn cgroups_of_a_container_are_one_workload() {
    let alike = format!("{}{}", &ID[..SHORT_ID], &OTHER[SHORT_ID..]);
    let paths = [
        path("/system.slice/docker-{ID}.scope"),
        path("/system.slice/docker-{ID}.scope/init.scope"),
        format!("/system.slice/docker-{alike}.scope"),
    ];
    let workloads = Workloads::new(&(10..).zip(paths).collect(), &BTreeSet::new());
    let numbers = [10, 11, 12, 13].map(|cgroup| workloads.of_cgroup(cgroup));
    assert_eq!(numbers, [Some(0), Some(0), Some(1), None]);
    assert_eq!(workloads.get(1).unwrap().id.as_deref(), Some(alike.as_str()));
}

/// Pods have their names in Kubernetes, also for the containers that the kubelet does not name.
#[test]
fn pods_have_their_names() {
    let pod = PodContainer {
        id: ID.to_owned(),
        pod_uid: UID.to_owned(),
        namespace: "shop".to_owned(),
        pod: "cart-7c5".to_owned(),
        container: "web".to_owned(),
    };
    let slice = format!("/kubepods.slice/kubepods-pod{}.slice", UID.replace('-', "_"));
    let paths = [
        format!("{slice}/cri-containerd-{ID}.scope"),
        format!("{slice}/cri-containerd-{OTHER}.scope"),
        slice,
        format!("/system.slice/docker-{OTHER}.scope"),
    ];
    let workloads = Workloads::new(&(10..).zip(paths).collect(), &BTreeSet::from([pod]));
    let named = |cgroup| {
        let workload = workloads.get(workloads.of_cgroup(cgroup).unwrap()).unwrap();
        (workload.name.clone(), workload.pod_name.as_deref(), workload.container_name.as_deref())
    };
    assert_eq!(named(10), ("shop/cart-7c5/web".to_owned(), Some("shop/cart-7c5"), Some("web")));
    assert_eq!(named(11), (format!("shop/cart-7c5/{}", &OTHER[..SHORT_ID]), Some("shop/cart-7c5"), None));
    assert_eq!(named(12), ("shop/cart-7c5".to_owned(), Some("shop/cart-7c5"), None));
    assert_eq!(named(13), (format!("docker:{}", &OTHER[..SHORT_ID]), None, None));
}
