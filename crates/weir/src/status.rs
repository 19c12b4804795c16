//! What a daemon publishes each second about one interface, and reading it back.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, Serializer};
use weir_bpf::accounts::monotonic_now;
use weir_bpf::attach::AttachMode;
use weir_bpf::channels::ChannelMapIds;
use weir_bpf::counters::{Counter, Counters};
use weir_bpf::features::Lack;
use weir_bpf::gate::Policy;
use weir_bpf::prune::Retired;
use weir_bpf::sys::divert::{Diversion, DiversionKind, Ports};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::stat::Stat;
use weir_bpf::units::{IfIndex, Nanos, Nice};
use weir_bpf::verdict::{Reason, Verdict};
use weir_policy::{Prefer, Share};

use crate::bypass;
use crate::clock;
use crate::config::wanted::Settings;
use crate::diverting::BELIEVED;
use crate::error::{Error, Result};
use crate::governor::observed::Observed;
use crate::key::{Key, STATE_SUFFIX, STATUS_SUFFIX};
use crate::knob::Knob;
use crate::lock::{holder_of, holders_of};
use crate::rundir::{PRIVATE, RUN_DIR, RunDir};
use crate::sample::{Drops, Rates};
use crate::sleep::SleepStatus;
use crate::softirq::LimitStatus;
use crate::statefile::State;
use crate::threading::NotThreaded;
use crate::walls::WallStatus;

/// Version of the shape of everything that is printed as JSON.
pub const SCHEMA: u32 = 1;

/// A daemon reports each second; one that has not for so long does not in time.
const SILENT: Duration = Duration::from_secs(5);
/// It tells its gate more often, so one that is stopped or starved for so long has a gate that passes everything.
const _: () = assert!(BELIEVED.as_secs() + 1 < SILENT.as_secs());

/// One that has not for so long hangs: `WatchdogSec=` of its unit, which starts one anew that is systemd's.
const HANGS: Duration = Duration::from_secs(180);

/// So long after its last knob, one that has room for a status and has published none does not start any more.
const STARTING_MAX: Duration = Duration::from_secs(60);

/// What it costs a port that its packets go to its master, if weir protects that.
pub const MASTER_JUDGES: &str =
    "costs nothing, as its master is protected, and the gate there judges them";

/// What to look at where a status is missing.
const ROOM: &str = "`df /run/weir` and `df -i /run/weir` say whether there is room for its status";

/// One protected interface.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Version of this shape.
    pub schema: u32,
    /// Whether the daemon that wrote this still protects the interface. Found out by the reader.
    pub running: bool,
    /// Why its daemon, which runs, does not protect it, or not any longer; `null` if it does.
    pub loss: Option<String>,
    /// What else its daemon is to protect and does not. Listed with the others by the reader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Self>,
    /// For how long a daemon that runs has published nothing, if that is long. Found out by the reader.
    #[serde(rename = "silent_secs", serialize_with = "whole_secs", skip_deserializing)]
    pub silent_for: Option<Duration>,
    /// Whether it is silent although it has published something and could do so now. Found out by the reader.
    #[serde(skip)]
    pub stalled: bool,
    /// The daemon.
    pub pid: i32,
    /// Its guardian; `null` if there is none now, or none that has a number here.
    pub guardian_pid: Option<i32>,
    /// Whether that is stopped, and so would put nothing back. Found out by the reader.
    #[serde(skip)]
    pub guardian_is_stopped: bool,
    /// Whether its daemon could not start one. Found out by the reader.
    #[serde(skip)]
    pub has_no_guardian: bool,
    /// The interface's name.
    pub interface: String,
    /// The interface's number; 0 if its daemon has not protected it yet.
    pub ifindex: IfIndex,
    /// Inode of its network namespace.
    pub netns: u64,
    /// Where the gate is attached; `null` if its daemon has not protected it yet.
    pub attach: Option<AttachMode>,
    /// Why there.
    pub attach_reason: String,
    /// The kernel's number of the BPF map with the gate's counters.
    pub counters_map_id: u32,
    /// Those of the maps with what it has counted by channel.
    pub channel_map_ids: ChannelMapIds,
    /// Channels that were deleted after they had gone quiet, and what had been counted for them.
    pub retired: Retired,
    /// Whether the gate discards anything.
    pub policy: Policy,
    /// Whether the gate sleeps, as nothing is wrong.
    pub sleep: SleepStatus,
    /// The nice value that NAPI threads keep; `null` if weir leaves it alone or the governor moves it.
    pub nice: Option<Nice>,
    /// What the governor does with each NAPI thread; empty where it is off.
    pub governed: Vec<Observed>,
    /// Why there is no governor although the settings want one; else `null`.
    #[serde(default)]
    pub no_governor: Option<String>,
    /// Whether channels are held to their share of a saturated CPU; they are not where the governor is off, nor
    /// with `enforce = false`.
    pub shares_enforced: bool,
    /// What processes get of a CPU that they want, at least; a part of 1.
    pub user_share: Share,
    /// What input's share is for.
    pub prefer: Prefer,
    /// Why NAPI is not polled by threads; `null` if it is.
    pub not_threaded: Option<NotThreaded>,
    /// Why the gate answers no connection requests by SYN cookie; `null` if it does while a CPU is short.
    #[serde(default)]
    pub no_syn_cookies: Option<String>,
    /// What receive softirqs are limited to; `null` where threads poll, or the policy is off.
    pub softirq_limit: Option<LimitStatus>,
    /// The NAPI threads.
    pub napi_threads: Vec<i32>,
    /// What may take packets elsewhere before a socket sees them, and what that costs.
    pub diversions: Vec<DiversionStatus>,
    /// What the user of this interface should know, each with its remedy; found out when protection
    /// began.
    pub notes: Vec<String>,
    /// Packets that the interface has received since its gate, at XDP, last saw one. 0 at tc, where what other programs
    /// take does not reach the gate.
    #[serde(default)]
    pub bypassed: u64,
    /// When protection began, RFC 3339.
    pub since: String,
    /// When this was written, RFC 3339.
    pub updated: String,
    /// The same by a clock that nobody sets (`CLOCK_MONOTONIC`), for the reader alone; `None` of an earlier version's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Nanos>,
    /// Packets since protection began, by verdict.
    pub verdicts: Vec<VerdictCount>,
    /// The same packets, by reason.
    pub reasons: Vec<ReasonCount>,
    /// What happened in the last second.
    pub rates: Rates,
    /// What was dropped outside the gate.
    pub drops: Drops,
    /// What weir has turned, in that order.
    pub knobs: Vec<KnobStatus>,
}

fn whole_secs<S: Serializer>(
    time: &Option<Duration>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(to)
}

/// Something that may take packets elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiversionStatus {
    /// What it is.
    pub kind: DiversionKind,
    /// What it is, for a person.
    pub description: String,
    /// What was found, and where.
    pub detail: String,
    /// Whether the gate passes every packet because of it.
    pub passes_all: bool,
    /// What it costs, and the remedy.
    pub cost: String,
    /// The ports whose packets pass because of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Ports>,
}

impl From<&Diversion> for DiversionStatus {
    fn from(diversion: &Diversion) -> Self {
        Self {
            kind: diversion.kind,
            description: diversion.kind.what().into(),
            detail: diversion.detail.clone(),
            passes_all: diversion.kind.passes(),
            cost: diversion.kind.cost(),
            ports: diversion.ports.clone(),
        }
    }
}

/// Packets under one verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictCount {
    /// The verdict.
    pub verdict: String,
    /// What it means.
    pub description: String,
    /// Its packets, and bytes of their Ethernet frames.
    #[serde(flatten)]
    pub counter: Counter,
}

/// Packets under one reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReasonCount {
    /// The reason.
    pub reason: String,
    /// The verdict that it belongs to.
    pub verdict: String,
    /// What it means.
    pub description: String,
    /// Its packets, and bytes of their Ethernet frames.
    #[serde(flatten)]
    pub counter: Counter,
}

/// A knob that is turned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnobStatus {
    /// What is turned.
    pub knob: String,
    /// Its value before.
    pub old: String,
    /// Its value while weir runs.
    pub new: String,
}

impl From<&Knob> for KnobStatus {
    fn from(knob: &Knob) -> Self {
        Self { knob: knob.object(), old: knob.old_value(), new: knob.new_value() }
    }
}

/// Packets by verdict.
pub fn by_verdict(counters: &Counters, policy: Policy) -> Vec<VerdictCount> {
    let count = |verdict: Verdict| {
        let (name, description) = told(verdict, policy);
        let counter = counters.verdict(verdict);
        VerdictCount { verdict: name.into(), description: description.into(), counter }
    };
    Verdict::ALL.into_iter().map(count).collect()
}

/// A verdict's name and description. In shadow, nothing is discarded.
fn told(verdict: Verdict, policy: Policy) -> (&'static str, &'static str) {
    match (verdict, policy) {
        (Verdict::Discard, Policy::Shadow) => {
            ("would-discard", "handed to the kernel; would be dropped with the policy on")
        }
        _ => (verdict.name(), verdict.description()),
    }
}

/// Packets by reason.
pub fn by_reason(counters: &Counters, policy: Policy) -> Vec<ReasonCount> {
    let count = |reason: Reason| ReasonCount {
        reason: reason.name().into(),
        verdict: told(reason.verdict(), policy).0.into(),
        description: reason.description().into(),
        counter: counters.get(reason),
    };
    Reason::ALL.into_iter().map(count).collect()
}

impl InterfaceStatus {
    /// What its daemon has published of its gate's counters: at most a second old.
    pub fn counters(&self) -> Counters {
        let of = |each: &ReasonCount| {
            let reason = Reason::ALL.into_iter().find(|reason| reason.name() == each.reason);
            Some((reason?, each.counter))
        };
        self.reasons.iter().filter_map(of).collect()
    }

    /// That of an interface of this namespace which a daemon has not protected yet, and why.
    pub fn awaited(interface: &str, netns: u64, settings: &Settings, why: String) -> Self {
        let now = clock::timestamp(SystemTime::now());
        Self {
            schema: SCHEMA,
            loss: Some(why),
            pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
            interface: interface.into(),
            netns,
            attach_reason: "not attached yet".into(),
            policy: settings.policy,
            user_share: settings.governor.user_share,
            prefer: settings.governor.prefer,
            since: now.clone(),
            updated: now,
            ..Self::default()
        }
    }

    /// That its daemon, which runs, does not protect it, and why.
    pub fn unprotected(&self) -> Option<String> {
        let since = if self.was_protected() { "no longer" } else { "not yet" };
        self.loss.as_ref().map(|why| format!("{since} protected: {why}"))
    }

    /// Whether its daemon has protected it at some time.
    pub fn was_protected(&self) -> bool {
        self.ifindex != IfIndex(0)
    }

    /// Publishes the status.
    pub fn write(&self, dir: &RunDir) -> Result<()> {
        let name = self.key().status_file();
        let text =
            serde_json::to_vec(self).map_err(|error| malformed(dir, &name, error.to_string()))?;
        dir.rewrite(&name, PRIVATE, &text)
    }

    /// That its daemon, which runs, has reported nothing for long, and what that means.
    pub fn silence(&self) -> Option<String> {
        let what = match self.stalled {
            true => " (it is stopped or starved), so its gate passes everything".into(),
            false => format!(": {ROOM}"),
        };
        let secs = self.silent_for?.as_secs();
        Some(format!("its daemon has reported nothing for {secs} s{what}"))
    }

    /// Whether it hangs, so that one is to be started anew.
    pub fn hangs(&self) -> bool {
        self.stalled && self.silent_for >= Some(HANGS)
    }

    /// Whether its daemon, if that runs, publishes it in time.
    pub fn reports(&self) -> bool {
        self.silent_for.is_none() && !self.starts()
    }

    /// Whether its daemon is still to publish the first one.
    pub fn starts(&self) -> bool {
        self.running && self.attach.is_none() && self.silent_for.is_none()
    }

    /// Whether its gate may discard anything: the limit of softirqs does whatever may divert packets.
    pub fn discards(&self) -> bool {
        let diverted = self.diversions.iter().any(|each| each.passes_all);
        self.policy == Policy::On
            && !self.stalled
            && !self.starts()
            && (!diverted || self.softirq_limit.is_some())
            && self.bypass().is_none()
    }

    /// Why a thread that polls it is not governed, of each that is not.
    pub fn ungoverned(&self) -> impl Iterator<Item = String> {
        let polling = self.governed.iter().filter(|_| self.not_threaded.is_none());
        polling.filter_map(Observed::ungoverned)
    }

    /// Whether it is of the same gate. One that was lost may have another by now, with maps of its own.
    pub fn is_of_gate(&self, other: &Self) -> bool {
        self.counters_map_id == other.counters_map_id
    }

    /// What is wrong if packets go past its gate.
    pub fn bypass(&self) -> Option<String> {
        bypass::shortcoming(self.attach?, self.bypassed)
    }

    /// The name of its files.
    pub fn key(&self) -> Key {
        Key { netns: self.netns, ifindex: self.ifindex }
    }

    /// Reads what the daemons have published, in one network namespace or in all.
    pub fn read_all(dir: Option<&RunDir>, netns: Option<u64>) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        let Some(dir) = dir else { return Ok(all) };
        for key in keys(dir, STATUS_SUFFIX, netns)? {
            // It may have gone since the directory was listed.
            all.extend(Self::read(dir, &key)?);
        }
        for key in keys(dir, STATE_SUFFIX, netns)? {
            if !all.iter().any(|status| status.key() == key) {
                all.extend(Self::unpublished(dir, &key));
            }
        }
        let mut lost: Vec<Self> =
            all.iter_mut().flat_map(|status| std::mem::take(&mut status.lost)).collect();
        // Another daemon may protect it by now.
        let place = |status: &Self| (status.netns, status.interface.clone());
        lost.retain(|each| {
            !all.iter().any(|one| one.running && !one.starts() && place(one) == place(each))
        });
        // Until then it is told why it does not.
        all.retain(|one| !one.starts() || !lost.iter().any(|each| place(each) == place(one)));
        all.extend(lost);
        let judging: Vec<_> =
            all.iter().filter(|one| one.running && one.discards()).map(place).collect();
        for one in &mut all {
            let (netns, diversions) = (one.netns, &mut one.diversions);
            for port in diversions.iter_mut().filter(|each| each.kind == DiversionKind::Enslaved) {
                let is_master = |(of, name): &(u64, String)| {
                    *of == netns && port.detail.split(' ').next_back() == Some(name)
                };
                if judging.iter().any(is_master) {
                    port.cost = MASTER_JUDGES.into();
                }
            }
        }
        Ok(all)
    }

    /// Those of the calling thread's network namespace whose daemon runs.
    pub fn running() -> Result<Vec<Self>> {
        let dir = RunDir::open(Path::new(RUN_DIR))?;
        let mut all = Self::read_all(dir.as_ref(), Some(NetNs::current()?.inode()))?;
        all.retain(|status| status.running);
        let (known, unknown): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|status| status.attach.is_some());
        // One that starts keeps nobody from looking at the others.
        match unknown.into_iter().find(|status| known.is_empty() || !status.starts()) {
            None => Ok(known),
            Some(Self { interface, .. }) => Err(Error::refused(
                format!("the daemon that protects {interface} has not written its status yet"),
                format!("wait while it starts; {ROOM}"),
            )),
        }
    }

    /// Of an interface whose daemon runs and has published nothing: it starts, or there was no room.
    fn unpublished(dir: &RunDir, key: &Key) -> Option<Self> {
        let silent_for = dir.age(&key.state_file()).unwrap_or_default();
        let state = State::read(dir, key).ok()??;
        let pid = holder_of(dir, key, state.owner.pid)?;
        let since = clock::timestamp(SystemTime::now() - silent_for);
        Some(Self {
            schema: SCHEMA,
            running: true,
            silent_for: (silent_for >= STARTING_MAX || !dir.has_room_for(1)).then_some(silent_for),
            pid,
            interface: state.interface,
            ifindex: key.ifindex,
            netns: key.netns,
            updated: since.clone(),
            since,
            ..Self::default()
        })
    }

    /// Reads what the daemon has published last; `None` if there is no such file, or its daemon takes it away meanwhile.
    pub fn read(dir: &RunDir, key: &Key) -> Result<Option<Self>> {
        let name = key.status_file();
        // Asked first: of an older file if a newer one has just taken its place.
        let age = dir.age(&name);
        let Some(text) = dir.read(&name)? else { return Ok(None) };
        let mut status: Self = serde_json::from_str(&text)
            .map_err(|error| malformed(dir, &name, error.to_string()))?;
        if status.schema != SCHEMA {
            return Err(malformed(dir, &name, format!("schema {}", status.schema)));
        }
        let now = monotonic_now();
        let holder = holder_of(dir, key, status.pid);
        if holder.is_none() && dir.inode(&name).is_none() {
            return Ok(None);
        }
        status.has_no_guardian = status.guardian_pid.is_none() && status.attach.is_some();
        // By the numbers of another PID namespace.
        status.guardian_pid = status.guardian_pid.filter(|_| holder == Some(status.pid));
        let guardian = status.guardian_pid.and_then(Stat::of);
        status.guardian_is_stopped = guardian.is_some_and(|guardian| guardian.is_stopped());
        (status.running, status.pid) = (holder.is_some(), holder.unwrap_or(status.pid));
        let written_ago = |at| Duration::from(now - at);
        let age = status.written_at.take().map(written_ago).or(age);
        status.silent_for = age.filter(|age| status.running && *age >= SILENT);
        status.stalled = status.silent_for.is_some() && dir.has_room_for(text.len());
        Ok(Some(status))
    }
}

fn malformed(dir: &RunDir, name: &str, problem: String) -> Error {
    Error::Malformed {
        path: dir.path_of(name),
        problem,
        remedy: "use the `weir` that the daemon was started from".into(),
    }
}

/// Whose files there are, in one network namespace or in all, in the order of `ip link`.
pub(crate) fn keys(dir: &RunDir, suffix: &str, netns: Option<u64>) -> Result<Vec<Key>> {
    let names = dir.names()?;
    let keys = names.iter().filter_map(|name| Key::of_file(name, suffix));
    let mut keys: Vec<_> =
        keys.filter(|key| netns.is_none_or(|netns| netns == key.netns)).collect();
    keys.sort_unstable_by_key(|key| (key.netns, key.ifindex.0));
    Ok(keys)
}

/// What `weir status --json` prints.
#[derive(Debug, Serialize)]
pub struct Overview {
    /// Version of this shape.
    pub schema: u32,
    /// Protected interfaces, and those whose daemon has died.
    pub interfaces: Vec<InterfaceStatus>,
    /// Interfaces where knobs may still be turned although no daemon runs.
    pub leftovers: Vec<Leftover>,
    /// Interfaces of this network namespace with a wall of `weir screen`; `null` if that cannot be seen.
    pub walls: Option<Vec<WallStatus>>,
    /// What the running kernel lacks, and what that costs: for who prints it to fill in, as it takes long to find.
    pub kernel_lacks: Vec<Lack>,
}

/// Knobs that a daemon has left turned.
#[derive(Debug, Serialize)]
pub struct Leftover {
    /// The interface's number.
    pub ifindex: IfIndex,
    /// Inode of its network namespace.
    pub netns: u64,
    /// What the state file is called.
    pub state_file: String,
}

/// What is said of one.
pub const LEFT_TURNED: &str = "a killed weir has left knobs turned: `sudo weir reset`";

impl Leftover {
    /// Those of the calling thread's network namespace.
    pub fn here() -> Result<Vec<Self>> {
        let dir = RunDir::open(Path::new(RUN_DIR))?;
        Self::read_all(dir.as_ref(), Some(NetNs::current()?.inode()))
    }

    /// Those in one network namespace or in all.
    fn read_all(dir: Option<&RunDir>, netns: Option<u64>) -> Result<Vec<Self>> {
        let Some(dir) = dir else { return Ok(Vec::new()) };
        let mut all = keys(dir, STATE_SUFFIX, netns)?;
        // Between its first knob and its first status, a daemon is running but not yet listed. One that has ended
        // since the directory was listed has taken its record away.
        all.retain(|key| holders_of(dir, key).is_empty() && dir.inode(&key.state_file()).is_some());
        let leftover = |key: Key| Self {
            ifindex: key.ifindex,
            netns: key.netns,
            state_file: dir.path_of(&key.state_file()).display().to_string(),
        };
        Ok(all.into_iter().map(leftover).collect())
    }
}

impl Overview {
    /// Reads what the daemons have published, in one network namespace or in all.
    pub fn read(dir: Option<&RunDir>, netns: Option<u64>) -> Result<Self> {
        let interfaces = InterfaceStatus::read_all(dir, netns)?;
        // What is protected does not hang on it.
        let walls = WallStatus::read_all().ok().flatten();
        let leftovers = Leftover::read_all(dir, netns)?;
        Ok(Self { schema: SCHEMA, interfaces, leftovers, walls, kernel_lacks: vec![] })
    }
}
