//! Rules: of nftables, of both kinds of iptables, of IPVS.

use super::DiversionKind::*;
use super::*;
use crate::sys::test_support::wait_until;

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
        // A verdict that drops takes no packet elsewhere, by rule or for the whole chain.
        for text in ["drop", "policy drop"] {
            sh(&rule("near", text));
            assert_eq!(watch.read(&[]), [], "{text}");
            sh(remove);
        }
        let devices = rule("near", "fwd to far").replace("device near", "devices = { far, near }");
        comes_and_goes(watch, Forward, "with fwd", [&devices, remove]);
    });
}

/// Linux 6.14 and later tell the name that the rules give; it may be an alternative one.
#[test]
fn rules_at_the_device_are_found_by_any_of_its_names() {
    let chain = |device: &str| {
        format!(
            "nft 'table netdev t {{ chain c {{ type filter hook ingress {device} priority 0; fwd to far; }}; }}'"
        )
    };
    let remove = "nft delete table netdev t";
    with_watch(|watch| {
        sh(
            "ip link property add dev near altname near0; ip link property add dev far altname far0",
        );
        for devices in ["device near0", "devices = { far0, near0 }"] {
            comes_and_goes(watch, Forward, "table netdev t, chain c", [&chain(devices), remove]);
        }
        sh(&chain("device far0"));
        assert_eq!(watch.read(&[]), []);
    });
}

/// A ban that never falls, because the gate discards what it counts, costs what stock delivers.
#[test]
fn rules_that_remember_senders_pass_and_others_that_count_are_told() {
    let rule = |rule: &str| {
        format!(
            "nft 'table inet t {{ set s {{ type ipv4_addr; flags dynamic; timeout 1m; }}; \
             chain c {{ type filter hook input priority 0; {rule}; }}; }}'"
        )
    };
    let cases = [
        (SenderRules, "udp dport 53 limit rate over 9/second add @s { ip saddr } drop"),
        (SenderRules, "add @s { ip saddr limit rate over 9/second } drop"),
        (SenderRules, "meta l4proto != tcp add @s { ip saddr }"),
        (CountingRules, "tcp dport 22 add @s { ip saddr limit rate over 9/second } drop"),
        (CountingRules, "udp dport 53 limit rate over 9/second drop"),
        (CountingRules, "quota over 9 mbytes drop"),
        (CountingRules, "tcp dport 80 ct count over 9 reject"),
    ];
    with_watch(|watch| {
        for (kind, text) in cases {
            sh(&rule(text));
            let found = watch.read(&[]);
            // The first has a limit as well.
            assert_eq!(found.iter().map(|one| one.kind).min(), Some(kind), "{text}: {found:?}");
            sh("nft delete table inet t");
        }
        assert_eq!(watch.read(&[]), []);
        let cases = [
            (SenderRules, "-m recent --name x --update --seconds 60 --hitcount 6 -j DROP"),
            (SenderRules, "-m hashlimit --hashlimit-above 9/s --hashlimit-name x -j DROP"),
            (SenderRules, "! -p tcp -m recent --name x --set"),
            (CountingRules, "-p tcp --dport 22 -m recent --name x --set"),
            (CountingRules, "-p udp -m limit --limit 9/s -j ACCEPT"),
            (CountingRules, "-m quota --quota 99 -j ACCEPT"),
        ];
        for family in ["iptables", "ip6tables"] {
            for variant in ["nft", "legacy"] {
                let command = format!("{family}-{variant}");
                for (kind, rule) in cases {
                    let add = format!("{command} -A INPUT {rule}");
                    let remove = format!("{command} -D INPUT {rule}");
                    comes_and_goes(watch, kind, "table", [&add, &remove]);
                }
            }
        }
    });
}

/// A rule that asks a set which counts is as one that fills it; one that names an object, as one that has it itself.
#[test]
fn rules_that_count_by_sets_and_objects_are_found() {
    let rule = |rule: &str| {
        format!(
            "nft 'table inet t {{ limit l {{ rate 9/second; }}; quota q {{ over 9 mbytes; }}; counter n {{ }}
                set a {{ type ipv4_addr; limit rate over 9/second; elements = {{ 198.18.0.2 }}; }}
                set b {{ type ipv4_addr; counter; quota over 9 mbytes; elements = {{ 198.18.0.2 }}; }}
                set d {{ type ipv4_addr; flags dynamic; ct count over 9; }}
                set ports {{ type inet_service; limit rate over 9/second; elements = {{ 53 }}; }}
                set counted {{ type ipv4_addr; counter; elements = {{ 198.18.0.2 }}; }}
                map v {{ type ipv4_addr : verdict; limit rate over 9/second; elements = {{ 198.18.0.2 : drop }}; }}
                map limits {{ type ipv4_addr : limit; elements = {{ 198.18.0.2 : \"l\" }}; }}
                map quotas {{ type inet_service : quota; elements = {{ 53 : \"q\" }}; }}
                map counters {{ type ipv4_addr : counter; elements = {{ 198.18.0.2 : \"n\" }}; }}
                chain c {{ type filter hook input priority 0; {rule}; }}; }}'"
        )
    };
    let cases = [
        (Some(SenderRules), "ip saddr @a drop"),
        (Some(SenderRules), "ip saddr @b drop"),
        (Some(SenderRules), "ip saddr @d drop"),
        (Some(SenderRules), "ip saddr vmap @v"),
        (Some(SenderRules), "limit name ip saddr map @limits drop"),
        (Some(CountingRules), "meta l4proto tcp ip saddr @a drop"),
        (Some(CountingRules), "udp dport @ports drop"),
        (Some(CountingRules), "quota name udp dport map @quotas drop"),
        (Some(CountingRules), "limit name l drop"),
        (Some(CountingRules), "quota name q drop"),
        (Some(CountingRules), "ct original packets > 9 drop"),
        (Some(CountingRules), "ct bytes > 9 drop"),
        (Some(CountingRules), "ct avgpkt > 9 drop"),
        (None, "ip saddr @counted drop"),
        (None, "counter name ip saddr map @counters"),
        (None, "counter name n"),
        (None, "ct mark 9 drop"),
    ];
    with_watch(|watch| {
        for (kind, text) in cases {
            sh(&rule(text));
            let found = watch.read(&[]);
            let kinds: Vec<_> = found.iter().map(|one| one.kind).collect();
            assert_eq!(kinds, Vec::from_iter(kind), "{text}: {found:?}");
            sh("nft delete table inet t");
        }
    });
}

/// A rule that goes by how much an address has sent.
#[test]
fn matches_by_an_ipsets_counters_are_found() {
    with_watch(|watch| {
        for (family, set) in [("iptables", "inet"), ("ip6tables", "inet6")] {
            let create = format!("ipset create {set} hash:ip family {set} counters");
            if let Err(error) = try_sh(&create) {
                println!("skipped: this kernel lacks ipset (CONFIG_IP_SET) ({})", error.trim());
                return;
            }
            for variant in ["nft", "legacy"] {
                let rule = |what: &str, counts: &str| {
                    format!(
                        "{family}-{variant} {what} INPUT -m set --match-set {set} src {counts} -j DROP"
                    )
                };
                for counts in ["--packets-gt 9", "--bytes-gt 9"] {
                    let commands = ["-A", "-D"].map(|what| rule(what, counts));
                    comes_and_goes(
                        watch,
                        SenderRules,
                        "with set",
                        commands.each_ref().map(|it| &**it),
                    );
                }
                sh(&rule("-A", ""));
                assert_eq!(watch.read(&[]), []);
            }
        }
    });
}

#[test]
fn packet_sockets_are_found_while_they_are_open() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, ipproto, socket_with};
    with_watch(|watch| {
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        let capture = socket_with(family, SocketType::RAW, flags, Some(eth::ALL)).unwrap();
        let found = watch.read(&[]);
        assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [PacketSocket]);
        assert!(!found[0].kind.passes());
        drop(capture);
        // A child of another test has it, too, until it executes its program.
        wait_until("it is gone", || watch.read(&[]).is_empty());
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let raw = socket_with(family, SocketType::RAW, flags, Some(ipproto::UDP)).unwrap();
            let found = watch.read(&[]);
            assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [PacketSocket]);
            assert_eq!(found[0].detail, "1 raw socket(s)");
            drop(raw);
            wait_until("it is gone", || watch.read(&[]).is_empty());
        }
    });
}

#[test]
fn rules_that_take_no_packet_elsewhere_are_let_off() {
    with_watch(|watch| {
        sh(r#"nft '
            table inet t {
                map m { type inet_service : verdict; elements = { 7 : drop }; }
                counter c { }
                chain user { udp dport 9 reject; return; }
                chain in {
                    type filter hook input priority 0; policy accept;
                    ct state established,related accept
                    iifname "near" udp dport vmap @m
                    counter name c
                    counter name udp dport map { 1 : "c", 2 : "c" }
                    log prefix "seen "
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
        sh("nft 'table inet v { synproxy p { mss 1460; wscale 7; }; chain c {
            type filter hook input priority 0; synproxy name tcp dport map { 80 : \"p\" }; }; }'");
        assert_eq!(watch.read(&[])[0].kind, Synproxy);
        sh("nft delete table inet v");
        // One chain that the kernel calls elsewhere does not excuse one that others may jump to.
        sh("nft 'table inet u { chain user { ip daddr set 198.18.0.9; }; }'");
        assert_eq!(watch.read(&[])[0].kind, HeaderRewrite);
    });
}

/// Without rules, they translate the connections that they know.
#[test]
fn rules_that_translate_are_found_and_their_tables_after_them() {
    let case = |watch: &mut DiversionWatch, [add, remove]: [&str; 2]| {
        let mut found = |script: &str| {
            sh(script);
            let found = watch.read(&[]);
            assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [Nat], "{script}");
            found[0].detail.clone()
        };
        assert!(found(add).contains("with "), "{add}");
        assert!(found(remove).contains(": no rules"), "{remove}");
    };
    with_watch(|watch| {
        let add = "nft 'table ip t { chain c { type nat hook output priority 0; udp dport 53 redirect; }; }'";
        case(watch, [add, "nft flush chain ip t c"]);
        sh("nft delete table ip t");
        assert_eq!(watch.read(&[]), []);
    });
    for family in ["iptables", "ip6tables"] {
        for variant in ["nft", "legacy"] {
            // A table of legacy iptables stays.
            with_watch(|watch| {
                let command = format!("{family}-{variant} -t nat");
                for rule in [
                    "PREROUTING -p udp --dport 53 -j REDIRECT --to-ports 5353",
                    "POSTROUTING -o far -j MASQUERADE",
                ] {
                    let [add, remove] = ["-A", "-D"].map(|what| format!("{command} {what} {rule}"));
                    case(watch, [&add, &remove]);
                }
            });
        }
    }
}

#[test]
fn rules_of_iptables_are_found_over_nftables_and_legacy() {
    let cases = [
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
                let add = format!(
                    "{command} -N own; {command} -A INPUT -j own; \
                     {command} -A own -p udp -j NFQUEUE"
                );
                let remove = format!("{command} -F own");
                comes_and_goes(watch, NfQueue, "NFQUEUE", [&add, &remove]);
            }
        }
    });
}

#[test]
fn ipvs_is_found_where_the_kernel_has_it() {
    if !std::path::Path::new("/proc/net/ip_vs").exists() {
        println!("skipped: this kernel lacks IPVS (CONFIG_IP_VS), or has not loaded it");
        return;
    }
    with_watch(|watch| {
        let commands = ["ipvsadm -A -u 198.18.0.1:53 -s rr", "ipvsadm -D -u 198.18.0.1:53"];
        comes_and_goes(watch, Ipvs, "virtual services, the first: UDP", commands);
    });
}
