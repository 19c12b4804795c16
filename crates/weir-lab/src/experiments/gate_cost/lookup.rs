//! What a socket lookup from XDP costs, by helper, family and what is found.

use std::net::SocketAddr;

use weir_bpf::lookup_cost::{LOOKUPS_PER_RUN, Lookup, LookupPrograms};

use super::super::shared::*;
use super::on_tested_cpu;
use crate::apps::unread::{CLOSED_PORT, ROOM_PORT};
use crate::bench::{Bench, RANDOM_PORTS, addresses};

pub(super) const PREFIX: &str = "lookup-";
/// Runs of [`LOOKUPS_PER_RUN`] lookups per system call, and system calls.
const RUNS_PER_CALL: u32 = 1_000;
const CALLS: u32 = 4;
const QUICK: [&str; 3] = ["sk-udp4-socket", "sk-udp4-nothing", "skc-tcp4-listener"];

/// The helpers, and what each looks for.
const HELPERS: [(&str, Lookup, &[&str]); 3] = [
    ("sk-udp", Lookup::Udp, &["socket", "nothing"]),
    ("sk-tcp", Lookup::Tcp, &["connection", "listener", "nothing"]),
    ("skc-tcp", Lookup::SkcTcp, &["connection", "listener", "nothing"]),
];

/// A helper, whether it is asked for IPv6, and what it looks for.
type Asked = (Lookup, bool, &'static str);

/// Every one, by the case's name without its beginning.
fn all() -> impl Iterator<Item = (String, Asked)> {
    [("4", false), ("6", true)].into_iter().flat_map(|(family, ipv6)| {
        HELPERS.into_iter().flat_map(move |(helper, lookup, targets)| {
            let name = move |target| format!("{helper}{family}-{target}");
            targets.iter().map(move |target| (name(target), (lookup, ipv6, *target)))
        })
    })
}

pub(super) fn cases() -> impl Iterator<Item = Case> {
    all().map(|(name, _)| Case {
        quick: QUICK.contains(&&*name),
        ..Case::always(format!("{PREFIX}{name}"))
    })
}

/// Times one on the tested CPU, while some XDP program is attached.
pub(super) fn measure(bench: &Bench, ask: &Ask<'_>, name: &str) -> Result<Trial> {
    let sut = bench.sut(ask.arm);
    let mut trial = Trial::of(ask.arm, ask.case, ask.load);
    let asked = all().find(|(known, _)| known == name);
    let Some(((_, (lookup, ipv6, target)), targets)) = asked.zip(sut.unread()) else {
        return Ok(trial);
    };
    let (generator, host) = addresses(&sut.host)[usize::from(ipv6)];
    let from = SocketAddr::new(generator, RANDOM_PORTS);
    let (from, to) = match target {
        "connection" => targets[usize::from(ipv6)].connection,
        "nothing" => (from, SocketAddr::new(host, CLOSED_PORT)),
        _ => (from, SocketAddr::new(host, ROOM_PORT)),
    };
    let mut programs = LookupPrograms::load()?;
    let (empty, whole, found) = on_tested_cpu(bench, ask.arm, || {
        let mut time = |lookup| -> Result<_> {
            let (mut times, mut found) = (vec![], 0);
            for _ in 0..CALLS {
                let run = programs.time(lookup, from, to, sut.host.ifindex, RUNS_PER_CALL)?;
                times.push(run.mean.0 as f64);
                found = run.found;
            }
            Ok((median(times), found))
        };
        let (empty, _) = time(Lookup::Nothing)?;
        let (whole, found) = time(lookup)?;
        Ok((empty, whole, found))
    })?;
    if (found == LOOKUPS_PER_RUN) == (target == "nothing") {
        return Err(Error::refused(
            format!("the lookup {name} found {found} sockets in {LOOKUPS_PER_RUN}"),
            "this is a defect of the lab: please report it",
        ));
    }
    let ns = (whole - empty).max(0.0) / f64::from(LOOKUPS_PER_RUN);
    trial.set(&m::ns_per_packet, Some(ns));
    Ok(trial)
}
