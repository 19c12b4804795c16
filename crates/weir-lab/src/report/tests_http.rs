//! The reports of `http-syn-flood`.

use super::fixture_http::http;
use super::tests::{Scratch, assert_well_formed};
use super::*;
use crate::results::Outcome;

#[test]
fn schema_of_http_syn_flood_is_kept() {
    insta::assert_json_snapshot!(http());
}

#[test]
fn its_tables_fit_a_terminal_of_100_columns() {
    let text = table(&http());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    insta::assert_snapshot!("table_of_http-syn-flood", text);
}

#[test]
fn it_is_written_with_a_drawing_for_each_usage_and_read_back() {
    let scratch = Scratch::new("http");
    let outcome = Outcome::from(http());
    let paths = write(&outcome, &scratch.0).unwrap();
    let svg = std::fs::read_to_string(&paths[1]).unwrap();
    assert_well_formed(&svg);
    assert_eq!((svg.matches("<svg").count(), svg.matches("No rates").count()), (3, 0));
    assert!(svg.contains("keep-alive") && svg.contains("a connection per request"));
    assert_eq!(read(&scratch.0).unwrap(), [outcome]);
    let page = std::fs::read_to_string(scratch.0.join("report.html")).unwrap();
    assert!(page.contains("<h1>http-syn-flood</h1>") && page.contains("nginx/1.22.1"));
    assert_well_formed(&page[page.find("<body>").unwrap()..page.find("</html>").unwrap()]);
}

#[test]
fn without_a_flood_it_says_that_there_was_none() {
    let mut calm = http();
    for points in calm.series.values_mut() {
        points.retain(|point| point.flood_pps == 0.0);
    }
    assert!(table(&calm).ends_with("nothing is said of HTTP under one.\n"));
}
