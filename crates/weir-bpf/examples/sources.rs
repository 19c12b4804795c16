//! What light sources and heavy ones get of a socket, with selective dropping and without it: the figures of
//! `docs/adr/0010-selective-dropping.md`. Needs root, and takes two CPUs.

#![allow(clippy::unwrap_used, reason = "a failed call ends the measurement")]

#[path = "../tests/common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/sources/flood.rs"]
mod flood;

use flood::{Bench, Load, READ, TIME};

fn main() {
    let mut bench = Bench::new();
    for (light, heavy, heavy_bits) in [
        (50.0, 5_000.0, 0),
        (50.0, 50_000.0, 0),
        (50.0, 200_000.0, 0),
        (1.0, 200_000.0, 0),
        (0.0, 200_000.0, 0),
        (50.0, 200_000.0, 4),
        (50.0, 200_000.0, 6),
        (50.0, 200_000.0, 8),
        (50.0, 5_000.0, 16),
        (50.0, 200_000.0, 16),
    ] {
        let load = Load { light, heavy, heavy_bits, read: READ, ipv6: false };
        for selective in [false, true] {
            let o = bench.measure(selective, load);
            println!(
                "light {light:4}/s each, heavy {heavy:7}/s from {:5}, selective {selective:5}: light \
                 {:.3}, heavy {:.3}, read {:5.0}/s, idle {:.3}",
                1 << heavy_bits,
                o.light(),
                o.heavy(),
                o.read() as f64 / TIME.as_secs_f64(),
                o.idle(),
            );
        }
    }
}
