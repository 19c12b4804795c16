//! `weir config check` and `weir config show`.

use std::io::{self, Write};
use std::iter::once;

use serde_json::{Value, json};
use weir_bpf::sys::link::Links;

use super::args::{CheckArgs, ShowArgs};
use super::error::ConfigError;
use super::file::ConfigFile;
use super::layer::{DEFAULT_FILE, Origin, Row, Sourced};
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

/// What `weir config show --json` prints. An interface without a name is any that has no section of its own.
fn shown(config: &Config, effective: &[(Option<String>, Effective)]) -> Value {
    let setting = |value: Value, origin: Origin| {
        let (source, line) = match origin {
            Origin::Default => ("default", None),
            Origin::File(line) => ("file", Some(line.0)),
            Origin::Interface(line) => ("interface", Some(line.0)),
            Origin::Flag => ("flag", None),
        };
        json!({ "value": value, "source": source, "line": line })
    };
    let settings = |rows: Vec<Row>| -> Value {
        rows.into_iter().map(|row| (row.key, setting(row.value, row.origin))).collect()
    };
    let interface = |(name, effective): &(Option<String>, Effective)| {
        let settings = settings(effective.rows().into());
        json!({ "interface": name, "settings": settings })
    };
    let (_, metrics) = config.metrics();
    let shares = config.shares();
    let weight = |rule: &Sourced<WeightRule>| {
        let (by, of) = rule.value.whose.named();
        let mut weight = setting(json!(rule.value.weight), rule.origin);
        (weight["by"], weight["of"]) = (json!(by), json!(of));
        weight
    };
    json!({
        "schema": SCHEMA,
        "file": config.path().map(|path| path.display().to_string()),
        "interfaces": effective.iter().map(interface).collect::<Value>(),
        "metrics": setting(metrics.value, metrics.origin),
        "shares": {
            "settings": settings(shares.rows().into()),
            "weights": shares.weights.iter().map(weight).collect::<Value>(),
        },
    })
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
    let more = shares.presets().map(preset).chain(shares.weights.iter().map(weight));
    lines(out, config, rows.chain(more).collect())
}

/// Settings, values and origins, one below the other.
fn lines(
    out: &mut impl Write,
    config: &Config,
    rows: Vec<(&str, String, Origin)>,
) -> io::Result<()> {
    /// Of the longest name, and of a value at least: so sections look alike unless one has a long value.
    const NAME_COLUMNS: usize = 11;
    const VALUE_COLUMNS: usize = 10;
    let longest = rows.iter().map(|(_, value, _)| value.chars().count()).max();
    let columns = longest.unwrap_or(0).max(VALUE_COLUMNS);
    for (key, value, origin) in rows {
        writeln!(out, "  {key:<NAME_COLUMNS$} {value:<columns$}  {}", config.origin_text(origin))?;
    }
    Ok(())
}
