//! The reports of `parity`.

use super::fixture_parity::parity;
use super::tests::{Scratch, assert_well_formed};
use super::*;
use crate::results::Outcome;

#[test]
fn schema_of_parity_is_kept() {
    insta::assert_json_snapshot!(parity());
}

#[test]
fn its_table_fits_a_terminal_of_100_columns() {
    let text = table(&parity());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    insta::assert_snapshot!("table_of_parity", text);
}

#[test]
fn it_is_written_without_a_drawing_and_read_back() {
    let scratch = Scratch::new("parity");
    let outcome = Outcome::from(parity());
    let paths = write(&outcome, &scratch.0).unwrap();
    assert_eq!(paths, ["parity.json", "report.html"].map(|name| scratch.0.join(name)));
    assert_eq!(read(&scratch.0).unwrap(), [outcome]);
    let page = std::fs::read_to_string(&paths[1]).unwrap();
    assert!(page.contains("<h1>parity</h1>") && page.contains("iperf 3.12"));
    assert_well_formed(&page[page.find("<body>").unwrap()..page.find("</html>").unwrap()]);
}

#[test]
fn of_nothing_it_says_so() {
    let mut empty = parity();
    empty.rows.clear();
    assert!(table(&empty).ends_with("nothing was compared.\n"));
}
