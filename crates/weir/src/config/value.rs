//! How each setting is written, and what it may be: the same in a file and on the command line. An error says what may
//! be written.

use std::net::SocketAddr;
use std::time::Duration;

use weir_bpf::verdict::Kind;
use weir_policy::{Bound, Nanos, Settings, Share, Shares};

use crate::choice;
use crate::owners;
use crate::shares::{self, WeightRule};

/// `TASK_COMM_LEN` less its terminating zero.
const COMM_MAX: usize = 15;
/// The kernel's `PATH_MAX`, roughly.
const PATH_MAX: usize = 4096;

/// `50%`. Without the sign it would not be clear whether 1 is a hundredth or the whole.
pub fn user_share(text: &str) -> Result<Share, String> {
    percentage(text, Settings::USER_SHARE_PERCENT_RANGE, 50.0)
}

/// `5%`.
pub fn control(text: &str) -> Result<Share, String> {
    percentage(text, Shares::CONTROL_PERCENT_RANGE, Shares::CONTROL_PERCENT)
}

fn percentage(text: &str, (least, most): (f64, f64), example: f64) -> Result<Share, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| (least..=most).contains(percent));
    percent.and_then(Share::percent).ok_or_else(|| {
        format!(
            "write a percentage from {least}% to {most}%, with the sign, such as \"{example}%\""
        )
    })
}

/// `1ms`.
pub fn timeout(text: &str) -> Result<Nanos, String> {
    time(text, Settings::TIMEOUT_RANGE, Settings::default().timeout)
}

/// `10ms`.
pub fn period(text: &str) -> Result<Nanos, String> {
    time(text, Settings::PERIOD_RANGE, Settings::default().period)
}

fn time(text: &str, (least, most): (Nanos, Nanos), example: Nanos) -> Result<Nanos, String> {
    let such_as = format!("with its unit, such as \"{}\"", time_text(example));
    choice::time(text, least.into()..=most.into(), &such_as).map(Nanos::from)
}

/// As [`timeout`] and [`period`] read it.
pub fn time_text(time: Nanos) -> String {
    humantime::format_duration(Duration::from(time)).to_string()
}

/// `127.0.0.1:9463`.
pub fn metrics(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    address.ok_or_else(|| {
        "write an address of loopback with a port, such as \"127.0.0.1:9463\"; for another host, put a proxy with \
         access control before it"
            .into()
    })
}

/// `true` or `false`.
pub fn boolean(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "write true or false".into())
}

/// A nice value.
pub fn nice(text: &str) -> Result<i32, String> {
    let nice = text.parse().ok().filter(|nice| (-20..=19).contains(nice));
    nice.ok_or_else(|| "write a whole number from -20 (heaviest) to 19 (lightest)".into())
}

/// A weight beside that of a receiver of nice 0.
pub fn weight(text: &str) -> Result<f64, String> {
    let (least, most) = WeightRule::RANGE;
    let weight = text.parse().ok().filter(|weight| (least..=most).contains(weight));
    weight
        .ok_or_else(|| format!("write a number from {least} to {most}; 1 is a receiver of nice 0"))
}

/// `53`.
pub fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| "write a port's number from 1 to 65535".into())
}

/// A process's name, as the kernel has it.
pub fn process(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > COMM_MAX {
        return Err(format!(
            "write a process's name as /proc/PID/comm has it, of at most {COMM_MAX} bytes, such as \
             \"named\""
        ));
    }
    Ok(text.into())
}

/// `named.service`.
pub fn unit(text: &str) -> Result<String, String> {
    let ok = owners::is_unit(text) && !text.contains('/');
    ok.then(|| text.into()).ok_or_else(|| {
        "write a systemd unit with its suffix, such as \"named.service\" or \"user.slice\"".into()
    })
}

/// `/user.slice`.
pub fn cgroup(text: &str) -> Result<String, String> {
    let parts = text.strip_prefix('/').map(|rest| rest.split('/').collect::<Vec<_>>());
    let ok = parts.is_some_and(|parts| {
        parts == [""] || !parts.iter().any(|part| matches!(*part, "" | "." | ".."))
    });
    (ok && text.len() <= PATH_MAX).then(|| text.into()).ok_or_else(|| {
        "write a control group's path as /proc/PID/cgroup has it, such as \"/user.slice\"".into()
    })
}

/// `icmp`.
pub fn kind(text: &str) -> Result<Kind, String> {
    let kinds = || Kind::ALL.into_iter().filter(|kind| shares::usual(*kind).0 != Bound::Unknown);
    kinds().find(|kind| kind.name() == text).ok_or_else(|| {
        let names: Vec<&str> = kinds().map(Kind::name).collect();
        format!("write a kind of channel: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use weir_policy::Prefer;

    use super::*;
    use crate::choice::{Attach, choice, choice_text};

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
                why, "write a time from 100us to 100ms, with its unit, such as \"500us\"",
                "{text}"
            );
        }
        assert_eq!(period("1s"), Ok(Nanos::from_millis(1000)));
        assert!(period("999us").unwrap_err().contains("from 1ms to 1s"));
    }

    #[test]
    fn what_is_written_is_read() {
        for prefer in [Prefer::Separation, Prefer::Throughput] {
            assert_eq!(choice(&choice_text(&prefer)), Ok(prefer));
        }
        let settings = Settings::default();
        assert_eq!(timeout(&time_text(settings.timeout)), Ok(settings.timeout));
        assert_eq!(period(&time_text(settings.period)), Ok(settings.period));
        assert_eq!(user_share(&settings.user_share.to_string()), Ok(settings.user_share));
        assert_eq!((nice("-20"), nice("19")), (Ok(-20), Ok(19)));
    }

    #[test]
    fn what_shares_are_for_is_read() {
        assert_eq!(
            (control("5%").ok(), control("50%").ok()),
            (Share::percent(5.0), Share::percent(50.0))
        );
        assert!(
            control("51%").unwrap_err().contains("from 1% to 50%, with the sign, such as \"5%\"")
        );
        for (text, number) in [("4", 4.0), ("0.001", 0.001), ("1000", 1000.0), ("1e-2", 0.01)] {
            assert_eq!(weight(text), Ok(number), "{text}");
        }
        for text in ["0", "0.0009", "1001", "-1", "nan", "inf", "", "x"] {
            assert!(weight(text).unwrap_err().contains("from 0.001 to 1000"), "{text}");
        }
        assert_eq!((port("1"), port("65535")), (Ok(1), Ok(65535)));
        for text in ["0", "65536", "-1", "5.0", ""] {
            assert!(port(text).unwrap_err().contains("from 1 to 65535"), "{text}");
        }
        assert!(process("named").is_ok() && process("fifteen-letters").is_ok());
        assert!(process("").is_err() && process("sixteen-letters-").is_err());
        for text in ["named.service", "user.slice", "session-3.scope", "getty@tty1.service"] {
            assert!(unit(text).is_ok(), "{text}");
        }
        for text in ["named", "", ".service", "/system.slice/named.service", "a.timer"] {
            assert!(unit(text).unwrap_err().contains("with its suffix"), "{text}");
        }
        for text in ["/", "/user.slice", "/system.slice/named.service"] {
            assert!(cgroup(text).is_ok(), "{text}");
        }
        for text in ["", "user.slice", "/a/", "//", "/a//b", "/../b", "/a/./b"] {
            assert!(cgroup(text).unwrap_err().contains("such as \"/user.slice\""), "{text}");
        }
        assert_eq!((kind("icmp"), kind("tcp-request")), (Ok(Kind::Icmp), Ok(Kind::TcpRequest)));
        for text in ["other", "tap", "ICMP", ""] {
            assert!(
                kind(text).unwrap_err().starts_with("write a kind of channel: udp, "),
                "{text}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_there_is() {
        assert_eq!(choice::<Prefer>("both"), Err("write \"separation\" or \"throughput\"".into()));
        let places = choice::<Attach>("tcx").unwrap_err();
        assert_eq!(places, "write \"auto\" or \"native\" or \"generic\" or \"tc\"");
        for text in ["20", "-21", "1.5", "", "x"] {
            assert!(nice(text).unwrap_err().contains("from -20"), "{text}");
        }
        assert_eq!((boolean("true"), boolean("false")), (Ok(true), Ok(false)));
        assert_eq!(boolean("on"), Err("write true or false".into()));
    }
}
