//! What receive softirqs take from processes, for the limit of softirq mode: `bpf/softirq.bpf.c`.

use std::sync::Mutex;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use crate::error::{Error, Result};
use crate::object::{attach_all, globals, load};
use crate::probe::{QueueProbe, share};
use crate::record::records;
use crate::skeleton::softirq::{SoftirqSkel, SoftirqSkelBuilder, types};
use crate::sync::lock;
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

/// Receive softirqs of every CPU. While this lives and they are watched, gates that share its probe can be limited by
/// them: [`Gate::limit_input`](crate::gate::Gate::limit_input).
pub struct Softirqs {
    times: MapHandle,
    watch: Mutex<Watch>,
}

/// The programs, attached while they are wanted.
struct Watch {
    // Before the programs.
    links: Vec<Link>,
    skel: SoftirqSkel<'static>,
}

impl Softirqs {
    /// Loads the programs. Nothing is watched yet ([`Softirqs::watch`]).
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks one of the tracepoints.
    pub fn load(probe: &QueueProbe) -> Result<Self> {
        let skel = load::<SoftirqSkelBuilder>(TRACEPOINTS, |open| {
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
        Ok(Self { times, watch: Mutex::new(Watch { links: vec![], skel }) })
    }

    /// In each `period` what may be taken begins anew, from the next poll on.
    pub fn set_period(&self, period: Nanos) {
        let mut watch = lock(&self.watch);
        globals(watch.skel.maps.bss_data.as_deref_mut()).period_ns = period.0;
    }

    /// Watches them, from now on or no more: times begin anew, and nothing is limited meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses a tracepoint.
    pub fn watch(&self, wanted: bool) -> Result<()> {
        let mut watch = lock(&self.watch);
        if wanted != watch.links.is_empty() {
            return Ok(());
        }
        if wanted {
            // Others may have ended within a softirq.
            forget(&self.times)?;
            watch.links = watch.attach()?;
            return Ok(());
        }
        watch.links.clear();
        forget(&self.times)
    }

    /// What has been used since they are watched, by CPU. Not one instant: softirqs run meanwhile.
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

impl Watch {
    fn attach(&self) -> Result<Vec<Link>> {
        let progs = &self.skel.progs;
        // Those that say what is taken go first when they are detached: what they have said is then forgotten.
        let all = [
            &progs.weir_sirq_begin,
            &progs.weir_sirq_poll,
            &progs.weir_sirq_end,
            &progs.weir_sirq_raise,
            &progs.weir_irq_in,
            &progs.weir_irq_out,
            &progs.weir_timer_in,
            &progs.weir_timer_out,
            &progs.weir_call_in,
            &progs.weir_call_out,
            &progs.weir_ipi_in,
            &progs.weir_ipi_out,
        ];
        attach_all(TRACEPOINTS, all)
    }
}

/// The programs may have ended within a softirq.
fn forget(times: &MapHandle) -> Result<()> {
    let cpus =
        libbpf_rs::num_possible_cpus().map_err(Error::bpf("count the CPUs for", TRACEPOINTS))?;
    let zero = vec![0; size_of::<types::weir_softirq>()];
    let key = 0_u32.to_ne_bytes();
    times
        .update_percpu(&key, &vec![zero; cpus], MapFlags::ANY)
        .map_err(Error::bpf("clear", TRACEPOINTS))
}
