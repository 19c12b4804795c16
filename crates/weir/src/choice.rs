//! Values that the command line and the configuration file share: words of a list, and times.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::ValueEnum;

/// Where the gate goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attach {
    /// At tc; in the stack (generic XDP) where tc refuses; in the driver with `--forward xdp`. `weir status` says why
    Auto,
    /// XDP in the driver: discards cost least. Slows other traffic on veth, virtio_net and vmxnet3
    Native,
    /// XDP in the stack
    Generic,
    /// At tc ingress, where other programs can be too: tcx, or a clsact filter on a kernel without it
    Tc,
    /// A clsact filter
    #[value(hide = true)]
    Clsact,
}

impl Attach {
    /// Whether this is surely not one of XDP's places.
    pub fn is_tc(self) -> bool {
        matches!(self, Self::Tc | Self::Clsact)
    }
}

/// Who polls NAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Napi {
    /// Threads (threaded NAPI), whose priority the governor moves; softirqs where the driver refuses
    Threads,
    /// Softirqs, as without weir: the gate limits them to receiving's share of a CPU that processes want
    Softirq,
    /// Softirqs, with that limit; threads while something is wrong and receiving takes much of a CPU
    Auto,
}

/// Who forwards packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Forward {
    /// The kernel
    Kernel,
    /// The driver, for packets that need only routing; the kernel, for all others
    Xdp,
}

/// One of a list of words.
pub fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(T::to_possible_value);
        let shown = values.filter(|value| !value.is_hide_set());
        let names: Vec<String> = shown.map(|value| format!("\"{}\"", value.get_name())).collect();
        format!("write {}", names.join(" or "))
    })
}

/// As [`choice`] reads it.
pub fn choice_text(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// As humantime has it.
const YEAR: Duration = Duration::from_secs(31_557_600);
const SUCH_AS: &str = "such as 1s or 5min";

/// `0`, or a duration as humantime has it, an hour at most.
pub fn interval(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { time(text, Duration::ZERO..=HOUR, SUCH_AS) }
}

/// A duration as humantime has it, of 1 s to an hour.
pub fn slice(text: &str) -> Result<Duration, String> {
    time(text, SECOND..=HOUR, SUCH_AS)
}

/// A duration as humantime has it, of 1 s to a year.
pub fn to_a_year(text: &str) -> Result<Duration, String> {
    time(text, SECOND..=YEAR, SUCH_AS)
}

/// A duration as humantime has it, of this range; else how to write one.
pub fn time(
    text: &str,
    range: RangeInclusive<Duration>,
    such_as: &str,
) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| range.contains(time));
    let [least, most] = [range.start(), range.end()].map(|it| humantime::format_duration(*it));
    time.ok_or_else(|| format!("write a time from {least} to {most}, {such_as}"))
}
