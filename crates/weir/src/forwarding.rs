//! The fast path of forwarding (`--forward xdp`): by which interfaces it may send, and whether it may at all. Followed
//! while it does: it never takes a packet past a rule, a queueing discipline or a program of the operator's.

use weir_bpf::forward::FastPath;
use weir_bpf::sys::divert::{ForwardFilters, at_egress, past_at_egress};
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;

use crate::error::{Error, Result};
use crate::host::named;

/// Where all others have gone, or none was named.
const NO_EGRESS: &str = "the fast path has no other interface to send by";

/// The fast path of one interface.
#[derive(Debug, Default)]
pub struct Forwarding {
    filters: ForwardFilters,
    /// Those between which packets are forwarded so.
    interfaces: Vec<IfIndex>,
    found: Found,
    news: Vec<String>,
}

/// What a look has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Why nothing is forwarded so.
    bars: Vec<String>,
    /// Why nothing is sent by an interface.
    closed: Vec<String>,
    /// The names of those by which it is.
    open: Vec<String>,
}

impl Forwarding {
    /// Begins to forward between these interfaces, of which this is one.
    ///
    /// # Errors
    /// Names the first thing that packets would be taken past.
    pub fn begin(
        &mut self,
        links: &Links,
        ifindex: IfIndex,
        interfaces: &[IfIndex],
        path: &mut impl FastPath,
    ) -> Result<()> {
        self.interfaces = interfaces.to_vec();
        self.look(links, ifindex, path)?;
        self.found.bars.first().map_or(Ok(()), |bar| Err(refused(bar)))
    }

    /// For who wants to send by every interface from the start.
    ///
    /// # Errors
    /// Says why one could not be sent by, or that there is none.
    pub fn check_egresses(&self) -> Result<()> {
        if let Some(why) = self.found.closed.first() {
            return Err(refused(why));
        }
        if self.found.open.is_empty() {
            return Err(Error::refused(
                NO_EGRESS,
                "name the interfaces that packets leave by, too",
            ));
        }
        Ok(())
    }

    /// Looks what is on the packets' way, and tells the fast path.
    pub fn look(
        &mut self,
        links: &Links,
        ifindex: IfIndex,
        path: &mut impl FastPath,
    ) -> Result<()> {
        let mut interfaces = named(links, &self.interfaces)?;
        // The one by which packets come in is the first.
        interfaces.sort_by_key(|(each, _)| *each != ifindex);
        let bars = self.filters.on_the_way(&interfaces);
        // At once: what follows takes time.
        if !bars.is_empty() {
            path.send_by(&[])?;
        }
        let egresses = interfaces.iter().filter(|(each, _)| *each != ifindex);
        let (mut found, mut open) = (Found { bars, ..Found::default() }, Vec::new());
        for egress in egresses {
            match at_egress(egress) {
                Some(why) => found.closed.push(why),
                None => {
                    open.push(egress.0);
                    found.open.push(egress.1.clone());
                }
            }
        }
        path.send_by(if found.bars.is_empty() { &open } else { &[] })?;
        if found != self.found {
            self.found = found;
            self.news = vec![self.summary()];
        }
        Ok(())
    }

    /// One line, for the status.
    pub fn summary(&self) -> String {
        let Found { bars, closed, open } = &self.found;
        let closed: String = closed.iter().map(|why| format!("; {why}")).collect();
        match (bars.first(), open.is_empty()) {
            (Some(bar), _) => format!("the kernel forwards every packet: {bar}"),
            (None, true) if closed.is_empty() => {
                format!("the kernel forwards every packet: {NO_EGRESS}")
            }
            (None, true) => format!("the kernel forwards every packet{closed}"),
            (None, false) => format!("the fast path sends by {}{closed}", open.join(", ")),
        }
    }

    /// What has changed since this was last asked.
    pub fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }
}

/// Whether the fast path may begin between these interfaces, as far as that can be told before a gate is in their
/// drivers, where coming may reset a network card.
///
/// # Errors
/// Names the first thing that packets would be taken past.
pub fn check(links: &Links, interfaces: &[IfIndex]) -> Result<()> {
    let (mut filters, mut named) = (ForwardFilters::default(), named(links, interfaces)?);
    for _ in interfaces {
        let egress = named.get(1).and_then(past_at_egress);
        if let Some(bar) = filters.on_the_way(&named).first().cloned().or(egress) {
            return Err(refused(&bar));
        }
        // The one by which packets come in is the first.
        named.rotate_left(1);
    }
    Ok(())
}

/// The refusal to begin.
pub fn refused(bar: &str) -> Error {
    let problem = format!("the fast path would bypass this, or lose packets: {bar}");
    Error::refused(problem, "change that, or leave `--forward xdp` out")
}
