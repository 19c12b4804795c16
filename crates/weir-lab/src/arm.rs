//! What is compared: how the host under test is set up.

use std::path::PathBuf;

use weir_bpf::bare::Bare;
use weir_bpf::sys::sched::SchedPolicy;
use weir_bpf::units::Nice;

use crate::apps::OWN;
use crate::host::quota::UNLIMITED;

/// Who runs the driver's poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Napi {
    /// Softirqs, after interrupts on the tested CPU.
    Softirq,
    /// Softirqs on the CPU that sends, and RPS to the tested one.
    Rps,
    /// A NAPI thread of this policy, at this nice value.
    Thread(SchedPolicy, Nice),
}

/// A `weir run` that an arm starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSpec {
    /// The executable; `None`: this one.
    pub binary: Option<PathBuf>,
    /// Options of `weir run`, before the interface.
    pub options: Vec<String>,
}

impl DaemonSpec {
    pub fn path(&self) -> PathBuf {
        self.binary.clone().unwrap_or_else(|| OWN.into())
    }
}

/// One of the things compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// As on the command line and in results.
    pub name: String,
    /// Who polls; with a daemon that is the daemon's business, but for [`Napi::Softirq`].
    pub napi: Napi,
    /// The wire is a veth as it is made, with TSO: packets of sockets go past NAPI to the backlog, steered by RPS. Else
    /// every packet comes by the ring and NAPI, as behind a NIC.
    pub veth: bool,
    /// Nothing is put on a CPU: programs, clients, NAPI threads and weir are where the scheduler likes.
    pub unpinned: bool,
    /// The host has NAT rules, as one with containers, and so follows each connection.
    pub nat: bool,
    /// Packets that a poll of the backlog, and a softirq, may take; `None`: as the machine has it.
    pub quota: Option<u32>,
    /// `weir screen`, with these options more, judges what the host forwards, where another arm has a program of the
    /// lab's own at an NFQUEUE.
    pub screen: Option<&'static str>,
    pub daemon: Option<DaemonSpec>,
    /// A bare XDP program, instead.
    pub bare: Option<Bare>,
}

/// An arm and what it is.
type Known = (Arm, &'static str);

/// The options of a screen whose accepted packets leave at the driver.
const SCREEN_XDP: &str = "--forward xdp";
const THREAD: Napi = Napi::Thread(SchedPolicy::Normal, Nice(0));
const BATCH: Napi = Napi::Thread(SchedPolicy::Batch, Nice(0));

/// One without weir, behind a NIC.
fn arm(name: &str, napi: Napi) -> Arm {
    let (name, veth, unpinned, nat) = (name.to_owned(), false, false, false);
    Arm { name, napi, veth, unpinned, nat, quota: None, screen: None, daemon: None, bare: None }
}

/// `weir run` with these options.
fn weir(options: &str) -> Option<DaemonSpec> {
    let options = options.split_whitespace().map(str::to_owned).collect();
    Some(DaemonSpec { binary: None, options })
}

/// Declares the arms, in the order of columns: of each its name, who polls, what else is set up, and the words that
/// say so.
macro_rules! arms {
    ($($name:literal: $napi:expr, { $($what:ident: $is:expr),* } => $help:literal;)*) => {
        fn all() -> Vec<Known> {
            vec![$((Arm { $($what: $is,)* ..arm($name, $napi) }, $help)),*]
        }
    };
}

arms! {
    "stock": Napi::Softirq, {} => "the kernel's default: softirqs, an interrupt each 50 us";
    "stock-rps": Napi::Rps, {}
        => "softirqs without moderation, steered to the tested CPU by RPS";
    "threaded": THREAD, {} => "the kernel's threaded NAPI";
    "niced": Napi::Thread(SchedPolicy::Normal, Nice(19)), {}
        => "threaded NAPI at nice 19: two shell commands";
    "batch": BATCH, {} => "threaded NAPI of SCHED_BATCH at nice 0: two shell commands";
    "bare-pass": THREAD, { bare: Some(Bare::Pass) }
        => "a native XDP program that passes everything";
    "bare-drop": THREAD, { bare: Some(Bare::Drop) } => "a native XDP program that drops everything";
    "touch-drop": THREAD, { bare: Some(Bare::TouchDrop) }
        => "the same, after a look at each packet's first bytes";
    "gate": THREAD, { daemon: weir("--attach native --nice 0 --awake") }
        => "the gate alone, native (Early-Demux)";
    "idle-weir": THREAD, { daemon: weir("--policy off") } => "weir run with its policy off";
    "weir": THREAD, { daemon: weir("") } => "weir run, told the CPU (--cpus): threads poll from the start";
    "weir-native": THREAD, { daemon: weir("--attach native") }
        => "weir run, its gate attached native";
    "weir-xdp": THREAD, { daemon: weir("--forward xdp out0") }
        => "weir run, with the fast path of forwarding: only where there is an egress";
    "lazy": THREAD, { daemon: weir("--attach native --lazy") }
        => "weir run, native, with lazy sockets for the lab's UDP applications";
    "softirq": Napi::Softirq, { daemon: weir("--attach native --napi softirq") }
        => "weir run where softirqs poll: the fallback";
    "weir-auto": Napi::Softirq, { daemon: weir("--napi auto") }
        => "weir run where softirqs poll, and threads while they are needed";
    "stock-screen": Napi::Softirq, { screen: Some("") } => "weir screen, native, where softirqs poll";
    "weir-screen": THREAD, { screen: Some("") }
        => "weir screen, native, and the kernel's threaded NAPI";
    "weir-screen-xdp": THREAD, { screen: Some(SCREEN_XDP) }
        => "the same, and what it has accepted is forwarded in the driver";
    "veth-stock": Napi::Rps, { veth: true } => "a veth as it is made, past NAPI";
    "veth-weir": Napi::Rps, { veth: true, daemon: weir("--attach tc") }
        => "the same with weir run";
}

/// After an arm's name and a `+`: the same on a host with NAT rules, with nothing pinned, and with a quota of packets.
const NAT: &str = "nat";
const UNPINNED: &str = "unpinned";
const QUOTA: &str = "quota";
const NO_QUOTA: &str = "unlimited";

/// What two shell commands, or none, buy: weir is judged against the best of these.
pub const BASELINES: [&str; 4] = ["stock", "threaded", "niced", "batch"];

/// What the names of two sides of a comparison begin with.
pub const LABELS: [&str; 2] = ["A: ", "B: "];

/// Those in which an idle host takes least of the tested CPU, the quietest first: what is measured once
/// for all arms, without packets, is measured in these.
pub const QUIET: [&str; 6] = ["threaded", "niced", "gate", "idle-weir", "weir-native", "softirq"];

/// Each arm's name and what it is.
pub fn known() -> impl Iterator<Item = (String, &'static str)> {
    let more = [
        (format!("ARM+{NAT}"), "any of these on a host with NAT rules, as Docker writes them"),
        (
            format!("ARM+{UNPINNED}"),
            "any of these with nothing pinned to a CPU, and weir without --cpus",
        ),
        (
            format!("ARM+{QUOTA}N"),
            "any of these with net.core.dev_weight and netdev_budget at N packets",
        ),
        (format!("ARM+{NO_QUOTA}"), "the same without a quota, as far as the kernel goes"),
    ];
    all().into_iter().map(|(arm, help)| (arm.name, help)).chain(more)
}

impl Arm {
    /// An arm by its name; after the name of one that runs weir, more of `weir run`'s options may follow.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let first = words.next().unwrap_or_default();
        let mut parts = first.split('+');
        let name = parts.next().unwrap_or_default();
        let Some((mut arm, _)) = all().into_iter().find(|(arm, _)| arm.name == name) else {
            let names: Vec<String> = known().map(|(name, _)| name).collect();
            return Err(format!("there is no arm {name:?}; the arms are {}", names.join(", ")));
        };
        for part in parts {
            match (part, part.strip_prefix(QUOTA).map(str::parse)) {
                (NAT, _) => arm.nat = true,
                (UNPINNED, _) => arm.unpinned = true,
                (NO_QUOTA, _) => arm.quota = Some(UNLIMITED),
                (_, Some(Ok(packets @ 1..UNLIMITED))) => arm.quota = Some(packets),
                _ => {
                    return Err(format!(
                        "{name}+{part}: after an arm's name stand +{NAT}, +{UNPINNED}, +{QUOTA}N of 1 to {} packets, or +{NO_QUOTA}",
                        UNLIMITED - 1
                    ));
                }
            }
        }
        arm.name = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match (&mut arm.daemon, words.next()) {
            (Some(daemon), more) => daemon.options.extend(more.into_iter().chain(words)),
            (None, Some(word)) => {
                return Err(format!("{name} runs no weir, so it takes no option {word}"));
            }
            (None, None) => {}
        }
        Ok(arm)
    }

    /// Whether packets are forwarded in the driver.
    pub fn forwards_in_driver(&self) -> bool {
        self.has(&["--forward", "xdp"]) || self.screen == Some(SCREEN_XDP)
    }

    /// Whether its weir has these options, one behind the other.
    pub fn has(&self, options: &[&str]) -> bool {
        let has = |all: &[String]| all.windows(options.len()).any(|some| some == options);
        self.daemon.as_ref().is_some_and(|daemon| has(&daemon.options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_that_runs_weir_takes_its_options() {
        let arm = Arm::parse("weir-native --user-share  25%").unwrap();
        assert_eq!(arm.name, "weir-native --user-share 25%");
        assert_eq!(arm.daemon.unwrap().options, ["--attach", "native", "--user-share", "25%"]);
        let nat = Arm::parse("weir+nat --nice 0").unwrap();
        assert_eq!(
            (nat.nat, nat.name.as_str(), nat.daemon.unwrap().options.len()),
            (true, "weir+nat --nice 0", 2)
        );
        let quota = |text: &str| Arm::parse(text).map(|arm| (arm.nat, arm.quota));
        assert_eq!(quota("stock+quota5"), Ok((false, Some(5))));
        assert_eq!(quota("stock+nat+unlimited"), Ok((true, Some(UNLIMITED))));
        for bad in ["stock+quota0", "stock+quota", "stock+", "stock+ant"] {
            assert!(quota(bad).unwrap_err().contains("+quotaN"), "{bad}");
        }
        assert!(Arm::parse("stock --nice 0").unwrap_err().contains("--nice"));
        assert!(Arm::parse("livelock").unwrap_err().contains("the arms are stock,"));
        for name in BASELINES {
            assert!(Arm::parse(name).unwrap().daemon.is_none());
        }
    }
}
