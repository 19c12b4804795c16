//! Everything that stays up over a run: a host for each arm, its applications, the generator.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weir_bpf::attach::Attached;
use weir_bpf::bare::{Bare, BarePrograms};
use weir_bpf::sys::napi;
use weir_bpf::sys::sched;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::traffic::{FlowSpec, Generator};
use weir_bpf::units::{CpuId, MacAddr, Nice, PacketsPerSec};

use crate::apps::compute::Work;
use crate::apps::{Job, udp};
use crate::arm::{Arm, Napi};
use crate::error::{Error, Result};
use crate::histogram;
use crate::host::process::Process;
use crate::host::quota::Quotas;
use crate::host::topology::{Host, SUT_INTERFACE, Topology};
use crate::host::wire::{self, FLOOD_NET, OFF_LINK, mask};
use crate::programs::{Daemon, Place};
use crate::run::{Load, Setup};
use crate::scene::{App, AppKind, FLOODED_PORT, Flow, From, Need, To};
use crate::stop::{Undo, wait_for};

pub const FIRST_PACKET_DEADLINE: Duration = Duration::from_secs(2);
/// From the tested CPU, to bind its interrupts.
const FIRST_PACKETS: PacketsPerSec = PacketsPerSec(10_000.0);
/// How long the calibrated loop is watched, to know how long it takes.
const WATCH: Duration = Duration::from_millis(100);

/// No interface's.
const NOBODYS_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x09]);

pub struct Sut {
    // In the order in which they must be dropped: processes, then what they are in.
    apps: Vec<(App, Process)>,
    met: Vec<Need>,
    pub host: Host,
    /// At the far end of an egress that sends frames: no skb is built of them there, either.
    _sink: Option<Attached>,
}

pub struct Bench {
    suts: BTreeMap<String, Sut>,
    /// The calibrated loop on the tested CPU.
    pub speed: Process,
    pub generator: Generator,
    pub bare: BarePrograms,
    /// The machine's quota, once another is wanted.
    quotas: Option<Quotas>,
    pub topology: Topology,
    /// What ran where, by arm, once its first trial has been set up.
    pub setups: BTreeMap<String, Setup>,
    pub sut_cpu: CpuId,
    /// CPU of the generator, the far end and the controller.
    pub generator_cpu: CpuId,
    /// Of one pass of the calibrated loop, on this machine.
    loop_ns: f64,
}

/// Whether an application is started for each trial, within which weir runs: a lazy socket is asked for once.
fn is_own(arm: &Arm, app: &App) -> bool {
    app.per_trial || arm.has(&["--lazy"]) && matches!(app.kind, AppKind::Udp(_))
}

impl Bench {
    /// Makes the generator's namespace, when it is this lab's turn; hosts are made as they are wanted.
    pub fn set_up((sut_cpu, generator_cpu): (CpuId, CpuId), turn: File) -> Result<Self> {
        sched::pin_current_thread(generator_cpu)?;
        // This thread sleeps nearly always; when it wakes it must not wait for the generator.
        sched::set_nice(rustix::thread::gettid(), Nice(-10))?;
        let topology = Topology::create(turn)?;
        let speed = Process::worker(&topology.generator, sut_cpu, Nice(0), Job::SpeedProbe)?;
        let before = speed.histogram();
        std::thread::sleep(WATCH);
        let loop_ns = histogram::quantile(&before, &speed.histogram(), 0.5).ok_or_else(|| {
            let remedy = "is the machine overloaded? try again";
            Error::refused("the calibrated loop does not run", remedy)
        })?;
        // Aimed anew for each trial.
        let nowhere = topology.generator_links.index("lo")?;
        let generator = topology.generator.run(|| Generator::load(nowhere))??;
        Ok(Self {
            suts: BTreeMap::new(),
            speed,
            generator,
            bare: BarePrograms::load()?,
            quotas: None,
            topology,
            setups: BTreeMap::new(),
            sut_cpu,
            generator_cpu,
            loop_ns,
        })
    }

    pub fn sut(&self, arm: &Arm) -> &Sut {
        &self.suts[&arm.name]
    }

    /// Makes an arm's host, where there is none, with what a scene needs and the applications that stay.
    pub fn prepare(&mut self, arm: &Arm, needs: &[Need], apps: &[App]) -> Result<()> {
        let mut sut = match self.suts.remove(&arm.name) {
            Some(sut) => sut,
            None => self.make_sut(arm)?,
        };
        let done = self.furnish(&mut sut, arm, needs, apps);
        self.suts.insert(arm.name.clone(), sut);
        done
    }

    fn make_sut(&mut self, arm: &Arm) -> Result<Sut> {
        let host = self.topology.add_host()?;
        if arm.napi == Napi::Rps {
            host.sysfs.write(SUT_INTERFACE, "queues/rx-0/rps_cpus", &mask(self.sut_cpu))?;
        }
        if arm.nat {
            wire::tool(&host.netns, "nft", wire::NAT_RULES)?;
        }
        // In the other arms, what is attached has a say in who polls.
        if arm.daemon.is_none() && arm.bare.is_none() {
            self.thread(&host, arm)?;
        }
        Ok(Sut { apps: vec![], met: vec![], host, _sink: None })
    }

    fn furnish(&self, sut: &mut Sut, arm: &Arm, needs: &[Need], apps: &[App]) -> Result<()> {
        for need in needs {
            if !sut.met.contains(need) {
                wire::meet(&self.topology, &sut.host, *need, arm, self.generator_cpu)?;
                sut.met.push(*need);
                if arm.forwards_in_driver() && *need == Need::Egress {
                    let index = self.topology.generator_links.index(&wire::sink_name(&sut.host))?;
                    let bare = &self.bare;
                    let attach = || bare.attach(Bare::Drop, index);
                    sut._sink = Some(self.topology.generator.run(attach)??);
                }
            }
        }
        for app in apps {
            if !is_own(arm, app) && sut.apps.iter().all(|(known, _)| known != app) {
                sut.apps.push((app.clone(), self.start_on(&sut.host, arm, app)?));
            }
        }
        Ok(())
    }

    /// Where an arm has what it tests; `None`: anywhere.
    pub fn cpu(&self, arm: &Arm) -> Option<CpuId> {
        (!arm.unpinned).then_some(self.sut_cpu)
    }

    /// Where it has its client, likewise.
    pub fn client_cpu(&self, arm: &Arm) -> Option<CpuId> {
        self.cpu(arm).map(|_| self.generator_cpu)
    }

    /// On the tested CPU, if the arm has one, with a directory of that name.
    fn place<'a>(&self, host: &'a Host, arm: &Arm, name: &str) -> Result<Place<'a>> {
        let directory = self.topology.directory(&format!("{}-{name}", host.generator_ifname))?;
        Ok(Place { netns: &host.netns, cpu: self.cpu(arm), address: host.address.1, directory })
    }

    /// Switches threaded NAPI on, as the arm has it. Attaching XDP makes new threads.
    fn thread(&self, host: &Host, arm: &Arm) -> Result<()> {
        match arm.napi {
            Napi::Thread(policy, nice) => host.thread_napi(self.cpu(arm), policy, nice),
            Napi::Softirq | Napi::Rps => Ok(()),
        }
    }

    fn start_on(&self, host: &Host, arm: &Arm, app: &App) -> Result<Process> {
        let (at, bind) = (|name| self.place(host, arm, name), (host.address.1, app.port).into());
        let job = match &app.kind {
            AppKind::Real(kind) => return at(kind.name)?.server(kind),
            AppKind::Capture(kind) => return at("capture")?.capture(*kind),
            AppKind::Wall(options) => return at("screen")?.screen(options),
            AppKind::Udp(server) => {
                let passes = (server.work.time.as_nanos() as f64 / self.loop_ns).ceil() as u64;
                let work = Work { passes, ..server.work };
                Job::UdpServer(bind, udp::Server { work, ..*server })
            }
            AppKind::Tcp { echo } => Job::TcpServer { bind, echo: *echo },
            AppKind::Screen => Job::Screen,
            AppKind::Unread => Job::Unread([host.address.1.into(), host.address6.1.into()]),
        };
        Process::worker(&host.netns, self.cpu(arm), Nice(app.nice), job)
    }

    pub fn aim(&mut self, arm: &Arm, flows: &[Flow]) -> Result<()> {
        let host = &self.suts[&arm.name].host;
        let specs: Vec<_> = flows.iter().map(|flow| spec(host, flow)).collect();
        self.generator.set_output(host.generator_ifindex);
        self.generator.set_flows(&specs)?;
        Ok(())
    }

    /// Generates on the generator's CPU while `body` runs; see [`Generator::run_while`].
    pub fn generate_while<T>(&self, body: impl FnOnce() -> T) -> Result<T> {
        let (netns, cpu) = (&self.topology.generator, self.generator_cpu);
        Ok(self.generator.run_while(netns, Some(cpu), body)?)
    }

    /// The threads that poll an arm's interface; none where softirqs do.
    pub fn pollers(&self, arm: &Arm) -> Result<Vec<napi::NapiThread>> {
        let host = &self.sut(arm).host;
        Ok(host.netns.run(|| napi::napi_threads(host.ifindex, SUT_INTERFACE))??)
    }

    /// Makes an arm what it is for a trial, and starts the applications that are that trial's alone, until what is
    /// returned is dropped.
    pub fn begin(&mut self, arm: &Arm, apps: &[App]) -> Result<Begun> {
        if arm.quota.is_some() && self.quotas.is_none() {
            self.quotas = Some(Quotas::open(&self.topology, self.generator_cpu)?);
        }
        let quota = self.quotas.as_ref().zip(arm.quota);
        let quota = quota.map(|(quotas, packets)| quotas.set(packets)).transpose()?;
        let host = &self.sut(arm).host;
        let start = |spec| self.place(host, arm, "weir")?.daemon(spec);
        let daemon = arm.daemon.as_ref().map(start).transpose()?;
        let programs = &self.bare;
        let attach = |bare| host.netns.run(|| programs.attach(bare, host.ifindex))?;
        let bare = arm.bare.map(attach).transpose()?;
        if bare.is_some() {
            self.thread(host, arm)?;
        }
        let is_interrupted = arm.napi == Napi::Softirq && !arm.unpinned;
        let interrupts = is_interrupted.then(|| self.bind_interrupts(arm)).transpose()?;
        let host = &self.sut(arm).host;
        let own = apps.iter().filter(|app| is_own(arm, app));
        let own = own.map(|app| Ok((app.clone(), self.start_on(host, arm, app)?)));
        let apps = own.collect::<Result<Vec<_>>>()?;
        // One that may have a program in the driver has brought new NAPI instances; weir finds them itself.
        let in_driver = |kind: &AppKind| matches!(kind, AppKind::Capture(_) | AppKind::Wall(_));
        if daemon.is_none() && apps.iter().any(|(app, _)| in_driver(&app.kind)) {
            self.thread(host, arm)?;
        }
        Ok(Begun { apps, daemon, _bare: bare, _interrupts: interrupts, _quota: quota })
    }

    /// Binds receive interrupts to the tested CPU, by packets that are sent from there, until what is returned is
    /// dropped.
    fn bind_interrupts(&mut self, arm: &Arm) -> Result<Undo<'static>> {
        let sysfs = self.sut(arm).host.netns.run(NetSysfs::open)??;
        let deferred = wire::defer(sysfs, SUT_INTERFACE, wire::MODERATION)?;
        self.aim(arm, &[Flow::udp(FLOODED_PORT, Load::Rate(FIRST_PACKETS.0))])?;
        let (netns, cpu) = (&self.topology.generator, Some(self.sut_cpu));
        let is_sent = || Ok((self.generator.counts(0).sent > 0).then_some(()));
        let unsent =
            ("the generator sent nothing from the tested CPU", "is that CPU busy? see `top`");
        self.generator.run_while(netns, cpu, || {
            self.generator.start();
            wait_for(FIRST_PACKET_DEADLINE, is_sent, unsent)
        })??;
        Ok(deferred)
    }
}

/// What is one trial's alone, in the order in which it must go.
pub struct Begun {
    apps: Vec<(App, Process)>,
    pub daemon: Option<Daemon>,
    _bare: Option<Attached>,
    _interrupts: Option<Undo<'static>>,
    _quota: Option<Undo<'static>>,
}

impl Begun {
    /// An application, of this trial or one that stays.
    pub fn app<'a>(&'a self, sut: &'a Sut, app: &App) -> Option<&'a Process> {
        let mut all = self.apps.iter().chain(&sut.apps);
        all.find(|(known, _)| known == app).map(|(_, running)| running)
    }
}

/// A flow to a host, as the generator takes it.
fn spec(host: &Host, flow: &Flow) -> FlowSpec {
    let mut address: (IpAddr, IpAddr) = (host.address.0.into(), host.address.1.into());
    let mut mac = host.mac;
    match flow.to {
        To::Host => {}
        To::OtherFamily => address = (host.address6.0.into(), host.address6.1.into()),
        To::Broadcast => {
            mac.1 = MacAddr([0xff; 6]);
            address.1 = host.neighbour(255).into();
        }
        To::Group | To::NobodysGroup => {
            let offset = u32::from(flow.to == To::NobodysGroup);
            let group = Ipv4Addr::from(u32::from(udp::GROUP) + offset);
            let [_, b, c, d] = group.octets();
            // RFC 1112, 6.4.
            mac.1 = MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
            address.1 = group.into();
        }
        To::OtherHost => mac.1 = NOBODYS_MAC,
        To::Behind => address.1 = wire::behind(host).into(),
    }
    match flow.from {
        From::Generator => {}
        From::Client => address.0 = host.client.into(),
        From::Last(last) => address.0 = host.neighbour(last).into(),
        From::FloodNet => address.0 = FLOOD_NET.0.into(),
        From::OffLink => address.0 = OFF_LINK.into(),
    }
    FlowSpec {
        transport: flow.transport,
        lengths: flow.lengths.clone(),
        sources: flow.sources,
        options: flow.options.clone(),
        destination_port_bits: flow.port_bits,
        burst: flow.burst,
        rate: match flow.load {
            Load::Rate(rate) => Some(PacketsPerSec(rate)),
            Load::Top | Load::Off => None,
        },
        ..FlowSpec::udp(mac, address, (flow.from_port, flow.port))
    }
}
