//! Programs on interfaces of other network namespaces, such as those of containers.
//!
//! A separate thread enters one namespace after the other and queries it. The caller waits for a limited time, then reports the namespaces that were
//! not read.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bprec_format::Secret;
use bprec_format::bpf::names::{AttachType, LinkType};
use bprec_format::bprec::state::{AttachTarget, Attachment};
use bprec_host::{Answer, NetworkName, NetworkNamespace, NetworkNamespaces};

use crate::error::Result;
use crate::inspect::hooks;
use crate::inspect::net::{self, Interface};

/// Limit on the namespaces that are entered.
const NAMESPACES_MAX: usize = 512;
/// Limit on the time for all namespaces together.
const PATIENCE: Duration = Duration::from_millis(1000);

/// Attachments in other network namespaces.
#[derive(Debug, Default)]
pub(crate) struct OtherNetworks {
    networks: Vec<Network>,
    /// Objects that could not be read, each with the reason.
    pub(crate) problems: Vec<String>,
}

/// Result for one namespace.
#[derive(Debug)]
struct Network {
    name: NetworkName,
    interfaces: Vec<Interface>,
    tc: Vec<Attachment>,
    /// Attachments on tcx and netkit hooks.
    hooks: Vec<Attachment>,
    dissectors: Vec<Attachment>,
}

/// Reads these namespaces on a separate thread. Returns the networks, and a problem for each namespace that could not be read.
fn visit(namespaces: NetworkNamespaces, patience: Duration) -> (Vec<Network>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let mut left = namespaces.others.len();
    if namespaces.not_opened > 0 {
        problems.push(format!(
            "attach points in {} network namespaces are unknown: bprec reads at most {NAMESPACES_MAX} \
             namespaces, and only those of processes that it may inspect",
            namespaces.not_opened
        ));
    }
    if left == 0 {
        return (found, problems);
    }
    let deadline = Instant::now() + patience;
    let (send, looked) = mpsc::channel();
    let enter_and_look = move |namespace: &NetworkNamespace| {
        namespace.enter().map_err(|error| {
            format!("attach points in other network namespaces are unknown: setns: {error}; needs CAP_SYS_ADMIN")
        })?;
        Network::of(namespace).map_err(|error| format!("{}: {error}", namespace.name()))
    };
    let look_into_all = move || {
        for namespace in namespaces.others {
            // The receiver is dropped when the time limit has passed.
            if send.send(enter_and_look(&namespace)).is_err() {
                return;
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("bprec-networks".to_owned()).spawn(look_into_all) {
        problems.push(format!(
            "attach points in {left} network namespaces are unknown: bprec could not start the thread that \
             reads them: {}",
            Answer(&error)
        ));
        return (found, problems);
    }
    while left > 0 {
        match looked.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(network)) => found.push(network),
            Ok(Err(problem)) => {
                // If the kernel refuses to enter one namespace, it refuses all of them, for the same reason. The reason is reported once.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
            Err(_) => {
                problems.push(format!(
                    "attach points in {left} network namespaces are unknown: bprec did not finish reading the \
                     namespaces within {} ms",
                    patience.as_millis()
                ));
                break;
            }
        }
        left -= 1;
    }
    (found, problems)
}

impl OtherNetworks {
    /// Reads the other namespaces, up to `NAMESPACES_MAX` namespaces and `PATIENCE`.
    pub(crate) fn look() -> OtherNetworks {
        let (networks, problems) = visit(NetworkNamespaces::find(NAMESPACES_MAX), PATIENCE);
        OtherNetworks { networks, problems }
    }

    /// Programs on XDP hooks.
    pub(crate) fn xdp_attachments(&self) -> Vec<Attachment> {
        let of = |network: &Network| network.labelled(net::xdp_attachments(&network.interfaces));
        self.networks.iter().flat_map(of).collect()
    }

    /// Programs in tc filters.
    pub(crate) fn tc_attachments(&self) -> Vec<Attachment> {
        self.networks.iter().flat_map(|network| network.labelled(network.tc.clone())).collect()
    }

    /// Programs on tcx and netkit hooks.
    pub(crate) fn hook_attachments(&self) -> Vec<Attachment> {
        self.networks.iter().flat_map(|network| network.labelled(network.hooks.clone())).collect()
    }

    /// Flow dissectors.
    pub(crate) fn dissectors(&self) -> Vec<Attachment> {
        self.networks.iter().flat_map(|network| network.dissectors.clone()).collect()
    }

    /// Name and namespace of a link's interface. The link shows only the interface's index, and each namespace has its own indexes. The interface
    /// must therefore also have the program.
    pub(crate) fn interface(
        &self,
        index: u32,
        link_type: LinkType,
        attach_type: u32,
        prog_id: u32,
    ) -> Option<AttachTarget> {
        let kind = AttachType(attach_type).to_string();
        self.networks.iter().find_map(|network| {
            let interface = network.interfaces.iter().find(|interface| interface.index == index)?;
            let is_there = match link_type {
                LinkType::XDP => interface.xdp.contains(&prog_id),
                _ => network.hooks.iter().any(|it| {
                    (it.prog_id, &it.kind[..], it.target.text()) == (prog_id, &kind[..], interface.name.as_bytes())
                }),
            };
            is_there.then(|| in_network(AttachTarget::default().words(&interface.name), &network.name))
        })
    }
}

impl Network {
    fn of(namespace: &NetworkNamespace) -> Result<Network> {
        let interfaces = net::interfaces()?;
        let tc = net::tc_attachments(&interfaces)?;
        let (hooks, dissectors) = (hooks::interface_attachments(&interfaces), hooks::dissectors());
        Ok(Network { name: namespace.name().clone(), interfaces, tc, hooks, dissectors })
    }

    fn labelled(&self, attachments: Vec<Attachment>) -> Vec<Attachment> {
        let mut attachments = attachments;
        for attachment in &mut attachments {
            attachment.target = in_network(std::mem::take(&mut attachment.target), &self.name);
        }
        attachments
    }
}

/// Appends a network namespace by its number: `net:[4026531840]`.
pub(crate) fn network(target: AttachTarget, inode: u64) -> AttachTarget {
    target.words("net:[").name(Secret::NamespaceNumber, inode.to_string()).words("]")
}

/// Appends a network namespace: ` in netns customer`, ` in net:[4026531840] of process 7 (nginx)`.
fn in_network(target: AttachTarget, name: &NetworkName) -> AttachTarget {
    match name {
        NetworkName::Named(name) => target.words(" in netns ").name(Secret::NetworkNamespace, name),
        NetworkName::OfProcess { inode, pid, comm } => {
            let target = network(target.words(" in "), *inode).words(format!(" of process {pid} ("));
            target.name(Secret::Comm, comm).words(")")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_looked_into_is_said() {
        let not_opened = NetworkNamespaces { not_opened: 3, ..NetworkNamespaces::default() };
        let (_, problems) = visit(not_opened, PATIENCE);
        assert!(problems[0].starts_with("attach points in 3 network namespaces are unknown"), "{problems:?}");
        let namespaces = NetworkNamespaces::find(1);
        if namespaces.others.is_empty() {
            return;
        }
        let (_, problems) = visit(namespaces, Duration::ZERO);
        assert!(problems.iter().any(|it| it.contains("within 0 ms")), "{problems:?}");
    }
}
