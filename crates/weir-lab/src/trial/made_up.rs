//! Trials for tests, with the figures that they are about.

use std::time::Duration;

use super::Flood;
use crate::bench::Workload;
use crate::load::Plan;
use crate::results::load::LoadTrial;
use crate::results::{Ledger, Mode, Trial};
use crate::worker::App;

/// The plan of a run of weir alone.
pub fn plan(rates: &[Flood]) -> Plan {
    Plan {
        modes: vec![Mode::Weir],
        rates: rates.to_vec(),
        repeats: 1,
        warm_up: Duration::ZERO,
        window: Duration::ZERO,
        workload: Workload { app: App::Recv, ipv6: false, payload_len: 14, rcvbuf: 0 },
        quick: true,
        budget: None,
    }
}

/// A trial of one second to one application, of which the rest was discarded.
pub fn trial(
    mode: Mode,
    purpose: &str,
    flood: Flood,
    offered: u64,
    delivered: u64,
) -> LoadTrial<Mode> {
    let discarded = offered - delivered;
    LoadTrial {
        key: mode,
        load: Trial {
            mode,
            purpose: purpose.to_owned(),
            target_pps: flood.target_pps(),
            window_s: 1.0,
            offered_pps: offered as f64,
            nic_drop_pps: 0.0,
            discarded_pps: discarded as f64,
            late_drop_pps: 0.0,
            delivered_pps: delivered as f64,
            bystander_offered_pps: 0.0,
            bystander_delivered_pps: 0.0,
            user_cpu: 0.0,
            sut_loop_ns: 5000.0,
            steal: 0.0,
            age_p50_us: None,
            age_p99_us: None,
            missed_by_generator: 0,
            ledger: Ledger { offered, discarded, delivered, ..Ledger::default() },
            replies: None,
        },
        bystander_age_p50_us: None,
        bystander_age_p99_us: None,
        input_cpu_ns: None,
        daemon_cpu_ns: None,
        flooded_cpu_ns: 0,
        bystander_cpu_ns: 0,
        neighbour_per_s: None,
        neighbour_cpu: None,
        service: None,
        receivers: None,
    }
}
