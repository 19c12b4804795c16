//! What hears user-mode screens loads, and believes nothing by itself; so does what hears egress queues. With real
//! queues: `crates/weir/tests/screen.rs` and `egress.rs`.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::fs;
use std::sync::{Mutex, PoisonError};

use weir_bpf::attach::AttachMode;
use weir_bpf::egress::Egresses;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::screen::{Admitted, Queue, Queues, Screens};
use weir_bpf::sys::netns::NetNs;

/// Both hear the same tracepoint, so one test at a time looks whether this process does.
static ALONE: Mutex<()> = Mutex::new(());

/// How many programs of this process hear which packets the kernel frees.
fn hearing() -> usize {
    let fds = fs::read_dir("/proc/self/fdinfo").unwrap();
    let texts = fds.filter_map(|fd| fs::read_to_string(fd.unwrap().path()).ok());
    texts.filter(|text| text.contains("tp_name:\tkfree_skb")).count()
}

#[test]
fn it_attaches_where_there_is_a_queue_and_lists_none_where_there_is_none() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let netns = NetNs::create().expect("the tests need root");
    let probe = QueueProbe::load().unwrap();
    let _gate = Gate::load(&probe, AttachMode::Tcx).unwrap();
    let mut screens = Screens::load(&probe).unwrap();
    netns
        .run(|| {
            assert_eq!(Queues::default().read().unwrap(), []);
            // Before Linux 6.10 the probe hears of them, too.
            let others = hearing();
            screens.follow(&[]).unwrap();
            assert_eq!(hearing(), others);
            // Whose program has just ended.
            let gone = Queue { number: 0, port_id: u32::MAX, waiting: 0, dropped: 0, sequence: 0 };
            screens.follow(&[gone]).unwrap();
            assert_eq!(hearing(), others + 1);
            assert_eq!(screens.admitted().unwrap(), Admitted::default());
            screens.follow(&[]).unwrap();
            assert_eq!(hearing(), others);
        })
        .unwrap();
}

#[test]
fn what_hears_egress_queues_attaches_and_lets_go() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let probe = QueueProbe::load().unwrap();
    let mut egresses = Egresses::load(&probe).unwrap();
    let others = hearing();
    for hear in [true, true, false, true] {
        egresses.hear(hear).unwrap();
        assert_eq!(hearing(), others + usize::from(hear));
    }
}
