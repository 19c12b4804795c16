//! The handles through which this process looks at its network namespace and changes it.

use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;
use weir_bpf::sys::divert::Interface;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::units::IfIndex;

use crate::error::Result;
use crate::key::Key;
use crate::rundir::{RUN_DIR, RunDir};

/// One network namespace's interfaces and settings, and the run directory.
pub struct Host {
    /// Inode of the network namespace.
    pub netns: u64,
    /// Its interfaces.
    pub links: Links,
    /// Its `/sys/class/net`.
    pub sysfs: NetSysfs,
    /// Where weir keeps its files.
    pub dir: Rc<RunDir>,
}

impl Host {
    /// Opens the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        Ok(Self {
            netns: NetNs::current()?.inode(),
            links: Links::open()?,
            sysfs: NetSysfs::open()?,
            dir: Rc::new(RunDir::create(Path::new(RUN_DIR))?),
        })
    }

    /// The name of an interface's files.
    pub fn key(&self, ifindex: IfIndex) -> Key {
        Key { netns: self.netns, ifindex }
    }

    /// An interface's name; `None` if there is no such interface.
    pub fn name_of(&self, ifindex: IfIndex) -> Result<Option<String>> {
        name_of(&self.links, ifindex)
    }
}

/// Interfaces with their names, without those that have gone.
pub fn named(links: &Links, interfaces: &[IfIndex]) -> Result<Vec<Interface>> {
    let mut named = Vec::new();
    for each in interfaces {
        named.extend(name_of(links, *each)?.map(|name| (*each, name)));
    }
    Ok(named)
}

/// As [`Host::name_of`].
pub fn name_of(links: &Links, ifindex: IfIndex) -> Result<Option<String>> {
    match links.name(ifindex) {
        Ok(name) => Ok(Some(name)),
        Err(error) if error.errno() == Some(Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
