//! Lazy sockets, and what the kernel's path would do to their packets: rules, tc, routes.

use std::process::Command;

use crate::common::lazy::*;
use crate::common::*;
use crate::lazy::*;

#[test]
fn rules_of_the_kernel_are_not_bypassed() {
    let (network, daemon, lazy, sender) = with_lazy_socket();
    send_numbers(&sender, 0..1);
    assert_eq!(receive_numbers(&lazy, 0), [0]);
    wait_until("it came by the ring", || network.count("lazy") == 1);
    sh(
        &network,
        "nft 'table inet t { chain c { type filter hook input priority 0; udp dport 9995 counter drop; }; }'",
    );
    daemon.said("lazy sockets are ordinary ones for now");
    daemon.said("table inet t, chain c has rules");
    assert_refused(&network, "198.18.0.1:9997", "table inet t, chain c");
    send_numbers(&sender, 1..2);
    wait_until("the rule drops it", || sh(&network, "nft list ruleset").contains("packets 1 "));
    sh(&network, "nft flush ruleset");
    daemon.said("lazy sockets are lazy again");
    send_numbers(&sender, 2..3);
    // The rule has dropped the one in between.
    assert_eq!(receive_numbers(&lazy, 2), [2]);
    wait_until("it came by the ring", || network.count("lazy") == 2);
}

#[test]
fn what_held_lazy_sockets_is_forgotten_with_the_last_of_them() {
    let (network, daemon, lazy, _sender) = with_lazy_socket();
    sh(&network, "nft 'table inet t { chain c { type filter hook input priority 0; counter; }; }'");
    wait_until("it is held", || summary(&network).contains("; held: packets would get past"));
    drop(lazy);
    let none = "lazy sockets: 0, rings of 0 KiB";
    wait_until("nothing is held", || summary(&network) == none);
    sh(&network, "nft flush ruleset");
    assert_lazy(&lazy_socket(&network, LAZY));
    let said = daemon.interrupt();
    assert!(!said.contains("lazy sockets are lazy again"), "{said}");
}

#[test]
fn what_tc_drops_is_not_bypassed_nor_output_rules_that_ask_for_connections() {
    let (network, daemon, lazy, sender) = with_lazy_socket();
    for (add, remove, said) in [
        (
            "tc qdisc add dev near clsact; \
             tc filter add dev near ingress protocol ip u32 match ip dport 53 0xffff flowid 1:1",
            "tc qdisc del dev near clsact",
            "near has tc filters at ingress",
        ),
        (
            "nft 'table inet o { chain c { type filter hook output priority 0; ct state new drop; }; }'",
            "nft flush ruleset",
            "table inet o, chain c asks for connections",
        ),
    ] {
        sh(&network, add);
        daemon.said(said);
        assert_refused(&network, "198.18.0.1:9997", said);
        sh(&network, remove);
        wait_until("it is lazy again", || {
            lazy_socket(&network, "198.18.0.1:9998").ordinary().is_none()
        });
    }
    send_numbers(&sender, 0..1);
    assert_eq!(receive_numbers(&lazy, 0), [0]);
}

/// Loose as it is, it asks the rules, and drops all but an interface's own networks where that has no address.
#[test]
fn what_the_loose_reverse_path_filter_drops_is_not_bypassed() {
    for script in [
        "ip route add default via 198.18.0.2; ip rule add to 203.0.113.0/24 prohibit",
        "ip route add default via 198.18.0.2 table 100",
        "ip link add other type veth peer another; ip link set other up; ip link set another up
         ip addr add 198.19.0.1/24 dev other; ip route add default via 198.19.0.2
         ip addr flush dev near; ip addr add 198.18.0.1/32 dev lo; ip route add 198.18.0.2 dev near",
    ] {
        let network = Network::ipv4_only();
        sh(&network, &format!("echo 2 >/proc/sys/net/ipv4/conf/near/rp_filter; {script}"));
        let _daemon = Daemon::start(&network, &["--lazy"]);
        let lazy = lazy_socket(&network, LAZY);
        let ordinary = network.near_socket("198.18.0.1:9996");
        let sender = frame_sender(&network);
        for (from, payload) in [("203.0.113.1", &b"dropped"[..]), (FAR_IP, LAST)] {
            for port in [LAZY_PORT, ORDINARY_PORT] {
                send_frame(&sender, &frame_from(&network, from.parse().unwrap(), port, payload));
            }
        }
        let of_lazy = up_to_the_last(|buffer| lazy.recv_from(buffer));
        let of_ordinary = up_to_the_last(|buffer| ordinary.recv_from(buffer));
        assert_eq!((of_lazy, of_ordinary), Default::default(), "{script}");
        assert_refused(&network, "198.18.0.1:9997", "near.rp_filter is 2");
    }
}

/// What counts is what the protected interface meets, whatever it is called.
#[test]
fn an_interface_that_is_renamed_is_looked_at_by_its_new_name() {
    let (network, daemon, lazy, sender) = with_lazy_socket();
    let filter = |name: &str| {
        let filter = "ingress protocol ip u32 match ip dport 53 0xffff flowid 1:1";
        sh(&network, &format!("tc qdisc add dev {name} clsact; tc filter add dev {name} {filter}"));
    };
    sh(
        &network,
        "ip link add spare type veth; ip link set near name renamed; ip link set spare name near",
    );
    filter("near");
    wait_until("it is told", || network.interface_status()["interface"] == "renamed");
    assert_lazy(&lazy_socket(&network, "198.18.0.1:9997"));
    send_numbers(&sender, 0..1);
    assert_eq!(receive_numbers(&lazy, 0), [0]);
    wait_until("it came by the ring", || network.count_on("renamed", "lazy") == 1);
    filter("renamed");
    daemon.said("renamed has tc filters at ingress");
}

#[test]
fn a_c_program_is_told_why_its_socket_is_an_ordinary_one() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    sh(&network, "nft 'table inet t { chain c { type filter hook input priority 0; counter; }; }'");
    let script = r"
import ctypes,socket,sys
weir=ctypes.CDLL(sys.argv[1]); weir.weir_socket_why.restype=ctypes.c_char_p
s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
print(weir.weir_socket_why(),weir.weir_socket_attach(s.fileno(),ctypes.c_uint64(0)),weir.weir_socket_why().decode())
";
    let mut command = Command::new("timeout");
    command.args(["30", "python3", "-c", script, &artifact("libweir_socket.so")]);
    let output = network.near.run(|| command.output().unwrap()).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("b'' -1 weir leaves this socket ordinary: "), "{said}");
    assert!(said.contains("table inet t, chain c"), "{said}");
}
