//! Packets that go elsewhere than their addresses say.

use weir_bpf::verdict::Defect;

use super::{Case, PEER, PEER6, SMALL, fill, flood, full};
use crate::socket::Udp;
use crate::world::World;

/// Only of these senders: the others' packets fill the socket that these do not reach.
const RULES: &str = "
table ip weir {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    udp sport 41000 udp dport 6000 redirect to :6001
    udp sport 41001 udp dport 6000 dnat to 198.18.1.2:6000
  }
}
";

/// Of some ports, and of what a client beyond has asked for.
const OF_SOME: &str = "
table ip weir {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    udp sport 41002 udp dport 6002 dnat to 198.18.1.2:6004
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr 198.18.1.2 masquerade
  }
}
table ip6 weir {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip6 saddr 2001:2:0:1::2 snat to 2001:2::1
  }
}
";

pub const CASES: &[Case] = &[
    full("NAT past a full socket", &[Defect::DivertedIgnored], translated),
    full("NAT of some ports and connections", &[Defect::TranslationIgnored], translated_in_part),
];

/// The client has the port of a full socket here, and masquerading leaves it to it.
fn translated_in_part(world: &mut World) {
    world.translate_in_part(OF_SOME);
    world.udp("full", Udp { bind: "198.18.0.1:6003", buffer_bytes: SMALL, ..Udp::default() });
    world.udp("published", Udp { bind: "198.18.0.1:6002", buffer_bytes: SMALL, ..Udp::default() });
    world.udp_beyond("translated to", "198.18.1.2:6004");
    world.udp_beyond("client", "198.18.1.2:6003");
    world.udp_sends("client", "198.18.0.201:7000");
    world.udp("full6", Udp { bind: "[2001:2::1]:6003", buffer_bytes: SMALL, ..Udp::default() });
    world.udp_beyond("client6", "[2001:2:0:1::2]:6003");
    world.udp_sends("client6", "[2001:2::200]:7000");
    fill(world, PEER, "198.18.0.1:6003");
    fill(world, PEER, "198.18.0.1:6002");
    fill(world, PEER6, "[2001:2::1]:6003");
    flood(world, "[2001:2::200]:7000", "[2001:2::1]:6003", 3);
    flood(world, "198.18.0.201:7000", "198.18.0.1:6003", 3);
    flood(world, "198.18.0.201:41002", "198.18.0.1:6002", 3);
}

fn translated(world: &mut World) {
    world.translate(RULES);
    world.udp("full", Udp { bind: "198.18.0.1:6000", buffer_bytes: SMALL, ..Udp::default() });
    world.udp("redirected to", Udp { bind: "198.18.0.1:6001", ..Udp::default() });
    world.udp_beyond("translated to", "198.18.1.2:6000");
    fill(world, PEER, "198.18.0.1:6000");
    for from in ["198.18.0.201:41000", "198.18.0.201:41001"] {
        flood(world, from, "198.18.0.1:6000", 3);
    }
}
