//! What weir uses that not every kernel has, looked for by existence in the kernel's own type
//! information, never by version: distributions carry features back.

use std::sync::LazyLock;

use libbpf_rs::btf::types::{Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType};
use serde::Serialize;

/// Something that the kernel lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// Its name in the kernel.
    pub feature: &'static str,
    /// What weir cannot do, or does worse, without it.
    pub cost: &'static str,
}

/// Looks for what the running kernel lacks. Takes some tens of milliseconds, and no privilege.
pub fn lacks() -> Vec<Lack> {
    kernel_types().map_or(vec![NO_TYPES], |btf| {
        let lacking = looked_for(&btf).into_iter().filter(|(there, ..)| !there);
        lacking.map(|(_, feature, cost)| Lack { feature, cost }).collect()
    })
}

/// The running kernel's own. libbpf maps them, but where there are none it would look for a file of another kernel's.
fn kernel_types() -> Option<Btf<'static>> {
    let are_there = std::fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false);
    are_there.then(|| Btf::from_vmlinux().ok()).flatten()
}

/// Without type information it is not known what else is lacking.
const NO_TYPES: Lack = Lack {
    feature: "BTF (/sys/kernel/btf/vmlinux)",
    cost: "weir cannot run: its programs find the kernel's structures by it",
};

/// Whether each is there, and what is lacking if not: [`Lack`].
fn looked_for(btf: &Btf<'_>) -> [(bool, &'static str, &'static str); 5] {
    let has_function = |name: &str| btf.type_by_name::<Func<'_>>(name).is_some();
    [
        (
            // A kfunc (Linux 6.2): a BPF program reads kernel structures in place.
            has_function("bpf_rdonly_cast"),
            "bpf_rdonly_cast",
            "the gate copies what it reads of a socket (bpf_probe_read_kernel), which makes each \
             packet dearer",
        ),
        (
            // Linux 6.10.
            tracepoint_shows(btf, "udp_fail_queue_rcv_skb", "sk_buff"),
            "udp_fail_queue_rcv_skb with the skb",
            "what a packet is charged is learned less exactly, so more packets are dropped late, \
             after they have been processed",
        ),
        (
            // tc programs attached by a link, Linux 6.6.
            has_function("tcx_link_attach"),
            "tcx",
            "`--attach tc` uses a clsact filter, which outlives a killed weir until its guardian \
             or `weir reset` removes it",
        ),
        (
            // Linux 6.8.
            has_function("netdev_nl_napi_get_dumpit"),
            "netdev netlink family with NAPI",
            "NAPI threads are found by name, and left alone where another network namespace \
             has an interface of that name",
        ),
        (
            bounds_reservations(btf),
            "bpf_ringbuf.pending_pos",
            "only root's programs get lazy sockets: a ring's reader could overwrite the kernel's \
             memory (CVE-2024-41009)",
        ),
    ]
}

/// Whether a BPF ring's reader cannot make the kernel write beyond the ring. Since 6.10 Linux
/// bounds what is reserved on it by a position that the reader cannot write.
pub fn rings_are_safe() -> bool {
    kernel_types().is_some_and(|btf| bounds_reservations(&btf))
}

fn bounds_reservations(btf: &Btf<'_>) -> bool {
    let ring = btf.type_by_name::<Struct<'_>>("bpf_ringbuf");
    let is_it = |name: &std::ffi::OsStr| name == "pending_pos";
    ring.is_some_and(|ring| ring.iter().any(|member| member.name.is_some_and(is_it)))
}

/// Whether a program can make the SYN cookies that the kernel takes for its own (`bpf_tcp_raw_gen_syncookie_ipv4()`, Linux
/// 6.0).
pub fn makes_cookies() -> bool {
    static MAKES: LazyLock<bool> = LazyLock::new(|| {
        let helper = libbpf_rs::libbpf_sys::BPF_FUNC_tcp_raw_gen_syncookie_ipv4;
        libbpf_rs::ProgramType::Xdp.is_helper_supported(helper).unwrap_or(false)
    });
    *MAKES
}

/// Whether a gate that is loaded now can ask conntrack for connections (`bpf_xdp_ct_lookup()`). Where that is a module
/// which comes later, the gates from before go on without.
pub fn asks_conntrack() -> bool {
    const LOOKUP: &str = "bpf_xdp_ct_lookup";
    static BUILT_IN: LazyLock<bool> = LazyLock::new(|| {
        kernel_types().is_some_and(|btf| btf.type_by_name::<Func<'_>>(LOOKUP).is_some())
    });
    let names_it = |types: Vec<u8>| types.windows(LOOKUP.len()).any(|it| it == LOOKUP.as_bytes());
    *BUILT_IN || std::fs::read("/sys/kernel/btf/nf_conntrack").is_ok_and(names_it)
}

/// Whether a tracepoint shows a pointer to such a structure. Its type is a pointer to a function,
/// `typedef void (*btf_trace_NAME)(void *, ...)`, whose parameters have types but no names.
pub(crate) fn tracepoint_shows(btf: &Btf<'_>, name: &str, structure: &str) -> bool {
    let typedef = btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"));
    let pointer = typedef.and_then(|typedef| Ptr::try_from(typedef.referenced_type()).ok());
    let function = pointer.and_then(|pointer| FuncProto::try_from(pointer.referenced_type()).ok());
    function.is_some_and(|function| function.iter().any(|each| points_to(btf, each.ty, structure)))
}

fn points_to(btf: &Btf<'_>, ty: libbpf_rs::btf::TypeId, name: &str) -> bool {
    let pointer = btf.type_by_id::<Ptr<'_>>(ty);
    pointer.is_some_and(|pointer| pointer.referenced_type().name().is_some_and(|each| each == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This machine's kernel has everything, so that is what has to be found.
    #[test]
    fn what_is_there_is_found_and_what_is_not_is_told() {
        let Some(btf) = kernel_types() else { panic!("no BTF") };
        assert!(tracepoint_shows(&btf, "udp_fail_queue_rcv_skb", "sock"));
        assert!(!tracepoint_shows(&btf, "udp_fail_queue_rcv_skb", "task_struct"));
        assert!(!tracepoint_shows(&btf, "weir", "sk_buff"));
        let names: Vec<&str> = lacks().iter().map(|lack| lack.feature).collect();
        for there in ["tcx", "bpf_rdonly_cast", "bpf_ringbuf.pending_pos"] {
            assert!(!names.contains(&there), "{names:?}");
        }
    }
}
