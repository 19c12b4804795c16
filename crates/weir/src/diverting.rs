//! What may take an interface's packets elsewhere: read before the gate discards anything, followed
//! while it does, and told.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use weir_bpf::gate::Gate;
use weir_bpf::sys::divert::{Diversion, DiversionKind, DiversionWatch, Ports, Sight, translation};
use weir_bpf::units::IfIndex;

use crate::error::Result;

/// Legacy iptables, IPVS, BPF programs and local routes come and go without a word. A change takes
/// effect within a second, also where the daemon has to wait for its CPU.
pub const LOOK_ANYWAY: Duration = Duration::from_millis(500);
/// The same while the gate sleeps, which discards nothing; but lazy sockets get their packets then, too, and it may wake
/// at any time: what it was told must still hold. It is told at least this often.
const LOOK_ANYWAY_SLOWLY: Duration = Duration::from_secs(2);
const _: () = assert!(LOOK_ANYWAY_SLOWLY.as_millis() < BELIEVED.as_millis());
/// How long the gate believes what it was last told. It is told anew each time that changes are followed
/// ([`Diverting::due`]).
pub const BELIEVED: Duration = Duration::from_secs(3);

const UNREAD: &str = "rules change while weir rests from reading them";

/// The diversions of one interface.
pub struct Diverting {
    watch: DiversionWatch,
    /// The gate's own, at tc ingress, by the kernel's number.
    own_program: u32,
    found: Vec<Diversion>,
    news: Vec<String>,
    /// Something has changed since the last look.
    stale: bool,
    /// Whether the gate sleeps.
    asleep: bool,
    looked_at: Instant,
    followed_at: Instant,
}

impl Diverting {
    /// Reads them, and follows them from now on; but for the gate itself, which may be at tc ingress. It knows `sight` by
    /// itself.
    ///
    /// # Errors
    /// Without the privilege. What cannot be read counts as a diversion.
    pub fn open(ifindex: IfIndex, sight: Sight, own_program: u32) -> Result<Self> {
        let watch = DiversionWatch::open(ifindex, sight)?;
        let looked_at = Instant::now();
        let mut diverting = Self {
            watch,
            own_program,
            found: Vec::new(),
            news: Vec::new(),
            stale: true,
            asleep: false,
            looked_at,
            followed_at: looked_at,
        };
        diverting.look();
        Ok(diverting)
    }

    /// Looks again if the kernel has told of a change, or the last look is too long ago, and weir has rested from it.
    /// Whether it has looked.
    pub fn follow(&mut self) -> Result<bool> {
        self.followed_at = Instant::now();
        let changed = self.watch.changed();
        // Without notifications there still are the looks.
        self.stale |= !matches!(changed, Ok(false));
        let due = self.look_due() <= Instant::now();
        if due {
            self.look();
        } else if self.stale && self.look_due() > Instant::now() + LOOK_ANYWAY {
            self.note_unread();
        }
        changed?;
        Ok(due)
    }

    /// What has changed is not read for long, as weir rests from the last look.
    fn note_unread(&mut self) {
        let kind = DiversionKind::Unread;
        let unread = Diversion { kind, detail: UNREAD.into(), ports: Vec::new() };
        if !self.found.contains(&unread) {
            let before = self.found.clone();
            self.found.push(unread);
            self.news.extend(news(&before, &self.found));
        }
    }

    /// When [`Diverting::follow`] should be called even without a change: also where no look is due, for the gate is to go
    /// on believing.
    pub fn due(&self) -> Instant {
        self.look_due().min(self.followed_at + LOOK_ANYWAY_SLOWLY)
    }

    /// Looks cost CPU time, so changes that come one after the other are looked at together, and what the kernel does
    /// not tell of is looked for the more seldom the more that costs.
    fn look_due(&self) -> Instant {
        let rested = self.watch.rested_at();
        if self.stale {
            return rested;
        }
        let anyway = if self.asleep { LOOK_ANYWAY_SLOWLY } else { LOOK_ANYWAY };
        rested.max(self.looked_at + anyway)
    }

    /// To be told each second, so that the looks that are due since the gate has woken are taken within one.
    pub fn set_asleep(&mut self, asleep: bool) {
        self.asleep = asleep;
    }

    fn look(&mut self) {
        self.stale = false;
        self.looked_at = Instant::now();
        let found = self.watch.read(&[self.own_program]);
        let before = std::mem::replace(&mut self.found, found);
        self.news.extend(news(&before, &self.found));
    }

    /// Whether the gate must pass everything: also what has changed and is not read yet may divert.
    pub fn passes_all(&self) -> bool {
        self.stale || self.found.iter().any(|it| it.kind.passes())
    }

    /// Tells the gate.
    pub fn tell(&self, gate: &mut Gate) {
        let passes_all = self.passes_all();
        let is_there = |kind| self.found.iter().any(|one| one.kind == kind);
        gate.set_vlans(is_there(DiversionKind::Vlan));
        gate.set_routes_groups(is_there(DiversionKind::MulticastForwarding));
        // First, so that nothing is discarded in between.
        if !passes_all {
            gate.set_translation(translation(&self.found));
        }
        gate.set_diverted(passes_all);
    }

    /// The first that may take packets elsewhere, some or all.
    pub fn elsewhere(&self) -> Option<&Diversion> {
        self.found.iter().find(|one| one.kind.passes() || one.kind.translates())
    }

    /// What there is.
    pub fn found(&self) -> &[Diversion] {
        &self.found
    }

    /// What has come and gone since this was last asked.
    pub fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Readable when something may have changed.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.fds()
    }
}

/// One line for each kind that has come or gone: a container that starts adds a dozen rules to those
/// that are there already.
fn news(before: &[Diversion], now: &[Diversion]) -> Vec<String> {
    let kinds = |all: &[Diversion]| all.iter().map(|one| one.kind).collect::<BTreeSet<_>>();
    let (known, current) = (kinds(before), kinds(now));
    let mut news = Vec::new();
    // Each port that a container publishes is news, and none that is left when it stops.
    let covers = |one: &Ports, other: &Ports| {
        one.protocol == other.protocol && one.first <= other.first && other.last <= one.last
    };
    let is_known =
        |port: &Ports| before.iter().flat_map(|one| &one.ports).any(|one| covers(one, port));
    let is_news = |one: &&Diversion| {
        one.kind == DiversionKind::TranslatedPorts
            && known.contains(&one.kind)
            && !one.ports.iter().all(is_known)
    };
    news.extend(now.iter().filter(is_news).map(Diversion::to_string));
    for kind in current.difference(&known) {
        news.extend(now.iter().find(|one| one.kind == *kind).map(Diversion::to_string));
    }
    let gone: Vec<&DiversionKind> = known.difference(&current).collect();
    let discards_again =
        before.iter().any(|it| it.kind.passes()) && !now.iter().any(|it| it.kind.passes());
    for (at, kind) in gone.iter().enumerate() {
        let last = at + 1 == gone.len();
        let then = if last && discards_again { "; the gate discards again" } else { "" };
        news.push(format!("no longer: {}{then}", kind.what()));
    }
    news
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use weir_bpf::sys::divert::PortProtocol;
    use weir_bpf::sys::link::Links;
    use weir_bpf::sys::netns::NetNs;

    use super::*;

    /// In a network namespace of its own, with these rules of nft's.
    fn with_diverting(rules: &str, test: impl FnOnce(&mut Diverting) + Send) {
        let run = || {
            let links = Links::open().unwrap();
            links.create_veth("near", "far", None).unwrap();
            nft(rules);
            let near = links.index("near").unwrap();
            test(&mut Diverting::open(near, Sight::at_tc(), 0).unwrap());
        };
        NetNs::create().unwrap().run(run).unwrap();
    }

    #[test]
    fn what_has_changed_and_is_not_read_passes_everything() {
        // As many as make a look expensive.
        let rules = "add rule inet t c meta mark 1 counter accept\n".repeat(5000);
        let rules = format!("add table inet t\nadd chain inet t c\n{rules}");
        with_diverting(&rules, |diverting| {
            assert!(!diverting.passes_all(), "{:?}", diverting.found());
            let mut rests = || {
                diverting.watch.read(&[]);
                diverting.watch.rested_at() > Instant::now()
            };
            assert!((0..5).any(|_| rests()), "after such a look");
            // However long nft(8) takes.
            diverting.watch.rest_for(Duration::from_secs(60));
            nft("add rule inet t c meta mark 2 counter accept");
            assert!(!diverting.follow().unwrap(), "no look before it has rested");
            assert!(diverting.passes_all(), "{:?}", diverting.found());
            diverting.watch.rest_for(Duration::ZERO);
            assert!(diverting.follow().unwrap());
            assert!(!diverting.passes_all(), "{:?}", diverting.found());
        });
    }

    #[test]
    fn a_look_that_took_long_is_rested_from_and_the_gate_believes_meanwhile() {
        const REST: Duration = Duration::from_secs(20);
        with_diverting("", |diverting| {
            diverting.watch.rest_for(REST);
            for asleep in [false, true] {
                diverting.set_asleep(asleep);
                assert!(!diverting.follow().unwrap());
                assert!(diverting.look_due() > Instant::now() + REST / 2);
                assert!(diverting.due() < Instant::now() + BELIEVED);
            }
        });
    }

    fn nft(script: &str) {
        let mut child = std::process::Command::new("nft")
            .args(["-f", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn diversion(kind: DiversionKind, detail: &str) -> Diversion {
        Diversion { kind, detail: detail.into(), ports: Vec::new() }
    }

    #[test]
    fn kinds_that_come_and_go_are_news_and_further_rules_are_not() {
        let one = [diversion(DiversionKind::Nat, "one rule")];
        let two = [diversion(DiversionKind::Nat, "two rules")];
        let came = news(&[], &one);
        assert_eq!(came.len(), 1);
        assert!(came[0].contains("(one rule): the gate passes every packet"), "{came:?}");
        assert_eq!(news(&one, &two), [] as [&str; 0]);
        assert_eq!(
            news(&two, &[]),
            ["no longer: packets may be translated to another address or port; the gate \
                 discards again"]
        );
        let log = [diversion(DiversionKind::PacketLog, "one rule")];
        assert_eq!(news(&log, &[]), ["no longer: copies of packets go to a process"]);
    }

    #[test]
    fn a_port_that_comes_is_news_and_those_that_are_left_are_not() {
        let translated = |ranges: &[(u16, u16)]| {
            let udp = |(first, last): &(u16, u16)| Ports {
                protocol: PortProtocol::Udp,
                first: *first,
                last: *last,
            };
            let ports = ranges.iter().map(udp).collect();
            let detail = format!("{ranges:?}");
            [Diversion { kind: DiversionKind::TranslatedPorts, detail, ports }]
        };
        let (many, fewer) = (translated(&[(30, 50)]), translated(&[(30, 39), (41, 50)]));
        assert_eq!(news(&many, &fewer), [] as [&str; 0]);
        assert_eq!(news(&fewer, &many).len(), 1);
    }
}
