//! Knobs that are turned, each held by a guard that turns it back.
//!
//! Write-ahead: a knob's old value is in the state file before the knob moves, and leaves the file
//! after it has moved back. Whenever the daemon dies, the file lists every knob that may be turned.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::Result;
use crate::host::Host;
use crate::knob::{Knob, Outcome, Returns};
use crate::statefile::State;

/// One interface's turned knobs.
pub struct Journal {
    host: Rc<Host>,
    state: RefCell<State>,
    /// The file does not have the last change: the file system is full, or the like.
    unwritten: Cell<bool>,
    /// What came of turning knobs back, so far.
    returns: RefCell<Returns>,
}

impl Journal {
    /// Starts an interface's record.
    pub fn start(host: &Rc<Host>, state: State) -> Result<Rc<Self>> {
        state.write(&host.dir)?;
        Ok(Rc::new(Self {
            host: Rc::clone(host),
            state: RefCell::new(state),
            unwritten: Cell::new(false),
            returns: RefCell::default(),
        }))
    }

    /// Records a knob, then turns it.
    ///
    /// # Errors
    /// When the record cannot be written, or the kernel refuses the new value; the knob then has its
    /// old one.
    pub fn turn(self: &Rc<Self>, knob: Knob) -> Result<TurnedKnob> {
        let interface = self.interface();
        if let Err(error) = self.edit(|state| state.knobs.push(knob.clone())) {
            // What is not on record is not turned.
            self.state.borrow_mut().knobs.pop();
            return Err(error);
        }
        if let Err(error) = knob.turn(&self.host, &interface) {
            self.forget(&knob);
            return Err(error);
        }
        Ok(TurnedKnob { knob, journal: Rc::clone(self) })
    }

    /// Where its knobs are.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The interface's name, as last heard.
    pub fn interface(&self) -> String {
        self.state.borrow().interface.clone()
    }

    /// Notes that the interface has been renamed.
    ///
    /// # Errors
    /// When the state file cannot be written; see [`Journal::catch_up`].
    pub fn rename(&self, interface: &str) -> Result<()> {
        self.edit(|state| state.interface = interface.into())
    }

    /// The knobs that are turned now.
    pub fn knobs(&self) -> Vec<Knob> {
        self.state.borrow().knobs.clone()
    }

    /// What was put back, what was left and what failed, since the start.
    pub fn report(&self) -> Returns {
        self.returns.borrow().clone()
    }

    /// Writes what could not be written when it changed, or what somebody has removed.
    pub fn catch_up(&self) -> Result<()> {
        let file = self.state.borrow().key().state_file();
        let is_there = || self.host.dir.inode(&file).is_some();
        if self.unwritten.get() || !is_there() { self.write() } else { Ok(()) }
    }

    fn edit(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        change(&mut self.state.borrow_mut());
        self.write()
    }

    fn write(&self) -> Result<()> {
        let written = self.state.borrow().write(&self.host.dir);
        self.unwritten.set(written.is_err());
        written
    }

    /// A knob that is not to be turned back any more. That the file still lists it does no harm until it is
    /// written again, or removed: putting it back twice is the same as once.
    fn forget(&self, knob: &Knob) {
        let _ = self.edit(|state| state.knobs.retain(|other| other != knob));
    }

    fn turn_back(&self, knob: &Knob) {
        // By its present name: that it was renamed may not have been heard yet.
        let outcome = match self.host.name_of(self.state.borrow().ifindex) {
            // Its queueing disciplines are not moved with it (`dev_shutdown()`).
            Ok(None) if matches!(knob, Knob::TcFilter { .. }) => Ok(Outcome::Gone),
            // What its threads have goes back wherever the interface has been moved to.
            Ok(None) if !knob.is_of_a_thread() => Ok(Outcome::TakenAlong),
            Ok(name) => knob.turn_back(&self.host, &name.unwrap_or_default()),
            Err(error) => Err(error),
        };
        // Else it stays in the file: the guardian and `weir reset` try again.
        if self.returns.borrow_mut().note(knob, outcome) {
            self.forget(knob);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        // Together with the record: one without a status is of a daemon that starts.
        let _ = self.host.dir.remove(&state.key().status_file());
        if state.knobs.is_empty() {
            let _ = self.host.dir.remove(&state.key().state_file());
        }
    }
}

/// A knob that weir has turned. Dropping it turns it back.
pub struct TurnedKnob {
    knob: Knob,
    journal: Rc<Journal>,
}

impl TurnedKnob {
    /// As [`Knob::turn_again`].
    pub fn turn_again(&self) -> Result<()> {
        self.knob.turn_again(self.journal.host(), &self.journal.interface())
    }
}

impl Drop for TurnedKnob {
    fn drop(&mut self) {
        self.journal.turn_back(&self.knob);
    }
}
