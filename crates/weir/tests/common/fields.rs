//! The fields of what is printed as JSON, and the pages that describe them.

use std::collections::BTreeSet;

use serde_json::Value;

/// Also says what holds for the JSON of every command.
const JSON: &str = include_str!("../../../../docs/json.md");
const CHANNELS_PAGE: &str = include_str!("../../../../docs/channels.md");
const CONFIG_PAGE: &str = include_str!("../../../../docs/config.md");
const DOCTOR_PAGE: &str = include_str!("../../../../docs/doctor.md");
const EXPLAIN_PAGE: &str = include_str!("../../../../docs/explain.md");
const SHADOW_PAGE: &str = include_str!("../../../../docs/shadow.md");
const SOURCES_PAGE: &str = include_str!("../../../../docs/sources.md");

pub const RUN: Described = Described(&[(JSON, "## `weir run`")]);
/// Its rates have the names of those of `weir run`.
pub const STATUS: Described = Described(&[(JSON, "## `weir status`"), (JSON, "## `weir run`")]);
pub const SCREEN: Described = Described(&[(JSON, "## `weir screen`")]);
pub const CAPTURE: Described = Described(&[(JSON, "## `weir capture`")]);
pub const TRACE: Described = Described(&[(JSON, "## `weir trace`")]);
pub const CHANNELS: Described = Described(&[(CHANNELS_PAGE, "## JSON"), (SOURCES_PAGE, "## JSON")]);
/// Settings go by their names, which tables have.
pub const CONFIG: Described = Described(&[(CONFIG_PAGE, "# Configuration")]);
pub const DOCTOR: Described = Described(&[(DOCTOR_PAGE, "# weir doctor")]);
pub const EXPLAIN: Described = Described(&[(EXPLAIN_PAGE, "## JSON")]);
pub const AB: Described = Described(&[(SHADOW_PAGE, "## `--ab`")]);

/// Pages, and the headings of those of their sections that describe a command's fields; the first one all of its own.
#[derive(Clone, Copy)]
pub struct Described(&'static [(&'static str, &'static str)]);

impl Described {
    /// Every field of these is described; among them are `some`, so that it is known that there was much to see.
    pub fn has_all_of(self, values: &[Value], some: &[&str]) {
        let mut there = BTreeSet::new();
        values.iter().for_each(|value| fields(value, &mut there));
        let missing = some.iter().filter(|field| !there.contains(**field));
        assert_eq!(missing.collect::<Vec<_>>(), [] as [&&str; 0], "none in {values:?}");
        let sections = self.0.iter().map(|(page, heading)| section(page, heading));
        let described: String = sections.chain([section(JSON, "## What holds for all")]).collect();
        let is_described = |field: &&&str| described.contains(&format!("`{field}`"));
        let unknown: Vec<_> = there.iter().filter(|field| !is_described(field)).collect();
        assert!(unknown.is_empty(), "not described below {:?}: {unknown:?}", self.0[0].1);
    }

    /// What a table of its section says that there is, is there.
    pub fn has_only(self, values: &[Value]) {
        let mut there = BTreeSet::new();
        values.iter().for_each(|value| fields(value, &mut there));
        let (page, heading) = self.0[0];
        let rows = section(page, heading).lines().filter_map(|line| line.strip_prefix("| "));
        let first = rows.filter_map(|row| row.split(" | ").next());
        let quoted = first.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let is_gone = |field: &&str| !field.contains('"') && !there.contains(field);
        let gone: Vec<_> = quoted.filter(is_gone).collect();
        assert!(gone.is_empty(), "described below {heading:?}, and not there: {gone:?}");
    }
}

/// The names of all fields, also within others.
fn fields<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.keys().map(String::as_str));
            object.values().for_each(|each| fields(each, found));
        }
        Value::Array(array) => array.iter().for_each(|each| fields(each, found)),
        _ => {}
    }
}

/// What stands below a heading, with what is below lower ones.
fn section(page: &'static str, heading: &str) -> &'static str {
    let begin = page.find(&format!("{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    let below = &page[begin + heading.len()..];
    let level = heading.split(' ').next().unwrap();
    let end = below.find(&format!("\n{level} ")).unwrap_or(below.len());
    &below[..end]
}
