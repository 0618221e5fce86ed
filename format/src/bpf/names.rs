//! The kernel's numbers for kinds of programs, maps, links and attach points (`include/uapi/linux/bpf.h`), with the
//! names that bpftool prints.

/// Declares a newtype for each enum of the kernel. A number without a name is kept, and printed as a number.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal { $($value:ident = $number:literal, $text:literal;)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            $(
                #[doc = concat!("`", $prefix, stringify!($value), "`")]
                pub const $value: $name = $name($number);
            )*

            /// Name that bpftool prints; `None` for a number that this table lacks.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }

            /// Value with this name; `None` for a name that this table lacks.
            pub fn from_name(name: &str) -> Option<$name> {
                match name {
                    $($text => Some($name($number)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            /// Formats the name, or the number if it has no name.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => std::fmt::Display::fmt(&self.0, f),
                }
            }
        }
    )*};
}

numbers! {
    /// Type of a program; it decides the context that the kernel passes to the program.
    ProgType, "BPF_PROG_TYPE_" {
        UNSPEC = 0, "unspec";
        SOCKET_FILTER = 1, "socket_filter";
        KPROBE = 2, "kprobe";
        SCHED_CLS = 3, "sched_cls";
        SCHED_ACT = 4, "sched_act";
        TRACEPOINT = 5, "tracepoint";
        XDP = 6, "xdp";
        PERF_EVENT = 7, "perf_event";
        CGROUP_SKB = 8, "cgroup_skb";
        CGROUP_SOCK = 9, "cgroup_sock";
        LWT_IN = 10, "lwt_in";
        LWT_OUT = 11, "lwt_out";
        LWT_XMIT = 12, "lwt_xmit";
        SOCK_OPS = 13, "sock_ops";
        SK_SKB = 14, "sk_skb";
        CGROUP_DEVICE = 15, "cgroup_device";
        SK_MSG = 16, "sk_msg";
        RAW_TRACEPOINT = 17, "raw_tracepoint";
        CGROUP_SOCK_ADDR = 18, "cgroup_sock_addr";
        LWT_SEG6LOCAL = 19, "lwt_seg6local";
        LIRC_MODE2 = 20, "lirc_mode2";
        SK_REUSEPORT = 21, "sk_reuseport";
        FLOW_DISSECTOR = 22, "flow_dissector";
        CGROUP_SYSCTL = 23, "cgroup_sysctl";
        RAW_TRACEPOINT_WRITABLE = 24, "raw_tracepoint_writable";
        CGROUP_SOCKOPT = 25, "cgroup_sockopt";
        TRACING = 26, "tracing";
        STRUCT_OPS = 27, "struct_ops";
        EXT = 28, "ext";
        LSM = 29, "lsm";
        SK_LOOKUP = 30, "sk_lookup";
        SYSCALL = 31, "syscall";
        NETFILTER = 32, "netfilter";
    }

    /// Type of a map: its data structure.
    MapType, "BPF_MAP_TYPE_" {
        UNSPEC = 0, "unspec";
        HASH = 1, "hash";
        ARRAY = 2, "array";
        PROG_ARRAY = 3, "prog_array";
        PERF_EVENT_ARRAY = 4, "perf_event_array";
        PERCPU_HASH = 5, "percpu_hash";
        PERCPU_ARRAY = 6, "percpu_array";
        STACK_TRACE = 7, "stack_trace";
        CGROUP_ARRAY = 8, "cgroup_array";
        LRU_HASH = 9, "lru_hash";
        LRU_PERCPU_HASH = 10, "lru_percpu_hash";
        LPM_TRIE = 11, "lpm_trie";
        ARRAY_OF_MAPS = 12, "array_of_maps";
        HASH_OF_MAPS = 13, "hash_of_maps";
        DEVMAP = 14, "devmap";
        SOCKMAP = 15, "sockmap";
        CPUMAP = 16, "cpumap";
        XSKMAP = 17, "xskmap";
        SOCKHASH = 18, "sockhash";
        CGROUP_STORAGE = 19, "cgroup_storage";
        REUSEPORT_SOCKARRAY = 20, "reuseport_sockarray";
        PERCPU_CGROUP_STORAGE = 21, "percpu_cgroup_storage";
        QUEUE = 22, "queue";
        STACK = 23, "stack";
        SK_STORAGE = 24, "sk_storage";
        DEVMAP_HASH = 25, "devmap_hash";
        STRUCT_OPS = 26, "struct_ops";
        RINGBUF = 27, "ringbuf";
        INODE_STORAGE = 28, "inode_storage";
        TASK_STORAGE = 29, "task_storage";
        BLOOM_FILTER = 30, "bloom_filter";
        USER_RINGBUF = 31, "user_ringbuf";
        CGRP_STORAGE = 32, "cgrp_storage";
        ARENA = 33, "arena";
        INSN_ARRAY = 34, "insn_array";
        RHASH = 35, "rhash";
    }

    /// Type of a link, by the hook.
    LinkType, "BPF_LINK_TYPE_" {
        UNSPEC = 0, "unspec";
        RAW_TRACEPOINT = 1, "raw_tracepoint";
        TRACING = 2, "tracing";
        CGROUP = 3, "cgroup";
        ITER = 4, "iter";
        NETNS = 5, "netns";
        XDP = 6, "xdp";
        PERF_EVENT = 7, "perf_event";
        KPROBE_MULTI = 8, "kprobe_multi";
        STRUCT_OPS = 9, "struct_ops";
        NETFILTER = 10, "netfilter";
        TCX = 11, "tcx";
        UPROBE_MULTI = 12, "uprobe_multi";
        NETKIT = 13, "netkit";
        SOCKMAP = 14, "sockmap";
        TRACING_MULTI = 15, "tracing_multi";
    }

    /// Kind of attach point.
    AttachType, "BPF_" {
        CGROUP_INET_INGRESS = 0, "cgroup_inet_ingress";
        CGROUP_INET_EGRESS = 1, "cgroup_inet_egress";
        CGROUP_INET_SOCK_CREATE = 2, "cgroup_inet_sock_create";
        CGROUP_SOCK_OPS = 3, "cgroup_sock_ops";
        SK_SKB_STREAM_PARSER = 4, "sk_skb_stream_parser";
        SK_SKB_STREAM_VERDICT = 5, "sk_skb_stream_verdict";
        CGROUP_DEVICE = 6, "cgroup_device";
        SK_MSG_VERDICT = 7, "sk_msg_verdict";
        CGROUP_INET4_BIND = 8, "cgroup_inet4_bind";
        CGROUP_INET6_BIND = 9, "cgroup_inet6_bind";
        CGROUP_INET4_CONNECT = 10, "cgroup_inet4_connect";
        CGROUP_INET6_CONNECT = 11, "cgroup_inet6_connect";
        CGROUP_INET4_POST_BIND = 12, "cgroup_inet4_post_bind";
        CGROUP_INET6_POST_BIND = 13, "cgroup_inet6_post_bind";
        CGROUP_UDP4_SENDMSG = 14, "cgroup_udp4_sendmsg";
        CGROUP_UDP6_SENDMSG = 15, "cgroup_udp6_sendmsg";
        LIRC_MODE2 = 16, "lirc_mode2";
        FLOW_DISSECTOR = 17, "flow_dissector";
        CGROUP_SYSCTL = 18, "cgroup_sysctl";
        CGROUP_UDP4_RECVMSG = 19, "cgroup_udp4_recvmsg";
        CGROUP_UDP6_RECVMSG = 20, "cgroup_udp6_recvmsg";
        CGROUP_GETSOCKOPT = 21, "cgroup_getsockopt";
        CGROUP_SETSOCKOPT = 22, "cgroup_setsockopt";
        TRACE_RAW_TP = 23, "trace_raw_tp";
        TRACE_FENTRY = 24, "trace_fentry";
        TRACE_FEXIT = 25, "trace_fexit";
        MODIFY_RETURN = 26, "modify_return";
        LSM_MAC = 27, "lsm_mac";
        TRACE_ITER = 28, "trace_iter";
        CGROUP_INET4_GETPEERNAME = 29, "cgroup_inet4_getpeername";
        CGROUP_INET6_GETPEERNAME = 30, "cgroup_inet6_getpeername";
        CGROUP_INET4_GETSOCKNAME = 31, "cgroup_inet4_getsockname";
        CGROUP_INET6_GETSOCKNAME = 32, "cgroup_inet6_getsockname";
        XDP_DEVMAP = 33, "xdp_devmap";
        CGROUP_INET_SOCK_RELEASE = 34, "cgroup_inet_sock_release";
        XDP_CPUMAP = 35, "xdp_cpumap";
        SK_LOOKUP = 36, "sk_lookup";
        XDP = 37, "xdp";
        SK_SKB_VERDICT = 38, "sk_skb_verdict";
        SK_REUSEPORT_SELECT = 39, "sk_reuseport_select";
        SK_REUSEPORT_SELECT_OR_MIGRATE = 40, "sk_reuseport_select_or_migrate";
        PERF_EVENT = 41, "perf_event";
        TRACE_KPROBE_MULTI = 42, "trace_kprobe_multi";
        LSM_CGROUP = 43, "lsm_cgroup";
        STRUCT_OPS = 44, "struct_ops";
        NETFILTER = 45, "netfilter";
        TCX_INGRESS = 46, "tcx_ingress";
        TCX_EGRESS = 47, "tcx_egress";
        TRACE_UPROBE_MULTI = 48, "trace_uprobe_multi";
        CGROUP_UNIX_CONNECT = 49, "cgroup_unix_connect";
        CGROUP_UNIX_SENDMSG = 50, "cgroup_unix_sendmsg";
        CGROUP_UNIX_RECVMSG = 51, "cgroup_unix_recvmsg";
        CGROUP_UNIX_GETPEERNAME = 52, "cgroup_unix_getpeername";
        CGROUP_UNIX_GETSOCKNAME = 53, "cgroup_unix_getsockname";
        NETKIT_PRIMARY = 54, "netkit_primary";
        NETKIT_PEER = 55, "netkit_peer";
        TRACE_KPROBE_SESSION = 56, "trace_kprobe_session";
        TRACE_UPROBE_SESSION = 57, "trace_uprobe_session";
        TRACE_FSESSION = 58, "trace_fsession";
        TRACE_FENTRY_MULTI = 59, "trace_fentry_multi";
        TRACE_FEXIT_MULTI = 60, "trace_fexit_multi";
        TRACE_FSESSION_MULTI = 61, "trace_fsession_multi";
    }

}

/// Names of the `BPF_F_*` flags of a map, by bit, in lower case without the prefix.
const MAP_FLAGS: [&str; 20] = [
    "no_prealloc",
    "no_common_lru",
    "numa_node",
    "rdonly",
    "wronly",
    "stack_build_id",
    "zero_seed",
    "rdonly_prog",
    "wronly_prog",
    "clone",
    "mmapable",
    "preserve_elems",
    "inner_map",
    "link",
    "path_fd",
    "vtype_btf_obj_fd",
    "token_fd",
    "segv_on_fault",
    "no_user_conv",
    "rb_overwrite",
];

/// Names of a map's flags; a flag without a name is a hexadecimal number.
pub fn map_flags(flags: u32) -> impl Iterator<Item = String> {
    (0..32).filter(move |bit| flags >> bit & 1 != 0).map(|bit| match MAP_FLAGS.get(bit) {
        Some(name) => (*name).to_owned(),
        None => format!("{:#x}", 1u32 << bit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_have_names_and_unknown_ones_stay_numbers() {
        assert_eq!(ProgType(17).to_string(), "raw_tracepoint");
        assert_eq!(ProgType(4000).to_string(), "4000");
        assert_eq!(format!("{:>6}|{:<4}|", ProgType::XDP, MapType(77)), "   xdp|77  |");
        assert_eq!(LinkType::from_name("tcx"), Some(LinkType::TCX));
        assert_eq!(AttachType::from_name("nowhere"), None);
    }

    #[test]
    fn names_lead_back_to_their_numbers() {
        for number in 0..100 {
            for (back, there) in [
                (ProgType(number).name().and_then(ProgType::from_name).map(|t| t.0), ProgType(number).name()),
                (MapType(number).name().and_then(MapType::from_name).map(|t| t.0), MapType(number).name()),
                (LinkType(number).name().and_then(LinkType::from_name).map(|t| t.0), LinkType(number).name()),
                (AttachType(number).name().and_then(AttachType::from_name).map(|t| t.0), AttachType(number).name()),
            ] {
                assert_eq!(back, there.map(|_| number), "{there:?}");
            }
        }
    }
}
