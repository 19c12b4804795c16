//! The daemon's life: claim, guard, protect, watch, put back.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_bpf::alarm::Alarm;
use weir_bpf::gate::QueueProbe;
use weir_bpf::sync::lock;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;

use crate::ab;
use crate::cgroup;
use crate::claim::Claim;
use crate::cli::RunArgs;
use crate::config::{Config, Reloader};
use crate::console::Console;
use crate::daemon::{self, Daemon, Unprotected, Wardens};
use crate::egress;
use crate::error::{Error, Result};
use crate::feedback;
use crate::forwarding;
use crate::governor::Governors;
use crate::guardian::Guardian;
use crate::host::Host;
use crate::interface::{self, Kernel, Protected};
use crate::key::Key;
use crate::lazy::{self, LazyServer, Listener};
use crate::metrics::Unserved;
use crate::privilege;
use crate::report::Report;
use crate::screen;
use crate::signals::{self, Signals};
use crate::sleep::Sleep;
use crate::softirq::Limiter;
use crate::status::InterfaceStatus;

/// `weir run`: protects interfaces until told to stop.
pub fn run(args: &RunArgs) -> Result<()> {
    privilege::check("weir run")?;
    if let Some(slice) = args.ab {
        return ab::run(args, slice);
    }
    if args.slice {
        ab::end_with_parent()?;
    }
    let config = Config::load(&args.settings, &args.interfaces)?;
    let interfaces = interfaces(args, &config)?;
    interfaces.iter().try_for_each(|interface| config.check(Some(interface), true))?;
    privilege::open_many(interfaces.len())?;
    let host = Rc::new(Host::open()?);
    // A file that is a group's takes a capability that nothing else does.
    let open = || Listener::open(&host, args.lazy_group.as_ref());
    let listener = args.lazy.then(open).transpose()?;
    privilege::confine()?;
    // Before anything is changed: from here on a signal ends the loop, not the process.
    let signals = Signals::catch()?;
    let mut console = Console::open();
    let mut refused = Refused { named: !args.interfaces.is_empty(), all: Vec::new() };
    let claims = claim_all(&host, &interfaces, &config, (&mut console, &mut refused))?;
    if let Err(error) = lazy::remove_left(&host.dir) {
        console.say(&error.to_string());
    }
    let keys: Vec<Key> = claims.iter().map(|claim| claim.key(&host)).collect();
    let mut metrics = Unserved::new(config.metrics().0);
    metrics.serve(&mut console);
    let shares = config.shares().settings();
    let wanted = claims.into_iter().map(|claim| {
        let effective = config.of(&claim.interface());
        let settings = effective.settings(&shares);
        (claim, effective, settings)
    });
    let wanted: Vec<_> = wanted.collect();
    let forwarding = wanted.iter().filter(|(.., settings)| settings.forward);
    let forwarding: Vec<_> = forwarding.map(|(claim, ..)| claim.ifindex).collect();
    if let Err(error) = forwarding::check(&host.links, &forwarding) {
        refused.of_fast_path(error, &mut console)?;
    }
    let mut guardian = match Guardian::start(&keys, &signals.stop) {
        Err(_) if signals::comes(&signals.stop, Duration::ZERO) => return Ok(()),
        started => started?,
    };
    let probe = Rc::new(QueueProbe::load()?);
    let alarm = Alarm::of(&probe)?;
    // Until the main loop knows whether they may sleep.
    alarm.keep_awake(true);
    let ours = wanted.iter().map(|(claim, ..)| claim.ifindex).collect();
    let numbers = Arc::new(Mutex::new(ours));
    let judging = Arc::default();
    let governed = (&interfaces[..], &numbers);
    let governors = governors(&config, governed, args.awake, (&probe, &alarm)).transpose();
    let no_governor = governors.as_ref().err().map(ToString::to_string);
    if let Some(why) = &no_governor {
        console.say(&format!(
            "no governor: NAPI threads keep the usual weight, and gates stay awake where softirqs poll: {why}"
        ));
    }
    let governors = governors.unwrap_or_default();
    if let Some(governors) = &governors {
        governors.beat_to(guardian.take_beats());
    }
    let start = |at| LazyServer::start(at, &probe, Arc::clone(&numbers), args.lazy_memory << 20);
    let lazy = listener.map(start).transpose()?;
    let sleep = Sleep::new(alarm, !args.awake);
    let kinds = [
        ("user-mode screens", screen::watcher(&probe, Arc::clone(&numbers))),
        ("egress interfaces", egress::watcher(&probe, Arc::clone(&judging))),
    ];
    let heard = kinds.into_iter().filter_map(|(of, watcher)| {
        let unheard = |error| console.say(&format!("queues of {of} are not watched: {error}"));
        watcher.map_err(unheard).ok()
    });
    let feedback = feedback::start(heard.collect())?;
    let limiter = Limiter::new(Rc::clone(&probe), governors.clone());
    let group_note = cgroup::note(guardian.pid(), daemon::has_manager());
    let kernel = Kernel { host, limiter, probe, governors, no_governor, group_note };
    let mut protected = Vec::new();
    for (claim, effective, settings) in wanted {
        // Each takes tenths of a second, and what has been turned so far goes back as it is dropped.
        if signals::comes(&signals.stop, Duration::ZERO) {
            return Ok(());
        }
        let name = claim.interface();
        let started = Protected::start(&kernel, claim, (effective, settings), &mut console);
        protected.extend(refused.unless(&name, started)?);
    }
    let mut protected = refused.some(protected, &mut console)?;
    *lock(&numbers) = protected.iter().map(Protected::ifindex).collect();
    for (name, error) in &refused.all {
        console.say(&format!("{name} is not protected yet: {error}"));
    }
    if let Err(error) = interface::forward(&mut protected) {
        refused.of_fast_path(error, &mut console)?;
    }
    protected.iter().for_each(|interface| interface.describe(&mut console));
    let unprotected = refused.all.into_iter().map(|(name, error)| {
        let effective = config.of(&name);
        let (netns, settings) = (kernel.host.netns, effective.settings(&shares));
        let status = InterfaceStatus::awaited(&name, netns, &settings, error.to_string());
        Unprotected::now(status, effective)
    });
    let interfaces = (protected, unprotected.collect());
    let report = Report::of(args);
    let guardian = Some(guardian);
    let wardens = Wardens {
        guardian,
        keys,
        kernel,
        numbers,
        judging,
        sleep,
        lazy,
        metrics,
        _feedback: feedback,
    };
    Daemon::new(interfaces, wardens, signals, Reloader::new(config), console, report).run()
}

/// None where no interface is to be governed, nor limited by choice. Where the kernel has not what it takes, weir protects
/// all the same: the gate does not depend on the governor.
fn governors(
    config: &Config,
    (interfaces, numbers): (&[String], &Arc<Mutex<Vec<IfIndex>>>),
    awake: bool,
    kernel: (&QueueProbe, &Alarm),
) -> Option<Result<Rc<Governors>>> {
    let wanted = interfaces.iter().any(|interface| config.settings(interface).want_governor());
    wanted.then(|| Governors::start(kernel, numbers, config.shares().settings(), awake))
}

/// Those that are named, else those that the file says to protect, by the kernel's names: paths in /sys know no other.
fn interfaces(args: &RunArgs, config: &Config) -> Result<Vec<String>> {
    let named = args.interfaces.clone();
    let named = if named.is_empty() { config.protected() } else { named };
    if !named.is_empty() {
        let links = Links::open()?;
        return Ok(named.iter().map(|name| links.kernel_name(name)).collect());
    }
    let problem = match config.path() {
        Some(path) => format!("no interface is named, and {} has none to protect", path.display()),
        None => "no interface is named, and there is no configuration file".into(),
    };
    Err(Error::refused(
        problem,
        "name one, `weir run eth0`, or write `protect = true` into its section [interface.eth0]; `weir config init` \
         writes a file for this host",
    ))
}

/// Interfaces that cannot be protected now, and why.
struct Refused {
    /// Whether the command line names the interfaces: then somebody waits for an answer.
    named: bool,
    all: Vec<(String, Error)>,
}

impl Refused {
    /// What there is of an interface. One that the file names does not keep weir from protecting the others.
    fn unless<T>(&mut self, interface: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if !self.named => {
                self.all.push((interface.into(), error));
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// The kernel forwards instead, until nothing is in the way any more, or an egress that is missing is there. Where
    /// somebody waits for an answer, and it is not that, it is the answer.
    fn of_fast_path(&self, error: Error, console: &mut Console) -> Result<()> {
        if self.named && self.all.is_empty() {
            return Err(error);
        }
        console.trouble(&error);
        Ok(())
    }

    /// The `others`, or why there are none.
    fn some<T>(&mut self, others: Vec<T>, console: &mut Console) -> Result<Vec<T>> {
        match self.all.pop_if(|_| others.is_empty()) {
            None => Ok(others),
            Some((_, last)) => {
                self.all.iter().for_each(|(_, error)| console.say(&error.to_string()));
                Err(last)
            }
        }
    }
}

fn claim_all(
    host: &Rc<Host>,
    interfaces: &[String],
    config: &Config,
    (console, refused): (&mut Console, &mut Refused),
) -> Result<Vec<Claim>> {
    let mut claims: Vec<Claim> = Vec::new();
    for (at, interface) in interfaces.iter().enumerate() {
        // Named twice is protected once.
        if !interfaces[..at].contains(interface) {
            let wanted = config.of(interface);
            let place = (wanted.attach(), wanted.forwards());
            let claim = Claim::take(host, interface, place, console);
            claims.extend(refused.unless(interface, claim)?);
        }
    }
    refused.some(claims, console)
}
