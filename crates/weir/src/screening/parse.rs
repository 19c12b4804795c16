//! The rules file: one rule a line.
//!
//! `ACTION [PROTOCOL] [from NETWORKS [port PORTS]] [to NETWORKS [port PORTS]] [flags SET[/OF]] [type TYPES] [log]`

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::rules::{Action, Flags, Network, Rule, Rules, Side, bits};
use crate::packet::{ICMP, ICMPV6, TCP, UDP};

/// Where a file is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct Mistake {
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

const FLAGS: [(&str, u8); 6] =
    [("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32)];
/// What `flags syn` is of: what tells a connection's first segment from others.
const HANDSHAKE: u8 = 1 | 2 | 4 | 16;

/// Reads a file.
///
/// # Errors
/// The mistakes, one a line at most.
pub fn parse(text: &str) -> Result<Rules, Vec<Mistake>> {
    let mut rules = Vec::new();
    let mut mistakes = Vec::new();
    // Of an editor's: it says that the text is UTF-8.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        match Words::of(code).rule(number + 1, code.trim()) {
            Ok(rule) => rules.extend(rule),
            Err((column, problem)) => mistakes.push(Mistake { line: number + 1, column, problem }),
        }
    }
    if mistakes.is_empty() { Ok(Rules(rules)) } else { Err(mistakes) }
}

/// A column, and what is wrong there.
type Wrong = (usize, String);

/// The words of a line, each with its column.
struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    next: usize,
    /// Where the line ends.
    end: usize,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let start = |word: &str| word.as_ptr() as usize - line.as_ptr() as usize;
        let column = |at: usize| line[..at].chars().count() + 1;
        let words: Vec<_> =
            line.split_whitespace().map(|word| (column(start(word)), word)).collect();
        Self { words, next: 0, end: column(line.trim_end().len()) }
    }

    fn peek(&self) -> Option<(usize, &'a str)> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self, what: &str) -> Result<(usize, &'a str), Wrong> {
        let word = self.peek().ok_or_else(|| (self.end, format!("{what} is missing")))?;
        self.next += 1;
        Ok(word)
    }

    /// Takes a word if it comes next; its column.
    fn keyword(&mut self, keyword: &str) -> Option<usize> {
        let (column, _) = self.peek().filter(|(_, word)| *word == keyword)?;
        self.next += 1;
        Some(column)
    }

    fn rule(&mut self, line: usize, text: &str) -> Result<Option<Rule>, Wrong> {
        if self.words.is_empty() {
            return Ok(None);
        }
        let action = match self.take("an action")? {
            (_, "accept") => Action::Accept,
            (_, "reject") => Action::Reject,
            (_, "drop") => Action::Drop,
            (column, other) => {
                return Err((column, format!("{other:?} is none of accept, reject and drop")));
            }
        };
        let mut rule = Rule {
            action,
            protocol: self.protocol()?,
            from: Side::default(),
            to: Side::default(),
            flags: None,
            types: vec![],
            log: false,
            line,
            text: text.to_owned(),
        };
        if self.keyword("from").is_some() {
            rule.from = self.side(rule.protocol)?;
        }
        if self.keyword("to").is_some() {
            let column = self.peek().map_or(self.end, |(column, _)| column);
            rule.to = self.side(rule.protocol)?;
            if !may_meet(&rule.from.networks, &rule.to.networks) {
                let problem = "no packet goes from IPv4 to IPv6, or the other way round";
                return Err((column, problem.into()));
            }
        }
        if let Some(column) = self.keyword("flags") {
            needs(column, rule.protocol, &[TCP], "flags", "tcp")?;
            let (column, word) = self.take("the flags, such as syn or syn/syn,ack,")?;
            rule.flags = Some(flags(word).map_err(|problem| (column, problem))?);
        }
        if let Some(column) = self.keyword("type") {
            needs(column, rule.protocol, &[ICMP, ICMPV6], "a type", "icmp or icmp6")?;
            let number = |text: &str| {
                text.parse().map_err(|_| format!("{text:?} is no type, which is a number to 255"))
            };
            rule.types = self.list("a type", number)?;
        }
        rule.log = self.keyword("log").is_some();
        match self.peek() {
            None => Ok(Some(rule)),
            Some((column, word)) => Err((
                column,
                format!(
                    "{word:?} has no place here; a rule is ACTION [PROTOCOL] [from NETWORKS [port \
                     PORTS]] [to NETWORKS [port PORTS]] [flags SET[/OF]] [type TYPES] [log]"
                ),
            )),
        }
    }

    fn protocol(&mut self) -> Result<Option<u8>, Wrong> {
        let names = [("icmp", ICMP), ("tcp", TCP), ("udp", UDP), ("icmp6", ICMPV6)];
        if self.keyword("proto").is_some() {
            let (column, word) = self.take("the protocol's number")?;
            let wrong = |_| (column, format!("{word:?} is no protocol, which is a number to 255"));
            return word.parse().map(Some).map_err(wrong);
        }
        Ok(names.into_iter().find(|(name, _)| self.keyword(name).is_some()).map(|(_, it)| it))
    }

    fn side(&mut self, protocol: Option<u8>) -> Result<Side, Wrong> {
        let column = self.peek().map_or(self.end, |(column, _)| column);
        let networks = match self.keyword("any") {
            Some(_) => vec![],
            None => self.list("a network, or `any`,", network)?,
        };
        let one_is = |family: fn(&IpAddr) -> bool| networks.iter().any(|it| family(&it.address));
        match protocol {
            Some(ICMP) if one_is(IpAddr::is_ipv6) && !one_is(IpAddr::is_ipv4) => {
                return Err((column, "icmp is IPv4's; for IPv6, write icmp6".into()));
            }
            Some(ICMPV6) if one_is(IpAddr::is_ipv4) && !one_is(IpAddr::is_ipv6) => {
                return Err((column, "icmp6 is IPv6's; for IPv4, write icmp".into()));
            }
            _ => {}
        }
        let ports = match self.keyword("port") {
            Some(column) => {
                needs(column, protocol, &[TCP, UDP], "a port", "tcp or udp")?;
                self.list("a port", ports)?
            }
            None => vec![],
        };
        Ok(Side { networks, ports })
    }

    /// A word of values between commas.
    fn list<T>(
        &mut self,
        what: &str,
        value: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Wrong> {
        let (mut column, word) = self.take(what)?;
        let mut values = Vec::new();
        for part in word.split(',') {
            if part.is_empty() {
                return Err((column, "a value is missing; a list has no spaces: 80,443".into()));
            }
            values.push(value(part).map_err(|problem| (column, problem))?);
            column += part.chars().count() + 1;
        }
        Ok(values)
    }
}

fn needs(
    column: usize,
    protocol: Option<u8>,
    one_of: &[u8],
    what: &str,
    names: &str,
) -> Result<(), Wrong> {
    match protocol {
        Some(protocol) if one_of.contains(&protocol) => Ok(()),
        _ => Err((column, format!("{what} needs {names} after the action"))),
    }
}

/// Whether a packet may go from one of these to one of those. An empty list is all of them.
fn may_meet(from: &[Network], to: &[Network]) -> bool {
    let is_met = |one: &Network| to.iter().any(|it| it.address.is_ipv4() == one.address.is_ipv4());
    from.is_empty() || to.is_empty() || from.iter().any(is_met)
}

fn network(text: &str) -> Result<Network, String> {
    let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("{text:?} is no network, such as 192.0.2.0/24 or 2001:db8::/32"))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len: u8 = len.map_or(Ok(most), str::parse).unwrap_or(u8::MAX);
    if len > most {
        return Err(format!("the prefix length of {text:?} must be 0 to {most}"));
    }
    let first = bits(address) & !u128::MAX.checked_shr(len.into()).unwrap_or(0);
    let first = match address {
        IpAddr::V4(_) => IpAddr::V4(((first >> 96) as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(first.into()),
    };
    if first != address {
        return Err(format!("{text:?} has bits behind its prefix; write {first}/{len}"));
    }
    Ok(Network { address, len })
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("{text:?} is no port, such as 53 or 8000-8080")),
    }
}

fn flags(text: &str) -> Result<Flags, String> {
    let read = |names: &str| {
        names.split(',').try_fold(0, |all, name| {
            let found = FLAGS.iter().find(|(known, _)| *known == name);
            found
                .map(|(_, bit)| all | bit)
                .ok_or_else(|| format!("{name:?} is none of fin, syn, rst, psh, ack and urg"))
        })
    };
    let (set, of) = match text.split_once('/') {
        Some((set, of)) => (read(set)?, read(of)?),
        None => read(text).map(|set| (set, set | HANDSHAKE))?,
    };
    if set & !of != 0 {
        return Err(format!("in {text:?}, flags before the / must be after it too"));
    }
    Ok(Flags { set, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(line: &str) -> String {
        parse(line).unwrap_err()[0].to_string()
    }

    #[test]
    fn a_rule_says_what_it_says() {
        let text = "# all\n\naccept tcp from 198.18.0.0/15,2001:2::/48 to any port 22,8000-8080 \
                    flags syn log # there\n";
        let rules = parse(text).unwrap();
        let [rule] = &rules.0[..] else { panic!("{rules:?}") };
        assert_eq!((rule.action, rule.protocol, rule.line), (Action::Accept, Some(TCP), 3));
        assert_eq!(rule.from.networks.len(), 2);
        assert_eq!(rule.to, Side { networks: vec![], ports: vec![22..=22, 8000..=8080] });
        assert_eq!(rule.flags, Some(Flags { set: 2, of: 23 }));
        assert!(rule.log && rule.types.is_empty());
        assert!(rule.text.ends_with("flags syn log"));
        assert_eq!(parse("\u{feff}drop").unwrap(), parse("drop").unwrap());
        let rules = parse("drop\nreject proto 47\naccept icmp6 type 128,129").unwrap();
        assert_eq!(rules.0[2].types, [128, 129]);
    }

    #[test]
    fn mistakes_have_a_line_and_a_column() {
        for (line, said) in [
            ("allow tcp", "line 1, column 1: \"allow\" is none of accept, reject and drop"),
            ("accept tcp from", "line 1, column 16: a network, or `any`, is missing"),
            ("accept from 10.0.0.0/8,x", "line 1, column 24: \"x\" is no network"),
            ("accept from 10.0.0.1/8", "write 10.0.0.0/8"),
            ("accept from ::/129", "column 13: the prefix"),
            ("accept to any port 53", "column 15: a port needs tcp or udp"),
            ("drop  tcp to any port 1,99999", "column 25: \"99999\" is no port"),
            ("drop tcp to any port 9-1", "column 22"),
            ("drop tcp to any port 80, 443", "column 25: a value is missing; a list has no spaces"),
            ("drop tcp from ,::1", "column 15: a value is missing"),
            ("drop udp flags syn", "column 10: flags needs tcp"),
            ("drop tcp flags syn/ack", "column 16"),
            ("drop tcp flags sin", "column 16: \"sin\" is none of"),
            ("drop tcp type 8", "column 10: a type needs icmp"),
            ("drop icmp type 256", "column 16"),
            ("drop proto tcp", "column 12"),
            ("drop tcp to any from any", "column 17: \"from\" has no place here"),
            ("drop from ::1 to 10.0.0.1,10.0.0.2", "column 18: no packet goes from IPv4 to IPv6"),
            ("drop icmp from ::1", "column 16: icmp is IPv4's; for IPv6, write icmp6"),
            ("drop icmp6 to 10.0.0.1", "column 15: icmp6 is IPv6's; for IPv4, write icmp"),
            ("drop é nonsense", "column 6: \"é\" has no place"),
        ] {
            assert!(mistake(line).contains(said), "{line}: {}", mistake(line));
        }
        assert_eq!(parse("accept\nx\n\ny").unwrap_err().len(), 2);
        parse("drop from 10.0.0.1,::1 to ::/0\ndrop from any to ::1\ndrop from ::1").unwrap();
        parse("drop icmp from 10.0.0.1,::1\ndrop icmp to any\ndrop icmp6 from ::1").unwrap();
    }

    #[test]
    fn no_text_breaks_the_parser() {
        let words =
            ["accept", "tcp", "from", "any", "port", "1-", ",", "/", "::/0", "é", "#", "\n"];
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..20_000 {
            let count = random.usize(..9);
            let text: Vec<&str> = (0..count).map(|_| *random.choice(&words).unwrap()).collect();
            let text = text.join(if random.bool() { " " } else { "" });
            for mistake in parse(&text).err().unwrap_or_default() {
                assert!(mistake.line >= 1 && mistake.column >= 1, "{text:?}");
            }
        }
    }
}
