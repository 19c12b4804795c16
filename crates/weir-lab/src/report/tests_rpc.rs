//! The reports of `rpc-mix`.

use super::fixture_rpc::rpc;
use super::tests::{Scratch, assert_well_formed};
use super::*;
use crate::results::Outcome;

#[test]
fn schema_of_rpc_mix_is_kept() {
    let mut one = rpc();
    one.trials.truncate(1);
    insta::assert_json_snapshot!(one);
}

#[test]
fn its_tables_fit_a_terminal_of_100_columns() {
    let text = table(&rpc());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    insta::assert_snapshot!("table_of_rpc-mix", text);
}

#[test]
fn it_is_written_with_a_drawing_for_each_pace_and_read_back() {
    let scratch = Scratch::new("rpc");
    let outcome = Outcome::from(rpc());
    let paths = write(&outcome, &scratch.0).unwrap();
    let svg = std::fs::read_to_string(&paths[1]).unwrap();
    assert_well_formed(&svg);
    assert!(svg.contains("short RPCs, fast") && svg.contains("short RPCs, slow"));
    assert_eq!(read(&scratch.0).unwrap(), [outcome]);
}

#[test]
fn without_short_requests_it_says_that_there_were_none() {
    let mut alone = rpc();
    for points in alone.series.values_mut() {
        points.retain(|point| point.target_pps.is_some());
    }
    assert!(table(&alone).ends_with("none were sent.\n"));
}
