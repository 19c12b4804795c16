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

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::units::{CpuId, Nice};

use crate::error::{Error, Result, cannot};

/// What a worker does.
#[derive(Debug, clap::Subcommand)]
pub enum Role {
    /// Receives UDP packets in a loop, computes, answers, as a program that does nothing special.
    UdpServer(udp::Server),
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
        #[arg(long)]
        idle: bool,
    },
    /// Computes whenever nobody else wants the CPU, so that it never idles.
    Spinner,
    /// Starts workers in its session and namespace, on its CPU, and waits for them; they end with it.
    Session {
        /// One of them: its nice value, its shared memory, and its role, with blanks between the words.
        #[arg(long = "member", required = true)]
        members: Vec<String>,
    },
    /// Becomes another program inside the namespace.
    Program {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Becomes another `weir` command inside the namespace.
    Exec {
        /// The executable; this one unless it is named.
        #[arg(long, default_value = "/proc/self/exe")]
        binary: PathBuf,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
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
pub fn run(args: WorkerArgs) -> Result<()> {
    // A daemon is to put everything back, a server to end its own processes; an application that is
    // stopped would not see SIGTERM.
    let others = matches!(args.role, Role::Exec { .. } | Role::Program { .. });
    let end = if others { Signal::TERM } else { Signal::KILL };
    set_parent_process_death_signal(Some(end))
        .map_err(cannot("tie to its parent", "the worker"))?;
    // The controller may have ended before the request above.
    if rustix::process::getppid().map_or(0, |parent| parent.as_raw_pid()) != args.parent {
        return Err(Error::refused("the lab has ended", "start it again"));
    }
    // As a service is: with autogroup the processes of one session are weighed as one group, and nice
    // values say nothing between that group and the NAPI threads, or with the generator in it.
    if args.member_nice.is_none() {
        setsid().map_err(cannot("leave the session of", "the lab"))?;
    }
    // Not that of the controller, whose weight is raised.
    sched::set_nice(rustix::thread::gettid(), Nice(args.member_nice.unwrap_or(0)))?;
    NetNs::open(&args.netns)?.enter_current_thread()?;
    sched::pin_current_thread(CpuId(args.cpu))?;
    match args.role {
        Role::Program { command } => {
            return become_program(&command[0], &command[0], &command[1..]);
        }
        Role::Exec { binary, arguments } => return become_program(&binary, "weir", &arguments),
        _ => {}
    }
    let no_memory = || Error::refused("no --shared memory", "start workers through `weir lab`");
    let shared = &SharedCounters::open(args.shared.ok_or_else(no_memory)?)?;
    shared.get(slots::PID).store(std::process::id().into(), Ordering::Relaxed);
    match args.role {
        Role::UdpServer(server) => server.run(shared),
        Role::TcpServer(server) => server.run(shared),
        Role::TcpClient(client) => client.run(shared),
        Role::HttpClient(client) => client.run(shared),
        Role::RpcClient(client) => client.run(shared),
        Role::ParityClient(client) => client.run(shared),
        Role::SpeedProbe => compute::speed_probe(shared),
        Role::Compute { idle } => compute::hog(idle, shared),
        Role::Spinner => compute::spin(shared),
        Role::Session { members } => session(&args.netns, args.cpu, &members, shared),
        Role::Program { .. } | Role::Exec { .. } => Ok(()),
    }
}

fn become_program(program: impl AsRef<OsStr>, name: &str, arguments: &[String]) -> Result<()> {
    let source = Command::new(&program).arg0(name).args(arguments).exec();
    let object = format!("{} in the namespace", program.as_ref().display());
    Err(Error::io("start", object, source))
}

fn session(netns: &Path, cpu: u32, members: &[String], shared: &SharedCounters) -> Result<()> {
    let failed = cannot("start", "a worker of the session");
    let mut children = vec![];
    for member in members {
        let mut words = member.split_ascii_whitespace();
        let mut command = command(netns, CpuId(cpu));
        command.args(words.next().map(|nice| format!("--member-nice={nice}")));
        command.args(words.next().map(|path| format!("--shared={path}"))).args(words);
        children.push(command.spawn().map_err(&failed)?);
    }
    slots::ready(shared);
    for child in &mut children {
        child.wait().map_err(&failed)?;
    }
    Ok(())
}

/// A worker of this process's; its role is to follow.
pub fn command(netns: &Path, cpu: CpuId) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("lab-worker").arg("--parent").arg(std::process::id().to_string());
    command.arg("--netns").arg(netns).arg("--cpu").arg(cpu.to_string());
    // It leaves the terminal's session itself (`run`): Ctrl-C is for the controller, which ends them in
    // order.
    command.stdin(Stdio::null());
    command
}
