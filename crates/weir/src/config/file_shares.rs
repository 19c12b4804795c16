//! The file's section `[shares]`.

use std::collections::BTreeSet;

use toml::de::DeTable;

use super::super::layer::{Line, Origin, Sourced};
use super::super::shares::EffectiveShares;
use super::super::text::{Put, Text, Value};
use super::super::value;
use super::{Key, Walk};
use crate::preset::{self, Preset};
use crate::shares::{Selector, WeightRule};

const KEYS: &str = "enforce, control, presets, protected, and sections [[shares.weight]]";
const SELECTORS: &str = "port, process, unit, cgroup, kind";

impl Walk<'_> {
    pub(super) fn shares(&mut self, key: &Key<'_>, value: &Value<'_>) -> EffectiveShares {
        let mut shares = EffectiveShares::default();
        let Some(section) = value.get_ref().as_table() else {
            self.problem(key, "write a section, [shares]".into());
            return shares;
        };
        for (key, value) in section {
            let origin = Origin::File(self.line(key));
            let text = self.text_of(value);
            let read = match key.get_ref().as_ref() {
                "enforce" => text.bare(value::boolean).put(&mut shares.enforce, origin),
                "control" => text.quoted(value::control).put(&mut shares.control, origin),
                "protected" => {
                    ports(value, |each| self.raw(each)).put(&mut shares.protected, origin)
                }
                "presets" => presets(value, |each| self.raw(each)).put(&mut shares.presets, origin),
                "weight" => {
                    shares.weights = self.weights(key, value);
                    continue;
                }
                unknown => {
                    let what =
                        format!("there is no setting {unknown:?} of shares; there are {KEYS}");
                    self.problem(key, what);
                    continue;
                }
            };
            self.read(key, value, read);
        }
        shares
    }

    fn weights(&mut self, key: &Key<'_>, value: &Value<'_>) -> Vec<Sourced<WeightRule>> {
        let what = "write it as a section with two brackets on each side, [[shares.weight]], for each weight";
        let mut weights: Vec<Sourced<WeightRule>> = Vec::new();
        let Some(entries) = value.get_ref().as_array() else {
            self.problem(key, what.into());
            return weights;
        };
        for entry in entries.iter() {
            let line = Line::of(&self.newlines, entry.span().start);
            let Some(settings) = entry.get_ref().as_table() else {
                self.problem_at(line, what.into());
                continue;
            };
            let Some(rule) = self.weight(line, settings) else { continue };
            let same = |each: &&Sourced<WeightRule>| each.value.whose == rule.whose;
            match weights.iter().find(same).map(|each| each.origin) {
                Some(Origin::File(Line(first))) => {
                    let what = format!(
                        "{} has a weight already, from line {first} on; leave one of them out",
                        rule.whose
                    );
                    self.problem_at(line, what);
                }
                _ => weights.push(Sourced { value: rule, origin: Origin::File(line) }),
            }
        }
        weights
    }

    fn weight(&mut self, line: Line, settings: &DeTable<'_>) -> Option<WeightRule> {
        let (mut whose, mut selectors) = (None, 0);
        let (mut weight, mut is_weighed) = (None, false);
        for (key, value) in settings {
            let text = self.text_of(value);
            let name = key.get_ref().as_ref();
            let read = if name == "weight" {
                is_weighed = true;
                text.bare(value::weight).map(|read| weight = Some(read))
            } else if let Some(selector) = selector(name, &text) {
                selectors += 1;
                selector.map(|read| whose = Some(read))
            } else {
                let what = format!(
                    "there is no setting {name:?} of a weight; there are weight, and of \
                     {SELECTORS} one"
                );
                self.problem(key, what);
                continue;
            };
            if let Err(why) = read {
                let what = format!("{}: {why}", text.shown(name));
                self.problem(key, what);
            }
        }
        match selectors {
            0 => self.problem_at(line, format!("write whose weight it is: one of {SELECTORS}")),
            1 => {}
            _ => {
                let what = format!(
                    "a weight has exactly one of {SELECTORS}; write a section [[shares.weight]] \
                     for each"
                );
                self.problem_at(line, what);
                return None;
            }
        }
        if !is_weighed {
            self.problem_at(line, "write the weight itself, such as weight = 4".into());
        }
        Some(WeightRule { whose: whose?, weight: weight? })
    }
}

/// Whose weight it is; `None` if the name says nothing of that.
fn selector(name: &str, text: &Text<'_>) -> Option<Result<Selector, String>> {
    Some(match name {
        "port" => text.bare(value::port).map(Selector::Port),
        "process" => text.quoted(value::process).map(Selector::Process),
        "unit" => text.quoted(value::unit).map(Selector::Unit),
        "cgroup" => text.quoted(value::cgroup).map(Selector::Cgroup),
        "kind" => text.quoted(value::kind).map(Selector::Kind),
        _ => return None,
    })
}

fn presets<'a>(
    value: &Value<'_>,
    raw: impl Fn(&Value<'_>) -> &'a str,
) -> Result<Vec<&'static Preset>, String> {
    let wrong = || {
        let names: Vec<&str> = preset::ALL.iter().map(|each| each.name).collect();
        format!(
            "write a list of names, such as [\"etcd\", \"voip\"]; there are {}",
            names.join(", ")
        )
    };
    let names = value.get_ref().as_array().ok_or_else(wrong)?;
    let named = |each: &Value<'_>| match each.get_ref().as_str() {
        Some(name) => Preset::named(name)
            .ok_or_else(|| format!("there is no preset {}; {}", raw(each), wrong())),
        None => Err(wrong()),
    };
    names.iter().map(named).collect()
}

fn ports<'a>(
    value: &Value<'_>,
    raw: impl Fn(&Value<'_>) -> &'a str,
) -> Result<BTreeSet<u16>, String> {
    let wrong = || "write a list of ports from 1 to 65535, such as [5000, 5001]".to_owned();
    let ports = value.get_ref().as_array().ok_or_else(wrong)?;
    let port = |each| Text::new(each, raw(each)).bare(value::port).map_err(|_| wrong());
    ports.iter().map(port).collect()
}
