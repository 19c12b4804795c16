//! The reports of `udp-latency`.

use super::fixture_latency::latency;
use super::tests::{Scratch, assert_well_formed};
use super::*;
use crate::results::Outcome;

#[test]
fn schema_of_udp_latency_is_kept() {
    insta::assert_json_snapshot!(latency());
}

#[test]
fn its_tables_fit_a_terminal_of_100_columns() {
    let text = table(&latency());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    insta::assert_snapshot!("table_of_udp-latency", text);
}

#[test]
fn it_is_written_with_a_drawing_and_read_back() {
    let scratch = Scratch::new("latency");
    let outcome = Outcome::from(latency());
    let paths = write(&outcome, &scratch.0).unwrap();
    let svg = std::fs::read_to_string(&paths[1]).unwrap();
    assert_well_formed(&svg);
    assert!(!svg.contains("No rates") && svg.contains("1,000,000"));
    assert_eq!(read(&scratch.0).unwrap(), [outcome]);
    let page = std::fs::read_to_string(scratch.0.join("report.html")).unwrap();
    assert!(page.contains("<h1>udp-latency</h1>") && page.contains("2000/s"));
    assert_well_formed(&page[page.find("<body>").unwrap()..page.find("</html>").unwrap()]);
}

#[test]
fn without_a_flood_it_says_that_there_was_none() {
    let mut calm = latency();
    for points in calm.series.values_mut() {
        points.retain(|point| point.flood_pps == 0.0);
    }
    assert!(table(&calm).ends_with("nothing is said of round trips under one.\n"));
}
