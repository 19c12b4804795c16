//! The settings of an interface: all there is to know of each, in one table.

use serde_json::json;
use weir_bpf::cpulist::CpuList;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Prefer, Share};

use super::layer::{Origin, Row, Sourced};
use super::text::{Put, Text};
use super::value::{self, time_text};
use crate::choice::{self, Attach, Forward, Napi, PolicyArg, PreferArg, choice_text};

/// Of each: its name in the file, its type, and what holds if nobody says anything; how the file has it, and how it is
/// shown; whether it changes while weir runs, and what the absence of a value is called.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $name:ident: $type:ty = $default:expr,
            $form:ident($read:expr), $value:ident => $shown:expr, live: $live:literal $(, unset: $unset:literal)?;
    )*) => {
        /// The names of all of them.
        pub const KEYS: &[&str] = &[$(stringify!($name)),*];

        /// What one place says: the command line, a file, an interface's section of it.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Layer {
            $($(#[$doc])* pub $name: Option<Sourced<$type>>,)*
        }

        impl Layer {
            /// Reads what the file says of a setting; `None` if there is no such setting.
            pub fn read(&mut self, key: &str, text: &Text<'_>, origin: Origin) -> Option<Result<(), String>> {
                Some(match key {
                    $(stringify!($name) => text.$form($read).put(&mut self.$name, origin),)*
                    _ => return None,
                })
            }
        }

        /// What holds on one interface, each setting with its origin.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Effective {
            $($(#[$doc])* pub(super) $name: Sourced<$type>,)*
        }

        impl Effective {
            /// The first of the layers that says something decides.
            pub fn of(layers: &[&Layer]) -> Self {
                Self {
                    $($name: layers
                        .iter()
                        .find_map(|layer| layer.$name.clone())
                        .unwrap_or_else(|| Sourced { value: $default, origin: Origin::Default }),)*
                }
            }

            /// Takes over from `new` what changes while weir runs. The rest stays as the interface was set up.
            pub fn adopt(&mut self, new: &Self) {
                $(if $live {
                    self.$name = new.$name.clone();
                })*
            }

            /// Every setting.
            pub fn rows(&self) -> [Row; KEYS.len()] {
                [$({
                    let Sourced { value: $value, origin } = &self.$name;
                    Row {
                        key: stringify!($name),
                        value: json!($shown),
                        unset: concat!("" $(, $unset)?),
                        origin: *origin,
                        live: $live,
                    }
                }),*]
            }
        }
    };
}

settings! {
    /// What processes get of a CPU that they want, at least.
    user_share: Share = usual().user_share,
        quoted(value::user_share), share => share.to_string(), live: true;
    /// What input's share is for.
    prefer: Prefer = usual().prefer,
        quoted(value::prefer), prefer => choice_text(&PreferArg::from(*prefer)), live: true;
    /// How long input may be kept waiting.
    timeout: Nanos = usual().timeout,
        quoted(value::timeout), time => time_text(*time), live: true;
    /// Over how long shares are averaged.
    period: Nanos = usual().period,
        quoted(value::period), time => time_text(*time), live: true;
    /// Whether heavy sources are shed before light ones.
    selective: bool = false,
        bare(value::boolean), is_on => is_on, live: true;
    /// A fixed weight in place of the governor's.
    nice: Option<Nice> = None,
        bare(|text| value::nice(text).map(|nice| Some(Nice(nice)))), nice => nice.map(|Nice(nice)| nice),
        live: false, unset: "governed";
    /// Where the gate goes.
    attach: Attach = Attach::Auto,
        quoted(choice::choice), place => choice_text(place), live: false;
    /// Who polls NAPI.
    napi: Napi = Napi::Threads,
        quoted(choice::choice), who => choice_text(who), live: false;
    /// Who forwards packets.
    forward: Forward = Forward::Kernel,
        quoted(choice::choice), who => choice_text(who), live: false;
    /// Where NAPI threads may run.
    cpus: Option<CpuList> = None,
        quoted(|text| text.parse().map(Some)), cpus => cpus.as_ref().map(CpuList::to_string),
        live: false, unset: "left alone";
    /// What becomes of what the gate decides.
    policy: PolicyArg = PolicyArg::On,
        quoted(choice::choice), policy => choice_text(policy), live: false;
    /// Whether receive packet steering is switched off.
    rps_off: bool = false,
        bare(value::boolean), is_off => is_off, live: false;
    /// Whether it is protected: in the file, of an interface's section.
    protect: bool = false,
        bare(value::boolean), is_on => is_on, live: false;
}

fn usual() -> weir_policy::Settings {
    weir_policy::Settings::default()
}
