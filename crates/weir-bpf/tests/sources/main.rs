//! Heavy sources are shed before light ones, on real packets: one socket, whose reader takes so many
//! packets a second, and many that send to it.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod flood;

use std::time::{Duration, Instant};

use common::alone;
use flood::{Bench, Load, Outcome, READ};

/// Packets per second of each light source.
const LIGHT_EACH: f64 = 50.0;
const TRIES: usize = 10;
/// How long others may use the machine.
const TRIES_MAX: Duration = Duration::from_secs(60);

/// Measures until it is as it should be. Others use the machine too: a reader or a sender that stands still
/// for a while loses packets of everyone. A time in which the load was not sent does not count.
fn measure_until(
    bench: &mut Bench,
    selective: bool,
    load: Load,
    as_it_should_be: impl Fn(Outcome) -> bool,
) {
    let (mut seen, begun) = (Vec::new(), Instant::now());
    while seen.len() < TRIES && begun.elapsed() < TRIES_MAX {
        let outcome = bench.measure(selective, load);
        println!("{load:?}, selective: {selective}: {outcome:?}");
        if as_it_should_be(outcome) {
            return;
        }
        if outcome.sent > 0.99 {
            seen.push(outcome);
        }
    }
    panic!("selective: {selective}, {load:?}: {seen:#?}");
}

/// The reader never waits, and what it has read is what it could.
fn is_busy(outcome: Outcome) -> bool {
    outcome.idle() < 0.01
}

#[test]
fn a_heavy_source_does_not_shut_out_a_hundred_light_ones() {
    let _alone = alone();
    let mut bench = Bench::new();
    for heavy in [LIGHT_EACH * 100.0, LIGHT_EACH * 1000.0] {
        let load = Load { light: LIGHT_EACH, heavy, heavy_bits: 0, read: READ, ipv6: false };
        // All of the light ones together are less than what is read.
        let shut_out = |o: Outcome| o.light() < 0.8 && o.by_source == 0 && is_busy(o);
        measure_until(&mut bench, false, load, shut_out);
        let protected = |o: Outcome| o.light() >= 0.9 && o.by_source > 0 && is_busy(o);
        measure_until(&mut bench, true, load, protected);
    }
}

/// As slow a reader empties a quarter of its queue in more time than the gate believes anything for.
#[test]
fn so_it_is_with_a_slow_reader() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load { light: 10.0, heavy: 1000.0, heavy_bits: 0, read: 1300.0, ipv6: false };
    measure_until(&mut bench, true, load, |o| o.light() >= 0.9 && is_busy(o));
}

/// Together they are half a percent of what is sent, and so of what is admitted until room is kept for them.
#[test]
fn nor_do_a_hundred_very_light_ones_stay_shut_out() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load { light: 10.0, heavy: 200_000.0, heavy_bits: 0, read: READ, ipv6: false };
    measure_until(&mut bench, false, load, |o| o.light() < 0.2 && is_busy(o));
    measure_until(&mut bench, true, load, |o| o.light() >= 0.9 && o.by_source > 0 && is_busy(o));
}

/// The usual flood. Only the first packets, from a source not seen before, keep anything free, and of two sources not for
/// long.
#[test]
fn one_source_alone_loses_nothing_by_it_nor_do_two() {
    let _alone = alone();
    let mut bench = Bench::new();
    for heavy_bits in [0, 1] {
        let load = Load { light: 0.0, heavy: 50_000.0, heavy_bits, read: READ, ipv6: false };
        let as_without = |o: Outcome| o.by_source == 0 && o.by_queue > 0 && is_busy(o);
        measure_until(&mut bench, true, load, as_without);
    }
}

/// Nobody can be told to be light where every packet has another source: all are treated alike.
#[test]
fn made_up_sources_are_treated_as_without_it() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load {
        light: LIGHT_EACH,
        heavy: LIGHT_EACH * 100.0,
        heavy_bits: 16,
        read: READ,
        ipv6: false,
    };
    let alike = |o: Outcome| {
        is_busy(o) && (o.light() / o.heavy() - 1.0).abs() < 0.1 && o.by_source * 20 < o.by_queue
    };
    measure_until(&mut bench, true, load, alike);
}

/// In IPv6 anyone may choose the lower half of his address.
#[test]
fn an_ipv6_sender_gains_nothing_by_other_addresses_in_its_64() {
    let _alone = alone();
    let mut bench = Bench::new();
    let (light, heavy) = (LIGHT_EACH / 2.0, LIGHT_EACH * 1000.0);
    let load = Load { light, heavy, heavy_bits: 16, read: READ, ipv6: true };
    let protected = |o: Outcome| o.light() >= 0.9 && o.by_source > 0 && is_busy(o);
    measure_until(&mut bench, true, load, protected);
}

/// Light ones that are more than what is read are refused as a full queue refuses, and nothing is idle.
#[test]
fn equals_share_a_full_queue() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load {
        light: LIGHT_EACH * 2.0,
        heavy: LIGHT_EACH * 2.0,
        heavy_bits: 0,
        read: READ,
        ipv6: false,
    };
    let expected = READ / (LIGHT_EACH * 2.0 * 101.0);
    measure_until(&mut bench, true, load, |o| is_busy(o) && (o.light() - expected).abs() < 0.05);
}
