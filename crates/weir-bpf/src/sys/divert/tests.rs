//! Each kind of diversion is found, and gone again once removed: with the real tools, in namespaces.

use std::process::Command;

use super::kind::DiversionKind::{self, *};
use super::*;
use crate::sys::link::Links;
use crate::sys::test_support::{Sandbox, wait_until};

/// A namespace with a veth pair `near` and `far`, both up, in the thread that runs the test.
fn with_watch(test: impl FnOnce(&mut DiversionWatch) + Send) {
    Sandbox::new().run(|| {
        let links = Links::open().unwrap();
        links.create_veth("near", "far", None).unwrap();
        for name in ["near", "far"] {
            links.set_up(links.index(name).unwrap()).unwrap();
        }
        let mut watch = DiversionWatch::open(links.index("near").unwrap()).unwrap();
        assert_eq!(watch.read(&[]), [], "nothing diverts in an empty namespace");
        test(&mut watch);
    });
}

fn try_sh(script: &str) -> std::result::Result<(), String> {
    let output = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn sh(script: &str) {
    try_sh(script).unwrap();
}

/// After `add`, exactly this is found; after `remove`, nothing.
fn comes_and_goes(
    watch: &mut DiversionWatch,
    kind: DiversionKind,
    part_of_detail: &str,
    [add, remove]: [&str; 2],
) {
    sh(add);
    let found = watch.read(&[]);
    assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [kind], "{add}: {found:?}");
    assert!(found[0].detail.contains(part_of_detail), "{add}: {found:?}");
    sh(remove);
    assert_eq!(watch.read(&[]), [], "{remove}");
}

/// As [`comes_and_goes`], where the kernel may lack what `add` asks for.
fn comes_and_goes_if_present(
    watch: &mut DiversionWatch,
    kind: DiversionKind,
    part_of_detail: &str,
    commands: [&str; 2],
    feature: &str,
) {
    if let Err(error) = try_sh(commands[0]) {
        let absent = ["Unknown device type", "not supported", "No such file or directory"];
        assert!(absent.iter().any(|text| error.contains(text)), "{error}");
        println!("skipped: this kernel lacks {feature} ({})", error.trim());
        return;
    }
    comes_and_goes(watch, kind, part_of_detail, ["true", commands[1]]);
}

#[test]
fn rules_of_nftables_are_found() {
    let rule = |chain: &str, rule: &str| {
        format!("nft 'table inet t {{ chain c {{ {chain} {rule}; }}; }}'")
    };
    let nat = |hook: &str| format!("type nat hook {hook} priority 0;");
    let filter = |hook: &str| format!("type filter hook {hook} priority -150;");
    let pre = filter("prerouting");
    let cases = [
        (Nat, nat("prerouting"), "udp dport 53 redirect to :5353"),
        (Nat, nat("prerouting"), "udp dport 53 dnat ip to 198.18.0.9"),
        (Nat, nat("postrouting"), "oifname \"far\" masquerade"),
        (Nat, nat("postrouting"), "snat ip to 198.18.0.9"),
        (Nat, nat("output"), "udp dport 53 redirect to :5353"),
        (Tproxy, pre.clone(), "meta l4proto udp tproxy ip to :5000"),
        (HeaderRewrite, pre.clone(), "ip daddr 198.18.0.1 ip daddr set 198.18.0.9"),
        (Synproxy, filter("input"), "tcp dport 80 synproxy mss 1460 wscale 7"),
        (PacketLog, filter("input"), "log group 3"),
    ];
    with_watch(|watch| {
        for (kind, chain, text) in &cases {
            let detail = "table inet t, chain c: 1 rule(s) with ";
            let add = rule(chain, text);
            comes_and_goes(watch, *kind, detail, [&add, "nft delete table inet t"]);
        }
    });
}

#[test]
fn rules_at_the_device_are_found_on_their_device_only() {
    let rule = |device: &str, rule: &str| {
        format!(
            "nft 'table netdev t {{ chain c {{ type filter hook ingress device {device} priority \
             0; {rule}; }}; }}'"
        )
    };
    let remove = "nft delete table netdev t";
    with_watch(|watch| {
        for text in ["fwd to far", "udp dport 53 dup to far"] {
            let place = "table netdev t, chain c";
            comes_and_goes(watch, Forward, place, [&rule("near", text), remove]);
            sh(&rule("far", text));
            assert_eq!(watch.read(&[]), []);
            sh(remove);
        }
        let devices = rule("near", "fwd to far").replace("device near", "devices = { far, near }");
        comes_and_goes(watch, Forward, "with fwd", [&devices, remove]);
    });
}

#[test]
fn rules_that_take_no_packet_elsewhere_are_let_off() {
    with_watch(|watch| {
        sh(r#"nft '
            table inet t {
                set s { type ipv4_addr; flags dynamic; timeout 1m; }
                map m { type inet_service : verdict; elements = { 7 : drop }; }
                counter c { }
                chain user { udp dport 9 reject; return; }
                chain in {
                    type filter hook input priority 0; policy accept;
                    ct state established,related accept
                    iifname "near" udp dport vmap @m
                    add @s { ip saddr limit rate 10/second } counter name c
                    log prefix "seen " limit rate 1/minute
                    fib saddr type local meta mark set 1 jump user
                    tcp option maxseg size set 1400
                    socket transparent 1 accept
                }
                chain out { type route hook output priority 0; udp dport 7 ip ttl set 3; }
            }
            table bridge b {
                chain c { type filter hook prerouting priority 0; ether daddr set 2:0:0:0:0:1; }
            }'"#);
        assert_eq!(watch.read(&[]), []);
        // One chain that the kernel calls elsewhere does not excuse one that others may jump to.
        sh("nft 'table inet u { chain user { ip daddr set 198.18.0.9; }; }'");
        assert_eq!(watch.read(&[])[0].kind, HeaderRewrite);
    });
}

#[test]
fn connections_stay_translated_after_their_rule_has_gone() {
    with_watch(|watch| {
        sh("ip link set lo up
            nft 'table ip t { chain c { type nat hook output priority 0; \
                 udp dport 53 redirect to :5353; }; }'
            echo 1 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"query", "127.0.0.1:53").unwrap();
        sh("nft flush chain ip t c");
        let found = watch.read(&[]);
        assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [Nat]);
        assert!(found[0].detail.contains("1 connection(s) still are translated"), "{found:?}");
        wait_until("the connection has timed out", || watch.read(&[]).is_empty());
    });
}

#[test]
fn rules_of_iptables_are_found_over_nftables_and_legacy() {
    let cases = [
        (Nat, "-t nat", "PREROUTING -p udp --dport 53 -j REDIRECT --to-ports 5353"),
        (Nat, "-t nat", "POSTROUTING -o far -j MASQUERADE"),
        (Tproxy, "-t mangle", "PREROUTING -p udp -j TPROXY --on-port 5000"),
        (NfQueue, "-t filter", "INPUT -p udp -j NFQUEUE --queue-num 3"),
        (NfQueue, "-t raw", "PREROUTING -p udp -j NFQUEUE --queue-num 3"),
        (PacketLog, "-t filter", "INPUT -p udp -j NFLOG --nflog-group 3"),
    ];
    let harmless = [
        ("-t filter", "INPUT -p udp --dport 9 -j DROP"),
        ("-t filter", "INPUT -p tcp --dport 9 -j REJECT"),
        ("-t filter", "FORWARD -p udp -j NFQUEUE --queue-num 3"),
        ("-t mangle", "OUTPUT -p udp -j NFQUEUE --queue-num 3"),
        ("-t mangle", "PREROUTING -p udp -j MARK --set-mark 1"),
    ];
    with_watch(|watch| {
        for family in ["iptables", "ip6tables"] {
            for variant in ["nft", "legacy"] {
                let command = format!("{family}-{variant}");
                for (kind, table, rule) in cases {
                    let add = format!("{command} {table} -A {rule}");
                    let remove = format!("{command} {table} -D {rule}");
                    comes_and_goes(watch, kind, "table", [&add, &remove]);
                }
                for (table, rule) in harmless {
                    sh(&format!("{command} {table} -A {rule}"));
                    assert_eq!(watch.read(&[]), [], "{command} {table} -A {rule}");
                }
                // From a chain of the user's own.
                comes_and_goes(
                    watch,
                    NfQueue,
                    "NFQUEUE",
                    [
                        &format!(
                            "{command} -N own; {command} -A INPUT -j own; \
                              {command} -A own -p udp -j NFQUEUE"
                        ),
                        &format!("{command} -F own"),
                    ],
                );
            }
        }
    });
}

#[test]
fn tc_filters_are_found() {
    let filter = |action: &str| {
        format!("tc filter add dev near ingress protocol ip u32 match ip dport 53 0xffff {action}")
    };
    with_watch(|watch| {
        for (qdisc, remove) in [("clsact", "clsact"), ("handle ffff: ingress", "ingress")] {
            sh(&format!("tc qdisc add dev near {qdisc}"));
            assert_eq!(watch.read(&[]), []);
            for action in ["redirect dev far", "mirror dev far"] {
                let add = filter(&format!("action mirred egress {action}"));
                let delete = "tc filter del dev near ingress";
                comes_and_goes(watch, TcRedirect, "action mirred", [&add, delete]);
            }
            sh(&filter("flowid 1:1"));
            assert_eq!(watch.read(&[]), [], "a filter without an action");
            sh(&format!("tc qdisc del dev near {remove}"));
        }
        let shared =
            filter("action mirred egress redirect dev far").replace("dev near ingress", "block 7");
        comes_and_goes(
            watch,
            TcRedirect,
            "action mirred",
            [
                &format!("tc qdisc add dev near ingress_block 7 clsact; {shared}"),
                "tc qdisc del dev near clsact",
            ],
        );
        sh("tc qdisc add dev near clsact");
        sh(&filter("action mirred egress redirect dev far").replace("ingress", "egress"));
        assert_eq!(watch.read(&[]), [], "outgoing packets are no matter");
    });
}

#[test]
fn programs_at_tc_are_found_but_for_the_callers_own() {
    with_watch(|watch| {
        let ifindex = Links::open().unwrap().index("near").unwrap();
        let program = super::device::DeviceProbe::load().unwrap();
        let (id, attached) = program.attach_tcx(ifindex).unwrap();
        let found = watch.read(&[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, TcBpf);
        assert_eq!(found[0].detail, format!("tcx ingress, program {id}"));
        assert_eq!(watch.read(&[id]), []);
        drop(attached);
        assert_eq!(watch.read(&[]), []);

        let hook = program.attach_tc(ifindex).unwrap();
        let found = watch.read(&[]);
        assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [TcBpf], "{found:?}");
        assert_eq!(watch.read(&[id]), []);
        drop(hook);
        sh("tc qdisc del dev near clsact");
        assert_eq!(watch.read(&[]), []);
    });
}

#[test]
fn masters_are_found() {
    with_watch(|watch| {
        let port = |kind: &str, detail: &str, watch: &mut DiversionWatch, feature: &str| {
            let add =
                format!("ip link add name upper type {kind}; ip link set near down master upper");
            comes_and_goes_if_present(
                watch,
                Enslaved,
                detail,
                [&add, "ip link del upper"],
                feature,
            );
        };
        port("bridge", "master: bridge upper", watch, "bridges (CONFIG_BRIDGE)");
        port("bond", "master: bond upper", watch, "bonds (CONFIG_BONDING)");
        port("team", "master: team upper", watch, "teams (CONFIG_NET_TEAM)");
        port("vrf table 7", "master: vrf upper", watch, "VRFs (CONFIG_NET_VRF)");
    });
}

#[test]
fn interfaces_on_top_are_found_in_any_namespace() {
    let upper = |kind: &str| format!("ip link add link near name upper type {kind}");
    let remove = "ip link del upper";
    with_watch(|watch| {
        for kind in ["macvlan mode bridge", "macvlan mode passthru"] {
            let feature = "macvlan (CONFIG_MACVLAN)";
            let commands = [&upper(kind), remove];
            comes_and_goes_if_present(watch, Upper, "macvlan upper", commands, feature);
        }
        let feature = "ipvlan (CONFIG_IPVLAN)";
        comes_and_goes_if_present(
            watch,
            Upper,
            "ipvlan upper",
            [&upper("ipvlan"), remove],
            feature,
        );
        let feature = "VLANs (CONFIG_VLAN_8021Q)";
        let vlan = upper("vlan id 7");
        let detail = "1 VLAN interface(s): vlan upper";
        comes_and_goes_if_present(watch, UntaggedVlan, detail, [&vlan, remove], feature);
        let other = Sandbox::new();
        let add =
            format!("{}; ip link set upper netns {}", upper("macvlan mode bridge"), other.name);
        let remove = format!("ip -n {} link del upper", other.name);
        let feature = "macvlan (CONFIG_MACVLAN)";
        let detail = "in another network namespace";
        comes_and_goes_if_present(watch, Upper, detail, [&add, &remove], feature);
    });
}

#[test]
fn routing_rules_before_the_local_addresses_are_found() {
    with_watch(|watch| {
        for family in ["-4", "-6"] {
            // Behind the local table, and for another interface: no matter.
            sh(&format!(
                "ip {family} rule add pref 200 lookup local; ip {family} rule del pref 0
                 ip {family} rule add pref 50 iif far lookup 100
                 ip {family} rule add pref 300 fwmark 1 lookup 100"
            ));
            assert_eq!(watch.read(&[]), []);
            for rule in ["fwmark 1 lookup 100", "iif near lookup 100", "lookup 100"] {
                comes_and_goes(
                    watch,
                    PolicyRouting,
                    "priority 60",
                    [
                        &format!("ip {family} rule add pref 60 {rule}"),
                        &format!("ip {family} rule del pref 60"),
                    ],
                );
            }
        }
    });
}

#[test]
fn multicast_forwarding_is_found() {
    with_watch(|watch| {
        sh("ip address add 198.18.0.1/24 dev near");
        let ifindex = Links::open().unwrap().index("near").unwrap();
        let router = multicast_router(ifindex);
        let found = watch.read(&[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, MulticastForwarding);
        assert!(found[0].detail.contains("ipv4/conf/near/mc_forwarding"));
        drop(router);
        assert_eq!(watch.read(&[]), []);
    });
}

/// What a multicast routing daemon does at its start.
#[allow(unsafe_code)]
fn multicast_router(ifindex: IfIndex) -> std::os::fd::OwnedFd {
    use std::os::fd::AsRawFd;

    use rustix::net::{AddressFamily, SocketType, ipproto, socket_with};
    const MRT_INIT: i32 = 200;
    const MRT_ADD_VIF: i32 = 202;
    const VIFF_USE_IFINDEX: u8 = 8;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::IGMP));
    let socket = socket.unwrap();
    let set = |option, value: &[u8]| {
        // SAFETY: the kernel reads `value.len()` bytes.
        let result = unsafe {
            let length = value.len() as libc::socklen_t;
            libc::setsockopt(socket.as_raw_fd(), 0, option, value.as_ptr().cast(), length)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    set(MRT_INIT, &1i32.to_ne_bytes());
    let mut vif = [0; 16];
    vif[2] = VIFF_USE_IFINDEX;
    vif[3] = 1; // threshold
    vif[8..12].copy_from_slice(&ifindex.0.to_ne_bytes());
    set(MRT_ADD_VIF, &vif);
    socket
}

#[test]
fn ipvs_is_found_where_the_kernel_has_it() {
    if !std::path::Path::new("/proc/net/ip_vs").exists() {
        println!("skipped: this kernel lacks IPVS (CONFIG_IP_VS), or has not loaded it");
        return;
    }
    with_watch(|watch| {
        comes_and_goes(
            watch,
            Ipvs,
            "1 virtual service(s)",
            ["ipvsadm -A -u 198.18.0.1:53 -s rr", "ipvsadm -D -u 198.18.0.1:53"],
        );
    });
}

#[test]
fn changes_are_told_and_elements_of_sets_are_not() {
    with_watch(|watch| {
        sh("nft 'table inet t { set s { type ipv4_addr; }; chain c { \
            type filter hook prerouting priority 0; }; }'");
        assert!(watch.changed().unwrap());
        assert!(!watch.changed().unwrap());
        sh("nft add element inet t s '{ 198.18.0.1 }'");
        assert!(!watch.changed().unwrap());
        for change in [
            "nft add rule inet t c ip daddr set 198.18.0.9",
            "nft flush chain inet t c",
            "nft delete table inet t",
            "iptables-nft -t nat -A PREROUTING -j ACCEPT",
            "tc qdisc add dev near clsact",
            "ip link add name upper type bridge",
            "ip link set near master upper",
            "ip -6 rule add pref 60 lookup 100",
        ] {
            sh(change);
            assert!(watch.changed().unwrap(), "{change}");
            assert!(!watch.changed().unwrap(), "{change}");
        }
        sh("nft 'table inet t { chain c { type filter hook prerouting priority 0; }; }'");
        watch.changed().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(watch.fds().next().unwrap(), 1).unwrap();
        sh("for i in $(seq 30); do nft add rule inet t c counter; done");
        assert!(watch.changed().unwrap(), "lost notifications count as a change");
    });
}

#[test]
fn an_interface_that_has_gone_is_not_known() {
    with_watch(|watch| {
        sh("ip link del near");
        assert_eq!(watch.read(&[]).iter().map(|one| one.kind).collect::<Vec<_>>(), [Unknown]);
    });
}

#[test]
#[ignore = "prints what a look costs; nothing depends on it"]
fn what_a_look_costs() {
    with_watch(|watch| {
        let mut measure = |what: &str| {
            watch.read(&[]);
            let (begun, cpu_begun) = (std::time::Instant::now(), watch::cpu_time());
            for _ in 0..100 {
                watch.read(&[]);
            }
            println!(
                "{what}: {:?}, CPU {:?}",
                begun.elapsed() / 100,
                (watch::cpu_time() - cpu_begun) / 100
            );
        };
        measure("nothing there");
        sh("iptables-legacy -A INPUT -j DROP; ip6tables-legacy -A INPUT -j DROP");
        measure("legacy filter tables");
        sh("(echo 'table inet t { chain c { type filter hook input priority 0; ';
             seq -f 'udp dport %g drop;' 5000; echo '}; }') | nft -f -");
        measure("5000 rules of nftables, unchanged");
        sh("(echo '*filter'; seq -f '-A INPUT -p udp --dport %g -j DROP' 5000; echo COMMIT) |
            iptables-legacy-restore");
        measure("5000 rules of legacy iptables");
    });
}
