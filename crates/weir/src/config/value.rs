//! How each setting is written, and what it may be: the same in a file and on the command line.

use std::time::Duration;

use clap::ValueEnum;
use weir_policy::{Nanos, Prefer, Settings, Share};

use crate::cli::{Attach, Napi};
use crate::cpulist::CpuList;

/// `50%`. Without the sign it would not be clear whether 1 is a hundredth or the whole.
///
/// # Errors
/// Says what may be written.
pub fn user_share(text: &str) -> Result<Share, String> {
    let (least, most) = Settings::USER_SHARE_PERCENT_RANGE;
    let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| (least..=most).contains(percent));
    percent.and_then(Share::percent).ok_or_else(|| {
        format!("write a percentage from {least}% to {most}%, with the sign, such as \"50%\"")
    })
}

/// `1ms`.
///
/// # Errors
/// Says what may be written.
pub fn timeout(text: &str) -> Result<Nanos, String> {
    time(text, Settings::TIMEOUT_RANGE, Settings::default().timeout)
}

/// `10ms`.
///
/// # Errors
/// Says what may be written.
pub fn period(text: &str) -> Result<Nanos, String> {
    time(text, Settings::PERIOD_RANGE, Settings::default().period)
}

fn time(text: &str, (least, most): (Nanos, Nanos), example: Nanos) -> Result<Nanos, String> {
    let time = humantime::parse_duration(text).ok().map(Nanos::from);
    time.filter(|time| (least..=most).contains(time)).ok_or_else(|| {
        format!(
            "write a time from {} to {}, with its unit, such as \"{}\"",
            time_text(least),
            time_text(most),
            time_text(example)
        )
    })
}

/// As [`timeout`] and [`period`] read it.
pub fn time_text(time: Nanos) -> String {
    humantime::format_duration(Duration::from(time)).to_string()
}

/// `true` or `false`.
///
/// # Errors
/// Says what may be written.
pub fn selective(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "write true or false".into())
}

/// A nice value.
///
/// # Errors
/// Says what may be written.
pub fn nice(text: &str) -> Result<i32, String> {
    let nice = text.parse().ok().filter(|nice| (-20..=19).contains(nice));
    nice.ok_or_else(|| "write a whole number from -20 (heaviest) to 19 (lightest)".into())
}

/// `0-3,8`.
///
/// # Errors
/// Says what may be written.
pub fn cpus(text: &str) -> Result<CpuList, String> {
    text.parse()
}

/// `separation` or `throughput`.
///
/// # Errors
/// Says what may be written.
pub fn prefer(text: &str) -> Result<Prefer, String> {
    choice::<PreferArg>(text).map(Prefer::from)
}

/// `auto`, `native`, ...
///
/// # Errors
/// Says what may be written.
pub fn attach(text: &str) -> Result<Attach, String> {
    choice(text)
}

/// `threads` or `softirq`.
///
/// # Errors
/// Says what may be written.
pub fn napi(text: &str) -> Result<Napi, String> {
    choice(text)
}

fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(T::to_possible_value);
        let shown = values.filter(|value| !value.is_hide_set());
        let names: Vec<String> = shown.map(|value| format!("\"{}\"", value.get_name())).collect();
        format!("write {}", names.join(" or "))
    })
}

/// As [`prefer`] and [`attach`] read it.
pub fn choice_text(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}

/// [`Prefer`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreferArg {
    /// Tell packets apart: one channel's flood costs the others nothing, as far as the share reaches
    Separation,
    /// Deliver as many packets as can be, whoever's they are
    Throughput,
}

impl From<PreferArg> for Prefer {
    fn from(prefer: PreferArg) -> Self {
        match prefer {
            PreferArg::Separation => Self::Separation,
            PreferArg::Throughput => Self::Throughput,
        }
    }
}

impl From<Prefer> for PreferArg {
    fn from(prefer: Prefer) -> Self {
        match prefer {
            Prefer::Separation => Self::Separation,
            Prefer::Throughput => Self::Throughput,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_their_sign_and_range() {
        for (text, percent) in [("50%", 50.0), ("1%", 1.0), ("99%", 99.0), ("12.5%", 12.5)] {
            assert_eq!(user_share(text).ok(), Share::percent(percent), "{text}");
        }
        for text in ["50", "0.5", "", "%", "0.9%", "99.1%", "-1%", "nan%", "50 %", " 50%", "50%%"] {
            let why = user_share(text).unwrap_err();
            assert!(why.contains("from 1% to 99%") && why.contains("\"50%\""), "{text}: {why}");
        }
    }

    #[test]
    fn times_have_their_unit_and_range() {
        for (text, time) in [("1ms", 1_000), ("100us", 100), ("100ms", 100_000), ("1ms 5us", 1_005)]
        {
            assert_eq!(timeout(text), Ok(Nanos::from_micros(time)), "{text}");
        }
        for text in ["1", "", "99us", "101ms", "1 parsec", "-1ms", "99999999999999999999s", "1h"] {
            let why = timeout(text).unwrap_err();
            assert_eq!(
                why, "write a time from 100us to 100ms, with its unit, such as \"1ms\"",
                "{text}"
            );
        }
        assert_eq!(period("1s"), Ok(Nanos::from_millis(1000)));
        assert!(period("999us").unwrap_err().contains("from 1ms to 1s"));
    }

    #[test]
    fn what_is_written_is_read() {
        for prefer_was in [Prefer::Separation, Prefer::Throughput] {
            assert_eq!(prefer(&choice_text(&PreferArg::from(prefer_was))), Ok(prefer_was));
        }
        let settings = Settings::default();
        assert_eq!(timeout(&time_text(settings.timeout)), Ok(settings.timeout));
        assert_eq!(period(&time_text(settings.period)), Ok(settings.period));
        assert_eq!(user_share(&settings.user_share.to_string()), Ok(settings.user_share));
        assert_eq!((nice("-20"), nice("19")), (Ok(-20), Ok(19)));
    }

    #[test]
    fn nonsense_is_refused_with_what_there_is() {
        assert_eq!(prefer("both"), Err("write \"separation\" or \"throughput\"".into()));
        let places = attach("tcx").unwrap_err();
        assert_eq!(places, "write \"auto\" or \"native\" or \"generic\" or \"tc\"");
        for text in ["20", "-21", "1.5", "", "x"] {
            assert!(nice(text).unwrap_err().contains("from -20"), "{text}");
        }
        assert_eq!((selective("true"), selective("false")), (Ok(true), Ok(false)));
        assert_eq!(selective("on"), Err("write true or false".into()));
    }
}
