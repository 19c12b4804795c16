//! Whether the walls still stand, and nothing has come before them. The kernel answers only while nobody holds its lock
//! on network configuration (RTNL), which may take seconds: a thread of its own asks, so that the one that judges never
//! waits for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use rustix::io::Errno;
use weir_bpf::units::IfIndex;
use weir_bpf::wall::Standing;

use crate::error::{Error, Result};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(1);

/// Looks while the other end of `serving` is there, and reports the first failure.
pub fn follow(
    wall: Standing,
    sides: [(IfIndex, &str); 2],
    serving: &Receiver<()>,
    failed: &Sender<Error>,
) {
    while serving.recv_timeout(LOOK) != Err(RecvTimeoutError::Disconnected) {
        if let Err(error) = look(wall, sides) {
            // Where nobody listens any more, the screen ends.
            let _ = failed.send(error);
            return;
        }
    }
}

/// Fails where a wall is known to be gone, or its interface, or where packets may pass by it.
fn look(wall: Standing, sides: [(IfIndex, &str); 2]) -> Result<()> {
    for (ifindex, ifname) in sides {
        let is_gone = match wall.stands_at(ifindex) {
            Ok(stands) => !stands,
            Err(error) => error.errno() == Some(Errno::NODEV),
        };
        if is_gone {
            return Err(Error::refused(
                format!("the wall of {ifname} is gone, or another screen's is in its place"),
                "where no other screen runs, start this one again",
            ));
        }
        if let Ok(Some(what)) = wall.comes_after(ifindex) {
            return Err(Error::refused(
                format!(
                    "something has come before the wall of {ifname}, and may pass packets by it: {what}"
                ),
                "remove it, or use `--attach native`",
            ));
        }
    }
    Ok(())
}
