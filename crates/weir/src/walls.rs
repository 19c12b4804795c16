//! Walls of this network namespace, whose screens may have ended.

use serde::{Deserialize, Serialize};
use weir_bpf::sys::caps::{self, Capability};
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;
use weir_bpf::wall;

use crate::error::Result;

/// An interface with a wall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallStatus {
    /// The interface's name.
    pub interface: String,
    /// Its number.
    pub ifindex: IfIndex,
    /// The screen that judges; `null` if none runs.
    pub screen_pid: Option<i32>,
    /// Whether everything passes while none runs.
    pub fail_open: bool,
}

impl WallStatus {
    /// Those of the calling thread's network namespace; none without the privilege to see programs.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn read_all() -> Result<Option<Vec<Self>>> {
        if !caps::missing(&[Capability::SysAdmin])?.is_empty() {
            return Ok(None);
        }
        let links = Links::open()?;
        let mut walls = Vec::new();
        for link in links.list()? {
            walls.extend(wall::find(&links, link.ifindex)?.map(|found| Self {
                interface: link.name,
                ifindex: link.ifindex,
                screen_pid: found.screen.map(|pid| pid.as_raw_nonzero().get()),
                fail_open: found.fail_open,
            }));
        }
        Ok(Some(walls))
    }

    /// Who judges; if nobody does, what becomes of packets.
    pub fn text(&self) -> String {
        match (self.screen_pid, self.fail_open) {
            (Some(pid), _) => format!("its screen runs, pid {pid}"),
            (None, true) => "no screen judges: what is forwarded passes".into(),
            (None, false) => {
                "no screen judges: what is forwarded is dropped, but for flows that were accepted"
                    .into()
            }
        }
    }
}
