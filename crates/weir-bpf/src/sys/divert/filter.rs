//! What else the kernel does to packets before a socket has them, and a lazy socket would be given past it: rules
//! that only drop, count or log, IPsec policies, reverse path filters, martian sources, programs of control groups.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::forward::Interface;
use super::on_the_way::{OnTheWay, unlisted};
use super::reverse_path::reverse_path;
use super::watch::rest_since;
use super::way::Way;
use super::{proc, programs, tc};
use crate::sys::sched::own_cpu_time;

/// The scope of `::1` and of link-local addresses, which packets from other links do not reach (`if6_seq_show()`).
const NEARBY: [&str; 2] = ["10", "20"];

/// What is applied to packets of some interfaces, in one network namespace. What stays the same is not read again
/// where the kernel tells of changes.
#[derive(Debug, Default)]
pub struct Filters {
    on_the_way: OnTheWay,
    rest: Duration,
}

impl Filters {
    /// One line for each, in the calling thread's network namespace; what cannot be read counts.
    pub fn read(&mut self, interfaces: &[Interface]) -> Vec<String> {
        let begun = own_cpu_time();
        let names: Vec<String> = interfaces.iter().map(|(_, name)| name.clone()).collect();
        let mut found = self.on_the_way.read(Way::In, &names);
        found.extend(interfaces.iter().filter_map(tc::anything));
        let reverse = |(ifindex, name): &Interface| reverse_path(*ifindex, name, "lazy sockets");
        found.extend(interfaces.iter().filter_map(reverse));
        found.extend(names.iter().filter_map(|name| ipv6_is_off(name)));
        found.extend(unlisted());
        self.rest = rest_since(begun);
        found
    }

    /// How long to wait until the next look, as it may take long: a router has a million routes.
    pub fn rest(&self) -> Duration {
        self.rest
    }
}

/// `ip6_rcv_core()` drops what comes in there, also what is for another interface's address.
fn ipv6_is_off(interface: &str) -> Option<String> {
    let knob = format!("net.ipv6.conf.{interface}.disable_ipv6");
    let read = || {
        // Without such a file the interface has no IPv6, for which an MTU can be too small.
        let off = proc::read(&format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"))?;
        let addresses = proc::read("/proc/thread-self/net/if_inet6")?;
        let is_reached = |line: &str| {
            line.split_whitespace().nth(3).is_some_and(|scope| !NEARBY.contains(&scope))
        };
        Ok(off.trim() != "0" && addresses.lines().any(is_reached))
    };
    match read() {
        Ok(false) => None,
        Ok(true) => Some(format!(
            "IPv6 is off on {interface}, but other interfaces have IPv6 addresses: 0 in {knob}, and an MTU of 1280 or \
             more, allow lazy sockets"
        )),
        Err::<_, io::Error>(error) => Some(format!("{knob} cannot be read: {error}")),
    }
}

/// Where control groups of version 2 are: also beside those of version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// BPF programs that may drop or change what the sockets of a process's control group receive; a line if there are any.
pub fn cgroup_programs(pid: i32) -> Option<String> {
    let groups = match proc::read(&format!("/proc/{pid}/cgroup")) {
        Ok(groups) => groups,
        Err(error) => return Some(format!("its control group cannot be read: {error}")),
    };
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let Some(group) = GROUPS.iter().find_map(|root| File::open(format!("{root}{unified}")).ok())
    else {
        // Without a mounted hierarchy nobody has attached a program to it by its path. In one, a group that is removed
        // while a dead process is in it has no path, but the programs of those above it.
        let is_mounted =
            GROUPS.iter().any(|root| Path::new(root).join("cgroup.controllers").exists());
        return is_mounted.then(|| format!("its control group {unified} cannot be opened"));
    };
    match programs::cgroup_received(&group) {
        Ok(programs) if programs.is_empty() => None,
        Ok(programs) => Some(format!(
            "BPF program {} is given what control group {unified} receives (`bpftool cgroup tree`; \
             systemd's IPAddressAllow=, IPAddressDeny= and IPAccounting= attach such)",
            programs[0]
        )),
        // No control groups with BPF, or the older hierarchy.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::BADF)) => {
            None
        }
        Err(error) => Some(format!("the programs of {unified} cannot be listed: {error}")),
    }
}
