//! What names a protected interface: its network namespace and its number there.

use std::fmt;
use std::str::FromStr;

use weir_bpf::units::IfIndex;

/// Names one interface of the host, as long as its network namespace lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Inode of the network namespace.
    pub netns: u64,
    /// The interface's number in it.
    pub ifindex: IfIndex,
}

impl Key {
    /// Name of the file that is locked while a daemon protects the interface.
    pub fn lock_file(&self) -> String {
        format!("{self}.lock")
    }

    /// Name of the file that holds the knobs' old values.
    pub fn state_file(&self) -> String {
        format!("{self}{STATE_SUFFIX}")
    }

    /// Name of the file that `weir status` reads.
    pub fn status_file(&self) -> String {
        format!("{self}{STATUS_SUFFIX}")
    }

    /// The key in a file's name, if the rest of the name is `suffix`.
    pub fn of_file(name: &str, suffix: &str) -> Option<Self> {
        name.strip_suffix(suffix)?.parse().ok()
    }
}

/// Suffix of [`Key::state_file`].
pub const STATE_SUFFIX: &str = ".state.json";
/// Suffix of [`Key::status_file`].
pub const STATUS_SUFFIX: &str = ".status.json";

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.netns, self.ifindex.0)
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (netns, ifindex) = text.split_once('-')?;
            Some(Self { netns: netns.parse().ok()?, ifindex: IfIndex(ifindex.parse().ok()?) })
        };
        parse().ok_or_else(|| format!("{text:?} is not of the form NETNS-IFINDEX"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_file_names() {
        let key = Key { netns: 4_026_531_840, ifindex: IfIndex(7) };
        assert_eq!(Key::of_file(&key.state_file(), STATE_SUFFIX), Some(key));
        assert_eq!(Key::of_file(&key.status_file(), STATUS_SUFFIX), Some(key));
        assert_eq!(Key::of_file(&key.lock_file(), STATE_SUFFIX), None);
        assert_eq!(Key::of_file("x-1.state.json", STATE_SUFFIX), None);
        assert_eq!(Key::of_file("1-2-3.state.json", STATE_SUFFIX), None);
    }
}
