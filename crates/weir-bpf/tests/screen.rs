//! What hears user-mode screens loads, and believes nothing by itself; so does what hears egress queues. With real
//! queues: `crates/weir/tests/screen.rs` and `egress.rs`.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

use weir_bpf::egress::Egresses;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::screen::{Admitted, Queue, Screens, queues};
use weir_bpf::sys::netns::NetNs;

#[test]
fn it_attaches_where_there_is_a_queue_and_lists_none_where_there_is_none() {
    let netns = NetNs::create().expect("the tests need root");
    let probe = QueueProbe::load().unwrap();
    let _gate = Gate::load(&probe).unwrap();
    let mut screens = Screens::load(&probe).unwrap();
    netns
        .run(|| {
            assert_eq!(queues().unwrap(), []);
            screens.follow(&[]).unwrap();
            // Whose program has just ended.
            let gone = Queue { number: 0, port_id: u32::MAX, dropped: 0, sequence: 0 };
            screens.follow(&[gone]).unwrap();
            assert_eq!(screens.admitted().unwrap(), Admitted::default());
            screens.follow(&[]).unwrap();
        })
        .unwrap();
}

#[test]
fn what_hears_egress_queues_attaches_and_lets_go() {
    let probe = QueueProbe::load().unwrap();
    let mut egresses = Egresses::load(&probe).unwrap();
    for hear in [true, true, false, true] {
        egresses.hear(hear).unwrap();
    }
}
