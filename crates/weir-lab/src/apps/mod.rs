//! The processes that the lab starts: applications, clients, and what runs beside them.
//!
//! They run as `weir lab-worker ...`, so that one executable is all there is to install. Each ends
//! with the process that started it, however that ends.

pub mod compute;
pub mod http;
pub mod parity;
pub mod rpc;
pub mod slots;
pub mod tcp;
pub mod udp;
pub mod unread;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::units::{CpuId, Nice};

use crate::error::{Error, Result};
use parity::{Measure, Talk};
use udp::Reader;

/// What a worker does.
#[derive(Debug, clap::Subcommand)]
pub enum Role {
    /// Receives UDP packets in a loop, as a program that does nothing special.
    UdpSink {
        /// Where to listen.
        #[arg(long)]
        bind: SocketAddr,
        /// How it receives.
        #[arg(long, value_enum, default_value_t)]
        reader: Reader,
        /// Receive buffer to ask for, bytes; 0: the system's default.
        #[arg(long, default_value_t = 0)]
        rcvbuf: usize,
        /// Multicast group to join.
        #[arg(long, requires = "on")]
        join: Option<Ipv4Addr>,
        /// Address of the interface on which to join it.
        #[arg(long)]
        on: Option<Ipv4Addr>,
        /// Passes of the calibrated loop for each packet.
        #[arg(long, default_value_t = 0)]
        passes: u32,
    },
    /// Starts workers in its session and namespace, on its CPU, and waits for them; they end with it.
    Session {
        /// One of them: its nice value, its shared memory, and its role, with blanks between the words.
        #[arg(long = "member", required = true)]
        members: Vec<String>,
    },
    /// Answers requests over TCP.
    TcpService {
        /// Where to listen.
        #[arg(long)]
        bind: SocketAddr,
    },
    /// Has requests answered over TCP.
    TcpClient {
        /// The service.
        #[arg(long)]
        server: SocketAddr,
        /// How many connections.
        #[arg(long)]
        connections: u32,
        /// Requests per second, of all connections.
        #[arg(long)]
        per_second: u32,
    },
    /// Sends each UDP packet back to where it came from, as a program that does nothing special.
    UdpEcho {
        /// Where to listen.
        #[arg(long)]
        bind: SocketAddr,
        /// As of the sink.
        #[arg(long, default_value_t = 0)]
        rcvbuf: usize,
    },
    /// Times a calibrated loop again and again.
    SpeedProbe,
    /// Computes without pause: the CPU hog.
    Compute {
        /// Of `SCHED_IDLE`.
        #[arg(long)]
        idle: bool,
    },
    /// Computes whenever nobody else wants the CPU, so that it never idles.
    Spinner,
    /// Listens on TCP, and takes what it gets, which under a flood of SYNs is nothing.
    TcpListener {
        /// Where to listen.
        #[arg(long)]
        bind: SocketAddr,
    },
    /// Asks an HTTP server for one document again and again.
    HttpClient {
        /// The server.
        #[arg(long)]
        server: SocketAddr,
        /// How many connections.
        #[arg(long)]
        connections: u32,
        /// A connection is used again.
        #[arg(long)]
        keep_alive: bool,
    },
    /// Receives, and answers, one of the conversations of `parity`.
    ParityServer {
        /// Which.
        #[command(flatten)]
        talk: TalkArgs,
    },
    /// Begins one.
    ParityClient {
        /// Which.
        #[command(flatten)]
        talk: TalkArgs,
    },
    /// Computes long, in memory, for each call.
    RpcWorker {
        /// Where and how much.
        #[command(flatten)]
        server: RpcArgs,
    },
    /// Computes little for each request.
    RpcServer {
        /// Where and how much.
        #[command(flatten)]
        server: RpcArgs,
    },
    /// Calls the worker, and keeps the others busy.
    RpcClient {
        /// The worker.
        #[arg(long)]
        worker: SocketAddr,
        /// The others.
        #[arg(long)]
        servers: Vec<SocketAddr>,
        /// Requests outstanding with each of these.
        #[arg(long)]
        outstanding: u32,
    },
    /// Becomes another program inside the namespace.
    Program {
        /// Its nice value, and its session's.
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        nice: i32,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Becomes another `weir` command inside the namespace.
    Exec {
        /// The executable; this one unless it is named.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// A server of `rpc-mix`, on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RpcArgs {
    /// Where to listen.
    #[arg(long)]
    bind: SocketAddr,
    /// How much it computes.
    #[arg(long)]
    size: u64,
}

/// A conversation, on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TalkArgs {
    /// What is measured.
    #[arg(value_enum)]
    measure: Measure,
    /// Where the server is.
    #[arg(long)]
    server: SocketAddr,
    /// How many sockets at either end.
    #[arg(long)]
    flows: u16,
}

impl TalkArgs {
    fn talk(self) -> Talk {
        Talk { measure: self.measure, flows: self.flows }
    }
}

/// Arguments of the hidden `weir lab-worker` command.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// Process that started it.
    #[arg(long)]
    parent: i32,
    /// Network namespace to enter.
    #[arg(long)]
    netns: PathBuf,
    /// CPU to run on.
    #[arg(long)]
    cpu: u32,
    /// Memory shared with the controller.
    #[arg(long)]
    shared: Option<PathBuf>,
    /// Stays in the session of its parent, at this nice value, instead of one of its own at 0.
    #[arg(long, allow_negative_numbers = true)]
    member_nice: Option<i32>,
    #[command(subcommand)]
    role: Role,
}

/// Runs a worker until it is killed.
///
/// # Errors
/// When it cannot be set up.
pub fn run(args: WorkerArgs) -> Result<()> {
    // A daemon is to put everything back, a server to end its own processes; an application that is
    // stopped would not see SIGTERM.
    let others = matches!(args.role, Role::Exec { .. } | Role::Program { .. });
    let end = if others { Signal::TERM } else { Signal::KILL };
    set_parent_process_death_signal(Some(end))
        .map_err(|source| Error::io("tie to its parent", "the worker", source))?;
    // The controller may have ended before the request above.
    if rustix::process::getppid().map_or(0, |parent| parent.as_raw_pid()) != args.parent {
        return Err(Error::refused("the lab has ended", "start it again"));
    }
    // As a service is: with autogroup the processes of one session are weighed as one group, and nice
    // values say nothing between that group and the NAPI threads, or with the generator in it.
    if args.member_nice.is_none() {
        setsid().map_err(|source| Error::io("leave the session of", "the lab", source))?;
    }
    // Not that of the controller, whose weight is raised.
    sched::set_nice(rustix::thread::gettid(), Nice(args.member_nice.unwrap_or(0)))?;
    NetNs::open(&args.netns)?.enter_current_thread()?;
    sched::pin_current_thread(CpuId(args.cpu))?;
    let shared = args.shared.map(SharedCounters::open).transpose()?;
    if let Some(shared) = &shared {
        shared.get(slots::PID).store(std::process::id().into(), Ordering::Relaxed);
    }
    match (args.role, shared) {
        (Role::UdpSink { bind, reader, rcvbuf, join, on, passes }, Some(shared)) => {
            udp::sink(bind, (reader, rcvbuf, passes), join.zip(on), &shared)
        }
        (Role::Session { members }, Some(shared)) => {
            session(&args.netns, args.cpu, &members, &shared)
        }
        (Role::UdpEcho { bind, rcvbuf }, Some(shared)) => udp::echo(bind, rcvbuf, &shared),
        (Role::TcpService { bind }, Some(shared)) => tcp::serve(bind, &shared),
        (Role::TcpClient { server, connections, per_second }, Some(shared)) => {
            tcp::ask(server, connections, per_second, &shared)
        }
        (Role::TcpListener { bind }, Some(shared)) => tcp::listen(bind, &shared),
        (Role::SpeedProbe, Some(shared)) => compute::speed_probe(&shared),
        (Role::Compute { idle }, Some(shared)) => compute::hog(idle, &shared),
        (Role::Spinner, Some(shared)) => compute::spin(&shared),
        (Role::HttpClient { server, connections, keep_alive }, Some(shared)) => {
            http::run(server, connections, keep_alive, &shared)
        }
        (Role::ParityServer { talk }, Some(shared)) => {
            parity::serve(talk.talk(), talk.server, &shared)
        }
        (Role::ParityClient { talk }, Some(shared)) => {
            parity::ask(talk.talk(), talk.server, &shared)
        }
        (Role::RpcWorker { server }, Some(shared)) => rpc::work(server.bind, server.size, &shared),
        (Role::RpcServer { server }, Some(shared)) => {
            rpc::answer(server.bind, server.size, &shared)
        }
        (Role::RpcClient { worker, servers, outstanding }, Some(shared)) => {
            rpc::ask(worker, &servers, outstanding, &shared)
        }
        (Role::Program { nice, command }, _) => {
            if nice != 0 {
                sched::set_nice(rustix::thread::gettid(), Nice(nice))?;
                // Where the kernel groups sessions, the session's value weighs it against other ones.
                let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
            }
            let mut command = command.into_iter();
            let program = command.next().unwrap_or_default();
            let source = Command::new(&program).args(command).exec();
            Err(Error::io("start", program, source))
        }
        (Role::Exec { binary, arguments }, _) => {
            let binary = binary.unwrap_or_else(|| "/proc/self/exe".into());
            let source = Command::new(&binary).arg0("weir").args(arguments).exec();
            Err(Error::io("start", format!("{} in the namespace", binary.display()), source))
        }
        (_, None) => Err(Error::refused("no --shared memory", "start workers through `weir lab`")),
    }
}

fn session(netns: &Path, cpu: u32, members: &[String], shared: &SharedCounters) -> Result<()> {
    let failed = |source| Error::io("start", "a worker of the session", source);
    let mut children = vec![];
    for member in members {
        let mut words = member.split_ascii_whitespace();
        let mut command = Command::new("/proc/self/exe");
        command.arg("lab-worker").arg("--parent").arg(std::process::id().to_string());
        command.arg("--netns").arg(netns).arg("--cpu").arg(cpu.to_string());
        command.args(words.next().map(|nice| format!("--member-nice={nice}")));
        command.args(words.next().map(|path| format!("--shared={path}"))).args(words);
        children.push(command.spawn().map_err(failed)?);
    }
    shared.get(slots::READY).store(1, Ordering::Release);
    for child in &mut children {
        child.wait().map_err(failed)?;
    }
    Ok(())
}
