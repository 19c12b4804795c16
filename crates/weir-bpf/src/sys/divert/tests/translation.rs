//! What rules translate, by the real `nft` and both kinds of `iptables`, where the gate can ask conntrack.

use super::DiversionKind::*;
use super::*;

/// What is found after a script: the kinds, and the ports as they are printed.
fn found(watch: &mut DiversionWatch, script: &str) -> (Vec<DiversionKind>, Vec<String>) {
    sh(script);
    let found = watch.read(&[]);
    let ports = found.iter().flat_map(|one| &one.ports).map(ToString::to_string);
    (found.iter().map(|one| one.kind).collect(), ports.collect())
}

const FLUSH: &str = "nft flush ruleset";

/// Each rule in a chain of its own kind, and the ports that it is for.
#[test]
fn rules_are_for_the_ports_that_they_name() {
    let all = ["tcp, all ports", "udp, all ports"];
    let cases: [(&str, &[&str]); 18] = [
        ("tcp dport 8080 dnat to 198.18.5.2:80", &["tcp 8080"]),
        ("ip daddr 198.18.0.1 iifname != \"docker0\" udp dport 53 redirect to :5353", &["udp 53"]),
        ("tcp dport 8000-8100 redirect", &["tcp 8000-8100"]),
        ("udp dport >= 60000 redirect", &["udp 60000-65535"]),
        ("udp dport != 60000 redirect", &["udp, all ports"]),
        ("ip protocol tcp redirect", &["tcp, all ports"]),
        ("meta l4proto { tcp, udp } th dport 53 redirect to :53", &["tcp 53", "udp 53"]),
        ("tcp sport 8080 redirect", &["tcp, all ports"]),
        ("tcp dport & 0xff == 80 redirect", &["tcp, all ports"]),
        ("tcp dport { 80, 443 } redirect", &["tcp 80", "tcp 443"]),
        (
            "udp dport { 53, 1000-1010, 65000-65535 } redirect",
            &["udp 53", "udp 1000-1010", "udp 65000-65535"],
        ),
        ("tcp dport != { 80, 443 } redirect", &["tcp, all ports"]),
        ("tcp sport { 80, 443 } redirect", &["tcp, all ports"]),
        ("tcp dport { 80, 443, 8080 } tcp dport 400-9000 redirect", &["tcp 443", "tcp 8080"]),
        ("ip daddr . udp dport { 198.18.0.1 . 53 } redirect", &["udp, all ports"]),
        ("dnat to tcp dport map { 80 : 198.18.5.2 }", &["tcp 80"]),
        ("meta l4proto icmp dnat to 198.18.5.2", &[]),
        ("dnat to 198.18.5.2", &all),
    ];
    with_watch_of(true, |watch| {
        for (rule, ports) in cases {
            let script = format!(
                "nft 'table ip t {{ chain c {{ type nat hook prerouting priority -100; {rule}; }}; }}'"
            );
            let (kinds, named) = found(watch, &script);
            match ports {
                // All that there is: then there is nothing to be told apart.
                _ if ports == all => assert_eq!((kinds, named), (vec![Nat], vec![]), "{rule}"),
                [] => assert_eq!((kinds, named), (vec![TranslatedConnections], vec![]), "{rule}"),
                _ => {
                    assert_eq!(kinds, [TranslatedConnections, TranslatedPorts], "{rule}");
                    assert_eq!(named, ports, "{rule}");
                }
            }
            sh(FLUSH);
        }
    });
}

/// A change of its elements is not looked at, so its elements do not count.
#[test]
fn a_set_that_may_change_is_for_all_ports() {
    with_watch_of(true, |watch| {
        let table = |flags: &str| {
            format!(
                "nft 'table ip t {{ set s {{ type inet_service; {flags} elements = {{ 80 }}; }}; \
                 chain c {{ type nat hook prerouting priority -100; tcp dport @s redirect; }}; }}'"
            )
        };
        assert_eq!(found(watch, &table("")).1, ["tcp, all ports"]);
        sh(FLUSH);
        assert_eq!(found(watch, &table("flags constant;")).1, ["tcp 80"]);
    });
}

/// As Docker, kube-proxy and libvirt have them.
#[test]
fn chains_that_are_jumped_to_are_for_what_comes_to_them() {
    with_watch_of(true, |watch| {
        let script = "nft 'table ip nat {
                chain PREROUTING { type nat hook prerouting priority -100; fib daddr type local jump DOCKER; }
                chain OUTPUT { type nat hook output priority -100; fib daddr type local jump DOCKER;
                    udp dport 7 dnat to 198.18.5.2; }
                chain POSTROUTING { type nat hook postrouting priority 100;
                    ip saddr 198.18.5.0/24 oifname != \"docker0\" masquerade; }
                chain DOCKER { iifname \"docker0\" return;
                    iifname != \"docker0\" tcp dport 8080 dnat to 198.18.5.2:80;
                    udp dport 5353 dnat to 198.18.5.2:53; }
            }'";
        let (kinds, ports) = found(watch, script);
        assert_eq!(kinds, [TranslatedConnections, TranslatedPorts]);
        assert_eq!(ports, ["tcp 8080", "udp 5353"]);
        let detail = &watch.read(&[])[1].detail;
        assert_eq!(detail, "tcp 8080, udp 5353: table ip nat, chain DOCKER");
        sh(FLUSH);
        // A port is named by a chain and its protocol by another.
        let script =
            "nft 'table ip t { chain c { type nat hook prerouting priority -100; jump d; };
                chain d { tcp dport 443 goto e; tcp dport 444 jump e; udp dport 7 return; };
                chain e { meta mark 1 jump f; }; chain f { dnat to 198.18.5.2; }; }'";
        let (_, ports) = found(watch, script);
        assert_eq!(ports, ["tcp 443-444"]);
        sh(FLUSH);
        // A map may lead to any chain, with what comes to it.
        let script = "nft 'table ip t { map m { type inet_service : verdict; };
                chain c { type nat hook prerouting priority -100; meta l4proto tcp tcp dport vmap @m; };
                chain e { tcp dport 1-99 dnat to 198.18.5.2:6443; udp dport 7 redirect; }; }'";
        let (_, ports) = found(watch, script);
        assert_eq!(ports, ["tcp 1-99"]);
        sh(FLUSH);
        let script =
            "nft 'table ip t { chain c { type nat hook postrouting priority 100; masquerade; }; }'";
        let (kinds, ports) = found(watch, script);
        assert_eq!((kinds, ports), (vec![TranslatedConnections], vec![]));
        sh("nft flush chain ip t c");
        assert_eq!(watch.read(&[])[0].kind, TranslatedConnections, "known ones are translated on");
    });
}

#[test]
fn iptables_of_both_kinds_are_read() {
    let cases: [(&str, &[&str]); 9] = [
        ("PREROUTING -p tcp --dport 8080 -j DNAT --to-destination :80", &["tcp 8080"]),
        ("PREROUTING -p udp --dport 53:60 -j REDIRECT", &["udp 53-60"]),
        (
            "PREROUTING -p tcp -m multiport --dports 80,443,8000:8010 -j REDIRECT",
            &["tcp 80", "tcp 443", "tcp 8000-8010"],
        ),
        ("PREROUTING -p tcp -m multiport ! --dports 80,443 -j REDIRECT", &["tcp, all ports"]),
        ("PREROUTING -p tcp -m multiport --sports 80,443 -j REDIRECT", &["tcp, all ports"]),
        ("PREROUTING -p tcp -m multiport --ports 80,443 -j REDIRECT", &["tcp, all ports"]),
        ("PREROUTING -p udp ! --dport 53 -j REDIRECT", &["udp, all ports"]),
        ("OUTPUT -p udp --dport 53 -j REDIRECT", &[]),
        ("POSTROUTING -o far -j MASQUERADE", &[]),
    ];
    for family in ["iptables", "ip6tables"] {
        for variant in ["nft", "legacy"] {
            // A table of legacy iptables stays.
            with_watch_of(true, |watch| {
                let command = format!("{family}-{variant} -t nat");
                for (rule, ports) in cases {
                    let (kinds, named) = found(watch, &format!("{command} -A {rule}"));
                    let expected = [TranslatedConnections, TranslatedPorts];
                    assert_eq!(kinds, expected[..1 + ports.len().min(1)], "{command} {rule}");
                    assert_eq!(named, ports, "{command} {rule}");
                    sh(&format!("{command} -F"));
                }
                let script = format!(
                    "{command} -N own; {command} -A PREROUTING -j own; \
                     {command} -A own -p tcp --dport 8080 -j REDIRECT"
                );
                let (_, named) = found(watch, &script);
                assert_eq!(named, ["tcp 8080"]);
                sh(&format!("{command} -A PREROUTING -p tcp -j REDIRECT"));
                sh(&format!("{command} -A PREROUTING ! -p tcp -j REDIRECT"));
                assert_eq!(watch.read(&[])[0].kind, Nat, "everything");
            });
        }
    }
}

/// Where conntrack does not tell whose a packet is, nothing is narrowed down.
#[test]
fn zones_and_helpers_make_everything_pass() {
    let masquerade =
        "nft 'table ip n { chain c { type nat hook postrouting priority 100; masquerade; }; }'";
    let table = |rule: &str, object: &str| {
        format!(
            "nft 'table ip t {{ {object} chain c {{ type filter hook output priority -300; {rule}; }}; }}'"
        )
    };
    let expectation =
        "ct expectation e { protocol udp; dport 5000; timeout 1m; size 9; l3proto ip; };";
    let cases = [
        (table("ct zone set 1", ""), true),
        (table("ct mark set 1", ""), false),
        (table("notrack", ""), false),
        (table("accept", expectation), true),
        ("iptables-nft -t raw -A PREROUTING -p udp -j CT --zone 1".into(), true),
        ("iptables-nft -t raw -A PREROUTING -p udp -j CT --notrack".into(), false),
        ("iptables-legacy -t raw -A OUTPUT -p udp -j CT --zone 1".into(), true),
    ];
    for (script, passes) in cases {
        with_watch_of(true, |watch| {
            sh(masquerade);
            let found = found(watch, &script).0;
            let expected = if passes { Nat } else { TranslatedConnections };
            assert!(found.contains(&expected), "{script}: {found:?}");
            assert_eq!(watch.read(&[]).iter().any(|it| it.kind.passes()), passes, "{script}");
        });
    }
}
