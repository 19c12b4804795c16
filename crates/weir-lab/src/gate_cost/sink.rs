//! Where passed packets end cheaply: a chain of nftables at the interface's ingress that drops all.
//!
//! It is the first thing after the skb is built and GRO and tc have looked at it: what follows costs more
//! than the gate, varies more, and is none of it. Not a program at tc: beside one, the gate takes packets
//! for diverted and judges none (`docs/adr/0005-diversions.md`). A verdict that drops takes no packet
//! elsewhere.

use weir_bpf::sys::netns::NetNs;

use crate::error::Result;
use crate::nft::nft;

/// Where passed packets end, as results say it.
pub const PASSED_END: &str =
    "dropped by nftables at ingress, the first thing after the skb, GRO and tc";

/// The chain, in place. Dropping it removes it.
pub struct Sink<'a> {
    netns: &'a NetNs,
}

impl<'a> Sink<'a> {
    /// Lets everything that an interface passes to the stack end there.
    ///
    /// # Errors
    /// Without `nft`, or where the kernel has no such chains.
    pub fn attach(netns: &'a NetNs, interface: &str) -> Result<Self> {
        let chain =
            format!("type filter hook ingress device \"{interface}\" priority 0; policy drop;");
        nft(netns, &format!("table netdev weir_lab {{ chain sink {{ {chain} }}; }}"))?;
        Ok(Self { netns })
    }
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        // It goes with its namespace at the latest.
        let _ = nft(self.netns, "delete table netdev weir_lab");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed call fails the test")]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use weir_bpf::traffic::{FlowSpec, Generator};

    use super::*;
    use crate::topology::{SUT_INTERFACE, Topology};

    const PORT: u16 = 6016;

    #[test]
    fn nothing_comes_past_it_until_it_is_dropped() {
        let mut topology = Topology::create().expect("the tests need root");
        let host = topology.add_host("sink", false).unwrap();
        host.wait_until_up().unwrap();
        let socket = host.netns.run(|| UdpSocket::bind((host.address.1, PORT)).unwrap()).unwrap();
        let load = || Generator::load(host.generator_ifindex).unwrap();
        let mut generator = topology.generator.run(load).unwrap();
        let mut send = || {
            generator.set_flows(&[FlowSpec::udp(host.mac, host.address, (4096, PORT))]).unwrap();
            let body = || {
                generator.start();
                let deadline = Instant::now() + Duration::from_secs(10);
                while generator.counts(0).sent < 100 {
                    assert!(Instant::now() < deadline, "the generator sends nothing");
                }
            };
            generator.run_while(&topology.generator, None, body).unwrap();
        };

        let sink = Sink::attach(&host.netns, SUT_INTERFACE).unwrap();
        send();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err(), "a packet came past it");
        drop(sink);
        send();
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 14);
        let refused = Sink::attach(&host.netns, "no\"name").err().unwrap().to_string();
        assert!(refused.contains("nft refuses"), "{refused}");
    }
}
