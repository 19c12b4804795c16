//! A process that owns sockets, for people and programs.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use weir_bpf::holders::{self, ProcessId, SchedClass};
use weir_bpf::units::{Nice, Uid};

use super::group::Group;
use super::weight::Weight;
use weir_bpf::printable::printable;

/// A process. Its texts are safe to print.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Which one.
    #[serde(skip)]
    pub id: ProcessId,
    /// Its number.
    pub pid: i32,
    /// Its name; processes choose it themselves.
    pub comm: String,
    /// Its effective user.
    pub uid: Uid,
    /// That user's name, if `/etc/passwd` has one.
    pub user: Option<String>,
    /// What its heaviest thread weighs, in its control group.
    pub weight: Weight,
    /// That thread's nice value; `null` if it is scheduled otherwise.
    pub nice: Option<Nice>,
    /// Its control group; `null` if that is the root.
    #[serde(serialize_with = "group")]
    pub cgroup: Option<Arc<Group>>,
    /// What that group makes of a weight: a factor, 1 of the root and of groups of the usual weight.
    pub group_weight: f64,
}

fn group<S: Serializer>(group: &Option<Arc<Group>>, serializer: S) -> Result<S::Ok, S::Error> {
    group.as_deref().serialize(serializer)
}

impl Process {
    /// From what the kernel has told, and how its group is weighed.
    pub fn new(
        found: &holders::Process,
        user: Option<&str>,
        group: Option<Arc<Group>>,
        group_weight: f64,
    ) -> Self {
        let by_nice = SchedClass::Fair(Nice(0));
        let weight = |policy| match policy {
            // They run first, whatever group they are in.
            SchedClass::RealTime => Weight::of(policy),
            SchedClass::Fair(_) | SchedClass::Idle => Weight::of(policy).times(group_weight),
        };
        let heaviest = found.policies.iter().copied().max_by_key(|policy| weight(*policy));
        let heaviest = heaviest.unwrap_or(by_nice);
        Self {
            id: found.id,
            pid: found.id.pid,
            comm: printable(&found.comm),
            uid: found.uid,
            user: user.map(str::to_owned),
            weight: weight(heaviest),
            nice: match heaviest {
                SchedClass::Fair(nice) => Some(nice),
                SchedClass::Idle | SchedClass::RealTime => None,
            },
            cgroup: group,
            group_weight,
        }
    }

    /// Its unit or container, as briefly as it can be named.
    pub fn place(&self) -> Option<String> {
        let group = self.cgroup.as_ref()?;
        match (&group.container, &group.unit, &group.user_unit) {
            (Some(container), ..) => Some(format!("{} {}", container.runtime, container.id)),
            (None, Some(unit), Some(user_unit)) => Some(format!("{unit}/{user_unit}")),
            (None, Some(unit), None) => Some(unit.clone()),
            (None, None, _) => Some(group.path.clone()),
        }
    }
}
