//! The main loop: one thread, asleep between a signal, a change of an interface and the next second.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use weir_bpf::sync::lock;
use weir_bpf::sys::sched;
use weir_bpf::sys::snmp::Snmp;
use weir_bpf::units::{IfIndex, Nice};

use crate::claim::Claim;
use crate::config::{Effective, Reloader};
use crate::console::{Console, OVER_AFTER};
use crate::error::{Error, Result};
use crate::governor::{Governors, LIGHT};
use crate::guardian::Guardian;
use crate::interface::{self, Kernel, Loss, Protected, TICK};
use crate::joined::Waiting;
use crate::key::Key;
use crate::knob::Knob;
use crate::lazy::LazyServer;
use crate::metrics::Unserved;
use crate::ready;
use crate::report::{Report, summary};
use crate::sample::late_drops;
use crate::signals::Signals;
use crate::sleep::Sleep;
use crate::status::InterfaceStatus;

/// How often weir tries to protect what it has lost, or could not protect when it was started. Seldom: somebody may have
/// detached the gate on purpose.
const REGAIN: Duration = Duration::from_secs(5);
/// The same after a failure. A try takes the main loop a tenth of a second, and attaching may stop the driver's link. What
/// goes wrong all the time is said once.
const REGAIN_FAILED: Duration = OVER_AFTER.saturating_sub(Duration::from_secs(10));
/// Why it does not try.
const DOWN: &str = "it is down; it is protected once it is up";

/// A running daemon.
pub struct Daemon {
    // First: put back before the guardian's handle and the console go.
    interfaces: Vec<Protected>,
    wardens: Wardens,
    snmp: Snmp,
    guardian_started: Instant,
    signals: Signals,
    reloader: Reloader,
    hung_up: bool,
    console: Console,
    report: Report,
    unprotected: Vec<Unprotected>,
    /// What could not be put back, by interface.
    failures: Vec<(String, String)>,
}

/// An interface that is to be protected, and is not.
pub struct Unprotected {
    /// Why, and what it was like before.
    status: InterfaceStatus,
    /// What is to hold on it: nothing that takes a restart changes meanwhile.
    effective: Effective,
    /// When that is tried next.
    due: Instant,
    /// What it has taken along, if it was moved: what it has when it is back is not all the host's own.
    taken: Vec<Knob>,
}

impl Unprotected {
    /// It is not from now on.
    pub fn now(status: InterfaceStatus, effective: Effective) -> Self {
        Self { status, effective, due: Instant::now() + REGAIN, taken: Vec::new() }
    }
}

/// Gives this thread the weight [`LIGHT`] until it is dropped. Where that is refused, things stay as they are.
struct Light(Option<Nice>);

impl Light {
    fn become_light() -> Self {
        let own = rustix::thread::gettid();
        let before = sched::nice(own).ok().filter(|nice| *nice < LIGHT);
        Self(before.filter(|_| sched::set_nice(own, LIGHT).is_ok()))
    }
}

impl Drop for Light {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = sched::set_nice(rustix::thread::gettid(), before);
        }
    }
}

/// Who works beside the loop.
pub struct Wardens {
    /// Puts back what a killed daemon had turned; `None` while there is none to be had...
    pub guardian: Option<Guardian>,
    /// ...on these interfaces.
    pub keys: Vec<Key>,
    /// What the interfaces share, also one that was lost and is back.
    pub kernel: Kernel,
    /// The interfaces' numbers, for those who watch elsewhere.
    pub numbers: Arc<Mutex<Vec<IfIndex>>>,
    /// Of those alone where not every packet passes for a diversion.
    pub judging: Arc<Mutex<Vec<IfIndex>>>,
    /// Puts the gates to sleep.
    pub sleep: Sleep,
    /// Makes sockets lazy, where that is wanted.
    pub lazy: Option<LazyServer>,
    /// Serves the metrics, once it can.
    pub metrics: Unserved,
    /// Watches queues that are no socket's.
    pub _feedback: Waiting,
}

/// What woke the loop.
#[derive(Debug)]
struct Events {
    stop: bool,
    hangup: bool,
    guardian_died: bool,
    called: bool,
    changed: Vec<usize>,
}

impl Daemon {
    /// A daemon over protected interfaces, and some that it has not protected yet.
    pub fn new(
        (interfaces, unprotected): (Vec<Protected>, Vec<Unprotected>),
        wardens: Wardens,
        signals: Signals,
        reloader: Reloader,
        console: Console,
        report: Report,
    ) -> Self {
        Self {
            interfaces,
            wardens,
            snmp: Snmp::default(),
            guardian_started: Instant::now(),
            signals,
            reloader,
            hung_up: false,
            console,
            report,
            unprotected,
            failures: Vec::new(),
        }
    }

    /// Runs until told to stop or nothing is left to protect, then puts everything back.
    pub fn run(mut self) -> Result<()> {
        self.report.ready(&mut self.console, &self.interfaces);
        self.tell_manager_whom();
        tell_manager(&[NotifyState::Ready]);
        let light = Light::become_light();
        // The first status is there at once.
        let mut next_tick = Instant::now();
        while !self.interfaces.is_empty() {
            if Instant::now() >= next_tick {
                self.tick();
                tell_manager(&[NotifyState::Watchdog]);
                self.tell_news();
                // Seconds that were missed are not made up for.
                next_tick = (next_tick + TICK).max(Instant::now());
            }
            let events = self.wait(next_tick)?;
            if events.stop {
                break;
            }
            // The settings that a SIGHUP brings hold by present names.
            self.follow(&events.changed);
            if events.hangup {
                self.hang_up();
            }
            if self.has_lost_its_terminal() {
                break;
            }
            if events.guardian_died {
                self.bury_guardian();
            }
            if events.called {
                self.governors().inspect(|governors| governors.hear());
                let followed = self.interfaces.iter_mut().map(Protected::follow_need);
                let troubles = followed.filter_map(Result::err);
                troubles.for_each(|error| self.console.trouble(&error));
            }
            self.tell_news();
        }
        tell_manager(&[NotifyState::Stopping]);
        // Putting things back is not to wait for the flood.
        drop(light);
        self.finish()
    }

    fn wait(&self, until: Instant) -> Result<Events> {
        let mut fds = vec![self.signals.stop.as_fd(), self.signals.hangup.as_fd()];
        // Of which interface each further descriptor is.
        let mut owners = Vec::new();
        for (at, interface) in self.interfaces.iter().enumerate() {
            for fd in interface.fds() {
                fds.push(fd);
                owners.push(at);
            }
        }
        fds.extend(self.wardens.guardian.iter().map(|each| each.pidfd.as_fd()));
        let calls = fds.len();
        fds.extend(self.governors().map(|all| all.called()));
        let until = self.interfaces.iter().map(Protected::due).fold(until, Instant::min);
        let left = until.saturating_duration_since(Instant::now());
        let ready = ready::wait(fds, Some(left));
        let ready = ready.map_err(|errno| Error::system("wait for events", errno))?;
        // In the order in which they were put in: signals, interfaces, guardian, governors.
        let (interfaces, guardian) = ready[2..calls].split_at(owners.len());
        let now = Instant::now();
        let has_news = |at: &usize| {
            self.interfaces[*at].due() <= now
                || owners.iter().zip(interfaces).any(|(owner, ready)| *ready && owner == at)
        };
        let changed = (0..self.interfaces.len()).filter(has_news).collect();
        let guardian_died = guardian.contains(&true);
        let called = ready[calls..].contains(&true);
        Ok(Events { stop: ready[0], hangup: ready[1], changed, guardian_died, called })
    }

    fn tick(&mut self) {
        if self.wardens.guardian.is_none() {
            self.start_guardian();
        }
        let guardian_pid = self.wardens.guardian.as_ref().map(Guardian::pid);
        let counts = self.snmp.read().map_err(Error::from);
        if let Err(error) = &counts {
            self.console.trouble(error);
        }
        let (udp, tcp) = counts.ok().unzip();
        let may_sleep = self.interfaces.iter().all(Protected::may_sleep);
        if let Some(news) = self.wardens.sleep.tick(may_sleep, tcp) {
            self.console.say(&news);
        }
        let sleep = self.wardens.sleep.status();
        self.tend_lazy();
        self.wardens.metrics.serve(&mut self.console);
        let mut gone = Vec::new();
        // One of the others' is enough to tell it.
        let mut lost: Vec<_> = self.unprotected.iter().map(|each| each.status.clone()).collect();
        for (at, interface) in self.interfaces.iter_mut().enumerate() {
            let lost = std::mem::take(&mut lost);
            match interface.tick(guardian_pid, &sleep, lost, udp.map(late_drops)) {
                Ok(tick) => {
                    self.report.tick(&mut self.console, &tick);
                    gone.extend(tick.loss.map(|loss| (at, loss)));
                    if let Some(error) = tick.trouble {
                        self.console.trouble(&error);
                    }
                }
                Err(_) if interface.is_gone() => gone.push((at, Loss::Gone)),
                Err(error) => self.console.trouble(&error),
            }
        }
        let judging = self.interfaces.iter().filter(|each| !each.passes_all());
        *lock(&self.wardens.judging) = judging.map(Protected::ifindex).collect();
        self.lose(&gone);
        self.regain();
        if let Some(error) = self.governors().and_then(|governors| governors.trouble()) {
            self.console.trouble(&error);
        }
    }

    /// Where all interfaces are diverted, no packet would be put on a ring.
    fn tend_lazy(&mut self) {
        let Some(lazy) = &self.wardens.lazy else { return };
        let diverted = self.interfaces.iter().map(Protected::diverted).collect::<Option<Vec<_>>>();
        lazy.set_diverted(diverted.and_then(|all| all.into_iter().next()));
        for interface in &mut self.interfaces {
            interface.set_lazy(lazy.summary());
        }
        for news in lazy.take_news() {
            self.console.say(&news);
        }
    }

    fn follow(&mut self, changed: &[usize]) {
        let mut gone = Vec::new();
        for at in changed {
            match self.interfaces[*at].follow() {
                Ok(loss) => gone.extend(loss.map(|loss| (*at, loss))),
                Err(_) if self.interfaces[*at].is_gone() => gone.push((*at, Loss::Gone)),
                Err(error) => self.console.trouble(&error),
            }
        }
        self.lose(&gone);
    }

    fn hang_up(&mut self) {
        self.signals.hear_hangups();
        self.hung_up = true;
        if !self.signals.terminal_is_gone() {
            self.reload();
        }
    }

    /// A terminal may be gone a moment after its SIGHUP: a shell that ends tells first.
    fn has_lost_its_terminal(&self) -> bool {
        self.hung_up && self.signals.terminal_is_gone()
    }

    fn reload(&mut self) {
        if let Err(error) = self.reloader.read(&self.names()) {
            self.console.say(&error.to_string());
            self.console.say("every setting stays as it was");
            return;
        }
        self.console.say(&self.reloader.describe());
        let (shares, mut news) = self.reloader.change_shares();
        if let Some(governors) = self.governors() {
            governors.set_shares(shares);
        }
        for interface in &mut self.interfaces {
            let name = interface.interface();
            let changed = self.reloader.change(&mut interface.effective, &name);
            if let Err(error) = interface.adopt(self.reloader.settings(&interface.effective)) {
                self.console.trouble(&error);
            }
            news.extend(changed.into_iter().map(|change| format!("{name}: {change}")));
        }
        for each in &mut self.unprotected {
            let name = &each.status.interface;
            let changed = self.reloader.change(&mut each.effective, name);
            news.extend(changed.into_iter().map(|change| format!("{name}: {change}")));
        }
        // Said last, when it holds: the gates have some of fair shares' settings.
        for news in news {
            self.console.say(&news);
        }
    }

    fn tell_news(&mut self) {
        for interface in &mut self.interfaces {
            for news in interface.take_news() {
                self.console.say(&format!("{}: {news}", interface.interface()));
            }
        }
    }

    /// Goes on without these interfaces, in ascending order.
    fn lose(&mut self, gone: &[(usize, Loss)]) {
        for (at, loss) in gone.iter().rev() {
            let interface = self.interfaces.remove(*at);
            let name = interface.interface();
            let why = loss.why();
            self.console.say(&format!("{name} is no longer protected: {why}"));
            let status = interface.loss(why);
            let lost = Unprotected::now(status, interface.effective.clone());
            let taken = self.part(interface);
            self.unprotected.push(Unprotected { taken, ..lost });
            self.tell_numbers();
            self.tell_manager_whom();
        }
        // Nor does the fast path of others send by them: their drivers may take no frames any more.
        if !gone.is_empty()
            && let Err(error) = interface::forward(&mut self.interfaces)
        {
            self.console.trouble(&error);
        }
    }

    /// Protects what was lost and is back, or has come at last: a driver was loaded again, a script has made the host's
    /// queueing disciplines anew, a tunnel is up.
    fn regain(&mut self) {
        let host = Rc::clone(&self.wardens.kernel.host);
        let now = Instant::now();
        let due = self.unprotected.iter_mut().filter(|each| each.due <= now).filter_map(|each| {
            each.due = now + REGAIN;
            let down = || Some(DOWN.to_owned());
            let Ok(ifindex) = host.links.index(&each.status.interface) else {
                if each.status.loss == down() {
                    each.status.loss = Some(Loss::Gone.why().into());
                }
                return None;
            };
            // One that is down has no threads yet, which would be waited for.
            let up = host.links.info(ifindex).is_ok_and(|link| link.up);
            if !up {
                each.status.loss = down();
            }
            up.then(|| (each.status.interface.clone(), ifindex))
        });
        let due: Vec<_> = due.collect();
        for (name, ifindex) in due {
            // To protect one takes as long as a start, which systemd does not bound.
            tell_manager(&[NotifyState::Watchdog]);
            // What the others' gates have been told is to hold meanwhile.
            self.follow(&(0..self.interfaces.len()).collect::<Vec<_>>());
            let is_it = |each: &Unprotected| each.status.interface == name;
            let Some(at) = self.unprotected.iter().position(is_it) else { continue };
            let effective = self.unprotected[at].effective.clone();
            match self.protect(&host.links.kernel_name(&name), effective, at) {
                Ok(()) => {
                    self.unprotected.remove(at);
                    self.failures.retain(|(interface, _)| *interface != name);
                }
                // It has gone meanwhile: when it is back it is another.
                Err(_) if host.links.index(&name).ok() != Some(ifindex) => {}
                Err(error) => {
                    self.console.trouble(&error);
                    let each = &mut self.unprotected[at];
                    each.status.loss = Some(error.to_string());
                    each.due = Instant::now() + REGAIN_FAILED;
                }
            }
            self.tell_manager_whom();
        }
    }

    /// Protects the one at this place among the unprotected ones.
    fn protect(&mut self, name: &str, effective: Effective, at: usize) -> Result<()> {
        let settings = self.reloader.settings(&effective);
        let host = &self.wardens.kernel.host;
        let claim =
            Claim::take(host, name, (settings.attach, settings.forward), &mut self.console)?;
        let key = claim.key(host);
        if self.wardens.guardian.is_none() || !self.wardens.keys.contains(&key) {
            // Before a knob is turned.
            let there = self.interfaces.iter().map(Protected::key);
            let lost = self.unprotected.iter().map(|each| &each.status);
            let lost = lost.filter(|status| status.was_protected()).map(InterfaceStatus::key);
            let keys: Vec<Key> = there.chain(lost).chain([key]).collect();
            let guardian = Guardian::start(&keys, &self.signals.stop)?;
            self.wardens.keys = keys;
            self.employ(guardian);
        }
        for knob in std::mem::take(&mut self.unprotected[at].taken) {
            if let Err(error) = knob.turn_back(&self.wardens.kernel.host, name) {
                self.console.say(&format!("{name}: {knob}: {error}"));
            }
        }
        let kernel = &self.wardens.kernel;
        let settings = (effective, settings);
        let interface = Protected::start(kernel, claim, settings, &mut self.console)?;
        interface.describe(&mut self.console);
        self.interfaces.push(interface);
        self.tell_numbers();
        // It is protected, whoever forwards.
        if let Err(error) = interface::forward(&mut self.interfaces) {
            self.console.trouble(&error);
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.interfaces.iter().map(Protected::interface).collect()
    }

    /// The names of those that were protected once, or of the others.
    fn unprotected(&self, was_protected: bool) -> Vec<&str> {
        let all = self.unprotected.iter().map(|each| &each.status);
        let such = all.filter(|status| status.was_protected() == was_protected);
        such.map(|status| status.interface.as_str()).collect()
    }

    fn tell_manager_whom(&self) {
        let mut status = format!("protecting {}", self.names().join(", "));
        for (what, was_protected) in [("lost", true), ("waiting for", false)] {
            let names = self.unprotected(was_protected);
            if !names.is_empty() {
                status = format!("{status}; {what} {}", names.join(", "));
            }
        }
        tell_manager(&[NotifyState::Status(&status)]);
    }

    fn tell_numbers(&self) {
        *lock(&self.wardens.numbers) = self.interfaces.iter().map(Protected::ifindex).collect();
    }

    fn governors(&self) -> Option<&Rc<Governors>> {
        self.wardens.kernel.governors.as_ref()
    }

    /// Puts everything back that is there; what is not.
    fn part(&mut self, interface: Protected) -> Vec<Knob> {
        let farewell = interface.finish();
        self.console.say(&summary(&farewell));
        for line in &farewell.would_have {
            self.console.say(&format!("{}: {line}", farewell.interface));
        }
        let failures = farewell.knobs.failures.iter();
        let named = failures.map(|failure| (farewell.interface.clone(), failure.clone()));
        self.failures.extend(named);
        farewell.knobs.taken
    }

    fn bury_guardian(&mut self) {
        if let Some(dead) = self.wardens.guardian.take() {
            let pid = dead.pid();
            dead.reap();
            self.console.say(&format!("the guardian (pid {pid}) has died; starting another"));
        }
        // One that dies at once, again and again, is replaced once a second, by the tick.
        if self.guardian_started.elapsed() >= TICK {
            self.start_guardian();
        }
    }

    fn start_guardian(&mut self) {
        self.guardian_started = Instant::now();
        match Guardian::start(&self.wardens.keys, &self.signals.stop) {
            Ok(guardian) => self.employ(guardian),
            // Tried again with the next tick; protection goes on meanwhile.
            Err(error) => self.console.trouble(&error),
        }
    }

    /// In the place of another, if there is one.
    fn employ(&mut self, mut guardian: Guardian) {
        if let Some(governors) = self.governors() {
            governors.beat_to(guardian.take_beats());
        }
        if let Some(other) = self.wardens.guardian.replace(guardian) {
            other.dismiss();
        }
    }

    fn finish(mut self) -> Result<()> {
        // A driver may take no frames of another's any more once its own gate has gone.
        self.interfaces.iter_mut().for_each(Protected::stop_forwarding);
        for interface in std::mem::take(&mut self.interfaces) {
            self.part(interface);
        }
        if !self.failures.is_empty() {
            let failures = self.failures.into_iter();
            let told = failures.map(|(interface, failure)| format!("{interface}: {failure}"));
            return Err(Error::NotRestored(told.collect()));
        }
        if let Some(guardian) = self.wardens.guardian.take() {
            guardian.dismiss();
        }
        let names = self.unprotected(true);
        if !names.is_empty() {
            let lists = "`ip link` lists what there is";
            let (it, is) = if names.len() == 1 { ("it", "it is") } else { ("them", "they are") };
            let remedy = match has_manager() {
                true => lists.into(),
                false => format!(
                    "`weir run {}` protects {it} again when {is} back; {lists}",
                    names.join(" ")
                ),
            };
            return Err(Error::refused(
                format!("no longer protected: {}", names.join(", ")),
                remedy,
            ));
        }
        self.console.end()
    }
}

/// Whether systemd started us, which does so again (sd_notify(3)).
pub fn has_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Tells systemd, if that started us. Whether it listens changes nothing here.
fn tell_manager(news: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(news);
}
