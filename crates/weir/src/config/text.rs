//! A value as it stands in the file.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::DeValue;

use super::layer::{Origin, Sourced};

/// How much of a wrong value is shown, in characters.
const SHOWN_MAX: usize = 40;

/// As TOML has it.
pub type Value<'a> = Spanned<DeValue<'a>>;

/// A value as it stands in the file.
pub struct Text<'a> {
    value: &'a Value<'a>,
    raw: &'a str,
}

impl<'a> Text<'a> {
    /// A value, and how it is written.
    pub fn new(value: &'a Value<'a>, raw: &'a str) -> Self {
        Self { value, raw }
    }

    /// Reads a string.
    pub fn quoted<T>(&self, read: fn(&str) -> Result<T, String>) -> Result<T, String> {
        match self.value.get_ref().as_str() {
            Some(text) => read(text),
            None => read(self.raw).and(Err("write it in quotes".into())),
        }
    }

    /// Reads what is no string.
    pub fn bare<T>(&self, read: fn(&str) -> Result<T, String>) -> Result<T, String> {
        match self.value.get_ref().as_str() {
            None => read(&self.plain()),
            Some(text) => read(text).and(Err("write it without quotes".into())),
        }
    }

    /// A number without TOML's underscores and prefixes, which the readers do not know.
    fn plain(&self) -> Cow<'_, str> {
        match self.value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(self.raw.into(), |number| number.to_string().into()),
            DeValue::Float(number) => number.as_str().into(),
            _ => self.raw.into(),
        }
    }

    /// What is wrong, cut short.
    pub fn shown(&self, key: &str) -> String {
        if self.value.get_ref().is_table() {
            return format!("{key} is no section");
        }
        let line = self.raw.lines().next().unwrap_or_default();
        let short: String = line.chars().take(SHOWN_MAX).collect();
        let rest = if short.len() < self.raw.len() { "..." } else { "" };
        format!("{key} = {short}{rest}")
    }
}

/// Puts a value where it belongs, with its origin.
pub trait Put<T> {
    /// If it is one.
    fn put<P: From<Sourced<T>>>(self, place: &mut P, origin: Origin) -> Result<(), String>;
}

impl<T> Put<T> for Result<T, String> {
    fn put<P: From<Sourced<T>>>(self, place: &mut P, origin: Origin) -> Result<(), String> {
        *place = Sourced { value: self?, origin }.into();
        Ok(())
    }
}
