//! The configuration as a whole: the command line's settings, the file's, and what weir does by itself.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;
use weir_bpf::cpulist::CpuList;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;

use super::args::SettingArgs;
use super::error::ConfigError;
use super::file::ConfigFile;
use super::layer::{DEFAULT_FILE, Origin, Row};
use super::settings::{Effective, Layer};
use super::shares::EffectiveShares;
use super::wanted::Settings;
use crate::choice::Attach;
use crate::error::Error;
use crate::named_file::is_regular;

/// Everything that was said, valid as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    flags: Layer,
    /// The file that was named.
    named: Option<PathBuf>,
    file: Option<ConfigFile>,
}

impl Config {
    /// What a file says, and no command line.
    pub fn of_file(file: ConfigFile) -> Self {
        Self { flags: Layer::default(), named: None, file: Some(file) }
    }

    /// Reads the file that the command line names, or the usual one if there is one. `interfaces` are those that the
    /// command line names.
    pub fn load(args: &SettingArgs, interfaces: &[String]) -> Result<Self, ConfigError> {
        let named = args.config.clone();
        let file = match &named {
            Some(path) => Some(ConfigFile::read(path)?),
            None => if_exists(Path::new(DEFAULT_FILE))?,
        };
        Ok(Self { flags: args.layer(interfaces), named, file })
    }

    /// What the same command line means by now.
    ///
    /// # Errors
    /// As [`Config::load`]; also if the file is gone, or is nothing that can be read twice.
    pub fn again(&self) -> Result<Self, ConfigError> {
        let path = self.named.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        let file = match (is_regular(path), self.named.is_some() || self.file.is_some()) {
            (Ok(false), _) => return Err(ConfigError::NotAgain(path.into())),
            (Err(error), true) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ConfigError::Gone(path.into()));
            }
            (_, true) => Some(ConfigFile::read(path)?),
            (_, false) => if_exists(path)?,
        };
        Ok(Self { flags: self.flags.clone(), named: self.named.clone(), file })
    }

    /// The file that was read.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// What holds on an interface, by any of its names.
    pub fn of(&self, interface: &str) -> Effective {
        self.effective(self.file.as_ref().and_then(|file| section(file, interface)))
    }

    /// What to do on an interface, by any of its names.
    pub fn settings(&self, interface: &str) -> Settings {
        self.of(interface).settings(&self.shares().settings())
    }

    /// What holds on an interface of which nothing in particular is said.
    pub fn of_any(&self) -> Effective {
        self.effective(None)
    }

    /// What holds of fair shares.
    pub fn shares(&self) -> EffectiveShares {
        self.file.as_ref().map(|file| file.shares.clone()).unwrap_or_default()
    }

    /// Where metrics are served; a row of it too.
    pub fn metrics(&self) -> (Option<SocketAddr>, Row) {
        let said = self.file.as_ref().and_then(|file| file.metrics.as_ref());
        let origin = said.map_or(Origin::Default, |said| said.origin);
        let address = said.map(|said| said.value);
        let value = json!(address.map(|address| address.to_string()));
        (address, Row { key: "metrics", value, unset: "off", origin, live: false })
    }

    /// The interfaces of which something in particular is said.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.file.iter().flat_map(|file| file.interfaces.keys().map(String::as_str))
    }

    /// The interfaces that it says to protect; none where the command line names them.
    pub fn protected(&self) -> Vec<String> {
        let file = self.file.iter().filter(|_| self.flags.protect.is_none());
        let sections = file.flat_map(|file| &file.interfaces);
        let protected = sections
            .filter(|(_, layer)| layer.protect.as_ref().is_some_and(|protect| protect.value));
        protected.map(|(name, _)| name.clone()).collect()
    }

    /// Refuses a fast path whose gate is elsewhere, and where it is for this `host`, CPUs that it does not have. `None`:
    /// an interface without a section.
    pub fn check(&self, interface: Option<&str>, host: bool) -> Result<(), Error> {
        let effective = interface.map_or_else(|| self.of_any(), |name| self.of(name));
        if effective.forwards() && effective.attach() != Attach::Native {
            let whose = interface.unwrap_or("interfaces without a section");
            return Err(Error::refused(
                format!(
                    "the fast path forwards in the driver, and the gate of {whose} is to be elsewhere"
                ),
                "leave `attach` out, or `forward`",
            ));
        }
        let cpus = &effective.cpus;
        let Some(CpuList(wanted)) = cpus.value.as_ref().filter(|_| host) else { return Ok(()) };
        let online = sched::online_cpus()?;
        match wanted.iter().find(|cpu| !online.contains(cpu)) {
            None => Ok(()),
            Some(offline) => Err(Error::refused(
                format!("CPU {offline} is not online ({})", self.origin_text(cpus.origin)),
                format!("choose from {}", CpuList(online.clone())),
            )),
        }
    }

    fn effective(&self, section: Option<&Layer>) -> Effective {
        let everywhere = self.file.as_ref().map(|file| &file.everywhere);
        let layers: Vec<&Layer> =
            std::iter::once(&self.flags).chain(section).chain(everywhere).collect();
        Effective::of(&layers)
    }

    /// An origin, for a person.
    pub fn origin_text(&self, origin: Origin) -> String {
        let path = || self.path().map(|path| path.display().to_string()).unwrap_or_default();
        match origin {
            Origin::Default => "default".into(),
            Origin::File(line) => format!("{}:{}", path(), line.0),
            Origin::Interface(line) => format!("{}:{}, for this interface", path(), line.0),
            Origin::Flag => "command line".into(),
        }
    }
}

/// An interface's section: of this name, else of another name of the same interface.
fn section<'a>(file: &'a ConfigFile, interface: &str) -> Option<&'a Layer> {
    file.interfaces.get(interface).or_else(|| {
        let links = Links::open().ok()?;
        let name = links.kernel_name(interface);
        let mut sections = file.interfaces.iter();
        sections.find(|(other, _)| links.kernel_name(other) == name).map(|(_, layer)| layer)
    })
}

fn if_exists(path: &Path) -> Result<Option<ConfigFile>, ConfigError> {
    match ConfigFile::read(path) {
        Err(ConfigError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
