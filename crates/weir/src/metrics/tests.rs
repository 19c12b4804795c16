//! What is made for those who read the metrics names metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use weir_bpf::sys::divert::DiversionKind;

use super::*;

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

/// Two may share a kind, and the later one pass less.
#[test]
fn a_diversion_that_passes_everything_is_not_hidden_by_another_of_its_kind() {
    let diversion = |passes_all| DiversionStatus {
        kind: DiversionKind::Nat,
        description: String::new(),
        detail: String::new(),
        passes_all,
        cost: String::new(),
        ports: Vec::new(),
    };
    let rows = by_diversion(&[diversion(true), diversion(false)]);
    let labels = vec![("kind", "nat".to_owned())];
    assert_eq!(rows.last(), Some(&(labels, 1.0)));
}

/// The server dies with the daemon, and the guardian removes what the daemon has published.
#[test]
fn an_alert_fires_when_a_killed_daemons_metrics_are_gone() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/weir.rules.yml");
    let fires = |at: &str, samples: &str| {
        format!(
            "- expr: count by (interface) (ALERTS{{alertname=\"WeirNotRunning\",alertstate=\"firing\"}})
      eval_time: {at}
      exp_samples: [{samples}]
    "
        )
    };
    let gone = "{labels: '{interface=\"gone\"}', value: 1}";
    let dead = "{labels: '{interface=\"dead\"}', value: 1}";
    let test = format!(
        "rule_files: [{rules}]
tests:
  - interval: 15s
    input_series:
    - {{series: 'weir_protected{{interface=\"well\"}}', values: '1x300'}}
    - {{series: 'weir_protected{{interface=\"gone\"}}', values: '1x40 stale'}}
    - {{series: 'weir_protected{{interface=\"dead\"}}', values: '1x40 0x300'}}
    promql_expr_test:
    {}{}{}",
        fires("10m", ""),
        fires("15m", &format!("{gone}, {dead}")),
        fires("75m", dead),
    );
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, test.as_bytes()).unwrap();
    promtool(&["test", "rules", file.path().to_str().unwrap()]);
}
