//! Names of users.

use std::collections::HashMap;
use std::fs;
use std::time::SystemTime;

use weir_bpf::units::Uid;

use weir_bpf::printable::printable;

const PASSWD: &str = "/etc/passwd";

/// The users of this host's own file. Those of a directory service have their number alone: asking one
/// could take long, or the very network that is flooded.
#[derive(Debug, Default)]
pub struct Users {
    names: HashMap<Uid, String>,
    read: Option<SystemTime>,
}

impl Users {
    /// Reads the file again, if it has changed.
    pub fn refresh(&mut self) {
        let changed = fs::metadata(PASSWD).and_then(|file| file.modified()).ok();
        if changed.is_some() && changed != self.read {
            self.names = parse(&fs::read(PASSWD).unwrap_or_default());
            self.read = changed;
        }
    }

    /// A user's name.
    pub fn name(&self, uid: Uid) -> Option<&str> {
        self.names.get(&uid).map(String::as_str)
    }
}

/// `NAME:PASSWORD:UID:...`; the first of several names of a number counts (getpwuid(3)).
fn parse(passwd: &[u8]) -> HashMap<Uid, String> {
    let mut names = HashMap::new();
    for line in passwd.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, uid) = (fields.next(), fields.nth(1));
        let uid = uid.and_then(|uid| str::from_utf8(uid).ok()?.parse().ok());
        if let (Some(name), Some(uid)) = (name, uid) {
            names.entry(Uid(uid)).or_insert_with(|| printable(name));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts() {
        let names = parse(b"root:x:0:0::/:/bin/sh\n# no\ntoor:x:0:0::/:\nbad:x:y\nweb:x:33:33\n");
        assert_eq!(names.len(), 2);
        assert_eq!((&*names[&Uid(0)], &*names[&Uid(33)]), ("root", "web"));
    }

    #[test]
    fn this_hosts_root_has_its_name() {
        let mut users = Users::default();
        users.refresh();
        assert_eq!((users.name(Uid(0)), users.name(Uid(u32::MAX))), (Some("root"), None));
    }
}
