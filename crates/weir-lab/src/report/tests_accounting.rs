//! The reports of `accounting` and `receivers`.

use super::fixture_accounting::accounting;
use super::fixture_load::receivers;
use super::tests::{Scratch, assert_well_formed};
use super::*;
use crate::results::Outcome;

#[test]
fn schema_of_accounting_is_kept() {
    insta::assert_json_snapshot!(accounting());
}

#[test]
fn schema_of_receivers_is_kept() {
    insta::assert_json_snapshot!(receivers());
}

#[test]
fn their_tables_fit_a_terminal_of_100_columns() {
    for outcome in [Outcome::from(accounting()), Outcome::from(receivers())] {
        let text = table(outcome.view());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        insta::assert_snapshot!(format!("table_of_{}", outcome.name()), text);
    }
}

#[test]
fn they_are_written_with_a_drawing_and_read_back() {
    for outcome in [Outcome::from(accounting()), Outcome::from(receivers())] {
        let scratch = Scratch::new(outcome.name());
        let paths = write(&outcome, &scratch.0).unwrap();
        assert_well_formed(&std::fs::read_to_string(&paths[1]).unwrap());
        let page = std::fs::read_to_string(scratch.0.join("report.html")).unwrap();
        assert_well_formed(&page[page.find("<body>").unwrap()..page.find("</html>").unwrap()]);
        assert_eq!(read(&scratch.0).unwrap(), [outcome]);
    }
}

#[test]
fn without_figures_they_still_say_something() {
    let mut empty = accounting();
    empty.series.clear();
    assert!(table(&empty).ends_with("none was sent.\n"));
    let mut empty = receivers();
    (empty.series, empty.summary) = Default::default();
    assert!(table(&empty).ends_with("nothing is said of weights.\n"));
}
