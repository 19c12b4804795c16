//! The settings of an interface: all there is to know of each, in one table.

use clap::Args;
use clap::builder::{EnumValueParser, TypedValueParser};
use serde_json::json;
use weir_bpf::cpulist::CpuList;
use weir_bpf::gate::Policy;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Prefer, Share};

use super::layer::{Origin, Row, Sourced};
use super::text::{Put, Text};
use super::value::{self, time_text};
use crate::choice::{Attach, Forward, Napi, choice, choice_text};

/// What `--help` calls them.
pub(super) const HEADING: &str = "Settings, also in the configuration file";

/// Reads a setting in the file: a word of a list, what stands in quotes, or what does not.
macro_rules! from_file {
    ($text:ident, word($word:ty)) => {
        $text.quoted(choice::<$word>).map(Into::into)
    };
    ($text:ident, $form:ident($read:expr)) => {
        $text.$form($read)
    };
}

/// Reads it on the command line.
macro_rules! from_flag {
    ($type:ty, word($word:ty)) => {
        EnumValueParser::<$word>::new().map(|word| said::<$type>(word.into()))
    };
    ($type:ty, $form:ident($read:expr)) => {
        |text: &str| ($read)(text).map(said::<$type>)
    };
}

/// A value that the command line has.
pub(super) fn said<T>(value: T) -> Sourced<T> {
    Sourced { value, origin: Origin::Flag }
}

/// Of each: its help, its name, its type, and what holds if nobody says anything; how the file and the command line
/// have it; the option's arguments, if it has one; how it is shown; whether it changes while weir runs, and what the
/// absence of a value is called.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $name:ident: $type:ty = $default:expr,
            $form:ident $how:tt, $(option($($arg:tt)*))? $(no_option($skip:ident))?,
            $value:ident => $shown:expr, live: $live:literal $(, unset: $unset:literal)?;
    )*) => {
        /// The names of all of them.
        pub const KEYS: &[&str] = &[$(stringify!($name)),*];

        /// What one place says: the command line, a file, an interface's section of it.
        #[derive(Args, Clone, Debug, Default, PartialEq)]
        pub struct Layer {
            $(
                $(#[$doc])*
                #[arg(
                    $(long, value_parser = from_flag!($type, $form $how), help_heading = HEADING, $($arg)*)?
                    $($skip)?
                )]
                pub $name: Option<Sourced<$type>>,
            )*
        }

        impl Layer {
            /// Reads what the file says of a setting; `None` if there is no such setting.
            pub fn read(&mut self, key: &str, text: &Text<'_>, origin: Origin) -> Option<Result<(), String>> {
                Some(match key {
                    $(stringify!($name) => from_file!(text, $form $how).put(&mut self.$name, origin),)*
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
    /// The least that processes get of a CPU that they want; receiving gets at most the rest; 1% to 99%
    /// [default: 50%]
    user_share: Share = usual().user_share,
        quoted(value::user_share), option(value_name = "PERCENT"), share => share.to_string(), live: true;
    /// What receiving's share of the CPU is spent on when more packets come in than can be used
    /// [default: separation]
    prefer: Prefer = usual().prefer,
        word(Prefer), option(value_name = "WHAT"), prefer => choice_text(prefer), live: true;
    /// How long other processes may keep a receiving thread waiting each time, on average, before it may interrupt
    /// them; 100us to 100ms [default: 500us]
    timeout: Nanos = usual().timeout,
        quoted(value::timeout), option(value_name = "TIME"), time => time_text(*time), live: true;
    /// The time over which shares of a CPU are averaged; 1ms to 1s [default: 10ms]
    period: Nanos = usual().period,
        quoted(value::period), option(value_name = "TIME"), time => time_text(*time), live: true;
    /// Whether packets of heavy senders are discarded before those of light ones, at a UDP socket whose queue is
    /// full; true or false [default: false]
    selective: bool = false,
        bare(value::boolean), option(value_name = "BOOL"), is_on => is_on, live: true;
    /// Whether connection requests past a listener's queue are answered by SYN cookie before they cost more, while a
    /// CPU is short; true or false [default: true]
    syn_cookies: bool = true,
        bare(value::boolean), option(value_name = "BOOL"), is_on => is_on, live: true;
    /// Give the threads that receive this fixed nice value, from -20 (first) to 19 (last), and leave the governor and
    /// its shares off; no effect where softirqs poll [default: the governor moves it]
    nice: Option<Nice> = None,
        bare(|text: &str| value::nice(text).map(|nice| Some(Nice(nice)))),
        option(value_name = "N", overrides_with = "nice"),
        nice => nice.map(|Nice(nice)| nice), live: false, unset: "governed";
    /// Where the gate is attached [default: auto]
    attach: Attach = Attach::Auto,
        word(Attach), option(value_name = "WHERE"), place => choice_text(place), live: false;
    /// Who polls the interface [default: auto; threads with `cpus` or `nice`]
    napi: Option<Napi> = None,
        word(Napi), option(value_name = "WHO"), who => who.as_ref().map(choice_text), live: false,
        unset: "as needed";
    /// Who forwards a router's packets between the protected interfaces with this setting [default: kernel]
    forward: Forward = Forward::Kernel,
        word(Forward), option(value_name = "WHO"), who => choice_text(who), live: false;
    /// Keep the threads that receive on these CPUs, such as 0-3,8; no effect where softirqs poll [default: leave them
    /// where they are]
    cpus: Option<CpuList> = None,
        quoted(|text: &str| text.parse().map(Some)), option(value_name = "LIST"),
        cpus => cpus.as_ref().map(CpuList::to_string), live: false, unset: "left alone";
    /// Whether packets are discarded [default: on]
    policy: Policy = Policy::On,
        word(Policy), option(value_name = "WHAT"), policy => choice_text(policy), live: false;
    /// Switch receive packet steering (RPS) off while weir runs: it moves packets to softirqs, which the governor does
    /// not control; --rps-off=false where the file says true
    rps_off: bool = false,
        bare(value::boolean),
        option(value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true"),
        is_off => is_off, live: false;
    /// Whether it is protected: in the file, of an interface's section
    protect: bool = false,
        bare(value::boolean), no_option(skip), is_on => is_on, live: false;
}

fn usual() -> weir_policy::Settings {
    weir_policy::Settings::default()
}
