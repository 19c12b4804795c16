//! The right to protect an interface: nobody else does, and nothing is in the way.

use std::rc::Rc;

use weir_bpf::sys::ethtool;
use weir_bpf::units::{IfIndex, MacAddr};

use crate::choice::Attach;
use crate::company;
use crate::console::Console;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::Journal;
use crate::key::Key;
use crate::lock::{Attempt, Lock, Purpose};
use crate::restore;
use crate::statefile::State;
use crate::task::Task;

/// What the loopback interface has for an Ethernet address.
const NO_MAC: MacAddr = MacAddr([0; 6]);

/// Where the drivers of some interfaces have an XDP program run instead, as another interface's.
pub fn where_it_runs(interface: &str, kind: Option<&str>, driver: Option<&str>) -> Option<String> {
    if kind == Some("bond") {
        // `xdp_master_redirect()`
        return Some(format!("in the drivers of {interface}'s ports"));
    }
    // `netvsc_vf_setxdp()`
    (driver == Some("hv_netvsc"))
        .then(|| format!("in the driver of the device that accelerates {interface}"))
}

/// A claimed interface. Dropping it removes its files and gives the lock back.
pub struct Claim {
    /// The interface's number.
    pub ifindex: IfIndex,
    /// Its packets have no Ethernet header.
    pub bare: bool,
    /// The record of its turned knobs.
    pub journal: Rc<Journal>,
    // Last: whoever gets the lock finds the record complete.
    lock: Lock,
}

impl Claim {
    /// Claims an interface, after putting back what a killed daemon may have left on it.
    ///
    /// # Errors
    /// If there is no such interface, it is the loopback, another daemon protects it, or it has an
    /// XDP program already where the gate may be attached.
    pub fn take(
        host: &Rc<Host>,
        interface: &str,
        (attach, forward): (Attach, bool),
        console: &mut Console,
    ) -> Result<Self> {
        let ifindex = host.links.index(interface)?;
        let info = host.links.info(ifindex)?;
        if interface == "lo" || (info.kind.is_none() && info.mac == Some(NO_MAC)) {
            return Err(Error::refused(
                format!("{interface} is the loopback interface, which receives no floods"),
                "name the interface that packets come in by; `ip link` lists them",
            ));
        }
        if !info.takes_gate() {
            return Err(Error::refused(
                format!(
                    "{interface} has no Ethernet address, and its packets do not begin with IP"
                ),
                "protect the interface that its packets come in by; `ip link` lists them",
            ));
        }
        let at_tc = || format!("protect it with {}", company::at_tc(forward));
        if info.bare && matches!(attach, Attach::Native | Attach::Generic) {
            let others = if forward {
                "; `forward = \"xdp\"` goes into the file's sections of the other interfaces"
            } else {
                ""
            };
            return Err(Error::refused(
                format!(
                    "packets of {interface} have no Ethernet header, which XDP programs begin with"
                ),
                at_tc() + others,
            ));
        }
        // What comes by their ports never passes a hook of theirs (`vrf_ip_rcv()`), or goes to another device.
        let kind = info.kind.as_deref();
        if kind == Some("vrf") || kind == Some("openvswitch") && interface == "ovs-system" {
            return Err(Error::refused(
                format!("no gate on {interface} would see the packets of its ports"),
                "protect another interface: of an Open vSwitch, the internal port that has the address; of a VRF, \
                 there is none",
            ));
        }
        let elsewhere = where_it_runs(interface, kind, ethtool::driver(interface).ok().as_deref());
        if let Some(place) = elsewhere.filter(|_| attach == Attach::Native) {
            let problem = format!("{place}, sockets bound to {interface} cannot be identified");
            return Err(Error::refused(problem, at_tc()));
        }
        let key = host.key(ifindex);
        let lock = match Lock::take(&host.dir, &key, Purpose::Protect)? {
            Attempt::Held(lock) => lock,
            Attempt::Protected { pid } => {
                return Err(Error::Running { interface: interface.into(), pid });
            }
        };
        if let Some(restored) = restore::leftovers(host, &key, &lock)? {
            console.say(&restored.to_string());
        }
        company::refuse(host, ifindex, interface, (attach, forward))?;
        if !info.up {
            console.say(&format!("{interface} is down; it is protected from the moment it is up"));
        }
        let owner = Task::current().ok_or_else(|| {
            Error::refused("cannot read /proc/self/stat", "mount /proc: `mount -t proc proc /proc`")
        })?;
        let journal = Journal::start(host, State::new(&key, interface, owner)?)?;
        Ok(Self { ifindex, bare: info.bare, journal, lock })
    }

    /// Sees to it that its files are there, whatever has become of them.
    ///
    /// # Errors
    /// When they cannot be written, or another daemon has taken the lock meanwhile.
    pub fn keep(&mut self) -> Result<()> {
        if !self.lock.keep()? {
            let interface = self.interface();
            return Err(Error::refused(
                format!("another weir protects {interface}, too: the lock file was removed"),
                "stop one of them, and leave the files in /run/weir alone",
            ));
        }
        self.journal.catch_up()
    }

    /// The name of its files.
    pub fn key(&self, host: &Host) -> Key {
        host.key(self.ifindex)
    }

    /// The interface's name, as last heard.
    pub fn interface(&self) -> String {
        self.journal.interface()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test can make such interfaces on every kernel.
    #[test]
    fn in_the_driver_some_interfaces_packets_are_anothers() {
        assert!(where_it_runs("bond0", Some("bond"), Some("bonding")).is_some());
        assert!(where_it_runs("eth0", None, Some("hv_netvsc")).is_some());
        assert_eq!(where_it_runs("eth0", None, Some("virtio_net")), None);
        assert_eq!(where_it_runs("eth0", Some("veth"), None), None);
    }
}
