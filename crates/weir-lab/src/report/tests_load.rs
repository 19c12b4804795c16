//! The reports of the experiments in which several things want the CPU.

use super::fixture::experiment;
use super::fixture_load::{kinds, neighbour, separation, user_share};
use super::tests::{Scratch, assert_well_formed};
use super::*;
use crate::results::{Mode, Outcome};

fn each() -> [Outcome; 4] {
    [neighbour().into(), separation().into(), kinds().into(), user_share().into()]
}

#[test]
fn schema_of_the_neighbour_is_kept() {
    insta::assert_json_snapshot!(neighbour());
}

#[test]
fn schema_of_separation_is_kept() {
    insta::assert_json_snapshot!(separation());
}

#[test]
fn schema_of_kinds_is_kept() {
    insta::assert_json_snapshot!(kinds());
}

#[test]
fn schema_of_user_share_is_kept() {
    insta::assert_json_snapshot!(user_share());
}

#[test]
fn their_tables_fit_a_terminal_of_100_columns() {
    for outcome in each() {
        let text = table(outcome.view());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert!(text.contains("All 5,100,000 packets offered in 1 trial are accounted for."));
        insta::assert_snapshot!(format!("table_of_{}", outcome.name()), text);
    }
}

#[test]
fn they_are_written_read_back_and_share_a_page() {
    let scratch = Scratch::new("load");
    write(&experiment(&[Mode::Stock]).into(), &scratch.0).unwrap();
    for outcome in each() {
        let paths = write(&outcome, &scratch.0).unwrap();
        let name = outcome.name();
        let names = [format!("{name}.json"), format!("{name}.svg"), "report.html".to_owned()];
        assert_eq!(paths, names.map(|name| scratch.0.join(name)));
        let svg = std::fs::read_to_string(&paths[1]).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains(name) && !svg.contains("No rates"), "{svg}");
        assert!(read(&scratch.0).unwrap().contains(&outcome));
    }
    let page = std::fs::read_to_string(scratch.0.join("report.html")).unwrap();
    for name in
        ["udp-overload", "udp-overload-neighbour", "separation", "separation-kinds", "user-share"]
    {
        assert!(page.contains(&format!("<h1>{name}</h1>")), "{name}");
    }
    assert!(page.contains("R_ring") && page.contains("fair division"));
    assert_well_formed(&page[page.find("<body>").unwrap()..page.find("</html>").unwrap()]);
}

#[test]
fn without_figures_they_still_say_something() {
    let mut empty = separation();
    (empty.series, empty.summary) = Default::default();
    let text = table(&empty);
    assert!(text.ends_with("nothing is said of separation.\n"), "{text}");
    let mut empty = kinds();
    (empty.series, empty.summary) = Default::default();
    assert!(table(&empty).ends_with("nothing is said of separation.\n"));
    let mut empty = user_share();
    (empty.series, empty.summary) = Default::default();
    assert!(table(&empty).ends_with("nothing is said of the user's share.\n"));
    let mut empty = neighbour();
    empty.reference.costs_of = None;
    empty.series.clear();
    let text = table(&empty);
    assert!(text.contains("c_input and c_app not measured"), "{text}");
    assert!(html(&empty).unwrap().contains("No rates were swept."));
}
