//! The processes that the lab starts: applications, clients, and what runs beside them.
//!
//! They run as `weir lab-worker ...`, so that one executable is all there is to install. Each ends
//! with the process that started it, however that ends.

pub mod compute;
pub mod http;
pub mod parity;
pub mod rpc;
pub mod slots;
mod sockets;
pub mod tcp;
pub mod udp;
pub mod unread;

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::units::{CpuId, Nice};

use crate::error::{Error, Result, cannot};

/// This executable.
pub const OWN: &str = "/proc/self/exe";

/// What a worker does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Receives UDP packets in a loop, computes, answers, as a program that does nothing special.
    UdpServer(SocketAddr, udp::Server),
    /// Answers over TCP, or takes what it gets, which under a flood of SYNs is nothing.
    TcpServer(tcp::Server),
    /// Has requests answered over TCP.
    TcpClient(tcp::Client),
    /// Asks an HTTP server for one document again and again.
    HttpClient(http::Client),
    /// Calls the RPC worker, and keeps the others busy.
    RpcClient(rpc::Client),
    /// Begins one of the conversations of `parity`.
    ParityClient(parity::Client),
    /// Times a calibrated loop again and again.
    SpeedProbe,
    /// Computes without pause: the CPU hog.
    Compute {
        /// Of `SCHED_IDLE`.
        idle: bool,
        /// Lets others run after each pass.
        yields: bool,
    },
    /// Starts workers, each with a nice value and shared memory, in its session and namespace, on its CPU,
    /// and waits for them; they end with it.
    Session(Vec<(i32, PathBuf, Job)>),
    /// Becomes another program inside the namespace: its path, its name, its arguments; and its nice value.
    Program(PathBuf, String, Vec<String>, i32),
}

/// What a worker is to do, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    /// Process that started it.
    parent: u32,
    netns: PathBuf,
    cpu: u32,
    /// Memory shared with the controller.
    shared: Option<PathBuf>,
    /// Stays in the session of its parent, at this nice value, instead of one of its own at 0.
    member_nice: Option<i32>,
    job: Job,
}

/// Arguments of the hidden `weir lab-worker` command.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    #[arg(value_parser = |text: &str| serde_json::from_str::<Order>(text))]
    order: Order,
}

/// What starts a worker: of a session, or with one of its own.
pub fn command(
    netns: &Path,
    cpu: CpuId,
    shared: Option<PathBuf>,
    member_nice: Option<i32>,
    job: Job,
) -> Result<Command> {
    let netns = netns.to_owned();
    let order = Order { parent: std::process::id(), netns, cpu: cpu.0, shared, member_nice, job };
    let order = serde_json::to_string(&order).map_err(cannot("tell", "a worker its job"))?;
    let mut command = Command::new(OWN);
    // It leaves the terminal's session itself (`run`): Ctrl-C is for the controller, which ends them in
    // order.
    command.arg("lab-worker").arg(order).stdin(Stdio::null());
    Ok(command)
}

/// Runs a worker until it is killed.
pub fn run(WorkerArgs { order }: WorkerArgs) -> Result<()> {
    // A daemon is to put everything back, a server to end its own processes; an application that is
    // stopped would not see SIGTERM.
    let end = if matches!(order.job, Job::Program(..)) { Signal::TERM } else { Signal::KILL };
    set_parent_process_death_signal(Some(end))
        .map_err(cannot("tie to its parent", "the worker"))?;
    // The controller may have ended before the request above.
    if std::os::unix::process::parent_id() != order.parent {
        return Err(Error::refused("the lab has ended", "start it again"));
    }
    // As a service is: with autogroup the processes of one session are weighed as one group, and nice
    // values say nothing between that group and the NAPI threads, or with the generator in it.
    if order.member_nice.is_none() {
        setsid().map_err(cannot("leave the session of", "the lab"))?;
    }
    // Not that of the controller, whose weight is raised.
    sched::set_nice(rustix::thread::gettid(), Nice(order.member_nice.unwrap_or(0)))?;
    NetNs::open(&order.netns)?.enter_current_thread()?;
    sched::pin_current_thread(CpuId(order.cpu))?;
    if let Job::Program(path, name, arguments, nice) = order.job {
        if nice != 0 {
            sched::set_nice(rustix::thread::gettid(), Nice(nice))?;
            // Where the kernel groups sessions, the session's value weighs it against other ones.
            let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
        }
        let source = Command::new(&path).arg0(name).args(arguments).exec();
        return Err(Error::io("start", format!("{} in the namespace", path.display()), source));
    }
    let no_memory = || Error::refused("no shared memory", "start workers through `weir lab`");
    let shared = &SharedCounters::open(order.shared.ok_or_else(no_memory)?)?;
    slots::add(shared, slots::PID, std::process::id().into());
    let failed = cannot("be", format!("{:?}", order.job));
    match order.job {
        Job::UdpServer(bind, server) => server.run(bind, shared),
        Job::TcpServer(server) => server.run(shared),
        Job::TcpClient(client) => client.run(shared),
        Job::HttpClient(client) => client.run(shared),
        Job::RpcClient(client) => client.run(shared),
        Job::ParityClient(client) => client.run(shared),
        Job::SpeedProbe => compute::speed_probe(shared),
        Job::Compute { idle, yields } => compute::hog(idle, yields, shared),
        Job::Session(members) => return session(&order.netns, CpuId(order.cpu), members, shared),
        Job::Program(..) => Ok(()),
    }
    .map_err(failed)
}

fn session(
    netns: &Path,
    cpu: CpuId,
    members: Vec<(i32, PathBuf, Job)>,
    shared: &SharedCounters,
) -> Result<()> {
    let failed = cannot("start", "a worker of the session");
    let mut children = vec![];
    for (nice, memory, job) in members {
        let mut command = command(netns, cpu, Some(memory), Some(nice), job)?;
        children.push(command.spawn().map_err(&failed)?);
    }
    slots::ready(shared);
    children.iter_mut().try_for_each(|child| child.wait().map(drop)).map_err(&failed)
}
