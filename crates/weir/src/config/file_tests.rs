//! What a file may say, and what is said of one that may not.

use weir_bpf::cpulist::CpuList;
use weir_bpf::units::{CpuId, Nice};
use weir_bpf::verdict::Kind;
use weir_policy::{Nanos, Prefer, Share};

use super::*;
use crate::choice::{Attach, Forward, Napi};
use crate::shares::{Selector, WeightRule};

fn parse(text: &str) -> Result<ConfigFile, ConfigError> {
    ConfigFile::parse(Path::new("w.toml"), text.as_bytes())
}

/// Everything that is said of a wrong file.
fn problems(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn sourced<T>(value: T, origin: Origin) -> Option<Sourced<T>> {
    Some(Sourced { value, origin })
}

#[test]
fn every_setting_is_read_with_its_line() {
    let text = "# weir\n\
        user_share = \"70%\"\n\
        prefer = \"throughput\"\n\
        timeout = '2ms'\n\
        period = \"\"\"20ms\"\"\"\n\
        nice = -5\n\
        attach = \"tc\"\n\
        cpus = \"0-1,3\"\n\
        napi = \"softirq\"\n\
        selective = false\n\
        forward = \"xdp\"\n\
        [interface.eth0]\n\
        user_share = \"25.5%\"\n\
        [interface.\"eth0.5\"]\r\n\
        nice = 5\n\
        [interface.eth1]\n";
    let file = parse(text).unwrap();
    let at = |line| Origin::File(Line(line));
    let cpus = CpuList([0, 1, 3].map(CpuId).to_vec());
    let everywhere = Layer {
        user_share: sourced(Share::percent(70.0).unwrap(), at(2)),
        prefer: sourced(Prefer::Throughput, at(3)),
        timeout: sourced(Nanos::from_millis(2), at(4)),
        period: sourced(Nanos::from_millis(20), at(5)),
        nice: sourced(Some(Nice(-5)), at(6)),
        attach: sourced(Attach::Tc, at(7)),
        cpus: sourced(Some(cpus), at(8)),
        napi: sourced(Some(Napi::Softirq), at(9)),
        selective: sourced(false, at(10)),
        forward: sourced(Forward::Xdp, at(11)),
        ..Layer::default()
    };
    assert_eq!(file.everywhere, everywhere);
    let eth0 = &file.interfaces["eth0"];
    let share = Share::percent(25.5).unwrap();
    assert_eq!(eth0.user_share, sourced(share, Origin::Interface(Line(13))));
    let vlan = &file.interfaces["eth0.5"];
    assert_eq!(vlan.nice, sourced(Some(Nice(5)), Origin::Interface(Line(15))));
    assert_eq!(file.interfaces["eth1"], Layer::default());
}

#[test]
fn presets_are_ports_by_name() {
    let file = parse("[shares]\npresets = [\"etcd\", \"vrrp\"]\nprotected = [5000]\n").unwrap();
    let shares = &file.shares;
    assert_eq!(shares.settings().protected, [2379, 2380, 5000].into());
    for wrong in ["\"etcd\"", "[\"etdc\"]", "[2379]"] {
        let problems = parse(&format!("[shares]\npresets = {wrong}\n")).unwrap_err().to_string();
        assert!(
            problems.contains(":2: presets = ") && problems.contains("there are kubelet, "),
            "{problems}"
        );
    }
}

#[test]
fn metrics_are_of_the_host_and_stay_on_it() {
    let file = parse("metrics = \"[::1]:9463\"\n").unwrap();
    assert_eq!(file.metrics, sourced("[::1]:9463".parse().unwrap(), Origin::File(Line(1))));
    for (wrong, says) in [
        ("metrics = \"0.0.0.0:9463\"\n", "an address of loopback"),
        ("metrics = \"127.0.0.1\"\n", "an address of loopback"),
        ("metrics = 9463\n", "an address of loopback"),
        ("[interface.eth0]\nmetrics = \"127.0.0.1:9463\"\n", "above the first section"),
    ] {
        let problems = parse(wrong).unwrap_err().to_string();
        assert!(problems.contains(says), "{problems}");
    }
}

#[test]
fn shares_are_read_with_their_lines() {
    let text = "[shares]\n\
        enforce = false\n\
        control = \"7.5%\"\n\
        protected = [22, 5000,\n  5001]\n\
        [[shares.weight]]\n\
        port = 53\n\
        weight = 4\n\
        [[shares.weight]]\n\
        weight = 0.5\n\
        process = \"named\"\n\
        [[shares.weight]]\n\
        unit = \"named.service\"\n\
        weight = 1e1\n\
        [[shares.weight]]\n\
        cgroup = \"/user.slice\"\n\
        weight = 0.001\n\
        [[shares.weight]]\n\
        kind = \"tcp-request\"\n\
        weight = 1000\n";
    let shares = parse(text).unwrap().shares;
    let at = |line| Origin::File(Line(line));
    assert_eq!(shares.enforce, sourced(false, at(2)).unwrap());
    assert_eq!(shares.control, sourced(Share::percent(7.5).unwrap(), at(3)).unwrap());
    assert_eq!(shares.protected, sourced([22, 5000, 5001].into(), at(4)).unwrap());
    let rule =
        |whose, weight, line| Sourced { value: WeightRule { whose, weight }, origin: at(line) };
    let weights = [
        rule(Selector::Port(53), 4.0, 6),
        rule(Selector::Process("named".into()), 0.5, 9),
        rule(Selector::Unit("named.service".into()), 10.0, 12),
        rule(Selector::Cgroup("/user.slice".into()), 0.001, 15),
        rule(Selector::Kind(Kind::TcpRequest), 1000.0, 18),
    ];
    assert_eq!(shares.weights, weights);
    // The same in another way.
    let inline = parse("shares.weight = [{ port = 53, weight = 4 }]").unwrap();
    assert_eq!(inline.shares.weights, [rule(Selector::Port(53), 4.0, 1)]);
    assert_eq!(parse("[shares]\n").unwrap().shares, EffectiveShares::default());
}

#[test]
fn a_wrong_share_is_named_with_its_line_and_what_is_allowed() {
    let is_said = |line: usize, text: &str, said: &str| {
        let said_of = problems(text);
        assert!(said_of.starts_with(&format!("w.toml:{line}: ")), "{text}: {said_of}");
        assert!(said_of.contains(said) && !said_of.contains('\n'), "{text}: {said_of}");
    };
    is_said(1, "shares = 3", "write a section, [shares]");
    let each = "[[shares.weight]], for each weight";
    is_said(1, "[shares.weight]\nport = 53", each);
    for (text, said) in [
        ("enforce = \"true\"", "enforce = \"true\": write it without quotes"),
        ("enforce = 1", "enforce = 1: write true or false"),
        ("control = 5", "control = 5: write a percentage from 1% to 50%, with the sign"),
        ("control = \"51%\"", "such as \"5%\""),
        ("protected = 22", "protected = 22: write a list of ports from 1 to 65535"),
        ("protected = [0]", "such as [5000, 5001]"),
        ("protected = [22, \"23\"]", "protected = [22, \"23\"]: write a list of ports"),
        ("protected = [[22]]", "write a list of ports"),
        ("enforced = true", "there is no setting \"enforced\" of shares; there are enforce, "),
        ("user_share = \"50%\"", "there is no setting \"user_share\" of shares"),
        ("weight = 4", each),
        ("weight = [4]", each),
    ] {
        is_said(2, &format!("[shares]\n{text}"), said);
    }
    for (line, weight, said) in [
        (1, "weight = 4", "write whose weight it is: one of port, process, unit, cgroup, kind"),
        (1, "port = 53\nkind = \"udp\"\nweight = 4", "a weight has exactly one of port, process,"),
        (1, "port = 53", "write the weight itself, such as weight = 4"),
        (3, "port = 53\nweight = 0", "weight = 0: write a number from 0.001 to 1000"),
        (3, "port = 53\nweight = \"4\"", "weight = \"4\": write it without quotes"),
        (3, "port = 53\nweight = inf", "weight = inf: write a number"),
        (3, "port = 53\nweight = []", "weight = []: write a number"),
        (2, "port = 0\nweight = 4", "port = 0: write a port's number from 1 to 65535"),
        (2, "port = \"53\"\nweight = 4", "port = \"53\": write it without quotes"),
        (2, "process = \"a-process-of-this-name\"\nweight = 4", "of at most 15 bytes"),
        (2, "unit = \"named\"\nweight = 4", "unit = \"named\": write a systemd unit with its"),
        (2, "cgroup = \"user.slice\"\nweight = 4", "cgroup = \"user.slice\": write a control"),
        (2, "kind = \"other\"\nweight = 4", "kind = \"other\": write a kind of channel: udp, "),
        (2, "kind = udp\nweight = 4", ""),
        (3, "port = 53\nwait = 4\nweight = 4", "there is no setting \"wait\" of a weight; "),
        (
            5,
            "port = 53\nweight = 4\n\n[[shares.weight]]\nport = 53\nweight = 5",
            "port 53 has a weight already, from line 1 on",
        ),
    ] {
        is_said(line, &format!("[[shares.weight]]\n{weight}"), said);
    }
    // All at once, with the rest of the file's.
    let text = "nice = 99\n[shares]\ncontrol = 1\n[[shares.weight]]\nport = 0\nweight = -1\n[[shares.weight]]\n";
    let said = problems(text);
    let lines: Vec<&str> = said.lines().map(|line| &line[..9]).collect();
    assert_eq!(
        lines,
        ["w.toml:1:", "w.toml:3:", "w.toml:5:", "w.toml:6:", "w.toml:7:", "w.toml:7:"],
        "{said}"
    );
}

#[test]
fn numbers_are_written_in_every_way_that_toml_has() {
    let text = "nice = 0xf\n\
        [shares]\n\
        protected = [10_250, 0b111]\n\
        [[shares.weight]]\n\
        port = 5_000\n\
        weight = 1_0.2_5\n";
    let file = parse(text).unwrap();
    assert_eq!(file.everywhere.nice, sourced(Some(Nice(15)), Origin::File(Line(1))));
    assert_eq!(file.shares.protected.value, [7, 10_250].into());
    let WeightRule { whose, weight } = &file.shares.weights[0].value;
    assert_eq!((whose, *weight), (&Selector::Port(5000), 10.25));
    let most = format!("nice = {}", i128::MAX);
    assert!(problems(&most).starts_with(&format!("w.toml:1: {most}: write a whole number")));
}

#[test]
fn nothing_is_a_valid_file() {
    for text in ["", "\n", "# nothing", "[interface]", "\u{feff}nice = 1"] {
        assert!(parse(text).is_ok(), "{text:?}");
    }
    assert!(ConfigFile::read(Path::new("/dev/null")).is_ok());
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_is_allowed() {
    for (line, said) in [
        ("user_share = 50", "user_share = 50: write a percentage from 1% to 99%, with the sign"),
        ("user_share = \"0.5\"", "user_share = \"0.5\": write a percentage from 1% to 99%"),
        ("user_share = \"100%\"", "user_share = \"100%\": write a percentage from 1% to 99%"),
        ("prefer = \"both\"", "prefer = \"both\": write \"separation\" or \"throughput\""),
        ("timeout = 1", "timeout = 1: write a time from 100us to 100ms, with its unit"),
        ("period = \"2s\"", "period = \"2s\": write a time from 1ms to 1s, with its unit"),
        ("nice = 20", "nice = 20: write a whole number from -20 (heaviest) to 19 (lightest)"),
        ("nice = \"5\"", "nice = \"5\": write it without quotes"),
        ("selective = \"true\"", "selective = \"true\": write it without quotes"),
        ("selective = 1", "selective = 1: write true or false"),
        ("attach = \"driver\"", "write \"auto\" or \"native\" or \"generic\" or \"tc\""),
        ("cpus = \"3-1\"", "cpus = \"3-1\": \"3-1\" runs backwards; write 1-3"),
        ("cpus = 3", "cpus = 3: write it in quotes"),
        ("cpus = [\"0-3\"]", "is not a CPU number; write a list such as \"0-3,8\""),
        ("cpus = [0, 1]", "cpus = [0, 1]: "),
        ("usershare = \"50%\"", "there is no setting \"usershare\"; the settings are user_share, "),
        ("Nice = 1", "there is no setting \"Nice\"; the settings are "),
        ("interface = 3", "write a section, such as [interface.eth0]"),
        (
            "interface.protect = true",
            "belong under an interface's section, such as [interface.eth0]",
        ),
        ("[nice]", "nice is no section: write a whole number"),
        ("[nonsense]", "there is no setting \"nonsense\""),
        ("[interface.eth0.5]", "write it in quotes: [interface.\"eth0.5\"]"),
        ("[interface.\"a/b\"]", "\"a/b\" cannot be an interface's name"),
        ("[interface.sixteen-letters-]", "write one of at most 15 bytes"),
    ] {
        let said_of = problems(&format!("# one\n# two\n{line}\n"));
        let start = "w.toml:3: ";
        assert!(said_of.starts_with(start) && said_of.contains(said), "{line}: {said_of}");
        assert!(!said_of.contains('\n'), "{line}: {said_of}");
    }
}

#[test]
fn all_mistakes_are_named_in_the_order_of_their_lines() {
    let said = problems("[interface.eth0]\nnice = 99\nfoo = 1\n[interface.eth1]\nprefer = 1\n");
    let lines: Vec<&str> = said.lines().map(|line| &line[..9]).collect();
    assert_eq!(lines, ["w.toml:2:", "w.toml:3:", "w.toml:5:"]);
}

#[test]
fn what_is_no_toml_is_named_with_its_line() {
    for text in ["\nnice = 1\nnice = 2", "\n\nnice =", "\n\n= 1", "\n\n[interface", "\n\nnice 1"] {
        let said = problems(text);
        assert!(said.starts_with("w.toml:3: "), "{text:?}: {said}");
    }
    for text in ["user_share = 50%", "timeout = 1ms", "prefer = throughput"] {
        let said = problems(text);
        assert!(said.starts_with("w.toml:1: "), "{text:?}: {said}");
        assert!(said.contains("is a string, such as \"50%\""), "{text:?}: {said}");
    }
    let error = ConfigFile::parse(Path::new("w.toml"), b"nice = 1\nprefer = \"\xff\"").unwrap_err();
    assert_eq!(error.to_string(), "w.toml:2: this is not UTF-8 text, as TOML must be");
}

#[test]
fn long_values_are_shown_in_part() {
    let said = problems(&format!("prefer = \"{}\"", "x".repeat(1000)));
    assert!(said.contains("xxx...: write ") && said.len() < 150, "{said}");
}

#[test]
fn a_file_that_cannot_be_one_is_refused() {
    let unreadable = ConfigFile::read(Path::new("/nonexistent/weir.toml")).unwrap_err().to_string();
    assert!(unreadable.contains("cannot read the configuration /nonexistent/weir.toml: No such"));
    let large = ConfigFile::read(Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(large.contains("/dev/zero: it is larger than 65536 bytes"), "{large}");
}
