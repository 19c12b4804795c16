//! Reading the configuration again while weir runs.

use super::layer::{DEFAULT_FILE, Row};
use super::settings::Effective;
use super::shares::EffectiveShares;
use super::wanted::Settings;
use super::whole::Config;
use crate::error::Result;
use crate::key::Key;
use crate::shares::ShareSettings;

/// The configuration of a running daemon.
pub struct Reloader {
    pub(super) config: Config,
    /// What holds on each protected interface, as far as this daemon can make it hold.
    running: Vec<(Key, Effective)>,
    shares: EffectiveShares,
    metrics: Row,
    /// What the file said to protect when the daemon was started.
    protected: Vec<String>,
}

impl Reloader {
    /// A daemon that was started with this configuration, and has these interfaces.
    pub fn new(config: Config, running: Vec<(Key, Effective)>) -> Self {
        let (shares, metrics) = (config.shares(), config.metrics().1);
        let protected = config.protected();
        Self { config, running, shares, metrics, protected }
    }

    /// What holds on a protected interface.
    pub fn settings(&self, key: &Key) -> Option<Settings> {
        let running = self.running.iter().find(|(each, _)| each == key);
        running.map(|(_, effective)| self.settings_of(effective))
    }

    /// What `effective` comes to with what holds of fair shares.
    pub fn settings_of(&self, effective: &Effective) -> Settings {
        effective.settings(&self.shares.settings())
    }

    /// An interface is not protected any more: what is to hold when it is back.
    pub fn part(&mut self, key: &Key) -> Option<Effective> {
        let at = self.running.iter().position(|(each, _)| each == key)?;
        Some(self.running.swap_remove(at).1)
    }

    /// It is protected again, maybe with another number.
    pub fn regain(&mut self, key: Key, effective: Effective) {
        self.running.push((key, effective));
    }

    /// Reads everything again, all of it before anything is changed. In case of an error, also one that would keep weir
    /// from protecting these `interfaces`, what was known stays known.
    pub fn read(&mut self, interfaces: &[String]) -> Result<()> {
        let config = self.config.again()?;
        interfaces.iter().try_for_each(|interface| config.check(Some(interface), true))?;
        self.config = config;
        Ok(())
    }

    /// What was read, for a person.
    pub fn describe(&self) -> String {
        match self.config.path() {
            Some(path) => format!("read {} again", path.display()),
            None => format!("no configuration is read: {DEFAULT_FILE} does not exist"),
        }
    }

    /// What it means to fair shares and to all else of the host, and what there is to say about it.
    pub fn change_shares(&mut self) -> (ShareSettings, Vec<String>) {
        let old = std::mem::replace(&mut self.shares, self.config.shares());
        let rows = |shares: &EffectiveShares| {
            shares.rows().into_iter().chain([shares.weights_row()]).collect::<Vec<_>>()
        };
        let rows = rows(&old).into_iter().zip(rows(&self.shares));
        let changed = rows.filter(|(old, new)| old.value != new.value);
        let news = changed.map(|(old, new)| format!("shares.{}", self.config.tell(&old, &new)));
        let mut news: Vec<String> = news.collect();
        let (_, metrics) = self.config.metrics();
        if metrics.value != self.metrics.value {
            news.push(self.config.tell(&self.metrics, &metrics));
        }
        let protected = self.config.protected().into_iter();
        let new = protected.filter(|name| !self.protected.contains(name));
        news.extend(new.map(|name| format!("{name}: protect takes effect when weir is restarted")));
        (self.shares.settings(), news)
    }

    /// Lets it hold on an interface, by its present name, and returns what there is to say about it.
    pub fn change(&mut self, key: &Key, interface: &str) -> Vec<String> {
        let running = self.running.iter_mut().find(|(each, _)| each == key);
        running.map(|(_, old)| self.config.change(old, interface)).unwrap_or_default()
    }

    /// Lets it be what is to hold on an interface that is not protected, and returns what there is to say about it.
    pub fn change_unprotected(&self, effective: &mut Effective, interface: &str) -> Vec<String> {
        self.config.change(effective, interface)
    }
}

impl Config {
    /// Lets `old` be what this says of an interface, as far as that does not take a restart; returns what there is to
    /// say about it.
    fn change(&self, old: &mut Effective, interface: &str) -> Vec<String> {
        let new = self.of(interface);
        let rows = old.rows().into_iter().zip(new.rows());
        let changed = rows.filter(|(old, new)| old.value != new.value);
        let news = changed.map(|(old, new)| self.tell(&old, &new)).collect();
        old.adopt(&new);
        news
    }

    fn tell(&self, old: &Row, new: &Row) -> String {
        let (key, from, to) = (new.key, old.text(), new.text());
        let origin = self.origin_text(new.origin);
        if new.live {
            format!("{key} {from} -> {to} ({origin})")
        } else {
            format!("{key} stays {from}: {to} ({origin}) takes effect when weir is restarted")
        }
    }
}
