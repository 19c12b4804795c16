//! What receive softirqs take from processes, for the limit of softirq mode: `bpf/softirq.bpf.c`.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, Skel};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::error::{Error, Result};
use crate::object::{globals, load};
use crate::probe::{QueueProbe, share};
use crate::record::records;
use crate::skeleton::softirq::{SoftirqSkel, SoftirqSkelBuilder, types};
use crate::units::{CpuId, Nanos};

const TRACEPOINTS: &str = "the softirq tracepoints";

/// What receive softirqs of one CPU have used since they are watched, whichever interface they were for.
/// Times only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftirqTimes {
    /// The CPU.
    pub cpu: CpuId,
    /// Their time.
    pub used: Nanos,
    /// Of it, while a process wanted the CPU. Not what one spends by sending to this host.
    pub taken: Nanos,
}

/// Receive softirqs, watched on every CPU. While this lives, gates that share its probe can be limited by
/// them: [`Gate::limit_input`](crate::gate::Gate::limit_input).
pub struct Softirqs {
    skel: SoftirqSkel<'static>,
    times: MapHandle,
}

impl Softirqs {
    /// Loads and attaches the programs. In each `period` what may be taken begins anew.
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks one of the tracepoints.
    pub fn load(probe: &QueueProbe, period: Nanos) -> Result<Self> {
        let mut skel = load::<SoftirqSkelBuilder>(TRACEPOINTS, |open| {
            share!(open, probe);
            let btf = Btf::from_vmlinux()?;
            let progs = &mut open.progs;
            for (tracepoint, programs) in [
                ("irq_handler_entry", [&mut progs.weir_irq_in, &mut progs.weir_irq_out]),
                ("local_timer_entry", [&mut progs.weir_timer_in, &mut progs.weir_timer_out]),
                ("call_function_single_entry", [&mut progs.weir_call_in, &mut progs.weir_call_out]),
                ("ipi_entry", [&mut progs.weir_ipi_in, &mut progs.weir_ipi_out]),
            ] {
                let typedef = format!("btf_trace_{tracepoint}");
                let there = btf.type_by_name::<Typedef<'_>>(&typedef).is_some();
                programs.into_iter().for_each(|program| {
                    program.set_autoload(there);
                });
            }
            Ok(())
        })?;
        let times = MapHandle::try_from(&probe.maps().softirqs)
            .map_err(Error::bpf("share", TRACEPOINTS))?;
        forget(&times)?;
        let bss = globals(skel.maps.bss_data.as_deref_mut());
        bss.period_ns = period.0;
        skel.attach().map_err(Error::bpf("attach", TRACEPOINTS))?;
        Ok(Self { skel, times })
    }

    /// Goes by another period from the next poll on.
    pub fn set_period(&mut self, period: Nanos) {
        let bss = globals(self.skel.maps.bss_data.as_deref_mut());
        bss.period_ns = period.0;
    }

    /// What has been used until now, by CPU. Not one instant: softirqs run meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn read(&self) -> Result<Vec<SoftirqTimes>> {
        let records: Vec<types::weir_softirq> =
            records(&self.times, 0).map_err(Error::bpf("read", TRACEPOINTS))?;
        let times = |(cpu, softirq): (u32, types::weir_softirq)| {
            let (used, taken) = (Nanos(softirq.used_ns), Nanos(softirq.taken_ns));
            SoftirqTimes { cpu: CpuId(cpu), used, taken }
        };
        Ok((0..).zip(records).map(times).collect())
    }
}

/// An earlier load may have ended within a softirq.
fn forget(times: &MapHandle) -> Result<()> {
    let cpus =
        libbpf_rs::num_possible_cpus().map_err(Error::bpf("count the CPUs for", TRACEPOINTS))?;
    let zero = vec![0; size_of::<types::weir_softirq>()];
    let key = 0_u32.to_ne_bytes();
    times
        .update_percpu(&key, &vec![zero; cpus], MapFlags::ANY)
        .map_err(Error::bpf("clear", TRACEPOINTS))
}
