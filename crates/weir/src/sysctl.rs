//! Settings of the kernel, by their paths below `/proc/sys`.

use std::fs;
use std::str::FromStr;

use weir_bpf::sys::netns::NetNs;

/// One of the calling thread's network namespace, or of the host; none if there is none, or it is no such value.
pub fn read<T: FromStr>(name: &str) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

/// One of the whole host, which its first network namespace alone may show.
pub fn of_host<T: FromStr + Send>(name: &str) -> Option<T> {
    read(name).or_else(|| NetNs::open("/proc/1/ns/net").ok()?.run(|| read(name)).ok()?)
}
