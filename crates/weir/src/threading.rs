//! The `threaded` attribute of an interface, and how to put it back.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use weir_bpf::attach::{AttachMode, DoNothing};
use weir_bpf::sys::ethtool;

use crate::error::{Error, Result};
use crate::host::Host;

/// The attribute below `/sys/class/net/IFACE/`.
pub const THREADED: &str = "threaded";

/// Why threads do not poll an interface. The status has it as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum NotThreaded {
    /// Nothing refuses threads.
    Chosen,
    /// They are to poll as soon as they are needed.
    Resting,
    /// It is not switched in shadow.
    InShadow,
    /// They did, until somebody else switched it.
    SetBack,
    /// None of them could be governed (`NAPI_STATE_NO_BUSY_POLL`: WireGuard, `gro_cells_init()`).
    Nameless,
    /// They are there, but the kernel keeps packets whose sender could have had TSO from a veth's NAPI
    /// (`veth_skb_is_eligible_for_napi()`).
    Unpolled,
    /// It is refused.
    Refused(String),
}

impl fmt::Display for NotThreaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen => "softirqs poll, as `napi` says",
            Self::Resting => "until something is wrong and it takes much of a CPU",
            Self::InShadow => "the policy is shadow, which turns nothing",
            Self::SetBack => "somebody has set `threaded` to 0",
            Self::Nameless => {
                "the driver's NAPI instances have no numbers, by which the kernel would name their threads"
            }
            Self::Unpolled => {
                "its peer has TSO, and a veth's NAPI then gets no packets: `ethtool -K PEER tso off` changes that"
            }
            Self::Refused(why) => why,
        })
    }
}

impl From<NotThreaded> for String {
    fn from(why: NotThreaded) -> Self {
        why.to_string()
    }
}

impl From<String> for NotThreaded {
    fn from(text: String) -> Self {
        use NotThreaded::{Chosen, InShadow, Nameless, Refused, Resting, SetBack, Unpolled};
        let known = [Chosen, Resting, InShadow, SetBack, Nameless, Unpolled];
        known.into_iter().find(|why| why.to_string() == text).unwrap_or(Refused(text))
    }
}

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

/// Why threads are not switched on where single NAPI instances have theirs.
pub fn set_of_instances() -> Error {
    Error::refused(
        "somebody has set `threaded` of single NAPI instances, which the interface's would end",
        "set the interface's instead: `echo 1 > /sys/class/net/IFACE/threaded`",
    )
}

/// Whether threads are refused; else trying again may help.
pub fn is_refusal(error: &Error) -> bool {
    let Error::Kernel(kernel) = error else { return false };
    matches!(kernel, weir_bpf::Error::Refused { .. }) || kernel.errno() == Some(Errno::OPNOTSUPP)
}

/// Why the interface cannot be polled by threads.
pub fn refusal(interface: &str, error: &Error) -> NotThreaded {
    NotThreaded::Refused(match error {
        Error::Kernel(kernel) if kernel.errno() == Some(Errno::OPNOTSUPP) => no_napi(interface),
        _ => error.to_string(),
    })
}

fn no_napi(interface: &str) -> String {
    match ethtool::driver(interface).as_deref() {
        // `veth_open()`, `veth_set_features()`
        Ok("veth") => format!(
            "a veth has no NAPI that threads could poll unless GRO is on and its peer's TSO off, `ethtool -K {interface} \
             gro on` and `ethtool -K PEER tso off`, or the gate is in its driver, `--attach native`"
        ),
        // `tun_get_user()`
        Ok("tun") => "a tun device's packets take CPU time of the program that writes them, which has its own \
                      weight"
            .into(),
        _ => "the driver has no NAPI that threads could poll".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_says_is_understood() {
        for why in [NotThreaded::SetBack, NotThreaded::Resting, NotThreaded::Refused("x".into())] {
            let text = serde_json::to_string(&why).unwrap();
            assert_eq!(text, format!("{:?}", why.to_string()));
            assert_eq!(serde_json::from_str::<NotThreaded>(&text).unwrap(), why);
        }
    }
}
