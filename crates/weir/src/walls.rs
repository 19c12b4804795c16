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
    /// Whether it judges now; `false` also if it is stopped, or gets no CPU time.
    pub judges: bool,
    /// Whether everything passes while none judges.
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
                judges: found.alive,
                fail_open: found.fail_open,
            }));
        }
        Ok(Some(walls))
    }

    /// Who judges; if nobody does, what becomes of packets.
    pub fn text(&self) -> String {
        let who = match (self.screen_pid, self.judges) {
            (Some(pid), true) => return format!("its screen runs, pid {pid}"),
            (Some(pid), false) => {
                format!("its screen, pid {pid}, is stopped or gets no CPU time")
            }
            (None, _) => "no screen judges".into(),
        };
        let what =
            if self.fail_open { "passes" } else { "is dropped, but for flows that were accepted" };
        format!("{who}: what is forwarded {what}")
    }

    /// A command for where none judges.
    pub fn remedy(&self) -> String {
        match self.screen_pid {
            Some(pid) => format!("sudo kill -CONT {pid}"),
            None => format!("sudo weir screen --clear {}", self.interface),
        }
    }
}
