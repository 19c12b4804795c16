//! One protected interface: the gate on it, its NAPI threads, and what is published about it.

mod napi;

use std::iter::once;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use weir_bpf::accounts::monotonic_now;
use weir_bpf::attach::AttachMode;
use weir_bpf::channels::ChannelMapIds;
use weir_bpf::counters::Counters;
use weir_bpf::forward::FastPath as _;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::prune::Pruner;
use weir_bpf::sys::divert::load_conntrack;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::snmp;
use weir_bpf::sys::watch::InterfaceWatch;
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::Reason;

use self::napi::Polled;
use crate::attach::{self, Attached};
use crate::bypass::Bypass;
use crate::claim::Claim;
use crate::clock;
use crate::config::Effective;
use crate::config::wanted::{Settings, ThreadWeight};
use crate::console::Console;
use crate::cookies::Answering;
use crate::diverting::{BELIEVED, Diverting};
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use crate::governor::Governors;
use crate::host::Host;
use crate::journal::{Journal, TurnedKnob};
use crate::key::Key;
use crate::knob::{Knob, Returns};
use crate::notes;
use crate::rps;
use crate::sample::{Rates, Sample, counts_ring_drops, late_drops};
use crate::shadow;
use crate::sleep::SleepStatus;
use crate::softirq::{Limit, Limiter};
use crate::status::{self, InterfaceStatus};
use crate::threads::NapiThreads;

/// From one status to the next.
pub const TICK: Duration = Duration::from_secs(1);
/// New NAPI threads may follow a change of the interface for this many seconds.
const FOLLOW_UP_TICKS: u32 = 3;
/// How often NAPI threads are looked for without any change, in seconds: a driver may make new ones
/// without a word. As often is tried again what went wrong.
const LOOK_ANYWAY_TICKS: u32 = 10;
/// How often the gate's channels are looked at for quiet ones, in seconds.
const PRUNE_TICKS: u32 = 10;

/// What all interfaces share.
pub struct Kernel {
    /// Where they are.
    pub host: Rc<Host>,
    /// Teaches the gates.
    pub probe: Rc<QueueProbe>,
    /// Limits what is polled in softirqs.
    pub limiter: Rc<Limiter>,
    /// Moves the weights of NAPI threads; none where nothing is governed.
    pub governors: Option<Rc<Governors>>,
    /// Why nothing is, where something is to be.
    pub no_governor: Option<String>,
    /// What cannot be done about control groups.
    pub group_note: Option<String>,
}

/// Why an interface is protected no longer.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// It is not there any more.
    Gone,
    /// Its gate has been detached, and not by weir.
    Detached,
}

impl Loss {
    /// For a person.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Gone => "it has been removed or moved to another network namespace",
            Self::Detached => "somebody has detached weir's gate",
        }
    }
}

/// A protected interface. Dropping it puts everything back, in the order of the fields.
pub struct Protected {
    threads: NapiThreads,
    no_governor: Option<String>,
    threaded: Option<TurnedKnob>,
    rps: Vec<TurnedKnob>,
    // After threading: see `threading::put_back`.
    gate: Gate,
    // After the gate, which goes by it.
    limit: Option<Limit>,
    // After the gate, which removes it itself; what is left of it by then is a failure to report.
    attached: Attached,
    claim: Claim,
    watch: InterfaceWatch,
    diverting: Diverting,
    forwarding: Option<Forwarding>,
    answering: Answering,
    host: Rc<Host>,
    /// What holds on it, as far as this daemon can make it hold...
    pub effective: Effective,
    /// ...and what that comes to.
    settings: Settings,
    limiter: Rc<Limiter>,
    counters_map_id: u32,
    channel_map_ids: ChannelMapIds,
    pruner: Pruner,
    polled: Polled,
    news: Vec<String>,
    notes: Vec<String>,
    steered: Option<String>,
    /// What the gate does not know of this host's addresses.
    unlisted: Option<String>,
    lazy: Option<String>,
    since: String,
    last: Sample,
    /// Between the last sample and the one before.
    rates: Rates,
    late_dropped_before: u64,
    bypass: Bypass,
    /// The interface has changed, and has not been looked at since.
    stale: bool,
    ticks_since_change: u32,
    ticks: u32,
}

/// How protection ended.
#[derive(Debug)]
pub struct Farewell {
    /// The interface.
    pub interface: String,
    /// Everything that the gate has seen.
    pub counters: Counters,
    /// What became of the knobs.
    pub knobs: Returns,
    /// What the gate did with what it decided.
    pub policy: Policy,
    /// In shadow: whose packets would have been discarded, and whose not.
    pub would_have: Vec<String>,
}

impl Protected {
    /// Protects a claimed interface. On failure everything is as before.
    pub fn start(
        kernel: &Kernel,
        claim: Claim,
        (effective, settings): (Effective, Settings),
        console: &mut Console,
    ) -> Result<Self> {
        let (ifindex, interface, host) = (claim.ifindex, claim.interface(), &kernel.host);
        // Opened before the addresses are read, so that no change falls between.
        let watch = InterfaceWatch::open(ifindex)?;
        load_conntrack();
        let prepare = |place| load(kernel, &claim, &settings, place);
        let (gate, diverting, mut attached) =
            attach::attach(host, &claim, (settings.attach, settings.forward), prepare)?;
        let unlisted = LocalAddresses::read(&[ifindex])?.unlisted();
        if settings.forward {
            attached.reason = "where the fast path forwards".into();
        }
        let mut notes =
            notes::at_start(&host.links, ifindex, &interface, attached.mode, settings.forward);
        let rps = if settings.rps_off { steer_nowhere(host, &claim.journal)? } else { vec![] };
        notes.extend(kernel.group_note.clone());
        let driver = ethtool::driver(&interface).ok();
        let ring_drops_counted = counts_ring_drops(driver.as_deref());
        let late_dropped = late_drops(snmp::udp_stats()?);
        let last = Sample::read(&host.links, ifindex, &gate, settings.policy, late_dropped)?;
        let (counters_map_id, channel_map_ids) = (gate.counters_map_id()?, gate.channel_map_ids()?);
        let no_governor = kernel.no_governor.clone().filter(|_| settings.want_governor());
        let (governors, mut threads) = (kernel.governors.clone(), settings.threads.clone());
        if no_governor.is_some() && threads.weight == ThreadWeight::Governed {
            threads.weight = ThreadWeight::Untouched;
        }
        let mut protected = Self {
            threads: NapiThreads::new(threads, governors, settings.governor),
            no_governor,
            threaded: None,
            rps,
            gate,
            limit: None,
            claim,
            watch,
            diverting,
            forwarding: settings.forward.then(Forwarding::default),
            answering: Answering::new(attached.mode),
            host: Rc::clone(host),
            effective,
            settings,
            limiter: Rc::clone(&kernel.limiter),
            attached,
            counters_map_id,
            channel_map_ids,
            pruner: Pruner::default(),
            polled: Polled::default(),
            news: vec![],
            notes,
            steered: None,
            unlisted,
            lazy: None,
            since: clock::timestamp(SystemTime::now()),
            last,
            rates: Rates { ring_drops_counted, ..Rates::default() },
            late_dropped_before: late_dropped,
            bypass: Bypass::default(),
            stale: false,
            ticks_since_change: 0,
            ticks: 0,
        };
        protected.look_at_steering();
        protected.begin_polling(console)?;
        protected.look_at_answers()?;
        Ok(protected)
    }

    /// The interface's name.
    pub fn interface(&self) -> String {
        self.claim.interface()
    }

    /// The interface's number.
    pub fn ifindex(&self) -> IfIndex {
        self.claim.ifindex
    }

    /// The name of its files.
    pub fn key(&self) -> Key {
        self.claim.key(&self.host)
    }

    /// Goes by other settings from now on, which differ in nothing but what changes while weir runs.
    pub fn adopt(&mut self, settings: Settings) -> Result<()> {
        set_changeable(&mut self.gate, &settings);
        self.threads.set_governor(settings.governor);
        // Who polls goes by how many CPUs were online at the start.
        self.settings = Settings { napi: self.settings.napi, ..settings };
        let answering = self.look_at_answers();
        self.limit().and(answering)
    }

    fn look_at_answers(&mut self) -> Result<()> {
        let interface = (self.claim.ifindex, self.claim.interface());
        let barred = if self.settings.policy != Policy::On {
            Some("the policy is not on")
        } else if !self.threads.shares_are_enforced() {
            Some("no shares are enforced, so nothing tells whether a CPU is short")
        } else if !self.settings.syn_cookies {
            Some("syn_cookies is false")
        } else {
            None
        };
        self.answering.look(&self.host.links, interface, &mut self.gate, barred)
    }

    /// Reacts to a change of the interface (its addresses, name, state) or of what diverts its packets.
    pub fn follow(&mut self) -> Result<Option<Loss>> {
        let changed = self.watch.changed();
        // A look that fails is taken again.
        self.stale |= !matches!(changed, Ok(false));
        if self.stale && self.follow_interface()?.is_some() {
            return Ok(Some(Loss::Gone));
        }
        changed?;
        let followed = self.diverting.follow();
        self.diverting.tell(&mut self.gate);
        if !matches!(followed, Ok(false)) {
            // Of one that has gone meanwhile nothing can be read.
            if self.is_gone() {
                return Ok(Some(Loss::Gone));
            }
            if let Some(forwarding) = &mut self.forwarding {
                forwarding.look(&self.host.links, self.claim.ifindex, &mut self.gate)?;
            }
            self.look_at_answers()?;
            // Ports and routes change without a word of the interface. A router's routes do all the time, so they are not
            // listened to.
            self.gate.follow_ports(&self.host.links, self.claim.ifindex)?;
            self.follow_addresses()?;
        }
        self.gate.believe_for(BELIEVED);
        followed.map(|_| None)
    }

    fn follow_interface(&mut self) -> Result<Option<Loss>> {
        let ifindex = self.claim.ifindex;
        let Some(name) = self.host.name_of(ifindex)? else { return Ok(Some(Loss::Gone)) };
        let renamed = match name != self.claim.interface() {
            true => self.claim.journal.rename(&name),
            false => Ok(()),
        };
        self.gate.configure(self.host.links.mac(ifindex)?, self.settings.policy);
        self.gate.follow_mtu(self.host.links.info(ifindex)?.mtu);
        self.follow_addresses()?;
        // What follows is tried again by the tick.
        self.stale = false;
        self.ticks_since_change = 0;
        self.bypass.begin_anew();
        self.follow_napi()?;
        renamed.map(|()| None)
    }

    fn follow_addresses(&mut self) -> Result<()> {
        let unlisted = set_addresses(&mut self.gate, self.claim.ifindex)?;
        // How many they are changes with each that is added.
        if unlisted.is_some() && self.unlisted.is_none() {
            self.news.extend(unlisted.as_deref().map(notes::unlisted));
        }
        self.unlisted = unlisted;
        Ok(())
    }

    /// Whether its gate may sleep: not where nothing would wake it, nor where it is asked to count alone.
    pub fn may_sleep(&self) -> bool {
        self.settings.policy == Policy::On && (self.limit.is_none() || self.limiter.tells())
    }

    /// Reads the counters and publishes the status; `guardian_pid`, `sleep` and `lost` are part of it, and
    /// `late_dropped`, if that is known: it is the namespace's.
    ///
    /// # Errors
    /// If the counters cannot be read, which the status then says, or if the kernel does not tell whether the gate is
    /// attached. The status is published in either case.
    pub fn tick(
        &mut self,
        guardian_pid: Option<i32>,
        sleep: &SleepStatus,
        lost: Vec<InterfaceStatus>,
        late_dropped: Option<u64>,
    ) -> Result<Tick> {
        self.diverting.set_asleep(sleep.asleep && self.forwarding.is_none());
        self.ticks_since_change = self.ticks_since_change.saturating_add(1);
        let ticks = self.ticks_since_change;
        // Whatever goes wrong, the status is published.
        let mut threads = Ok(());
        let ungoverned = self.threads.drop_ungoverned();
        if ungoverned {
            self.news.push("a thread of the governor has panicked; another takes its place".into());
        }
        if ungoverned || ticks <= FOLLOW_UP_TICKS || ticks.is_multiple_of(LOOK_ANYWAY_TICKS) {
            threads = self.look_for_threads();
            self.look_at_steering();
            self.regain_limit();
        }
        self.ticks = self.ticks.wrapping_add(1);
        let mut pruned = Ok(());
        if self.ticks.is_multiple_of(PRUNE_TICKS) {
            pruned = self.gate.prune_channels(&mut self.pruner, Instant::now());
        }
        let counted = self.count(late_dropped);
        let packets = self.last.gate.total().packets;
        let came = counted.as_ref().is_ok_and(|before| packets > before.total().packets);
        self.follow_polls(came);
        let recorded = self.claim.keep();
        let mut status = self.status(guardian_pid, sleep);
        status.lost = lost;
        status.written_at = Some(monotonic_now());
        if let Err(error) = &counted {
            let secs = self.last.at.elapsed().as_secs();
            status.notes.push(format!("its packet counts are {secs} s old: {error}"));
        }
        let published = status.write(&self.host.dir);
        let before = counted?;
        let needed = self.follow_need();
        self.follow_rest(sleep.asleep);
        let (loss, looked) = match self.gate.is_attached() {
            Ok(true) => (None, Ok(())),
            _ if self.is_gone() => (Some(Loss::Gone), Ok(())),
            Ok(false) => (Some(Loss::Detached), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let done =
            needed.and(threads).and(pruned.map_err(Error::from)).and(recorded).and(published);
        Ok(Tick {
            loss,
            trouble: done.and(looked.map_err(Error::from)).err(),
            interface: self.interface(),
            rates: self.rates,
            top_discard: self.last.gate.since(&before).top_discard(),
            counters: self.last.gate.clone(),
            policy: self.settings.policy,
        })
    }

    /// Reads the counters; returns what the gate's were before. Where they cannot be read, the last ones stand.
    fn count(&mut self, late_dropped: Option<u64>) -> Result<Counters> {
        let late_dropped = late_dropped.unwrap_or(self.last.drops.udp_late);
        let (links, policy) = (&self.host.links, self.settings.policy);
        let now = Sample::read(links, self.claim.ifindex, &self.gate, policy, late_dropped)?;
        let before = std::mem::replace(&mut self.last, now);
        let ring_drops_counted = self.rates.ring_drops_counted;
        self.rates = Rates { ring_drops_counted, ..Rates::between(&before, &self.last) };
        self.news.extend(self.bypass.look(self.attached.mode, &before, &self.last));
        Ok(before.gate)
    }

    fn status(&self, guardian_pid: Option<i32>, sleep: &SleepStatus) -> InterfaceStatus {
        let over_share = self.last.gate.get(Reason::CpuShare);
        InterfaceStatus {
            schema: status::SCHEMA,
            running: true,
            loss: None,
            lost: Vec::new(),
            silent_for: None,
            stalled: false,
            pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
            guardian_pid,
            guardian_is_stopped: false,
            has_no_guardian: false,
            interface: self.interface(),
            ifindex: self.claim.ifindex,
            netns: self.host.netns,
            attach: Some(self.attached.mode),
            attach_reason: self.attached.reason.clone(),
            counters_map_id: self.counters_map_id,
            channel_map_ids: self.channel_map_ids,
            retired: self.pruner.retired(),
            policy: self.settings.policy,
            sleep: sleep.clone(),
            nice: self.threads.weight().fixed(),
            governed: self.threads.observed(&self.host.links),
            no_governor: self.no_governor.clone().or_else(|| self.threads.ungoverned()),
            shares_enforced: self.threads.shares_are_enforced(),
            user_share: self.settings.governor.user_share,
            prefer: self.settings.governor.prefer,
            not_threaded: self.polled.not_threaded.clone(),
            no_syn_cookies: self.answering.why_not().map(Into::into),
            softirq_limit: self.limit.as_ref().map(|limit| limit.observed(over_share.packets)),
            napi_threads: self.threads.pids(),
            diversions: self.diverting.found().iter().map(Into::into).collect(),
            notes: self.notes().chain(self.lazy.clone()).chain(self.forwarding()).collect(),
            bypassed: self.bypass.packets(),
            since: self.since.clone(),
            updated: clock::timestamp(SystemTime::now()),
            written_at: None,
            verdicts: status::by_verdict(&self.last.gate, self.settings.policy),
            reasons: status::by_reason(&self.last.gate, self.settings.policy),
            rates: self.rates,
            drops: self.last.drops,
            knobs: self.claim.journal.knobs().iter().map(Into::into).collect(),
        }
    }

    /// Whether every packet passes because of what may divert it.
    pub fn passes_all(&self) -> bool {
        self.diverting.found().iter().any(|diversion| diversion.kind.passes())
    }

    /// Why no lazy socket is given packets of it, if none is.
    pub fn diverted(&self) -> Option<String> {
        if self.gate.sees_pieces() {
            let why = "XDP cannot tell merged packets from single ones here; use `--attach tc`";
            return Some(format!("{}: {why}", self.interface()));
        }
        self.diverting.elsewhere().map(|diversion| format!("{}: {diversion}", self.interface()))
    }

    /// Whether the fast path forwards from here and to here.
    pub fn forwards(&self) -> bool {
        self.forwarding.is_some()
    }

    /// Lets the fast path send by these.
    ///
    /// # Errors
    /// Names what it would bypass.
    pub fn forward_among(&mut self, interfaces: &[IfIndex]) -> Result<()> {
        let Some(forwarding) = &mut self.forwarding else { return Ok(()) };
        forwarding.begin(&self.host.links, self.claim.ifindex, interfaces, &mut self.gate)?;
        forwarding.check_egresses()
    }

    /// The kernel forwards, from the next packet on.
    pub fn stop_forwarding(&mut self) {
        if self.forwarding.is_some() {
            let _ = self.gate.send_by(&[]);
        }
    }

    fn forwarding(&self) -> Option<String> {
        self.forwarding.as_ref().map(Forwarding::summary)
    }

    /// What is to be said of lazy sockets.
    pub fn set_lazy(&mut self, summary: String) {
        self.lazy = Some(summary);
    }

    /// Where the gate is attached.
    pub fn attach(&self) -> AttachMode {
        self.attached.mode
    }

    /// The kernel's number of the map with the gate's counters.
    pub fn counters_map_id(&self) -> u32 {
        self.counters_map_id
    }

    /// Whether the interface no longer exists here.
    pub fn is_gone(&self) -> bool {
        matches!(self.host.name_of(self.claim.ifindex), Ok(None))
    }

    /// The last status of an interface that is protected no longer, and why it is not.
    pub fn loss(&self, why: &str) -> InterfaceStatus {
        InterfaceStatus {
            running: false,
            loss: Some(why.into()),
            governed: Vec::new(),
            napi_threads: Vec::new(),
            knobs: Vec::new(),
            rates: Rates::default(),
            ..self.status(None, &SleepStatus::default())
        }
    }

    /// Says what was set up.
    pub fn describe(&self, console: &mut Console) {
        console.say(&self.summary());
        for note in self.notes() {
            console.say(&format!("{}: {note}", self.interface()));
        }
    }

    fn summary(&self) -> String {
        let policy = match self.settings.policy {
            Policy::On => "",
            Policy::Shadow => ", policy shadow: nothing is discarded",
            Policy::Off => ", policy off",
        };
        let count = self.threads.pids().len();
        let threads = match (&self.polled.not_threaded, self.threads.weight()) {
            (Some(_), _) if !self.gate.is_polled() => "no NAPI".into(),
            (Some(_), _) if self.limit.is_some() => "NAPI in softirq, limited".into(),
            (Some(_), _) => "NAPI in softirq".into(),
            (None, weight) => format!("{count} NAPI thread(s), {weight}"),
        };
        format!(
            "{} {} ({}{policy}; {threads})",
            if self.settings.policy == Policy::On { "protecting" } else { "watching" },
            self.interface(),
            self.attached.mode.description()
        )
    }

    /// What its user should know besides.
    fn notes(&self) -> impl Iterator<Item = String> {
        let unused = self.polled.never_by_threads().then(|| self.settings.threads.unused());
        let unlisted = self.unlisted.as_deref().map(notes::unlisted);
        let notes = self.notes.iter().chain(&self.steered).cloned().chain(unlisted);
        notes.chain(unused.into_iter().flatten()).chain(self.threads.note())
    }

    fn look_at_steering(&mut self) {
        let steering = rps::steering(&self.host.sysfs, &self.interface());
        self.steered = rps::note(&steering, self.settings.rps_off);
    }

    /// What the user should know that has changed since this was last asked.
    pub fn take_news(&mut self) -> Vec<String> {
        let forwarding = self.forwarding.iter_mut().flat_map(Forwarding::take_news);
        let own = std::mem::take(&mut self.news);
        own.into_iter().chain(self.diverting.take_news()).chain(forwarding).collect()
    }

    /// Descriptors that are readable when [`Protected::follow`] may have something to do.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        once(self.watch.as_fd()).chain(self.diverting.fds())
    }

    /// When to call [`Protected::follow`] even if no descriptor is readable.
    pub fn due(&self) -> Instant {
        self.diverting.due()
    }

    /// UDP packets that the kernel dropped at full sockets since protection began.
    fn late_dropped(&self) -> u64 {
        let now = snmp::udp_stats().map_or(self.last.drops.udp_late, late_drops);
        now.saturating_sub(self.late_dropped_before)
    }

    /// Puts everything back and says what there was to say.
    pub fn finish(mut self) -> Farewell {
        self.threads.put_back();
        self.threaded = None;
        self.rps.clear();
        self.gate.detach();
        self.attached.filter = None;
        // After detaching, no packet is missing.
        let counters = self.gate.counters().unwrap_or_else(|_| self.last.gate.clone());
        let would_have = match self.settings.policy {
            Policy::Shadow => {
                let late_dropped = self.late_dropped();
                let ifindex = self.claim.ifindex;
                shadow::would_have(&self.gate, &counters, &self.host, ifindex, late_dropped)
            }
            Policy::On | Policy::Off => Vec::new(),
        };
        Farewell {
            interface: self.interface(),
            counters,
            knobs: self.claim.journal.report(),
            policy: self.settings.policy,
            would_have,
        }
    }
}

/// One second of an interface.
#[derive(Debug)]
pub struct Tick {
    /// What did not succeed in it, and is tried again.
    pub trouble: Option<Error>,
    /// Why it is protected no longer, if it is not.
    pub loss: Option<Loss>,
    /// The interface.
    pub interface: String,
    /// What happened in it.
    pub rates: Rates,
    /// Why most discards happened.
    pub top_discard: Option<weir_bpf::verdict::Reason>,
    /// Everything that the gate has seen so far.
    pub counters: Counters,
    /// What it does with what it decides.
    pub policy: Policy,
}

/// Lets the fast path send by all that forward.
///
/// # Errors
/// Names what it would bypass.
pub fn forward(interfaces: &mut [Protected]) -> Result<()> {
    let forwarding: Vec<_> =
        interfaces.iter().filter(|each| each.forwards()).map(Protected::ifindex).collect();
    // Each is told, also after one that refuses.
    interfaces.iter_mut().map(|each| each.forward_among(&forwarding)).fold(Ok(()), Result::and)
}

/// Loads a gate for a place, and tells it everything.
fn load(
    kernel: &Kernel,
    claim: &Claim,
    settings: &Settings,
    place: AttachMode,
) -> Result<(Gate, Diverting)> {
    let ifindex = claim.ifindex;
    let mut gate = match (claim.bare, settings.forward) {
        (true, _) => Gate::load_bare(&kernel.probe),
        (false, true) => Gate::load_forwarding(&kernel.probe),
        (false, false) => Gate::load(&kernel.probe, place),
    }?;
    let diverting = Diverting::open(ifindex, gate.sight(), gate.program_id()?)?;
    gate.configure(kernel.host.links.mac(ifindex)?, settings.policy);
    set_changeable(&mut gate, settings);
    set_addresses(&mut gate, ifindex)?;
    diverting.tell(&mut gate);
    gate.believe_for(BELIEVED);
    Ok((gate, diverting))
}

/// What may change while the gate is attached.
fn set_changeable(gate: &mut Gate, settings: &Settings) {
    gate.set_selective(settings.selective);
    gate.set_protected_ports(settings.protected_ports.iter().copied());
}

/// Tells the gate this host's addresses; what it does not know of them.
fn set_addresses(gate: &mut Gate, ifindex: IfIndex) -> Result<Option<String>> {
    let addresses = LocalAddresses::read(&[ifindex])?;
    gate.set_local(&addresses)?;
    Ok(addresses.unlisted())
}

/// Switches receive packet steering off on every queue, until the knobs are dropped.
fn steer_nowhere(host: &Host, journal: &Rc<Journal>) -> Result<Vec<TurnedKnob>> {
    let steering = rps::steering(&host.sysfs, &journal.interface());
    steering.into_iter().map(|(queue, old)| journal.turn(Knob::Rps { queue, old })).collect()
}
