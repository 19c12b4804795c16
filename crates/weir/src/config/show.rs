//! `weir config check` and `weir config show`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter::once;

use serde::Serialize;
use serde_json::{Value, json};
use weir_bpf::sys::link::Links;

use super::args::{CheckArgs, ShowArgs};
use super::error::ConfigError;
use super::file::ConfigFile;
use super::layer::{DEFAULT_FILE, Origin, Sourced};
use super::settings::Effective;
use super::whole::Config;
use crate::error::{Error, Result};
use crate::out;
use crate::preset::Preset;
use crate::shares::WeightRule;
use crate::status::SCHEMA;

/// `weir config check`. Needs no privilege.
pub fn check(args: &CheckArgs) -> Result<()> {
    let file = ConfigFile::read(&args.file).map_err(|error| match error {
        // Here a file is no option, of which there could be another.
        ConfigError::Unreadable { path, source } => Error::file("read", path, source),
        error => error.into(),
    })?;
    let config = Config::of_file(file);
    let sections = once(None).chain(config.sections().map(Some));
    sections.into_iter().try_for_each(|section| config.check(section, args.host))?;
    out::print(|out| writeln!(out, "{}: valid", args.file.display()))
}

/// What `weir config show --json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    schema: u32,
    /// The file that was read; `null` if none was.
    file: Option<String>,
    interfaces: Vec<ShownInterface>,
    /// Where metrics are served.
    metrics: ShownSetting,
    /// Fair shares, of the whole host.
    shares: ShownShares,
}

/// What holds on one interface.
#[derive(Debug, Serialize)]
struct ShownInterface {
    /// Its name; `null` for any that has no section of its own.
    interface: Option<String>,
    settings: BTreeMap<&'static str, ShownSetting>,
}

/// What holds of fair shares.
#[derive(Debug, Serialize)]
struct ShownShares {
    settings: BTreeMap<&'static str, ShownSetting>,
    /// The first that is a channel's counts.
    weights: Vec<ShownWeight>,
}

#[derive(Debug, Serialize)]
struct ShownWeight {
    /// Whose it is: `port`, `process`, `unit`, `cgroup` or `kind`...
    by: &'static str,
    /// ...of this value.
    of: String,
    #[serde(flatten)]
    setting: ShownSetting,
}

#[derive(Debug, Serialize)]
struct ShownSetting {
    value: Value,
    source: &'static str,
    /// Where in the file it is; `null` if it is not from there.
    line: Option<usize>,
}

/// `weir config show`. Needs no privilege.
pub fn show(args: &ShowArgs) -> Result<()> {
    let config = Config::load(&args.settings, &args.interfaces)?;
    let mut effective: Vec<(Option<String>, Effective)> = Vec::new();
    if args.interfaces.is_empty() {
        effective.push((None, config.of_any()));
        effective.extend(config.sections().map(|name| (Some(name.into()), config.of(name))));
    } else {
        let named = args.interfaces.iter();
        let links = Links::open()?;
        for error in named.clone().filter_map(|name| links.index(name).err()) {
            out::say(format_args!("weir: {error}"));
        }
        effective.extend(named.map(|name| (Some(name.clone()), config.of(name))));
    }
    for error in effective.iter().filter_map(|(name, _)| config.check(name.as_deref(), true).err())
    {
        out::say(format_args!("weir: `weir run` would refuse this: {error}"));
    }
    if args.json {
        out::json(&shown(&config, &effective))
    } else {
        out::print(|out| table(out, &config, &effective))
    }
}

fn shown(config: &Config, effective: &[(Option<String>, Effective)]) -> Shown {
    let setting = |value: Value, origin: Origin| {
        let (source, line) = match origin {
            Origin::Default => ("default", None),
            Origin::File(line) => ("file", Some(line.0)),
            Origin::Interface(line) => ("interface", Some(line.0)),
            Origin::Flag => ("flag", None),
        };
        ShownSetting { value, source, line }
    };
    let interface = |(name, effective): &(Option<String>, Effective)| {
        let rows = effective.rows().into_iter();
        let settings = rows.map(|row| (row.key, setting(row.value, row.origin))).collect();
        ShownInterface { interface: name.clone(), settings }
    };
    let (_, metrics) = config.metrics();
    let shares = config.shares();
    let weight = |rule: &Sourced<WeightRule>| {
        let (by, of) = rule.value.whose.named();
        ShownWeight { by, of, setting: setting(json!(rule.value.weight), rule.origin) }
    };
    let settings = shares.rows().into_iter();
    Shown {
        schema: SCHEMA,
        file: config.path().map(|path| path.display().to_string()),
        interfaces: effective.iter().map(interface).collect(),
        metrics: setting(metrics.value, metrics.origin),
        shares: ShownShares {
            settings: settings.map(|row| (row.key, setting(row.value, row.origin))).collect(),
            weights: shares.weights().iter().map(weight).collect(),
        },
    }
}

fn table(
    out: &mut impl Write,
    config: &Config,
    effective: &[(Option<String>, Effective)],
) -> io::Result<()> {
    match config.path() {
        Some(path) => writeln!(out, "file: {}", path.display())?,
        None => writeln!(out, "file: none ({DEFAULT_FILE} does not exist)")?,
    }
    for (name, effective) in effective {
        let name = name.as_deref().unwrap_or("interfaces that have no section of their own");
        writeln!(out, "\n{name}")?;
        let rows = effective.rows().into_iter().map(|row| (row.key, row.text(), row.origin));
        lines(out, config, rows.collect())?;
    }
    let (_, metrics) = config.metrics();
    writeln!(out, "\nthe host")?;
    lines(out, config, vec![(metrics.key, metrics.text(), metrics.origin)])?;
    let shares = config.shares();
    writeln!(out, "\nshares, on every interface")?;
    let rows = shares.rows().into_iter().map(|row| (row.key, row.text(), row.origin));
    let weight = |rule: &Sourced<WeightRule>| {
        let WeightRule { whose, weight } = &rule.value;
        ("weight", format!("{weight} of {whose}"), rule.origin)
    };
    let preset = |(preset, origin): (&Preset, Origin)| (preset.name, preset.text(), origin);
    let more = shares.presets().map(preset).chain(shares.weights().iter().map(weight));
    lines(out, config, rows.chain(more).collect())
}

/// Settings, values and origins, one below the other.
fn lines(
    out: &mut impl Write,
    config: &Config,
    rows: Vec<(&str, String, Origin)>,
) -> io::Result<()> {
    /// Of a name, and of a value at least: so sections look alike unless one has a long value.
    const COLUMNS: usize = 10;
    let longest = rows.iter().map(|(_, value, _)| value.chars().count()).max();
    let columns = longest.unwrap_or(0).max(COLUMNS);
    for (key, value, origin) in rows {
        writeln!(out, "  {key:<COLUMNS$}  {value:<columns$}  {}", config.origin_text(origin))?;
    }
    Ok(())
}
