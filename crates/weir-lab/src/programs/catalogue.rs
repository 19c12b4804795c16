//! Which programs there are, the packages that they come in, and which versions are installed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{Error, Result};

/// A program that the lab can start.
struct Entry {
    /// The executable's name.
    program: &'static str,
    /// Debian's package.
    package: &'static str,
    /// The option that makes it print its version.
    version_option: &'static str,
}

const ENTRIES: [Entry; 7] = [
    Entry { program: "dnsperf", package: "dnsperf", version_option: "-h" },
    Entry { program: "iperf3", package: "iperf3", version_option: "--version" },
    Entry { program: "memcached", package: "memcached", version_option: "--version" },
    Entry { program: "memcaslap", package: "libmemcached-tools", version_option: "--version" },
    Entry { program: "nginx", package: "nginx-light", version_option: "-v" },
    Entry { program: "nsd", package: "nsd", version_option: "-v" },
    Entry { program: "wrk", package: "wrk", version_option: "--version" },
];

/// Where Debian installs them; `/usr/sbin` is not in every user's `PATH`.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

fn entry(program: &str) -> Result<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.program == program).ok_or_else(|| {
        let known: Vec<_> = ENTRIES.iter().map(|entry| entry.program).collect();
        Error::refused(
            format!("the lab has no program `{program}`"),
            format!("it has {}", known.join(", ")),
        )
    })
}

fn path_of(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// The Debian package that a program comes in; `None` of a program that the lab does not start.
pub(super) fn package(program: &str) -> Option<&'static str> {
    ENTRIES.iter().find(|entry| entry.program == program).map(|entry| entry.package)
}

/// Where a program is installed.
pub(super) fn find(program: &str) -> Result<PathBuf> {
    path_of(entry(program)?.program).map_or_else(|| Err(not_installed(&[entry(program)?])), Ok)
}

/// Checks that every one of these programs is installed.
pub fn missing(programs: &[&str]) -> Result<()> {
    let mut absent = vec![];
    for program in programs {
        let entry = entry(program)?;
        if path_of(program).is_none() {
            absent.push(entry);
        }
    }
    if absent.is_empty() { Ok(()) } else { Err(not_installed(&absent)) }
}

fn not_installed(entries: &[&Entry]) -> Error {
    let list = |field: fn(&Entry) -> &'static str, separator: &str| {
        entries.iter().map(|entry| field(entry)).collect::<Vec<_>>().join(separator)
    };
    Error::refused(
        format!("cannot find {}", list(|entry| entry.program, ", ")),
        format!("apt-get install {}, or run ./setup.sh", list(|entry| entry.package, " ")),
    )
}

/// The version of an installed program, such as `1.22.1`.
pub fn version(program: &str) -> Result<String> {
    let path = find(program)?;
    let option = entry(program)?.version_option;
    let command = format!("{program} {option}");
    // Some end with a failure after they have printed it, and some print it to standard error.
    let output = Command::new(&path)
        .arg(option)
        .output()
        .map_err(|source| Error::io("run", command.clone(), source))?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    version_in(&printed).map(str::to_owned).ok_or_else(|| {
        let package = package(program).unwrap_or(program);
        Error::refused(
            format!("`{command}` printed no version"),
            format!("reinstall {package}; {}", super::text::quote(&printed)),
        )
    })
}

/// The versions of these programs, by the program's name.
pub fn versions(programs: &[&str]) -> Result<BTreeMap<String, String>> {
    missing(programs)?;
    programs.iter().map(|program| Ok(((*program).to_owned(), version(program)?))).collect()
}

/// The first word with a number and a dot, from its first digit on: `1.22.1` of `nginx/1.22.1`.
fn version_in(printed: &str) -> Option<&str> {
    printed.split_whitespace().find_map(|word| {
        let number = &word[word.find(|letter: char| letter.is_ascii_digit())?..];
        number.contains('.').then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_each_program_prints() {
        for (printed, version) in [
            ("nginx version: nginx/1.22.1\n", "1.22.1"),
            ("NSD version 4.6.1\nWritten by NLnet Labs.\n", "4.6.1"),
            ("iperf 3.12 (cJSON 1.7.15)\nLinux", "3.12"),
            ("memcached 1.6.18\n", "1.6.18"),
            ("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", "4.1.0-3+b2"),
            ("DNS Performance Testing Tool\nVersion 2.10.0\n", "2.10.0"),
            ("memaslap v1.0\n", "1.0"),
        ] {
            assert_eq!(version_in(printed), Some(version), "{printed}");
        }
        assert_eq!(version_in("command not found: 127"), None);
    }

    #[test]
    fn one_error_names_every_package() {
        let entries: Vec<_> = ["wrk", "nginx"].map(|program| entry(program).unwrap()).into();
        let error = not_installed(&entries).to_string();
        assert_eq!(
            error,
            "cannot find wrk, nginx; apt-get install wrk nginx-light, or run ./setup.sh"
        );
        assert!(missing(&["apache"]).unwrap_err().to_string().contains("no program `apache`"));
    }
}
