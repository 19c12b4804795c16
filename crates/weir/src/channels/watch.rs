//! Looks at the gates of running daemons, once or again and again.

use std::path::Path;
use std::time::{Duration, Instant};

use weir_bpf::samples::READ_EVERY;
use weir_bpf::sys::link::Links;

use super::look::{Gate, Look, gone};
use super::rows::{InterfaceChannels, Report};
use super::sockets::Behind;
use super::sources::Sources;
use crate::channel_name::Namer;
use crate::error::{Error, Result};
use crate::out;
use crate::owners::{Owners, Ownership};
use crate::rundir::{RUN_DIR, RunDir};
use crate::status::{InterfaceStatus, LEFT_TURNED, Leftover, SCHEMA};

/// The gates that are looked at.
pub struct Watch {
    dir: Option<RunDir>,
    running: Vec<InterfaceStatus>,
    gates: Vec<Gate>,
    /// Of each gate, if they are asked for.
    sources: Vec<Sources>,
    owners: Option<Owners>,
    links: Links,
}

impl Watch {
    /// Those of this network namespace's protected interfaces, or of the one that is asked for.
    pub fn open(named: Option<&str>, with_sources: bool) -> Result<Self> {
        let dir = RunDir::open(Path::new(RUN_DIR))?;
        let running = running(named)?;
        let gates = running.iter().map(Gate::open).collect::<Result<_>>()?;
        let sampled = running.iter().filter(|_| with_sources);
        let sources = sampled.map(Sources::open).collect::<Result<_>>()?;
        let owners = opened(Owners::open());
        Ok(Self { dir, running, gates, sources, owners, links: Links::open()? })
    }

    /// What the daemons have published; of the time when the gates were opened, or of the last
    /// [`Watch::refresh`].
    pub fn running(&self) -> &[InterfaceStatus] {
        &self.running
    }

    /// Reads again what the daemons publish.
    ///
    /// # Errors
    /// If an interface is no longer protected.
    pub fn refresh(&mut self) -> Result<()> {
        for status in &mut self.running {
            let key = status.key();
            let now = self.dir.as_ref().map(|dir| InterfaceStatus::read(dir, &key)).transpose()?;
            let now = now.flatten().filter(|now| now.pid == status.pid && now.running);
            let now = now.filter(|now| now.is_of_gate(status));
            *status = now.ok_or_else(|| gone(&status.interface))?;
        }
        Ok(())
    }

    /// Two looks, so long apart; one, if that is no time at all. `wait` waits for a part of it, and says whether
    /// to go on.
    ///
    /// # Errors
    /// When the kernel refuses a look, or an interface is no longer protected.
    pub fn report(
        &mut self,
        interval: Duration,
        mut wait: impl FnMut(Duration) -> bool,
    ) -> Result<Option<Report>> {
        let mut earlier = None;
        if !interval.is_zero() {
            self.sources.iter_mut().for_each(Sources::begin);
            self.ask();
            earlier = Some((self.look()?, self.owned()));
            if !self.pass(interval, &mut wait) {
                return Ok(None);
            }
        }
        let (later, owned_later) = (self.look()?, self.owned());
        let (earlier, owned_earlier) = earlier.unzip();
        let looks = || self.running.iter().zip(&later);
        let channels = looks()
            .flat_map(|(status, look)| look.each().map(|(channel, _)| (channel, status.ifindex)));
        let behind = owned_later.map(|later| Behind::new(owned_earlier.flatten(), later, channels));
        let namer = Namer::new(&self.links)?;
        let interfaces = looks().enumerate().map(|(at, (status, later))| {
            let earlier = earlier.as_ref().and_then(|earlier| earlier.get(at));
            let sources = self.sources.get(at);
            InterfaceChannels::new(status, earlier, later, &namer, behind.as_ref(), sources)
        });
        Ok(Some(Report { schema: SCHEMA, interfaces: interfaces.collect() }))
    }

    /// Lets the time pass; reads samples meanwhile, if they are asked for.
    fn pass(&mut self, interval: Duration, wait: &mut impl FnMut(Duration) -> bool) -> bool {
        let until = Instant::now() + interval;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !wait(left.min(READ_EVERY)) {
                return false;
            }
            self.sources.iter_mut().for_each(Sources::read);
            if left <= READ_EVERY {
                return true;
            }
            self.ask();
        }
    }

    /// Has the gates count for a moment more, and sample if that is asked for: whoever else looks, and then ends, ends it
    /// for nobody.
    fn ask(&self) {
        self.gates.iter().for_each(Gate::watch);
        self.sources.iter().zip(&self.gates).for_each(|(_, gate)| gate.sample());
    }

    fn look(&self) -> Result<Vec<Look>> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        self.gates.iter().zip(&self.running).map(|(gate, status)| gate.look(dir, status)).collect()
    }

    fn owned(&mut self) -> Option<Ownership> {
        self.owners.as_mut().and_then(|owners| opened(owners.look()))
    }
}

/// Channels can be listed without their owners.
fn opened<T>(result: weir_bpf::Result<T>) -> Option<T> {
    result.inspect_err(|error| out::say(format_args!("weir: owners are not shown: {error}"))).ok()
}

/// The protected interfaces of this network namespace, or the one that is asked for.
fn running(named: Option<&str>) -> Result<Vec<InterfaceStatus>> {
    let mut running = InterfaceStatus::running()?;
    if let Some(name) = named {
        let links = Links::open()?;
        let name = links.kernel_name(name);
        running.retain(|interface| interface.interface == name);
        if running.is_empty() {
            links.index(&name)?;
        }
    }
    if running.is_empty() {
        let what = named.unwrap_or("no interface of this network namespace");
        let problem = if named.is_some() { "is not protected" } else { "is protected" };
        let mut remedy = format!("`sudo weir run {}` protects it", named.unwrap_or("IFACE"));
        if !Leftover::here()?.is_empty() {
            remedy += &format!("; {LEFT_TURNED}");
        }
        return Err(Error::refused(format!("{what} {problem}"), remedy));
    }
    Ok(running)
}
