//! What a trial watches beside the counters: NAPI polls, replies, packets on their way.

use weir_bpf::attach::Attached;
use weir_bpf::poll_cost::{PollClock, PollCost};
use weir_bpf::replies::Replies;
use weir_bpf::steps::{StepTrace, Steps};
use weir_bpf::sys::napi::NapiThread;

use crate::apps::udp::Turn;
use crate::error::Result;
use crate::host::topology::SUT_INTERFACE;
use crate::probe::Probe;
use crate::reading::{Counter, Reading};
use crate::scene::{ECHO_PORT, Watch};

pub(super) enum Watching {
    Nothing,
    Polls(PollClock),
    Replies((Attached, Replies)),
    Steps(Turn, StepTrace),
}

impl Watching {
    /// What a scene has watched. After weir began: beside a program where packets leave, it forwards nothing in the
    /// driver.
    pub(super) fn begin(probe: &Probe<'_>, threads: &[NapiThread]) -> Result<Self> {
        let Probe { bench, host, scene, .. } = probe;
        Ok(match (scene.watch, threads.first()) {
            (Some(Watch::Polls), Some(thread)) => {
                let mut clock = PollClock::load()?;
                clock.watch(thread.napi_id);
                Self::Polls(clock)
            }
            (Some(Watch::RoundTrips), _) => {
                let replies = Replies::load(ECHO_PORT)?;
                let attach = || replies.attach(host.ifindex, SUT_INTERFACE);
                Self::Replies((host.netns.run(attach)??, replies))
            }
            (Some(Watch::Steps(turn)), poller) => {
                let receiver = (probe.apps[0].pids[0], scene.apps[0].port);
                let poller = poller.map(|thread| thread.pid);
                Self::Steps(turn, StepTrace::begin(receiver, bench.sut_cpu, poller)?)
            }
            _ => Self::Nothing,
        })
    }

    pub(super) fn polls(&self) -> Option<PollCost> {
        let Self::Polls(clock) = self else { return None };
        Some(clock.read())
    }

    /// The round trips of the pings in a window, microseconds; `None` of one that was not replied to.
    pub(super) fn pings(&self, opened: &Reading, closed: &Reading) -> Option<Vec<Option<f64>>> {
        let Self::Replies((_, replies)) = self else { return None };
        let age = |number| Some(replies.age(number)?.0 as f64 / 1e3);
        Some(numbers(opened, closed, Counter::LightSent).map(age).collect())
    }

    /// The steps of the flood's packets in a window that are looked at.
    pub(super) fn steps(&self, opened: &Reading, closed: &Reading) -> Vec<Steps> {
        let Self::Steps(turn, trace) = self else { return vec![] };
        let traced = numbers(opened, closed, Counter::FloodSent).filter(|it| turn.is_of(*it));
        traced.map(|number| trace.steps(number)).collect()
    }
}

/// Those of the packets that a flow sent in a window.
fn numbers(opened: &Reading, closed: &Reading, sent: Counter) -> impl Iterator<Item = u32> {
    (opened.get(sent)..closed.get(sent)).filter_map(|number| u32::try_from(number).ok())
}
