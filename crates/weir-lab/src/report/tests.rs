use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::fixture::experiment;
use super::fixture_gate_cost::gate_cost;
use super::*;
use crate::results::{Experiment, Mode, Outcome, Point};

/// A directory of this test's own, removed at its end.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-report-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Every string of it tries to be markup.
fn hostile() -> Experiment {
    const SCRIPT: &str = "\"'><script>alert(1)</script>&";
    let text = || SCRIPT.to_owned();
    let mut hostile = experiment(&Mode::ALL);
    hostile.experiment = text();
    hostile.weir_version = text();
    hostile.started_at = text();
    hostile.machine.kernel = text();
    hostile.machine.cpu_model = text();
    hostile.machine.preemption = text();
    hostile.machine.mitigations = [(text(), text())].into();
    hostile.workload.application = text();
    hostile.workload.packets = text();
    for setup in hostile.setup.values_mut() {
        setup.driver_poll = text();
        setup.protocol = text();
        setup.gate = text();
        setup.application = text();
        setup.attach = text();
        setup.rps_cpus = text();
    }
    for goal in &mut hostile.goals {
        (goal.name, goal.want, goal.got) = (text(), text(), text());
    }
    hostile.sentence = text();
    hostile.warnings = vec![text()];
    hostile
}

/// Panics unless every element is closed in order and every `&` begins a reference.
pub(super) fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>'), "a bare > in {text:?}");
        assert!(text.split('&').skip(1).all(|after| after.contains(';')), "a bare & in {text:?}");
        let end = start + rest[start..].find('>').expect("a tag is not closed");
        let tag = &rest[start + 1..end];
        assert!(
            !tag.contains('<') && tag.matches('"').count().is_multiple_of(2),
            "broken tag {tag:?}"
        );
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_owned()), "closed out of order");
        } else if !tag.ends_with('/') && !tag.starts_with(['!', '?']) {
            let name = tag.split_whitespace().next().unwrap_or_default();
            open.push(name.to_owned());
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

#[test]
fn schema_is_kept() {
    let mut one = experiment(&[Mode::IdleWeir]);
    one.series.values_mut().for_each(|points| drop(points.drain(1..points.len() - 1)));
    one.bystander.values_mut().for_each(|points| points.truncate(1));
    one.goals.truncate(1);
    insta::assert_json_snapshot!(one);
}

#[test]
fn table_of_three_modes() {
    insta::assert_snapshot!(table(&experiment(&[Mode::Stock, Mode::Threaded, Mode::Weir])));
}

#[test]
fn table_of_every_mode_fits_a_terminal_of_100_columns() {
    let text = table(&experiment(&Mode::ALL));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    assert!(text.contains("* the tested CPU's speed"), "{text}");
    assert!(text.contains("! the generator sent over 5 % less than the target: threaded 3.2 M"));
    insta::assert_snapshot!(text);
}

#[test]
fn table_without_figures_still_says_something() {
    let mut empty = experiment(&[]);
    empty.trials.clear();
    let text = table(&empty);
    assert!(text.contains("No trial is recorded"), "{text}");
    assert!(text.ends_with("no rates were swept, so nothing is said of overload.\n"), "{text}");
}

#[test]
fn packets_in_no_counter_are_told() {
    let mut leaky = experiment(&[Mode::Stock]);
    leaky.trials[0].ledger.unaccounted = -12;
    assert!(table(&leaky).contains("12 of 5,100,000 packets offered in 1 trial are NOT accounted"));
    assert!(html(&leaky).unwrap().contains("NOT accounted"));
}

#[test]
fn table_passes_no_escape_sequence_on() {
    let mut hostile = experiment(&[Mode::Stock]);
    hostile.machine.kernel = "6.18\u{1b}[2J".to_owned();
    hostile.warnings = vec!["\u{9b}31mred".to_owned()];
    hostile.goals[0].name = "\u{7}bell".to_owned();
    assert!(table(&hostile).chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn sentence_follows_the_figures() {
    let modes = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Weir];
    assert_eq!(
        sentence(&experiment(&modes)),
        "On this kernel (6.18), stock delivers 2.1 k of 5.1 M packets/s at the top rate, 0.6 % of \
         its peak of 351 k: receive livelock; threaded keeps 41 %, niced 96 %, weir 95 % of its \
         own peak."
    );
    assert_eq!(
        sentence(&experiment(&[Mode::Stock])),
        "On this kernel (6.18), stock delivers 2.1 k of 5.1 M packets/s at the top rate, 0.6 % of \
         its peak of 351 k: receive livelock."
    );
    assert_eq!(
        sentence(&experiment(&[Mode::Weir])),
        "On this kernel (6.18), at the top rate of 5 M packets/s weir keeps 95 % of its own peak."
    );
}

/// `stock` as if it had delivered `overload_pps` at the top rate, after a peak of 351 k.
fn stock_at_top(overload_pps: f64) -> Experiment {
    let mut changed = experiment(&[Mode::Stock, Mode::Weir]);
    let summary = changed.summary.get_mut(&Mode::Stock).unwrap();
    summary.overload_pps = overload_pps;
    summary.peak_pps = summary.peak_pps.max(overload_pps);
    summary.retained = overload_pps / summary.peak_pps;
    changed
}

#[test]
fn sentence_claims_no_livelock_that_was_not_seen() {
    let held = sentence(&stock_at_top(340e3));
    assert!(held.contains("97 % of its peak of 351 k: no receive livelock was seen;"), "{held}");
    let falls = sentence(&stock_at_top(180e3));
    assert!(falls.contains("it loses throughput under overload, but no receive livelock"));
    let never = sentence(&stock_at_top(5.05e6));
    assert!(never.contains("it was not overloaded, so no receive livelock could be seen"));
    for text in [held, falls, never] {
        assert!(!text.contains(": receive livelock"), "{text}");
    }
}

#[test]
fn sentence_tells_other_modes_livelock_and_ease() {
    let mut other = experiment(&[Mode::Stock, Mode::Threaded, Mode::Weir]);
    let threaded = other.summary.get_mut(&Mode::Threaded).unwrap();
    (threaded.overload_pps, threaded.retained) = (0.0, 0.0);
    let weir = other.summary.get_mut(&Mode::Weir).unwrap();
    (weir.overload_pps, weir.peak_pps, weir.retained) = (5e6, 5e6, 1.0);
    other.machine.kernel = "unknown".to_owned();
    assert!(sentence(&other).starts_with("On this kernel, stock delivers"));
    assert!(sentence(&other).ends_with(
        "threaded keeps 0 % (receive livelock) of its own peak; weir was not overloaded."
    ));
}

#[test]
fn plot_is_well_formed_and_names_every_mode() {
    let svg = plot_svg(&experiment(&Mode::ALL)).unwrap();
    assert_well_formed(&svg);
    for mode in Mode::ALL {
        assert!(svg.contains(mode.name()), "{mode}");
    }
    assert!(svg.contains("all delivered") && svg.contains("hollow:"));
    assert_well_formed(&plot_svg(&hostile()).unwrap());
}

#[test]
fn plot_of_nothing_says_so() {
    assert!(plot_svg(&experiment(&[])).unwrap().contains("No rates were swept."));
}

#[test]
fn page_escapes_every_string() {
    let page = html(&hostile()).unwrap();
    assert!(!page.contains("<script"), "a string got through as markup");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"));
    // Only `<meta>` stands alone, in the head.
    let body = &page[page.find("<body>").unwrap()..page.find("</html>").unwrap()];
    assert_well_formed(body);
}

#[test]
fn page_needs_nothing_from_outside() {
    let page =
        html_all(&[experiment(&Mode::ALL).into(), experiment(&[Mode::Stock]).into()]).unwrap();
    let without = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for outside in ["http", "src=", "@import", "url(", "<link", "<script"] {
        assert!(!without.contains(outside), "{outside}");
    }
    assert!(page.contains("href=\"#experiment-1\"") && page.contains("id=\"experiment-1\""));
    assert!(page.contains("udp-overload.json") && page.contains("prefers-color-scheme"));
    assert!(page.contains("NAPI thread at nice 19") && page.contains("Retpolines"));
}

#[test]
fn what_is_written_is_read_back() {
    let scratch = Scratch::new("write");
    let dir = scratch.0.join("made/on/the/way");
    let written = Outcome::from(experiment(&Mode::ALL));
    let paths = write(&written, &dir).unwrap();
    let names = ["udp-overload.json", "udp-overload.svg", "report.html"];
    assert_eq!(paths, names.map(|name| dir.join(name)));
    // Nothing else is left behind, and a second run replaces the first.
    write(&written, &dir).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
    assert_eq!(read(&dir).unwrap(), [written]);
}

#[test]
fn one_page_covers_a_shared_directory() {
    let scratch = Scratch::new("shared");
    write(&experiment(&[Mode::Stock]).into(), &scratch.0).unwrap();
    fs::write(scratch.0.join("broken.json"), "{").unwrap();
    let mut other = experiment(&[Mode::Weir]);
    other.experiment = "other".to_owned();
    let other = Outcome::from(other);
    let paths = write(&other, &scratch.0).unwrap();
    let page = fs::read_to_string(&paths[2]).unwrap();
    assert!(page.contains("<h1>other</h1>") && page.contains("<h1>udp-overload</h1>"));
    assert!(page.contains("Left out: cannot read") && page.contains("broken.json"));
    assert_eq!(write_page(&[other], &scratch.0).unwrap(), paths[2]);
}

#[test]
fn a_broken_file_is_named_with_place_and_remedy() {
    let scratch = Scratch::new("broken");
    fs::create_dir_all(&scratch.0).unwrap();
    let file = scratch.0.join("cut.json");
    for (text, wanted) in [
        ("{\"schema\": 1,\n  oops", "cut.json as a result, line 2, column 3: key must be a string"),
        ("{\"packages\": {}}", "missing field `schema`"),
        ("{\"schema\": 1}", "missing field `experiment`"),
        ("{\"schema\": 7, \"new\": 1}", "it has schema 7 and this weir reads schema 1"),
    ] {
        fs::write(&file, text).unwrap();
        let error = read(&scratch.0).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("cut.json"), "{error}");
        assert!(error.contains("move it out") || error.contains("run the experiment again"));
    }
    let mut cut = serde_json::to_string_pretty(&experiment(&[Mode::Weir])).unwrap();
    cut.truncate(cut.len() / 2);
    fs::write(&file, cut).unwrap();
    assert!(matches!(read(&scratch.0), Err(ReportError::Malformed { line: 20.., .. })));
}

#[test]
fn an_empty_or_absent_directory_is_an_error_with_a_remedy() {
    let scratch = Scratch::new("empty");
    let absent = read(&scratch.0).unwrap_err().to_string();
    assert!(absent.starts_with("cannot list ") && absent.contains("results directory"));
    fs::create_dir_all(&scratch.0).unwrap();
    let empty = read(&scratch.0).unwrap_err().to_string();
    assert!(empty.starts_with("no results in ") && empty.contains("weir lab run"), "{empty}");
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_is_written() {
    let scratch = Scratch::new("refused");
    for name in ["", "../escape", "a/b", ".hidden"] {
        let mut named = experiment(&[Mode::Stock]);
        named.experiment = name.to_owned();
        assert!(
            matches!(write(&named.into(), &scratch.0), Err(ReportError::Name { .. })),
            "{name}"
        );
    }
    let mut endless = experiment(&[Mode::Stock]);
    endless.duration_s = f64::NAN;
    assert!(matches!(write(&endless.into(), &scratch.0), Err(ReportError::Figures { .. })));
    assert!(!scratch.0.exists());
    fs::write(&scratch.0, "a file in the way").unwrap();
    let error = write(&experiment(&[Mode::Stock]).into(), &scratch.0).unwrap_err().to_string();
    assert!(error.starts_with("cannot create the directory"), "{error}");
    fs::remove_file(&scratch.0).unwrap();
}

/// On the machine of the other fixture.
fn cost() -> crate::results::gate_cost::GateCost {
    gate_cost(experiment(&[]).machine)
}

#[test]
fn schema_of_gate_cost_is_kept() {
    let mut cost = cost();
    cost.machine.mitigations.clear();
    insta::assert_json_snapshot!(cost);
}

#[test]
fn table_of_gate_cost_fits_a_terminal_and_gives_no_figure_to_what_was_not_discarded() {
    let text = table(&cost());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    assert!(text.contains("not discarded") && text.contains("* the tested CPU's speed"), "{text}");
    assert!(text.contains("All 500,000 packets offered in 1 trial are accounted for."), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn gate_cost_says_what_it_saw() {
    let mut cost = cost();
    assert_eq!(
        sentence_of(&cost),
        "On this kernel (6.18), discarding a udp4 packet costs 300 ns with the driver (c_gate; a \
         bare XDP_DROP 90.0 ns), 30 % of the bare rate; the gate adds 110 ns to one that passes."
    );
    cost.summary.clear();
    assert_eq!(sentence_of(&cost), "On this kernel (6.18), nothing was measured.");
}

fn sentence_of(cost: &crate::results::gate_cost::GateCost) -> String {
    assert!(table(cost).contains("On this kernel (6.18), "));
    gate_cost_sentence(cost)
}

#[test]
fn gate_cost_is_written_read_back_and_shares_a_page() {
    let scratch = Scratch::new("gate-cost");
    write(&experiment(&[Mode::Stock]).into(), &scratch.0).unwrap();
    let written = Outcome::from(cost());
    let paths = write(&written, &scratch.0).unwrap();
    // It has no drawing.
    assert_eq!(paths, ["gate-cost.json", "report.html"].map(|name| scratch.0.join(name)));
    assert_eq!(read(&scratch.0).unwrap()[0], written);
    let page = fs::read_to_string(&paths[1]).unwrap();
    assert!(page.contains("<h1>gate-cost</h1>") && page.contains("<h1>udp-overload</h1>"));
    assert!(page.contains("c_gate") && page.contains("MLFRR") && page.contains("gate-cost.json"));
    assert_well_formed(&page[page.find("<body>").unwrap()..page.find("</html>").unwrap()]);
}

#[test]
fn a_result_of_no_known_experiment_is_refused_by_name() {
    let scratch = Scratch::new("unknown");
    fs::create_dir_all(&scratch.0).unwrap();
    let file = scratch.0.join("other.json");
    fs::write(&file, "{\"schema\": 1, \"experiment\": \"other\"}").unwrap();
    let error = read(&scratch.0).unwrap_err().to_string();
    assert!(error.contains("no experiment is named \"other\""), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever figures a file holds, a report comes of it, and the drawing is sound.
    #[test]
    fn any_figures_make_a_report(
        rates in prop::collection::vec((any::<f64>(), any::<f64>(), any::<bool>()), 0..6),
    ) {
        let mut odd = experiment(&Mode::ALL);
        for points in odd.series.values_mut() {
            let first: Point = points[0].clone();
            *points = rates
                .iter()
                .map(|(offered, delivered, marked)| {
                    let mut point = first.clone();
                    (point.offered_pps, point.delivered_pps) = (*offered, *delivered);
                    point.marked = *marked;
                    point
                })
                .collect();
        }
        prop_assert!(!table(&odd).is_empty());
        assert_well_formed(&plot_svg(&odd).unwrap());
    }
}
