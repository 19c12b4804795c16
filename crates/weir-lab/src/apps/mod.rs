//! The processes that the lab starts: applications, clients, and what runs beside them.
//!
//! They run as `weir lab-worker ...`, so that one executable is all there is to install. Each ends
//! with the process that started it, however that ends; one may put something back then.

pub(crate) mod compute;
pub(crate) mod http;
pub(crate) mod parity;
pub(crate) mod rpc;
pub(crate) mod screen;
pub(crate) mod slots;
mod sockets;
pub(crate) mod tcp;
pub(crate) mod udp;
pub(crate) mod unread;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared_memory::SharedCounters;
use weir_bpf::units::{CpuId, Nice};

use self::compute::Beside;
use crate::error::{Error, Result, cannot};
use crate::host::quota;

pub(crate) const OWN: &str = "/proc/self/exe";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Receives UDP packets in a loop, computes, answers, as a program that does nothing special.
    UdpServer(SocketAddr, udp::Server),
    /// Over TCP sends back what it gets (`echo`), or takes it, which under a flood of SYNs is nothing.
    TcpServer {
        bind: SocketAddr,
        echo: bool,
    },
    /// Accepts what the host forwards.
    Screen,
    /// Holds sockets that nobody reads.
    Unread([IpAddr; 2]),
    Client(IpAddr, Client),
    /// Times a calibrated loop again and again.
    SpeedProbe,
    Beside(Beside),
    /// Writes what a quota's sysctls were when the lab has ended.
    PutBack([String; 3]),
    /// Becomes another program inside the namespace: its path, its name, its arguments.
    Program(PathBuf, String, Vec<String>),
}

/// A client of the lab's own, which asks the applications from the far end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Client {
    /// Requests of a fixed length over connections that stay open, so many per second in all.
    Tcp { connections: u32, per_second: u32, port: u16 },
    /// HTTP requests, each connection with one under way at any time.
    Http { connections: u32, keep_alive: bool, port: u16 },
    /// Calls of the computing worker, and requests outstanding with the short servers.
    Rpc {
        worker: u16,
        servers: Vec<u16>,
        /// Requests outstanding with each.
        outstanding: u32,
    },
    /// The sending end of one of parity's conversations.
    Parity(parity::Talk, u16),
}

impl Job {
    /// What ends it. A daemon is to put everything back, a server to end its own processes; an application that is
    /// stopped would not see SIGTERM.
    pub(crate) fn end(&self) -> Signal {
        if matches!(self, Self::Program(..)) { Signal::TERM } else { Signal::KILL }
    }
}

impl Client {
    fn run(&self, host: IpAddr, shared: &SharedCounters) -> io::Result<()> {
        let at = |port: &u16| SocketAddr::new(host, *port);
        match self {
            Self::Tcp { connections, per_second, port } => {
                tcp::ask(at(port), *connections, *per_second, shared)
            }
            Self::Http { connections, keep_alive, port } => {
                http::ask(at(port), *connections, *keep_alive, shared)
            }
            Self::Rpc { worker, servers, outstanding } => {
                rpc::call(at(worker), servers.iter().map(at), *outstanding, shared)
            }
            Self::Parity(talk, port) => parity::converse(*talk, at(port), shared),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub(crate) parent: u32,
    pub(crate) netns: PathBuf,
    /// `None`: any, as the scheduler likes.
    pub(crate) cpu: Option<u32>,
    pub(crate) nice: i32,
    /// Of memory that it shares with the controller.
    pub(crate) shared: Option<PathBuf>,
    pub(crate) job: Job,
}

/// Arguments of the hidden `weir lab-worker` command.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    #[arg(value_parser = |text: &str| serde_json::from_str::<Order>(text))]
    order: Order,
}

impl Order {
    /// At nice 0, in a session of its own, without shared memory.
    pub fn new(netns: &NetNs, cpu: impl Into<Option<CpuId>>, job: Job) -> Self {
        let cpu = cpu.into().map(|cpu| cpu.0);
        Self { parent: 0, netns: netns.path(), cpu, nice: 0, shared: None, job }
    }

    /// What starts the worker, from this process.
    pub fn command(self) -> Result<Command> {
        let order = serde_json::to_string(&Self { parent: std::process::id(), ..self });
        let mut command = Command::new(OWN);
        // Ctrl-C is for the controller, which ends them in order: `run` leaves the terminal's session.
        command.arg("lab-worker").arg(order.map_err(cannot("tell", "a worker its job"))?);
        command.stdin(Stdio::null());
        Ok(command)
    }
}

/// Runs a worker until it is killed.
pub fn run(WorkerArgs { order }: WorkerArgs) -> Result<()> {
    if let Job::PutBack(values) = &order.job {
        // It outlives the lab, and its terminal.
        setsid().map_err(cannot("leave the session of", "the lab"))?;
        return quota::put_back(values);
    }
    set_parent_process_death_signal(Some(order.job.end()))
        .map_err(cannot("tie to its parent", "the worker"))?;
    // The controller may have ended before the request above.
    if std::os::unix::process::parent_id() != order.parent {
        return Err(Error::refused("the lab has ended", "start it again"));
    }
    // As a service is: with autogroup the processes of one session are weighed as one group, and nice
    // values say nothing between that group and the NAPI threads, or with the generator in it.
    setsid().map_err(cannot("leave the session of", "the lab"))?;
    // Not that of the controller, whose weight is raised.
    sched::set_nice(rustix::thread::gettid(), Nice(order.nice))?;
    if order.nice != 0 {
        // Where the kernel groups sessions, the session's value weighs it against other ones.
        let _ = std::fs::write("/proc/self/autogroup", order.nice.to_string());
    }
    NetNs::open(&order.netns)?.enter_current_thread()?;
    let cpus = order.cpu.map_or_else(sched::online_cpus, |cpu| Ok(vec![CpuId(cpu)]))?;
    sched::set_affinity(rustix::thread::gettid(), &cpus)?;
    if let Job::Program(path, name, arguments) = order.job {
        let source = Command::new(&path).arg0(name).args(arguments).exec();
        return Err(cannot("start", format!("{} in the namespace", path.display()))(source));
    }
    let no_memory = || Error::refused("no shared memory", "start workers through `weir lab`");
    let shared = &SharedCounters::open(order.shared.ok_or_else(no_memory)?)?;
    let failed = cannot("be", format!("{:?}", order.job));
    match order.job {
        Job::UdpServer(bind, server) => server.run(bind, shared),
        Job::TcpServer { bind, echo } => tcp::serve(bind, echo, shared),
        Job::Screen => screen::run(shared),
        Job::Unread(addresses) => unread::run(addresses, shared),
        Job::Client(host, client) => client.run(host, shared),
        Job::SpeedProbe => compute::speed_probe(shared),
        Job::Beside(kind) => kind.run(shared),
        Job::Program(..) | Job::PutBack(_) => Ok(()),
    }
    .map_err(failed)
}
