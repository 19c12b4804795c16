//! The daemon's life: claim, guard, protect, watch, put back.

use std::os::unix::net::UnixStream;
use std::rc::Rc;

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use weir_bpf::gate::{Policy, QueueProbe};
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

use crate::claim::Claim;
use crate::cli::RunArgs;
use crate::console::Console;
use crate::cpulist::CpuList;
use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::guardian::Guardian;
use crate::host::Host;
use crate::interface::{Protected, Settings};
use crate::key::Key;
use crate::privilege;
use crate::report::Report;
use crate::task::Task;
use crate::threads::ThreadSettings;

/// `weir run`: protects interfaces until told to stop.
///
/// # Errors
/// If protection cannot start, an interface vanishes, or something cannot be put back.
pub fn run(args: &RunArgs) -> Result<()> {
    privilege::check("weir run")?;
    check_cpus(args.cpus.as_ref())?;
    // Before anything is changed: from here on a signal ends the loop, not the process.
    let signals = catch_signals()?;
    let host = Rc::new(Host::open()?);
    let mut console = Console::default();
    let claims = claim_all(&host, args, &mut console)?;
    let keys: Vec<Key> = claims.iter().map(|claim| claim.key(&host)).collect();
    let guardian = Guardian::start(&keys)?;
    let probe = QueueProbe::load()?;
    let settings = settings(args);
    let mut protected = Vec::new();
    for claim in claims {
        let interface = Protected::start(&host, claim, &probe, &settings, &mut console)?;
        console.say(&interface.describe());
        for note in interface.notes() {
            console.say(&format!("{}: {note}", interface.interface()));
        }
        protected.push(interface);
    }
    let report = Report::of(args);
    Daemon::new(protected, keys, guardian, signals, console, report).run()
}

fn settings(args: &RunArgs) -> Settings {
    let policy = args.policy.into();
    // With the policy off, what is measured is what merely being there costs.
    let nice = (policy == Policy::On).then_some(Nice(args.nice));
    Settings {
        attach: args.attach,
        policy,
        threads: ThreadSettings { nice, cpus: args.cpus.clone() },
    }
}

fn check_cpus(cpus: Option<&CpuList>) -> Result<()> {
    let Some(CpuList(cpus)) = cpus else { return Ok(()) };
    let online = sched::online_cpus()?;
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        None => Ok(()),
        Some(offline) => Err(Error::refused(
            format!("CPU {offline} is not online"),
            format!("choose from {}", CpuList(online.clone())),
        )),
    }
}

fn catch_signals() -> Result<UnixStream> {
    let failed = |source| Error::system("catch signals", source);
    let (receiver, sender) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        let sender = sender.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
    }
    Ok(receiver)
}

fn claim_all(host: &Rc<Host>, args: &RunArgs, console: &mut Console) -> Result<Vec<Claim>> {
    let owner = Task::current().ok_or_else(|| {
        Error::refused("cannot read /proc/self/stat", "mount /proc: `mount -t proc proc /proc`")
    })?;
    let mut claims: Vec<Claim> = Vec::new();
    for interface in &args.interfaces {
        // Named twice is protected once.
        if !claims.iter().any(|claim| claim.interface() == *interface) {
            claims.push(Claim::take(host, interface, &owner, args.attach, console)?);
        }
    }
    Ok(claims)
}
