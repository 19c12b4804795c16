//! The `threaded` attribute of an interface, and how to put it back.

use rustix::io::Errno;
use weir_bpf::attach::{AttachMode, DoNothing};
use weir_bpf::sys::ethtool;

use crate::error::{Error, Result};
use crate::host::Host;

/// The attribute below `/sys/class/net/IFACE/`.
pub const THREADED: &str = "threaded";
/// Why the interface is polled by threads no longer.
pub const SET_BACK: &str = "somebody has set `threaded` to 0";

/// The attribute's value now.
///
/// # Errors
/// When the interface is gone.
pub fn read(host: &Host, interface: &str) -> Result<String> {
    Ok(host.sysfs.read(interface, THREADED)?.trim().to_owned())
}

/// Puts the attribute back.
///
/// The kernel refuses to change it on an interface that has no NAPI instance at that moment
/// (`modify_napi_threaded()`), which is how a veth is as soon as its XDP program is gone. A daemon
/// therefore puts threading back before it detaches the gate. After a killed daemon, whose link the
/// kernel has removed, a program that passes everything is attached for the moment of the write.
///
/// # Errors
/// When the kernel refuses all the same: the interface is down.
pub fn put_back(host: &Host, interface: &str, old: &str) -> Result<()> {
    if read(host, interface)? == old {
        return Ok(());
    }
    match host.sysfs.write(interface, THREADED, old) {
        Err(error) if error.errno() == Some(Errno::OPNOTSUPP) => {}
        written => return Ok(written?),
    }
    let ifindex = host.links.index(interface)?;
    if !host.links.info(ifindex)?.up {
        return Err(Error::refused(
            format!("{interface} is down and has no NAPI instances to switch back"),
            format!("`ip link set {interface} up`, then `weir reset {interface}`"),
        ));
    }
    let mut nothing = DoNothing::load()?;
    nothing.attach(ifindex, interface, AttachMode::Native)?;
    Ok(host.sysfs.write(interface, THREADED, old)?)
}

/// Why the interface cannot be polled by threads.
pub fn refusal(interface: &str, error: &Error) -> String {
    match error {
        Error::Kernel(kernel) if kernel.errno() == Some(Errno::OPNOTSUPP) => no_napi(interface),
        _ => error.to_string(),
    }
}

fn no_napi(interface: &str) -> String {
    match ethtool::driver(interface).as_deref() {
        // `veth_open()`, `veth_set_features()`
        Ok("veth") => format!(
            "a veth has no NAPI that threads could poll unless GRO is on and its peer's TSO off, `ethtool -K {interface} \
             gro on` and `ethtool -K PEER tso off`, or the gate is in its driver, `--attach native`"
        ),
        // `tun_get_user()`
        Ok("tun") => "packets of a tun device come in the time of the program that writes them, which has its own \
                      weight"
            .into(),
        _ => "the driver has no NAPI that threads could poll".into(),
    }
}
