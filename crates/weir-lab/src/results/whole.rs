//! What every experiment's result has, whatever its figures are.

use super::{Goal, Machine};

/// Borrowed of a result.
pub struct Head<'a> {
    /// Its id, such as `udp-overload`.
    pub experiment: &'a str,
    /// weir's version.
    pub weir_version: &'a str,
    /// When it began, UTC, RFC 3339.
    pub started_at: &'a str,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Whether `--quick` was given.
    pub quick: bool,
    /// What it ran on.
    pub machine: &'a Machine,
    /// Its goals.
    pub goals: &'a [Goal],
    /// What to know before trusting a figure.
    pub warnings: &'a [String],
}

/// A result, whichever experiment's.
pub trait Whole {
    /// What every result has.
    fn head(&self) -> Head<'_>;
}

/// Declares a result: the fields that every one has, around those of this one, and at last its trials.
///
/// A macro, as serde cannot refuse unknown fields of a struct that another one is flattened into.
macro_rules! whole_result {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident $(<$($parameter:ident),+>)? {
            $($(#[$doc:meta])* pub $field:ident: $type:ty,)*
        }
        trials: $trial:ty
    ) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$attribute])*
        pub struct $name $(<$($parameter),+>)? {
            /// [`SCHEMA`](crate::results::SCHEMA).
            pub schema: u32,
            /// Its id, such as `udp-overload`.
            pub experiment: String,
            /// weir's version.
            pub weir_version: String,
            /// When it began, UTC, RFC 3339.
            pub started_at: String,
            /// How long it took, seconds.
            pub duration_s: f64,
            /// Whether `--quick` was given.
            pub quick: bool,
            /// What it ran on.
            pub machine: $crate::results::Machine,
            $($(#[$doc])* pub $field: $type,)*
            /// The experiment's goals and whether they were met.
            pub goals: Vec<$crate::results::Goal>,
            /// One plain sentence that says what was seen.
            pub sentence: String,
            /// What a reader should know before trusting a figure.
            pub warnings: Vec<String>,
            /// Every trial: the raw data.
            pub trials: Vec<$trial>,
        }

        impl $(<$($parameter),+>)? $crate::results::Whole for $name $(<$($parameter),+>)? {
            fn head(&self) -> $crate::results::Head<'_> {
                $crate::results::Head {
                    experiment: &self.experiment,
                    weir_version: &self.weir_version,
                    started_at: &self.started_at,
                    duration_s: self.duration_s,
                    quick: self.quick,
                    machine: &self.machine,
                    goals: &self.goals,
                    warnings: &self.warnings,
                }
            }
        }
    };
}
pub(crate) use whole_result;
