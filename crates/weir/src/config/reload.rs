//! Reading the configuration again while weir runs.

use super::layer::{DEFAULT_FILE, Row};
use super::settings::Effective;
use super::shares::EffectiveShares;
use super::wanted::Settings;
use super::whole::Config;
use crate::error::Result;
use crate::shares::ShareSettings;

/// The configuration of a running daemon.
pub struct Reloader {
    pub(super) config: Config,
    shares: EffectiveShares,
    metrics: Row,
    /// What the file said to protect when the daemon was started.
    protected: Vec<String>,
}

impl Reloader {
    /// A daemon that was started with this configuration.
    pub fn new(config: Config) -> Self {
        let (shares, metrics) = (config.shares(), config.metrics().1);
        let protected = config.protected();
        Self { config, shares, metrics, protected }
    }

    /// What `effective` comes to with what holds of fair shares.
    pub fn settings(&self, effective: &Effective) -> Settings {
        effective.settings(&self.shares.settings())
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

    /// Lets `old` be what was read of an interface, by its present name, as far as that does not take a restart;
    /// returns what there is to say about it.
    pub fn change(&self, old: &mut Effective, interface: &str) -> Vec<String> {
        let new = self.config.of(interface);
        let rows = old.rows().into_iter().zip(new.rows());
        let changed = rows.filter(|(old, new)| old.value != new.value);
        let news = changed.map(|(old, new)| self.config.tell(&old, &new)).collect();
        old.adopt(&new);
        news
    }
}

impl Config {
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
