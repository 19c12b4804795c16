//! Lists of CPUs as the kernel writes them: `0-3,8`.

use std::fmt;
use std::str::FromStr;

use crate::units::CpuId;

/// Highest CPU number that is believed: the kernel's largest `CONFIG_NR_CPUS`.
const CPU_MAX: u32 = 8191;

/// CPUs in ascending order, each once, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<CpuId>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (cpu(first)?, cpu(last)?);
            if first > last {
                return Err(format!("{part:?} runs backwards; write {last}-{first}"));
            }
            cpus.extend((first..=last).map(CpuId));
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

fn cpu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number <= CPU_MAX => Ok(number),
        _ => Err(format!("{text:?} is not a CPU number; write a list such as \"0-3,8\"")),
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let [first, ..] = rest {
            let run =
                rest.iter().zip(first.0..).take_while(|(cpu, wanted)| cpu.0 == *wanted).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", rest[run - 1])?,
            }
            separator = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, canonical) in
            [("0", "0"), ("0-3,8", "0-3,8"), ("8,0,1,1", "0-1,8"), ("3-3", "3"), ("0-2,2-5", "0-5")]
        {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", ",", "0,", "a", "-1", "1-", "3-1", "0-99999999", "0 1", "1--2"] {
            let error = text.parse::<CpuList>().unwrap_err();
            assert!(error.contains("write "), "no remedy in: {error}");
        }
    }
}
