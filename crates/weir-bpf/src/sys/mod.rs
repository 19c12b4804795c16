//! Safe wrappers over what weir needs of the system.
//!
//! "The current namespace" always means the calling thread's: use
//! [`NetNs::run`](netns::NetNs::run) to look into another one. Everything here that is read from
//! or written to `/proc/sys/net`, sysfs or netlink follows it.

pub mod caps;
pub mod cpu_times;
pub mod divert;
#[cfg(feature = "seeded-defects")]
pub mod encap;
pub mod ethtool;
mod ifname;
pub mod ipv6;
pub mod link;
mod link_info;
pub mod local_table;
pub(crate) mod mapping;
pub mod napi;
mod netlink;
pub mod netns;
pub mod packet;
pub mod procfile;
pub mod sched;
pub mod shared_memory;
pub mod snmp;
pub mod sock_diag;
mod sockopt;
pub mod stat;
pub mod sysfs;
pub mod task_clock;
pub mod tc;
pub mod tun;
pub mod watch;

#[cfg(test)]
pub(crate) mod test_support;
