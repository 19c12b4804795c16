//! What weir uses that not every kernel has, looked for by existence in the kernel's own type
//! information, never by version: distributions carry features back.

use std::sync::LazyLock;

use libbpf_rs::btf::types::{Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType};
use serde::Serialize;

/// What the running kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `/sys/kernel/btf/vmlinux`: without it nothing else can be told, and no program loads.
    pub btf: bool,
    /// The kfunc `bpf_rdonly_cast` (Linux 6.2): a BPF program reads kernel structures in place.
    pub rdonly_cast: bool,
    /// The tracepoint `udp_fail_queue_rcv_skb` shows the refused packet (Linux 6.10).
    pub refused_skb: bool,
    /// tc programs attached by a link (`tcx`, Linux 6.6).
    pub tcx: bool,
    /// XDP on frames of several buffers (Linux 5.18).
    pub xdp_frags: bool,
    /// The `netdev` netlink family tells NAPI threads (Linux 6.8).
    pub netdev_napi: bool,
    /// NAPI instances can be polled by threads (Linux 5.12).
    pub threaded_napi: bool,
}

/// Something that the kernel lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// Its name in the kernel.
    pub feature: &'static str,
    /// What weir cannot do, or does worse, without it.
    pub cost: &'static str,
}

impl Features {
    const NONE: Self = Self {
        btf: false,
        rdonly_cast: false,
        refused_skb: false,
        tcx: false,
        xdp_frags: false,
        netdev_napi: false,
        threaded_napi: false,
    };

    /// Looks at the running kernel. Takes some tens of milliseconds, and no privilege.
    pub fn probe() -> Self {
        let Ok(btf) = Btf::from_path("/sys/kernel/btf/vmlinux") else { return Self::NONE };
        let has_function = |name: &str| btf.type_by_name::<Func<'_>>(name).is_some();
        Self {
            btf: true,
            rdonly_cast: has_function("bpf_rdonly_cast"),
            refused_skb: tracepoint_shows(&btf, "udp_fail_queue_rcv_skb", "sk_buff"),
            tcx: has_function("tcx_link_attach"),
            xdp_frags: struct_has(&btf, "bpf_prog_aux", "xdp_has_frags"),
            netdev_napi: has_function("netdev_nl_napi_get_dumpit"),
            // Renamed in Linux 6.17.
            threaded_napi: has_function("netif_set_threaded") || has_function("dev_set_threaded"),
        }
    }

    /// What is not there.
    pub fn lacks(&self) -> Vec<Lack> {
        let all = [
            (
                self.btf,
                "BTF (/sys/kernel/btf/vmlinux)",
                "weir cannot run: its programs find the kernel's structures by it",
            ),
            (
                self.rdonly_cast,
                "bpf_rdonly_cast",
                "the gate copies what it reads of a socket (bpf_probe_read_kernel), which makes each \
                 packet dearer",
            ),
            (
                self.refused_skb,
                "udp_fail_queue_rcv_skb with the skb",
                "what a packet is charged is learned less exactly, so more packets are dropped late, \
                 after they have been processed",
            ),
            (
                self.tcx,
                "tcx",
                "`--attach tc` uses a clsact filter, which outlives a killed weir until its guardian \
                 or `weir reset` removes it",
            ),
            (
                self.xdp_frags,
                "XDP frags",
                "an interface whose MTU is larger than a page takes no native XDP",
            ),
            (
                self.netdev_napi,
                "netdev netlink family with NAPI",
                "NAPI threads are found by name, and left alone where another network namespace \
                 has an interface of that name",
            ),
            (
                self.threaded_napi,
                "threaded NAPI",
                "the gate works alone: network input keeps its precedence over processes",
            ),
        ];
        // Without type information it is not known what else is lacking.
        let all = if self.btf { &all[1..] } else { &all[..1] };
        let lacking = all.iter().filter(|(there, ..)| !there);
        lacking.map(|&(_, feature, cost)| Lack { feature, cost }).collect()
    }
}

/// Whether this process's gates can ask conntrack for connections (Linux 5.18). Where that is a module, it may be
/// loaded later, and they cannot.
pub fn asks_conntrack() -> bool {
    const LOOKUP: &str = "bpf_xdp_ct_lookup";
    static ASKS: LazyLock<bool> = LazyLock::new(|| {
        let built_in = Btf::from_path("/sys/kernel/btf/vmlinux")
            .is_ok_and(|btf| btf.type_by_name::<Func<'_>>(LOOKUP).is_some());
        let names_it =
            |types: Vec<u8>| types.windows(LOOKUP.len()).any(|it| it == LOOKUP.as_bytes());
        built_in || std::fs::read("/sys/kernel/btf/nf_conntrack").is_ok_and(names_it)
    });
    *ASKS
}

fn struct_has(btf: &Btf<'_>, name: &str, member: &str) -> bool {
    let Some(found) = btf.type_by_name::<Struct<'_>>(name) else { return false };
    found.iter().any(|each| each.name.is_some_and(|name| name == member))
}

/// Whether a tracepoint shows a pointer to such a structure. Its type is a pointer to a function,
/// `typedef void (*btf_trace_NAME)(void *, ...)`, whose parameters have types but no names.
fn tracepoint_shows(btf: &Btf<'_>, name: &str, structure: &str) -> bool {
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
        let Ok(btf) = Btf::from_path("/sys/kernel/btf/vmlinux") else { panic!("no BTF") };
        assert!(!struct_has(&btf, "bpf_prog_aux", "weir"));
        assert!(tracepoint_shows(&btf, "udp_fail_queue_rcv_skb", "sock"));
        assert!(!tracepoint_shows(&btf, "udp_fail_queue_rcv_skb", "task_struct"));
        assert!(!tracepoint_shows(&btf, "weir", "sk_buff"));
        let features = Features::probe();
        assert!(features.btf && features.threaded_napi && features.xdp_frags);
        for lack in features.lacks() {
            println!("this kernel lacks {}: {}", lack.feature, lack.cost);
        }
    }

    #[test]
    fn each_lack_has_a_cost_and_without_types_nothing_more_is_claimed() {
        assert_eq!(Features::NONE.lacks().len(), 1);
        let old = Features { btf: true, ..Features::NONE };
        assert_eq!(old.lacks().len(), 6);
        assert!(old.lacks().iter().all(|lack| !lack.cost.is_empty()));
    }
}
