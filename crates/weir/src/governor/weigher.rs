//! Finds out what those weigh who receive the packets of saturated CPUs, on a thread of its own: of a hundred thousand
//! sockets, which any user may open, that takes a second of CPU time, and the main loop has gates to vouch for.

use std::collections::BTreeSet;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_bpf::channels::Channel;
use weir_bpf::sync::lock;
use weir_bpf::sys::sched;
use weir_bpf::units::{IfIndex, Nice};
use weir_bpf::verdict::Kind;

use super::receivers::{self, Receivers};
use crate::error::{Error, Result};
use crate::joined::Waiting;
use crate::owners::{self, Owner, Owners};
use crate::ready;

/// How often it looks anew while somebody wants to know.
const AGAIN: Duration = Duration::from_secs(1);
/// After a look, at least this many times the CPU time that it took passes before another: at most 5 % of a CPU.
const REST_PER_LOOK: u32 = 19;
/// The weight of whoever only looks on. The applications that weir protects may share the CPU, and would otherwise miss
/// packets.
pub const LIGHT: Nice = Nice(10);

/// The thread, until this is dropped.
pub(super) struct Weigher {
    /// Why the last look failed, until it is told.
    trouble: Arc<Mutex<Option<Error>>>,
    _thread: Waiting,
}

impl Weigher {
    /// Who receives on these interfaces is found out from now on.
    pub(super) fn start(
        receivers: Arc<Receivers>,
        interfaces: Arc<Mutex<Vec<IfIndex>>>,
    ) -> Result<Self> {
        // At the start: that takes CPU time, which a saturated CPU has not to spare.
        let mut owners = Owners::open()?;
        let trouble = Arc::new(Mutex::new(None));
        let told = Arc::clone(&trouble);
        let work = move |ended: PipeReader| {
            // Where that is refused it weighs what the daemon does.
            let _ = sched::set_nice(rustix::thread::gettid(), LIGHT);
            while goes_on(&ended, Some(&receivers), AGAIN) {
                let begun = sched::own_cpu_time();
                let interfaces = lock(&interfaces).clone();
                let looked = look(&mut owners, &receivers, &interfaces, &ended);
                *lock(&told) = looked.err();
                let took = sched::own_cpu_time().saturating_sub(begun);
                if !goes_on(&ended, None, took * REST_PER_LOOK) {
                    return;
                }
            }
        };
        Ok(Self { trouble, _thread: Waiting::spawn("weir-weigh", work)? })
    }

    /// What has gone wrong since this was last asked.
    pub(super) fn trouble(&self) -> Option<Error> {
        lock(&self.trouble).take()
    }
}

/// Waits so long, or until it is called; whether it is to go on.
fn goes_on(ended: &PipeReader, receivers: Option<&Receivers>, time: Duration) -> bool {
    let fds = [ended.as_fd()].into_iter().chain(receivers.map(Receivers::called));
    // Whoever interrupts it has it look a little sooner.
    !ready::comes(fds, time)
}

/// Where the kernel does not tell who has a socket open, all weigh the same.
fn look(
    owners: &mut Owners,
    receivers: &Receivers,
    interfaces: &[IfIndex],
    ended: &PipeReader,
) -> Result<()> {
    let wanted = receivers.take_wanted();
    if wanted.is_empty() {
        return Ok(());
    }
    // The daemon's end does not wait for a look that takes long.
    let still = || goes_on(ended, None, Duration::ZERO);
    let ownership = owners.look_while(still)?;
    if !still() {
        return Ok(());
    }
    let requests = wanted.iter().filter(|channel| channel.kind == Kind::TcpRequest);
    let asked: BTreeSet<u16> = requests.filter_map(Channel::local_port).collect();
    if !asked.is_empty() {
        receivers.serve(asked, &owners.connected_ports()?);
    }
    let settings = receivers.settings();
    let weight = |channel: &Channel| {
        let receivers: Vec<Owner<'_>> =
            interfaces.iter().filter_map(|each| ownership.of(channel, *each)).collect();
        let processes: Vec<_> = receivers.iter().flat_map(Owner::processes).collect();
        settings.weight(channel, &processes).or_else(|| {
            let weight = receivers.iter().filter_map(Owner::weight).max()?;
            Some(f64::from(weight.0) / f64::from(owners::Weight::NORMAL.0))
        })
    };
    let received = wanted.iter().map(receivers::received);
    let known = received.filter_map(|channel| Some((channel, weight(&channel)?)));
    receivers.set(known.collect());
    Ok(())
}
