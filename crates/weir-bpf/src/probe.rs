//! The queue probe: tracepoint programs that teach the gates what queues look like.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, Object, OpenObject, num_possible_cpus};

use crate::accounts::ACCOUNTS;
use crate::error::{Error, Result};
use crate::features::tracepoint_shows;
use crate::object::{globals, load};
use crate::record::records;
use crate::samples::SAMPLES;
use crate::skeleton::queue::{QueueMaps, QueueSkel, QueueSkelBuilder, types};
use crate::units::CpuId;

const PROBE: &str = "the queue probe";

/// The tracepoint programs that teach the gates what queues look like. One serves many gates.
pub struct QueueProbe {
    skel: QueueSkel<'static>,
    hash_seed: u64,
}

/// What the kernel's tracepoint of a refused UDP packet is good for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusals {
    /// It shows the packet: Linux 6.10 and later.
    ShowPacket,
    /// It does not, and may be silent for IPv6, which costs an fexit program to make good.
    HidePacket { ipv6: bool },
}

impl QueueProbe {
    /// Loads and attaches the probe.
    ///
    /// Its tracepoints fire where the kernel drops a UDP packet at a full socket
    /// (`udp_fail_queue_rcv_skb`) and at the end of each NAPI poll (`napi_poll`), in the whole host.
    /// Before Linux 6.10 also where the kernel drops any packet (`kfree_skb`), because there the first
    /// does not show the packet, and, if the kernel lets it, at each UDP packet
    /// (`__udp_enqueue_schedule_skb()`), because there the first may be silent for IPv6.
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks one of the tracepoints.
    pub fn load() -> Result<Self> {
        // Random for each process: std seeds its hash maps from the kernel.
        let hash_seed = RandomState::new().build_hasher().finish();
        let btf = Btf::from_vmlinux().map_err(Error::bpf("read the kernel's types for", PROBE))?;
        if tracepoint_shows(&btf, "udp_fail_queue_rcv_skb", "sk_buff") {
            return Self::load_with(hash_seed, Refusals::ShowPacket);
        }
        // Some kernels refuse the trampolines that fexit programs need.
        Self::load_with(hash_seed, Refusals::HidePacket { ipv6: true })
            .or_else(|_| Self::load_with(hash_seed, Refusals::HidePacket { ipv6: false }))
    }

    fn load_with(hash_seed: u64, refusals: Refusals) -> Result<Self> {
        let shown = refusals == Refusals::ShowPacket;
        let ipv6 = refusals == Refusals::HidePacket { ipv6: true };
        let mut skel = load::<QueueSkelBuilder>(PROBE, |open| {
            globals(open.maps.rodata_data.as_deref_mut()).hash_seed = hash_seed;
            let cpus = num_possible_cpus()? as u32;
            open.maps.accounts.set_max_entries(cpus * ACCOUNTS)?;
            open.maps.samples.set_max_entries(cpus * SAMPLES)?;
            open.progs.weir_refused.set_autoload(shown);
            open.progs.weir_refused_by.set_autoload(!shown);
            open.progs.weir_freed.set_autoload(!shown);
            open.progs.weir_refused6.set_autoload(ipv6);
            Ok(())
        })?;
        skel.attach().map_err(Error::bpf("attach", PROBE))?;
        Ok(Self { skel, hash_seed })
    }

    /// How many NAPI polls have ended on a CPU since the probe was loaded.
    ///
    /// # Errors
    /// If the kernel refuses to say.
    pub fn polls(&self, cpu: CpuId) -> Result<u64> {
        let polls: Vec<types::weir_poll> =
            records(&self.skel.maps.napi_polls, 0).map_err(Error::bpf("read", PROBE))?;
        Ok(polls.get(cpu.0 as usize).map_or(0, |poll| poll.number))
    }

    /// The maps that gates share with the probe.
    pub(crate) fn maps(&self) -> &QueueMaps<'static> {
        &self.skel.maps
    }

    pub(crate) fn object(&self) -> &Object {
        self.skel.object()
    }

    /// What the places of sockets in the shared map are derived from.
    pub(crate) fn hash_seed(&self) -> u64 {
        self.hash_seed
    }
}

/// Has an object's maps be the probe's, where that has one of the name.
pub(crate) fn share_maps(open: &mut OpenObject, probe: &QueueProbe) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        if let Some(shared) = probe.object().maps().find(|shared| shared.name() == map.name()) {
            map.reuse_fd(shared.as_fd())?;
        }
    }
    Ok(())
}

/// Gives an object that is open the probe's maps in place of its own, and the seed of their hash.
macro_rules! share {
    ($open:expr, $probe:expr) => {{
        crate::object::globals($open.maps.rodata_data.as_deref_mut()).hash_seed =
            $probe.hash_seed();
        crate::probe::share_maps($open.open_object_mut(), $probe)?;
    }};
}
pub(crate) use share;
