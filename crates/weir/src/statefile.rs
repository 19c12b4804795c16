//! The record of turned knobs that outlives the daemon.

use serde::{Deserialize, Serialize};
use weir_bpf::sys::netns;
use weir_bpf::units::IfIndex;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::knob::Knob;
use crate::rundir::{PRIVATE, RunDir};
use crate::task::Task;

/// Version of the file's shape.
const SCHEMA: u32 = 2;

/// What one daemon has turned on one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of this shape.
    pub schema: u32,
    /// The kernel's `boot_id`: what was turned before the last boot needs no turning back.
    pub boot_id: String,
    /// The daemon.
    pub owner: Task,
    /// Inode of the network namespace.
    pub netns: u64,
    /// What tells it from a later one with that inode; records of earlier versions have none.
    #[serde(default)]
    pub netns_cookie: Option<u64>,
    /// The interface's number.
    pub ifindex: IfIndex,
    /// The interface's name when the file was last written.
    pub interface: String,
    /// What has been turned, or is about to be, in that order.
    pub knobs: Vec<Knob>,
}

impl State {
    /// A record of nothing turned yet, in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the boot or the namespace cannot be told from others.
    pub fn new(key: &Key, interface: &str, owner: Task) -> Result<Self> {
        Ok(Self {
            schema: SCHEMA,
            boot_id: boot_id()?,
            owner,
            netns: key.netns,
            netns_cookie: Some(netns::cookie()?),
            ifindex: key.ifindex,
            interface: interface.into(),
            knobs: Vec::new(),
        })
    }

    /// Whether it was written in the calling thread's network namespace, not before a boot, nor in one that is
    /// gone and had the same inode.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn is_of_this_namespace(&self) -> Result<bool> {
        let present = netns::cookie()?;
        Ok(self.is_of_this_boot()? && self.netns_cookie.is_none_or(|own| own == present))
    }

    /// Whether it was written since the last boot.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn is_of_this_boot(&self) -> Result<bool> {
        Ok(self.boot_id == boot_id()?)
    }

    /// The name of its files.
    pub fn key(&self) -> Key {
        Key { netns: self.netns, ifindex: self.ifindex }
    }

    /// Reads an interface's record; `None` if there is none.
    pub fn read(dir: &RunDir, key: &Key) -> Result<Option<Self>> {
        let name = key.state_file();
        let Some(text) = dir.read(&name)? else { return Ok(None) };
        let malformed = |problem: String| Error::Malformed {
            path: dir.path_of(&name),
            problem,
            remedy: "run `weir reset` of the version that wrote it, or undo by hand what it lists \
                     and remove it"
                .into(),
        };
        let state: Self =
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if state.schema != SCHEMA {
            return Err(malformed(format!("schema {}, not {SCHEMA}", state.schema)));
        }
        if state.key() != *key {
            return Err(malformed("it is about another interface than its name says".into()));
        }
        Ok(Some(state))
    }

    /// Writes the record, in one step.
    ///
    /// # Errors
    /// When the file system refuses; the old record then still stands.
    pub fn write(&self, dir: &RunDir) -> Result<()> {
        let name = self.key().state_file();
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::Malformed {
            path: dir.path_of(&name),
            problem: error.to_string(),
            remedy: "report this as a bug".into(),
        })?;
        dir.write(&name, PRIVATE, &text)
    }
}

fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(PATH).map_err(|source| Error::file("read", PATH, source))?;
    Ok(id.trim_end().into())
}

#[cfg(test)]
mod tests {
    use weir_bpf::sys::sched::SchedPolicy;
    use weir_bpf::units::{CpuId, Nice};

    use super::*;
    use tempfile::TempDir;

    fn example() -> State {
        let thread = Task { pid: 77, comm: "napi/eth1-5".into(), start_ticks: 12 };
        let key = Key { netns: 4_026_531_840, ifindex: IfIndex(3) };
        let mut state = State::new(&key, "eth1", Task::current().unwrap()).unwrap();
        state.knobs = vec![
            Knob::Threaded { old: "0".into(), new: "1".into() },
            Knob::Nice {
                thread: thread.clone(),
                old: Nice(0),
                old_policy: SchedPolicy::Fifo(50),
                old_slice: None,
                new: Nice(19),
                governed: true,
            },
            Knob::Affinity { thread, old: vec![CpuId(0), CpuId(1)], new: vec![CpuId(1)] },
        ];
        state
    }

    #[test]
    fn a_record_survives_its_file() {
        let scratch = TempDir::new().unwrap();
        let dir = RunDir::create(scratch.path()).unwrap();
        let state = example();
        assert_eq!(State::read(&dir, &state.key()).unwrap(), None);
        state.write(&dir).unwrap();
        let read = State::read(&dir, &state.key()).unwrap().unwrap();
        assert_eq!(read, state);
        let is_ours = |state: State| state.is_of_this_namespace().unwrap();
        assert!(is_ours(State { netns_cookie: None, ..read.clone() }) && is_ours(read.clone()));
        assert!(!is_ours(State { boot_id: "another".into(), ..read.clone() }));
        assert!(!is_ours(State { netns_cookie: Some(0), ..read }));
    }

    #[test]
    fn a_record_that_is_not_ours_is_refused() {
        let scratch = TempDir::new().unwrap();
        let dir = RunDir::create(scratch.path()).unwrap();
        let state = example();
        let good = serde_json::to_string(&state).unwrap();
        for bad in [
            "{}".into(),
            good.replacen("\"schema\":2", "\"schema\":1", 1),
            good.replacen("\"ifindex\":3", "\"ifindex\":4", 1),
            good.replacen("\"knobs\"", "\"knob\"", 1),
            good[..good.len() / 2].into(),
        ] {
            let bad: String = bad;
            assert_ne!(bad, good);
            dir.write(&state.key().state_file(), PRIVATE, bad.as_bytes()).unwrap();
            let error = State::read(&dir, &state.key()).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{error}");
        }
    }
}
