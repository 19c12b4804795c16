//! What is made for those who read the metrics names metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use weir_bpf::attach::AttachMode;
use weir_bpf::sys::divert::DiversionKind;

use super::*;
use crate::softirq::LimitStatus;

/// The names in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.strip_prefix("weir_").is_some_and(|rest| !rest.is_empty())).collect()
}

/// The families' names, a counter's as it is printed.
fn there() -> BTreeSet<String> {
    let gauges = GAUGES.iter().map(|(name, ..)| format!("weir_{name}"));
    gauges.chain(COUNTERS.iter().map(|(name, ..)| format!("weir_{name}_total"))).collect()
}

/// A panel of a metric that weir has not stays empty, and an alert on it never fires.
#[test]
fn the_dashboard_the_alerts_and_the_docs_name_metrics_that_there_are() {
    let there = there();
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let rules = format!("{root}/deploy/prometheus/weir.rules.yml");
    let dashboard = format!("{root}/deploy/grafana/weir.json");
    let parsed = fs::read_to_string(&dashboard).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&parsed).unwrap();
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 4));
    for path in [&rules, &dashboard, &format!("{root}/docs/metrics.md")] {
        let text = fs::read_to_string(path).unwrap();
        let named = names(&text);
        let unknown: Vec<&&str> = named.difference(&there).collect();
        assert!(named.len() > 4 && unknown.is_empty(), "{path}: {unknown:?} of {there:?}");
    }
    promtool(&["check", "rules", &rules]);
}

fn promtool(arguments: &[&str]) {
    // Where setup.sh has put it, else the system's.
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/promtool");
    let program = if Path::new(own).exists() { own } else { "promtool" };
    match Command::new(program).args(arguments).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => println!("rules not checked: promtool (Debian: prometheus): {error}"),
    }
}

fn diversion(passes_all: bool) -> DiversionStatus {
    DiversionStatus {
        kind: DiversionKind::Nat,
        description: String::new(),
        detail: String::new(),
        passes_all,
        cost: String::new(),
        ports: Vec::new(),
    }
}

/// The limit does not ask where packets go.
#[test]
fn a_gate_that_softirqs_limit_may_discard_what_something_may_divert() {
    let limit = Some(LimitStatus { input_share: 0.5, discarded: 0, cpus: Vec::new() });
    let discards = |diversions: &[bool], softirq_limit: &Option<LimitStatus>| {
        let status = InterfaceStatus {
            diversions: diversions.iter().map(|passes_all| diversion(*passes_all)).collect(),
            softirq_limit: softirq_limit.clone(),
            ..Default::default()
        };
        status.discards()
    };
    assert!(discards(&[], &None) && discards(&[false], &None) && !discards(&[true], &None));
    assert!(discards(&[], &limit) && discards(&[true], &limit));
}

#[test]
fn a_gate_discards_nothing_before_its_daemon_has_reported_and_while_that_is_stopped() {
    let attach = Some(AttachMode::Tcx);
    let reports = InterfaceStatus { running: true, attach, ..Default::default() };
    assert!(reports.discards());
    assert!(!InterfaceStatus { attach: None, ..reports.clone() }.discards());
    assert!(!InterfaceStatus { stalled: true, ..reports }.discards());
}

/// A counter that began at 0 would rise by all that it was before once its interface is protected.
#[test]
fn an_interface_that_is_still_to_be_protected_has_no_counters() {
    let attach = Some(AttachMode::Tcx);
    let awaited = InterfaceStatus { interface: "ppp0".into(), ..Default::default() };
    let protected = InterfaceStatus { interface: "eth0".into(), attach, ..Default::default() };
    let text = openmetrics(&[awaited, protected], false);
    assert!(text.contains("weir_protected{interface=\"ppp0\"} 0"), "{text}");
    let has =
        |interface| text.contains(&format!("weir_udp_late_drops_total{{interface={interface:?}}}"));
    assert!(has("eth0") && !has("ppp0"), "{text}");
}

/// Two may share a kind, and the later one pass less.
#[test]
fn a_diversion_that_passes_everything_is_not_hidden_by_another_of_its_kind() {
    let rows = by_diversion(&[diversion(true), diversion(false)]);
    let labels = vec![("kind", "nat".to_owned())];
    assert_eq!(rows.last(), Some(&(labels, 1.0)));
}

/// An alert of the rules by what samples, `SERIES: VALUES`: what is firing at a time, without what it is called.
fn fires(alert: &str, series: &[(&str, &str)], at: &[(&str, &[&str])]) {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/weir.rules.yml");
    let mut test = format!("rule_files: [{rules}]\ntests:\n- interval: 15s\n  input_series:\n");
    for (series, values) in series {
        test.push_str(&format!("  - {{series: '{series}', values: '{values}'}}\n"));
    }
    test.push_str("  promql_expr_test:\n");
    for (at, labels) in at {
        let samples = labels.iter().map(|labels| format!("{{labels: '{labels}', value: 1}}"));
        let samples = samples.collect::<Vec<_>>().join(", ");
        let expr = format!(
            "count by (interface, instance) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"
        );
        test.push_str(&format!(
            "  - expr: {expr}\n    eval_time: {at}\n    exp_samples: [{samples}]\n"
        ));
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, test.as_bytes()).unwrap();
    promtool(&["test", "rules", file.path().to_str().unwrap()]);
}

/// The server dies with the daemon, and the guardian removes what the daemon has published.
#[test]
fn an_alert_fires_when_a_killed_daemons_metrics_are_gone() {
    let of = ["{interface=\"gone\"}", "{interface=\"dead\"}"];
    fires(
        "WeirNotRunning",
        &[
            ("weir_protected{interface=\"well\"}", "1x300"),
            ("weir_protected{interface=\"gone\"}", "1x40 stale"),
            ("weir_protected{interface=\"dead\"}", "1x40 0x300"),
        ],
        &[("10m", &[]), ("15m", &of), ("75m", &of[1..])],
    );
}

#[test]
fn an_alert_fires_once_for_a_figure_of_all_interfaces_and_for_a_file_that_nobody_writes() {
    fires(
        "WeirLateDrops",
        &[
            ("weir_udp_late_drops_total{instance=\"a\",interface=\"eth0\"}", "0+3000x300"),
            ("weir_udp_late_drops_total{instance=\"a\",interface=\"eth1\"}", "0+3000x300"),
        ],
        &[("20m", &["{instance=\"a\"}"])],
    );
    // A second's worth for each second, then none.
    fires(
        "WeirSilent",
        &[
            ("weir_status_age_seconds{instance=\"a\",interface=\"eth0\"}", "0x300"),
            (
                "node_textfile_mtime_seconds{instance=\"a\",file=\"/d/weir.prom\"}",
                "0+15x40 600x300",
            ),
        ],
        &[("9m", &[]), ("15m", &["{instance=\"a\"}"])],
    );
}
