//! Knobs that are turned, each held by a guard that turns it back.
//!
//! Write-ahead: a knob's old value is in the state file before the knob moves, and leaves the file
//! after it has moved back. Whenever the daemon dies, the file lists every knob that may be turned.

use std::cell::RefCell;
use std::rc::Rc;

use crate::error::Result;
use crate::host::Host;
use crate::knob::{Knob, Outcome};
use crate::statefile::State;

/// One interface's turned knobs.
pub struct Journal {
    host: Rc<Host>,
    state: RefCell<State>,
    /// What was put back, and what could not be, in the order of events.
    restored: RefCell<Vec<String>>,
    failures: RefCell<Vec<String>>,
}

impl Journal {
    /// Starts an interface's record.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub fn start(host: &Rc<Host>, state: State) -> Result<Rc<Self>> {
        state.write(&host.dir)?;
        Ok(Rc::new(Self {
            host: Rc::clone(host),
            state: RefCell::new(state),
            restored: RefCell::default(),
            failures: RefCell::default(),
        }))
    }

    /// Records a knob, then turns it.
    ///
    /// # Errors
    /// When the record cannot be written, or the kernel refuses the new value; the knob then has its
    /// old one.
    pub fn turn(self: &Rc<Self>, knob: Knob) -> Result<TurnedKnob> {
        let interface = self.interface();
        self.edit(|state| state.knobs.push(knob.clone()))?;
        if let Err(error) = knob.turn(&self.host, &interface) {
            self.forget(&knob)?;
            return Err(error);
        }
        Ok(TurnedKnob { knob, journal: Rc::clone(self) })
    }

    /// The interface's name, as last heard.
    pub fn interface(&self) -> String {
        self.state.borrow().interface.clone()
    }

    /// Notes that the interface has been renamed.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub fn rename(&self, interface: &str) -> Result<()> {
        self.edit(|state| state.interface = interface.into())
    }

    /// The knobs that are turned now.
    pub fn knobs(&self) -> Vec<Knob> {
        self.state.borrow().knobs.clone()
    }

    /// What was put back and what could not be, since the start.
    pub fn report(&self) -> (Vec<String>, Vec<String>) {
        (self.restored.borrow().clone(), self.failures.borrow().clone())
    }

    fn edit(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.state.borrow_mut();
        change(&mut state);
        state.write(&self.host.dir)
    }

    fn forget(&self, knob: &Knob) -> Result<()> {
        self.edit(|state| state.knobs.retain(|other| other != knob))
    }

    fn turn_back(&self, knob: &Knob) {
        let outcome = knob.turn_back(&self.host, &self.interface());
        let forgotten = match outcome {
            Ok(Outcome::Restored) => {
                self.restored.borrow_mut().push(knob.to_string());
                self.forget(knob)
            }
            Ok(Outcome::Gone) => self.forget(knob),
            // Stays in the file: the guardian and `weir reset` try again.
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            self.failures.borrow_mut().push(format!("{knob}: {error}"));
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let state = self.state.get_mut();
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
    /// Whether what it belonged to no longer exists.
    pub fn is_gone(&self) -> bool {
        self.knob.is_gone(&self.journal.host, &self.journal.interface())
    }
}

impl Drop for TurnedKnob {
    fn drop(&mut self) {
        self.journal.turn_back(&self.knob);
    }
}
