//! What services kept, from made-up trials.

use weir_bpf::units::PacketsPerSec;

use super::UNFLOODED;
use super::analysis::{series, summary};
use crate::load::Plan;
use crate::results::Mode;
use crate::results::kinds::Kind;
use crate::results::load::{LoadTrial, Service};
use crate::trial::Flood;
use crate::trial::made_up::{self, trial};

const LOW: Flood = Flood::Paced(PacketsPerSec(1e5));
const MIDDLE: Flood = Flood::Paced(PacketsPerSec(1e6));

fn plan() -> Plan {
    made_up::plan(&[LOW, MIDDLE, Flood::Top])
}

/// A flood of which the ring refuses so many, the UDP service that is sent 20,000 packets, and how much
/// the two services do.
fn made(purpose: &str, flood: Flood, refused: u64, udp: f64, tcp: f64) -> LoadTrial<Mode> {
    let mut made = trial(Mode::Weir, purpose, flood, 1_000_000, 0);
    made.load.ledger.nic_drop = refused;
    made.load.bystander_offered_pps = 20e3;
    made.load.bystander_delivered_pps = udp;
    made.service =
        Some(Service { answered_per_s: tcp, time_p50_us: Some(100.0), time_p99_us: None });
    made
}

#[test]
fn services_are_compared_with_themselves_up_to_where_the_ring_overflows() {
    let kind = Kind::Syn.name();
    let trials = [
        made(UNFLOODED, Flood::Off, 0, 20e3, 2000.0),
        made(kind, LOW, 100, 20e3, 1980.0),
        made(kind, MIDDLE, 5_000, 19e3, 1900.0),
        made(kind, Flood::Top, 5_001, 10e3, 500.0),
    ];
    let series = series(&plan(), &[Kind::Syn], &trials);
    let points = &series[&Mode::Weir];
    let kept: Vec<_> = points.iter().map(|point| (point.udp_kept, point.tcp_kept)).collect();
    assert_eq!(kept, [(1.0, 1.0), (1.0, 0.99), (0.95, 0.95), (0.5, 0.25)]);
    assert_eq!(points[0].kind, None);
    let summary = &summary(&series)[&Mode::Weir];
    assert_eq!((summary.unloaded, summary.overload, summary.retained), (2000.0, 500.0, 0.25));
    let syn = summary.kinds[&Kind::Syn];
    assert_eq!(syn.r_ring_pps, Some(points[2].flood_pps));
    assert_eq!((syn.udp_kept, syn.tcp_kept), (Some(0.95), Some(0.95)));
}

#[test]
fn a_ring_that_overflows_at_once_reaches_nowhere() {
    let trials = [
        made(UNFLOODED, Flood::Off, 0, 20e3, 2000.0),
        made(Kind::Icmp.name(), LOW, 500_000, 10e3, 1000.0),
        made(Kind::Icmp.name(), MIDDLE, 0, 20e3, 2000.0),
    ];
    let series = series(&plan(), &[Kind::Icmp], &trials);
    let summary = &summary(&series)[&Mode::Weir];
    assert_eq!(summary.kinds[&Kind::Icmp].r_ring_pps, None);
    assert_eq!(summary.kinds[&Kind::Icmp].udp_kept, None);
}
