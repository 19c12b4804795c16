//! Putting back what a daemon that no longer runs has left turned.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::key::{Key, STATE_SUFFIX};
use crate::knob::{Outcome, Returns};
use crate::lazy;
use crate::lock::{Attempt, Lock, Purpose};
use crate::statefile::State;
use crate::status::keys;
use crate::task::Task;

/// What was done about one interface's leftovers.
#[derive(Debug)]
pub struct Restored {
    /// The interface.
    pub interface: String,
    /// The daemon that had turned the knobs.
    pub owner: Task,
    /// What became of them.
    pub knobs: Returns,
}

/// Puts back an interface's leftovers, if any. The caller holds the interface's lock, so that no
/// daemon runs there and nobody else restores.
///
/// # Errors
/// If the record cannot be read or removed, or a knob cannot be put back; the record then stays.
pub fn leftovers(host: &Host, key: &Key, _lock: &Lock) -> Result<Option<Restored>> {
    let restored = match State::read(&host.dir, key)? {
        // A daemon killed before it turned anything, or after it had put everything back.
        None => None,
        Some(state) => {
            let knobs = put_back(host, &state)?;
            Some(Restored { interface: state.interface, owner: state.owner, knobs })
        }
    };
    let removed =
        [key.status_file(), key.state_file()].iter().try_for_each(|name| host.dir.remove(name));
    match (removed, &restored) {
        (Err(error), Some(done)) => Err(Error::refused(
            format!("{done}, and its record stays: {error}"),
            "`weir reset` removes it when that is cured",
        )),
        (removed, _) => removed.map(|()| restored),
    }
}

/// What the interface that the record is about is called now. Nothing is left to put back after a reboot, or when the
/// interface is gone or its network namespace; with a record that does not tell its namespace from a later one, another
/// name is another interface.
pub fn present_name(host: &Host, state: &State) -> Result<Option<String>> {
    if !state.is_of_this_namespace()? {
        return Ok(None);
    }
    let name = host.name_of(state.ifindex)?;
    Ok(name.filter(|name| state.netns_cookie.is_some() || *name == state.interface))
}

/// In the reverse of the order in which they were turned: threads before threading.
fn put_back(host: &Host, state: &State) -> Result<Returns> {
    let (name, of_this_boot) = (present_name(host, state)?, state.is_of_this_boot()?);
    let may_be_elsewhere = of_this_boot && state.is_of_this_namespace()?;
    let mut returns = Returns::default();
    for knob in state.knobs.iter().rev() {
        // What its threads have goes back wherever the interface has been moved to.
        if name.is_some() || (of_this_boot && knob.is_of_a_thread()) {
            returns.note(knob, knob.turn_back(host, name.as_deref().unwrap_or_default()));
        } else if may_be_elsewhere {
            returns.note(knob, Ok(Outcome::TakenAlong));
        }
    }
    let interface = name.as_ref().unwrap_or(&state.interface);
    let failures = &returns.failures;
    if failures.is_empty() {
        return Ok(returns);
    }
    let named = failures.iter().map(|failure| format!("{interface}: {failure}"));
    Err(Error::NotRestored(named.collect()))
}

/// What `weir reset` did.
#[derive(Debug, Default)]
pub struct Reset {
    /// Interfaces whose leftovers were dealt with.
    pub restored: Vec<Restored>,
    /// What stood in the way on others.
    pub errors: Vec<Error>,
}

/// `weir reset`: puts back the leftovers of these interfaces, or of all in this network namespace.
/// An interface that cannot be dealt with does not keep it from the others.
pub fn reset(host: &Host, interfaces: &[String]) -> Result<Reset> {
    let mut reset = Reset::default();
    for key in keys_to_reset(host, interfaces)? {
        match reset_one(host, &key) {
            Ok(restored) => reset.restored.extend(restored),
            Err(error) => reset.errors.push(error),
        }
    }
    reset.errors.extend(lazy::remove_left(&host.dir).err());
    Ok(reset)
}

fn keys_to_reset(host: &Host, interfaces: &[String]) -> Result<Vec<Key>> {
    let keys = keys(&host.dir, STATE_SUFFIX, Some(host.netns))?;
    if interfaces.is_empty() {
        return Ok(keys);
    }
    let mut wanted = Vec::new();
    for interface in interfaces {
        // By the names in the records too: one that is gone has left a record, another of its name is there now.
        let name_of = |key: &Key| Some(State::read(&host.dir, key).ok()??.interface);
        let is_named = |key: &&Key| name_of(key).as_ref() == Some(interface);
        let mut found: Vec<Key> = keys.iter().filter(is_named).copied().collect();
        match host.links.index(interface).map(|ifindex| host.key(ifindex)) {
            Ok(present) if !found.contains(&present) => found.push(present),
            Err(error) if found.is_empty() => return Err(error.into()),
            _ => {}
        }
        wanted.append(&mut found);
    }
    Ok(wanted)
}

fn reset_one(host: &Host, key: &Key) -> Result<Option<Restored>> {
    match Lock::take(&host.dir, key, Purpose::Restore)? {
        Attempt::Held(lock) => leftovers(host, key, &lock),
        Attempt::Protected { pid } => {
            let interface = host.name_of(key.ifindex)?.unwrap_or_else(|| key.to_string());
            Err(Error::Running { interface, pid })
        }
    }
}

impl std::fmt::Display for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.interface)?;
        match (&self.knobs.restored[..], &self.knobs.left[..]) {
            ([], []) => write!(f, "nothing was left to put back")?,
            ([], _) => write!(f, "put nothing back")?,
            (restored, _) => write!(f, "put back {}", restored.join(", "))?,
        }
        write!(f, " (left by weir, pid {})", self.owner.pid)?;
        self.knobs.left.iter().try_for_each(|left| write!(f, "; {left}"))
    }
}

#[cfg(test)]
mod tests {
    use weir_bpf::sys::sched::{self, SchedPolicy};
    use weir_bpf::units::{IfIndex, Nice};

    use super::*;
    use crate::knob::Knob;
    use crate::knob::tests::with_thread;

    #[test]
    fn what_a_thread_has_goes_back_though_its_interface_is_elsewhere() {
        with_thread(|host, thread, pid| {
            let elsewhere = host.key(IfIndex(9999));
            let mut state = State::new(&elsewhere, "moved", Task::current().unwrap()).unwrap();
            let (thread, old_policy) = (thread.clone(), SchedPolicy::Normal);
            let (old, new) = (Nice(0), Nice(7));
            let nice =
                Knob::Nice { thread, old, old_policy, old_slice: None, new, governed: false };
            state.knobs = vec![Knob::Threaded { old: "0".into(), new: "1".into() }, nice.clone()];
            sched::set_nice(pid, new).unwrap();

            let of_another_boot = State { boot_id: "another".into(), ..state.clone() };
            assert!(put_back(host, &of_another_boot).unwrap().restored.is_empty());
            assert_eq!(sched::nice(pid).unwrap(), new);
            let returns = put_back(host, &state).unwrap();
            assert_eq!(returns.restored, [nice.to_string()]);
            assert_eq!(sched::nice(pid).unwrap(), old);
            // Nobody here can, and who can is told how.
            let [left] = &returns.left[..] else { panic!("{:?}", returns.left) };
            assert!(left.contains("`echo 0 > /sys/class/net/NAME/threaded` there"), "{left}");
        });
    }
}
