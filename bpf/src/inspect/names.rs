//! Names of interfaces, cgroups, tracepoints, maps and perf events by number. Each source is read once, at first use.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use bprec_format::Secret;
use bprec_format::bpf::names::LinkType;
use bprec_format::bprec::state::AttachTarget;
use bprec_format::{event_type, kernel_event_name};
use bprec_host::Cgroups;

use crate::inspect::hooks;
use crate::inspect::maps::Map;
use crate::inspect::net::{self, Interface};
use crate::inspect::other_networks::OtherNetworks;
use crate::sys::HookOf;

/// Names for one scan of the machine. A later scan needs a new value, as names change.
#[derive(Debug, Default)]
pub struct Names {
    interfaces: OnceCell<Vec<Interface>>,
    other_networks: OnceCell<OtherNetworks>,
    cgroups: OnceCell<Cgroups>,
    cgroup_paths: OnceCell<HashMap<u64, PathBuf>>,
    tracepoints: OnceCell<HashMap<String, Option<String>>>,
    maps: RefCell<HashMap<u32, AttachTarget>>,
}

impl Names {
    /// Creates a value that has read no source yet.
    pub fn new() -> Names {
        Names::default()
    }

    /// Interfaces of this network namespace; empty if they cannot be listed.
    pub(crate) fn interfaces(&self) -> &[Interface] {
        self.interfaces.get_or_init(|| net::interfaces().unwrap_or_default())
    }

    /// Attachments in other network namespaces.
    pub(crate) fn other_networks(&self) -> &OtherNetworks {
        self.other_networks.get_or_init(OtherNetworks::look)
    }

    /// Network namespaces that could not be read, each with the reason.
    pub(crate) fn problems(&self) -> &[String] {
        self.other_networks.get().map(|networks| networks.problems.as_slice()).unwrap_or_default()
    }

    pub(crate) fn cgroups(&self) -> &Cgroups {
        self.cgroups.get_or_init(Cgroups::read)
    }

    /// Name of a link's interface, with the network namespace if that is not the caller's. The link shows only the interface's index, and each
    /// namespace has its own indexes. The interface must therefore also have the program `prog_id`.
    pub(crate) fn interface(&self, index: u32, link_type: LinkType, attach_type: u32, prog_id: u32) -> AttachTarget {
        let ours = self.interfaces().iter().find(|interface| interface.index == index);
        let is_there = |interface: &&Interface| {
            if link_type == LinkType::XDP {
                return interface.xdp.contains(&prog_id);
            }
            hooks::programs(HookOf::Interface(index), attach_type).contains(&prog_id)
        };
        match ours.filter(is_there) {
            Some(interface) => AttachTarget::default().words(&interface.name),
            None => {
                let found = self.other_networks().interface(index, link_type, attach_type, prog_id);
                found
                    .unwrap_or_else(|| AttachTarget::default().words(format!("interface {index} of another namespace")))
            }
        }
    }

    /// Path of a cgroup, or `cgroup ID` if no cgroup has this id.
    pub(crate) fn cgroup(&self, id: u64) -> AttachTarget {
        let all = || self.cgroups().iter().map(|(id, path)| (id, path.to_owned())).collect();
        match self.cgroup_paths.get_or_init(all).get(&id) {
            Some(path) => AttachTarget::default().name(Secret::Cgroup, path.as_os_str().as_encoded_bytes()),
            None => AttachTarget::default().words(format!("cgroup {id}")),
        }
    }

    /// `system:name` of a tracepoint; the name alone if several systems have it.
    pub(crate) fn tracepoint(&self, name: &str) -> String {
        let systems = self.tracepoints.get_or_init(read_tracepoints);
        match systems.get(name) {
            Some(Some(system)) => format!("{system}:{name}"),
            _ => name.to_owned(),
        }
    }

    /// `map ID NAME`, or `map ID` without a name.
    pub(crate) fn map(&self, id: u32) -> AttachTarget {
        let mut maps = self.maps.borrow_mut();
        let target = maps.entry(id).or_insert_with(|| match Map::take(id) {
            Ok(map) if !map.about().name.is_empty() => {
                AttachTarget::default().words(format!("map {id} ")).name(Secret::Map, &map.about().name)
            }
            _ => AttachTarget::default().words(format!("map {id}")),
        });
        target.clone()
    }
}

/// System of each tracepoint name; `None` if several systems use the name.
fn read_tracepoints() -> HashMap<String, Option<String>> {
    let mut systems: HashMap<String, Option<String>> = HashMap::new();
    let mounted = ["/sys/kernel/tracing/available_events", "/sys/kernel/debug/tracing/available_events"];
    let text = mounted.into_iter().find_map(|path| fs::read_to_string(path).ok()).or_else(|| {
        let tracefs = bprec_host::private_mount(c"tracefs").ok()?;
        fs::read_to_string(format!("/proc/self/fd/{}/available_events", tracefs.as_raw_fd())).ok()
    });
    let text = text.unwrap_or_default();
    for line in text.lines() {
        let Some((system, name)) = line.split_once(':') else { continue };
        systems.entry(name.to_owned()).and_modify(|known| *known = None).or_insert_with(|| Some(system.to_owned()));
    }
    systems
}

/// perf's name of an event: `cpu-clock`, `breakpoint`, `r3c`, `msr/config=0x1/`. For a type without a name: `type 30 config 0x3c`.
pub(crate) fn perf_event(kind: u32, config: u64) -> String {
    let named = match kind {
        event_type::BREAKPOINT => Some("breakpoint"),
        _ => kernel_event_name(kind, config),
    };
    match (named, kind) {
        (Some(name), _) => name.to_owned(),
        (None, event_type::RAW) => format!("r{config:x}"),
        (None, _) => match pmu(kind) {
            Some(pmu) => format!("{pmu}/config={config:#x}/"),
            // Inside the kernel, the clocks are PMUs 6 and 7, without a name in sysfs. Since Linux 6.6, links on clock events show these numbers.
            None if (kind, config) == (6, 0) => "cpu-clock".to_owned(),
            None if (kind, config) == (7, 1) => "task-clock".to_owned(),
            None => format!("type {kind} config {config:#x}"),
        },
    }
}

/// Name in sysfs of the PMU with this number.
fn pmu(kind: u32) -> Option<String> {
    fs::read_dir("/sys/bus/event_source/devices").ok()?.flatten().find_map(|device| {
        let number = fs::read_to_string(device.path().join("type")).ok()?;
        (number.trim().parse() == Ok(kind)).then(|| device.file_name().to_string_lossy().into_owned())
    })
}
