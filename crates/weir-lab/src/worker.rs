//! The processes that the lab starts: the application under test and the speed probe.
//!
//! They run as `weir lab-worker ...`, so that one executable is all there is to install. Each ends
//! with the process that started it, however that ends.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::traffic::Stamp;
use weir_bpf::units::{CpuId, Nice};

use crate::error::{Error, Result};
use crate::http_syn_flood::{Usage, client};
use crate::parity::peer;
use crate::results::parity::Measure;
use crate::rpc_mix::peer as rpc;
use crate::{histogram, service};

/// Where a worker's figures stand in the memory that it shares with the controller.
pub mod slots {
    use crate::histogram;

    /// 1 once the worker is ready.
    pub const READY: usize = 0;
    /// Packets received; requests answered in full.
    pub const DELIVERED: usize = 1;
    /// Passes of the calibrated loop, of the compute-bound process.
    pub const WORK: usize = 2;
    /// CPU time that it has had, nanoseconds.
    pub const CPU_NS: usize = 3;
    /// Of the RPC client: calls of the worker that were answered,
    pub const CALLS: usize = 2;
    /// and when the last was, nanoseconds of `CLOCK_MONOTONIC`.
    pub const LAST_CALL_NS: usize = 3;
    /// Packets that the echo server has sent.
    pub const REPLIED: usize = 4;
    /// Not 0 while the TCP client is to send requests.
    pub const GO: usize = 4;
    /// Of the HTTP client, four counters: see [`crate::http_syn_flood::client::Failure`].
    pub const FAILURES: usize = 4;
    /// Datagrams, or bytes, that a client has sent.
    pub const SENT: usize = 4;
    /// Set by the controller: a client is to send no more.
    pub const STOP: usize = 5;
    /// Answers that did not come.
    pub const LOST: usize = 6;
    /// Number of a process that another worker has started.
    pub const PID: usize = 7;
    /// Histogram of packets' ages, of the time that requests took, or of the speed probe's loop, in
    /// nanoseconds.
    pub const HISTOGRAM: usize = 8;
    /// Slots in all.
    pub const LEN: usize = HISTOGRAM + histogram::SLOTS;
}

/// One packet in this many has its age taken, so that reading the clock stays negligible.
const AGE_SAMPLE: u64 = 16;
/// Iterations of the calibrated loop: about 5 us, short enough to fit between two interrupts.
const LOOP_ITERATIONS: u64 = 3000;
const LOOP_PAUSE: Duration = Duration::from_millis(5);
const LOOPS_PER_PAUSE: u32 = 2;
/// The neighbour asks for its CPU time once in so many passes, 80 us, so that asking costs it nothing.
const LOOPS_PER_LOOK: u64 = 16;
/// Messages that the `recvmmsg` application takes at once.
const BATCH: usize = 32;

/// What a worker does.
#[derive(Debug, clap::Subcommand)]
pub enum Role {
    /// Receives UDP packets in a loop, as a program that does nothing special.
    UdpSink {
        /// Where to listen.
        #[arg(long)]
        bind: SocketAddr,
        /// `recv` or `recvmmsg`.
        #[arg(long, value_enum, default_value_t)]
        app: App,
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
    /// Computes without pause: the neighbour.
    Compute,
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
        connections: usize,
        /// What a connection is used for.
        #[arg(long, value_enum)]
        usage: Usage,
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
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Becomes another `weir` command inside the namespace.
    Exec {
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

impl From<TalkArgs> for peer::Talk {
    fn from(args: TalkArgs) -> Self {
        Self { measure: args.measure, server: args.server, flows: args.flows }
    }
}

/// The application under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum App {
    /// A plain `recv()` loop.
    #[default]
    Recv,
    /// A `recvmmsg()` loop, 32 messages at once.
    Recvmmsg,
}

impl App {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recv => "recv",
            Self::Recvmmsg => "recvmmsg",
        }
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
        (Role::UdpSink { bind, app, rcvbuf, join, on, passes }, Some(shared)) => {
            udp_sink(bind, (app, rcvbuf, passes), join.zip(on), &shared)
        }
        (Role::Session { members }, Some(shared)) => {
            session(&args.netns, args.cpu, &members, &shared)
        }
        (Role::UdpEcho { bind, rcvbuf }, Some(shared)) => udp_echo(bind, rcvbuf, &shared),
        (Role::TcpService { bind }, Some(shared)) => service::serve(bind, &shared),
        (Role::TcpClient { server, connections, per_second }, Some(shared)) => {
            service::ask(server, connections, per_second, &shared)
        }
        (Role::SpeedProbe, Some(shared)) => speed_probe(&shared),
        (Role::Compute, Some(shared)) => compute(&shared),
        (Role::Spinner, Some(shared)) => spin(&shared),
        (Role::TcpListener { bind }, Some(shared)) => tcp_listener(bind, &shared),
        (Role::HttpClient { server, connections, usage }, Some(shared)) => {
            client::run(server, connections, usage, &shared)
        }
        (Role::ParityServer { talk }, Some(shared)) => peer::serve(talk.into(), &shared),
        (Role::ParityClient { talk }, Some(shared)) => peer::ask(talk.into(), &shared),
        (Role::RpcWorker { server }, Some(shared)) => rpc::work(server.bind, server.size, &shared),
        (Role::RpcServer { server }, Some(shared)) => {
            rpc::answer(server.bind, server.size, &shared)
        }
        (Role::RpcClient { worker, servers, outstanding }, Some(shared)) => {
            rpc::ask(worker, &servers, outstanding, &shared)
        }
        (Role::Program { command }, _) => {
            let mut command = command.into_iter();
            let program = command.next().unwrap_or_default();
            let source = Command::new(&program).args(command).exec();
            Err(Error::io("start", program, source))
        }
        (Role::Exec { arguments }, _) => {
            let source = Command::new("/proc/self/exe").arg0("weir").args(arguments).exec();
            Err(Error::io("start", "weir in the namespace", source))
        }
        (_, None) => Err(Error::refused("no --shared memory", "start workers through `weir lab`")),
    }
}

fn bind_udp(bind: SocketAddr, rcvbuf: usize) -> Result<UdpSocket> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let socket = UdpSocket::bind(bind).map_err(failed("bind"))?;
    if rcvbuf != 0 {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, rcvbuf)
            .map_err(|source| Error::io("set the receive buffer of", bind.to_string(), source))?;
    }
    Ok(socket)
}

/// Counts what was received, of which `payload` is the last.
fn received(shared: &SharedCounters, count: u64, payload: &[u8]) {
    let before = shared.get(slots::DELIVERED).fetch_add(count, Ordering::Relaxed);
    if before / AGE_SAMPLE != (before + count) / AGE_SAMPLE
        && let Some(stamp) = Stamp::parse(payload)
    {
        let age = monotonic_ns().saturating_sub(stamp.sent_ns);
        histogram::record(shared, slots::HISTOGRAM, age);
    }
}

fn udp_echo(bind: SocketAddr, rcvbuf: usize, shared: &SharedCounters) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let socket = bind_udp(bind, rcvbuf)?;
    shared.get(slots::READY).store(1, Ordering::Release);
    let mut buffer = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).map_err(failed("receive on"))?;
        received(shared, 1, &buffer[..len]);
        socket.send_to(&buffer[..len], from).map_err(failed("reply from"))?;
        shared.get(slots::REPLIED).fetch_add(1, Ordering::Relaxed);
    }
}

fn udp_sink(
    bind: SocketAddr,
    (app, rcvbuf, passes): (App, usize, u32),
    join: Option<(Ipv4Addr, Ipv4Addr)>,
    shared: &SharedCounters,
) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let socket = bind_udp(bind, rcvbuf)?;
    if let Some((group, on)) = join {
        socket.join_multicast_v4(&group, &on).map_err(failed("join a group for"))?;
    }
    shared.get(slots::READY).store(1, Ordering::Release);
    let received = |count, payload: &[u8]| {
        received(shared, count, payload);
        for _ in 0..count * u64::from(passes) {
            std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
        }
    };
    match app {
        App::Recv => {
            let mut buffer = [0; 2048];
            loop {
                let len = socket.recv(&mut buffer).map_err(failed("receive on"))?;
                received(1, &buffer[..len]);
            }
        }
        App::Recvmmsg => batches(&socket, received).map_err(failed("receive on")),
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

fn tcp_listener(bind: SocketAddr, shared: &SharedCounters) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let listener = TcpListener::bind(bind).map_err(failed("listen on"))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        drop(listener.accept().map_err(failed("accept on"))?);
        shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed);
    }
}

fn batches(socket: &UdpSocket, received: impl Fn(u64, &[u8])) -> std::io::Result<()> {
    use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    let mut buffers = vec![[0_u8; 2048]; BATCH];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    loop {
        let (mut count, mut last_len) = (0, 0);
        {
            let mut slices: Vec<_> =
                buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
            let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_WAITFORONE);
            for message in recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None)? {
                count += 1;
                last_len = message.bytes;
            }
        }
        if count > 0 {
            received(count as u64, &buffers[count - 1][..last_len]);
        }
    }
}

/// Times a loop whose work never changes: when it takes longer, the CPU has become slower.
fn speed_probe(shared: &SharedCounters) -> Result<()> {
    // Above everything that is measured, so that the loop is not interrupted by the scheduler.
    sched::set_fifo_current_thread(1)?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        for _ in 0..LOOPS_PER_PAUSE {
            let began = Instant::now();
            std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
            let took = began.elapsed().as_nanos() as u64;
            histogram::record(shared, slots::HISTOGRAM, took);
        }
        std::thread::sleep(LOOP_PAUSE);
    }
}

/// Counts passes of the same loop: work done, which the kernel's accounting has no say in.
fn compute(shared: &SharedCounters) -> Result<()> {
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        for _ in 0..LOOPS_PER_LOOK {
            std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
            shared.get(slots::WORK).fetch_add(1, Ordering::Relaxed);
        }
        let had = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let had_ns = had.tv_sec as u64 * 1_000_000_000 + had.tv_nsec as u64;
        shared.get(slots::CPU_NS).store(had_ns, Ordering::Relaxed);
    }
}

/// LRP's low-priority, compute-bound process (section 4.1).
fn spin(shared: &SharedCounters) -> Result<()> {
    sched::set_idle_current_thread()?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
        std::thread::yield_now();
    }
}

/// A chain of dependent multiplications: no memory, nothing to overlap.
fn calibrated_loop(seed: u64) -> u64 {
    (0..LOOP_ITERATIONS).fold(seed, |x, i| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(i))
}

/// `CLOCK_MONOTONIC`, nanoseconds: the clock of `bpf_ktime_get_ns()`.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
